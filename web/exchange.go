package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"path"
	"sort"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"sandbook/artifacts"
	"sandbook/kernel"
	"sandbook/kernel/ipynb"
	"sandbook/kernel/notebook"
)

func (s *Server) createForm(c echo.Context) error {
	title, err := field(c, "title")
	if err != nil {
		return s.made(c, "", err)
	}
	cells := []kernel.NewCell{{Kind: notebook.CodeCell}}
	id, err := s.manager.Create(c.Request().Context(), actor(c), notebook.Created{Title: strings.TrimSpace(title), Language: "python"}, cells, nil)
	return s.made(c, id, err)
}

// made goes to a notebook a form made, or says why it did not.
func (s *Server) made(c echo.Context, id notebook.ID, err error) error {
	if err == nil {
		return c.Redirect(http.StatusSeeOther, "/n/"+string(id))
	}
	if p := problemOf(err); p.Code != notebook.Internal {
		return s.list(c, p.Status, p.Message, "")
	}
	return err
}

func (s *Server) importForm(c echo.Context) error {
	c.Request().Body = http.MaxBytesReader(c.Response(), c.Request().Body, maxImport+1<<20)
	fh, err := c.FormFile("file")
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return s.made(c, "", notebook.Errorf(notebook.TooLarge, "The file is larger than %s.", artifacts.Size(maxImport)))
		}
		return s.made(c, "", notebook.Errorf(notebook.Invalid, "Choose an .ipynb file first."))
	}
	f, err := fh.Open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	id, err := s.importFrom(c.Request().Context(), actor(c), f, fh.Filename)
	return s.made(c, id, err)
}

// apiImport takes an .ipynb file as the body; its name in ?name= is the title.
func (s *Server) apiImport(c echo.Context) error {
	body := http.MaxBytesReader(c.Response(), c.Request().Body, maxImport)
	id, err := s.importFrom(c.Request().Context(), actor(c), body, c.QueryParam("name"))
	if err != nil {
		return err
	}
	c.Response().Header().Set("Location", "/api/v1/notebooks/"+string(id))
	return c.JSON(http.StatusCreated, map[string]any{"id": id})
}

// importFrom makes a notebook of a Jupyter file. Nothing of it runs.
func (s *Server) importFrom(ctx context.Context, a notebook.Actor, r io.Reader, name string) (notebook.ID, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return "", err
	}
	nb, err := ipynb.Read(data, ipynb.DefaultLimits, uuid.NewString)
	if err != nil {
		if fe, ok := errors.AsType[*ipynb.FormatError](err); ok {
			code := notebook.Invalid
			if fe.TooLarge {
				code = notebook.TooLarge
			}
			return "", notebook.Errorf(code, "%s", fe.Message)
		}
		return "", err
	}
	if nb.Language != "" && nb.Language != "python" {
		return "", notebook.Errorf(notebook.Invalid, "This notebook is in %s; this server runs python.", cutRunes(nb.Language, 40))
	}
	title := nb.Title
	if title == "" {
		title = strings.TrimSuffix(path.Base(artifacts.Name(name)), ".ipynb")
	}
	title = cutRunes(title, notebook.MaxTitle)
	cells := make([]kernel.NewCell, 0, len(nb.Cells))
	for _, c := range nb.Cells {
		cell := kernel.NewCell{Kind: notebook.CellKind(c.Kind), Source: c.Source, Count: c.Count}
		for _, o := range c.Outputs {
			out, err := s.importOutput(ctx, o)
			if err != nil {
				return "", err
			}
			cell.Outputs = append(cell.Outputs, out)
		}
		cells = append(cells, cell)
	}
	return s.manager.Create(ctx, a, notebook.Created{Title: title, Language: "python"}, cells, nil)
}

func cutRunes(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}

func (s *Server) importOutput(ctx context.Context, o ipynb.Output) (notebook.Output, error) {
	out := notebook.Output{
		Kind: notebook.OutputKind(o.Kind), Name: o.Name, Metadata: o.Metadata,
		EName: o.EName, EValue: o.EValue, Traceback: o.Traceback,
	}
	if o.Kind == ipynb.Stream {
		t := notebook.Text{}.Append(o.Text)
		out.Text = &t
		return out, nil
	}
	if len(o.Data) > 0 {
		out.Data = make(map[string]notebook.Value, len(o.Data))
	}
	for mime, text := range o.Data {
		v, err := kernel.Keep(ctx, s.blobs, "", mime, text)
		if err != nil {
			return out, err
		}
		out.Data[mime] = v
	}
	return out, nil
}

// export writes the notebook as an .ipynb file, output by output: with all it
// shows, it may be larger than memory.
func (s *Server) export(c echo.Context) error {
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	done, err := s.exporting()
	if err != nil {
		return err
	}
	defer done()
	ctx, st := c.Request().Context(), ses.State()
	nb := ipynb.Notebook{Title: st.Title, Language: st.Language}
	for _, cell := range st.Cells {
		out := ipynb.Cell{
			ID: string(cell.ID), Kind: ipynb.Kind(cell.Kind), Source: cell.Source,
			Attribution: &ipynb.Attribution{Kind: string(cell.By.Kind), Name: cell.By.Name},
		}
		if r := st.Runs[cell.Run]; r != nil && cell.Kind == notebook.CodeCell {
			out.Count = r.Count
			if err := s.haveAll(ctx, r.Outputs); err != nil {
				return err // while it can still be said
			}
		}
		nb.Cells = append(nb.Cells, out)
	}
	h := c.Response().Header()
	h.Set("Content-Disposition", artifacts.Attachment(st.Title+".ipynb"))
	h.Set("Content-Type", "application/x-ipynb+json")
	err = ipynb.Encode(c.Response(), nb, func(i int) iter.Seq[ipynb.Output] {
		return func(yield func(ipynb.Output) bool) {
			r := st.Runs[st.Cells[i].Run]
			if r == nil {
				return
			}
			for _, o := range r.Outputs {
				if !yield(s.exportOutput(ctx, o)) {
					return
				}
			}
		}
	})
	if err != nil && c.Response().Committed {
		if ctx.Err() == nil {
			s.logger.LogAttrs(ctx, slog.LevelError, "export ended", slog.String("notebook", string(st.ID)), slog.Any("error", err))
		}
		panic(http.ErrAbortHandler) // half a file must not pass for a whole one
	}
	return err
}

// haveAll checks that what outputs name is there.
func (s *Server) haveAll(ctx context.Context, outputs []*notebook.Output) error {
	for _, o := range outputs {
		for _, v := range o.Data {
			if v.Blob == "" {
				continue
			}
			ok, err := s.blobs.Has(ctx, v.Blob)
			if err == nil && !ok {
				err = fmt.Errorf("blob %s is missing", v.Blob)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Server) exportOutput(ctx context.Context, o *notebook.Output) ipynb.Output {
	out := ipynb.Output{
		Kind: ipynb.OutputKind(o.Kind), Name: o.Name, Metadata: o.Metadata,
		EName: o.EName, EValue: o.EValue, Traceback: o.Traceback, Data: map[string]string{}, Stored: map[string]ipynb.Stored{},
	}
	if o.Text != nil {
		out.Text = o.Text.String()
	}
	for mime, v := range o.Data {
		if v.Blob == "" {
			out.Data[mime] = v.Text
			continue
		}
		out.Stored[mime] = ipynb.Stored{
			Base64: kernel.BinaryMIME(mime),
			Open:   func() (io.ReadCloser, error) { return s.blobs.Open(ctx, v.Blob) },
		}
	}
	return out
}

func (s *Server) duplicate(c echo.Context) (notebook.ID, error) {
	if claimsOf(c).Notebook != "" {
		return "", notebook.Errorf(notebook.Denied, "Your access is for this notebook alone; it cannot make another.")
	}
	ses, err := s.session(c)
	if err != nil {
		return "", err
	}
	st := ses.State()
	cells := make([]kernel.NewCell, 0, len(st.Cells))
	for _, cell := range st.Cells {
		n := kernel.NewCell{Kind: cell.Kind, Source: cell.Source}
		if r := st.Runs[cell.Run]; r != nil && r.Source == cell.Source {
			n.Count = r.Count
			for _, o := range r.Outputs {
				n.Outputs = append(n.Outputs, *o)
			}
		}
		cells = append(cells, n)
	}
	var files []notebook.File
	for _, f := range st.Files {
		if f.Blob != "" {
			files = append(files, f)
		}
	}
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	title := cutRunes(st.Title, notebook.MaxTitle-7) + " (copy)"
	return s.manager.Create(c.Request().Context(), actor(c), notebook.Created{Title: title, Language: st.Language, Backend: st.Backend}, cells, files)
}

func (s *Server) duplicateForm(c echo.Context) error {
	id, err := s.duplicate(c)
	return s.made(c, id, err)
}

func (s *Server) apiDuplicate(c echo.Context) error {
	id, err := s.duplicate(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, map[string]any{"id": id})
}

// download sends a workspace file: shown only if its type is harmless.
func (s *Server) download(c echo.Context, r io.Reader) error {
	head := make([]byte, artifacts.SniffLen)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	name, _ := filePath(c)
	mime := artifacts.Sniff(name, head[:n])
	s.untrusted(c, mime, name)
	return c.Stream(http.StatusOK, artifacts.Served(mime), io.MultiReader(bytes.NewReader(head[:n]), r))
}

// untrusted sets the headers for bytes that came out of a sandbox.
func (s *Server) untrusted(c echo.Context, mime, name string) {
	h := c.Response().Header()
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("Content-Disposition", artifacts.Disposition(mime, name))
}

// blob serves a stored value of the notebook. Its type is what its bytes are,
// not what a request says.
func (s *Server) blob(c echo.Context) error {
	ctx := c.Request().Context()
	id, hash := notebook.ID(c.Param("id")), c.Param("hash")
	if !artifacts.IsHash(hash) {
		return notebook.Errorf(notebook.Invalid, "A blob is named by its sha256 in hex.")
	}
	ok, err := s.store.Names(ctx, id, hash)
	if err != nil {
		return err
	}
	if !ok {
		return notebook.Errorf(notebook.NotFound, "This notebook has no such blob.")
	}
	r, _, err := s.blobs.OpenSized(ctx, hash)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	head := make([]byte, artifacts.SniffLen)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return err
	}
	mime := artifacts.Sniff("", head[:n])
	if c.QueryParam("type") == "image/svg+xml" && bytes.Contains(head[:n], []byte("<svg")) {
		mime = "image/svg+xml" // in an <img> or behind the policy below, scripts of it do not run
	}
	h := c.Response().Header()
	s.untrusted(c, mime, hash[:12])
	if mime == "image/svg+xml" {
		h.Set("Content-Disposition", "inline")
		h.Set("Content-Type", mime)
	} else {
		h.Set("Content-Type", artifacts.Served(mime))
	}
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	h.Set("ETag", `"`+hash+`"`)
	http.ServeContent(c.Response(), c.Request(), "", time.Time{}, r)
	return nil
}
