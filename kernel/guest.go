package kernel

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/kernel/wire"
)

// Bounds of the conversation with a guest.
const (
	guestQueue    = 1024             // frames waiting to be written
	eventQueue    = 512              // events read and not yet taken by the owner
	pingEvery     = 5 * time.Second  //
	pongWithin    = 20 * time.Second // a guest silent for longer is given up
	handshakeTime = 10 * time.Second
	maxCalls      = 256      // requests in flight
	maxHeld       = 64 << 20 // bytes of events read and not yet taken
	maxEventSeq   = 1 << 62
)

// errGuestGone ends every call when the connection is lost.
var errGuestGone = errors.New("the connection to the sandbox was lost")

// guest is the host's end of the conversation with the guest program of one
// sandbox. It translates calls into frames and back; it decides nothing.
type guest struct {
	conn   io.ReadWriteCloser
	out    chan []byte
	events chan wire.Event // closed when the connection ends
	done   chan struct{}   // closed first
	once   sync.Once
	wg     sync.WaitGroup

	mu    sync.Mutex
	err   error
	next  uint64
	calls map[uint64]*call
	pong  time.Time
	held  int64      // bytes of events in the queue
	freed *sync.Cond // held has shrunk, or the end has come

	expect uint64 // the reader's own: number of the event that must come next
}

// call is one request in flight.
type call struct {
	reply  chan wire.Reply
	stream uint32
	data   chan []byte // what the guest sends on the stream; nil: not wanted
	window chan uint32 // credit the guest gives
	credit int64       // bytes the guest may send; under the guest's mu
}

// greet opens the conversation and starts the reader and the writer.
func greet(ctx context.Context, conn io.ReadWriteCloser, since uint64) (*guest, wire.Welcome, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	b, err := wire.AppendJSON(nil, wire.KindHello, 0, wire.Hello{Version: wire.Version, Since: since})
	if err != nil {
		return nil, wire.Welcome{}, err
	}
	if _, err := conn.Write(b); err != nil {
		return nil, wire.Welcome{}, fmt.Errorf("greet guest: %w", err)
	}
	r := wire.NewReader(bufio.NewReaderSize(conn, 256<<10))
	f, err := r.ReadMessage()
	if err != nil {
		return nil, wire.Welcome{}, fmt.Errorf("read welcome: %w", err)
	}
	var w wire.Welcome
	if f.Kind != wire.KindWelcome {
		return nil, w, fmt.Errorf("%w: frame kind %d instead of welcome", wire.ErrProtocol, f.Kind)
	}
	if err := json.Unmarshal(f.Payload, &w); err != nil {
		return nil, w, fmt.Errorf("%w: decode welcome: %w", wire.ErrProtocol, err)
	}
	if w.Error != "" || w.Version != wire.Version {
		return nil, w, fmt.Errorf("the guest speaks version %d, this server %d: %s", w.Version, wire.Version, cut(w.Error, 200))
	}
	if w.First <= since || w.First > w.Last+1 || w.Last > maxEventSeq {
		return nil, w, fmt.Errorf("%w: the guest holds events %d to %d, we have %d", wire.ErrProtocol, w.First, w.Last, since)
	}
	g := &guest{
		conn: conn, out: make(chan []byte, guestQueue), events: make(chan wire.Event, eventQueue),
		done: make(chan struct{}), calls: map[uint64]*call{}, pong: time.Now(), expect: w.First,
	}
	g.freed = sync.NewCond(&g.mu)
	g.wg.Go(func() { g.read(r) })
	g.wg.Go(g.write)
	return g, w, nil
}

// close ends the conversation, not the sandbox, and waits for its goroutines.
func (g *guest) close(err error) {
	g.fail(err)
	for range g.events { //nolint:revive // drained so that the reader can end
	}
	g.wg.Wait()
}

func (g *guest) fail(err error) {
	g.once.Do(func() {
		g.mu.Lock()
		g.err = err
		close(g.done)
		g.freed.Broadcast()
		g.mu.Unlock()
		_ = g.conn.Close()
	})
}

func (g *guest) read(r *wire.Reader) {
	defer close(g.events)
	for {
		f, err := r.ReadMessage()
		if err == nil {
			err = g.frame(f)
		}
		if err != nil {
			g.fail(err)
			return
		}
	}
}

func (g *guest) frame(f wire.Frame) error {
	switch f.Kind {
	case wire.KindEvent:
		e, err := wire.ParseEvent(f.Payload)
		if err != nil {
			return err
		}
		if e.Seq != g.expect {
			return fmt.Errorf("%w: event %d instead of %d", wire.ErrProtocol, e.Seq, g.expect)
		}
		g.expect++
		g.hold(eventSize(e))
		select {
		case g.events <- e:
		case <-g.done:
		}
	case wire.KindReply:
		var rep wire.Reply
		if err := json.Unmarshal(f.Payload, &rep); err != nil {
			return fmt.Errorf("%w: decode reply: %w", wire.ErrProtocol, err)
		}
		g.mu.Lock()
		c := g.calls[rep.ID]
		delete(g.calls, rep.ID)
		g.mu.Unlock()
		if c != nil {
			c.reply <- rep
		}
	case wire.KindData, wire.KindWindow, wire.KindEnd:
		return g.streamFrame(f)
	case wire.KindPong:
		g.mu.Lock()
		g.pong = time.Now()
		g.mu.Unlock()
	default:
		return fmt.Errorf("%w: frame kind %d from a guest", wire.ErrProtocol, f.Kind)
	}
	return nil
}

func eventSize(e wire.Event) int64 { return int64(len(e.Content)+len(e.Data)+len(e.Run)) + 256 }

// hold waits until there is room for an event: what a guest sends faster than
// the log takes it stays on its side.
func (g *guest) hold(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.held > 0 && g.held+n > maxHeld && g.err == nil {
		g.freed.Wait()
	}
	g.held += n
}

// took makes room: the owner has the event.
func (g *guest) took(e wire.Event) {
	g.mu.Lock()
	g.held -= eventSize(e)
	g.freed.Broadcast()
	g.mu.Unlock()
}

// streamFrame hands a frame to the call that owns the stream. Frames of no
// call are dropped: the call has given up.
func (g *guest) streamFrame(f wire.Frame) error {
	g.mu.Lock()
	var c *call
	for _, x := range g.calls {
		if x.stream != 0 && (x.stream == f.Stream || x.stream == f.Stream-1) {
			c = x
		}
	}
	over := false
	if c != nil && f.Kind == wire.KindData {
		c.credit -= int64(len(f.Payload))
		over = c.credit < 0
	}
	g.mu.Unlock()
	if c == nil {
		return nil
	}
	switch f.Kind {
	case wire.KindData:
		if over {
			return fmt.Errorf("%w: more data than the window allows", wire.ErrProtocol)
		}
		if c.data != nil && len(f.Payload) > 0 {
			select {
			case c.data <- f.Payload:
			default:
				return fmt.Errorf("%w: too many pieces of data at once", wire.ErrProtocol)
			}
		}
	case wire.KindWindow:
		n, err := wire.ParseWindow(f.Payload)
		if err != nil {
			return err
		}
		select {
		case c.window <- n:
		default:
		}
	}
	return nil
}

func (g *guest) write() {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		select {
		case b := <-g.out:
			if err := g.writeNow(b); err != nil {
				g.fail(err)
				return
			}
		case <-ping.C:
			g.mu.Lock()
			silent := time.Since(g.pong)
			g.mu.Unlock()
			if silent > pongWithin {
				g.fail(fmt.Errorf("no sign of life for %s", silent.Round(time.Second)))
				return
			}
			if err := g.writeNow(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindPing})); err != nil {
				g.fail(err)
				return
			}
		case <-g.done:
			return
		}
	}
}

// writeNow writes, and gives a guest up that does not read for too long.
func (g *guest) writeNow(b []byte) error {
	t := time.AfterFunc(pongWithin, func() { g.fail(errors.New("the guest does not read")) })
	defer t.Stop()
	_, err := g.conn.Write(b)
	return err
}

// post queues a frame without waiting. A guest that takes nothing for so long
// that the queue is full is given up.
func (g *guest) post(b []byte) {
	select {
	case g.out <- b:
	case <-g.done:
	default:
		g.fail(errors.New("the guest does not read"))
	}
}

func (g *guest) ack(seq uint64) {
	g.post(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindAck, Payload: binary.BigEndian.AppendUint64(nil, seq)}))
}

// start registers a call and posts its request.
func (g *guest) start(req wire.Request, c *call) error {
	g.mu.Lock()
	if len(g.calls) >= maxCalls {
		g.mu.Unlock()
		return notebook.Errorf(notebook.Unavailable, "Too many requests wait for this kernel. Try again in a moment.")
	}
	g.next++
	req.ID = g.next
	c.reply, c.credit = make(chan wire.Reply, 1), wire.InitialWindow
	if c.window != nil {
		c.stream = uint32(req.ID*2) & 0x7fffffff //nolint:gosec // wraps after 2^30 calls of one connection
	}
	g.calls[req.ID] = c
	g.mu.Unlock()
	b, err := wire.AppendJSON(nil, wire.KindRequest, c.stream, req)
	if err != nil {
		g.drop(c)
		return err
	}
	g.post(b)
	return nil
}

// drop forgets a call that gave up.
func (g *guest) drop(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, x := range g.calls {
		if x == c {
			delete(g.calls, id)
		}
	}
}

// send makes a request whose answer nobody waits for.
func (g *guest) send(req wire.Request) { _ = g.start(req, &call{}) }

// call makes a request and waits for its answer.
func (g *guest) call(ctx context.Context, req wire.Request) (json.RawMessage, error) {
	c := &call{}
	if err := g.start(req, c); err != nil {
		return nil, err
	}
	return g.wait(ctx, c)
}

func (g *guest) wait(ctx context.Context, c *call) (json.RawMessage, error) {
	rep, err := g.answer(ctx, c)
	if err != nil {
		return nil, err
	}
	return rep.Result, replyError(rep)
}

// answer waits for the reply to a call.
func (g *guest) answer(ctx context.Context, c *call) (wire.Reply, error) {
	select {
	case rep := <-c.reply:
		return rep, nil
	case <-ctx.Done():
		g.drop(c)
		return wire.Reply{}, ctx.Err()
	case <-g.done:
		return wire.Reply{}, errGuestGone
	}
}

// errBusy marks a refusal that passes by itself.
var errBusy = errors.New("the guest is busy")

func replyError(rep wire.Reply) error {
	if rep.Error == "" {
		return nil
	}
	code := map[wire.ErrorCode]notebook.Code{
		wire.CodeInvalid: notebook.Invalid, wire.CodeNotFound: notebook.NotFound, wire.CodeBusy: notebook.Unavailable,
		wire.CodeNoKernel: notebook.Unavailable, wire.CodeFull: notebook.TooLarge, wire.CodeFailed: notebook.Unavailable,
	}[rep.Code]
	if code == "" {
		code = notebook.Unavailable
	}
	err := notebook.Errorf(code, "%s", cut(rep.Error, 1000))
	if rep.Code == wire.CodeBusy {
		return errors.Join(err, errBusy)
	}
	return err
}

// readFile copies a workspace file to w, at most limit bytes.
func (g *guest) readFile(ctx context.Context, path string, w io.Writer, limit int64) error {
	c := &call{data: make(chan []byte, 1024), window: make(chan uint32, 16)}
	if err := g.start(wire.Request{Op: wire.OpRead, Path: path, Limit: limit}, c); err != nil {
		return err
	}
	defer g.drop(c)
	take := func(p []byte) error {
		if _, err := w.Write(p); err != nil {
			return err
		}
		g.mu.Lock()
		c.credit += int64(len(p))
		g.mu.Unlock()
		g.post(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindWindow, Stream: c.stream, Payload: binary.BigEndian.AppendUint32(nil, uint32(len(p)))})) //nolint:gosec // at most MaxMessage
		return nil
	}
	for {
		select {
		case p := <-c.data:
			if err := take(p); err != nil {
				return err
			}
		case rep := <-c.reply:
			for {
				select {
				case p := <-c.data:
					if err := take(p); err != nil {
						return err
					}
					continue
				default:
				}
				return replyError(rep)
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-g.done:
			return errGuestGone
		}
	}
}

// writeFile makes a workspace file of what r holds.
func (g *guest) writeFile(ctx context.Context, info wire.FileInfo, r io.Reader) error {
	c := &call{window: make(chan uint32, 1024)}
	if err := g.start(wire.Request{Op: wire.OpWrite, Path: info.Path, File: &info}, c); err != nil {
		return err
	}
	defer g.drop(c)
	credit := int64(wire.InitialWindow)
	buf := make([]byte, 64<<10)
	for {
		for credit < int64(len(buf)) {
			select {
			case n := <-c.window:
				credit += int64(n)
			case rep := <-c.reply:
				return replyError(rep)
			case <-ctx.Done():
				return ctx.Err()
			case <-g.done:
				return errGuestGone
			}
		}
		n, err := r.Read(buf)
		if n > 0 {
			credit -= int64(n)
			b := wire.AppendFrame(nil, wire.Frame{Kind: wire.KindData, Stream: c.stream, Payload: buf[:n]})
			select { // data may wait for the writer, unlike posted frames
			case g.out <- b:
			case <-g.done:
				return errGuestGone
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		end := wire.End{}
		if err != nil {
			end.Error = "The upload was cut off."
			b, _ := wire.AppendJSON(nil, wire.KindEnd, c.stream, end)
			g.post(b)
			return err
		}
	}
	b, err := wire.AppendJSON(nil, wire.KindEnd, c.stream, wire.End{})
	if err != nil {
		return err
	}
	g.post(b)
	_, err = g.wait(ctx, c)
	return err
}
