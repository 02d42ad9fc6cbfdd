package kernel_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"sandbook/artifacts"
	"sandbook/backends"
	"sandbook/internal/testkit"
	"sandbook/kernel"
	"sandbook/kernel/notebook"
	"sandbook/kernel/wire"
	"sandbook/sessionstore"
)

// The tests run real sessions on a real SQLite store. The backend is a fake:
// its sandboxes are scripted guests that speak kernel/wire over net.Pipe, and
// that can break every rule of it.

func TestMain(m *testing.M) { os.Exit(testkit.Run(m, "sandbook/kernel.", "sandbook/kernel_test.")) }

const patience = 40 * time.Second

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	testkit.Eventually(t, patience, what, cond)
}

// fake is a backend of scripted guests.
type fake struct {
	mu       sync.Mutex
	boxes    map[backends.ID]*box
	starts   int
	attaches int
	startErr error         // of the next starts
	gate     chan struct{} // Start waits for it, if there is one
	posture  []wire.Check
	version  int
	rude     func(b *box, c net.Conn, r *wire.Reader) // speaks instead of a guest
	setup    func(b *box)
}

func newFake() *fake {
	return &fake{boxes: map[backends.ID]*box{}, posture: []wire.Check{{Name: "seccomp", OK: true, Detail: "on"}}, version: wire.Version}
}

func (f *fake) Name() string { return "fake" }

func (f *fake) Probe(context.Context) (backends.Caps, error) {
	return backends.Caps{Backend: "fake"}, nil
}

func (f *fake) Start(ctx context.Context, spec backends.Spec) (backends.Sandbox, error) {
	f.mu.Lock()
	f.starts++
	err, gate := f.startErr, f.gate
	f.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	b := &box{f: f, id: spec.ID, seen: map[string]int{}, files: map[string]string{}, gone: make(chan struct{}), stopRun: make(chan string, 8), input: make(chan string, 8)}
	b.changed = sync.NewCond(&b.mu)
	f.mu.Lock()
	f.boxes[spec.ID] = b
	setup := f.setup
	f.mu.Unlock()
	if setup != nil {
		setup(b)
	}
	return b.connect(), nil
}

func (f *fake) Attach(_ context.Context, id backends.ID) (backends.Sandbox, error) {
	f.mu.Lock()
	f.attaches++
	b := f.boxes[id]
	f.mu.Unlock()
	if b == nil {
		return nil, backends.ErrGone
	}
	select {
	case <-b.gone:
		return nil, &backends.ExitError{Exit: b.exit}
	default:
	}
	return b.connect(), nil
}

func (f *fake) Reap(_ context.Context, _ string, keep []backends.ID) error {
	for _, b := range f.all() {
		kept := false
		for _, k := range keep {
			kept = kept || k == b.id
		}
		if !kept {
			b.end(backends.Exit{Cause: backends.KilledByUs})
		}
	}
	return nil
}

func (f *fake) all() []*box {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*box, 0, len(f.boxes))
	for _, b := range f.boxes {
		out = append(out, b)
	}
	return out
}

func (f *fake) count(what func(*fake) int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return what(f)
}

// live lists the sandboxes that have not ended.
func (f *fake) live() []*box {
	var out []*box
	for _, b := range f.all() {
		select {
		case <-b.gone:
		default:
			out = append(out, b)
		}
	}
	return out
}

// box is a sandbox with its scripted guest.
type box struct {
	f    *fake
	id   backends.ID
	gone chan struct{}
	exit backends.Exit
	wg   sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	spool   []wire.Event
	seq     uint64
	conn    net.Conn
	out     [][]byte // frames for the present connection
	gen     int
	seen    map[string]int // how often each run was executed
	files   map[string]string
	reading func() // called before a file is sent
	refuse  map[wire.Op]wire.Reply
	asked   []wire.Op
	deaf    bool // acks are not heard

	stopRun chan string
	input   chan string
}

// conn is one connection's view of a box; it is what a backend hands out.
type boxConn struct {
	*box
	c net.Conn
}

func (b boxConn) ID() backends.ID          { return b.id }
func (b boxConn) Conn() io.ReadWriteCloser { return b.c }

func (b boxConn) Wait(ctx context.Context) (backends.Exit, error) {
	select {
	case <-b.gone:
		return b.exit, nil
	case <-ctx.Done():
		return backends.Exit{}, ctx.Err()
	}
}

func (b boxConn) Kill(context.Context) error {
	b.end(backends.Exit{Cause: backends.KilledByUs})
	return nil
}

// end ends the sandbox and everything in it.
func (b *box) end(x backends.Exit) {
	b.mu.Lock()
	select {
	case <-b.gone:
	default:
		b.exit = x
		close(b.gone)
	}
	if b.conn != nil {
		_ = b.conn.Close()
	}
	b.changed.Broadcast()
	b.mu.Unlock()
}

// cut ends the connection and leaves the sandbox alive.
func (b *box) cut() {
	b.mu.Lock()
	if b.conn != nil {
		_ = b.conn.Close()
	}
	b.mu.Unlock()
}

func (b *box) connect() backends.Sandbox {
	host, ours := net.Pipe()
	b.mu.Lock()
	if b.conn != nil {
		_ = b.conn.Close()
	}
	b.conn, b.out = ours, nil
	b.mu.Unlock()
	b.wg.Go(func() { b.serve(ours) })
	return boxConn{b, host}
}

func (b *box) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := wire.NewReader(bufio.NewReader(c))
	f, err := r.ReadMessage()
	var hello wire.Hello
	if err != nil || f.Kind != wire.KindHello || json.Unmarshal(f.Payload, &hello) != nil {
		return
	}
	b.f.mu.Lock()
	rude, posture, version := b.f.rude, b.f.posture, b.f.version
	b.f.mu.Unlock()
	if rude != nil {
		rude(b, c, r)
		return
	}
	b.ack(hello.Since)
	b.mu.Lock()
	w := wire.Welcome{Version: version, First: b.seq + 1 - uint64(len(b.spool)), Last: b.seq, Posture: posture, Gen: b.gen}
	b.mu.Unlock()
	m, _ := wire.AppendJSON(nil, wire.KindWelcome, 0, w)
	if _, err := c.Write(m); err != nil {
		return
	}
	b.wg.Go(func() { b.write(c, w.First) })
	for {
		f, err := r.ReadMessage()
		if err != nil {
			b.mu.Lock()
			b.changed.Broadcast()
			b.mu.Unlock()
			return
		}
		switch f.Kind {
		case wire.KindAck:
			if seq, err := wire.ParseAck(f.Payload); err == nil && !b.deaf {
				b.ack(seq)
			}
		case wire.KindPing:
			b.send(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindPong}))
		case wire.KindRequest:
			var req wire.Request
			if json.Unmarshal(f.Payload, &req) == nil {
				b.request(req, f.Stream)
			}
		case wire.KindData:
			b.mu.Lock()
			b.files["in"] += string(f.Payload)
			b.mu.Unlock()
		case wire.KindEnd:
			b.mu.Lock()
			name := b.files["path"]
			b.files[name] = b.files["in"]
			id, _ := strconv.ParseUint(b.files["id"], 10, 64)
			b.files["in"] = ""
			b.mu.Unlock()
			b.reply(wire.Reply{ID: id})
		}
	}
}

func (b *box) ack(seq uint64) {
	b.mu.Lock()
	for len(b.spool) > 0 && b.spool[0].Seq <= seq {
		b.spool = b.spool[1:]
	}
	b.changed.Broadcast()
	b.mu.Unlock()
}

// write sends replies and every event from number next on.
func (b *box) write(c net.Conn, next uint64) {
	for {
		b.mu.Lock()
		var p []byte
		for p == nil {
			if b.conn != c || b.dead() {
				b.mu.Unlock()
				return
			}
			if len(b.out) > 0 {
				p, b.out = b.out[0], b.out[1:]
				break
			}
			for _, e := range b.spool {
				if e.Seq == next {
					m, _ := wire.AppendEvent(nil, e)
					p, _ = wire.AppendMessage(nil, wire.KindEvent, 0, m)
					next++
					break
				}
			}
			if p == nil {
				b.changed.Wait()
			}
		}
		b.mu.Unlock()
		if _, err := c.Write(p); err != nil {
			return
		}
	}
}

func (b *box) dead() bool {
	select {
	case <-b.gone:
		return true
	default:
		return false
	}
}

func (b *box) send(p []byte) {
	b.mu.Lock()
	b.out = append(b.out, p)
	b.changed.Broadcast()
	b.mu.Unlock()
}

func (b *box) reply(r wire.Reply) {
	m, _ := wire.AppendJSON(nil, wire.KindReply, 0, r)
	b.send(m)
}

// emit puts an event into the spool.
func (b *box) emit(e wire.Event) {
	b.mu.Lock()
	b.seq++
	e.Seq = b.seq
	b.spool = append(b.spool, e)
	b.changed.Broadcast()
	b.mu.Unlock()
}

func content(v any) json.RawMessage {
	p, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return p
}

func (b *box) ran(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[id]
}

func (b *box) request(req wire.Request, stream uint32) {
	b.mu.Lock()
	b.asked = append(b.asked, req.Op)
	rep, refused := b.refuse[req.Op]
	b.mu.Unlock()
	if refused {
		rep.ID = req.ID
		b.reply(rep)
		return
	}
	switch req.Op {
	case wire.OpStart:
		b.mu.Lock()
		fresh := req.Gen > b.gen
		if fresh {
			b.gen = req.Gen
		}
		b.mu.Unlock()
		if fresh {
			b.drain()
			b.emit(wire.Event{Type: wire.EventReady, Gen: req.Gen, Content: content(wire.KernelInfo{Language: "python", Version: "3"})})
		}
	case wire.OpRun:
		b.mu.Lock()
		_, known := b.seen[req.Run.ID]
		if !known {
			b.seen[req.Run.ID] = 0
		}
		b.mu.Unlock()
		if !known {
			b.drain()
			b.wg.Go(func() { b.run(req.Gen, *req.Run) })
		}
	case wire.OpInterrupt:
		b.stop("interrupt")
	case wire.OpStop:
		b.stop("stop")
		b.emit(wire.Event{Type: wire.EventDied, Gen: req.Gen, Content: content(wire.Died{Asked: true})})
	case wire.OpInput:
		select {
		case b.input <- req.Value:
		default:
		}
	case wire.OpRead:
		b.wg.Go(func() { b.readFile(req, stream) })
		return
	case wire.OpWrite:
		b.mu.Lock()
		b.files["path"], b.files["id"], b.files["in"] = req.Path, strconv.FormatUint(req.ID, 10), ""
		b.mu.Unlock()
		return // answered at the end
	}
	b.reply(wire.Reply{ID: req.ID})
}

func (b *box) stop(how string) {
	select {
	case b.stopRun <- how:
	default:
	}
}

func (b *box) drain() {
	for {
		select {
		case <-b.stopRun:
			continue
		case <-b.input:
			continue
		default:
		}
		return
	}
}

func (b *box) readFile(req wire.Request, stream uint32) {
	b.mu.Lock()
	reading := b.reading
	b.mu.Unlock()
	if reading != nil {
		reading()
	}
	b.mu.Lock()
	text, ok := b.files[req.Path]
	b.mu.Unlock()
	if !ok {
		b.reply(wire.Reply{ID: req.ID, Code: wire.CodeNotFound, Error: "There is no such file."})
		return
	}
	b.send(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindData, Stream: stream, Payload: []byte(text)}))
	end, _ := wire.AppendJSON(nil, wire.KindEnd, stream, wire.End{})
	b.send(end)
	b.reply(wire.Reply{ID: req.ID})
}

// run carries out the lines of a cell: a language for tests.
func (b *box) run(gen int, r wire.Run) {
	b.mu.Lock()
	b.seen[r.ID]++
	b.mu.Unlock()
	end := wire.RunEnd{Status: wire.RunOK, WallMS: 1}
	var files wire.Files
	say := func(text string) {
		b.emit(wire.Event{Type: wire.EventStream, Gen: gen, Run: r.ID, Name: "stdout", Data: []byte(text)})
	}
	for line := range strings.SplitSeq(r.Code, "\n") {
		verb, arg, _ := strings.Cut(line, " ")
		switch verb {
		case "print":
			say(arg + "\n")
		case "count":
			n, _ := strconv.Atoi(arg)
			for i := range n {
				say(fmt.Sprintf("line %d\n", i))
			}
		case "raise":
			b.emit(wire.Event{Type: wire.EventError, Gen: gen, Run: r.ID, Content: content(map[string]any{"ename": "E", "evalue": arg, "traceback": []string{"tb"}})})
			end.Status, end.EName = wire.RunError, "E"
		case "hang":
			select {
			case how := <-b.stopRun:
				if how == "stop" {
					return
				}
				end.Status = wire.RunInterrupted
			case <-b.gone:
				return
			}
		case "ask":
			b.emit(wire.Event{Type: wire.EventInput, Gen: gen, Run: r.ID, Content: content(map[string]any{"prompt": arg})})
			select {
			case v := <-b.input:
				say("got " + v + "\n")
			case <-b.stopRun:
				end.Status = wire.RunInterrupted
			case <-b.gone:
				return
			}
		case "file":
			b.mu.Lock()
			b.files[arg] = "content of " + arg
			b.mu.Unlock()
			files.Changed = append(files.Changed, wire.FileInfo{Path: arg, Kind: "file", Size: int64(len("content of " + arg)), Mode: 0o644})
		case "comms": // so many MiB that say nothing, of which a guest keeps some
			n, _ := strconv.Atoi(arg)
			for range n {
				b.mu.Lock()
				for len(b.spool) > 16 && !b.dead() {
					b.changed.Wait()
				}
				b.mu.Unlock()
				b.emit(wire.Event{Type: wire.EventComm, Gen: gen, Run: r.ID, Content: content(strings.Repeat("x", 1<<20))})
			}
		case "die":
			b.emit(wire.Event{Type: wire.EventDied, Gen: gen, Content: content(wire.Died{Signal: 11})})
			return
		case "exit":
			b.end(backends.Exit{Cause: backends.Exited, Code: 3})
			return
		}
	}
	b.emit(wire.Event{Type: wire.EventRunEnd, Gen: gen, Run: r.ID, Content: content(end)})
	b.emit(wire.Event{Type: wire.EventFiles, Gen: gen, Run: r.ID, Content: content(files)})
}

// flaky is the store with faults put in.
type flaky struct {
	*sessionstore.Store
	mu     sync.Mutex
	append func(b notebook.Batch) error // before each Append, if set
}

func (l *flaky) Append(ctx context.Context, id notebook.ID, b notebook.Batch) error {
	l.mu.Lock()
	fn := l.append
	l.mu.Unlock()
	if fn != nil {
		if err := fn(b); err != nil {
			return err
		}
	}
	return l.Store.Append(ctx, id, b)
}

func (l *flaky) before(fn func(b notebook.Batch) error) {
	l.mu.Lock()
	l.append = fn
	l.mu.Unlock()
}

var alice = notebook.Actor{
	Author: notebook.Author{Kind: notebook.Person, ID: "alice"},
	Scopes: []notebook.Scope{notebook.ScopeRead, notebook.ScopeEdit, notebook.ScopeRun},
}

// world is a server without HTTP.
type world struct {
	t     *testing.T
	f     *fake
	log   *flaky
	blobs *artifacts.Store
	m     *kernel.Manager
}

func newWorld(t *testing.T) *world {
	t.Helper()
	st, err := sessionstore.Open(t.Context(), sessionstore.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, f: newFake(), log: &flaky{Store: st}, blobs: artifacts.New(st, artifacts.Quota{})}
	w.open()
	t.Cleanup(func() {
		w.close()
		for _, b := range w.f.all() {
			b.end(backends.Exit{Cause: backends.KilledByUs})
			b.wg.Wait()
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) open() {
	w.m = kernel.New(kernel.Options{
		Log: w.log, Blobs: w.blobs, Backends: backends.NewRegistry(w.f), Install: "test", GuestPath: "/guest",
		NewID: func() string { return uuid.Must(uuid.NewV7()).String() }, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
}

// close ends the server; the sandboxes live on.
func (w *world) close() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.m.Close(ctx); err != nil {
		w.t.Error(err)
	}
}

// session makes a notebook with the given cells and opens it.
func (w *world) session(cells ...string) *kernel.Session {
	w.t.Helper()
	var cs []kernel.NewCell
	for _, c := range cells {
		cs = append(cs, kernel.NewCell{Kind: notebook.CodeCell, Source: c})
	}
	id, err := w.m.Create(w.t.Context(), alice, notebook.Created{Language: "python"}, cs, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.reopen(id)
}

func (w *world) reopen(id notebook.ID) *kernel.Session {
	w.t.Helper()
	s, err := w.m.Open(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) do(s *kernel.Session, op notebook.Op) kernel.Result {
	w.t.Helper()
	res, err := s.Do(w.t.Context(), alice, op, "")
	if err != nil {
		w.t.Fatalf("%s: %v", op.Op(), err)
	}
	return res
}

// start asks for the run of the i-th cell and returns its id.
func (w *world) start(s *kernel.Session, i int) notebook.RunID {
	w.t.Helper()
	return notebook.RunID(w.do(s, notebook.RunCells{Cells: []notebook.CellID{s.State().Cells[i].ID}}).IDs[0])
}

// run runs the i-th cell to its end.
func (w *world) run(s *kernel.Session, i int) *notebook.Run {
	w.t.Helper()
	return w.ended(s, w.start(s, i))
}

func (w *world) ended(s *kernel.Session, id notebook.RunID) *notebook.Run {
	w.t.Helper()
	eventually(w.t, "the end of the run", func() bool {
		r := s.State().Runs[id]
		return r != nil && r.Status.Final()
	})
	return s.State().Runs[id]
}

func (w *world) kernel(s *kernel.Session, want notebook.KernelStatus) {
	w.t.Helper()
	eventually(w.t, "a kernel that is "+string(want), func() bool { return s.State().Kernel.Status == want })
}

// box is the one live sandbox.
func (w *world) box() *box {
	w.t.Helper()
	var live []*box
	eventually(w.t, "one live sandbox", func() bool { live = w.f.live(); return len(live) == 1 })
	return live[0]
}

// printed is what the log says a run printed, event by event.
func (w *world) printed(id notebook.ID, run notebook.RunID) string {
	w.t.Helper()
	var out strings.Builder
	for _, e := range w.events(id) {
		if b, ok := e.Body.(notebook.StreamAppended); ok && b.Run == run {
			out.WriteString(b.Text)
		}
	}
	return out.String()
}

func (w *world) events(id notebook.ID) []notebook.Event {
	w.t.Helper()
	var all []notebook.Event
	for {
		since := int64(0)
		if n := len(all); n > 0 {
			since = all[n-1].Seq
		}
		evs, err := w.log.Events(context.Background(), id, since, 1000)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(evs) == 0 {
			return all
		}
		all = append(all, evs...)
	}
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func wantCode(t *testing.T, err error, code notebook.Code) {
	t.Helper()
	if notebook.CodeOf(err) != code {
		t.Fatalf("error %v, want code %q", err, code)
	}
}

var errDisk = notebook.Errorf(notebook.Unavailable, "The disk is full.")

func window(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
