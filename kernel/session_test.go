package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandbook/backends"
	"sandbook/kernel"
	"sandbook/kernel/notebook"
	"sandbook/kernel/wire"
)

func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("print hello", "raise no", "print skipped")
	r := w.run(s, 0)
	if r.Status != notebook.OK || r.Count != 1 || r.SHA256 != notebook.SourceHash("print hello") || r.By.ID != "alice" {
		t.Fatalf("run: %+v", r)
	}
	w.do(s, notebook.RunCells{Scope: "all"})
	eventually(t, "the batch", func() bool { return len(s.State().Queue) == 0 && !s.State().Busy() })
	st := s.State()
	if got := st.Runs[st.Cells[2].Run]; got.Status != notebook.Skipped {
		t.Fatalf("third cell: %+v", got)
	}
	folded := notebook.Fold(notebook.New(s.ID()), w.events(s.ID()))
	if d := cmp.Diff(folded, s.State()); d != "" {
		t.Fatalf("the log and the state differ: %s", d)
	}
}

// The server is stopped again and again while a guest prints that hears no
// acks, so that every event is sent many times. Each is recorded once, in order.
func TestExactlyOnceAcrossServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.f.setup = func(b *box) { b.deaf = true }
	s := w.session("hang\ncount 3000")
	run := w.start(s, 0)
	eventually(t, "the run", func() bool { return s.State().Busy() })
	b := w.box()
	eventually(t, "the run in the sandbox", func() bool { return b.ran(string(run)) == 1 }) // else it would miss what it waits for
	b.stop("go on")
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 12 {
		seq := s.State().Seq + rnd.Int64N(20)
		eventually(t, "some output", func() bool { return s.State().Seq >= seq || !s.State().Busy() })
		w.close()
		w.open()
		s = w.reopen(s.ID())
	}
	r := w.ended(s, run)
	if b.ran(string(run)) != 1 {
		t.Fatalf("the run was executed %d times", b.ran(string(run)))
	}
	if r.Status != notebook.Interrupted { // how "hang" was left
		t.Fatalf("status %s %s", r.Status, r.Reason)
	}
	if got := w.printed(s.ID(), run); got != lines(3000) {
		t.Fatalf("printed %d bytes, want %d", len(got), len(lines(3000)))
	}
	for i, e := range w.events(s.ID()) {
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d has number %d", i+1, e.Seq)
		}
	}
}

// The connection is cut again and again: nothing is lost or doubled.
func TestExactlyOnceAcrossConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("count 4000")
	run := w.start(s, 0)
	eventually(t, "the run", func() bool { return s.State().Busy() })
	b := w.box()
	for i := range 8 {
		seq := s.State().Seq + int64(i)
		eventually(t, "output", func() bool { return s.State().Seq >= seq || !s.State().Busy() })
		b.cut()
	}
	w.ended(s, run)
	if got := w.printed(s.ID(), run); got != lines(4000) || b.ran(string(run)) != 1 {
		t.Fatalf("printed %d bytes, want %d; ran %d times", len(got), len(lines(4000)), b.ran(string(run)))
	}
}

// The disk is full in the middle of a run, for ops as for output. Ops say so
// and change nothing; output waits in the sandbox and comes later, in order.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("hang\ncount 500", "1")
	run := w.start(s, 0)
	eventually(t, "the run", func() bool { return s.State().Busy() })
	var refused atomic.Int32
	var full atomic.Bool
	full.Store(true)
	w.log.before(func(notebook.Batch) error {
		if full.Load() {
			refused.Add(1)
			return errDisk
		}
		return nil
	})
	before := s.State()
	_, err := s.Do(t.Context(), alice, notebook.Rename{Title: "new"}, "k")
	wantCode(t, err, notebook.Unavailable)
	if d := cmp.Diff(before, s.State()); d != "" {
		t.Fatalf("a refused op changed the state: %s", d)
	}
	w.box().stop("go on")
	eventually(t, "a refused batch of output", func() bool { return refused.Load() >= 2 })
	full.Store(false)
	w.ended(s, run)
	if got := w.printed(s.ID(), run); got != lines(500) {
		t.Fatalf("printed %d bytes, want %d", len(got), len(lines(500)))
	}
	if _, err := s.Do(t.Context(), alice, notebook.Rename{Title: "new"}, "k"); err != nil || s.State().Title != "new" {
		t.Fatalf("the op with its old key: %v", err)
	}
}

// Another server has written: this one stops, says so, and leaves the sandbox
// and its connection to the other.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("hang\ncount 10", "1")
	w.start(s, 0)
	eventually(t, "the run", func() bool { return s.State().Busy() })
	b := w.box()
	st := s.State()
	e := notebook.Event{Seq: st.Seq + 1, At: st.Updated, By: alice.Author, Body: notebook.Renamed{Title: "other"}}
	if err := w.log.Append(t.Context(), s.ID(), notebook.Batch{Events: []notebook.Event{e}}); err != nil {
		t.Fatal(err)
	}
	b.stop("go on")
	eventually(t, "the refusal", func() bool {
		_, err := s.Do(t.Context(), alice, notebook.Rename{Title: "mine"}, "")
		return notebook.CodeOf(err) == notebook.Unavailable && strings.Contains(notebook.MessageOf(err), "taken over")
	})
	attaches := w.f.count(func(f *fake) int { return f.attaches })
	w.close() // waits for whatever it had planned
	if n := w.f.count(func(f *fake) int { return f.attaches }); n != attaches {
		t.Errorf("it attached again %d times", n-attaches)
	}
	if b.dead() {
		t.Error("it ended the other server's sandbox")
	}
	if evs := w.events(s.ID()); evs[len(evs)-1].Seq != e.Seq {
		t.Errorf("it wrote on, up to %d", evs[len(evs)-1].Seq)
	}
}

func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("1")
	slow, err := s.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		w.do(s, notebook.Rename{Title: fmt.Sprint("t", i)})
	}
	st := slow.State
	for u := range slow.Updates {
		st = notebook.Fold(st, u.Events)
	}
	if !errors.Is(slow.Err(), kernel.ErrSlow) {
		t.Fatalf("ended with %v", slow.Err())
	}
	evs, err := w.log.Events(t.Context(), s.ID(), st.Seq, 1000)
	if err != nil || len(evs) == 0 {
		t.Fatalf("%d events missed, %v", len(evs), err)
	}
	if d := cmp.Diff(notebook.Fold(st, evs), s.State()); d != "" {
		t.Fatalf("resumed to another state: %s", d)
	}
	slow.Close() // again, changes nothing
	quick, err := s.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	quick.Close()
	if _, ok := <-quick.Updates; ok || quick.Err() != nil {
		t.Fatalf("closed subscription: %v", quick.Err())
	}
	w.close()
	if _, err := s.Subscribe(t.Context()); !errors.Is(err, kernel.ErrClosed) {
		t.Fatalf("subscribed to a closed session: %v", err)
	}
	if _, err := w.m.Open(t.Context(), s.ID()); !errors.Is(err, kernel.ErrClosed) {
		t.Fatalf("opened on a closed manager: %v", err)
	}
}

// A kernel that cannot start is a sentence, and the next run tries again.
func TestStartFails(t *testing.T) {
	t.Parallel()
	boom := errors.New("no namespaces here")
	for name, tc := range map[string]struct {
		set  func(f *fake)
		want string
	}{
		"the backend fails":    {func(f *fake) { f.startErr = boom }, "no namespaces here"},
		"a hole in the walls":  {func(f *fake) { f.posture = []wire.Check{{Name: "seccomp", Detail: "off"}} }, "failed its self-check, so nothing was run in it. seccomp: off"},
		"no self-check":        {func(f *fake) { f.posture = nil }, "did not report its self-check"},
		"another version":      {func(f *fake) { f.version = 99 }, "speaks version 99"},
		"hangs up":             {func(f *fake) { f.rude = func(*box, netConn, *wire.Reader) {} }, "read welcome"},
		"not a welcome":        {func(f *fake) { f.rude = says(wire.Frame{Kind: wire.KindPong}) }, "instead of welcome"},
		"a welcome of garbage": {func(f *fake) { f.rude = says(wire.Frame{Kind: wire.KindWelcome, Payload: []byte("{")}) }, "decode welcome"},
		"impossible numbers": {func(f *fake) {
			f.rude = welcomes(`{"version":1,"first":9,"last":3,"posture":[{"name":"a","ok":true}]}`)
		}, "holds events 9 to 3"},
		"the kernel is refused": {func(f *fake) {
			f.setup = func(b *box) {
				b.refuse = map[wire.Op]wire.Reply{wire.OpStart: {Code: wire.CodeFailed, Error: "There is no python3."}}
			}
		}, "There is no python3."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.f.mu.Lock()
			tc.set(w.f)
			w.f.mu.Unlock()
			s := w.session("print 1")
			r := w.run(s, 0)
			k := s.State().Kernel
			if r.Status != notebook.Skipped || k.Status != notebook.Dead || !strings.HasPrefix(k.Message, "The kernel could not be started. ") || !strings.Contains(k.Message, tc.want) {
				t.Fatalf("run %s %q, kernel %s: %q", r.Status, r.Reason, k.Status, k.Message)
			}
			for _, b := range w.f.all() {
				if b.ran(string(r.ID)) > 0 {
					t.Fatal("it ran in a sandbox that was refused")
				}
			}
			good := newFake()
			w.f.mu.Lock()
			w.f.startErr, w.f.posture, w.f.version, w.f.rude, w.f.setup = nil, good.posture, good.version, nil, nil
			w.f.mu.Unlock()
			for _, b := range w.f.all() {
				b.mu.Lock()
				b.refuse = nil
				b.mu.Unlock()
			}
			if r := w.run(s, 0); r.Status != notebook.OK {
				t.Fatalf("the next run: %s %q", r.Status, r.Reason)
			}
			if n := len(w.f.live()); n != 1 {
				t.Fatalf("%d sandboxes live", n)
			}
		})
	}
}

func TestRunRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.f.setup = func(b *box) {
		b.refuse = map[wire.Op]wire.Reply{wire.OpRun: {Code: wire.CodeBusy, Error: "The kernel is busy."}}
	}
	s := w.session("print 1")
	if r := w.run(s, 0); r.Status != notebook.Failed || !strings.Contains(r.Reason, "The kernel is busy.") {
		t.Fatalf("run: %s %q", r.Status, r.Reason)
	}
}

// Stop, and start again, while the sandbox is still being made.
func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	for _, next := range []notebook.Op{notebook.StartKernel{}, notebook.RestartKernel{}, notebook.RunCells{Scope: "all"}} {
		t.Run(next.Op(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			gate := make(chan struct{})
			w.f.gate = gate
			s := w.session("print 1")
			w.do(s, notebook.StartKernel{})
			_, err := s.Do(t.Context(), alice, notebook.RestartKernel{}, "")
			wantCode(t, err, notebook.Conflict)
			w.do(s, notebook.StopKernel{})
			w.do(s, next)
			close(gate)
			w.kernel(s, notebook.Ready)
			b := w.box()
			if got := s.State().Kernel.Sandbox; got != string(b.id) || s.State().Kernel.Gen != 2 {
				t.Fatalf("kernel %d in %s, alive is %s", s.State().Kernel.Gen, got, b.id)
			}
		})
	}
	t.Run("stop alone", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		gate := make(chan struct{})
		w.f.gate = gate
		s := w.session("print 1")
		w.do(s, notebook.StartKernel{})
		w.do(s, notebook.StopKernel{})
		close(gate)
		eventually(t, "the end of the sandbox", func() bool { return len(w.f.all()) == 1 && len(w.f.live()) == 0 })
		if st := s.State().Kernel; st.Status != notebook.NoKernel {
			t.Fatalf("kernel %s", st.Status)
		}
	})
}

// A notebook is stopped or restarted while a new server is still finding its
// sandbox.
func TestStopDuringAttach(t *testing.T) {
	t.Parallel()
	for range 20 {
		w := newWorld(t)
		s := w.session("print 1", "print 2")
		w.run(s, 0)
		w.close()
		w.open()
		s = w.reopen(s.ID())
		w.do(s, notebook.StopKernel{})
		eventually(t, "the end of the sandbox", func() bool { return len(w.f.live()) == 0 })
		if r := w.run(s, 1); r.Status != notebook.OK {
			t.Fatalf("run: %s %q", r.Status, r.Reason)
		}
		w.close()
		w.open()
		s = w.reopen(s.ID())
		w.do(s, notebook.RestartKernel{RunAll: true})
		eventually(t, "both runs", func() bool {
			st := s.State()
			return !st.Busy() && len(st.Queue) == 0 && st.Runs[st.Cells[1].Run].Status == notebook.OK && st.Runs[st.Cells[1].Run].Gen == st.Kernel.Gen
		})
		w.box()
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("hang", "print 2")
	_, err := s.Do(t.Context(), alice, notebook.Interrupt{}, "")
	wantCode(t, err, notebook.Conflict)
	run := w.start(s, 0)
	eventually(t, "the run", func() bool { return s.State().Busy() })
	w.do(s, notebook.Interrupt{})
	if r := w.ended(s, run); r.Status != notebook.Interrupted {
		t.Fatalf("run: %s %q", r.Status, r.Reason)
	}
	// While the connection is down, and with a server in between.
	run = w.start(s, 0)
	eventually(t, "the run", func() bool { return s.State().Busy() })
	b := w.box()
	eventually(t, "the run in the sandbox", func() bool { return b.ran(string(run)) == 1 })
	b.cut()
	if _, err := s.Do(t.Context(), alice, notebook.Interrupt{}, ""); err != nil && s.State().Busy() {
		t.Fatal(err)
	}
	w.close()
	w.open()
	s = w.reopen(s.ID())
	if r := w.ended(s, run); r.Status != notebook.Interrupted {
		t.Fatalf("run after the reconnect: %s %q", r.Status, r.Reason)
	}
}

// Many answer at once: one is taken, and the kernel gets that one.
func TestInputRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("ask Name?")
	run := w.start(s, 0)
	eventually(t, "the question", func() bool { return s.State().Input != nil })
	_, err := s.Do(t.Context(), alice, notebook.ReplyInput{Run: "other", Value: "x"}, "")
	wantCode(t, err, notebook.Conflict)
	var wg sync.WaitGroup
	var took atomic.Value
	var n atomic.Int32
	for i := range 20 {
		wg.Go(func() {
			v := fmt.Sprint("answer", i)
			_, err := s.Do(t.Context(), alice, notebook.ReplyInput{Run: run, Value: v}, "")
			if err == nil {
				n.Add(1)
				took.Store(v)
			} else if notebook.CodeOf(err) != notebook.Conflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.ended(s, run)
	if got := w.printed(s.ID(), run); n.Load() != 1 || got != fmt.Sprintf("got %s\n", took.Load()) {
		t.Fatalf("%d answers taken, the kernel %q", n.Load(), got)
	}
}

// An answer is never taken while nobody could hand it on.
func TestInputWhileDisconnected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("ask Name?")
	run := w.start(s, 0)
	eventually(t, "the question", func() bool { return s.State().Input != nil })
	for i := range 20 {
		w.box().cut()
		_, err := s.Do(t.Context(), alice, notebook.ReplyInput{Run: run, Value: fmt.Sprint(i)}, "")
		if err == nil {
			break // taken before the cut was seen, or after it was mended
		}
		wantCode(t, err, notebook.Unavailable)
	}
	eventually(t, "an answer that is taken", func() bool {
		_, err := s.Do(t.Context(), alice, notebook.ReplyInput{Run: run, Value: "x"}, "")
		return err == nil || notebook.CodeOf(err) == notebook.Conflict
	})
}

func TestKernelDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("print before\ndie", "print 2", "exit", "print 4")
	w.do(s, notebook.RunCells{Cells: []notebook.CellID{s.State().Cells[0].ID, s.State().Cells[1].ID}})
	w.kernel(s, notebook.Dead)
	st := s.State()
	if r := st.Runs[st.Cells[0].Run]; r.Status != notebook.Killed || w.printed(s.ID(), r.ID) != "before\n" || !strings.Contains(st.Kernel.Message, "ended by signal 11") {
		t.Fatalf("run %s, kernel %q", r.Status, st.Kernel.Message)
	}
	if r := w.run(s, 3); r.Status != notebook.OK || s.State().Kernel.Boot != 1 {
		t.Fatalf("after it: %s in sandbox %d", r.Status, s.State().Kernel.Boot)
	}
	r := w.run(s, 2)
	w.kernel(s, notebook.Dead)
	if r.Status != notebook.Killed || !strings.Contains(s.State().Kernel.Message, "ended by itself with code 3") {
		t.Fatalf("sandbox gone: %s, %q", r.Status, s.State().Kernel.Message)
	}
	if r := w.run(s, 3); r.Status != notebook.OK || s.State().Kernel.Boot != 2 {
		t.Fatalf("after it: %s in sandbox %d", r.Status, s.State().Kernel.Boot)
	}
}

// The machine was restarted: no sandbox is there any more.
func TestSandboxGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("hang", "print 2")
	run := w.start(s, 0)
	eventually(t, "the run", func() bool { return s.State().Busy() })
	b := w.box()
	w.close()
	b.end(backends.Exit{Cause: backends.Lost})
	w.open()
	if err := w.m.Adopt(t.Context(), []notebook.ID{s.ID()}); err != nil {
		t.Fatal(err)
	}
	s = w.reopen(s.ID())
	if r := w.ended(s, run); r.Status != notebook.LostRun {
		t.Fatalf("run: %s %q", r.Status, r.Reason)
	}
	if r := w.run(s, 1); r.Status != notebook.OK {
		t.Fatalf("after it: %s %q", r.Status, r.Reason)
	}
}

// Adopt ends sandboxes that belong to no notebook, and spares them all if one
// notebook cannot be read.
func TestAdopt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("print 1")
	w.run(s, 0)
	stray, err := w.f.Start(t.Context(), backends.Spec{ID: "stray"})
	if err != nil {
		t.Fatal(err)
	}
	w.close()
	w.open()
	if err := w.m.Adopt(t.Context(), []notebook.ID{s.ID(), "missing"}); err == nil || len(w.f.live()) != 2 {
		t.Fatalf("with a notebook missing: %v, %d alive", err, len(w.f.live()))
	}
	if err := w.m.Adopt(t.Context(), []notebook.ID{s.ID()}); err != nil {
		t.Fatal(err)
	}
	if _, err := stray.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := w.run(w.reopen(s.ID()), 0); r.Status != notebook.OK || w.reopen(s.ID()).State().Kernel.Boot != 1 {
		t.Fatalf("the kept one: %s", r.Status)
	}
}

// Files are kept; when the connection goes while one is copied, it is copied
// again; they come back in the next sandbox.
func TestFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var once sync.Once
	w.f.setup = func(b *box) { b.reading = func() { once.Do(b.cut) } }
	s := w.session("file a.txt\nfile ../evil\nfile b.txt", "print 2")
	w.run(s, 0)
	eventually(t, "the copies", func() bool { f := s.State().Files; return f["a.txt"].Blob != "" && f["b.txt"].Blob != "" })
	if len(s.State().Files) != 2 {
		t.Fatalf("files: %v", s.State().Files)
	}
	if _, err := s.Upload(t.Context(), alice, "c/d.txt", strings.NewReader("uploaded")); err != nil {
		t.Fatal(err)
	}
	w.do(s, notebook.StopKernel{})
	eventually(t, "the end of the sandbox", func() bool { return len(w.f.live()) == 0 })
	if r := w.run(s, 1); r.Status != notebook.OK {
		t.Fatal(r.Reason)
	}
	b := w.box()
	b.mu.Lock()
	got := []string{b.files["a.txt"], b.files["b.txt"], b.files["c/d.txt"]}
	b.mu.Unlock()
	if d := cmp.Diff([]string{"content of a.txt", "content of b.txt", "uploaded"}, got); d != "" {
		t.Fatal(d)
	}
	for _, live := range []bool{true, false} {
		r, _, err := s.OpenFile(t.Context(), "a.txt")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		_ = r.Close()
		if string(text) != "content of a.txt" || err != nil {
			t.Fatalf("live %t: %q %v", live, text, err)
		}
		if live {
			w.do(s, notebook.StopKernel{})
		}
	}
	if err := s.RemoveFile(t.Context(), alice, "a.txt"); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.OpenFile(t.Context(), "a.txt")
	wantCode(t, err, notebook.NotFound)
	for _, p := range []string{"", "/etc/passwd", "../x", "a/../../x", "a//b", "a\x00b", "a\\b", strings.Repeat("x/", 600)} {
		_, err := s.Upload(t.Context(), alice, p, strings.NewReader("x"))
		wantCode(t, err, notebook.Invalid)
		wantCode(t, s.RemoveFile(t.Context(), alice, p), notebook.Invalid)
		_, _, err = s.OpenFile(t.Context(), p)
		wantCode(t, err, notebook.Invalid)
	}
	reader := notebook.Actor{Author: alice.Author, Scopes: []notebook.Scope{notebook.ScopeRead}}
	_, err = s.Upload(t.Context(), reader, "x", strings.NewReader("x"))
	wantCode(t, err, notebook.Denied)
	wantCode(t, s.RemoveFile(t.Context(), reader, "b.txt"), notebook.Denied)
	w.do(s, notebook.DeleteNotebook{})
	_, err = s.Upload(t.Context(), alice, "x", strings.NewReader("x"))
	wantCode(t, err, notebook.Conflict)
}

func TestAsk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("print 1")
	_, err := s.Ask(t.Context(), alice, wire.Request{Op: wire.OpComplete})
	wantCode(t, err, notebook.Unavailable)
	w.run(s, 0)
	for _, op := range []wire.Op{wire.OpStart, wire.OpStop, wire.OpRun, wire.OpInput, wire.OpInterrupt, wire.OpWrite, wire.OpRead, wire.OpRemove, wire.OpRename, wire.OpMkdir, wire.OpCommand, wire.OpShutdown, "other"} {
		_, err := s.Ask(t.Context(), alice, wire.Request{Op: op})
		wantCode(t, err, notebook.Denied)
	}
	reader := notebook.Actor{Author: alice.Author, Scopes: []notebook.Scope{notebook.ScopeRead}}
	if _, err := s.Ask(t.Context(), reader, wire.Request{Op: wire.OpList}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Ask(t.Context(), reader, wire.Request{Op: wire.OpVariables})
	wantCode(t, err, notebook.Denied)
	if u, err := s.Usage(t.Context()); u != nil || err != nil {
		t.Fatalf("usage of a sandbox that has none: %v %v", u, err)
	}
}

// The same key asked many times at once, and by another server, runs once.
func TestIdempotency(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("print 1", "print 2")
	op := notebook.RunCells{Cells: []notebook.CellID{s.State().Cells[0].ID}}
	var mu sync.Mutex
	ids := map[string]bool{}
	var wg sync.WaitGroup
	ask := func() {
		res, err := s.Do(context.Background(), alice, op, "key")
		if err != nil || len(res.IDs) != 1 {
			t.Errorf("%v %v", res, err)
			return
		}
		mu.Lock()
		ids[res.IDs[0]] = true
		mu.Unlock()
	}
	for range 50 {
		wg.Go(ask)
	}
	wg.Wait()
	for id := range ids {
		w.ended(s, notebook.RunID(id))
	}
	w.close()
	w.open()
	s = w.reopen(s.ID())
	ask()
	if len(ids) != 1 {
		t.Fatalf("%d runs", len(ids))
	}
	_, err := s.Do(t.Context(), alice, notebook.Rename{Title: "x"}, "key")
	wantCode(t, err, notebook.Conflict)
	_, err = s.Do(t.Context(), alice, notebook.Rename{Title: "x"}, strings.Repeat("k", 129))
	wantCode(t, err, notebook.Invalid)
}

// A thousand ops in any order, with connections cut and sandboxes ended in
// between: every run ends, one sandbox is left at most, and the log folds to
// the state.
func TestStorm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("print 1", "hang", "raise x", "count 50", "die", "file f.txt")
	rnd := rand.New(rand.NewPCG(7, 7))
	for i := range 1000 {
		cells := s.State().Cells
		cell := cells[rnd.IntN(len(cells))].ID
		var op notebook.Op
		switch rnd.IntN(10) {
		case 0, 1, 2:
			op = notebook.RunCells{Cells: []notebook.CellID{cell}}
		case 3:
			op = notebook.RunCells{Scope: "all", KeepGoing: true}
		case 4, 5:
			op = notebook.Interrupt{}
		case 6:
			op = notebook.RestartKernel{RunAll: rnd.IntN(2) == 0}
		case 7:
			op = notebook.StopKernel{}
		case 8:
			op = notebook.StartKernel{}
		default:
			if live := w.f.live(); len(live) > 0 {
				if b := live[rnd.IntN(len(live))]; rnd.IntN(2) == 0 {
					b.cut()
				} else {
					b.end(backends.Exit{Cause: backends.Signaled, Signal: 9})
				}
			}
			continue
		}
		if _, err := s.Do(t.Context(), alice, op, ""); notebook.CodeOf(err) == notebook.Internal {
			t.Fatalf("op %d, %s: %v", i, op.Op(), err)
		}
	}
	eventually(t, "a kernel that can be stopped", func() bool {
		_, err := s.Do(t.Context(), alice, notebook.StopKernel{}, "")
		return err == nil || s.State().Kernel.Status == notebook.NoKernel || s.State().Kernel.Status == notebook.Dead
	})
	eventually(t, "the end of every sandbox", func() bool { return len(w.f.live()) == 0 })
	for id, r := range s.State().Runs {
		if !r.Status.Final() {
			t.Errorf("run %s of %q is %s", id, r.Source, r.Status)
		}
	}
	if r := w.run(s, 0); r.Status != notebook.OK {
		t.Fatalf("after the storm: %s %q", r.Status, r.Reason)
	}
	w.box()
	if d := cmp.Diff(notebook.Fold(notebook.New(s.ID()), w.events(s.ID())), s.State()); d != "" {
		t.Fatalf("the log and the state differ: %s", d)
	}
}
