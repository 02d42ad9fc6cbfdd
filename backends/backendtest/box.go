package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sandbook/backends"
	"sandbook/kernel/wire"
)

// probePath is where sandboxes see the probe program.
const probePath = "/opt/probe/probe"

// box is a sandbox with a conversation.
type box struct {
	backends.Sandbox
	*client
}

// spec completes what a row chose.
func (s *suite) spec(sp backends.Spec) backends.Spec {
	s.mu.Lock()
	s.n++
	n := s.n
	s.mu.Unlock()
	if sp.ID == "" {
		sp.ID = backends.ID(fmt.Sprintf("t%d-%s", n, random()))
	}
	if sp.Labels.Install == "" {
		sp.Labels.Install = s.opts.Install
	}
	if sp.Labels.Notebook == "" {
		sp.Labels = backends.Labels{Install: sp.Labels.Install, Notebook: "nb", Boot: n}
	}
	if sp.Guest == "" {
		sp.Guest = s.opts.Guest
	}
	sp.Mounts = append(sp.Mounts, backends.Mount{Source: s.probe, Target: filepath.Dir(probePath)})
	return sp
}

// open starts a sandbox that ends with the test.
func (s *suite) open(t *T, sp backends.Spec) *box {
	t.Helper()
	return s.openWith(t, s.b, sp)
}

func (s *suite) openWith(t *T, b backends.Backend, sp backends.Spec) *box {
	t.Helper()
	sb, err := b.Start(t.ctx, s.spec(sp))
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := sb.Kill(ctx); err != nil {
			t.Errorf("kill %s: %v", sb.ID(), err)
		}
	})
	c, err := connect(sb.Conn())
	if err != nil {
		t.Fatalf("talk to the guest: %v", err)
	}
	t.Cleanup(c.close)
	return &box{sb, c}
}

// a and b are the two sandboxes that all harmless rows share.
func (t *T) a() *box     { return t.shared[0] }
func (t *T) other() *box { return t.shared[1] }

// exec runs a command in a sandbox and keeps what it printed for the canary.
func (t *T) exec(b *box, argv ...string) result {
	t.Helper()
	r, err := b.run(t.ctx, argv...)
	t.keep(r.out + r.err)
	if err != nil {
		t.Fatalf("run %v: %v", argv, err)
	}
	return r
}

func (t *T) keep(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.texts = append(t.texts, text)
}

// try runs the probe and decodes what it printed.
func try[R any](t *T, b *box, args ...string) R {
	t.Helper()
	r := t.exec(b, append([]string{probePath}, args...)...)
	var out R
	if err := json.Unmarshal([]byte(r.out), &out); err != nil {
		t.Fatalf("probe %v: code %d signal %d, printed %q %q", args, r.Code, r.Signal, clip(r.out), clip(r.err))
	}
	return out
}

// python runs a snippet and returns what it printed.
func (t *T) python(b *box, code string) string {
	t.Helper()
	if t.opts.Python == "" {
		t.unenforced("the backend's runtime has no Python")
	}
	r := t.exec(b, t.opts.Python, "-I", "-c", code)
	if r.Code != 0 || r.Signal != 0 {
		t.Fatalf("python: code %d signal %d: %s", r.Code, r.Signal, clip(r.err))
	}
	return strings.TrimSpace(r.out)
}

// alive checks that a sandbox still answers.
func (t *T) alive(b *box) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	r, err := b.run(ctx, "/bin/echo", "alive")
	if err != nil || r.out != "alive\n" {
		t.Errorf("sandbox %s does not answer: %q %v", b.ID(), r.out, err)
	}
}

// ends kills a sandbox and returns how it ended.
func (t *T) ends(b *box) backends.Exit {
	t.Helper()
	if err := b.Kill(t.ctx); err != nil {
		t.Errorf("kill: %v", err)
	}
	e, err := b.Wait(t.ctx)
	if err != nil {
		t.Errorf("wait: %v", err)
	}
	return e
}

// waits waits for a sandbox that ends by itself.
func (t *T) waits(b *box) backends.Exit {
	t.Helper()
	e, err := b.Wait(t.ctx)
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return e
}

// usage reads the host's counters.
func (t *T) usage(b *box) backends.Usage {
	t.Helper()
	u, ok := b.Sandbox.(backends.Usager)
	if !ok {
		t.unenforced("the backend has no counters")
	}
	got, err := u.Usage()
	if err != nil {
		t.Fatalf("usage: %v", err)
	}
	return got
}

// shutdown asks the guest to end.
func (t *T) shutdown(b *box) {
	t.Helper()
	if _, err := b.request(t.ctx, wire.Request{Op: wire.OpShutdown}); err != nil {
		t.Logf("shutdown: %v", err)
	}
}

// hostProcs lists host processes whose command line holds a marker.
func hostProcs(marker string) []int {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var out []int
	for _, p := range paths {
		b, err := os.ReadFile(p) //nolint:gosec // proc
		if err != nil || !strings.Contains(string(b), marker) {
			continue
		}
		var pid int
		_, _ = fmt.Sscanf(p, "/proc/%d/", &pid)
		out = append(out, pid)
	}
	return out
}

// expect compares errno by path or name.
func (t *T) expect(got map[string]int, want ...syscall.Errno) {
	t.Helper()
	if len(got) == 0 {
		t.Error("the probe tried nothing")
	}
	for what, n := range got {
		ok := false
		for _, w := range want {
			ok = ok || n == int(w)
		}
		if !ok {
			t.Errorf("%s: %v, want one of %v", what, errnoText(n), want)
		}
	}
}

func errnoText(n int) string {
	if n == 0 {
		return "it worked"
	}
	return fmt.Sprintf("%v (%d)", syscall.Errno(n), n) //nolint:gosec // an errno
}

func clip(s string) string {
	if len(s) > 600 {
		return s[:600] + "…"
	}
	return s
}

func clearCloexec(fd uintptr) {
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETFD, 0)
}

// isGone reports whether an error says that there is no such sandbox.
func isGone(err error) bool { return errors.Is(err, backends.ErrGone) }
