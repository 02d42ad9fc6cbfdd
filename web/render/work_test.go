package render

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// shapes are texts whose parts multiply: what is inside each is asked again for
// every line, row or pair.
var shapes = map[string]func(n int) string{
	"quotes in a line":    func(n int) string { return strings.Repeat(">", n) },
	"quotes with spaces":  func(n int) string { return strings.Repeat("> ", n) + "x" },
	"lists in a line":     func(n int) string { return strings.Repeat("- ", n) + "x" },
	"numbers in a line":   func(n int) string { return strings.Repeat("1. ", n) + "x" },
	"quotes and lists":    func(n int) string { return strings.Repeat("> - + * 1) ", n) },
	"footnotes in a line": func(n int) string { return strings.Repeat("[^1]: ", n) },
	"tabs":                func(n int) string { return strings.Repeat("-\t", n) + "x" },
	"quotes, each line one more": func(n int) string {
		return lines(min(n, 700), func(i int) string { return strings.Repeat(">", i) + "x" })
	},
	"lists, each line one more": func(n int) string {
		return lines(min(n, 700), func(i int) string { return strings.Repeat("  ", i) + "- x" })
	},
	"lists by steps of 40": func(n int) string {
		return lines(min(n/40, 40), func(i int) string { return strings.Repeat("  ", 40*i) + strings.Repeat("- ", 40) + "x" })
	},
	"blank lines in lists": func(n int) string { return strings.Repeat("- ", 49) + "x" + strings.Repeat("\n", n) + "y" },
	"blank lines in quotes": func(n int) string {
		return strings.Repeat(">", 49) + strings.Repeat("\n"+strings.Repeat(">", 49), n/49)
	},
	"lazy lines in lists": func(n int) string { return strings.Repeat("- ", 49) + strings.Repeat("x\n", n) },
	"list after list":     func(n int) string { return strings.Repeat(strings.Repeat("- ", 49)+"x\n", n/49) },
	"table of n by n": func(n int) string {
		return strings.Repeat("|a", n) + "\n" + strings.Repeat("|-", n) + "\n" + strings.Repeat("|\n", n)
	},
	"table in a quote": func(n int) string {
		return "> " + strings.Repeat("|a", n) + "\n> " + strings.Repeat(":-|", n) + "\n" + strings.Repeat("> |\n", n)
	},
	"brackets": func(n int) string { return strings.Repeat("[a*_", n) },
	"footnotes": func(n int) string {
		return lines(n, func(i int) string { return fmt.Sprintf("[^%d]: x", i) }) + "\n" + strings.Repeat("[^x]", n)
	},
	"code":                 func(n int) string { return strings.Repeat("```python\nif x: pass\n```\n", n) },
	"formulas without end": func(n int) string { return strings.Repeat("\\begin{a}\n", n) },
	"paragraphs":           func(n int) string { return strings.Repeat("x\n\n", n) },
	"headings":             func(n int) string { return strings.Repeat("a\n=\n", n) },
	"prose": func(n int) string {
		return strings.Repeat("Some *prose* of a normal kind, with words and `code`.\n\n", n)
	},
}

func lines(n int, line func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i) + "\n")
	}
	return b.String()
}

// spent formats a text and says what that took, and whether it is shown plain.
func spent(src string) (units int64, plain bool, h HTML) {
	w := NewWork(1<<40, nil)
	o := testOptions
	o.Work = w
	h = Markdown(src, o)
	return 1<<40 - w.left, strings.Contains(string(h), "Shown as plain text"), h
}

// Markdown of 64 KiB of ">" once cost ten seconds for every view, and a table
// of 10,000 columns and rows all memory there was.
func TestMarkdownIsNotQuadratic(t *testing.T) {
	t.Parallel()
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{45, 160, 1000} {
				a, b := shape(n), shape(8*n)
				ua, plainA, ha := spent(a)
				ub, plainB, _ := spent(b)
				if why := unsafe(ha, testOptions.FilesBase); n < 1000 && why != "" {
					t.Errorf("%d: %s", n, why)
				}
				if plainA && !plainB && name != "prose" {
					t.Errorf("%d is shown plain, %d is not", n, 8*n)
				}
				// What grows with the square is cut off by the bound of a text.
				grown := float64(ub) / float64(ua) / (float64(len(b)) / float64(len(a)))
				if most := int64(textWork + maxPairs/500 + proseText + proseByte*len(b) + codeByte*maxHighlight); ub > most {
					t.Errorf("%d bytes took %d, want at most %d", len(b), ub, most)
				}
				if grown > 2 && ub > textWork/2 && !plainB {
					t.Errorf("%d bytes took %d, %d took %d: %.1f times as much for a byte", len(a), ua, len(b), ub, grown)
				}
			}
		})
	}
}

func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		src   string
		plain bool
	}{
		"50 quotes":             {strings.Repeat(">", 50) + "x", false},
		"51 quotes":             {strings.Repeat(">", 51) + "x", true},
		"50 items":              {strings.Repeat("- ", 50) + "x", false},
		"51 items":              {strings.Repeat("- ", 51) + "x", true},
		"60 items over lines":   {strings.Repeat("- ", 30) + "x\n" + strings.Repeat("  ", 30) + strings.Repeat("- ", 30) + "x", true},
		"60 quotes in two":      {strings.Repeat(">", 30) + "x\n\n" + strings.Repeat(">", 30) + "x", false},
		"many quotes in code":   {"```\n" + strings.Repeat(">", 5000) + "\n```", false},
		"many quotes in a line": {"x " + strings.Repeat(">", 5000), false},
		"a rule of dashes":      {strings.Repeat("- ", 5000), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, plain, h := spent(c.src); plain != c.plain {
				t.Errorf("shown plain: %t, want %t: %.300s", plain, c.plain, h)
			}
		})
	}
}

// A long text of a normal kind stays far below the bound.
func TestLongProseIsFormatted(t *testing.T) {
	t.Parallel()
	para := "## A heading\n\nSome *prose* of a [normal](a.md) kind, with `code` and $x^2$.\n\n- an item\n  - and one in it\n\n> said\n\n|a|b|\n|-|-|\n|1|2|\n\n"
	src := strings.Repeat(para, 128<<10/len(para))
	if units, plain, _ := spent(src); plain || units > textWork/2 {
		t.Errorf("%d bytes took %d, shown plain: %t", len(src), units, plain)
	}
}

func TestAPageHasSoMuchWork(t *testing.T) {
	t.Parallel()
	text := "# A *heading*\n\n" + strings.Repeat("word ", 1000)
	one, _, _ := spent(text)
	o := testOptions
	o.Work, o.Cache = NewWork(3*one+one/2, nil), NewCache(1<<20)
	o.Say = func(en string) string { return "« " + en + " »" }
	page := func() (plain int) {
		for i := range 6 {
			h := Markdown(fmt.Sprint(text, i), o)
			if strings.Contains(string(h), "« "+pageFull+" »") {
				plain++
			} else if !strings.Contains(string(h), "<em>heading</em>") {
				t.Errorf("text %d: %.200s", i, h)
			}
		}
		return plain
	}
	for i, want := range []int{3, 0, 0} { // what was formatted stays so, and costs nothing
		if got := page(); got != want {
			t.Errorf("view %d: %d texts are shown plain, want %d", i+1, got, want)
		}
		o.Work = NewWork(3*one+one/2, nil)
	}
	o.Work = NewWork(0, nil)
	if got := page(); got != 0 {
		t.Errorf("with a full cache and no work left: %d texts are shown plain", got)
	}
	for name, b := range map[string]Bundle{
		"markdown": {"text/markdown": {Text: "*new*"}}, "html": {"text/html": {Text: "<b>new</b>"}}, "json": {"application/json": {Text: `{"new":1}`}},
		"html and text": {"text/html": {Text: "<b>other</b>"}, "text/plain": {Text: "new"}},
	} {
		h := o.Render(b).HTML
		if !strings.Contains(string(h), "« "+pageFull) || !strings.Contains(string(h), "new") || unsafe(h, "") != "" {
			t.Errorf("%s without work left: %s", name, h)
		}
	}
	if h := o.Code("if new: pass", "python"); h != "if new: pass" {
		t.Errorf("code without work left: %s", h)
	}
}

// Formatting ends when nobody waits for the page any more.
func TestWorkStops(t *testing.T) {
	t.Parallel()
	asked := 0
	o := testOptions
	o.Work = NewWork(1<<40, func() bool { asked++; return asked > 100 })
	h := Markdown(strings.Repeat("- a\n", 10000), o)
	if !strings.Contains(string(h), pageFull) || asked > 102 {
		t.Errorf("asked %d times: %.200s", asked, h)
	}
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := NewCache(100_000)
	o := Options{Cache: c}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := range 200 {
				src := strings.Repeat(fmt.Sprintf("*%d* ", (i*k)%70), 100)
				if got, want := Markdown(src, o), Markdown(src, Options{}); got != want {
					t.Errorf("kept %.100s, want %.100s", got, want)
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for e := c.order.Front(); e != nil; e = e.Next() {
		sum += e.Value.(*cached).size
	}
	if sum != c.size || c.size > c.most || len(c.byKey) != c.order.Len() || len(c.byKey) == 0 {
		t.Errorf("%d entries in order, %d by key, %d bytes of %d, counted %d", c.order.Len(), len(c.byKey), sum, c.most, c.size)
	}
	Markdown("a", o)
	for i := range 1000 { // what is used stays
		Markdown("a", o)
		Markdown(fmt.Sprint(i), o)
	}
	o.Work = NewWork(0, nil)
	if h := Markdown("a", o); strings.Contains(string(h), pageFull) {
		t.Error("what was used most recently is gone")
	}
	if h := Markdown("0", o); !strings.Contains(string(h), pageFull) {
		t.Error("what was used least recently is still there")
	}
}

// What is kept for one notebook, cell or language is not shown for another.
func TestCacheKeepsApart(t *testing.T) {
	t.Parallel()
	c := NewCache(1 << 20)
	src := "[a](b)[^1] " + strings.Repeat(">", 10) + "\n\n[^1]: x"
	for _, o := range []Options{
		{}, {FilesBase: "/n/1/files/"}, {FilesBase: "/n/2/files/"}, {FilesBase: "/n/1/files/", Scope: "c"},
		{FilesBase: "/n/1/files/", Say: func(string) string { return "zh" }},
	} {
		for _, src := range []string{src, strings.Repeat(">", 60)} {
			want := Markdown(src, o)
			o.Cache = c
			for range 2 {
				if got := Markdown(src, o); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		}
	}
}
