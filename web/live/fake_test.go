package live_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"sandbook/backends"
	"sandbook/kernel/wire"
)

// fake is a backend whose sandboxes are scripted guests at the end of a pipe.
type fake struct {
	hold chan struct{} // questions to the kernel wait for it; nil: they do not

	mu    sync.Mutex
	boxes []*box
}

func (f *fake) Name() string { return "fake" }

func (f *fake) Probe(context.Context) (backends.Caps, error) {
	return backends.Caps{Backend: "fake"}, nil
}

func (f *fake) Start(_ context.Context, spec backends.Spec) (backends.Sandbox, error) {
	host, conn := net.Pipe()
	b := &box{id: spec.ID, host: host, conn: conn, hold: f.hold, gone: make(chan struct{}), stop: make(chan struct{}, 1)}
	f.mu.Lock()
	f.boxes = append(f.boxes, b)
	f.mu.Unlock()
	b.wg.Go(b.serve)
	return b, nil
}

func (f *fake) Reap(context.Context, string, []backends.ID) error { return nil }

// end ends every sandbox.
func (f *fake) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.boxes {
		_ = b.Kill(context.Background())
		b.wg.Wait()
	}
}

// asked counts the questions that have come to a kernel.
func (f *fake) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, b := range f.boxes {
		b.mu.Lock()
		n += b.asked
		b.mu.Unlock()
	}
	return n
}

type box struct {
	id         backends.ID
	host, conn net.Conn
	hold       chan struct{}
	gone       chan struct{}
	stop       chan struct{}
	once       sync.Once
	wg         sync.WaitGroup

	mu    sync.Mutex
	seq   uint64
	asked int
}

func (b *box) ID() backends.ID          { return b.id }
func (b *box) Conn() io.ReadWriteCloser { return b.host }

func (b *box) Wait(ctx context.Context) (backends.Exit, error) {
	select {
	case <-b.gone:
		return backends.Exit{Cause: backends.KilledByUs}, nil
	case <-ctx.Done():
		return backends.Exit{}, ctx.Err()
	}
}

func (b *box) Kill(context.Context) error {
	b.once.Do(func() { close(b.gone) })
	_ = b.conn.Close()
	return nil
}

func (b *box) Usage() (backends.Usage, error) {
	return backends.Usage{Memory: 7 << 20, PeakMemory: 9 << 20, Pids: 3}, nil
}

func (b *box) serve() {
	defer func() { _ = b.conn.Close() }()
	r := wire.NewReader(bufio.NewReader(b.conn))
	if f, err := r.ReadMessage(); err != nil || f.Kind != wire.KindHello {
		return
	}
	b.json(wire.KindWelcome, wire.Welcome{Version: wire.Version, First: 1, Posture: []wire.Check{{Name: "seccomp", OK: true}}})
	for {
		f, err := r.ReadMessage()
		if err != nil {
			return
		}
		switch f.Kind {
		case wire.KindPing:
			b.write(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindPong}))
		case wire.KindRequest:
			var req wire.Request
			if json.Unmarshal(f.Payload, &req) == nil {
				b.request(req)
			}
		}
	}
}

func (b *box) write(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = b.conn.Write(p)
}

func (b *box) json(kind wire.Kind, v any) {
	m, err := wire.AppendJSON(nil, kind, 0, v)
	if err != nil {
		panic(err)
	}
	b.write(m)
}

func (b *box) emit(e wire.Event, content any) {
	if content != nil {
		e.Content, _ = json.Marshal(content)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	e.Seq = b.seq
	p, _ := wire.AppendEvent(nil, e)
	m, _ := wire.AppendMessage(nil, wire.KindEvent, 0, p)
	_, _ = b.conn.Write(m)
}

func (b *box) request(req wire.Request) {
	rep := wire.Reply{ID: req.ID}
	switch req.Op {
	case wire.OpStart:
		b.emit(wire.Event{Type: wire.EventReady, Gen: req.Gen}, wire.KernelInfo{Language: "python", Version: "3"})
	case wire.OpRun:
		b.wg.Go(func() { b.run(req.Gen, *req.Run) })
	case wire.OpInterrupt:
		select {
		case b.stop <- struct{}{}:
		default:
		}
	case wire.OpComplete, wire.OpInspect, wire.OpIsComplete, wire.OpVariables, wire.OpList:
		b.mu.Lock()
		b.asked++
		b.mu.Unlock()
		b.wg.Go(func() {
			if b.hold != nil {
				select {
				case <-b.hold:
				case <-b.gone:
					return
				}
			}
			switch {
			case req.Code == "refuse":
				rep.Code, rep.Error = wire.CodeBusy, "The kernel is busy."
			case req.Code != "nothing":
				rep.Result, _ = json.Marshal(map[string]any{"op": req.Op, "code": req.Code, "pos": req.Pos})
			}
			b.json(wire.KindReply, rep)
		})
		return
	}
	b.json(wire.KindReply, rep)
}

// run carries out the lines of a cell: a language for tests.
func (b *box) run(gen int, r wire.Run) {
	end := wire.RunEnd{Status: wire.RunOK, WallMS: 1}
	for line := range strings.SplitSeq(r.Code, "\n") {
		verb, arg, _ := strings.Cut(line, " ")
		switch verb {
		case "print":
			b.emit(wire.Event{Type: wire.EventStream, Gen: gen, Run: r.ID, Name: "stdout", Data: []byte(arg + "\n")}, nil)
		case "count":
			n, _ := strconv.Atoi(arg)
			for i := range n {
				b.emit(wire.Event{Type: wire.EventStream, Gen: gen, Run: r.ID, Name: []string{"stdout", "stderr"}[i%2], Data: fmt.Appendf(nil, "line %d\n", i)}, nil)
			}
		case "show":
			b.emit(wire.Event{Type: wire.EventDisplay, Gen: gen, Run: r.ID}, map[string]any{"data": map[string]any{"text/plain": arg}, "metadata": map[string]any{}})
		case "raise":
			b.emit(wire.Event{Type: wire.EventError, Gen: gen, Run: r.ID}, map[string]any{"ename": "E", "evalue": arg, "traceback": []string{"tb"}})
			end.Status, end.EName = wire.RunError, "E"
		case "hang":
			select {
			case <-b.stop:
				end.Status = wire.RunInterrupted
			case <-b.gone:
				return
			}
		}
	}
	b.emit(wire.Event{Type: wire.EventRunEnd, Gen: gen, Run: r.ID}, end)
	b.emit(wire.Event{Type: wire.EventFiles, Gen: gen, Run: r.ID}, wire.Files{})
}
