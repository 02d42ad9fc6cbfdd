package view

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandbook/kernel/notebook"
	"sandbook/web/pages"
	"sandbook/web/render"
)

// running is a notebook with one cell that prints.
func running(t *testing.T) *story {
	t.Helper()
	st := &story{s: notebook.New("n1")}
	st.do(notebook.Created{Title: "T", Language: "python"}, notebook.CellInserted{Cell: "c", Kind: notebook.CodeCell, Source: "go()"},
		notebook.KernelStarting{Gen: 1, Boot: 1, Backend: "bubblewrap", Memory: 1 << 30},
		notebook.SandboxUp{Posture: []notebook.Check{{Name: "seccomp", OK: true}, {Name: "cpu", OK: false, Detail: "not delegated"}}},
		notebook.KernelReady{Info: notebook.KernelInfo{Language: "python", Version: "3.11.2"}},
		notebook.RunQueued{Run: "r", Cell: "c", Source: "go()"}, notebook.RunSent{Run: "r", Gen: 1, Count: 1})
	return st
}

func (st *story) patches(bodies ...notebook.Body) []Patch {
	before := st.s
	evs := st.do(bodies...)
	return Patches(before, st.s, evs, options())
}

func out(text string) notebook.Body {
	return notebook.StreamAppended{Run: "r", Name: "stdout", Text: text}
}

// However much has been printed, a step costs what is new.
func TestStreamPatchesCarryOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	st := running(t)
	total := 0
	for i := range 5000 {
		for _, p := range st.patches(out(fmt.Sprintf("line %d\n", i))) {
			total += len(p.HTML)
			if p.Text != nil {
				total += len(*p.Text)
			}
		}
	}
	// Twice the output is written whole: when it gets long and when its middle
	// begins to be left out; and the sentence about that is written each time.
	if limit := 5000*300 + 2*100_000; total > limit {
		t.Errorf("5,000 lines took %d bytes of patches, more than %d", total, limit)
	}
	ps := st.patches(out("more"))
	last := ps[len(ps)-1]
	if want := (Patch{Op: "lines", Target: "out-r-0-lines", First: last.First, At: 5000, Text: new("more")}); cmp.Diff(want, last) != "" {
		t.Errorf("the last patch is %s, want %s", dump([]Patch{last}), dump([]Patch{want}))
	}
}

func TestColoursSurviveASplit(t *testing.T) {
	t.Parallel()
	st := running(t)
	st.patches(out("\x1b[31mre"))
	ps := st.patches(out("d\nstill red\x1b[0m\n"))
	if len(ps) != 1 || !strings.Contains(ps[0].HTML, `<span class="ansi-fg-1">red</span>`) || !strings.Contains(ps[0].HTML, `<span class="ansi-fg-1">still red</span>`) {
		t.Errorf("got %s", dump(ps))
	}
}

func TestQueueMovesInOnePatch(t *testing.T) {
	t.Parallel()
	st := &story{s: notebook.New("n1")}
	st.do(notebook.Created{Title: "T"}, notebook.KernelStarting{Gen: 1}, notebook.KernelReady{})
	for i := range 100 {
		c := notebook.CellID(fmt.Sprint("c", i))
		st.do(notebook.CellInserted{Cell: c, After: st.last(), Kind: notebook.CodeCell, Source: "1"}, notebook.RunQueued{Run: notebook.RunID("r" + string(c)), Cell: c, Source: "1"})
	}
	st.do(notebook.RunSent{Run: "rc0", Gen: 1, Count: 1})
	ps := st.patches(notebook.RunEnded{Run: "rc0", Status: notebook.OK}, notebook.RunSent{Run: "rc1", Gen: 1, Count: 2})
	if len(ps) > 10 {
		t.Errorf("one step of a queue of 100 takes %d patches", len(ps))
	}
	if ps[0].Op != "queue" || ps[0].Target != "rc2" {
		t.Errorf("the first patch is %s", dump(ps[:1]))
	}
}

func (st *story) last() notebook.CellID {
	if n := len(st.s.Cells); n > 0 {
		return st.s.Cells[n-1].ID
	}
	return ""
}

func TestWhatThePageSays(t *testing.T) {
	t.Parallel()
	st := running(t)
	kernel := func() string { return Page(st.s, options()).Kernel.Label }
	cell := func() pages.Cell { return Page(st.s, options()).Cells[0] }
	if got, want := kernel(), "Python 3.11 · running · bubblewrap, 1 of 2 checks"; got != want {
		t.Errorf("kernel: got %q, want %q", got, want)
	}
	st.do(notebook.RunStage{Run: "r", Stage: "sigint_group"})
	if got, want := cell().Head.Stage, "interrupting its processes, too"; got != want {
		t.Errorf("stage: got %q, want %q", got, want)
	}
	st.do(notebook.InputRequested{Run: "r", Prompt: "Name? "})
	if f := cell().Foot; f.Input == nil || f.Input.Prompt != "Name? " {
		t.Errorf("input: got %+v", f.Input)
	}
	ro := options()
	ro.ReadOnly = true
	if Page(st.s, ro).Cells[0].Foot.Input != nil {
		t.Error("who may not edit is asked for input")
	}
	st.do(notebook.RunEnded{Run: "r", Status: notebook.TimedOut, Reason: "It took longer than 30 s.", WallMS: 30_040, CPUMS: 120, PeakMemory: 88 << 20})
	h := cell().Head
	if got, want := []string{h.Tag, h.Took, h.CPU, h.Memory, h.Order}, []string{"stopped: out of time", "30.0 s", "0.1 s CPU", "88 MiB", "ran 1st"}; cmp.Diff(want, got) != "" {
		t.Errorf("head: got %q, want %q", got, want)
	}
	if got := cell().Foot.Why; got != "It took longer than 30 s." {
		t.Errorf("why: got %q", got)
	}
	st.do(notebook.KernelDied{Gen: 1, Message: "It ran out of memory."})
	if b := Page(st.s, options()).Banner; b == nil || !b.Restart || b.Message != "It ran out of memory." {
		t.Errorf("banner: got %+v", b)
	}
	if got, want := kernel(), "Python 3.11 · died"; got != want {
		t.Errorf("kernel: got %q, want %q", got, want)
	}
}

func TestNotice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body notebook.Body
		lang pages.Lang
		want string
	}{
		{notebook.RunEnded{Run: "r", Status: notebook.OK, WallMS: 1200}, pages.English, "Cell 1 finished in 1.2 s."},
		{notebook.RunEnded{Run: "r", Status: notebook.OK, WallMS: 1200}, pages.Chinese, "单元格 1 已完成，用时 1.2 秒。"},
		{notebook.RunEnded{Run: "r", Status: notebook.Failed, EName: "KeyError"}, pages.English, "Cell 1 failed: KeyError."},
		{notebook.RunEnded{Run: "gone", Status: notebook.OK}, pages.English, ""},
		{notebook.InputRequested{Run: "r", Prompt: "Name?"}, pages.English, "Cell 1 waits for input: Name?"},
		{out("never read aloud\n"), pages.English, ""},
	} {
		st := running(t)
		o := options()
		o.Lang = c.lang
		if got := Notice(st.s, []notebook.Event{{Body: c.body}}, o); got != c.want {
			t.Errorf("%s: got %q, want %q", c.body.Event(), got, c.want)
		}
	}
}

// A path the guest made up leads nowhere but below the notebook's files.
func TestFileLinks(t *testing.T) {
	t.Parallel()
	m := maker{notebook.New("n1"), options()}
	for path, want := range map[string]string{
		"a/b c.csv":     "/n/n1/files/a/b%20c.csv",
		"../../login":   "",
		"a//b":          "",
		"/etc/passwd":   "",
		"?x#y":          "/n/n1/files/%3Fx%23y",
		"a/./b":         "",
		"javascript:x":  "/n/n1/files/javascript:x",
		"\"><script>":   "/n/n1/files/%22%3E%3Cscript%3E",
		"a\\..\\b":      "/n/n1/files/a%5C..%5Cb",
		"ordner/öl.txt": "/n/n1/files/ordner/%C3%B6l.txt",
	} {
		if got := m.fileURL(path); got != want {
			t.Errorf("%q leads to %q, want %q", path, got, want)
		}
	}
}

// A page with too much to format says so in the reader's language, and what was
// formatted for one reader costs the next nothing.
func TestPageWithTooMuchToFormat(t *testing.T) {
	t.Parallel()
	st := running(t)
	long := "*formatted* " + strings.Repeat("word ", 2000)
	for i := range 3 {
		st.do(notebook.CellInserted{Cell: notebook.CellID(strconv.Itoa(i)), Kind: notebook.MarkdownCell, Source: long + strconv.Itoa(i)})
	}
	cache := render.NewCache(1 << 20)
	view := func(lang pages.Lang, work int64) (formatted, plain int) {
		o := options()
		o.Lang, o.Rendered, o.Work = lang, cache, render.NewWork(work, nil)
		for _, c := range Page(st.s, o).Cells {
			formatted += strings.Count(string(c.Shown), "<em>formatted</em>")
			plain += strings.Count(string(c.Shown), o.Lang.T("Shown as plain text because this page has too much to format at one time. Load it again to go on."))
		}
		return formatted, plain
	}
	for i, c := range []struct {
		lang             pages.Lang
		work             int64
		formatted, plain int
	}{
		{pages.Chinese, 150_000, 2, 1}, {pages.Chinese, 150_000, 3, 0}, {pages.Chinese, 0, 3, 0}, {pages.English, 0, 0, 3},
	} {
		if formatted, plain := view(c.lang, c.work); formatted != c.formatted || plain != c.plain {
			t.Errorf("view %d: %d texts formatted, %d plain; want %d, %d", i+1, formatted, plain, c.formatted, c.plain)
		}
	}
}
