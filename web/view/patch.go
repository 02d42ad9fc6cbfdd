package view

import (
	"context"
	"html"
	"reflect"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"sandbook/kernel/notebook"
	"sandbook/web/pages"
)

// Patch is one change to a page. Each says what is to be, not what to do next,
// so applying one twice, or to a page that is already further on, does no harm.
//
//	replace  the element Target becomes HTML
//	append   HTML goes to the end of Target, in place of what has its id
//	insert   the cell HTML goes after the cell After, or to the start
//	move     the cell Target goes after the cell After, or to the start
//	remove   the element Target goes
//	cell     the cell Target becomes HTML
//	source   the cell Target has a new text: Source, Version, and how it reads
//	lines    the lines of Target from number At on become HTML, or the lines of
//	         Text where they are nothing but text, and those before First go
//	queue    the cell whose waiting run is Target is now first in line
//	page     the whole page becomes HTML, part by part and cell by cell
type Patch struct {
	Op      string  `json:"op"`
	Target  string  `json:"target,omitempty"`
	After   *string `json:"after,omitempty"`
	HTML    string  `json:"html,omitempty"`
	Text    *string `json:"text,omitempty"`
	Version int     `json:"version,omitempty"`
	Source  *string `json:"source,omitempty"`
	First   int64   `json:"first,omitempty"`
	At      int64   `json:"at,omitempty"`
}

// Patches brings a page from before to after. The events between them say
// whether more than outputs changed; without them everything is compared.
// States share what did not change, so the work is proportional to what did.
// From the zero State it brings a page that may show anything.
func Patches(before, after notebook.State, evs []notebook.Event, o Options) []Patch {
	if before.ID == "" {
		return []Patch{{Op: "page", HTML: markup(pages.PageParts(Page(after, o)))}}
	}
	d := &differ{a: maker{before, o}, b: maker{after, o}}
	if len(evs) > 0 && !slices.ContainsFunc(evs, func(e notebook.Event) bool { return !outputOnly(e.Body) }) {
		for _, c := range after.Cells {
			d.outputs(c, before.Runs[c.Run], after.Runs[c.Run])
		}
		return d.out
	}
	d.cells()
	d.page()
	return d.out
}

// outputOnly reports whether an event changes nothing on a page but outputs.
func outputOnly(b notebook.Body) bool {
	switch b.(type) {
	case notebook.StreamAppended, notebook.StreamOmitted, notebook.OutputAdded, notebook.OutputUpdated, notebook.OutputsCleared:
		return true
	}
	return false
}

// element is the id of a cell's element, as pages.CellPart writes it. Its parts'
// ids go on with a colon, which no cell's id may hold.
func element(id notebook.CellID) string { return "cell:" + string(id) }

type differ struct {
	a, b maker
	out  []Patch
}

func (d *differ) add(p Patch) { d.out = append(d.out, p) }

func (d *differ) replace(target string, c templ.Component) {
	d.add(Patch{Op: "replace", Target: target, HTML: markup(c)})
}

// markup prints a component. Printing into memory cannot fail.
func markup(c templ.Component) string {
	var b strings.Builder
	if err := c.Render(context.Background(), &b); err != nil {
		return ""
	}
	return b.String()
}

// page compares what is not a cell.
func (d *differ) page() {
	a, b := d.a, d.b
	if a.s.Title != b.s.Title {
		d.replace("title", pages.TitlePart(b.s.Title))
	}
	if k := b.kernel(); !reflect.DeepEqual(a.kernel(), k) {
		d.replace("kernel", pages.KernelPart(k))
	}
	if act := b.actions(); a.actions() != act {
		d.replace("actions", pages.ActionsPart(act))
	}
	if x := b.banner(); !reflect.DeepEqual(a.banner(), x) {
		d.replace("banner", pages.BannerPart(x))
	}
	if k := b.railKernel(); a.railKernel() != k {
		d.replace("rail-kernel", pages.RailKernelPart(k))
	}
	if reflect.ValueOf(a.s.Files).Pointer() != reflect.ValueOf(b.s.Files).Pointer() {
		if f := b.railFiles(); !reflect.DeepEqual(a.railFiles(), f) {
			d.replace("rail-files", pages.RailFilesPart(f))
		}
	}
	if h := b.railHistory(); !reflect.DeepEqual(a.railHistory(), h) {
		d.replace("rail-history", pages.RailHistoryPart(h))
	}
}

// cells compares order, texts, heads and outputs.
func (d *differ) cells() {
	old := make(map[notebook.CellID]*notebook.Cell, len(d.a.s.Cells))
	for _, c := range d.a.s.Cells {
		old[c.ID] = c
	}
	queueMoved := d.queue(old) // first: what comes after has its place already
	d.order(old)
	all := d.a.s.Kernel.Gen != d.b.s.Kernel.Gen || d.a.s.Kernel.Status != d.b.s.Kernel.Status || d.a.s.Input != d.b.s.Input || d.a.readOnly() != d.b.readOnly()
	for i, c := range d.b.s.Cells {
		was := old[c.ID]
		if was == nil {
			continue // inserted whole
		}
		moved := queueMoved && c.Pending != ""
		if !all && !moved && was == c && d.a.s.Runs[c.Run] == d.b.s.Runs[c.Run] && d.a.s.Runs[c.Pending] == d.b.s.Runs[c.Pending] {
			continue
		}
		d.cell(was, c, i, moved)
	}
}

func (d *differ) cell(was, c *notebook.Cell, i int, moved bool) {
	id := element(c.ID)
	if was.Kind != c.Kind || d.a.readOnly() != d.b.readOnly() {
		d.add(Patch{Op: "cell", Target: id, HTML: markup(pages.CellPart(d.b.cell(c, i+1))), Version: c.Version, Source: &c.Source})
		return
	}
	if was.Version != c.Version || was.Source != c.Source {
		p := pages.Cell{Lang: d.b.o.Lang, ID: string(c.ID), Kind: string(c.Kind), Source: c.Source}
		p.Shown, p.Visible = d.b.source(c)
		d.add(Patch{Op: "source", Target: id, HTML: markup(pages.SourcePart(p)), Version: c.Version, Source: &c.Source})
	}
	if h := d.b.head(c); moved || d.a.head(was) != h {
		d.replace(id+":head", pages.HeadPart(h, d.b.clock(c)))
	}
	d.outputs(c, d.a.s.Runs[was.Run], d.b.s.Runs[c.Run])
	if f := d.b.foot(c); !reflect.DeepEqual(d.a.foot(was), f) {
		d.replace(id+":foot", pages.FootPart(f))
	}
}

// order removes, inserts and moves cells.
func (d *differ) order(old map[notebook.CellID]*notebook.Cell) {
	a, b := ids(d.a.s.Cells), ids(d.b.s.Cells)
	if slices.Equal(a, b) {
		return
	}
	place := make(map[notebook.CellID]int, len(b))
	for i, id := range b {
		place[id] = i
	}
	cur := slices.DeleteFunc(a, func(id notebook.CellID) bool {
		_, stays := place[id]
		if !stays {
			d.add(Patch{Op: "remove", Target: element(id)})
		}
		return !stays
	})
	for i, id := range b {
		after := ""
		if i > 0 {
			after = element(b[i-1])
		}
		switch {
		case old[id] == nil:
			c := d.b.s.Cells[i]
			d.add(Patch{Op: "insert", After: &after, HTML: markup(pages.CellPart(d.b.cell(c, i+1))), Target: element(id), Version: c.Version, Source: &c.Source})
			cur = slices.Insert(cur, i, id)
			continue
		case cur[i] == id:
			continue
		case i+1 < len(cur) && cur[i+1] == id: // what stood here has moved down
			gone := cur[i]
			pred := b[place[gone]-1]
			if at := slices.Index(cur, pred); at > i {
				p := element(pred)
				d.add(Patch{Op: "move", Target: element(gone), After: &p})
				cur = slices.Delete(slices.Insert(cur, at+1, gone), i, i+1)
				continue
			}
		}
		d.add(Patch{Op: "move", Target: element(id), After: &after})
		at := slices.Index(cur, id)
		cur = slices.Insert(slices.Delete(cur, at, at+1), i, id)
	}
}

func ids(cells []*notebook.Cell) []notebook.CellID {
	out := make([]notebook.CellID, len(cells))
	for i, c := range cells {
		out[i] = c.ID
	}
	return out
}

// queue says that everything in line has come nearer, in one patch where that
// is all there is to say. Otherwise it reports that the places must be written
// again.
func (d *differ) queue(old map[notebook.CellID]*notebook.Cell) (rewrite bool) {
	a, b := d.a.s.Queue, d.b.s.Queue
	if len(a) == 0 || len(b) == 0 || slices.Equal(a, b) {
		return false
	}
	k := slices.Index(a, b[0])
	if k < 0 || len(b) < len(a)-k || !slices.Equal(a[k:], b[:len(a)-k]) {
		return true
	}
	if k == 0 {
		return false
	}
	if r := d.a.s.Runs[b[0]]; r == nil || old[r.Cell] == nil || old[r.Cell].Pending != b[0] {
		return true
	}
	d.add(Patch{Op: "queue", Target: string(b[0])})
	return false
}

// outputs compares what a cell shows of its run.
func (d *differ) outputs(c *notebook.Cell, a, b *notebook.Run) {
	if a == b || c.Kind != notebook.CodeCell {
		return
	}
	target := element(c.ID) + ":outputs"
	n := 0
	if a != nil {
		n = len(a.Outputs)
	}
	if a == nil || b == nil || a.ID != b.ID || len(b.Outputs) < n {
		if n == 0 && (b == nil || len(b.Outputs) == 0) {
			return
		}
		var h strings.Builder
		h.WriteString(`<div id="` + templ.EscapeString(target) + `" class="outputs" data-testid="outputs">`)
		if b != nil {
			for i := range b.Outputs {
				h.WriteString(markup(pages.OutputPart(d.b.output(b, i))))
			}
		}
		d.add(Patch{Op: "replace", Target: target, HTML: h.String() + "</div>"})
		return
	}
	for i, o := range b.Outputs {
		switch {
		case i >= n:
			d.add(Patch{Op: "append", Target: target, HTML: markup(pages.OutputPart(d.b.output(b, i)))})
		case a.Outputs[i] != o:
			d.output(b, i, a.Outputs[i], o)
		}
	}
}

func (d *differ) output(r *notebook.Run, i int, a, b *notebook.Output) {
	id := outputID(r.ID, i)
	if p, ok := d.b.grown(id, a, b); ok {
		if ga, gb := d.a.gap(a.Text), d.b.gap(b.Text); ga != gb {
			if ga == "" || gb == "" {
				d.replace(id, pages.OutputPart(d.b.output(r, i)))
				return
			}
			d.replace(id+"-gap", pages.GapPart(d.b.o.Lang, id, gb, d.b.outputURL(r.ID, b.Name)))
		}
		d.add(p)
		return
	}
	d.replace(id, pages.OutputPart(d.b.output(r, i)))
}

// grown is the patch for a stream that kept its head: lines went at the front
// and changed or came at the end.
func (v maker) grown(id string, a, b *notebook.Output) (Patch, bool) {
	if a.Kind != notebook.StreamOutput || b.Kind != notebook.StreamOutput || a.Text == nil || b.Text == nil ||
		a.Name != b.Name || a.Background != b.Background || a.Text.Head != b.Text.Head || long(a.Text) != long(b.Text) {
		return Patch{}, false
	}
	fa, fb := first(a.Text), first(b.Text)
	drop := fb - fa
	if drop < 0 || drop >= int64(len(a.Text.Lines)) {
		return Patch{}, false
	}
	kept := a.Text.Lines[drop:]
	same := 0
	for same < len(kept)-1 && same < len(b.Text.Lines)-1 && kept[same] == b.Text.Lines[same] {
		same++
	}
	p := Patch{Op: "lines", Target: id + "-lines", First: fb, At: fb + int64(same)}
	rendered, plain := ansi(b.Text.Lines[same:]), true
	for _, l := range rendered {
		plain = plain && !strings.Contains(string(l), "<")
	}
	if !plain {
		p.HTML = string(pages.Lines(rendered, true))
		return p, true
	}
	var text strings.Builder
	for i, l := range rendered {
		if i > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(html.UnescapeString(string(l)))
	}
	t := text.String()
	p.Text = &t
	return p, true
}
