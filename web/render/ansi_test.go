package render

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestANSI(t *testing.T) {
	t.Parallel()
	link := func(href, host, text string) string {
		return `<a href="` + href + `" title="Opens ` + host + `" target="_blank" rel="noopener noreferrer nofollow">` + text + `</a>`
	}
	for name, c := range map[string]struct{ in, want string }{
		"plain":            {"a\tb\nc", "a\tb\nc"},
		"escapes":          {`<b>&"'`, "&lt;b&gt;&amp;&#34;&#39;"},
		"colour":           {"\x1b[31mred\x1b[0m x", `<span class="ansi-fg-1">red</span> x`},
		"bright":           {"\x1b[92;101mx", `<span class="ansi-fg-10 ansi-bg-9">x</span>`},
		"weights":          {"\x1b[1;2;3;4;9mx", `<span class="ansi-bold ansi-dim ansi-italic ansi-underline ansi-strike">x</span>`},
		"weights off":      {"\x1b[1;2;3;4;9m\x1b[22;23;24;29mx", "x"},
		"double line":      {"\x1b[21mx\x1b[4:0my", `<span class="ansi-underline">x</span>y`},
		"default colours":  {"\x1b[31;41mx\x1b[39my\x1b[49mz", `<span class="ansi-fg-1 ansi-bg-1">x</span><span class="ansi-bg-1">y</span>z`},
		"empty reset":      {"\x1b[1mx\x1b[my", `<span class="ansi-bold">x</span>y`},
		"256":              {"\x1b[38;5;208;48;5;17mx", `<span class="ansi-fg-208 ansi-bg-17">x</span>`},
		"256 colon":        {"\x1b[38:5:208mx", `<span class="ansi-fg-208">x</span>`},
		"true colour":      {"\x1b[38;2;255;135;0mx", `<span class="ansi-fg-208">x</span>`},
		"colon, space":     {"\x1b[48:2:0:255:135:0mx", `<span class="ansi-bg-208">x</span>`},
		"colon, no space":  {"\x1b[48:2:255:135:0mx", `<span class="ansi-bg-208">x</span>`},
		"grey":             {"\x1b[38;2;9;9;9mx", `<span class="ansi-fg-232">x</span>`},
		"colour too big":   {"\x1b[38;5;256mx\x1b[38;2;1;2;999my", "xy"},
		"colour cut off":   {"\x1b[38;5mx\x1b[38;2;1my\x1b[38mz", "xyz"},
		"underline paint":  {"\x1b[58;5;1;3mx", `<span class="ansi-italic">x</span>`},
		"inverse":          {"\x1b[7mx\x1b[31my\x1b[27mz", `<span class="ansi-inverse">x</span><span class="ansi-inverse ansi-bg-1">y</span><span class="ansi-fg-1">z</span>`},
		"conceal, blink":   {"\x1b[8;5mx", "x"},
		"same style":       {"\x1b[31ma\x1b[31mb\x1b[0;31mc", `<span class="ansi-fg-1">abc</span>`},
		"cursor":           {"a\x1b[2J\x1b[10;3Hb\x1b[?25lc\x1b[1Kd", "abcd"},
		"two-byte":         {"a\x1b7b\x1bcc\x1b(Bd\x1b=e", "abcde"},
		"title":            {"a\x1b]0;title\x07b\x1b]2;t\x1b\\c", "abc"},
		"device strings":   {"a\x1bPq#0\x1b\\b\x1b_x\x1b\\c\x1b^y\x1b\\d", "abcd"},
		"no terminator":    {"a\x1b]0;title\nb", "a0;title\nb"},
		"cut sequence":     {"a\x1b[31", "a"},
		"lone escape":      {"a\x1b", "a"},
		"C1":               {"\u009b31mx\u009b0my\u009d0;t\u009cz", `<span class="ansi-fg-1">x</span>yz`},
		"CRLF":             {"a\r\nb", "a\nb"},
		"bell":             {"a\x07b", "ab"},
		"control":          {"a\x00b", `a<span class="invisible" title="Hidden character U+0000">␀</span>b`},
		"lone return":      {"a\rb", `a<span class="invisible" title="Hidden character U+000D">␍</span>b`},
		"bidi":             {"a\u202eb", `a<span class="invisible" title="Hidden character U+202E, right-to-left override">⟨U+202E⟩</span>b`},
		"not UTF-8":        {"a\xffb", "a\uFFFDb"},
		"link":             {"\x1b]8;id=1;https://a.example/p?q=1&r\x1b\\x\x1b]8;;\x1b\\y", link("https://a.example/p?q=1&amp;r", "a.example", "x") + "y"},
		"link, colour":     {"\x1b]8;;http://a.example/\x07\x1b[1mx\x1b]8;;\x07y", link("http://a.example/", "a.example", `<span class="ansi-bold">x</span>`) + `<span class="ansi-bold">y</span>`},
		"link, open":       {"\x1b]8;;http://a.example\x07x", link("http://a.example", "a.example", "x")},
		"link to link":     {"\x1b]8;;http://a.example\x07x\x1b]8;;http://b.example\x07y", link("http://a.example", "a.example", "x") + link("http://b.example", "b.example", "y")},
		"link, look-alike": {"\x1b]8;;https://gооgle.example\x07x", link("https://xn--ggle-55da.example", "xn--ggle-55da.example", "x")},
		"link, script":     {"\x1b]8;;javascript:alert(1)\x07x\x1b]8;;\x07", "x"},
		"link, password":   {"\x1b]8;;https://good.example@evil.example/\x07x", "x"},
		"link, path":       {"\x1b]8;;/api\x07x\x1b]8;;//evil.example\x07y", "xy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, string(ANSI(c.in))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestJoinersOfRealWritingStay(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"👩\u200d💻", "❤\ufe0f", "می\u200cخواهم", "क\u094d\u200dष", "葛\U000E0100"} {
		if got := string(ANSI(s)); got != s {
			t.Errorf("ANSI(%q) = %q", s, got)
		}
	}
	for _, s := range []string{"pass\u200dword", "a\u200cb", "x\U000E0100", "❤\ufe0f\ufe0f", "\ufeffx", "a\u00adb"} {
		if got := string(ANSI(s)); !strings.Contains(got, "invisible") {
			t.Errorf("ANSI(%q) = %q hides something", s, got)
		}
	}
}

func TestANSIIsBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 100000 {
		fmt.Fprintf(&b, "\x1b[3%dm%d", i%8, i%10)
	}
	got := string(ANSI(b.String()))
	if n := strings.Count(got, "<span"); n > maxSpans {
		t.Errorf("%d spans, want at most %d", n, maxSpans)
	}
	if text := textOf(got); len(text) != 100000 {
		t.Errorf("%d characters of text, want 100000: colour may go, text may not", len(text))
	}
	hidden := string(ANSI(strings.Repeat("\u202e", 100000)))
	if n := strings.Count(hidden, "<span"); n > maxMarks {
		t.Errorf("%d marks, want at most %d", n, maxMarks)
	}
	if n := strings.Count(hidden, "⟨U+202E⟩"); n != 100000 {
		t.Errorf("%d characters shown, want all", n)
	}
	if why := unsafe(HTML(hidden), ""); why != "" {
		t.Error(why)
	}
}

func textOf(h string) string {
	nodes, _ := parseFragment(h)
	var b strings.Builder
	for _, n := range nodes {
		for d := range n.Descendants() {
			if d.FirstChild == nil {
				b.WriteString(d.Data)
			}
		}
		if n.FirstChild == nil {
			b.WriteString(n.Data)
		}
	}
	return b.String()
}

func TestPaletteNearestIsNearest(t *testing.T) {
	t.Parallel()
	for c := int16(16); c < 256; c++ {
		r, g, b := paletteRGB(int(c))
		got := nearest(r, g, b)
		gr, gg, gb := paletteRGB(int(got))
		if gr != r || gg != g || gb != b {
			t.Errorf("colour %d (%d,%d,%d) became %d (%d,%d,%d)", c, r, g, b, got, gr, gg, gb)
		}
	}
	if css := Stylesheet(); strings.Count(css, ".ansi-fg-") != 240 || !strings.Contains(css, ".ansi-fg-208{color:#ff8700}") {
		t.Error("the style sheet lacks colours")
	}
}

func FuzzANSI(f *testing.F) {
	for _, p := range payloads {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h := ANSI(s)
		if why := unsafe(h, ""); why != "" {
			t.Fatalf("%q: %s\n%s", s, why, h)
		}
	})
}
