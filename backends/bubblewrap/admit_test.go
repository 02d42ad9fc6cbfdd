package bubblewrap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sandbook/backends"
)

func TestFull(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	uses := func(memory ...int64) []use {
		var out []use
		for i, m := range memory {
			out = append(out, use{id: backends.ID(strconv.Itoa(i)), memory: m})
		}
		return out
	}
	for name, c := range map[string]struct {
		running  []use
		starting int
		memory   int64
		want     string
	}{
		"none":                    {memory: gib},
		"some":                    {running: uses(gib/4, gib/4), memory: gib},
		"as many as there may be": {running: uses(1, 1, 1), memory: gib, want: "3 sandboxes are running"},
		"with those that start":   {running: uses(1), starting: 2, memory: gib, want: "3 sandboxes are running"},
		"little memory is left":   {running: uses(gib/2, gib*45/100), memory: gib, want: "use 0.9 GiB of the 1.0 GiB"},
		"memory is not limited":   {running: uses(gib, gib), memory: 0},
		"one that starts":         {starting: 1, memory: gib},
	} {
		got := full(3, c.memory, c.running, c.starting)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestTotal(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for host, want := range map[int64]int64{24 * gib: 22 * gib, 4 * gib: 2 * gib, 2 * gib: gib, 1 * gib: gib / 2, 0: 0} {
		if got := defaultTotal(host); got != want {
			t.Errorf("of %d bytes of the machine: %d, want %d", host, got, want)
		}
	}
	b, sp := backend(t, t.TempDir())
	b.opts.TotalMemory, b.opts.MaxSandboxes = gib, 2
	l := sp.Limits.WithDefaults()
	l.Pids = 100
	if got := b.total(l); got.Memory != l.Memory || got.Pids != 200 {
		t.Errorf("%+v, want what one sandbox may have and 200 processes", got)
	}
	if hostMemory() < 64<<20 {
		t.Errorf("the machine has %d bytes of memory", hostMemory())
	}
}

// TestNoMoreSandboxes: a server has as many sandboxes as it may, also when many
// start at one time and when some are those of an earlier server; then it says
// which ones to stop.
func TestNoMoreSandboxes(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	b, sp := backend(t, run)
	b.opts.MaxSandboxes = 2
	later, err := New(b.opts) // as the next server would
	if err != nil {
		t.Fatal(err)
	}
	try := func(by *Backend, name string) (backends.Sandbox, error) {
		sp := sp
		sp.ID, sp.Labels.Notebook = backends.ID("full-"+name), "notebook-"+name
		return by.Start(t.Context(), sp)
	}
	type result struct {
		sb  backends.Sandbox
		err error
	}
	results := make([]result, 6)
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() { results[i].sb, results[i].err = try(b, strconv.Itoa(i)) })
	}
	all.Wait()
	var live []backends.Sandbox
	for i, r := range results {
		var full *backends.FullError
		switch {
		case r.err == nil:
			live = append(live, r.sb)
			t.Cleanup(func() { _ = r.sb.Kill(t.Context()) })
		case !errors.As(r.err, &full):
			t.Errorf("start %d: %v", i, r.err)
		}
	}
	if len(live) != 2 {
		t.Fatalf("%d sandboxes started, want 2", len(live))
	}
	_, err = try(later, "later")
	var full *backends.FullError
	if !errors.As(err, &full) || len(full.Notebooks) != 2 {
		t.Fatalf("a third sandbox, by a later server: %v, want a refusal that knows the two", err)
	}
	for _, n := range full.Notebooks {
		if !strings.Contains(err.Error(), n) {
			t.Errorf("%q does not name %s", err, n)
		}
	}
	if err := live[0].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb, err := try(later, "later")
	if err != nil {
		t.Fatalf("after one was stopped: %v", err)
	}
	if err := errors.Join(sb.Kill(t.Context()), live[1].Kill(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestTogether: the group of all sandboxes has limits, too.
func TestTogether(t *testing.T) {
	t.Parallel()
	b, sp := backend(t, t.TempDir())
	b.opts.TotalMemory, b.opts.MaxSandboxes = 3<<30, 3
	s := start(t, b, sp)
	file := func(dir, name string) string {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(text))
	}
	var memory, pids string
	switch {
	case s.group.V1["memory"] != "" && s.group.V1["pids"] != "":
		memory, pids = file(s.group.V1["memory"], "memory.limit_in_bytes"), file(s.group.V1["pids"], "pids.max")
	case len(s.group.Lim) > 0:
		memory, pids = file(s.group.V2, "memory.max"), file(s.group.V2, "pids.max")
	default:
		t.Skip("NOT TESTED: this user may not make control groups.")
	}
	want := fmt.Sprint(b.total(sp.Limits.WithDefaults()).Pids)
	if memory != fmt.Sprint(3<<30) || pids != want {
		t.Errorf("all together may have %s bytes and %s processes, want %d and %s", memory, pids, 3<<30, want)
	}
}
