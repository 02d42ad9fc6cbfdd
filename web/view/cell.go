package view

import (
	"strings"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/web/pages"
	"sandbook/web/render"
)

func (v maker) cell(c *notebook.Cell, number int) pages.Cell {
	p := pages.Cell{
		Lang: v.o.Lang, ID: string(c.ID), Number: number, Kind: string(c.Kind), Version: c.Version, Source: c.Source,
		ReadOnly: v.readOnly(), Head: v.head(c), At: v.clock(c), Foot: v.foot(c),
	}
	p.Shown, p.Visible = v.source(c)
	if r := v.s.Runs[c.Run]; r != nil && c.Kind == notebook.CodeCell {
		for i := range r.Outputs {
			p.Outputs = append(p.Outputs, v.output(r, i))
		}
	}
	return p
}

// source renders a cell's text. exact says that what a browser reads of it is
// the text itself.
func (v maker) source(c *notebook.Cell) (h render.HTML, exact bool) {
	switch c.Kind {
	case notebook.MarkdownCell:
		o := v.render()
		o.Scope = string(c.ID)
		return render.Markdown(c.Source, o), false
	case notebook.CodeCell:
		h = v.render().Code(c.Source, v.s.Language)
	default:
		h = render.Visible(c.Source)
	}
	return h, !strings.ContainsRune(c.Source, '\r') && !strings.Contains(string(h), `class="invisible`)
}

func (v maker) clock(c *notebook.Cell) pages.Clock {
	return pages.Clock{Now: v.o.Now, Place: v.s.Position(c.Pending)}
}

// head is the line above a cell. It does not depend on the clock or on the
// place in the queue.
func (v maker) head(c *notebook.Cell) pages.Head {
	h := pages.Head{
		Lang: v.o.Lang, Cell: string(c.ID), Kind: string(c.Kind),
		Author: name(v.o.Lang, c.By), Agent: c.By.Kind == notebook.Agent,
	}
	if c.Kind != notebook.CodeCell {
		return h
	}
	v.tag(&h, c)
	r := v.s.Runs[c.Run]
	switch {
	case c.Pending != "" && v.s.Runs[c.Pending] != nil:
		h.Run, h.Queued = string(c.Pending), true
	case r == nil:
	case r.Status == notebook.Running:
		h.Run, h.Since, h.Stage = string(r.ID), r.Started, v.stage(r.Stage)
		h.Waiting = v.s.Input != nil && v.s.Input.Run == r.ID
		if r.Last > 0 {
			h.Last = v.o.Lang.Duration(time.Duration(r.Last) * time.Millisecond)
		}
	case !r.Started.IsZero():
		v.figures(&h, r)
	}
	return h
}

// figures says what a run took.
func (v maker) figures(h *pages.Head, r *notebook.Run) {
	h.Took = v.o.Lang.Duration(time.Duration(r.WallMS) * time.Millisecond)
	if r.PeakMemory > 0 {
		h.Memory = pages.Memory(r.PeakMemory)
	}
	// Worth a word only where it says something the duration does not.
	if r.CPUMS >= 100 && (r.CPUMS*10 < r.WallMS*8 || r.CPUMS*10 > r.WallMS*12) {
		h.CPU = v.t("%s CPU", v.o.Lang.Duration(time.Duration(r.CPUMS)*time.Millisecond))
	}
	if r.Count > 0 {
		h.Order = v.t("ran %s", v.o.Lang.Ordinal(int64(r.Count)))
	}
}

// tag is the one thing about a cell that should be noticed.
func (v maker) tag(h *pages.Head, c *notebook.Cell) {
	r := v.s.Runs[c.Run]
	if r != nil {
		h.Title = v.t(r.Reason)
		switch r.Status {
		case notebook.Failed:
			h.Tag, h.Tone = v.t("failed"), pages.Bad
		case notebook.Interrupted:
			h.Tag, h.Tone = v.t("interrupted"), pages.Wait
		case notebook.TimedOut:
			h.Tag, h.Tone = v.t("stopped: out of time"), pages.Bad
		case notebook.Killed:
			h.Tag, h.Tone = v.t("killed"), pages.Bad
		case notebook.Skipped:
			h.Tag, h.Tone = v.t("skipped"), pages.Wait
		case notebook.LostRun:
			h.Tag, h.Tone = v.t("lost"), pages.Bad
		case notebook.Cancelled:
			h.Tag = v.t("cancelled")
		case notebook.Running:
			return
		}
		if h.Tag != "" && v.s.Staleness(c) != notebook.EditedSince {
			return
		}
	}
	if c.Pending != "" {
		return
	}
	switch v.s.Staleness(c) {
	case notebook.NeverRun:
		if strings.TrimSpace(c.Source) != "" && h.Tag == "" {
			h.Tag = v.t("not run yet")
		}
	case notebook.EditedSince:
		if h.Tag == "" {
			h.Tag = v.t("edited since it ran")
		} else {
			h.Tag, h.Tone = h.Tag+v.t(", edited since"), pages.Quiet
		}
	case notebook.EarlierKernel:
		if h.Tag == "" {
			h.Tag = v.t("ran in an earlier kernel")
		}
	}
}

func (v maker) foot(c *notebook.Cell) pages.Foot {
	f := pages.Foot{Lang: v.o.Lang, Cell: string(c.ID)}
	r := v.s.Runs[c.Run]
	if r == nil || c.Kind != notebook.CodeCell {
		return f
	}
	if r.Status.Final() && r.Status != notebook.OK && r.Reason != "" {
		f.Why, f.Tone = v.t(r.Reason), pages.Bad
		switch r.Status {
		case notebook.Skipped, notebook.Cancelled, notebook.Interrupted:
			f.Tone = pages.Wait
		}
	}
	if in := v.s.Input; in != nil && in.Run == r.ID && !v.readOnly() {
		f.Input = &pages.Input{Run: string(in.Run), Prompt: in.Prompt, Password: in.Password}
	}
	if r.Files != nil {
		const show = 12
		for i, file := range r.Files.Changed {
			if i == show {
				f.More += len(r.Files.Changed) - i
				break
			}
			f.Files = append(f.Files, v.file(file))
		}
		f.Removed = r.Files.Removed[:min(len(r.Files.Removed), show)]
		f.More += r.Files.More + len(r.Files.Removed) - len(f.Removed)
	}
	return f
}
