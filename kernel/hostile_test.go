package kernel_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/kernel/wire"
)

type netConn = net.Conn

// says answers Hello with a frame.
func says(f wire.Frame) func(*box, net.Conn, *wire.Reader) {
	return func(_ *box, c net.Conn, _ *wire.Reader) { _, _ = c.Write(wire.AppendFrame(nil, f)) }
}

func welcomes(text string) func(*box, net.Conn, *wire.Reader) {
	return says(wire.Frame{Kind: wire.KindWelcome, Payload: []byte(text)})
}

// Events that lie or are malformed are dropped, and the run goes on.
func TestLyingEvents(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 10000 {
		many[fmt.Sprintf("text/x%d", i)] = "x"
	}
	paths := make([]wire.FileInfo, 20000)
	for i := range paths {
		paths[i] = wire.FileInfo{Path: fmt.Sprintf("f%d", i), Kind: "file", Size: -1, Mode: 0o7777}
	}
	events := func(run string, gen int) map[string]wire.Event {
		return map[string]wire.Event{
			"unknown type":             {Type: "approve", Gen: gen, Run: run},
			"no type":                  {Gen: gen, Run: run},
			"end of another gen":       {Type: wire.EventRunEnd, Gen: gen + 1, Run: run, Content: content(wire.RunEnd{Status: wire.RunOK})},
			"end of an earlier gen":    {Type: wire.EventRunEnd, Gen: gen - 1, Run: run, Content: content(wire.RunEnd{Status: wire.RunOK})},
			"end of an unknown run":    {Type: wire.EventRunEnd, Gen: gen, Run: "other", Content: content(wire.RunEnd{Status: wire.RunOK})},
			"end of no run":            {Type: wire.EventRunEnd, Gen: gen, Content: content(wire.RunEnd{Status: wire.RunOK})},
			"end without content":      {Type: wire.EventRunEnd, Gen: gen, Run: run},
			"end of garbage":           {Type: wire.EventRunEnd, Gen: gen, Run: run, Content: json.RawMessage(`[1]`)},
			"death of another gen":     {Type: wire.EventDied, Gen: gen + 5, Content: content(wire.Died{Code: 1})},
			"ready again":              {Type: wire.EventReady, Gen: gen, Content: content(wire.KernelInfo{Language: "evil"})},
			"ready of another gen":     {Type: wire.EventReady, Gen: gen + 1, Content: content(wire.KernelInfo{Language: "evil"})},
			"text of an unknown run":   {Type: wire.EventStream, Gen: gen, Run: "other", Name: "stdout", Data: []byte("ghost")},
			"a stream of another name": {Type: wire.EventStream, Gen: gen, Run: run, Name: "<script>", Data: []byte("named\n")},
			"not UTF-8":                {Type: wire.EventStream, Gen: gen, Run: run, Name: "stdout", Data: []byte("bad \xff\xfe\n")},
			"ten thousand types":       {Type: wire.EventDisplay, Gen: gen, Run: run, Content: content(map[string]any{"data": many})},
			"a bundle of garbage":      {Type: wire.EventDisplay, Gen: gen, Run: run, Content: json.RawMessage(`{"data":[]}`)},
			"types that are no types":  {Type: wire.EventDisplay, Gen: gen, Run: run, Content: content(map[string]any{"data": map[string]any{"a": "x", "text/html\r\nX: y": "x", "a/b/c": "x", "text/plain": 7}})},
			"not base64":               {Type: wire.EventDisplay, Gen: gen, Run: run, Content: content(map[string]any{"data": map[string]any{"image/png": "%%%"}})},
			"deep metadata":            {Type: wire.EventDisplay, Gen: gen, Run: run, Content: json.RawMessage(`{"data":{"text/plain":"deep"},"metadata":{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}}`)},
			"an input of another run":  {Type: wire.EventInput, Gen: gen, Run: "other", Content: content(map[string]any{"prompt": "password?"})},
			"a negative omission":      {Type: wire.EventOmitted, Gen: gen, Run: run, Name: "stdout", Content: content(wire.Omitted{Bytes: -5, Lines: -5}), Data: []byte("x")},
			"files outside":            {Type: wire.EventFiles, Gen: gen, Run: run, Content: content(wire.Files{Changed: []wire.FileInfo{{Path: "/etc/passwd", Kind: "file"}, {Path: "../x", Kind: "file"}, {Path: "d", Kind: "dir"}, {Path: "l", Kind: "link"}}, Removed: []string{"../../y"}})},
			"very many files":          {Type: wire.EventFiles, Gen: gen, Run: run, Content: content(wire.Files{Changed: paths})},
			"a huge traceback":         {Type: wire.EventError, Gen: gen, Run: run, Content: content(map[string]any{"ename": strings.Repeat("e", 1<<20), "traceback": strings.Split(strings.Repeat("x\n", 10000), "\n")})},
			"a clear of another run":   {Type: wire.EventClear, Gen: gen, Run: "other", Content: content(map[string]any{"wait": false})},
			"a comm":                   {Type: wire.EventComm, Gen: gen, Run: run, Content: json.RawMessage(`{"msg_type":"x"}`)},
		}
	}
	w := newWorld(t)
	s := w.session("hang", "print 2")
	w.run(s, 1)
	run := w.start(s, 0)
	eventually(t, "the run", func() bool { return s.State().Busy() })
	b, gen := w.box(), s.State().Kernel.Gen
	for name, e := range events(string(run), gen) {
		b.emit(e)
		b.emit(wire.Event{Type: wire.EventStream, Gen: gen, Run: string(run), Name: "stderr", Data: []byte("after " + name + "\n")})
		eventually(t, "what follows "+name, func() bool { return strings.Contains(w.printed(s.ID(), run), "after "+name) })
		st := s.State()
		if r := st.Runs[run]; st.Live != run || r.Status != notebook.Running || st.Input != nil || st.Kernel.Status != notebook.Ready || st.Kernel.Info.Language != "python" {
			t.Fatalf("%s: live %q, run %s, input %v, kernel %s", name, st.Live, r.Status, st.Input, st.Kernel.Status)
		}
	}
	st := s.State()
	for p, f := range st.Files {
		if strings.Contains(p, "..") || p[0] == '/' || p == "d" || p == "l" || f.Size < 0 || f.Mode > 0o777 {
			t.Fatalf("file %q %+v", p, f)
		}
	}
	for _, o := range st.Runs[run].Outputs {
		if len(o.EName) > 9<<10 || len(o.Traceback) > 201 || len(o.Data) > 32 {
			t.Errorf("output too large: %d, %d, %d", len(o.EName), len(o.Traceback), len(o.Data))
		}
		if notebook.Deeper(o.Metadata, 64) {
			t.Errorf("metadata is nested too deeply: %d bytes", len(o.Metadata))
		}
		for mime := range o.Data {
			if mime != "text/plain" && mime != "image/png" {
				t.Errorf("type %q", mime)
			}
		}
	}
	if strings.Contains(w.printed(s.ID(), run), "ghost") || !strings.Contains(w.printed(s.ID(), run), "bad \uFFFD\n") {
		t.Errorf("printed %q", w.printed(s.ID(), run))
	}
	b.stop("interrupt")
	if r := w.ended(s, run); r.Status != notebook.Interrupted {
		t.Fatalf("run: %s", r.Status)
	}
}

// A guest that breaks the protocol is ended, in words, and not connected to
// again; the next run gets a new sandbox.
func TestBrokenProtocol(t *testing.T) {
	t.Parallel()
	event := func(seq uint64) []byte {
		p, _ := wire.AppendEvent(nil, wire.Event{Seq: seq, Type: wire.EventComm})
		return wire.AppendFrame(nil, wire.Frame{Kind: wire.KindEvent, Payload: p})
	}
	for name, frame := range map[string][]byte{
		"a frame that is too long":  binary.BigEndian.AppendUint32(nil, 1<<31),
		"a frame that is too short": binary.BigEndian.AppendUint32(nil, 1),
		"an unknown kind":           wire.AppendFrame(nil, wire.Frame{Kind: 200}),
		"a host's kind":             wire.AppendFrame(nil, wire.Frame{Kind: wire.KindRequest, Payload: []byte("{}")}),
		"unknown flags":             wire.AppendFrame(nil, wire.Frame{Kind: wire.KindPong, Flags: 0x80}),
		"a reply of garbage":        wire.AppendFrame(nil, wire.Frame{Kind: wire.KindReply, Payload: []byte("{")}),
		"an event of garbage":       wire.AppendFrame(nil, wire.Frame{Kind: wire.KindEvent, Payload: []byte("123456789012345")}),
		"an event too far ahead":    event(1 << 40),
		"an event for the 2nd time": event(1),
		"an event numbered 0":       event(0),
		"messages mixed":            append(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindEvent, Flags: wire.FlagMore}), wire.AppendFrame(nil, wire.Frame{Kind: wire.KindPong})...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.session("hang", "print 2")
			run := w.start(s, 0)
			eventually(t, "the run", func() bool { return s.State().Busy() })
			b := w.box()
			b.send(frame)
			r := w.ended(s, run)
			if msg := s.State().Kernel.Message; r.Status != notebook.Killed || !strings.Contains(msg, "broke the protocol") {
				t.Fatalf("run %s, kernel %q", r.Status, msg)
			}
			eventually(t, "the end of the sandbox", func() bool { return b.dead() })
			if n := w.f.count(func(f *fake) int { return f.attaches }); n != 0 {
				t.Errorf("connected to again %d times", n)
			}
			if r := w.run(s, 1); r.Status != notebook.OK {
				t.Fatalf("after it: %s %q", r.Status, r.Reason)
			}
		})
	}
}

// Replies to questions nobody asked, and data of streams nobody opened, are
// ignored.
func TestUnaskedReplies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("print 1")
	w.run(s, 0)
	b := w.box()
	b.reply(wire.Reply{ID: 1 << 50, Error: "What?"})
	for _, k := range []wire.Kind{wire.KindData, wire.KindWindow, wire.KindEnd} {
		b.send(wire.AppendFrame(nil, wire.Frame{Kind: k, Stream: 77, Payload: window(5)}))
	}
	if r := w.run(s, 0); r.Status != notebook.OK || w.box() != b {
		t.Fatalf("after it: %s", r.Status)
	}
}

// While the log takes nothing, a guest that sends without end is not read
// without end.
func TestFloodIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("hang", "print 2")
	run := w.start(s, 0)
	eventually(t, "the run", func() bool { return s.State().Busy() })
	b := w.box()
	held := make(chan struct{})
	var full atomic.Bool
	w.log.before(func(notebook.Batch) error {
		full.Store(true)
		<-held
		return nil
	})
	const each, n = 1 << 20, 400
	var sent atomic.Int64
	b.mu.Lock()
	c := b.conn
	b.mu.Unlock()
	b.emit(wire.Event{Type: wire.EventStream, Gen: 1, Run: string(run), Name: "stdout", Data: []byte("x")})
	eventually(t, "a log that takes nothing", full.Load)
	data := make([]byte, each)
	b.wg.Go(func() {
		b.mu.Lock()
		seq := b.seq
		b.mu.Unlock()
		for i := range n {
			p, _ := wire.AppendEvent(nil, wire.Event{Seq: seq + 1 + uint64(i), Type: wire.EventStream, Gen: 1, Run: string(run), Name: "stdout", Data: data})
			m, _ := wire.AppendMessage(nil, wire.KindEvent, 0, p)
			if _, err := c.Write(m); err != nil {
				return
			}
			sent.Add(each)
		}
	})
	last, since := int64(-1), time.Now()
	eventually(t, "the reader to stop", func() bool {
		if v := sent.Load(); v != last {
			last, since = v, time.Now()
		}
		return last > 0 && time.Since(since) > 300*time.Millisecond
	})
	if last > 80<<20 {
		t.Errorf("%d MiB were read ahead", last>>20)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("read ahead %d MiB, heap %d MiB", last>>20, m.HeapAlloc>>20)
	b.cut()
	w.log.before(nil)
	close(held)
	w.do(s, notebook.StopKernel{})
	if r := w.ended(s, run); r.Status != notebook.Killed {
		t.Fatalf("run: %s", r.Status)
	}
}

// One event of 20 MiB of text becomes pieces that clients can take.
func TestHugeText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("hang")
	run := w.start(s, 0)
	eventually(t, "the run", func() bool { return s.State().Busy() })
	b := w.box()
	text := strings.Repeat("€", 2<<20)
	b.emit(wire.Event{Type: wire.EventStream, Gen: 1, Run: string(run), Name: "stdout", Data: []byte(text)})
	b.emit(wire.Event{Type: wire.EventOmitted, Gen: 1, Run: string(run), Name: "stdout", Content: content(wire.Omitted{Bytes: 1, Lines: 1}), Data: []byte(text)})
	b.stop("interrupt")
	w.ended(s, run)
	for _, e := range w.events(s.ID()) {
		switch v := e.Body.(type) {
		case notebook.StreamAppended:
			if len(v.Text) > notebook.MaxText || strings.Contains(v.Text, "\uFFFD") {
				t.Fatalf("a piece of %d bytes", len(v.Text))
			}
		case notebook.StreamOmitted:
			if len(v.Tail) > notebook.MaxText || strings.Contains(v.Tail, "\uFFFD") {
				t.Fatalf("a tail of %d bytes", len(v.Tail))
			}
		}
	}
	if w.printed(s.ID(), run) != text {
		t.Fatal("the text is not what was printed")
	}
}

// A guest that answers a file with more than its window is ended; memory is not
// taken for it.
func TestWindowIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("file a.txt")
	w.f.setup = func(b *box) {
		b.reading = func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.files["a.txt"] = strings.Repeat("x", wire.MaxPayload)
		}
	}
	w.run(s, 0)
	w.kernel(s, notebook.Dead)
	if msg := s.State().Kernel.Message; !strings.Contains(msg, "broke the protocol") && !strings.Contains(msg, "stopped") {
		t.Fatalf("kernel: %q", msg)
	}
}

// A connection that is lost again and again before anything is done ends the
// sandbox, in words.
func TestLostAgainAndAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for the pauses between connections; not in short mode")
	}
	w := newWorld(t)
	s := w.session("hang")
	run := w.start(s, 0)
	eventually(t, "the run", func() bool { return s.State().Busy() })
	w.f.mu.Lock()
	w.f.rude = func(_ *box, c net.Conn, _ *wire.Reader) {
		_, _ = c.Write(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindWelcome, Payload: []byte(`{"version":1,"first":1000,"last":999}`)}))
	}
	w.f.mu.Unlock()
	w.box().cut()
	r := w.ended(s, run)
	if r.Status != notebook.Killed && r.Status != notebook.LostRun {
		t.Fatalf("run: %s %q", r.Status, r.Reason)
	}
}

// A guest keeps events until they are acknowledged, and stops when it has too
// many: those that change nothing must be acknowledged, too.
func TestEventsWithoutEffectAreAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("comms 30\nprint done")
	run := w.start(s, 0)
	if r := w.ended(s, run); r.Status != notebook.OK {
		t.Fatalf("status %s %s", r.Status, r.Reason)
	}
	if got := w.printed(s.ID(), run); got != "done\n" {
		t.Fatalf("printed %q", got)
	}
}
