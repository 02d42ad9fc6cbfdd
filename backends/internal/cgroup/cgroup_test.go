package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseMounts(t *testing.T) {
	t.Parallel()
	const text = `25 20 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro
30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 /docker/abc /sys/fs/cgroup/memory ro shared:9 - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/uni\040fied rw - cgroup2 cgroup2 rw,nsdelegate
broken line
`
	got := parseMounts(text)
	want := []mount{
		{root: "/", dir: "/sys/fs/cgroup/cpu,cpuacct", controllers: []string{"rw", "cpu", "cpuacct"}},
		{root: "/docker/abc", dir: "/sys/fs/cgroup/memory", controllers: []string{"rw", "memory"}},
		{root: "/", dir: "/sys/fs/cgroup/uni fied", v2: true},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); d != "" {
		t.Error(d)
	}
}

func TestOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		root, path, want string
		ok               bool
	}{
		{"/", "/", "/m", true},
		{"/", "/a/b", "/m/a/b", true},
		{"/docker/abc", "/docker/abc", "/m", true},
		{"/docker/abc", "/docker/abc/x", "/m/x", true},
		{"/docker/abc", "/docker/abcd", "", false},
		{"/docker/abc", "/../..", "", false},
	} {
		got, ok := mount{root: c.root, dir: "/m"}.own(c.path)
		if got != c.want && c.ok || ok != c.ok {
			t.Errorf("root %s path %s: %q %v, want %q %v", c.root, c.path, got, ok, c.want, c.ok)
		}
	}
}

func TestParseSelf(t *testing.T) {
	t.Parallel()
	got := parseSelf("4:memory:/a:b\n1:cpu,cpuacct:/\n0::/user.slice/x\nnonsense\n")
	want := map[string]string{"memory": "/a:b", "cpu": "/", "cpuacct": "/", "": "/user.slice/x"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestUnified plays a version 2 host with plain files: what is written where.
func TestUnified(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	g := Group{V2: filepath.Join(base, "sandbook-x", "one"), Lim: []string{"memory", "pids", "cpu"}}
	if err := os.MkdirAll(g.V2, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"memory.max": "max", "memory.swap.max": "max", "pids.max": "max", "cpu.max": "max 100000",
		"memory.current": "4096\n", "memory.peak": "8192\n", "memory.events": "low 0\noom 3\noom_kill 2\n",
		"pids.current": "7\n", "cpu.stat": "usage_usec 1500\nuser_usec 1\n",
		"../cgroup.subtree_control": "memory pids cpu\n",
	} {
		if err := os.WriteFile(filepath.Join(g.V2, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Create(Limits{Memory: 1 << 20, CPU: 1500, Pids: 9}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"memory.max": "1048576", "memory.swap.max": "0", "pids.max": "9", "cpu.max": "150000 100000",
	} {
		got, err := os.ReadFile(filepath.Join(g.V2, name))
		if err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("%s is %q, want %q (%v)", name, got, want, err)
		}
	}
	want := Usage{Memory: 4096, Peak: 8192, Pids: 7, OOMKills: 2, CPU: 1500 * time.Microsecond}
	if d := cmp.Diff(want, g.Usage()); d != "" {
		t.Error(d)
	}
}

// detected is found out once, before any thread of the tests is in a group:
// the groups of a process are those of its first thread.
var detected = Detect(fmt.Sprintf("test-%d", os.Getpid()))

// host is this machine's, or a printed reason why not.
func host(t *testing.T) *Host {
	t.Helper()
	h := detected
	for _, c := range v2Wanted {
		if err := h.Refused(c); err != nil {
			t.Skipf("NOT TESTED: this process may not use the %s controller: %v", c, err)
		}
	}
	return h
}

// TestGroupLife makes a real group, runs a process that forks in it, kills it
// and finds nothing left.
func TestGroupLife(t *testing.T) {
	t.Parallel()
	h := host(t)
	g := h.Group("life")
	if err := g.Create(Limits{Memory: 64 << 20, CPU: 1000, Pids: 16}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = g.Kill(), g.Remove() })
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	startIn(t, g, cmd)
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if n := len(g.Procs()); n != 3 {
		t.Errorf("%d processes in the group, want 3", n)
	}
	if !slices.Contains(h.Stray(), "life") {
		t.Errorf("the group is not listed in %v", h.Stray())
	}
	if u := g.Usage(); u.Memory == 0 || u.Pids != 3 {
		t.Errorf("usage %+v", u)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if g.Exists() {
		t.Error("the group is still there")
	}
	if err := g.Kill(); err != nil {
		t.Errorf("kill of a group that is gone: %v", err)
	}
}

// TestLimitsHold: the counters, not exit codes, tell of memory and pids.
func TestLimitsHold(t *testing.T) {
	t.Parallel()
	h := host(t)
	g := h.Group("limits")
	if err := g.Create(Limits{Memory: 32 << 20, CPU: 1000, Pids: 8}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = g.Kill(), g.Remove() })
	cmd := exec.Command("/usr/bin/python3", "-c", "x = bytearray(1 << 28)\nprint(len(x))")
	startIn(t, g, cmd)
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL { //nolint:errcheck,forcetypeassert // Linux
		t.Errorf("a process over its memory limit ended with %v", err)
	}
	if u := g.Usage(); u.OOMKills != 1 || u.Peak < 16<<20 || u.Peak > 32<<20 {
		t.Errorf("usage %+v", u)
	}
}

// TestTotalOfUnified writes to files in the place of a version 2 hierarchy, which
// few hosts of the other kind have with controllers.
func TestTotalOfUnified(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	files := []string{"memory.max", "memory.swap.max", "pids.max"}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(parent, f), []byte("max"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := Group{V2: filepath.Join(parent, "id"), Lim: []string{"memory", "pids", "cpu"}}
	// A plain file keeps what a shorter value does not cover.
	for _, c := range []struct {
		total Total
		want  string
	}{
		{Total{}, "max max max"},
		{Total{Pids: 7}, "max max 7ax"},
		{Total{Memory: 4096, Pids: 640}, "4096 0ax 640"},
	} {
		if err := g.LimitTotal(c.total); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join(parent, f))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(b))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("after %+v the files hold %q, want %q", c.total, got, c.want)
		}
	}
}

// TestTotalHolds: groups of an install cannot use more together than their
// parent may, whatever each may by itself, and the total can be changed.
func TestTotalHolds(t *testing.T) {
	t.Parallel()
	h := *host(t)
	h.install += "-total"
	g, other := h.Group("a"), h.Group("b")
	t.Cleanup(func() { _, _, _, _ = g.Kill(), other.Kill(), g.Remove(), other.Remove() })
	for _, g := range []Group{g, other} {
		if err := g.Create(Limits{Memory: 512 << 20, CPU: 1000, Pids: 64}); err != nil {
			t.Fatal(err)
		}
	}
	for _, total := range []Total{{Memory: 128 << 20, Pids: 8}, {Memory: 96 << 20, Pids: 8}, {Memory: 160 << 20, Pids: 8}, {Memory: 64 << 20, Pids: 8}} {
		if err := g.LimitTotal(total); err != nil {
			t.Fatalf("total of %d MiB: %v", total.Memory>>20, err)
		}
	}
	holder := exec.Command("/usr/bin/python3", "-c", "x = bytearray(30 << 20)\nprint('up', flush=True)\nimport signal; signal.pause()")
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	startIn(t, other, holder)
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "-c", "x = bytearray(200 << 20)\nprint('all of it')")
	var printed strings.Builder
	cmd.Stdout = &printed
	startIn(t, g, cmd)
	if err := cmd.Wait(); err == nil || printed.Len() > 0 {
		t.Errorf("200 MiB of 64 MiB for all: %v %q", err, printed.String())
	}
	if u := g.Usage(); u.Peak > 64<<20 {
		t.Errorf("one group used %d bytes, want less than the 64 MiB for all", u.Peak)
	}
	forks := exec.Command("/usr/bin/python3", "-c", `
import os, signal
try:
    for _ in range(50):
        if os.fork() == 0: signal.pause()
    print("all of them", flush=True)
except OSError as e:
    print(e.errno, flush=True)`)
	forks.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var answer strings.Builder
	forks.Stdout = &answer
	startIn(t, g, forks)
	for deadline := time.Now().Add(20 * time.Second); len(g.Procs()) < 7 && time.Now().Before(deadline); {
		<-time.After(5 * time.Millisecond)
	}
	_, _ = g.Kill(), other.Kill()
	_, _ = forks.Wait(), holder.Wait()
	if got := answer.String(); got == "all of them\n" {
		t.Error("50 processes were started, want at most the 8 for all")
	}
}

// TestForksRefused: a fork over the limit is refused, the ones below are not.
func TestForksRefused(t *testing.T) {
	t.Parallel()
	h := host(t)
	g := h.Group("forks")
	if err := g.Create(Limits{Memory: 256 << 20, CPU: 1000, Pids: 8}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = g.Kill(), g.Remove() })
	cmd := exec.Command("/usr/bin/python3", "-c", `
import os, sys
n = 0
try:
    for _ in range(50):
        if os.fork() == 0:
            import signal; signal.pause()
        n += 1
except OSError as e:
    print(n, e.errno, flush=True)
os.killpg(0, 9)`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out strings.Builder
	cmd.Stdout = &out
	startIn(t, g, cmd)
	_ = cmd.Wait()
	if got := out.String(); got != "7 11\n" {
		t.Errorf("forks before refusal and errno: %q", got)
	}
}

// startIn starts a command inside the group, as the shim does.
func startIn(t *testing.T, g Group, cmd *exec.Cmd) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	v2, err := g.OpenV2()
	if err != nil {
		t.Fatal(err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if v2 != nil {
		defer v2.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(v2.Fd())
	}
	if err := g.EnterThread(syscall.Gettid()); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(cmd.Start(), g.LeaveThread(syscall.Gettid()))
	if err != nil {
		t.Fatal(err)
	}
}
