// Package live is the native WebSocket of a notebook: ops in, events out, and
// resumption by seq. It is a pump between one socket and one session; it
// decides nothing and keeps nothing but the place the client has reached.
//
// Each socket has one reader and one writer goroutine, joined before Serve
// returns. A reader that is too slow is closed with StatusSlow and resumes.
package live

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"sandbook/kernel"
	"sandbook/kernel/notebook"
	"sandbook/kernel/wire"
)

// Subprotocol is the one this package speaks.
const Subprotocol = "sandbook.v1"

// Close codes besides the registered ones.
const (
	StatusSlow    websocket.StatusCode = 4408 // fell behind; resume with since
	StatusExpired websocket.StatusCode = 4401 // the credential ran out; sign in again
)

// Bounds of a socket.
const (
	maxMessage   = 8 << 20 // bytes of one message from a client
	maxReplay    = 20000   // events sent again before the client gets the state instead
	replayPage   = 32      // events read at one time, for each may be large
	smallMessage = 1 << 20 // bytes of a whole notebook that waits for no turn once it is made
	outQueue     = 128
	maxQuestions = 8                // answered at the same time
	writeTime    = 10 * time.Second // for a client to take a message
	slowestLine  = 64 << 10         // bytes a second it takes of a long one
	closeTime    = 5 * time.Second  // for a client to answer that the socket closes
	pingEvery    = 20 * time.Second
	pageEvery    = 33 * time.Millisecond // between two patches of a page
)

// Patcher turns a step of the notebook into what a page shows of it. The
// result is marshalled into the message; nil means that nothing visible changed.
// From the zero state it brings a page that may show anything.
type Patcher func(before, after notebook.State, evs []notebook.Event) (patch any, notice string)

// Options of one socket.
type Options struct {
	Session *kernel.Session
	Log     kernel.Log
	Actor   notebook.Actor
	Since   int64   // last seq the client has; -1: none, send the state first
	Patch   Patcher // nil: the client gets events

	// Turn waits until a whole notebook may be sent; call done when it was. It
	// may be nil.
	Turn func(ctx context.Context) (done func(), err error)

	Expires time.Time       // of the credential
	Revoked <-chan struct{} // closed when the credential is taken back; may be nil
	Build   string          // tells a page that the server's assets have changed
	Logger  *slog.Logger    // gets what a client is not told
}

type message struct {
	Hello  *hello          `json:"hello,omitempty"`
	State  *notebook.State `json:"state,omitempty"`
	Seq    int64           `json:"seq,omitempty"`
	Patch  any             `json:"patch,omitempty"`
	Notice string          `json:"notice,omitempty"`
	ID     json.RawMessage `json:"id,omitempty"`
	OK     any             `json:"ok,omitempty"`
	Error  *fault          `json:"error,omitempty"`
	Usage  any             `json:"usage,omitempty"`
	Ping   int64           `json:"ping,omitempty"`
}

type hello struct {
	Seq      int64       `json:"seq"`
	Server   string      `json:"server"`
	Resumed  bool        `json:"resumed"`
	Notebook notebook.ID `json:"notebook"`
}

type fault struct {
	Code    notebook.Code `json:"code"`
	Message string        `json:"message"`
	Data    any           `json:"data,omitempty"`
}

// errOver ends a socket whose credential is no longer good.
var errOver = errors.New("the credential is no longer good")

type socket struct {
	Options
	ws   *websocket.Conn
	conn net.Conn
	out  chan message
	sem  chan struct{}
	wg   sync.WaitGroup
	sent notebook.State // what the page shows
}

// Serve upgrades the request and pumps until either side ends. The caller has
// checked the credential, the Origin and the Host.
func Serve(w http.ResponseWriter, r *http.Request, o Options) {
	taken := &hijacked{ResponseWriter: w}
	ws, err := websocket.Accept(taken, r, &websocket.AcceptOptions{
		Subprotocols:       []string{Subprotocol},
		InsecureSkipVerify: true, // the caller checks Origin more strictly
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return // Accept has answered the request
	}
	defer func() { _ = ws.CloseNow() }()
	s := &socket{Options: o, ws: ws, conn: taken.conn, out: make(chan message, outQueue), sem: make(chan struct{}, maxQuestions)}
	if ws.Subprotocol() != Subprotocol {
		s.close(websocket.StatusPolicyViolation, "ask for the subprotocol "+Subprotocol)
		return
	}
	ws.SetReadLimit(maxMessage)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	sub, err := o.Session.Subscribe(ctx)
	if err != nil {
		s.end(err)
		return
	}
	defer sub.Close()
	s.wg.Go(func() {
		defer cancel()
		s.write(ctx, sub)
	})
	s.read(ctx)
	cancel()
	s.wg.Wait()
}

// hijacked keeps the connection that Accept takes over.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.conn = conn
	return conn, rw, err
}

// close ends the socket with a code. Without the deadline, a client that stops
// in the middle of a message would be waited for without end.
func (s *socket) close(code websocket.StatusCode, reason string) {
	_ = s.conn.SetDeadline(time.Now().Add(closeTime))
	_ = s.ws.Close(code, reason)
}

// over says why the credential is no longer good; empty: it still is.
func (s *socket) over() string {
	select {
	case <-s.Revoked:
		return "signed out"
	default:
	}
	if !s.Expires.IsZero() && !time.Now().Before(s.Expires) {
		return "sign in again"
	}
	return ""
}

// write is the only writer of the socket.
func (s *socket) write(ctx context.Context, sub *kernel.Subscription) {
	if err := s.begin(ctx, sub.State); err != nil {
		s.fail(ctx, err)
		return
	}
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	var expired <-chan time.Time
	if !s.Expires.IsZero() {
		t := time.NewTimer(time.Until(s.Expires))
		defer t.Stop()
		expired = t.C
	}
	updates, hold := sub.Updates, (<-chan time.Time)(nil)
	for {
		var err error
		select {
		case m := <-s.out:
			err = s.send(ctx, m)
		case <-hold:
			updates, hold = sub.Updates, nil
		case u, ok := <-updates:
			if !ok {
				s.end(sub.Err())
				return
			}
			err = s.updates(ctx, u, sub.Updates)
			if s.Patch != nil {
				updates, hold = nil, time.After(pageEvery)
			}
		case now := <-ping.C:
			err = s.send(ctx, message{Ping: now.UnixMilli()})
		case <-expired:
			err = errOver
		case <-s.Revoked:
			err = errOver
		case <-ctx.Done():
			return
		}
		if err != nil {
			s.fail(ctx, err)
			return
		}
	}
}

// end closes the socket after its subscription, with the code that fits.
func (s *socket) end(why error) {
	if errors.Is(why, kernel.ErrSlow) {
		s.close(StatusSlow, "too slow: resume from the last seq")
		return
	}
	s.close(websocket.StatusServiceRestart, "the server restarts: nothing is lost")
}

// errSend wraps what is the connection's fault, or the client's.
var errSend = errors.New("send")

// fail closes the socket after an error of the writer.
func (s *socket) fail(ctx context.Context, err error) {
	switch {
	case errors.Is(err, errOver):
		s.close(StatusExpired, cmp.Or(s.over(), "sign in again"))
	case errors.Is(err, errTurn) && ctx.Err() == nil:
		s.close(websocket.StatusTryAgainLater, "the server is busy: nothing is lost")
	case errors.Is(err, errSend) || ctx.Err() != nil:
		_ = s.ws.CloseNow()
	default:
		s.Logger.LogAttrs(ctx, slog.LevelError, "socket ended", slog.String("notebook", string(s.Session.ID())), slog.Any("error", err))
		s.close(websocket.StatusInternalError, "the notebook could not be read")
	}
}

// begin brings the client from where it is to where the subscription begins.
func (s *socket) begin(ctx context.Context, st notebook.State) error {
	s.sent = st
	h := &hello{Seq: st.Seq, Server: s.Build, Notebook: st.ID}
	if s.Patch != nil {
		h.Resumed = s.Since == st.Seq
		if err := s.send(ctx, message{Hello: h}); err != nil || h.Resumed {
			return err
		}
		// Not "fetch it again": a page fetched between two patches would miss
		// what one of them takes back.
		return s.whole(ctx, func() message {
			patch, _ := s.Patch(notebook.State{}, st, nil)
			return message{Seq: st.Seq, Patch: patch}
		})
	}
	h.Resumed = s.Since >= 0 && s.Since <= st.Seq && st.Seq-s.Since <= maxReplay
	if !h.Resumed {
		if err := s.send(ctx, message{Hello: h}); err != nil {
			return err
		}
		return s.whole(ctx, func() message { return message{State: &st} })
	}
	h.Seq = s.Since
	if err := s.send(ctx, message{Hello: h}); err != nil {
		return err
	}
	for at := s.Since; at < st.Seq; {
		evs, err := s.Log.Events(ctx, st.ID, at, replayPage)
		if err != nil {
			return err
		}
		if len(evs) == 0 {
			return errors.New("the log has a gap")
		}
		for _, e := range evs {
			if e.Seq > st.Seq {
				return nil
			}
			if err := s.sendJSON(ctx, e); err != nil {
				return err
			}
			at = e.Seq
		}
	}
	return nil
}

// errTurn ends a socket that waited too long for its turn.
var errTurn = errors.New("no turn")

// whole sends a message with a whole notebook in it. A small one keeps its place
// no longer than it takes to make, however slowly the client reads.
func (s *socket) whole(ctx context.Context, of func() message) error {
	done := func() {}
	if s.Turn != nil {
		var err error
		if done, err = s.Turn(ctx); err != nil {
			return fmt.Errorf("%w: %w", errTurn, err)
		}
	}
	defer func() { done() }()
	b, err := json.Marshal(of())
	if err != nil {
		return err
	}
	if len(b) < smallMessage {
		done()
		done = func() {}
	}
	return s.sendBytes(ctx, b)
}

// updates sends one update and, to a page, all that wait behind it as one.
func (s *socket) updates(ctx context.Context, u kernel.Update, more <-chan kernel.Update) error {
	if u.Usage != nil {
		return s.send(ctx, message{Usage: u.Usage})
	}
	if s.Patch == nil {
		for _, e := range u.Events {
			if err := s.sendJSON(ctx, e); err != nil {
				return err
			}
		}
		return nil
	}
	evs, after := u.Events, u.After
	var usage any
	for len(evs) < 2000 {
		select {
		case n, ok := <-more:
			if ok && n.Usage != nil {
				usage = n.Usage
				continue
			}
			if ok {
				evs, after = append(evs[:len(evs):len(evs)], n.Events...), n.After
				continue
			}
		default:
		}
		break
	}
	patch, notice := s.Patch(s.sent, *after, evs)
	s.sent = *after
	if usage != nil {
		if err := s.send(ctx, message{Usage: usage}); err != nil {
			return err
		}
	}
	return s.send(ctx, message{Seq: after.Seq, Patch: patch, Notice: notice})
}

func (s *socket) send(ctx context.Context, m message) error { return s.sendJSON(ctx, m) }

// sendJSON sends nothing to whoever is signed out, however slowly it reads.
func (s *socket) sendJSON(ctx context.Context, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.sendBytes(ctx, b)
}

func (s *socket) sendBytes(ctx context.Context, b []byte) error {
	if s.over() != "" {
		return errOver
	}
	wctx, cancel := context.WithTimeout(ctx, writeTime+time.Duration(len(b))*time.Second/slowestLine)
	defer cancel()
	if err := s.ws.Write(wctx, websocket.MessageText, b); err != nil {
		return fmt.Errorf("%w: %w", errSend, err)
	}
	return nil
}

// read is the only reader of the socket. Ops are done in the order they came.
func (s *socket) read(ctx context.Context) {
	for {
		kind, b, err := s.ws.Read(ctx)
		if errors.Is(err, websocket.ErrMessageTooBig) {
			s.close(websocket.StatusMessageTooBig, "a message is too long") // the code is out; this takes in the rest of the message
		}
		if err != nil {
			return
		}
		if s.over() != "" {
			continue // the writer is about to close
		}
		req, err := decode(kind == websocket.MessageText, b)
		switch {
		case err != nil:
			s.reply(ctx, req.id, nil, err)
		case req.op != nil:
			res, err := s.Session.Do(ctx, s.Actor, req.op, req.key)
			s.reply(ctx, req.id, res, err)
		case req.ask != nil:
			s.question(ctx, req.id, *req.ask)
		}
	}
}

// question asks the kernel without holding up the ops behind it.
func (s *socket) question(ctx context.Context, id json.RawMessage, ask wire.Request) {
	select {
	case s.sem <- struct{}{}:
	default:
		s.reply(ctx, id, nil, notebook.Errorf(notebook.Unavailable, "Too many questions at once: at most %d wait for an answer.", maxQuestions))
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.sem }()
		b, err := s.Session.Ask(ctx, s.Actor, ask)
		var res any
		if json.Valid(b) {
			res = json.RawMessage(b)
		}
		s.reply(ctx, id, res, err)
	})
}

func (s *socket) reply(ctx context.Context, id json.RawMessage, ok any, err error) {
	m := message{ID: id, OK: ok}
	if ok == nil {
		m.OK = struct{}{}
	}
	if id == nil {
		m.ID = json.RawMessage("null")
	}
	if err != nil {
		if notebook.CodeOf(err) == notebook.Internal && ctx.Err() == nil {
			s.Logger.LogAttrs(ctx, slog.LevelError, "request on a socket failed", slog.String("notebook", string(s.Session.ID())), slog.Any("error", err))
		}
		m.OK, m.Error = nil, &fault{Code: notebook.CodeOf(err), Message: notebook.MessageOf(err)}
		if e, is := errors.AsType[*notebook.Error](err); is {
			m.Error.Data = e.Data
		}
	}
	select {
	case s.out <- m:
	case <-ctx.Done():
	}
}
