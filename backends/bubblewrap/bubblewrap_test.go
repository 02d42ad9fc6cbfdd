package bubblewrap

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sandbook/backends"
	"sandbook/backends/internal/cgroup"
	"sandbook/backends/internal/shim/job"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestMain fails if goroutines outlive the tests: a sandbox has none.
func TestMain(m *testing.M) {
	flag.Parse()
	before := runtime.NumGoroutine()
	code := m.Run()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		<-time.After(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before && code == 0 {
		buf := make([]byte, 1<<20)
		_, _ = fmt.Fprintf(os.Stderr, "%d goroutines are left of %d:\n%s\n", n, before, buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

var installs atomic.Int64

func backend(t *testing.T, dir string) (*Backend, backends.Spec) {
	t.Helper()
	install := fmt.Sprintf("unit-%d-%d", os.Getpid(), installs.Add(1)) // one test must not reap another's
	b, err := New(Options{RunDir: dir, Install: install, AllowUnlimited: os.Geteuid() != 0})
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	return b, backends.Spec{
		ID:     backends.ID(name[max(0, len(name)-60):]),
		Labels: backends.Labels{Install: install, Notebook: "n", Boot: 1},
		Guest:  builtGuest(t),
	}
}

func start(t *testing.T, b *Backend, sp backends.Spec) *sandbox {
	t.Helper()
	sb, err := b.Start(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := sb.(*sandbox)
	if !ok {
		t.Fatal("not ours")
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Kill(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestOptions: B03, any drift of the construction shows in review.
func TestOptions(t *testing.T) {
	t.Parallel()
	rt := hostRuntime{
		links: [][2]string{{"usr/bin", "/bin"}, {"usr/lib", "/lib"}}, binds: []string{"/usr", "/etc/fonts"},
		masks: []string{"/proc/keys"}, maskDirs: []string{"/proc/acpi"},
	}
	spec := backends.Spec{Guest: "/data/guest", Args: []string{"--x"}, Env: []string{"LANG=de"}, Mounts: []backends.Mount{{Source: "/data/lib", Target: "/opt/lib"}}}
	spec.Limits = spec.Limits.WithDefaults()
	var b strings.Builder
	for _, a := range options(rt, spec) {
		if strings.HasPrefix(a, "--") && b.Len() > 0 {
			b.WriteString("\n")
		}
		b.WriteString(a + " ")
	}
	b.WriteString("\n\n" + strings.Join(argv(spec, true), " ") + "\n\n")
	fonts := &fontList{path: "/data/cache/key-fontlist-v1.json", name: "fontlist-v1.json"}
	for _, n := range append(tree(rt, spec), fonts.node()) {
		fmt.Fprintf(&b, "%s %s %s %q\n", n.Kind, n.Path, n.Source, n.Text)
	}
	got := b.String()
	const golden = "testdata/options.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("the construction has changed; look, then run with -update:\n%s", d)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	b, _ := backend(t, t.TempDir())
	caps, err := b.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{backends.CapNamespaces, backends.CapSeccomp, backends.CapNoNetwork, backends.CapWorkspace, backends.CapKillAll, backends.CapAttach} {
		if !caps.Has(c) {
			t.Errorf("%s is not enforced", c)
		}
	}
	if n := len(caps.Enforced) + len(caps.Missing); n != 9 {
		t.Errorf("%d capabilities are spoken of, want 9: %+v", n, caps)
	}
	for _, g := range caps.Missing {
		if !strings.HasSuffix(g.Why, ".") || !strings.HasSuffix(g.Fix, ".") {
			t.Errorf("no sentences: %+v", g)
		}
	}
}

// TestProbeNeedsNoProgramOfTheHost: the trial copied /bin/true to another name,
// under which the one program of busybox or uutils does not know what it is.
func TestProbeNeedsNoProgramOfTheHost(t *testing.T) {
	t.Parallel()
	b, _ := backend(t, t.TempDir())
	h, err := b.look()
	if err != nil {
		t.Fatal(err)
	}
	h.runtime = hostRuntime{} // no /usr, and so no program and no library
	b.setup = func() (host, error) { return h, nil }
	if err := b.trial(t.Context()); err != nil {
		t.Errorf("a trial without any program of the host: %v", err)
	}
}

// TestUnlimited: kernels without a memory limit are an administrator's choice,
// made in so many words. Otherwise there are none, and a sentence says what to do.
func TestUnlimited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refused error
		allowed bool
		starts  bool
	}{
		"limited":                 {starts: true},
		"limited and allowed":     {allowed: true, starts: true},
		"not limited":             {refused: errors.New("mkdir: permission denied")},
		"not limited but allowed": {refused: errors.New("mkdir: permission denied"), allowed: true, starts: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, sp := backend(t, t.TempDir())
			h, err := b.look()
			if err != nil {
				t.Fatal(err)
			}
			if c.refused == nil && h.cgroup.Refused("memory") != nil {
				t.Skipf("NOT TESTED: this user may not make control groups: %v", h.cgroup.Refused("memory"))
			}
			if c.refused != nil {
				h.cgroup = cgroup.None(c.refused)
			}
			b.setup, b.opts.AllowUnlimited = func() (host, error) { return h, nil }, c.allowed
			caps, err := b.Probe(t.Context())
			if c.starts {
				if err != nil || caps.Has(backends.CapMemory) != (c.refused == nil) || !caps.Has(backends.CapPids) {
					t.Errorf("probe: enforced %v, missing %v, %v", caps.Enforced, caps.Missing, err)
				}
				start(t, b, sp)
				return
			}
			_, startErr := b.Start(t.Context(), sp)
			for what, err := range map[string]error{"probe": err, "start": startErr} {
				if err == nil || !strings.Contains(err.Error(), "Delegate=yes") || !strings.Contains(err.Error(), "--allow-unlimited") || !strings.HasSuffix(err.Error(), ".") {
					t.Errorf("%s: %v, want a sentence with both ways out", what, err)
				}
			}
		})
	}
}

func TestCountsProcesses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		release string
		root    bool
		want    bool
	}{
		{"5.10.0-28-amd64", false, false}, {"5.10.0-28-amd64", true, true}, {"5.13.19", false, false}, {"5.14.0", false, true},
		{"5.15.0-91-generic", false, true}, {"6.1", false, true}, {"6.18.44-fc", false, true}, {"4.19.0", false, false}, {"", false, false}, {"x.y", false, false},
	} {
		if got := countsProcesses(c.release, c.root); got != c.want {
			t.Errorf("Linux %q, root %v: %v, want %v", c.release, c.root, got, c.want)
		}
	}
}

// TestExplain: a host that cannot isolate gets one sentence with the fix.
func TestExplain(t *testing.T) {
	t.Parallel()
	cause := errors.New("bwrap: setting up uid map: Permission denied")
	for name, c := range map[string]struct {
		facts facts
		want  string
	}{
		"debian":    {facts{usernsClone: "0"}, "kernel.unprivileged_userns_clone=1"},
		"ubuntu":    {facts{apparmorUsern: "1", maxUserns: "9"}, "apparmor_restrict_unprivileged_userns=0"},
		"off":       {facts{maxUserns: "0"}, "user.max_user_namespaces"},
		"container": {facts{container: true}, "--cap-add SYS_ADMIN"},
		"unknown":   {facts{}, "web doctor"},
	} {
		got := explain(cause, c.facts).Error()
		if !strings.Contains(got, c.want) || !strings.Contains(got, "Permission denied") || !strings.HasSuffix(got, ".") || strings.Contains(got, "..") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestNotInstalled(t *testing.T) {
	b, sp := backend(t, t.TempDir())
	t.Setenv("PATH", t.TempDir())
	if _, err := b.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "apt install bubblewrap") {
		t.Errorf("probe: %v", err)
	}
	if _, err := b.Start(t.Context(), sp); err == nil || !strings.Contains(err.Error(), "apt install bubblewrap") {
		t.Errorf("start: %v", err)
	}
}

// TestBadFilter: S09, a filter that cannot be loaded means no guest.
func TestBadFilter(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string][]byte{
		"empty": {}, "odd length": make([]byte, 13), "nonsense": []byte(strings.Repeat("\xff", 64)), "no return": make([]byte, 16),
	} {
		b, sp := backend(t, t.TempDir())
		h, err := b.look()
		if err != nil {
			t.Fatal(err)
		}
		h.filter = filter
		b.setup = func() (host, error) { return h, nil }
		sb, err := b.Start(t.Context(), sp)
		if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		if _, err := sb.Conn().Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: something answered", name)
		}
		e, err := sb.Wait(t.Context())
		if err != nil || e.Code == 0 || !strings.Contains(e.Detail, "bwrap") {
			t.Errorf("%s: %+v %v", name, e, err)
		}
	}
}

// TestLongPath: a run directory may be deeper than a socket's path may be long.
func TestLongPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 6 {
		dir = filepath.Join(dir, strings.Repeat("d", 40))
	}
	b, sp := backend(t, dir)
	s := start(t, b, sp)
	again, err := b.Attach(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Conn().Close()
}

// TestShimKilled: whoever ends the shim ends the sandbox, and what is left is
// found and removed by the next server.
func TestShimKilled(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	b, sp := backend(t, run)
	s := start(t, b, sp)
	inside := children(s.pid)
	if len(inside) == 0 {
		t.Fatal("the shim has no children")
	}
	if err := syscall.Kill(s.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e, err := s.Wait(t.Context())
	if err != nil || e.Cause != backends.Lost {
		t.Errorf("%+v %v", e, err)
	}
	gone(t, inside)
	nothing(t, run, b.opts.Install, sp.ID)

	// The same, with nobody there to see it.
	s = start(t, b, sp)
	inside = children(s.pid)
	if err := syscall.Kill(s.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := waitFor(t.Context(), s.pidfd); err != nil {
		t.Fatal(err)
	}
	later, err := New(b.opts) // as the next server would
	if err != nil {
		t.Fatal(err)
	}
	if _, err := later.Attach(t.Context(), sp.ID); !errors.Is(err, backends.ErrGone) {
		t.Errorf("attach: %v", err)
	}
	if err := later.Reap(t.Context(), b.opts.Install, nil); err != nil {
		t.Errorf("reap: %v", err)
	}
	gone(t, inside)
	nothing(t, run, b.opts.Install, sp.ID)
}

// TestShimIsAlone: the shim shares nothing with the server that started it.
func TestShimIsAlone(t *testing.T) {
	t.Setenv("SANDBOOK_TEST_SECRET", "canary-of-the-server")
	b, sp := backend(t, t.TempDir())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, r.Fd(), syscall.F_SETFD, 0)
	s := start(t, b, sp)
	for _, pid := range append(children(s.pid), s.pid) {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && strings.Contains(string(env), "canary") {
			t.Errorf("process %d has the server's environment", pid)
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(line), b.opts.RunDir) {
			t.Errorf("process %d names the run directory: %q", pid, line)
		}
	}
	ours, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", r.Fd()))
	for _, pid := range children(s.pid) {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); to == ours {
				t.Errorf("process %d inherited the server's pipe", pid)
			}
		}
	}
	if sid, _ := session(s.pid); sid != s.pid {
		t.Errorf("the shim is in session %d", sid)
	}
}

// TestStrayGroups: a group of the install without a directory is a left-over.
func TestStrayGroups(t *testing.T) {
	t.Parallel()
	b, _ := backend(t, t.TempDir())
	h, err := b.setup()
	if err != nil {
		t.Fatal(err)
	}
	if len(h.cgroup.Limits()) == 0 {
		t.Skipf("NOT TESTED: this process may make no control groups: %v", h.cgroup.Refused("memory"))
	}
	other := cgroup.Detect(b.opts.Install + "-x")
	foreign, mine, kept := other.Group("foreign"), h.cgroup.Group("stray"), h.cgroup.Group("kept")
	for _, g := range []cgroup.Group{foreign, mine, kept} {
		if err := g.Create(cgroup.Limits{Memory: 1 << 24, CPU: 100, Pids: 8}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Remove() })
	}
	if err := b.Reap(t.Context(), b.opts.Install, []backends.ID{"kept"}); err != nil {
		t.Fatal(err)
	}
	if mine.Exists() || !kept.Exists() || !foreign.Exists() {
		t.Errorf("mine %v, kept %v, foreign %v", mine.Exists(), kept.Exists(), foreign.Exists())
	}
}

// TestSwapCounts: M03 as far as a host without swap can show it.
func TestSwapCounts(t *testing.T) {
	t.Parallel()
	b, sp := backend(t, t.TempDir())
	sp.Limits.Memory = 64 << 20
	s := start(t, b, sp)
	dir := s.group.V1["memory"]
	if dir == "" {
		t.Skip("NOT TESTED: memory is not limited by a version 1 group here.")
	}
	for _, f := range []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"} {
		text, err := os.ReadFile(filepath.Join(dir, f))
		if n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil || n != 64<<20 {
			t.Errorf("%s is %q (%v)", f, text, err)
		}
	}
}

// TestHostUsers: two sandboxes never share a host user, nor do a live one and
// one of a later server.
func TestHostUsers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: an ordinary user has no other host users to give.")
	}
	run := t.TempDir()
	b, sp := backend(t, run)
	later, err := New(b.opts) // as the next server would
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for i, by := range []*Backend{b, b, later} {
		sp.ID = backends.ID(fmt.Sprintf("users-%d", i))
		s := start(t, by, sp)
		for _, pid := range children(s.pid) {
			var st syscall.Stat_t
			if err := syscall.Stat(fmt.Sprintf("/proc/%d", pid), &st); err != nil {
				t.Fatal(err)
			}
			if seen[st.Uid] || st.Uid < firstUID {
				t.Errorf("sandbox %d runs as %d, others as %v", i, st.Uid, seen)
			}
			seen[st.Uid] = true
			break
		}
	}
	if len(seen) != 3 {
		t.Errorf("%v", seen)
	}
}

func TestExitOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want backends.Cause
	}{
		"clean":     {`{"code":0}`, backends.Exited},
		"code":      {`{"code":3}`, backends.Exited},
		"orphan":    {`{"code":75}`, backends.Orphaned},
		"signal":    {`{"signal":11}`, backends.Signaled},
		"oom":       {`{"signal":9,"usage":{"OOMKills":1}}`, backends.OutOfMem},
		"child oom": {`{"code":0,"usage":{"OOMKills":1}}`, backends.Exited},
		"killed":    {`{"signal":9,"killed":true}`, backends.KilledByUs},
		"nothing":   {``, backends.Lost},
		"torn":      {`{"code":`, backends.Lost},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, job.ExitFile), []byte(c.in), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readExit(dir); got.Cause != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
	if got := readExit(filepath.Join(t.TempDir(), "missing")); got.Cause != backends.Lost {
		t.Errorf("%+v", got)
	}
}

// TestHalfMade: what a killed server leaves in the middle of a start is no
// sandbox, and goes in time.
func TestHalfMade(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	b, sp := backend(t, run)
	half := filepath.Join(run, ".new-half")
	if err := os.MkdirAll(half, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * staleNew)
	if err := os.Chtimes(half, old, old); err != nil {
		t.Fatal(err)
	}
	alien := filepath.Join(run, "somebody")
	text, _ := json.Marshal(labels{ID: "somebody", Labels: backends.Labels{Install: "else"}})
	if err := errors.Join(os.MkdirAll(alien, 0o700), os.WriteFile(filepath.Join(alien, job.LabelsFile), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := b.Reap(t.Context(), sp.Labels.Install, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(half); err == nil {
		t.Error("the half-made directory is still there")
	}
	if _, err := os.Stat(alien); err != nil {
		t.Error("another install's directory is gone")
	}
}

func children(pid int) []int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var out []int
	for f := range strings.FieldsSeq(string(text)) {
		n, _ := strconv.Atoi(f)
		out = append(append(out, n), children(n)...)
	}
	return out
}

func session(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return strconv.Atoi(f[3])
}

// gone waits until none of the processes is left.
func gone(t *testing.T, pids []int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for _, pid := range pids {
		for syscall.Kill(pid, 0) == nil {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is still there", pid)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
}

// nothing checks that no directory and no group of a sandbox is left.
func nothing(t *testing.T, run, install string, id backends.ID) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(run, string(id))); err == nil {
		t.Errorf("the directory of %s is left", id)
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == string(id) && strings.Contains(path, install) {
			t.Errorf("%s is left", path)
		}
		return nil
	})
}

// BenchmarkStart measures a sandbox from nothing to a connection.
func BenchmarkStart(b *testing.B) {
	install := fmt.Sprintf("bench-%d", os.Getpid())
	be, err := New(Options{RunDir: b.TempDir(), Install: install})
	if err != nil {
		b.Fatal(err)
	}
	guest := builtGuest(b)
	for i := 0; b.Loop(); i++ {
		s, err := be.Start(b.Context(), backends.Spec{
			ID: backends.ID(fmt.Sprintf("b%d", i)), Labels: backends.Labels{Install: install}, Guest: guest,
		})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Kill(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
