package view

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"sandbook/kernel/notebook"
	"sandbook/web/pages"
)

var (
	noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	ana  = notebook.Author{Kind: notebook.Person, ID: "ana", Name: "Ana"}
	srv  = notebook.TheServer.Author
)

func options() Options {
	return Options{Chrome: pages.Chrome{Lang: pages.English}, Now: noon.Add(time.Hour), FrameOrigin: "http://127.0.0.1:1"}
}

// browser is what the page's script does with patches, done with a parser.
type browser struct {
	t    *testing.T
	root *html.Node
}

func open(t *testing.T, s notebook.State) *browser {
	t.Helper()
	var b strings.Builder
	if err := pages.NotebookPage(Page(s, options())).Render(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	n, err := html.Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, n}
}

func (b *browser) fragment(s string) []*html.Node {
	b.t.Helper()
	ns, err := html.ParseFragment(strings.NewReader(s), &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div})
	if err != nil {
		b.t.Fatal(err)
	}
	return ns
}

func get(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func set(n *html.Node, key, val string) {
	n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool { return a.Key == key })
	n.Attr = append(n.Attr, html.Attribute{Key: key, Val: val})
}

func find(n *html.Node, ok func(*html.Node) bool) *html.Node {
	if n.Type == html.ElementNode && ok(n) {
		return n
	}
	for k := n.FirstChild; k != nil; k = k.NextSibling {
		if f := find(k, ok); f != nil {
			return f
		}
	}
	return nil
}

func (b *browser) id(id string) *html.Node {
	return find(b.root, func(n *html.Node) bool { return get(n, "id") == id })
}

func (b *browser) must(id string) *html.Node {
	b.t.Helper()
	n := b.id(id)
	if n == nil {
		b.t.Fatalf("there is no element %q to patch", id)
	}
	return n
}

func elements(n *html.Node) []*html.Node {
	var out []*html.Node
	for k := n.FirstChild; k != nil; k = k.NextSibling {
		if k.Type == html.ElementNode {
			out = append(out, k)
		}
	}
	return out
}

func (b *browser) swap(old, fresh *html.Node) {
	old.Parent.InsertBefore(fresh, old)
	old.Parent.RemoveChild(old)
}

func (b *browser) place(n *html.Node, after string) {
	cells := b.must("cells")
	if n.Parent != nil {
		n.Parent.RemoveChild(n)
	}
	if after == "" {
		cells.InsertBefore(n, cells.FirstChild)
		return
	}
	cells.InsertBefore(n, b.must(after).NextSibling)
}

func (b *browser) apply(p Patch) {
	b.t.Helper()
	switch p.Op {
	case "replace":
		b.swap(b.must(p.Target), b.fragment(p.HTML)[0])
	case "append":
		n := b.fragment(p.HTML)[0]
		if same := b.id(get(n, "id")); same != nil {
			b.swap(same, n)
			return
		}
		b.must(p.Target).AppendChild(n)
	case "insert":
		n := b.fragment(p.HTML)[0]
		if same := b.id(p.Target); same != nil {
			same.Parent.RemoveChild(same)
		}
		b.place(n, *p.After)
	case "cell":
		b.swap(b.must(p.Target), b.fragment(p.HTML)[0])
	case "move":
		b.place(b.must(p.Target), *p.After)
	case "remove":
		if n := b.id(p.Target); n != nil {
			n.Parent.RemoveChild(n)
		}
	case "source":
		b.swap(b.must(p.Target+":src"), b.fragment(p.HTML)[0])
		set(b.must(p.Target), "data-version", strconv.Itoa(p.Version))
		q, err := json.Marshal(p.Source)
		if err != nil {
			b.t.Fatal(err)
		}
		set(b.must(p.Target), "data-source", string(q))
	case "lines":
		b.lines(p)
	case "queue":
		b.queue(p)
	default:
		b.t.Fatalf("unknown patch %q", p.Op)
	}
}

func (b *browser) lines(p Patch) {
	pre := b.must(p.Target)
	have, err := strconv.ParseInt(get(pre, "data-first"), 10, 64)
	if err != nil {
		b.t.Fatal(err)
	}
	kids := elements(pre)
	keep := max(0, min(int64(len(kids)), p.At-have))
	if keep < p.At-have {
		b.t.Fatalf("lines %d … %d are missing", have+keep, p.At)
	}
	for _, k := range kids[keep:] {
		pre.RemoveChild(k)
	}
	for i, k := range kids[:keep] {
		if have+int64(i) < p.First {
			pre.RemoveChild(k)
		}
	}
	set(pre, "data-first", strconv.FormatInt(max(have, p.First), 10))
	h := p.HTML
	if p.Text != nil {
		ls := strings.Split(*p.Text, "\n")
		for i, l := range ls {
			end := "\n"
			if i == len(ls)-1 {
				end = ""
			}
			h += "<span>" + html.EscapeString(l) + end + "</span>"
		}
	}
	for _, n := range b.fragment(h) {
		pre.AppendChild(n)
	}
}

func (b *browser) queue(p Patch) {
	head := find(b.root, func(n *html.Node) bool { return get(n, "data-run") == p.Target })
	if head == nil {
		b.t.Fatalf("run %s is not in line", p.Target)
	}
	by, _ := strconv.Atoi(get(find(head, func(n *html.Node) bool { return get(n, "data-place") != "" }), "data-place"))
	find(b.root, func(n *html.Node) bool {
		if at, err := strconv.Atoi(get(n, "data-place")); err == nil && at >= by {
			set(n, "data-place", strconv.Itoa(at-by+1))
			n.FirstChild.Data = pages.English.T("waits, number %d in line", at-by+1)
		}
		return false
	})
}

// text prints what a person sees, without what the script numbers by itself
// and where a text comes from.
func (b *browser) text() string {
	var out strings.Builder
	for _, id := range []string{"title", "kernel", "actions", "banner", "cells", "rail-files", "rail-kernel", "rail-history"} {
		n := b.must(id)
		if id == "cells" {
			n = &html.Node{Type: html.ElementNode, Data: "div", FirstChild: n.FirstChild, LastChild: n.LastChild}
		}
		b.print(&out, n, 0)
	}
	return out.String()
}

func (b *browser) print(out *strings.Builder, n *html.Node, depth int) {
	pad := strings.Repeat(" ", depth)
	switch n.Type {
	case html.TextNode:
		if s := strings.Join(strings.Fields(n.Data), " "); s != "" {
			fmt.Fprintf(out, "%s%q\n", pad, s)
		}
		return
	case html.ElementNode:
		if strings.HasSuffix(get(n, "id"), ":name") {
			return
		}
		attrs := slices.DeleteFunc(slices.Clone(n.Attr), func(a html.Attribute) bool { return a.Key == "data-source" })
		slices.SortFunc(attrs, func(a, b html.Attribute) int { return strings.Compare(a.Key, b.Key) })
		fmt.Fprintf(out, "%s<%s", pad, n.Data)
		for _, a := range attrs {
			fmt.Fprintf(out, " %s=%q", a.Key, a.Val)
		}
		out.WriteString(">\n")
	}
	for k := n.FirstChild; k != nil; k = k.NextSibling {
		b.print(out, k, depth+1)
	}
}

// story makes random events that could have happened.
type story struct {
	r *rand.Rand
	s notebook.State
	n int
}

func (st *story) do(bodies ...notebook.Body) []notebook.Event {
	var evs []notebook.Event
	for _, b := range bodies {
		st.n++
		by := srv
		switch b.(type) {
		case notebook.CellInserted, notebook.CellEdited, notebook.RunQueued, notebook.Created:
			by = ana
		}
		e := notebook.Event{Seq: st.s.Seq + 1, At: noon.Add(time.Duration(st.n) * time.Second), By: by, Body: b}
		st.s = notebook.Apply(st.s, e)
		evs = append(evs, e)
	}
	return evs
}

func (st *story) cell() *notebook.Cell {
	if len(st.s.Cells) == 0 {
		return nil
	}
	return st.s.Cells[st.r.IntN(len(st.s.Cells))]
}

func (st *story) after() notebook.CellID {
	if c := st.cell(); c != nil && st.r.IntN(4) > 0 {
		return c.ID
	}
	return ""
}

func (st *story) source() string {
	pool := []string{"x = 1", "import os\nprint(os)", "# *Title* <b>", "a\r\nb", "zero\u200bwidth", "", "<script>alert(1)</script>", "\n\nlead"}
	return pool[st.r.IntN(len(pool))] + strings.Repeat("#", st.r.IntN(3))
}

func (st *story) printed() string {
	pool := []string{"one\n", "two", "\rover", "\x1b[31mred", "\x1b[0m\n", "a\nb\nc\n", "<b>&\n", "\x1b[1A", strings.Repeat("line\n", 60), strings.Repeat("many\n", 900), "\b"}
	return pool[st.r.IntN(len(pool))]
}

func (st *story) step() []notebook.Event {
	c := st.cell()
	switch k := st.r.IntN(20); {
	case c == nil || k == 0:
		st.n++
		return st.do(notebook.CellInserted{Cell: notebook.CellID("c" + strconv.Itoa(st.n)), After: st.after(), Kind: []notebook.CellKind{"code", "code", "markdown", "raw"}[st.r.IntN(4)], Source: st.source()})
	case k == 1:
		return st.do(notebook.CellEdited{Cell: c.ID, Version: c.Version + 1, Source: st.source()})
	case k == 2:
		if after := st.after(); after != c.ID {
			return st.do(notebook.CellMoved{Cell: c.ID, After: after})
		}
	case k == 3 && len(st.s.Cells) > 3 && c.Pending == "" && (st.s.Live == "" || st.s.Runs[st.s.Live].Cell != c.ID):
		return st.do(notebook.CellDeleted{Cell: c.ID})
	case k == 4 && len(st.s.Trash) > 0:
		return st.do(notebook.CellRestored{Cell: st.s.Trash[0].Cell.ID, After: st.after()})
	case k == 5 && c.Pending == "" && c.Run == "":
		return st.do(notebook.CellKindSet{Cell: c.ID, Kind: []notebook.CellKind{"code", "markdown"}[st.r.IntN(2)]})
	case k == 6:
		return st.do(notebook.CellCleared{Cell: c.ID})
	case k == 7:
		return st.do(notebook.Renamed{Title: st.source() + "t"})
	case k < 11 && c.Kind == notebook.CodeCell && c.Pending == "" && (st.s.Live == "" || st.s.Runs[st.s.Live].Cell != c.ID):
		return st.do(notebook.RunQueued{Run: notebook.RunID("r" + strconv.Itoa(st.n)), Cell: c.ID, Source: c.Source, Batch: "b"})
	default:
		return st.kernel()
	}
	return nil
}

func (st *story) kernel() []notebook.Event {
	live := st.s.Live
	switch k := st.r.IntN(14); {
	case st.s.Kernel.Status != notebook.Ready:
		return st.do(notebook.KernelStarting{Gen: st.s.Kernel.Gen + 1, Boot: 1, Backend: "bubblewrap", Memory: 1 << 30},
			notebook.SandboxUp{Posture: []notebook.Check{{Name: "seccomp", OK: true}}}, notebook.KernelReady{Info: notebook.KernelInfo{Language: "python", Version: "3.11.2"}})
	case live == "" && len(st.s.Queue) > 0:
		return st.do(notebook.RunSent{Run: st.s.Queue[0], Gen: st.s.Kernel.Gen, Count: st.s.Count + 1})
	case live == "" && k == 0:
		return st.do(notebook.KernelDied{Gen: st.s.Kernel.Gen, Message: "It died."})
	case live == "":
		return nil
	case k == 0:
		return st.do(notebook.RunEnded{Run: live, Status: notebook.OK, WallMS: 12, PeakMemory: 1 << 25})
	case k == 1:
		return st.do(notebook.RunEnded{Run: live, Status: notebook.Failed, EName: "KeyError", Reason: "It failed."})
	case k == 2:
		return st.do(notebook.RunStage{Run: live, Stage: "sigint"})
	case k == 3 && st.s.Input == nil:
		return st.do(notebook.InputRequested{Run: live, Prompt: "Name? "})
	case k == 4 && st.s.Input != nil:
		return st.do(notebook.InputAnswered{Run: live, Value: "x"})
	case k == 5:
		return st.do(notebook.FilesChanged{Run: live, Files: notebook.Files{Changed: []notebook.File{{Path: "a/" + strconv.Itoa(st.n) + ".csv", Size: 12}}}})
	case k == 6:
		return st.do(notebook.OutputsCleared{Run: live, Wait: st.r.IntN(2) == 0})
	case k == 7:
		return st.do(notebook.OutputUpdated{DisplayID: "d", Data: map[string]notebook.Value{"text/plain": {Text: "updated " + strconv.Itoa(st.n)}}})
	case k == 8:
		return st.do(notebook.OutputAdded{Run: live, Output: notebook.Output{Kind: notebook.DisplayOutput, DisplayID: "d", Data: map[string]notebook.Value{"text/html": {Text: "<b>x</b>"}, "text/plain": {Text: "x"}}}})
	case k == 9:
		return st.do(notebook.StreamOmitted{Run: live, Name: "stdout", Bytes: 5000, Lines: 300, Tail: "tail\nend"})
	}
	return st.do(notebook.StreamAppended{Run: live, Name: []string{"stdout", "stdout", "stdout", "stderr"}[st.r.IntN(4)], Text: st.printed()})
}

// A page that has been patched shows what a fresh one shows, whatever happened
// and however it was cut into steps, and applying a step twice changes nothing.
func TestPatchedPageIsAFreshOne(t *testing.T) {
	t.Parallel()
	seeds := uint64(40)
	if testing.Short() {
		seeds = 12
	}
	for seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			st := &story{r: rand.New(rand.NewPCG(seed, 7)), s: notebook.New("n1")}
			st.do(notebook.Created{Title: "T", Language: "python"})
			b := open(t, st.s)
			for range 60 {
				before := st.s
				var evs []notebook.Event
				for range 1 + st.r.IntN(6) {
					evs = append(evs, st.step()...)
				}
				if len(evs) == 0 {
					continue
				}
				ps := Patches(before, st.s, evs, options())
				for _, p := range ps {
					b.apply(p)
				}
				want := open(t, st.s).text()
				if d := cmp.Diff(want, b.text()); d != "" {
					t.Fatalf("after %s the patched page (+) is not the fresh one (-):\n%s\npatches: %s", names(evs), d, dump(ps))
				}
				for _, p := range ps {
					if p.Op != "queue" || find(b.root, func(n *html.Node) bool {
						return get(n, "data-run") == p.Target && find(n, func(m *html.Node) bool { return get(m, "data-place") != "" }) != nil
					}) != nil {
						b.apply(p)
					}
				}
				if d := cmp.Diff(want, b.text()); d != "" {
					t.Fatalf("after %s, patched twice (+):\n%s\npatches: %s", names(evs), d, dump(ps))
				}
			}
		})
	}
}

func names(evs []notebook.Event) string {
	var out []string
	for _, e := range evs {
		out = append(out, e.Body.Event())
	}
	return strings.Join(out, ", ")
}

func dump(ps []Patch) string {
	b, _ := json.MarshalIndent(ps, "", " ")
	return string(b)
}
