// Package view works out what a page shows of a notebook: from a state it makes
// the values that package pages prints, and from two states the patches that
// bring a page from one to the other. It is pure: no I/O, no clock, no
// goroutine. It decides nothing about notebooks and serves nothing.
package view

import (
	"net/url"
	"strings"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/web/pages"
	"sandbook/web/render"
)

// Options say for whom and when a page is made.
type Options struct {
	pages.Chrome
	Now         time.Time
	Build       string // names the server's build, so that a page notices a new one
	FrameOrigin string // of active outputs; empty: none
	ReadOnly    bool   // the actor may not edit

	Rendered *render.Cache // of all pages; nil: none
	Work     *render.Work  // what this page, or this patch of it, may take to format; nil: as long as it takes
}

// Page is the whole notebook page.
func Page(s notebook.State, o Options) pages.Notebook {
	v := maker{s, o}
	p := pages.Notebook{
		Chrome: o.Chrome, ID: string(s.ID), Title: s.Title, Seq: s.Seq, Build: o.Build, FrameOrigin: o.FrameOrigin,
		ReadOnly: o.ReadOnly, Deleted: !s.Deleted.IsZero(),
		Kernel: v.kernel(), Actions: v.actions(), Banner: v.banner(),
		Cells: make([]pages.Cell, 0, len(s.Cells)),
		Rail:  pages.Rail{Files: v.railFiles(), Kernel: v.railKernel(), History: v.railHistory()},
	}
	for i, c := range s.Cells {
		p.Cells = append(p.Cells, v.cell(c, i+1))
	}
	return p
}

// Row is a notebook's line in the list.
func Row(l pages.Lang, id, title string, cells int, kernel notebook.KernelStatus, busy, waiting bool, changed, now time.Time) pages.Row {
	word, tone := kernelWord(l, kernel, busy, waiting)
	if kernel == notebook.NoKernel || kernel == "" {
		word = ""
	}
	return pages.Row{ID: id, Title: title, Changed: changed, Now: now, Cells: cells, Kernel: word, Tone: tone, Waiting: waiting}
}

// maker makes values of one state.
type maker struct {
	s notebook.State
	o Options
}

func (v maker) t(en string, args ...any) string { return v.o.Lang.T(en, args...) }

// readOnly holds for somebody who may not edit and for what is in the trash.
func (v maker) readOnly() bool { return v.o.ReadOnly || !v.s.Deleted.IsZero() }

func (v maker) render() render.Options {
	id := url.PathEscape(string(v.s.ID))
	return render.Options{
		FilesBase: "/n/" + id + "/files/",
		Say:       func(en string) string { return v.t(en) },
		Work:      v.o.Work,
		Cache:     v.o.Rendered,
		BlobURL:   func(hash, mime string) string { return "/n/" + id + "/blob/" + hash + "?type=" + url.QueryEscape(mime) },
	}
}

// fileURL leads to a file of the workspace.
func (v maker) fileURL(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if p == "" || p == "." || p == ".." {
			return ""
		}
		parts[i] = url.PathEscape(p)
	}
	return "/n/" + url.PathEscape(string(v.s.ID)) + "/files/" + strings.Join(parts, "/")
}

// outputURL leads to the whole text of a stream.
func (v maker) outputURL(run notebook.RunID, stream string) string {
	return "/api/v1/notebooks/" + url.PathEscape(string(v.s.ID)) + "/runs/" + url.PathEscape(string(run)) + "/output?stream=" + url.QueryEscape(stream)
}

// name is how a page calls an author.
func name(l pages.Lang, a notebook.Author) string {
	switch {
	case a.Name != "":
		return a.Name
	case a.Kind == notebook.Agent:
		return l.T("An agent")
	case a.Kind == notebook.Server:
		return "Sandbook"
	}
	return l.T("Somebody")
}
