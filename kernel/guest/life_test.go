package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandbook/kernel/wire"
)

func TestInterruptKeepsState(t *testing.T) {
	t.Parallel()
	_, h := testKernel(t, nil)
	for _, code := range []string{"while True: pass", "import time; time.sleep(60)", "import subprocess; subprocess.run(['sleep', '60'])",
		"import asyncio; await asyncio.sleep(60)", "!sleep 60", "print('x' * 10**6, end='')\nwhile True: print('y' * 1000)"} {
		h.ok("kept = 7")
		r := newRun(code)
		h.begin(r)
		h.event("start", func(e wire.Event) bool { return e.Type == wire.EventRunStart && e.Run == r.ID })
		pause(50 * time.Millisecond) // let the code begin
		from := time.Now()
		h.must(wire.Request{Op: wire.OpInterrupt, RunID: r.ID})
		o := h.finish(r.ID)
		if o.end.Status != wire.RunInterrupted || o.end.EName != "KeyboardInterrupt" {
			t.Errorf("%s: %+v", code, o.end)
		}
		if took := time.Since(from); took > 1900*time.Millisecond {
			t.Errorf("%s: interrupted only after %s", code, took)
		}
		if got := h.ok("kept").result(); got != "7" {
			t.Errorf("%s: kept is %q", code, got)
		}
	}
	// An interrupt of what is over does nothing.
	h.must(wire.Request{Op: wire.OpInterrupt, RunID: "run-0"})
	h.must(wire.Request{Op: wire.OpInterrupt})
	if got := h.ok("kept").result(); got != "7" {
		t.Errorf("kept is %q", got)
	}
}

func TestInterruptEscalates(t *testing.T) {
	t.Parallel()
	_, h := testKernel(t, nil, "--grace", "200ms")
	r := newRun("import subprocess, time\nchild = subprocess.Popen(['sleep', '1000'])\nprint(child.pid, flush=True)\nwhile True:\n    try:\n        while True: time.sleep(0.01)\n    except KeyboardInterrupt: print('no')")
	h.begin(r)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(h.ofType(wire.EventStream).Data)))
	h.must(wire.Request{Op: wire.OpInterrupt, RunID: r.ID})
	o := h.finish(r.ID)
	var stages []string
	for _, e := range o.all(wire.EventInterrupt) {
		stages = append(stages, content[wire.InterruptStage](t, e).Stage)
	}
	if got := strings.Join(stages, " "); got != "sigint sigint_group kill" {
		t.Errorf("stages %q", got)
	}
	if o.end.Status != wire.RunKilled || !strings.Contains(o.end.Reason, "did not stop") {
		t.Errorf("end %+v", o.end)
	}
	d := content[wire.Died](t, h.ofType(wire.EventDied))
	if d.Signal != int(syscall.SIGKILL) || !d.Asked {
		t.Errorf("died %+v", d)
	}
	if pid == 0 || syscall.Kill(pid, 0) == nil {
		t.Errorf("the child %d still lives", pid)
	}
	h.start(2)
	if got := h.ok("1+1").result(); got != "2" {
		t.Errorf("after a new start: %q", got)
	}
	if rep := h.call(wire.Request{Op: wire.OpRun, Gen: 1, Run: newRun("1")}); rep.Code != wire.CodeNoKernel {
		t.Errorf("a run for the old generation: %+v", rep)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	_, h := testKernel(t, nil, "--grace", "200ms")
	h.ok("kept = 7")
	r := newRun("while True: pass")
	r.TimeoutMS = 100
	h.begin(r)
	if o := h.finish(r.ID); o.end.Status != wire.RunTimeout || o.end.WallMS < 100 || !strings.Contains(o.end.Reason, "100ms") {
		t.Errorf("end %+v", o.end)
	}
	if got := h.ok("kept").result(); got != "7" {
		t.Errorf("kept is %q", got)
	}
	// A loop in C that never looks at signals.
	r = newRun("import ctypes\nlib = ctypes.PyDLL(None)\nlib.pause.restype = ctypes.c_int\nwhile True: lib.pause() if False else sum(iter(int, 1))")
	r.TimeoutMS = 100
	h.begin(r)
	if o := h.finish(r.ID); o.end.Status != wire.RunTimeout {
		t.Errorf("end %+v", o.end)
	}
}

func TestDeaths(t *testing.T) {
	t.Parallel()
	_, h := testKernel(t, nil)
	cases := []struct {
		code         string
		exit, signal int
		reason       string
	}{
		{"print('last words')\nimport os; os._exit(3)", 3, 0, "exit code 3"},
		{"print('last words')\nimport ctypes; ctypes.string_at(0)", 139, 11, "crashed with signal 11"},
		{"print('last words')\nimport os; os.kill(os.getpid(), 9)", 137, 9, "killed (SIGKILL)"},
		{"print('last words')\nimport os; os.closerange(3, 100)\nwhile True: pass", 137, 9, "closed the channel"},
		{"print('last words')\nimport os; os.close(4); print('gone')", 70, 0, "channel"},
		{"print('last words')\nimport os; os.execv('/bin/sleep', ['sleep', '100'])", 137, 9, "replaced the interpreter"},
		{"print('last words')\nimport os\nos.write(4, b'\\xff' * 40)\nwhile True: pass", 137, 9, "own channel"},
		{"print('last words')\nimport signal, os; signal.alarm(1)\nwhile True: pass", 142, 14, "signal 14"},
	}
	for i, c := range cases {
		if i > 0 {
			h.start(i + 1)
		}
		r := newRun(c.code)
		h.begin(r)
		o := h.finish(r.ID)
		if o.end.Status != wire.RunKilled || !strings.Contains(o.end.Reason, c.reason) {
			t.Errorf("%s: end %+v", c.code, o.end)
		}
		if o.stdout != "last words\n" {
			t.Errorf("%s: stdout %q", c.code, o.stdout)
		}
		e := h.ofType(wire.EventDied)
		d := content[wire.Died](t, e)
		if e.Gen != i+1 || d.Code != c.exit || d.Signal != c.signal {
			t.Errorf("%s: gen %d %+v", c.code, e.Gen, d)
		}
		if rep := h.call(wire.Request{Op: wire.OpRun, Run: newRun("1")}); rep.Code != wire.CodeNoKernel {
			t.Errorf("run without a kernel: %+v", rep)
		}
	}
	if o := h.call(wire.Request{Op: wire.OpStart, Gen: len(cases)}); o.Error != "" {
		t.Errorf("starting a past generation: %+v", o)
	}
}

func TestStartThatFails(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil)
	h := s.connect(0)
	for _, c := range []struct {
		spec wire.StartKernel
		want string
	}{
		{wire.StartKernel{Language: "cobol"}, "no driver"},
		{wire.StartKernel{Argv: []string{"/nowhere/python"}}, "could not be started"},
	} {
		if rep := h.call(wire.Request{Op: wire.OpStart, Gen: 1, Start: &c.spec}); !strings.Contains(rep.Error, c.want) {
			t.Errorf("%+v: %+v", c.spec, rep)
		}
	}
	h.must(wire.Request{Op: wire.OpStart, Gen: 2, Start: &wire.StartKernel{Argv: []string{"/bin/sh", "-c", "echo broken >&2; exit 4", "x"}}})
	d := content[wire.Died](t, h.ofType(wire.EventDied))
	if d.Code != 4 || !strings.Contains(d.Reason, "broken") {
		t.Errorf("died %+v", d)
	}
	h.start(3)
	h.ok("1")
}

func TestStopEndsEverything(t *testing.T) {
	t.Parallel()
	_, h := testKernel(t, nil)
	o := h.ok("import subprocess\np = subprocess.Popen(['/bin/sh', '-c', 'setsid sleep 1000 & echo $!; wait'], start_new_session=True, stdout=subprocess.PIPE)\nprint(p.pid, int(p.stdout.readline()))")
	h.must(wire.Request{Op: wire.OpStop})
	d := content[wire.Died](t, h.ofType(wire.EventDied))
	if !d.Asked {
		t.Errorf("died %+v", d)
	}
	for f := range strings.FieldsSeq(o.stdout) {
		pid, _ := strconv.Atoi(f)
		if st, ok := readStat(pid); ok && st.state != 'Z' {
			t.Errorf("process %d lives", pid)
		}
	}
	h.must(wire.Request{Op: wire.OpStop})
}

func TestWedgeAttempts(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, h *host) {
		for _, code := range []string{
			"print = None", "import builtins; builtins.print = None; builtins.len = None; builtins.repr = None; builtins.str = None; builtins.isinstance = None; builtins.type = None",
			"import builtins; builtins.__dict__.clear()",
			"import sys; sys.stdout = None; sys.stderr = None; sys.stdin = None",
			"import sys; sys.stdout.write = None",
			"import json; json.dumps = None; json.loads = None; json.encoder = None",
			"import os; os.write = None; os.read = None; os.close = None; os.dup2 = None; os.getpid = None",
			"import os; os.close(0); os.close(1); os.close(2)",
			"import sys; sys.displayhook = None; sys.excepthook = None",
			"import sys; sys.modules.clear()",
			"import sys; sys.meta_path.clear(); sys.path.clear()",
			"import traceback; traceback.format_exception = None; traceback.TracebackException = None",
			"import linecache; linecache.cache = None; linecache.getline = None",
			"import sys; sys.setrecursionlimit(50)",
			"import sys; sys.settrace(lambda *a: 1/0)",
			"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
			"import threading; threading.Thread.start = None",
			"import gc; gc.disable(); import sys; sys.exc_info = None",
			"In = None; Out = None; _ = None; __builtins__ = None",
			"del __builtins__",
			"globals().clear()",
			"import sys; sys._getframe = None; sys.stdout.flush = None",
			"import os; os.environ.clear()",
			"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
		} {
			h.run(code)
			o := h.run("1/0")
			if o.end.Status != wire.RunError || o.end.EName != "ZeroDivisionError" {
				t.Errorf("after %q: error run %+v", code, o.end)
			}
			o = h.run("x = 20\nx + 1")
			if o.end.Status != wire.RunOK || o.result() != "21" {
				t.Errorf("after %q: %+v %q\n%s", code, o.end, o.result(), o.traceback())
			}
		}
		// And the kernel can still be interrupted.
		r := newRun("while True: pass")
		h.begin(r)
		h.event("start", func(e wire.Event) bool { return e.Type == wire.EventRunStart && e.Run == r.ID })
		h.must(wire.Request{Op: wire.OpInterrupt, RunID: r.ID})
		if o := h.finish(r.ID); o.end.Status != wire.RunInterrupted {
			t.Errorf("interrupt: %+v", o.end)
		}
	})
}

func TestRunsOnce(t *testing.T) {
	t.Parallel()
	s, h := testKernel(t, nil)
	r := newRun("open('count', 'a').write('x')\nlen(open('count').read())")
	h.begin(r)
	h.begin(r)
	h.finish(r.ID)
	h.begin(r)
	h2 := s.connect(h.last)
	h2.begin(r)
	h2.must(wire.Request{Op: wire.OpStop})
	h2.begin(r)
	if b, _ := os.ReadFile(filepath.Join(s.dir, "count")); string(b) != "x" {
		t.Errorf("the run ran %d times", len(b))
	}
}

func TestBusy(t *testing.T) {
	t.Parallel()
	_, h := testKernel(t, nil)
	r := newRun("import time; time.sleep(0.3)")
	h.begin(r)
	other := newRun("1")
	if rep := h.call(wire.Request{Op: wire.OpRun, Run: other}); rep.Code != wire.CodeBusy {
		t.Errorf("a second run: %+v", rep)
	}
	if rep := h.call(wire.Request{Op: wire.OpVariables}); rep.Code != wire.CodeBusy {
		t.Errorf("a question: %+v", rep)
	}
	h.finish(r.ID)
	h.begin(other) // a refused run was not taken
	h.finish(other.ID)
}

func TestReconnectReplays(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil)
	h := s.dial(0, true) // acks nothing
	h.start(1)
	r := newRun("import time\nfor i in range(40):\n    print(i)\n    time.sleep(0.01)")
	h.begin(r)
	h.event("output", func(e wire.Event) bool { return e.Type == wire.EventStream })
	h.close()
	var text strings.Builder
	since := uint64(0)
	for _, e := range h.events {
		since = e.Seq
		if e.Type == wire.EventStream {
			text.Write(e.Data)
		}
	}
	h2 := s.connect(since)
	if h2.welcome.Gen != 1 || h2.welcome.Run != r.ID || h2.welcome.First != since+1 {
		t.Errorf("welcome %+v after %d", h2.welcome, since)
	}
	o := h2.finish(r.ID)
	text.WriteString(o.stdout)
	var want strings.Builder
	for i := range 40 {
		fmt.Fprintln(&want, i)
	}
	if text.String() != want.String() {
		t.Errorf("got %q", text.String())
	}
	// The newest connection replaces the one before.
	h3 := s.connect(h2.last)
	h2.until2closed()
	h3.ok("1+1")
}

func (h *host) until2closed() {
	h.t.Helper()
	if !h.within(patience, func() bool { return h.closed }) && !h.closed {
		h.t.Error("the older connection is still open")
	}
}

func TestVersionAndGarbage(t *testing.T) {
	t.Parallel()
	s, h := testKernel(t, nil)
	if rep := h.call(wire.Request{Op: "format_disk"}); rep.Code != wire.CodeInvalid {
		t.Errorf("unknown op: %+v", rep)
	}
	for _, b := range [][]byte{{0, 0, 0, 1, 9}, {0xff, 0xff, 0xff, 0xff}, []byte("GET / HTTP/1.1\r\n\r\n"), wire.AppendFrame(nil, wire.Frame{Kind: wire.KindPing})} {
		c := s.raw()
		_, _ = c.Write(b)
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%q was answered with %d bytes", b, n)
		}
		_ = c.Close()
	}
	c := s.raw()
	b, _ := wire.AppendJSON(nil, wire.KindHello, 0, wire.Hello{Version: 99})
	_, _ = c.Write(b)
	f, err := wire.NewReader(c).ReadMessage()
	if err != nil || !strings.Contains(string(f.Payload), "another version") {
		t.Errorf("wrong version: %s %v", f.Payload, err)
	}
	_ = c.Close()
	h.ok("1+1") // the host that was there still is
}

func TestBackPressureAndReplay(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil, "--spool", "1000000")
	h := s.dial(0, true)
	h.start(1)
	r := newRun("for i in range(200000): print('line number', i)\nopen('done', 'w').close()")
	h.begin(r)
	// Nothing is acked: the kernel must stop, and be told of nothing lost.
	h.until("a full spool", func() bool {
		n := 0
		for _, e := range h.events {
			n += len(e.Data)
		}
		return n > 900000
	})
	pause(200 * time.Millisecond)
	if _, err := os.Stat(filepath.Join(s.dir, "done")); err == nil {
		t.Error("the run ended although nobody took its output")
	}
	h.mu.Lock()
	held := 0
	for _, e := range h.events {
		held += len(e.Data)
	}
	h.noAck = false
	last := h.last
	h.mu.Unlock()
	if held > 1400000 {
		t.Errorf("%d bytes were spooled, the bound is 1000000", held)
	}
	h.ack(last)
	o := h.finish(r.ID)
	if n := strings.Count(o.stdout, "\n"); n != 200000 || !strings.HasSuffix(o.stdout, "line number 199999\n") {
		t.Errorf("%d lines", n)
	}

	// Blocked again, it can still be interrupted.
	h.mu.Lock()
	h.noAck = true
	h.mu.Unlock()
	r = newRun("while True: print('x' * 100)")
	h.begin(r)
	h.until("a full spool", func() bool {
		n := 0
		for _, e := range h.events {
			if e.Run == r.ID {
				n += len(e.Data)
			}
		}
		return n > 900000
	})
	h.must(wire.Request{Op: wire.OpInterrupt, RunID: r.ID})
	h.event("interrupt", func(e wire.Event) bool { return e.Type == wire.EventInterrupt })
	h.mu.Lock()
	h.noAck = false
	last = h.last
	h.mu.Unlock()
	h.ack(last)
	if o := h.finish(r.ID); o.end.Status != wire.RunInterrupted {
		t.Errorf("end %+v", o.end)
	}
}

func TestOutputLimit(t *testing.T) {
	t.Parallel()
	s, h := testKernel(t, nil)
	const total = 100 << 20
	before := rss(t, s.proc.Pid)
	r := newRun("line = 'é' * 499 + '\\n'\nfor i in range(100 * 1024): print(line, end='') ; \nprint('THE END')")
	r.OutputLimit = 100000
	h.begin(r)
	from := time.Now()
	o := h.finish(r.ID)
	var omitted, lines int64
	var tail string
	for _, e := range o.all(wire.EventOmitted) {
		c := content[wire.Omitted](t, e)
		omitted += c.Bytes
		lines += c.Lines
		tail = string(e.Data)
	}
	const printed, printedLines = 999*100*1024 + 8, 100*1024 + 1
	if int64(len(o.stdout))+omitted != printed {
		t.Errorf("%d sent and %d omitted, want %d", len(o.stdout), omitted, printed)
	}
	if int64(strings.Count(o.stdout, "\n"))+lines != printedLines {
		t.Errorf("lines: %d sent and %d omitted, want %d", strings.Count(o.stdout, "\n"), lines, printedLines)
	}
	if len(o.stdout) > 100000 || len(o.stdout) < 99990 || strings.ToValidUTF8(o.stdout, "?") != o.stdout {
		t.Errorf("%d bytes sent whole", len(o.stdout))
	}
	if !strings.HasSuffix(tail, "THE END\n") || len(tail) > 32<<10 {
		t.Errorf("tail of %d bytes: %q", len(tail), tail[max(0, len(tail)-20):])
	}
	if n := len(o.all(wire.EventOmitted)); n > 3+int(time.Since(from)/time.Second) {
		t.Errorf("%d omitted events in %s", n, time.Since(from))
	}
	after := rss(t, s.proc.Pid)
	t.Logf("%d MiB in %s, guest memory %d → %d KiB", total>>20, time.Since(from), before>>10, after>>10)
	if after > before+24<<20 {
		t.Errorf("the guest grew from %d to %d", before, after)
	}
}

func rss(t *testing.T, pid int) int64 {
	t.Helper()
	st, ok := readStat(pid)
	if !ok {
		t.Fatalf("no process %d", pid)
	}
	return st.rss * int64(os.Getpagesize())
}

func TestSplitCharacters(t *testing.T) {
	t.Parallel()
	_, h := testKernel(t, nil)
	o := h.ok("import os, time\nb = 'ä€😀'.encode()\nfor i in range(len(b)):\n    os.write(1, b[i:i+1]); time.sleep(0.02)\nos.write(2, b'\\xff\\xc3')\nos.system('echo from a shell')")
	if o.stdout != "ä€😀from a shell\n" {
		t.Errorf("stdout %q", o.stdout)
	}
	if o.stderr != "\uFFFD\uFFFD" && o.stderr != "\uFFFD" {
		t.Errorf("stderr %q", o.stderr)
	}
}

func TestSignalsDoNotEndTheGuest(t *testing.T) {
	t.Parallel()
	s, h := testKernel(t, nil)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGABRT,
		syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGSEGV, syscall.SIGFPE, syscall.SIGBUS, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGXCPU, 34, 64} {
		signalOf(s.proc, sig)
	}
	if got := h.ok("1+1").result(); got != "2" {
		t.Errorf("result %q", got)
	}
}

func TestOrphanAndShutdown(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil, "--orphan", "300ms")
	select {
	case <-s.gone:
	case <-time.After(patience):
		t.Fatal("the orphan lives on")
	}
	if code := s.end.ExitCode(); code != ExitOrphan {
		t.Errorf("exit code %d, want %d", code, ExitOrphan)
	}
	s, h := testKernel(t, nil)
	pid := 0
	_, _ = fmt.Sscan(h.ok("import os; os.getpid()").result(), &pid)
	h.must(wire.Request{Op: wire.OpShutdown})
	select {
	case <-s.gone:
	case <-time.After(patience):
		t.Fatal("the guest does not end")
	}
	if code := s.end.ExitCode(); code != ExitShutdown {
		t.Errorf("exit code %d", code)
	}
	if st, ok := readStat(pid); ok && st.state != 'Z' {
		t.Error("the kernel outlives the guest")
	}
}

func TestManyZombies(t *testing.T) {
	t.Parallel()
	s, h := testKernel(t, nil)
	h.ok("import subprocess\nfor i in range(100): subprocess.Popen(['/bin/sh', '-c', 'true & true & true &'])")
	h.ok("import time; time.sleep(0.3)\nimport subprocess; subprocess._cleanup()")
	zombies := 0
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if st, ok := readStat(pid); ok && st.state == 'Z' && st.ppid == s.proc.Pid {
				zombies++
			}
		}
	}
	if zombies > 0 {
		t.Errorf("%d zombies", zombies)
	}
}

func TestPosture(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, []string{"MY_SECRET=1"})
	h := s.connect(0)
	by := map[string]wire.Check{}
	for _, c := range h.welcome.Posture {
		by[c.Name] = c
		if c.Detail == "" || !strings.HasSuffix(c.Detail, ".") {
			t.Errorf("%s has no sentence: %q", c.Name, c.Detail)
		}
	}
	if len(by) < 14 {
		t.Errorf("only %d checks", len(by))
	}
	// There is no sandbox here, and the guest must see that.
	for _, name := range []string{"seccomp", "user", "environment", "read_only", "processes"} {
		if by[name].OK && (name != "user" || os.Getuid() == 0) {
			t.Errorf("%s is said to hold: %s", name, by[name].Detail)
		}
	}
	for _, name := range []string{"workspace", "core_dumps"} {
		if !by[name].OK {
			t.Errorf("%s: %s", name, by[name].Detail)
		}
	}
}
