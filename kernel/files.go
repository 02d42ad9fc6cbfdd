package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"sandbook/artifacts"
	"sandbook/backends"
	"sandbook/kernel/notebook"
	"sandbook/kernel/wire"
)

// Bounds of what is kept of a workspace.
const (
	maxKept     = 64 << 20 // bytes of one file
	maxUpload   = 256 << 20
	collectTime = 2 * time.Minute
	askTime     = 20 * time.Second // for an answer beside the write path
	collectWait = 30 * time.Second // until files that could not be asked for are asked for again
	maxReaders  = 8                // files of a notebook read for clients at one time; a guest serves 32 requests
)

// collect copies the files a run changed into the blob store, in the
// background, and then reports them again with what was kept. The workspace
// itself lives and dies with the sandbox; the copies are what comes back in the
// next one.
func (s *Session) collect(b notebook.FilesChanged) {
	g := s.guest
	if g == nil || !unkept(b.Files) {
		return
	}
	gen := s.state.Kernel.Gen
	s.m.wg.Go(func() {
		s.collecting.Lock()
		defer s.collecting.Unlock()
		ctx, cancel := context.WithTimeout(s.ctx, collectTime)
		defer cancel()
		out, gone := b.Files, false
		out.Changed = make([]notebook.File, len(b.Files.Changed))
		for i, f := range b.Files.Changed {
			if f.Blob == "" && f.Why == "" && !gone {
				f, gone = s.keep(ctx, g, f)
			}
			out.Changed[i] = f
		}
		if ctx.Err() != nil || gone {
			// It is asked again: soon, with the next connection, or by the next server.
			s.m.after(s, collectWait, s.pendingFiles)
			return
		}
		s.post(func() {
			if err := s.report(gen, notebook.FilesChanged{Run: b.Run, Files: out}); err != nil {
				s.m.logger.LogAttrs(s.ctx, slog.LevelError, "record files", slog.Any("error", err))
			}
		})
	})
}

func unkept(f notebook.Files) bool {
	for _, c := range f.Changed {
		if c.Blob == "" && c.Why == "" {
			return true
		}
	}
	return false
}

// keep copies one file; a file that cannot be kept says why. It reports true
// when the guest could not be asked, so that nobody knows.
func (s *Session) keep(ctx context.Context, g *guest, f notebook.File) (notebook.File, bool) {
	if f.Size > maxKept {
		f.Why = fmt.Sprintf("Files over %s are not kept when the sandbox ends.", sizeWords(maxKept))
		return f, false
	}
	pr, pw := io.Pipe()
	var head headWriter
	s.m.wg.Go(func() { pw.CloseWithError(g.readFile(ctx, f.Path, pw, maxKept+1)) })
	hash, n, err := s.m.blobs.PutFor(ctx, s.id, io.TeeReader(pr, &head), maxKept)
	_ = pr.CloseWithError(io.ErrClosedPipe)
	switch {
	case err == nil:
		f.Blob, f.Size = hash, n
		f.MIME = artifacts.Sniff(f.Path, head.b)
		f.Width, f.Height = artifacts.Dimensions(f.MIME, head.b)
	case ctx.Err() != nil || errors.Is(err, errGuestGone) || errors.Is(err, errBusy):
		return f, true
	case notebook.CodeOf(err) == notebook.Internal:
		f.Why = "It could not be read."
		s.m.logger.LogAttrs(ctx, slog.LevelWarn, "keep file", slog.String("notebook", string(s.id)), slog.Any("error", err))
	default:
		f.Why = notebook.MessageOf(err)
	}
	return f, false
}

// headWriter keeps the first bytes of a file, enough to tell what it is.
type headWriter struct{ b []byte }

func (h *headWriter) Write(p []byte) (int, error) {
	if room := 64<<10 - len(h.b); room > 0 {
		h.b = append(h.b, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// pendingFiles collects again what a server that was killed had not finished.
func (s *Session) pendingFiles() {
	for id, r := range s.state.Runs {
		if r.Files != nil && unkept(*r.Files) {
			s.collect(notebook.FilesChanged{Run: id, Files: *r.Files})
		}
	}
}

// Upload puts a file into the workspace: into the kept copies, and into the
// live sandbox if there is one.
func (s *Session) Upload(ctx context.Context, a notebook.Actor, path string, r io.Reader) (notebook.File, error) {
	if !a.May(notebook.ScopeEdit) {
		return notebook.File{}, notebook.Errorf(notebook.Denied, "Your access does not allow changing files.")
	}
	if err := checkPath(path); err != nil {
		return notebook.File{}, err
	}
	if err := notebook.InTrash(s.State()); err != nil { // before the bytes are kept for nothing
		return notebook.File{}, err
	}
	var head headWriter
	hash, n, err := s.m.blobs.PutFor(ctx, s.id, io.TeeReader(r, &head), maxUpload)
	if err != nil {
		return notebook.File{}, err
	}
	f := notebook.File{Path: path, Size: n, Blob: hash, Mode: 0o644, MIME: artifacts.Sniff(path, head.b)}
	f.Width, f.Height = artifacts.Dimensions(f.MIME, head.b)
	if g := s.link.Load(); g != nil {
		blob, err := s.m.blobs.Open(ctx, hash)
		if err != nil {
			return f, err
		}
		err = g.writeFile(ctx, wire.FileInfo{Path: path, Mode: f.Mode, Kind: "file"}, blob)
		_ = blob.Close()
		if err != nil {
			return f, err
		}
	}
	return f, s.fileEvent(ctx, a, notebook.Files{Changed: []notebook.File{f}})
}

// RemoveFile deletes a workspace file.
func (s *Session) RemoveFile(ctx context.Context, a notebook.Actor, path string) error {
	if !a.May(notebook.ScopeEdit) {
		return notebook.Errorf(notebook.Denied, "Your access does not allow changing files.")
	}
	if err := checkPath(path); err != nil {
		return err
	}
	_, kept := s.State().Files[path]
	if g := s.link.Load(); g != nil {
		if _, err := g.call(ctx, wire.Request{Op: wire.OpRemove, Path: path}); err != nil && (!kept || notebook.CodeOf(err) != notebook.NotFound) {
			return err
		}
	} else if !kept {
		return notebook.Errorf(notebook.NotFound, "There is no file %q.", cut(path, 200))
	}
	return s.fileEvent(ctx, a, notebook.Files{Removed: []string{path}})
}

// fileEvent records what an actor did to a file.
func (s *Session) fileEvent(ctx context.Context, a notebook.Actor, files notebook.Files) error {
	var err error
	cerr := s.call(ctx, func() {
		if err = notebook.InTrash(s.state); err != nil {
			return
		}
		e := notebook.Event{Seq: s.state.Seq + 1, At: s.m.now(), By: a.Author, Body: notebook.FilesChanged{Files: files}}
		err = s.commit([]notebook.Event{e}, notebook.Batch{})
	})
	if cerr != nil {
		return cerr
	}
	return err
}

// checkPath allows relative slash-separated paths without tricks.
func checkPath(p string) error {
	bad := notebook.Errorf(notebook.Invalid, "A file's path is relative to the workspace, like data/table.csv, without .. or control characters.")
	if p == "" || len(p) > 1024 || p[0] == '/' {
		return bad
	}
	part := 0
	for i, r := range p + "/" {
		if r < 0x20 || r == 0x7f || r == 0xFFFD || r == '\\' {
			return bad
		}
		if r != '/' {
			continue
		}
		if name := p[part:i]; name == "" || name == "." || name == ".." || len(name) > 255 {
			return bad
		}
		part = i + 1
	}
	return nil
}

// OpenFile reads a workspace file: the live one, else the kept copy. The
// reader ends with an error if the sandbox goes away in between.
func (s *Session) OpenFile(ctx context.Context, path string) (io.ReadCloser, notebook.File, error) {
	if err := checkPath(path); err != nil {
		return nil, notebook.File{}, err
	}
	f, known := s.State().Files[path]
	if g := s.link.Load(); g != nil {
		select {
		case s.readers <- struct{}{}:
		default:
			return nil, f, notebook.Errorf(notebook.Unavailable, "Too many files of this notebook are being downloaded. Try again in a moment.")
		}
		pr, pw := io.Pipe()
		s.m.wg.Go(func() {
			defer func() { <-s.readers }()
			pw.CloseWithError(g.readFile(ctx, path, pw, maxUpload))
		})
		first := make([]byte, 1)
		n, err := io.ReadFull(pr, first)
		if err == nil || n == 0 && err == io.EOF { //nolint:errorlint // io.ReadFull returns io.EOF itself
			return &prefixed{first[:n], pr}, f, nil
		}
		_ = pr.Close()
		if !known {
			return nil, f, err
		}
	}
	if !known {
		return nil, f, notebook.Errorf(notebook.NotFound, "There is no file %q in this notebook.", cut(path, 200))
	}
	if f.Blob == "" {
		return nil, f, notebook.Errorf(notebook.Unavailable, "This file was not kept and its sandbox is gone. %s", f.Why)
	}
	r, err := s.m.blobs.Open(ctx, f.Blob)
	return r, f, err
}

type prefixed struct {
	head []byte
	*io.PipeReader
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	return p.PipeReader.Read(b)
}

// Ask puts a question to the kernel or its guest beside the write path:
// completion, inspection, variables, files. It changes nothing in the notebook.
func (s *Session) Ask(ctx context.Context, a notebook.Actor, req wire.Request) ([]byte, error) {
	need := notebook.ScopeRead
	switch req.Op {
	case wire.OpList, wire.OpUsage:
	case wire.OpComplete, wire.OpInspect, wire.OpIsComplete, wire.OpVariables:
		need = notebook.ScopeRun // completion may run code of the user's objects
	default:
		return nil, notebook.Errorf(notebook.Denied, "This cannot be asked.")
	}
	if !a.May(need) {
		return nil, notebook.Errorf(notebook.Denied, "Your access does not allow this.")
	}
	g := s.link.Load()
	if g == nil {
		return nil, notebook.Errorf(notebook.Unavailable, "There is no kernel running.")
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	res, err := g.call(ctx, req)
	switch {
	case errors.Is(err, errGuestGone):
		return nil, notebook.Errorf(notebook.Unavailable, "The kernel cannot be reached at the moment. Ask again in a second.")
	case errors.Is(err, context.DeadlineExceeded):
		return nil, notebook.Errorf(notebook.Unavailable, "The kernel is busy and did not answer.")
	}
	return res, err
}

// Usage samples the live sandbox by the host's counters; nil if there is none.
func (s *Session) Usage(ctx context.Context) (*backends.Usage, error) {
	var out *backends.Usage
	err := s.call(ctx, func() {
		if s.sandbox == nil {
			return
		}
		if u, ok := s.usage(); ok {
			out = &u
		}
	})
	return out, err
}
