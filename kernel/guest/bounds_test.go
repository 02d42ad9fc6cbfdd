package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandbook/kernel/wire"
)

// TestBounds: kernels and commands have the limits they were given from their
// first moment on, and the guest does not.
func TestBounds(t *testing.T) {
	t.Parallel()
	s, h := testKernel(t, nil, "--files", "300", "--processes", "54321")
	const ask = "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_NPROC))"
	const want = "(300, 300) (54321, 54321)\n"
	if got := h.ok(ask).stdout; got != want {
		t.Errorf("limits of a kernel %q, want %q", got, want)
	}
	command := func(argv ...string) (wire.Reply, string) {
		const number = 40
		id := h.post(wire.Request{Op: wire.OpCommand, Cmd: &wire.Command{Argv: argv, TimeoutMS: 10_000}}, number)
		rep := h.reply(id)
		h.mu.Lock()
		defer h.mu.Unlock()
		out := ""
		if b := h.streams[number]; b != nil {
			out = b.String()
		}
		delete(h.streams, number)
		return rep, out
	}
	if rep, got := command("python3", "-c", ask); rep.Error != "" || got != want {
		t.Errorf("limits of a command %q %s, want %q", got, rep.Error, want)
	}
	for _, tc := range []struct{ program, want string }{
		{"/nowhere", "could not be started"}, {"/etc/passwd", "could not be started"}, {"/tmp", "could not be started"},
	} {
		if rep, _ := command(tc.program); !strings.Contains(rep.Error, tc.want) {
			t.Errorf("the command %s: error %q, want one with %q", tc.program, rep.Error, tc.want)
		}
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", s.proc.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(own)) {
		if strings.HasPrefix(line, "Max open files") && strings.Contains(line, " 300 ") {
			t.Errorf("the guest has the limit of what it starts: %s", line)
		}
	}
}

// TestRequestIsSent: what cannot take its descriptors along goes without, and
// what cannot be sent at all is told.
func TestRequestIsSent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		refuse  syscall.Errno // while there are descriptors
		broken  syscall.Errno // whatever there is
		without bool
		failed  error
	}{
		"goes":                           {},
		"too many descriptors in flight": {refuse: syscall.ETOOMANYREFS, without: true},
		"descriptors are refused":        {refuse: syscall.EBADF, failed: syscall.EBADF},
		"nobody reads":                   {broken: syscall.EPIPE, failed: syscall.EPIPE},
		"too many, and nobody reads":     {refuse: syscall.ETOOMANYREFS, broken: syscall.EPIPE, failed: syscall.EPIPE},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []byte
			with := 0
			sent := make(chan error, 2)
			d := &driver{failed: func(err error) { sent <- err }}
			d.ready = sync.NewCond(&d.mu)
			d.send = func(_ int, data []byte, fds []int, flags int) (int, error) {
				switch {
				case flags&syscall.MSG_DONTWAIT != 0:
					return 0, syscall.EAGAIN
				case len(fds) > 0 && tc.refuse != 0:
					return 0, tc.refuse
				case tc.broken != 0:
					return 0, tc.broken
				}
				n := min(len(data), 7) // in pieces
				got = append(got, data[:n]...)
				with += len(fds)
				if n == len(data) {
					sent <- nil
				}
				return n, nil
			}
			r, w, err := pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll([]int{r})
			d.request(runRequest{Type: "run", Code: "1 + 1"}, w)
			written := make(chan struct{})
			go func() { defer close(written); d.write() }()
			select {
			case err := <-sent:
				if !errors.Is(err, tc.failed) {
					t.Errorf("failed with %v, want %v", err, tc.failed)
				}
			case <-time.After(patience):
				t.Fatal("the request was neither sent nor given up")
			}
			d.mu.Lock()
			d.done = true
			d.ready.Signal()
			d.mu.Unlock()
			<-written
			if tc.failed != nil {
				return
			}
			want := 1
			if tc.without {
				want = 0
			}
			if with != want || !strings.Contains(string(got), "1 + 1") {
				t.Errorf("sent %q with %d descriptors, want %d", got, with, want)
			}
		})
	}
}

// TestKernelThatCannotBeReachedEnds: a kernel to which nothing can be sent is
// ended with a reason, and the run does not wait for ever.
func TestKernelThatCannotBeReachedEnds(t *testing.T) {
	t.Parallel()
	s, h := testKernel(t, nil)
	h.ok(`
import os, socket, time
s = socket.socket(fileno=os.dup(3))
if not os.fork():
    while not os.path.exists('go'): time.sleep(0.01)
    os.kill(os.getppid(), 19)
    s.shutdown(socket.SHUT_RD)
    open('stopped', 'w').close()
    os._exit(0)
`)
	if err := os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; pause(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(s.dir, "stopped")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the code did not stop its kernel")
		}
	}
	o := h.run("1 + 1")
	if o.end.Status != wire.RunKilled || !strings.Contains(o.end.Reason, "handed") {
		t.Errorf("the run ended as %q for %q, want killed because nothing can be handed over", o.end.Status, o.end.Reason)
	}
	died := content[wire.Died](t, h.ofType(wire.EventDied))
	if !strings.Contains(died.Reason, "handed") {
		t.Errorf("the kernel ended for %q, want a reason that says nothing can be handed over", died.Reason)
	}
}
