package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"sandbook/backends"
	"sandbook/kernel/notebook"
)

// Options of a Manager. All fields but Caps and Limits are
// required.
type Options struct {
	Log       Log
	Blobs     Blobs
	Backends  *backends.Registry
	Caps      []backends.Caps // of each backend on this host; what is missing is recorded with each kernel
	Install   string          // install id, labels every sandbox
	GuestPath string          // host path of the guest program
	Limits    backends.Limits
	NewID     func() string // UUIDv7
	Now       func() time.Time
	Logger    *slog.Logger
}

// Manager owns the live sessions of a server.
type Manager struct {
	log       Log
	blobs     Blobs
	backends  *backends.Registry
	caps      map[string]backends.Caps
	install   string
	guestPath string
	limits    backends.Limits
	newID     func() string
	now       func() time.Time
	logger    *slog.Logger

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	sessions map[notebook.ID]*Session
	opening  map[notebook.ID]chan struct{}
}

// New makes a manager. Close it.
func New(o Options) *Manager {
	ctx, stop := context.WithCancel(context.Background())
	caps := map[string]backends.Caps{}
	for _, c := range o.Caps {
		caps[c.Backend] = c
	}
	return &Manager{
		caps: caps,
		log:  o.Log, blobs: o.Blobs, backends: o.Backends, install: o.Install, guestPath: o.GuestPath, limits: o.Limits,
		newID: o.NewID, now: o.Now, logger: o.Logger, ctx: ctx, stop: stop,
		sessions: map[notebook.ID]*Session{}, opening: map[notebook.ID]chan struct{}{},
	}
}

// Adopt opens every notebook that had a sandbox when the last server ended, so
// that its events flow again, and ends sandboxes of this install that belong to
// none of them.
func (m *Manager) Adopt(ctx context.Context, ids []notebook.ID) error {
	keep := make([]backends.ID, 0, len(ids))
	var errs []error
	for _, id := range ids {
		s, err := m.Open(ctx, id)
		if err != nil {
			errs = append(errs, fmt.Errorf("open notebook %s: %w", id, err))
			continue
		}
		if sb := s.State().Kernel.Sandbox; sb != "" {
			keep = append(keep, backends.ID(sb))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // rather reap nothing than the wrong thing
	}
	for _, name := range m.backends.Names() {
		b, err := m.backends.Backend(name)
		if err != nil {
			return err
		}
		if err := b.Reap(ctx, m.install, keep); err != nil {
			errs = append(errs, fmt.Errorf("reap %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Open returns the live session of a notebook, loading it if needed.
func (m *Manager) Open(ctx context.Context, id notebook.ID) (*Session, error) {
	for {
		m.mu.Lock()
		if m.ctx.Err() != nil {
			m.mu.Unlock()
			return nil, ErrClosed
		}
		if s := m.sessions[id]; s != nil {
			s.used.Store(m.now().Unix())
			m.mu.Unlock()
			return s, nil
		}
		wait := m.opening[id]
		if wait == nil {
			m.opening[id] = make(chan struct{})
			m.mu.Unlock()
			break
		}
		m.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s, err := m.load(ctx, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.opening[id])
	delete(m.opening, id)
	if err != nil {
		return nil, err
	}
	if m.ctx.Err() != nil {
		return nil, ErrClosed
	}
	m.sessions[id] = s
	s.used.Store(m.now().Unix())
	m.wg.Go(s.run)
	return s, nil
}

func (m *Manager) load(ctx context.Context, id notebook.ID) (*Session, error) {
	l, err := m.log.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	st := notebook.New(id)
	if l.State != nil {
		st = *l.State
	}
	st = notebook.Fold(st, l.Events)
	s := &Session{
		id: id, m: m, done: make(chan struct{}), inbox: make(chan func(), 64),
		state: st, cursor: l.Cursor, subs: map[*Subscription]struct{}{}, sinceSnap: len(l.Events),
		readers: make(chan struct{}, maxReaders), meter: meter{log: l.Bytes},
	}
	s.ctx = m.ctx
	s.view.Store(&st)
	return s, nil
}

// NewCell is a cell of a notebook to be made, perhaps with what an earlier run
// left.
type NewCell struct {
	Kind    notebook.CellKind
	Source  string
	Count   int               // execution count shown, 0 for none
	Outputs []notebook.Output // of an earlier run elsewhere; it is not run again
}

// Create makes a notebook and returns its id. Nothing runs: outputs that come
// along are shown as those of a run in an earlier kernel.
func (m *Manager) Create(ctx context.Context, a notebook.Actor, c notebook.Created, cells []NewCell, files []notebook.File) (notebook.ID, error) {
	if !a.May(notebook.ScopeEdit) {
		return "", notebook.Errorf(notebook.Denied, "Your access does not allow making notebooks.")
	}
	if _, err := m.backends.Backend(c.Backend); err != nil {
		return "", notebook.Errorf(notebook.Invalid, "This server has no backend %q; it has %s.", cut(c.Backend, 40), strings.Join(m.backends.Names(), ", "))
	}
	d := draft{m: m, a: a, st: notebook.New(notebook.ID(m.newID())), now: m.now()}
	title := c.Title
	if title == "" {
		title = "Untitled"
	}
	c.Title = ""
	d.add(c)
	if err := d.do(notebook.Rename{Title: title}); err != nil {
		return "", err
	}
	for _, cell := range cells {
		if err := d.cell(cell); err != nil {
			return "", err
		}
	}
	if len(files) > 0 {
		d.add(notebook.FilesChanged{Files: notebook.Files{Changed: files}})
	}
	st := notebook.Fold(notebook.New(d.st.ID), d.evs)
	return st.ID, m.log.Append(ctx, st.ID, notebook.Batch{Events: d.evs, State: &st})
}

// draft collects the first events of a notebook. Its state is what ops are
// decided on, without the runs: they change nothing for them, and applying each
// would copy all of them.
type draft struct {
	m   *Manager
	a   notebook.Actor
	st  notebook.State
	now time.Time
	evs []notebook.Event
}

func (d *draft) add(b notebook.Body) {
	d.evs = append(d.evs, notebook.Event{Seq: int64(len(d.evs)) + 1, At: d.now, By: d.a.Author, Body: b})
}

func (d *draft) do(op notebook.Op) error {
	evs, err := notebook.Decide(d.st, d.a, op, d.now)
	if err != nil {
		return err
	}
	d.st = notebook.Fold(d.st, evs)
	for _, e := range evs {
		d.add(e.Body)
	}
	return nil
}

func (d *draft) cell(c NewCell) error {
	id := notebook.CellID(d.m.newID())
	if err := d.do(notebook.InsertCell{Cell: id, Kind: c.Kind, Source: c.Source}); err != nil {
		return err
	}
	if len(c.Outputs) == 0 {
		return nil
	}
	run := notebook.RunID(d.m.newID())
	d.add(notebook.RunQueued{Run: run, Cell: id, Source: c.Source, SHA256: notebook.SourceHash(c.Source), Batch: string(run)})
	d.add(notebook.RunSent{Run: run, Count: c.Count})
	for _, o := range c.Outputs {
		if o.Kind == notebook.StreamOutput && o.Text != nil {
			d.add(notebook.StreamAppended{Run: run, Name: streamName(o.Name), Text: o.Text.String()})
		} else {
			d.add(notebook.OutputAdded{Run: run, Output: o})
		}
	}
	d.add(notebook.RunEnded{Run: run, Status: notebook.OK, Reason: "It came with the notebook and was not run here."})
	return nil
}

// NewID makes an id for a client that brings none.
func (m *Manager) NewID() string { return m.newID() }

// Live counts sessions in memory.
func (m *Manager) Live() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sessions)
}

// Close ends every session and waits for their goroutines. Sandboxes live on
// for the next server; ctx bounds the wait.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.stop()
	sessions := m.sessions
	m.mu.Unlock()
	for _, s := range sessions {
		select {
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if s.sinceSnap > 0 {
			if err := m.log.Save(ctx, s.state); err != nil {
				m.logger.LogAttrs(ctx, slog.LevelError, "save snapshot", slog.Any("error", err))
			}
		}
	}
	idle := make(chan struct{})
	go func() { m.wg.Wait(); close(idle) }()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unloadAfter is how long a session without a kernel stays in memory after it
// was last opened.
const unloadAfter = 10 * time.Minute

// unload takes an idle session out of memory and reports whether it did. It is
// called by the session's owner, which then ends; the next Open loads it again.
func (m *Manager) unload(s *Session) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now().Unix()-s.used.Load() < int64(unloadAfter/time.Second) || m.sessions[s.id] != s {
		return false
	}
	delete(m.sessions, s.id)
	if s.sinceSnap > 0 {
		m.save(s.state)
	}
	return true
}

// save stores a snapshot in the background.
func (m *Manager) save(st notebook.State) {
	m.wg.Go(func() {
		if err := m.log.Save(m.ctx, st); err != nil && m.ctx.Err() == nil {
			m.logger.LogAttrs(m.ctx, slog.LevelError, "save snapshot", slog.String("notebook", string(st.ID)), slog.Any("error", err))
		}
	})
}

// after runs fn on a session's owner after a while.
func (m *Manager) after(s *Session, d time.Duration, fn func()) {
	m.wg.Go(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			s.post(fn)
		case <-s.ctx.Done():
		}
	})
}
