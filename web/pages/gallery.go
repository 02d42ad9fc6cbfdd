package pages

import (
	"strconv"
	"time"

	"github.com/a-h/templ"

	"sandbook/web/render"
)

// Specimen is one component in one state.
type Specimen struct {
	Name string
	Part templ.Component
}

// galleryTime is when everything in the gallery happens.
var galleryTime = time.Date(2026, 12, 1, 10, 32, 0, 0, time.UTC)

// Gallery lists every component of the notebook page in every state.
func Gallery(l Lang) []Specimen {
	var out []Specimen
	add := func(name string, c templ.Component) { out = append(out, Specimen{name, c}) }
	for _, k := range galleryKernels(l) {
		add("kernel: "+k.Short, KernelPart(k))
	}
	add("actions: idle", ActionsPart(Actions{Lang: l, Alive: true}))
	add("actions: no kernel", ActionsPart(Actions{Lang: l}))
	add("actions: busy", ActionsPart(Actions{Lang: l, Alive: true, Busy: true}))
	add("actions: interrupting", ActionsPart(Actions{Lang: l, Alive: true, Busy: true, Stage: l.T("interrupting")}))
	add("actions: waits", ActionsPart(Actions{Lang: l, Alive: true, Busy: true, Waiting: true}))
	add("banner: died", BannerPart(&Banner{Lang: l, Tone: Bad, Message: "The kernel ran out of memory: its limit is 1,024 MiB, and it had used 1,024 MiB.", Restart: true}))
	add("banner: starting", BannerPart(&Banner{Lang: l, Message: l.T("Making a sandbox.")}))
	add("banner: trash", BannerPart(&Banner{Lang: l, Tone: Wait, Message: l.T("This notebook is in the trash."), Restore: true}))
	for name, h := range ordered(galleryHeads(l)) {
		add("head: "+name, HeadPart(h, Clock{Now: galleryTime, Place: 2}))
	}
	for i, c := range galleryCells(l) {
		c.ID, c.Number, c.Lang = "g"+strconv.Itoa(i), i+1, l
		c.Head.Cell, c.Head.Lang, c.Foot.Cell, c.Foot.Lang = c.ID, l, c.ID, l
		c.At = Clock{Now: galleryTime}
		add("cell: "+c.Kind+" "+strconv.Itoa(i+1), CellPart(c))
	}
	for i, o := range galleryOutputs(l) {
		o.ID, o.Lang = "out-g-"+strconv.Itoa(i), l
		add("output: "+o.Kind+" "+o.Name+" "+strconv.Itoa(i+1), OutputPart(o))
	}
	for i, f := range galleryFeet(l) {
		f.Lang, f.Cell = l, "foot"+strconv.Itoa(i)
		add("foot "+strconv.Itoa(i+1), FootPart(f))
	}
	add("rail: files", RailFilesPart(RailFiles{Lang: l, Files: galleryFiles(), More: 12}))
	add("rail: kernel", RailKernelPart(RailKernel{Lang: l, Alive: true, Limit: l.T("of %s", "1,024 MiB"), Started: galleryTime, Adopted: l.T(", server restarted once"), Restarts: "2", Backend: "bubblewrap"}))
	add("rail: history", RailHistoryPart(RailHistory{Lang: l, Items: []HistoryItem{{galleryTime, l.T("%s ran cell %d", "Ana", 3)}, {galleryTime.Add(-4 * time.Minute), l.T("The notebook was created")}}}))
	return out
}

// ordered walks a table in the order it was written.
func ordered(heads []namedHead) func(func(string, Head) bool) {
	return func(yield func(string, Head) bool) {
		for i, h := range heads {
			h.Cell = "head" + strconv.Itoa(i)
			if !yield(h.name, h.Head) {
				return
			}
		}
	}
}

func galleryKernels(l Lang) []Kernel {
	checks := []Check{{"seccomp", "an allow-list of 289 calls", true}, {"network", "no interface but loopback", true}, {"cpu limit", "this host does not delegate the cpu controller", false}}
	return []Kernel{
		{Lang: l, Tone: Good, Label: "Python 3.11 · " + l.T("idle") + " · bubblewrap, 14 of 14 checks", Short: l.T("idle"), Checks: checks, Alive: true},
		{Lang: l, Tone: Busy, Label: "Python 3.11 · " + l.T("running") + " · bubblewrap, 14 of 14 checks", Short: l.T("running"), Checks: checks, Alive: true},
		{Lang: l, Tone: Wait, Label: "Python 3.11 · " + l.T("waits for input"), Short: l.T("waits for input"), Checks: checks, Alive: true},
		{Lang: l, Tone: Busy, Label: "Python · " + l.T("starting"), Short: l.T("starting")},
		{Lang: l, Tone: Bad, Label: "Python 3.11 · " + l.T("died"), Short: l.T("died")},
		{Lang: l, Tone: Off, Label: "Python · " + l.T("no kernel"), Short: l.T("no kernel")},
	}
}

type namedHead struct {
	name string
	Head
}

func galleryHeads(l Lang) []namedHead {
	h := func(name string, change func(*Head)) namedHead {
		n := namedHead{name, Head{Lang: l, Kind: "code", Author: "Ana"}}
		change(&n.Head)
		return n
	}
	since := galleryTime.Add(-12400 * time.Millisecond)
	return []namedHead{
		h("never run", func(h *Head) { h.Tag = l.T("not run yet") }),
		h("by an agent, ran", func(h *Head) {
			h.Author, h.Agent, h.Took, h.Memory, h.Order = "analyst-agent", true, l.Duration(1200*time.Millisecond), "84 MiB", l.T("ran %s", l.Ordinal(3))
		}),
		h("edited", func(h *Head) { h.Tag, h.Took = l.T("edited since it ran"), l.Duration(300*time.Millisecond) }),
		h("earlier kernel", func(h *Head) { h.Tag, h.Took = l.T("ran in an earlier kernel"), l.Duration(300*time.Millisecond) }),
		h("queued", func(h *Head) { h.Run, h.Queued = "r", true }),
		h("running", func(h *Head) { h.Run, h.Since, h.Last = "r", since, l.Duration(9*time.Second) }),
		h("interrupting", func(h *Head) { h.Run, h.Since, h.Stage = "r", since, l.T("interrupting") }),
		h("waits for input", func(h *Head) { h.Run, h.Since, h.Waiting = "r", since, true }),
		h("failed", func(h *Head) { h.Tag, h.Tone, h.Took = l.T("failed"), Bad, l.Duration(42*time.Millisecond) }),
		h("interrupted", func(h *Head) { h.Tag, h.Tone, h.Took = l.T("interrupted"), Wait, l.Duration(8*time.Second) }),
		h("out of time", func(h *Head) { h.Tag, h.Tone, h.Took = l.T("stopped: out of time"), Bad, l.Duration(60*time.Second) }),
		h("killed", func(h *Head) { h.Tag, h.Tone, h.CPU = l.T("killed"), Bad, l.T("%s CPU", l.Duration(8*time.Second)) }),
		h("skipped", func(h *Head) { h.Tag, h.Tone = l.T("skipped"), Wait }),
		h("lost", func(h *Head) { h.Tag, h.Tone = l.T("lost"), Bad }),
	}
}

func galleryCells(l Lang) []Cell {
	code := Head{Kind: "code", Author: "Ana", Took: l.Duration(300 * time.Millisecond), Order: l.T("ran %s", l.Ordinal(1))}
	return []Cell{
		{Kind: "code", Version: 1, Source: "1 + 1", Visible: true, Shown: render.Code("1 + 1", "python"), Head: code},
		{Kind: "code", Version: 2, Source: "a\r\nb", Shown: render.Code("a\r\nb", "python"), Head: code},
		{Kind: "code", Version: 1, Source: "", Visible: true, Head: Head{Kind: "code", Author: "Ana"}, ReadOnly: true},
		{Kind: "markdown", Version: 1, Source: "# Title\n\nText with $x^2$.", Shown: render.Markdown("# Title\n\nText with $x^2$.", render.Options{}), Head: Head{Kind: "markdown", Author: "Ana"}},
		{Kind: "markdown", Version: 1, Head: Head{Kind: "markdown", Author: "Ana"}},
		{Kind: "raw", Version: 1, Source: "as it <is>", Visible: true, Shown: render.Visible("as it <is>"), Head: Head{Kind: "raw", Author: "Ana"}},
	}
}

func galleryOutputs(l Lang) []Output {
	lines := func(from, n int) []render.HTML {
		var out []render.HTML
		for i := range n {
			out = append(out, render.ANSI("line "+strconv.Itoa(from+i)+" \x1b[32mgreen\x1b[0m"))
		}
		return out
	}
	return []Output{
		{Kind: "stream", Name: "stdout", Stream: &Stream{Lines: append(lines(0, 2), ""), All: "/all"}},
		{Kind: "stream", Name: "stderr", Stream: &Stream{Lines: lines(0, 1), All: "/all"}},
		{Kind: "stream", Name: "stdout", Background: true, Stream: &Stream{Lines: lines(0, 1), All: "/all"}},
		{Kind: "stream", Name: "stdout", Stream: &Stream{Head: lines(0, 3), Gap: l.T("%s lines (%s) are not shown here.", "8,997", "217 kB"), First: 9000, Lines: lines(9000, 44), All: "/all", Long: true}},
		{Kind: "error", HTML: render.Traceback("KeyError", "'nope'", []string{"\x1b[31mKeyError\x1b[0m: 'nope'"})},
		{Kind: "result", HTML: render.Text("2")},
		{Kind: "display", HTML: render.JSON(`{"a":[1,2],"ok":true}`)},
		{Kind: "display", HTML: render.LaTeX(`$$\sum_i x_i$$`)},
		{Kind: "display", HTML: render.Text("Figure"), Frame: &Frame{Mime: "text/html", Text: "<script>1</script><!-- x -->", Title: l.T("Interactive output"), Note: l.T("This output wants to load from %s. Outputs have no network, so a part of it may be missing.", "cdn.example")}},
	}
}

func galleryFiles() []File {
	return []File{
		{Path: "events.parquet", Href: "/n/x/files/events.parquet", Size: Size(3_100_000)},
		{Path: "out/july & <august>.csv", Href: "/n/x/files/out/july%20&%20%3Caugust%3E.csv", Size: Size(12_000)},
		{Path: "huge.bin", Size: Size(9_000_000_000), Why: "It is larger than what is kept."},
	}
}

func galleryFeet(l Lang) []Foot {
	return []Foot{
		{},
		{Why: "It swallowed the interrupt and was killed after 3 s. Its variables are lost.", Tone: Bad},
		{Why: l.T("A cell before it was stopped."), Tone: Wait},
		{Files: galleryFiles(), Removed: []string{"tmp/x.csv"}, More: 3},
		{Input: &Input{Run: "r", Prompt: "Your name: "}},
		{Input: &Input{Run: "r", Password: true}},
	}
}
