package view

import (
	"strconv"
	"strings"

	"sandbook/kernel/notebook"
	"sandbook/web/pages"
	"sandbook/web/render"
)

// longLines is how many lines of a stream are shown before the rest scrolls.
const longLines = 40

// outputID is the element id of an output.
func outputID(run notebook.RunID, i int) string { return "out-" + string(run) + "-" + strconv.Itoa(i) }

func (v maker) output(r *notebook.Run, i int) pages.Output {
	o := r.Outputs[i]
	p := pages.Output{Lang: v.o.Lang, ID: outputID(r.ID, i), Kind: string(o.Kind), Name: o.Name, Background: o.Background}
	switch o.Kind {
	case notebook.StreamOutput:
		p.Stream = v.stream(r.ID, o)
	case notebook.ErrorOutput:
		p.HTML = render.Traceback(o.EName, o.EValue, o.Traceback)
	default:
		v.bundle(&p, o)
	}
	return p
}

func (v maker) bundle(p *pages.Output, o *notebook.Output) {
	b := make(render.Bundle, len(o.Data))
	for mime, val := range o.Data {
		b[mime] = render.Value{Text: val.Text, Blob: val.Blob, Size: val.Size}
	}
	ro := v.render()
	shown := ro.Render(b)
	p.HTML = shown.HTML
	if shown.Tier == render.TierSanitized { // an empty header cell heads nothing, and is read aloud as if it did
		p.HTML = render.HTML(strings.ReplaceAll(string(p.HTML), "<th></th>", "<td></td>"))
	}
	if shown.Frame == nil || v.o.FrameOrigin == "" {
		return
	}
	f := shown.Frame
	p.Frame = &pages.Frame{Mime: f.Mime, Text: f.Text, Title: v.t("Interactive output")}
	if f.Text == "" && f.Blob != "" {
		p.Frame.Blob = ro.BlobURL(f.Blob, f.Mime)
	}
	if len(f.Hosts) > 0 {
		p.Frame.Note = v.t("This output wants to load from %s. Outputs have no network, so a part of it may be missing.", strings.Join(f.Hosts, ", "))
	}
}

func headLines(t *notebook.Text) int64 { return int64(strings.Count(t.Head, "\n")) }

// first is the number of the first line after the gap.
func first(t *notebook.Text) int64 { return headLines(t) + t.OmittedLines }

func (v maker) stream(run notebook.RunID, o *notebook.Output) *pages.Stream {
	t := o.Text
	if t == nil {
		t = &notebook.Text{}
	}
	s := &pages.Stream{
		Gap: v.gap(t), First: first(t), Lines: ansi(t.Lines), All: v.outputURL(run, o.Name), Long: long(t),
	}
	if t.Head != "" {
		s.Head = ansi(strings.Split(strings.TrimSuffix(t.Head, "\n"), "\n"))
	}
	return s
}

func long(t *notebook.Text) bool { return len(t.Lines) > longLines || t.Head != "" }

func ansi(lines []string) []render.HTML {
	out := make([]render.HTML, len(lines))
	for i, l := range lines {
		out[i] = render.ANSI(l)
	}
	return out
}

// gap says exactly what is left out.
func (v maker) gap(t *notebook.Text) string {
	if t.OmittedBytes <= 0 && t.OmittedLines <= 0 {
		return ""
	}
	if t.OmittedLines <= 0 {
		return v.t("%s characters of long lines are not shown.", pages.Count(t.OmittedBytes))
	}
	return v.t("%s lines (%s) are not shown here.", pages.Count(t.OmittedLines), pages.Size(t.OmittedBytes))
}
