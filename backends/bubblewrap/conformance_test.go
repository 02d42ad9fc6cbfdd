package bubblewrap

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sandbook/backends"
	"sandbook/backends/backendtest"
)

// TestConformance runs the one suite of all backends against this one.
func TestConformance(t *testing.T) {
	guest := builtGuest(t)
	data := t.TempDir()
	run := filepath.Join(data, "run")
	install := fmt.Sprintf("test-%d", os.Getpid())
	open := func(install string) backends.Backend {
		b, err := New(Options{RunDir: run, Install: install, AllowUnlimited: os.Geteuid() != 0})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	backendtest.Run(t, open(install), backendtest.Options{
		Guest:   guest,
		Install: install,
		Python:  "/usr/bin/python3",
		Reopen:  func() backends.Backend { return open(install) },
		Foreign: func() (backends.Backend, string) { return open(install + "-other"), install + "-other" },
		Left:    func() []string { return left(run, install) },
		Secrets: []string{filepath.Join(data, "sandbook.db"), filepath.Join(data, "key")},
	})
}

// builtGuest is the built guest of this checkout.
func builtGuest(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("SANDBOOK_GUEST"); p != "" {
		return p
	}
	_, here, _, _ := runtime.Caller(0)
	p := filepath.Join(filepath.Dir(here), "../../kernel/guestbin/dist/sandbook-guest-linux-"+runtime.GOARCH)
	if _, err := os.Stat(p); err != nil {
		t.Fatalf("The guest is not built; run `make guest` first: %v", err)
	}
	return p
}

// left lists what sandboxes of an install left on the host.
func left(run, install string) []string {
	var out []string
	entries, _ := os.ReadDir(run)
	for _, e := range entries {
		out = append(out, "folder "+e.Name())
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "sandbook-"+install) {
			out = append(out, "group "+path)
		}
		return nil
	})
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, run) {
			out = append(out, "mount "+line)
		}
	}
	return out
}
