package guest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandbook/kernel/wire"
)

// The tests start the real guest program (this test binary, again) without a
// sandbox, against the Python of the system, and play the host.

const asGuest = "SANDBOOK_TEST_AS_GUEST"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == boundedWord {
		os.Exit(Main(os.Args[1:]))
	}
	if os.Getenv(asGuest) != "" {
		_ = os.Unsetenv(asGuest)
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// sandbox is a running guest and where it lives.
type sandbox struct {
	t    *testing.T
	dir  string // workspace
	sock string
	proc *os.Process
	gone chan struct{} // closed when the process has ended; then state is set
	end  *os.ProcessState
}

func newSandbox(t *testing.T, env []string, args ...string) *sandbox {
	t.Helper()
	base, err := os.MkdirTemp("", "guest") //nolint:usetesting // short: socket paths have 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	s := &sandbox{t: t, dir: filepath.Join(base, "work"), sock: filepath.Join(base, "s"), gone: make(chan struct{})}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.proc, err = os.StartProcess(exe, append([]string{"sandbook-guest", "--listen-fd", "3", "--workspace", s.dir, "--orphan", "60s"}, args...), &os.ProcAttr{
		Env: append([]string{
			asGuest + "=1", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + s.dir, "LANG=C.UTF-8", "SANDBOOK_DEBUG=1",
			"TMPDIR=" + base,
		}, env...),
		Files: []*os.File{nil, os.Stderr, os.Stderr, f},
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	go func() {
		s.end, _ = s.proc.Wait()
		close(s.gone)
	}()
	t.Cleanup(func() {
		_ = s.proc.Kill()
		<-s.gone
		killIn(s.dir)
	})
	return s
}

// killIn ends what a guest that did not end by itself has left behind: in a
// sandbox it is the first process, and nothing outlives it.
func killIn(dir string) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		if cwd, err := os.Readlink(filepath.Join(p, "cwd")); err == nil && strings.HasPrefix(cwd, dir) {
			if pid, err := strconv.Atoi(filepath.Base(p)); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// host is a small client of the protocol.
type host struct {
	t       *testing.T
	c       net.Conn
	r       *wire.Reader
	welcome wire.Welcome
	noAck   bool

	wmu sync.Mutex

	mu      sync.Mutex
	changed *sync.Cond
	events  []wire.Event
	replies map[uint64]wire.Reply
	streams map[uint32]*strings.Builder
	ends    map[uint32]wire.End
	next    uint64
	last    uint64
	closed  bool
	taken   int // events handed to the test already
}

func (s *sandbox) connect(since uint64) *host {
	s.t.Helper()
	return s.dial(since, false)
}

func (s *sandbox) dial(since uint64, noAck bool) *host {
	s.t.Helper()
	c, err := net.Dial("unix", s.sock)
	if err != nil {
		s.t.Fatal(err)
	}
	h := &host{t: s.t, c: c, r: wire.NewReader(bufio.NewReaderSize(c, 256<<10)), noAck: noAck, last: since,
		replies: map[uint64]wire.Reply{}, streams: map[uint32]*strings.Builder{}, ends: map[uint32]wire.End{}}
	h.changed = sync.NewCond(&h.mu)
	b, _ := wire.AppendJSON(nil, wire.KindHello, 0, wire.Hello{Version: wire.Version, Since: since})
	if _, err := c.Write(b); err != nil {
		s.t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	f, err := h.r.ReadMessage()
	if err != nil || f.Kind != wire.KindWelcome {
		s.t.Fatalf("welcome: %+v, %v", f, err)
	}
	_ = c.SetReadDeadline(time.Time{})
	if err := json.Unmarshal(f.Payload, &h.welcome); err != nil {
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); h.read() }()
	s.t.Cleanup(func() {
		h.close()
		<-done
	})
	return h
}

func (h *host) close() { _ = h.c.Close() }

func (h *host) read() {
	for {
		f, err := h.r.ReadMessage()
		h.mu.Lock()
		if err != nil {
			h.closed = true
			h.changed.Broadcast()
			h.mu.Unlock()
			return
		}
		var out []byte
		switch f.Kind {
		case wire.KindEvent:
			e, err := wire.ParseEvent(f.Payload)
			if err != nil || e.Seq != h.last+1 {
				h.t.Errorf("event %d after %d: %v", e.Seq, h.last, err)
			}
			h.last = e.Seq
			h.events = append(h.events, e)
			if !h.noAck {
				out = wire.AppendFrame(nil, wire.Frame{Kind: wire.KindAck, Payload: binary.BigEndian.AppendUint64(nil, e.Seq)})
			}
		case wire.KindReply:
			var r wire.Reply
			if err := json.Unmarshal(f.Payload, &r); err != nil {
				h.t.Errorf("reply: %v", err)
			}
			h.replies[r.ID] = r
		case wire.KindData:
			b := h.streams[f.Stream]
			if b == nil {
				b = &strings.Builder{}
				h.streams[f.Stream] = b
			}
			b.Write(f.Payload)
			out = wire.AppendFrame(nil, wire.Frame{Kind: wire.KindWindow, Stream: f.Stream, Payload: binary.BigEndian.AppendUint32(nil, uint32(len(f.Payload)))})
		case wire.KindEnd:
			var e wire.End
			_ = json.Unmarshal(f.Payload, &e)
			h.ends[f.Stream] = e
		}
		h.changed.Broadcast()
		h.mu.Unlock()
		if out != nil {
			h.write(out)
		}
	}
}

func (h *host) write(b []byte) {
	h.wmu.Lock()
	defer h.wmu.Unlock()
	_, _ = h.c.Write(b)
}

func (h *host) ack(seq uint64) {
	h.write(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindAck, Payload: binary.BigEndian.AppendUint64(nil, seq)}))
}

// until waits until ok holds; mu is held when it is called.
func (h *host) until(what string, ok func() bool) {
	h.t.Helper()
	if !h.within(patience, ok) {
		h.t.Fatalf("no %s within %s; events:\n%s", what, patience, h.dump())
	}
}

func (h *host) within(d time.Duration, ok func() bool) bool {
	late := false
	timer := time.AfterFunc(d, func() {
		h.mu.Lock()
		late = true
		h.changed.Broadcast()
		h.mu.Unlock()
	})
	defer timer.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	for !ok() {
		if late || h.closed {
			return false
		}
		h.changed.Wait()
	}
	return true
}

func (h *host) dump() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, e := range h.events[max(0, len(h.events)-30):] {
		fmt.Fprintf(&b, "%d gen %d %s %s %s bg=%v %.300s %.300q\n", e.Seq, e.Gen, e.Run, e.Type, e.Name, e.Background, e.Content, e.Data)
	}
	return b.String()
}

func (h *host) post(req wire.Request, stream uint32) uint64 {
	h.mu.Lock()
	h.next++
	req.ID = h.next
	h.mu.Unlock()
	b, err := wire.AppendJSON(nil, wire.KindRequest, stream, req)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(b)
	return req.ID
}

func (h *host) reply(id uint64) wire.Reply {
	h.t.Helper()
	h.until("reply", func() bool { _, ok := h.replies[id]; return ok })
	return h.replies[id]
}

func (h *host) call(req wire.Request) wire.Reply {
	h.t.Helper()
	return h.reply(h.post(req, 0))
}

func (h *host) must(req wire.Request) wire.Reply {
	h.t.Helper()
	r := h.call(req)
	if r.Error != "" {
		h.t.Fatalf("%s: %s %s", req.Op, r.Code, r.Error)
	}
	return r
}

// event waits for the next event that ok accepts, from the first one on that
// no earlier call returned.
func (h *host) event(what string, ok func(wire.Event) bool) wire.Event {
	h.t.Helper()
	var e wire.Event
	h.until(what, func() bool {
		for i := h.taken; i < len(h.events); i++ {
			if ok(h.events[i]) {
				e, h.taken = h.events[i], i+1
				return true
			}
		}
		return false
	})
	return e
}

func (h *host) ofType(t wire.EventType) wire.Event {
	h.t.Helper()
	return h.event(string(t), func(e wire.Event) bool { return e.Type == t })
}

func (h *host) start(gen int) wire.KernelInfo {
	h.t.Helper()
	h.must(wire.Request{Op: wire.OpStart, Gen: gen, Start: &wire.StartKernel{Language: "python"}})
	e := h.ofType(wire.EventReady)
	return content[wire.KernelInfo](h.t, e)
}

func content[T any](t *testing.T, e wire.Event) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(e.Content, &v); err != nil {
		t.Fatalf("content of %s: %v: %s", e.Type, err, e.Content)
	}
	return v
}

// outcome is what one run did.
type outcome struct {
	events         []wire.Event // between run_start and files, this run's
	end            wire.RunEnd
	stdout, stderr string
	files          wire.Files
}

func (o outcome) all(t wire.EventType) []wire.Event {
	var out []wire.Event
	for _, e := range o.events {
		if e.Type == t {
			out = append(out, e)
		}
	}
	return out
}

// result is the plain text of the last expression.
func (o outcome) result() string {
	for _, e := range o.all(wire.EventResult) {
		return mime(e, "text/plain")
	}
	return ""
}

func mime(e wire.Event, name string) string {
	var c struct{ Data map[string]any }
	_ = json.Unmarshal(e.Content, &c)
	s, _ := c.Data[name].(string)
	return s
}

type jupyterError struct {
	EName     string   `json:"ename"`
	EValue    string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

func (o outcome) traceback() string {
	for _, e := range o.all(wire.EventError) {
		var c jupyterError
		_ = json.Unmarshal(e.Content, &c)
		return strings.NewReplacer(red, "", off, "", bold, "").Replace(strings.Join(c.Traceback, "\n"))
	}
	return ""
}

const red, bold, off = "\x1b[31m", "\x1b[1m", "\x1b[0m"

var runs struct {
	sync.Mutex
	n int
}

func newRun(code string) *wire.Run {
	runs.Lock()
	defer runs.Unlock()
	runs.n++
	return &wire.Run{ID: fmt.Sprintf("run-%d", runs.n), Code: code, Name: fmt.Sprintf("c%d", runs.n), Count: runs.n}
}

func (h *host) begin(r *wire.Run) {
	h.t.Helper()
	h.must(wire.Request{Op: wire.OpRun, Run: r})
}

// finish waits for the end of a run and gathers it.
func (h *host) finish(id string) outcome {
	h.t.Helper()
	ended := false
	h.until("end of "+id, func() bool {
		for _, e := range h.events {
			if e.Run == id && e.Type == wire.EventFiles {
				ended = true
			}
		}
		return ended
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	var o outcome
	for _, e := range h.events {
		if e.Run != id || e.Background {
			continue
		}
		o.events = append(o.events, e)
		switch e.Type {
		case wire.EventStream:
			if e.Name == "stdout" {
				o.stdout += string(e.Data)
			} else {
				o.stderr += string(e.Data)
			}
		case wire.EventRunEnd:
			o.end = content[wire.RunEnd](h.t, e)
		case wire.EventFiles:
			o.files = content[wire.Files](h.t, e)
		}
	}
	return o
}

func (h *host) run(code string) outcome {
	h.t.Helper()
	r := newRun(code)
	h.begin(r)
	return h.finish(r.ID)
}

// ok runs code that must succeed.
func (h *host) ok(code string) outcome {
	h.t.Helper()
	o := h.run(code)
	if o.end.Status != wire.RunOK {
		h.t.Fatalf("run of %q: %+v\n%s%s", code, o.end, o.traceback(), o.stderr)
	}
	return o
}

// kernel starts a sandbox with a ready kernel.
func testKernel(t *testing.T, env []string, args ...string) (*sandbox, *host) {
	t.Helper()
	s := newSandbox(t, env, args...)
	h := s.connect(0)
	h.start(1)
	return s, h
}

func signalOf(p *os.Process, s syscall.Signal) { _ = p.Signal(s) }

// raw opens a connection that has said nothing.
func (s *sandbox) raw() net.Conn {
	s.t.Helper()
	c, err := net.Dial("unix", s.sock)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}
