package guest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"net"
	"sync"
	"time"

	"sandbook/kernel/wire"
)

// Bounds of a connection.
const (
	helloWithin = 10 * time.Second
	outQueue    = 64      // frames other than events that wait for the writer
	batch       = 1 << 20 // bytes of events written at once
	maxStreams  = 64
	maxWorkers  = 32 // file requests and commands at one time
	keptFor     = 20 * time.Millisecond
)

// conn is one connection of a host. Its reader dispatches, its writer is the
// only one that writes.
type conn struct {
	g    *guest
	c    net.Conn
	out  chan []byte
	more chan struct{} // there are new events
	done chan struct{}
	once sync.Once

	workers chan struct{}

	mu      sync.Mutex
	streams map[uint32]*stream
	kept    []byte // replies that go with the next write
}

// serve speaks with one host until the connection ends.
func (g *guest) serve(nc net.Conn) {
	r := wire.NewReader(bufio.NewReaderSize(nc, 64<<10))
	_ = nc.SetReadDeadline(time.Now().Add(helloWithin))
	f, err := r.ReadFrame()
	var hello wire.Hello
	if err != nil || f.Kind != wire.KindHello || json.Unmarshal(f.Payload, &hello) != nil {
		_ = nc.Close()
		return
	}
	_ = nc.SetReadDeadline(time.Time{})
	if hello.Version != wire.Version {
		b, _ := wire.AppendJSON(nil, wire.KindWelcome, 0, wire.Welcome{
			Version: wire.Version, Error: "The guest speaks another version of the protocol. Build it and the server from the same source.",
		})
		_, _ = nc.Write(b)
		_ = nc.Close()
		return
	}
	c := &conn{
		g: g, c: nc, out: make(chan []byte, outQueue), more: make(chan struct{}, 1), done: make(chan struct{}),
		workers: make(chan struct{}, maxWorkers), streams: map[uint32]*stream{},
	}
	g.adopt(c)
	w := g.welcome(hello.Since)
	b, err := wire.AppendJSON(nil, wire.KindWelcome, 0, w)
	if err == nil {
		_, err = nc.Write(b)
	}
	if err == nil {
		g.listen(c)
		go c.write(w.First - 1)
		c.read(r)
	}
	c.close()
	g.release(c)
}

func (c *conn) close() {
	c.once.Do(func() {
		close(c.done)
		_ = c.c.Close()
		c.mu.Lock()
		for _, s := range c.streams {
			s.abort()
		}
		c.mu.Unlock()
	})
}

// write sends what is queued and every event after seq.
func (c *conn) write(seq uint64) {
	var buf []byte
	for {
		buf = c.takeKept(buf[:0])
	queued:
		for len(buf) < batch {
			select {
			case b := <-c.out:
				buf = append(buf, b...)
			default:
				break queued
			}
		}
		var events [][]byte
		events, seq = c.g.spool.after(seq, batch)
		for _, p := range events {
			buf, _ = wire.AppendMessage(buf, wire.KindEvent, 0, p) // add made it fit
		}
		if len(buf) > 0 {
			if _, err := c.c.Write(buf); err != nil {
				c.close()
				return
			}
			if cap(buf) > 4*batch {
				buf = nil
			}
			continue
		}
		select {
		case b := <-c.out:
			if _, err := c.c.Write(b); err != nil {
				c.close()
				return
			}
		case <-c.more:
		case <-c.done:
			return
		}
	}
}

func (c *conn) takeKept(buf []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	buf = append(buf, c.kept...)
	c.kept = c.kept[:0]
	return buf
}

// send queues a frame; it waits while the host is slow.
func (c *conn) send(b []byte) {
	select {
	case c.out <- b:
	case <-c.done:
	}
}

func (c *conn) reply(r wire.Reply) {
	b, err := wire.AppendJSON(nil, wire.KindReply, 0, r)
	if err != nil {
		b, _ = wire.AppendJSON(nil, wire.KindReply, 0, wire.Reply{ID: r.ID, Code: wire.CodeFailed, Error: "The answer was too large to send."})
	}
	c.send(b)
}

// answer replies without waiting: the reader calls it.
func (c *conn) answer(id uint64, code wire.ErrorCode, sentence string) {
	c.later(wire.Reply{ID: id, Code: code, Error: sentence})
}

// read dispatches frames until the connection ends or is misused.
func (c *conn) read(r *wire.Reader) {
	for {
		f, err := r.ReadMessage()
		if err != nil {
			return
		}
		switch f.Kind {
		case wire.KindRequest:
			var req wire.Request
			if json.Unmarshal(f.Payload, &req) != nil {
				return
			}
			c.request(req, f.Stream)
		case wire.KindAck:
			seq, err := wire.ParseAck(f.Payload)
			if err != nil {
				return
			}
			c.g.spool.ack(seq)
		case wire.KindPing:
			c.post(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindPong, Payload: f.Payload[:min(len(f.Payload), 64)]}))
		case wire.KindData, wire.KindWindow, wire.KindEnd:
			if !c.streamFrame(f) {
				return
			}
		default:
			return
		}
	}
}

// request answers one request. What may take long goes to a worker.
func (c *conn) request(req wire.Request, number uint32) {
	g := c.g
	switch req.Op {
	case wire.OpStart:
		go func() {
			var spec wire.StartKernel
			if req.Start != nil {
				spec = *req.Start
			}
			code, sentence := g.startKernel(req.Gen, spec)
			c.answer(req.ID, code, sentence)
		}()
	case wire.OpStop:
		go func() {
			g.starting.Lock()
			defer g.starting.Unlock()
			if g.live(req.Gen) != nil {
				g.stopKernel("The kernel was stopped.")
			}
			c.answer(req.ID, "", "")
		}()
	case wire.OpRun, wire.OpInterrupt, wire.OpInput, wire.OpComplete, wire.OpInspect, wire.OpIsComplete, wire.OpVariables:
		c.kernelRequest(req)
	case wire.OpList, wire.OpRemove, wire.OpRename, wire.OpMkdir, wire.OpUsage, wire.OpRead, wire.OpWrite, wire.OpCommand:
		c.workerRequest(req, number)
	case wire.OpShutdown:
		c.answer(req.ID, "", "")
		select {
		case g.exit <- ExitShutdown:
		default:
		}
	default:
		c.answer(req.ID, wire.CodeInvalid, "The guest does not know this request.")
	}
}

func (c *conn) kernelRequest(req wire.Request) {
	g := c.g
	k := g.live(req.Gen)
	if k == nil {
		if req.Op == wire.OpRun && req.Run != nil && g.ran(req.Run.ID) {
			c.answer(req.ID, "", "")
			return
		}
		c.answer(req.ID, wire.CodeNoKernel, "There is no such kernel.")
		return
	}
	if req.Op == wire.OpRun && (req.Run == nil || req.Run.ID == "" || len(req.Run.ID) > 128) {
		c.answer(req.ID, wire.CodeInvalid, "A run needs an id.")
		return
	}
	ok := k.post(func() {
		switch req.Op {
		case wire.OpRun:
			code, sentence := g.startRun(k, *req.Run)
			if code == "" {
				c.keep(wire.Reply{ID: req.ID})
				return
			}
			c.later(wire.Reply{ID: req.ID, Code: code, Error: sentence})
		case wire.OpInterrupt:
			k.interrupt(req.RunID)
			c.later(wire.Reply{ID: req.ID})
		case wire.OpInput:
			code, sentence := k.input(req.RunID, req.Value)
			c.later(wire.Reply{ID: req.ID, Code: code, Error: sentence})
		default:
			t := toolRequest{Type: string(req.Op), ID: g.question(), Code: req.Code, Pos: req.Pos, Level: req.Level}
			k.ask(t, func(code wire.ErrorCode, sentence string, res json.RawMessage) {
				c.later(wire.Reply{ID: req.ID, Code: code, Error: sentence, Result: res})
			})
		}
	})
	if !ok {
		c.answer(req.ID, wire.CodeNoKernel, "The kernel has ended.")
	}
}

// later sends a reply without waiting.
func (c *conn) later(r wire.Reply) {
	b, err := wire.AppendJSON(nil, wire.KindReply, 0, r)
	if err != nil {
		go c.reply(r)
		return
	}
	c.post(b)
}

// keep holds a reply that nobody waits for, so that it goes with what is written
// next, or by itself a little later.
func (c *conn) keep(r wire.Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) == 0 {
		time.AfterFunc(keptFor, c.nudge)
	}
	c.kept, _ = wire.AppendJSON(c.kept, wire.KindReply, 0, r) // an id and no more always fits
}

// nudge makes the writer look for something to write.
func (c *conn) nudge() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// post queues a frame without waiting: the reader and the kernel's loop must
// not depend on how fast the host reads. What does not fit waits in a goroutine
// that ends with the connection.
func (c *conn) post(b []byte) {
	select {
	case c.out <- b:
	case <-c.done:
	default:
		go c.send(b)
	}
}

// ran reports whether a run of this id was ever taken.
func (g *guest) ran(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.seen[id]
	return ok
}

// workerRequest does what may block in a goroutine of its own.
func (c *conn) workerRequest(req wire.Request, number uint32) {
	select {
	case c.workers <- struct{}{}:
	default:
		c.answer(req.ID, wire.CodeBusy, "Too many requests for files and commands at one time. Try again in a moment.")
		return
	}
	var s, errs *stream
	switch req.Op {
	case wire.OpRead, wire.OpWrite, wire.OpCommand:
		if s = c.open(number); s == nil {
			<-c.workers
			c.answer(req.ID, wire.CodeInvalid, "The request needs a stream of its own.")
			return
		}
		if req.Op == wire.OpCommand {
			if errs = c.open(number + 1); errs == nil {
				c.forget(s)
				<-c.workers
				c.answer(req.ID, wire.CodeInvalid, "The request needs a stream of its own.")
				return
			}
		}
	}
	go func() {
		r := c.work(req, s, errs)
		c.forget(s)
		c.forget(errs)
		r.ID = req.ID
		<-c.workers
		c.reply(r)
	}()
}

func (c *conn) work(req wire.Request, s, errs *stream) wire.Reply {
	ws := c.g.ws
	switch req.Op {
	case wire.OpList:
		return replyOf(ws.list(req.Path, req.Limit))
	case wire.OpRead:
		return replyOf(nil, ws.read(req.Path, req.Off, req.Limit, s))
	case wire.OpWrite:
		return replyOf(nil, ws.write(req.Path, req.File, s))
	case wire.OpRemove:
		return replyOf(nil, ws.remove(req.Path))
	case wire.OpRename:
		return replyOf(nil, ws.rename(req.Path, req.To))
	case wire.OpMkdir:
		return replyOf(nil, ws.mkdir(req.Path))
	case wire.OpCommand:
		return replyOf(c.g.command(req.Cmd, s, errs))
	default:
		return replyOf(c.g.usage(), nil)
	}
}

// replyOf makes a reply of what an op returned.
func replyOf(v any, err error) wire.Reply {
	if err != nil {
		code, sentence := explain(err)
		return wire.Reply{Code: code, Error: sentence}
	}
	if v == nil {
		return wire.Reply{}
	}
	return wire.Reply{Result: result(v)}
}

// stream is one flow of bytes with a window in each direction.
type stream struct {
	c      *conn
	number uint32

	mu      sync.Mutex
	wake    *sync.Cond
	credit  int64    // we may send so much
	in      [][]byte // from the host
	inSize  int64    // granted and not yet consumed
	inEnd   *wire.End
	aborted bool
}

// open registers a stream. It is nil when the number is in use, zero or there
// are too many.
func (c *conn) open(number uint32) *stream {
	s := &stream{c: c, number: number, credit: wire.InitialWindow}
	s.wake = sync.NewCond(&s.mu)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, used := c.streams[number]; used || number == 0 || len(c.streams) >= maxStreams {
		return nil
	}
	c.streams[number] = s
	return s
}

func (c *conn) forget(s *stream) {
	if s == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, s.number)
}

// streamFrame hands a frame to its stream. It reports false for a host that
// does not keep to its window. Frames of a stream that is over are dropped.
func (c *conn) streamFrame(f wire.Frame) bool {
	c.mu.Lock()
	s := c.streams[f.Stream]
	c.mu.Unlock()
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake.Broadcast()
	switch f.Kind {
	case wire.KindData:
		if s.inEnd != nil || s.inSize+int64(len(f.Payload)) > wire.InitialWindow {
			return false
		}
		if len(f.Payload) > 0 {
			s.in = append(s.in, f.Payload)
			s.inSize += int64(len(f.Payload))
		}
	case wire.KindWindow:
		n, err := wire.ParseWindow(f.Payload)
		if err != nil {
			return false
		}
		s.credit = min(s.credit+int64(n), 64<<20)
	default:
		var e wire.End
		if json.Unmarshal(f.Payload, &e) != nil {
			return false
		}
		if s.inEnd == nil {
			s.inEnd = &e
		}
	}
	return true
}

// abort makes every wait on the stream return: the connection is gone.
func (s *stream) abort() {
	s.mu.Lock()
	s.aborted = true
	s.wake.Broadcast()
	s.mu.Unlock()
}

// write sends p as the window allows. It implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		s.mu.Lock()
		for s.credit == 0 && !s.aborted {
			s.wake.Wait()
		}
		n := int(min(int64(len(p)), s.credit, 64<<10))
		s.credit -= int64(n)
		aborted := s.aborted
		s.mu.Unlock()
		if aborted {
			return total - len(p), errAborted
		}
		s.c.send(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindData, Stream: s.number, Payload: p[:n]}))
		p = p[n:]
	}
	return total, nil
}

// end says that no more data comes.
func (s *stream) end(err error) {
	e := wire.End{}
	if err != nil {
		_, e.Error = explain(err)
	}
	b, _ := wire.AppendJSON(nil, wire.KindEnd, s.number, e)
	s.c.send(b)
}

// next returns the next bytes from the host and gives the window back; nil at
// the end.
func (s *stream) next() ([]byte, error) {
	s.mu.Lock()
	for len(s.in) == 0 && s.inEnd == nil && !s.aborted {
		s.wake.Wait()
	}
	if len(s.in) == 0 {
		defer s.mu.Unlock()
		switch {
		case s.aborted:
			return nil, errAborted
		case s.inEnd.Error != "":
			return nil, errAborted
		}
		return nil, nil
	}
	p := s.in[0]
	s.in[0] = nil
	s.in = s.in[1:]
	s.inSize -= int64(len(p))
	s.mu.Unlock()
	s.c.send(wire.AppendFrame(nil, wire.Frame{
		Kind: wire.KindWindow, Stream: s.number,
		Payload: binary.BigEndian.AppendUint32(nil, uint32(len(p))), //nolint:gosec // at most the window
	}))
	return p, nil
}
