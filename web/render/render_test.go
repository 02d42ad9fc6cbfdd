package render

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func TestMarkdown(t *testing.T) {
	t.Parallel()
	const rel = ` rel="noopener noreferrer nofollow"`
	for name, c := range map[string]struct{ in, want string }{
		"heading":        {"# A *b* C", `<h1 id="doc-a-b-c">A <em>b</em> C</h1>`},
		"heading twice":  {"# A\n# A", `<h1 id="doc-a">A</h1>` + "\n" + `<h1 id="doc-a-1">A</h1>`},
		"heading, other": {"# Größe", `<h1 id="doc-größe">Größe</h1>`},
		"heading, none":  {"# !", `<h1 id="doc-section">!</h1>`},
		"in-page link":   {"[x](#A-B)", `<p><a href="#doc-a-b"` + rel + `>x</a></p>`},
		"link":           {"[x](https://a.example/?q=1&r)", `<p><a href="https://a.example/?q=1&amp;r" title="Opens a.example" target="_blank"` + rel + `>x</a></p>`},
		"autolink":       {"https://a.example", `<p><a href="https://a.example" title="Opens a.example" target="_blank"` + rel + `>https://a.example</a></p>`},
		"file link":      {"[x](data/a%20b.csv)", `<p><a href="/notebooks/n1/files/data/a%20b.csv"` + rel + `>x</a></p>`},
		"image":          {"![x](./plot.png)", `<p><img src="/notebooks/n1/files/plot.png" alt="x"></p>`},
		"inline image":   {"![x](data:image/png;base64,AAAA)", `<p><img src="data:image/png;base64,AAAA" alt="x"></p>`},
		"image, remote":  {"![x](https://a.example/x.png)", `<p><span class="left-out">[x: not loaded, it is neither a file of this notebook nor part of this text]</span></p>`},
		"strike, task":   {"- [x] ~~a~~", "<ul>\n" + `<li><span class="task">☑</span> <del>a</del></li>` + "\n</ul>"},
		"table": {"|a|b|\n|--:|---|\n|1|2|", "<table>\n<thead>\n<tr>\n" + `<th align="right">a</th>` + "\n<th>b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n" +
			`<td align="right">1</td>` + "\n<td>2</td>\n</tr>\n</tbody>\n</table>"},
		"code":            {"```python\nif x:\n```", `<pre class="code"><code><span class="tok-keyword">if</span> x<span class="tok-punctuation">:</span></code></pre>`},
		"code, hidden":    {"`a\u200bb`", `<p><code>a<span class="invisible" title="Hidden character U+200B, zero width space">⟨U+200B⟩</span>b</code></p>`},
		"prose, override": {"a\u202eb", `<p>a<span class="invisible" title="Hidden character U+202E, right-to-left override">⟨U+202E⟩</span>b</p>`},
		"math":            {"$x_1*y*z_2$", `<p><span class="math inline">x_1*y*z_2</span></p>`},
		"math, escape":    {`$\text{a}<b\$$`, `<p><span class="math inline">\text{a}&lt;b\$</span></p>`},
		"math, display":   {"a $$x$$ b", `<p>a <span class="math display">x</span> b</p>`},
		"math, block":     {"$$\na\n= b\n- c\n$$\nd", `<p><span class="math display">a` + "\n= b\n- c</span></p>\n<p>d</p>"},
		"math, lines":     {"$a\nb$", `<p><span class="math inline">a` + "\nb</span></p>"},
		"math, begin":     {"\\begin{align}\na &= b \\\\\n\\end{align}", `<p><span class="math display">\begin{align}` + "\na &amp;= b \\\\\n\\end{align}</span></p>"},
		"math, no end":    {"$$\na\n\nb", "<p>$$\na</p>\n<p>b</p>"},
		"prices":          {"$5 and $10", "<p>$5 and $10</p>"},
		"US prices":       {"US$5 or CA$6", "<p>US$5 or CA$6</p>"},
		"spaces":          {"$ a $ b$", "<p>$ a $ b$</p>"},
		"escaped dollar":  {`\$a$`, "<p>$a$</p>"},
		"code before":     {"`$a` $b `c$`", "<p><code>$a</code> $b <code>c$</code></p>"},
		"plain tags":      {"H<sub>2</sub>O<br>x", "<p>H<sub>2</sub>O<br>x</p>"},
		"details":         {"<details><summary>s</summary>\n\n**b**\n\n</details>", "<details><summary>s</summary>\n<p><strong>b</strong></p>\n</details>"},
		"attributes go":   {`<b class="approve" id="x" onclick="y">z</b>`, "<p><b>z</b></p>"},
		"HTML image":      {`<img src="a.png" width="30" style="x">`, `<img src="/notebooks/n1/files/a.png" alt="" width="30">`},
		"other tags":      {"<script>x</script> <svg>", "&lt;script&gt;x&lt;/script&gt; &lt;svg&gt;"},
		"comment":         {"a <!-- b --> c", "<p>a  c</p>"},
		"stray end":       {"</div></section>x", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, strings.TrimSpace(string(Markdown(c.in, testOptions)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFootnotesOfTwoCellsStayApart(t *testing.T) {
	t.Parallel()
	a := Markdown("x[^1]\n\n[^1]: note", Options{Scope: "c1"})
	b := Markdown("x[^1]\n\n[^1]: note", Options{Scope: "c2"})
	if !strings.Contains(string(a), `href="#doc-c1-fn:1"`) || !strings.Contains(string(a), `id="doc-c1-fn:1"`) || !strings.Contains(string(b), `id="doc-c2-fn:1"`) {
		t.Errorf("%s\n%s", a, b)
	}
}

func TestWithoutFilesRelativeLinksLeadNowhere(t *testing.T) {
	t.Parallel()
	got := string(Markdown("[x](a.csv) ![y](b.png)", Options{}))
	if strings.Contains(got, "href") || strings.Contains(got, "src") {
		t.Error(got)
	}
}

func TestCode(t *testing.T) {
	t.Parallel()
	got := string(Code("def f(x):\n    return \"a\" + str(x) # c\n", "python"))
	for _, want := range []string{
		`<span class="tok-keyword">def</span>`, `<span class="tok-variableName tok-definition">f</span>`, `<span class="tok-string">&#34;a&#34;</span>`,
		`<span class="tok-variableName2">str</span>`, `<span class="tok-comment"># c</span>`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	for _, lang := range []string{"python", "javascript", "r", "markdown", "html", "bash", "sql", "json", "diff", "go", "c++", "nonsense", ""} {
		for _, src := range []string{"", "\n", "x", "x\n", "\n\nx", "  x  \n\n", "%matplotlib inline\n!ls\n?x", "a\tb", "a = '''\n", "{", "\x00\x1b[31m", "# ü\n"} {
			if got := textOf(string(Code(src, lang))); got != strings.NewReplacer("\x00", "␀", "\x1b", "␛").Replace(src) {
				t.Errorf("%s: %q shows as %q", lang, src, got)
			}
		}
	}
	if got := string(Code(strings.Repeat("if x: pass\n", 30000), "python")); strings.Contains(got, "<span") {
		t.Error("huge code is highlighted")
	}
	if got := string(Code("x = '"+strings.Repeat("a", 10000)+"'", "python")); strings.Contains(got, "<span") {
		t.Error("a huge line is highlighted")
	}
	if got := string(Code("if a\u2066:", "python")); !strings.Contains(got, "⟨U+2066⟩") {
		t.Error(got)
	}
}

func TestEveryLanguageHasItsLexer(t *testing.T) {
	t.Parallel()
	for lang := range languages {
		if lang == "markdown" || lang == "md" || lang == "html" || lang == "pycon" {
			continue // these colour little of the sample
		}
		sample := "x = 1\n\"text\" <a b=\"c\"> # 12 -- // if true return;\n[x]\na: \"b\"\n+c\n@@ -1 +1 @@\n>>> 1\n$ ls | wc 2\nFROM x\n"
		if !strings.Contains(string(Code(sample, lang)), "tok-") {
			t.Errorf("%s is not coloured", lang)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	got := string(JSON(`{"b":[1,2.50,1e400,null,true,"x\ny"],"a":{},"a":[]}`))
	want := `<div class="json"><details class="json-node" open><summary><span class="json-more">{3 keys}</span></summary>` +
		`<details class="json-node"><summary><span class="json-key">b</span>: <span class="json-more">[6 items]</span></summary>` +
		`<div class="json-row"><span class="json-key">0</span>: <span class="json-number">1</span></div>` +
		`<div class="json-row"><span class="json-key">1</span>: <span class="json-number">2.50</span></div>` +
		`<div class="json-row"><span class="json-key">2</span>: <span class="json-number">1e400</span></div>` +
		`<div class="json-row"><span class="json-key">3</span>: <span class="json-null">null</span></div>` +
		`<div class="json-row"><span class="json-key">4</span>: <span class="json-bool">true</span></div>` +
		`<div class="json-row"><span class="json-key">5</span>: <span class="json-string">&#34;x\ny&#34;</span></div></details>` +
		`<div class="json-row"><span class="json-key">a</span>: <span class="json-more">{}</span></div>` +
		`<div class="json-row"><span class="json-key">a</span>: <span class="json-more">[]</span></div></details></div>`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "{", "[1", "{} {}", "nope", `{"a":}`, "[1,]", "\x00"} {
		if got := string(JSON(bad)); !strings.HasPrefix(got, `<pre class="plain">`) {
			t.Errorf("%q became %s", bad, got)
		}
	}
}

func TestJSONIsBounded(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"wide": "[" + strings.Repeat("1,", 100000) + "1]", "deep": strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"objects": "[" + strings.Repeat(`{"a":{"b":[1,2]}},`, 20000) + "1]", "long": `["` + strings.Repeat("a", 1<<20) + `"]`,
		"huge": `"` + strings.Repeat("a", maxJSON) + `"`, "keys": `{"` + strings.Repeat("k", 1<<20) + `":1}`,
	} {
		h := JSON(src)
		if name != "huge" && len(h) > 1<<20 {
			t.Errorf("%s: %d bytes", name, len(h))
		}
		if why := unsafe(h, ""); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
	if got := string(JSON("[" + strings.Repeat("1,", 4999) + "1]")); !strings.Contains(got, "2001 more values not shown") || !strings.Contains(got, "[5000 items]") {
		t.Error("what is left out is not counted")
	}
}

func TestTraceback(t *testing.T) {
	t.Parallel()
	got := string(Traceback("Value<Error", "bad \x1b[31mx", []string{"\x1b[0;31m---\x1b[0m", "line 2"}))
	want := `<div class="traceback"><p class="traceback-head"><span class="traceback-name">Value&lt;Error</span>: <span class="traceback-value">bad <span class="ansi-fg-1">x</span></span></p>` +
		`<pre class="ansi"><span class="ansi-fg-1">---</span>` + "\nline 2</pre></div>"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBundleChoice(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("ab", 32)
	v := func(s string) Value { return Value{Text: s} }
	pandas := `<div><style scoped>.dataframe tbody tr th:only-of-type { vertical-align: middle; }
    .dataframe tbody tr th { vertical-align: top; }</style><table border="1" class="dataframe"><thead><tr style="text-align: right;"><th></th><th>a</th></tr></thead></table></div>`
	for name, c := range map[string]struct {
		in    Bundle
		tier  Tier
		mime  string
		has   string
		frame bool
	}{
		"text":             {Bundle{"text/plain": v("a\x1b[1mb")}, TierPlain, "text/plain", `<pre class="ansi">a<span class="ansi-bold">b</span></pre>`, false},
		"png":              {Bundle{"image/png": v(onePixel[:20] + "\n" + onePixel[20:]), "text/plain": v("<Figure size 1x1 with 1 Axes>")}, TierPlain, "image/png", `<img class="out-image" src="data:image/png;base64,` + onePixel + `" alt="Figure size 1x1 with 1 Axes" width="1" height="1">`, false},
		"png blob":         {Bundle{"image/png": Value{Blob: hash, Width: 640, Height: 480}}, TierPlain, "image/png", `src="/blobs/` + hash + `" alt="Picture made by this cell" width="640" height="480"`, false},
		"png broken":       {Bundle{"image/png": v("!!!"), "text/plain": v("t")}, TierPlain, "text/plain", "t", false},
		"png bad blob":     {Bundle{"image/png": Value{Blob: "../x"}, "text/plain": v("t")}, TierPlain, "text/plain", "t", false},
		"svg":              {Bundle{"image/svg+xml": v("<svg onload=x>")}, TierPlain, "image/svg+xml", `<img class="out-image" src="data:image/svg+xml;base64,`, false},
		"svg over png":     {Bundle{"image/svg+xml": v("<svg>"), "image/png": v(onePixel)}, TierPlain, "image/svg+xml", "", false},
		"pandas":           {Bundle{"text/html": v(pandas), "text/plain": v("t")}, TierSanitized, "text/html", `<table class="dataframe"><thead><tr align="right">`, false},
		"polars":           {Bundle{"text/html": v(`<div><style>.dataframe > thead > tr, .dataframe > tbody > tr { text-align: right; }</style><table class="dataframe"><tr><td>1</td></tr></table></div>`)}, TierSanitized, "text/html", `class="dataframe"`, false},
		"bold":             {Bundle{"text/html": v("<b id=x style='color:red'>x</b>")}, TierSanitized, "text/html", "<b>x</b>", false},
		"styled":           {Bundle{"text/html": v("<style>#T_1 td {color:red}</style><table id=T_1><tr><td>1</td></tr></table>"), "text/plain": v("<Styler>")}, TierActive, "text/html", "<td>1</td>", true},
		"style escapes":    {Bundle{"text/html": v("<style>.dataframe {} body {color:red}</style><p>x</p>")}, TierActive, "text/html", "<p>x</p>", true},
		"script":           {Bundle{"text/html": v("<div id=a></div><script>1</script>"), "text/plain": v("fallback")}, TierActive, "text/html", "fallback", true},
		"script, image":    {Bundle{"text/html": v("<script>1</script>"), "image/png": v(onePixel), "text/plain": v("t")}, TierActive, "text/html", "<img ", true},
		"handler":          {Bundle{"text/html": v("<p onclick=x>y</p>")}, TierActive, "text/html", "<p>y</p>", true},
		"inline svg":       {Bundle{"text/html": v("<svg></svg>"), "text/plain": v("t")}, TierActive, "text/html", "t", true},
		"iframe":           {Bundle{"text/html": v("<iframe src=https://x></iframe>")}, TierActive, "text/html", "no still picture", true},
		"html blob":        {Bundle{"text/html": Value{Blob: hash}, "text/plain": v("t")}, TierActive, "text/html", "t", true},
		"empty html":       {Bundle{"text/html": v("<div></div>"), "text/plain": v("t")}, TierPlain, "text/plain", "t", false},
		"bokeh":            {Bundle{"text/html": v("<div id=b></div>"), "application/javascript": v("draw()"), "text/plain": v("t")}, TierActive, "text/html", "t", true},
		"plotly":           {Bundle{plotlyType: v(`{"data":[]}`), "text/html": v("<script>1</script>"), "text/plain": v("t")}, TierActive, plotlyType, "t", true},
		"plotly broken":    {Bundle{plotlyType: v("{"), "text/plain": v("t")}, TierPlain, "text/plain", "t", false},
		"plotly alone":     {Bundle{plotlyType: v("{}")}, TierActive, plotlyType, "This Plotly figure is drawn", true},
		"vegalite":         {Bundle{"application/vnd.vegalite.v5+json": v("{}"), "text/plain": v("t")}, TierActive, "application/vnd.vegalite.v5+json", "t", true},
		"vega":             {Bundle{"application/vnd.vega.v5.1.2+json": v("{}")}, TierActive, "application/vnd.vega.v5.1.2+json", "Vega chart", true},
		"script alone":     {Bundle{"application/javascript": v("alert(1)")}, TierActive, "application/javascript", "alert", true},
		"widget":           {Bundle{"application/vnd.jupyter.widget-view+json": v(`{"model_id":"x"}`), "text/plain": v("IntSlider(value=0)")}, TierPlain, "text/plain", "IntSlider", false},
		"markdown":         {Bundle{"text/markdown": v("**b**"), "text/plain": v("t")}, TierPlain, "text/markdown", "<strong>b</strong>", false},
		"latex":            {Bundle{"text/latex": v(`$\displaystyle x$`), "text/plain": v("x")}, TierPlain, "text/latex", `<span class="math display">\displaystyle x</span>`, false},
		"latex, two":       {Bundle{"text/latex": v(`$a$ and $b$`)}, TierPlain, "text/latex", `$a$ and $b$`, false},
		"json":             {Bundle{"application/json": v(`{"a":1}`), "text/plain": v("t")}, TierPlain, "application/json", `class="json"`, false},
		"other json":       {Bundle{"application/vnd.x+json": v(`{"a":1}`)}, TierPlain, "application/vnd.x+json", `class="json"`, false},
		"other json, text": {Bundle{"application/vnd.x+json": v(`{"a":1}`), "text/plain": v("t")}, TierPlain, "text/plain", "t", false},
		"unknown":          {Bundle{"application/x-thing": v("abc")}, TierPlain, "", "Its type is application/x-thing.", false},
		"unknown blob":     {Bundle{"application/pdf": Value{Blob: hash, Size: 123456}}, TierPlain, "", "Download it (application/pdf, 123 kB)", false},
		"text blob":        {Bundle{"text/plain": Value{Blob: hash, Size: 12_345_678}}, TierPlain, "text/plain", "Download it (text/plain, 12.3 MB)", false},
		"nothing":          {Bundle{}, TierPlain, "", "This output is empty.", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := testOptions.Render(c.in)
			if out.Tier != c.tier || out.Mime != c.mime || (out.Frame != nil) != c.frame || !strings.Contains(string(out.HTML), c.has) {
				t.Errorf("got tier %d, %q, frame %v: %s", out.Tier, out.Mime, out.Frame, out.HTML)
			}
			if out.HTML == "" {
				t.Error("nothing to show")
			}
			if why := unsafe(out.HTML, testOptions.FilesBase); why != "" {
				t.Error(why)
			}
		})
	}
}

func TestFramesSayWhatTheyWouldLoad(t *testing.T) {
	t.Parallel()
	out := testOptions.Render(Bundle{"text/html": {Text: `<script src="https://cdn.example/x.js"></script><script src="https://cdn.example/y.js"></script><link href="//fonts.example/a" rel=stylesheet><a href="https://no.example">`}})
	if diff := cmp.Diff([]string{"cdn.example", "fonts.example"}, out.Frame.Hosts); diff != "" {
		t.Error(diff)
	}
	bokeh := testOptions.Render(Bundle{"text/html": {Text: "<div id=b></div>"}, "application/javascript": {Text: "draw()"}})
	if bokeh.Frame.Text != "<div id=b></div><script>draw()</script>" {
		t.Errorf("got %q", bokeh.Frame.Text)
	}
}

// TestHostileSizes: nothing takes long, and nothing that is shown is unbounded.
func TestHostileSizes(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func() HTML{
		"deep html": func() HTML {
			return testOptions.Render(Bundle{"text/html": {Text: strings.Repeat("<b>", 100000)}}).HTML
		},
		"deep divs": func() HTML {
			return testOptions.Render(Bundle{"text/html": {Text: strings.Repeat("<div>", 100000) + "x"}}).HTML
		},
		"tables": func() HTML {
			return testOptions.Render(Bundle{"text/html": {Text: strings.Repeat("<table><td>", 30000)}}).HTML
		},
		"wide html": func() HTML {
			return testOptions.Render(Bundle{"text/html": {Text: strings.Repeat("<i>a</i>", 100000)}}).HTML
		},
		"formatting": func() HTML {
			return testOptions.Render(Bundle{"text/html": {Text: strings.Repeat("<p><b><i><u>x", 3000)}}).HTML
		},
		"anchors": func() HTML {
			return testOptions.Render(Bundle{"text/html": {Text: strings.Repeat("<a href=a>x", 20000)}}).HTML
		},
		"attributes": func() HTML {
			return testOptions.Render(Bundle{"text/html": {Text: "<p " + strings.Repeat("a=b ", 200000) + ">x"}}).HTML
		},
		"huge html": func() HTML {
			return testOptions.Render(Bundle{"text/html": {Text: strings.Repeat("a", maxHTML+1)}}).HTML
		},
		"brackets":       func() HTML { return Markdown(strings.Repeat("[", 50000), testOptions) },
		"links":          func() HTML { return Markdown(strings.Repeat("[a](", 20000), testOptions) },
		"images":         func() HTML { return Markdown(strings.Repeat("![", 50000), testOptions) },
		"emphasis":       func() HTML { return Markdown(strings.Repeat("*a_ ", 20000), testOptions) },
		"quotes":         func() HTML { return Markdown(strings.Repeat(">", 5000)+"x", testOptions) },
		"lists":          func() HTML { return Markdown(strings.Repeat("- ", 5000)+"x", testOptions) },
		"backticks":      func() HTML { return Markdown(strings.Repeat("`a``b```c", 5000), testOptions) },
		"dollars":        func() HTML { return Markdown(strings.Repeat("$a ", 30000), testOptions) },
		"double dollars": func() HTML { return Markdown(strings.Repeat("$$ a ", 20000), testOptions) },
		"dollar lines":   func() HTML { return Markdown(strings.Repeat("$$a\n", 20000), testOptions) },
		"begin lines":    func() HTML { return Markdown(strings.Repeat("\\begin{a}\n", 20000), testOptions) },
		"tags":           func() HTML { return Markdown(strings.Repeat("<a ", 30000), testOptions) },
		"headings":       func() HTML { return Markdown(strings.Repeat("# a\n", 20000), testOptions) },
		"footnotes":      func() HTML { return Markdown(strings.Repeat("[^1]", 5000)+"\n\n[^1]: x", testOptions) },
		"table cells":    func() HTML { return Markdown("|a|\n|-|\n"+strings.Repeat("|", 50000), testOptions) },
		"links by ref":   func() HTML { return Markdown("[a]: b\n"+strings.Repeat("[a]", 20000), testOptions) },
		"huge markdown":  func() HTML { return Markdown(strings.Repeat("a", maxMarkdown+1), testOptions) },
		"python strings": func() HTML { return Code(strings.Repeat("'\\", 90000), "python") },
		"python nest":    func() HTML { return Code(strings.Repeat("f'{", 2500), "python") },
		"markdown code": func() HTML {
			return Code(strings.Repeat("*a ", 2500)+"\n"+strings.Repeat("[a](b\n", 20000), "markdown")
		},
		"javascript code": func() HTML { return Code(strings.Repeat("/a/(\n", 30000), "javascript") },
		"escapes":         func() HTML { return ANSI(strings.Repeat("\x1b]", 200000)) },
		"sgr":             func() HTML { return ANSI("\x1b[" + strings.Repeat("1;", 200000) + "m") },
		"osc":             func() HTML { return ANSI(strings.Repeat("\x1b]8;;", 100000)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			h := f()
			if d := time.Since(start); d > 500*time.Millisecond {
				t.Logf("took %v", d)
			}
			if len(h) < 2<<20 {
				if why := unsafe(h, testOptions.FilesBase); why != "" {
					t.Error(why)
				}
			}
		})
	}
}

func TestLargeTableIsCutWithWords(t *testing.T) {
	t.Parallel()
	h := testOptions.Render(Bundle{"text/html": {Text: "<table class=dataframe>" + strings.Repeat("<tr><td>1<td>2</tr>", 20000) + "</table>"}}).HTML
	if !strings.Contains(string(h), "The rest of this output is too large to show here.") {
		t.Error("nothing says that rows are missing")
	}
	if why := unsafe(h, ""); why != "" {
		t.Error(why)
	}
}

func TestInlineImagesMustBeBase64(t *testing.T) {
	t.Parallel()
	big := base64.StdEncoding.EncodeToString(make([]byte, maxInline))
	for name, s := range map[string]string{"empty": "", "spaces": "  ", "odd": "AAA", "quote": `AA"A`, "big": big} {
		if out := testOptions.Render(Bundle{"image/png": {Text: s}}); strings.Contains(string(out.HTML), "<img") {
			t.Errorf("%s became an image", name)
		}
	}
	if got := fmt.Sprint(size(-1), "; ", size(999), "; ", size(1500), "; ", size(2e9)); got != "unknown size; 999 bytes; 2 kB; 2.0 GB" {
		t.Error(got)
	}
}

func FuzzMarkdown(f *testing.F) {
	for _, p := range payloads {
		f.Add(p)
	}
	for _, shape := range shapes {
		f.Add(shape(40))
		f.Add(shape(60))
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 20000 {
			return
		}
		if units, _, _ := spent(s); units > textWork+maxPairs/500+proseText+proseByte*20000*3 { // each bad byte becomes three
			t.Fatalf("%q took %d", s, units)
		}
		if why := unsafe(Markdown(s, testOptions), testOptions.FilesBase); why != "" {
			t.Fatalf("%q: %s\n%s", s, why, Markdown(s, testOptions))
		}
	})
}

func FuzzHTML(f *testing.F) {
	for _, p := range payloads {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 20000 {
			return
		}
		for mime, other := range map[string]Bundle{"text/html": {"text/html": {Text: s}}, "any": {"text/html": {Text: s}, "text/plain": {Text: s}, "image/svg+xml": {Text: s}}} {
			h := testOptions.Render(other).HTML
			if why := unsafe(h, testOptions.FilesBase); why != "" {
				t.Fatalf("%s %q: %s\n%s", mime, s, why, h)
			}
		}
		if h, ok := sanitize(s, fromOutput, testOptions); ok {
			if why := unsafe(h, testOptions.FilesBase); why != "" {
				t.Fatalf("%q: %s\n%s", s, why, h)
			}
		}
	})
}
