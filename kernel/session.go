package kernel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"sandbook/backends"
	"sandbook/kernel/notebook"
	"sandbook/kernel/policy"
	"sandbook/kernel/wire"
)

// Bounds of a session.
const (
	subQueue      = 256     // updates a subscriber may fall behind
	maxBatch      = 256     // guest events made durable together
	maxBatchBytes = 4 << 20 // likewise, text
	endOfRun      = 300 * time.Microsecond
	ackAfter      = 20 * time.Millisecond // from the first event taken to its acknowledgement
	maxUnacked    = 1000                  // guest events without effect before the cursor moves
	maxSilent     = 4 << 20               // likewise, bytes; far less than the guest keeps
	snapshotEvery = 400                   // events
	outputLimit   = 16 << 20              // bytes of stream text a run may leave in the log
	usageEvery    = 2 * time.Second
	maxLost       = 8   // connections lost in a row before a sandbox is given up
	maxKey        = 128 // bytes of an idempotency key
)

// ErrSlow ends a subscription whose reader fell behind. Subscribe again from
// the last seq seen.
var ErrSlow = errors.New("subscriber too slow")

// ErrClosed is returned for a session that has ended.
var ErrClosed = notebook.Errorf(notebook.Unavailable, "The server is shutting down. Nothing is lost; try again in a moment.")

// Session is one live notebook. Methods may be called concurrently.
type Session struct {
	id   notebook.ID
	m    *Manager
	ctx  context.Context // the session's life, not a request's
	done chan struct{}   // closed when the owner has ended

	inbox   chan func()
	readers chan struct{} // one in it for each file being read for a client
	used    atomic.Int64  // unix seconds when it was last opened
	view    atomic.Pointer[notebook.State]
	link    atomic.Pointer[guest] // for queries beside the owner

	// What follows belongs to the owner goroutine.
	state      notebook.State
	cursor     notebook.Cursor
	subs       map[*Subscription]struct{}
	sinceSnap  int
	sandbox    backends.Sandbox
	guest      *guest
	events     <-chan wire.Event
	booting    bool // a sandbox is being started or attached to
	wanted     bool // a kernel was asked for meanwhile
	lost       int  // connections lost since the guest last got something done
	meter      meter
	silent     int  // bytes of guest events without effect since the cursor moved
	acking     bool // an acknowledgement is on its way
	oomSeen    int64
	oomAt      time.Time
	oomWords   string
	collecting sync.Mutex // one copy of files at a time
	failed     error      // the log refused; the session only reads from now on
}

// Result says what an op did.
type Result struct {
	First int64    `json:"first,omitempty"` // seq of its first event; 0: nothing changed
	Last  int64    `json:"last,omitempty"`
	IDs   []string `json:"ids,omitempty"` // runs queued or cells made
}

// Subscription is a view of a session: the state when it began, then every
// update. Read Updates until it is closed; Err then says why.
type Subscription struct {
	State   notebook.State
	Updates <-chan Update

	ch  chan Update
	err atomic.Pointer[error]
	s   *Session
}

// Update is one step of a session: the events, and the state on either side of
// them; or a usage sample, which is not an event and is not kept.
type Update struct {
	Before, After *notebook.State
	Events        []notebook.Event
	Usage         *backends.Usage
}

// Err says why Updates was closed: ErrSlow, ErrClosed, or nil after Close.
func (u *Subscription) Err() error {
	if p := u.err.Load(); p != nil {
		return *p
	}
	return nil
}

// Close ends the subscription.
func (u *Subscription) Close() {
	_ = u.s.call(context.Background(), func() { u.s.unsubscribe(u, nil) })
}

// ID of the notebook.
func (s *Session) ID() notebook.ID { return s.id }

// State is the notebook as of the last durable event. It is safe to keep.
func (s *Session) State() notebook.State { return *s.view.Load() }

// call runs fn on the owner and waits for it.
func (s *Session) call(ctx context.Context, fn func()) error {
	ran := make(chan struct{})
	select {
	case s.inbox <- func() { fn(); close(ran) }:
	case <-s.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-ran:
		return nil
	case <-s.done:
		return ErrClosed
	}
}

// post runs fn on the owner without waiting for it, unless the session ends.
func (s *Session) post(fn func()) {
	select {
	case s.inbox <- fn:
	case <-s.done:
	}
}

// Do is the one way to change a notebook. It returns when the change is
// durable. With a key, doing the same op again returns the first result and
// changes nothing; another op under the same key is a Conflict. Errors are
// *notebook.Error except for faults of the server.
func (s *Session) Do(ctx context.Context, a notebook.Actor, op notebook.Op, key string) (Result, error) {
	var res Result
	var err error
	if cerr := s.call(ctx, func() { res, err = s.do(ctx, a, op, key) }); cerr != nil {
		return Result{}, cerr
	}
	return res, err
}

func (s *Session) do(ctx context.Context, a notebook.Actor, op notebook.Op, key string) (Result, error) {
	if err := policy.Allow(s.state, a, op); err != nil {
		return Result{}, err
	}
	var rec *notebook.Receipt
	if key != "" {
		if len(key) > maxKey {
			return Result{}, notebook.Errorf(notebook.Invalid, "An idempotency key has at most %d characters.", maxKey)
		}
		hash, err := opHash(op)
		if err != nil {
			return Result{}, err
		}
		old, found, err := s.m.log.Done(ctx, s.id, a.ID, key)
		if err != nil {
			return Result{}, err
		}
		if found && old.Hash != hash {
			return Result{}, notebook.Errorf(notebook.Conflict, "This idempotency key was used for another op.")
		}
		if found {
			return Result{old.First, old.Last, old.IDs}, nil
		}
		rec = &notebook.Receipt{Actor: a.ID, Key: key, Hash: hash}
	}
	if _, ok := op.(notebook.ReplyInput); ok && s.guest == nil && s.state.Input != nil {
		return Result{}, notebook.Errorf(notebook.Unavailable, "The kernel cannot be reached at the moment. Answer again in a second.")
	}
	if s.meter.log > maxLog+maxLog/4 && grows(op) {
		return Result{}, notebook.Errorf(notebook.TooLarge, "The history of this notebook has reached its limit of %s. Duplicate the notebook to go on with a new one.", sizeWords(maxLog))
	}
	op = notebook.Prepare(s.state, op, s.m.newID)
	evs, err := notebook.Decide(s.state, a, op, s.m.now())
	if err != nil {
		return Result{}, err
	}
	evs = s.follow(evs)
	if len(evs) == 0 && rec == nil {
		s.react(op, nil)
		return Result{}, nil
	}
	res := Result{IDs: madeIDs(evs)}
	if len(evs) > 0 {
		res.First, res.Last = evs[0].Seq, evs[len(evs)-1].Seq
	}
	if rec != nil {
		rec.First, rec.Last, rec.IDs = res.First, res.Last, res.IDs
	}
	if err := s.commit(evs, notebook.Batch{Receipt: rec}); err != nil {
		return Result{}, err
	}
	s.meter.add(evs)
	s.react(op, evs)
	return res, nil
}

// grows reports whether an op may make the notebook's log longer without end.
func grows(op notebook.Op) bool {
	switch op.(type) {
	case notebook.Interrupt, notebook.CancelRun, notebook.StopKernel, notebook.DeleteNotebook, notebook.RestoreNotebook:
		return false
	}
	return true
}

// follow adds what the server does by itself after the events: it sends the
// next run to an idle kernel.
func (s *Session) follow(evs []notebook.Event) []notebook.Event {
	if s.guest == nil {
		return evs
	}
	st := notebook.Fold(s.state, evs)
	more, err := notebook.Decide(st, notebook.TheServer, notebook.Dispatch{}, s.m.now())
	if err != nil {
		return evs
	}
	return append(evs, more...)
}

func opHash(op notebook.Op) (string, error) {
	b, err := json.Marshal(op)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(append([]byte(op.Op()+"\x00"), b...))
	return hex.EncodeToString(h[:]), nil
}

func madeIDs(evs []notebook.Event) []string {
	var ids []string
	for _, e := range evs {
		switch b := e.Body.(type) {
		case notebook.RunQueued:
			ids = append(ids, string(b.Run))
		case notebook.CellInserted:
			ids = append(ids, string(b.Cell))
		case notebook.CellRestored:
			ids = append(ids, string(b.Cell))
		}
	}
	return ids
}

// commit makes events durable, applies and publishes them. When the log
// refuses, nothing has happened; a Conflict means that another server owns the
// notebook, and this session stops writing.
func (s *Session) commit(evs []notebook.Event, b notebook.Batch) error {
	if s.failed != nil {
		return s.failed
	}
	next := notebook.Fold(s.state, evs)
	b.Events, b.State = evs, &next
	if err := s.m.log.Append(s.ctx, s.id, b); err != nil {
		if notebook.CodeOf(err) == notebook.Conflict {
			s.failed = notebook.Errorf(notebook.Unavailable, "Another server has taken over this notebook. Reload the page.")
			return s.failed
		}
		return err
	}
	if b.Cursor != nil {
		s.cursor = *b.Cursor
	}
	if len(evs) == 0 {
		return nil
	}
	before := s.view.Load()
	s.state = next
	s.view.Store(&next)
	s.publish(Update{Before: before, After: &next, Events: evs})
	if s.sinceSnap += len(evs); s.sinceSnap >= snapshotEvery && !next.Busy() {
		s.sinceSnap = 0
		s.m.save(next)
	}
	return nil
}

func (s *Session) publish(u Update) {
	for sub := range s.subs {
		select {
		case sub.ch <- u:
		default:
			s.unsubscribe(sub, ErrSlow)
		}
	}
}

func (s *Session) unsubscribe(sub *Subscription, why error) {
	if _, ok := s.subs[sub]; !ok {
		return
	}
	delete(s.subs, sub)
	if why != nil {
		sub.err.Store(&why)
	}
	close(sub.ch)
}

// Subscribe starts a view of the session.
func (s *Session) Subscribe(ctx context.Context) (*Subscription, error) {
	sub := &Subscription{ch: make(chan Update, subQueue), s: s}
	sub.Updates = sub.ch
	err := s.call(ctx, func() {
		sub.State = s.state
		s.subs[sub] = struct{}{}
	})
	return sub, err
}

// report brings facts from the kernel's side into the notebook.
func (s *Session) report(gen int, bodies ...notebook.Body) error {
	evs, err := s.decideReports(gen, bodies)
	if err != nil || len(evs) == 0 {
		return err
	}
	if err := s.commit(evs, notebook.Batch{}); err != nil {
		return err
	}
	s.react(nil, evs)
	return nil
}

func (s *Session) decideReports(gen int, bodies []notebook.Body) ([]notebook.Event, error) {
	st, now := s.state, s.m.now()
	var all []notebook.Event
	for _, b := range bodies {
		evs, err := notebook.Decide(st, notebook.TheServer, notebook.Report{Gen: gen, Body: b}, now)
		if err != nil {
			return nil, err
		}
		st = notebook.Fold(st, evs)
		all = append(all, evs...)
	}
	return s.follow(all), nil
}
