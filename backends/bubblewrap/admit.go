package bubblewrap

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"

	"sandbook/backends"
	"sandbook/backends/internal/cgroup"
)

// What all sandboxes of an install may use together, where nobody chose.
const (
	defaultSandboxes = 32
	hostReserve      = 2 << 30 // bytes left to the rest of the machine
)

// fullAt is the part of all memory, in hundredths, from which on no further
// sandbox starts: the next one would make those that run lose theirs.
const fullAt = 90

// defaultTotal is the memory of all sandboxes together on a host with so much.
func defaultTotal(host int64) int64 { return max(host-hostReserve, host/2) }

// hostMemory reads how much memory the machine has; 0 if it does not say.
func hostMemory() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("MemTotal:")); ok {
			kb, _ := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// total limits the sandboxes of this install together. One may always have
// what it is allowed by itself.
func (b *Backend) total(l backends.Limits) cgroup.Total {
	t := cgroup.Total{Memory: b.opts.TotalMemory, Pids: l.Pids * int64(b.opts.MaxSandboxes)}
	if t.Memory > 0 {
		t.Memory = max(t.Memory, l.Memory)
	}
	if most := systemPids() / 2; most > 0 {
		t.Pids = max(l.Pids, min(t.Pids, most))
	}
	return t
}

// systemPids is how many processes and threads the machine may have.
func systemPids() int64 {
	least := int64(0)
	for _, path := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		b, err := os.ReadFile(path) //nolint:gosec // fixed paths
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64); err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// admit reserves a place for a sandbox that starts, or says which ones to stop.
// The caller gives it back with admitted once the sandbox runs or has failed.
func (b *Backend) admit(h host, spec backends.Spec) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	running := b.running(h)
	starting := len(b.starting)
	for _, r := range running {
		if _, again := b.starting[r.id]; again {
			starting-- // is seen already
		}
	}
	if why := full(b.opts.MaxSandboxes, b.total(spec.Limits).Memory, running, starting); why != "" {
		e := &backends.FullError{Why: why}
		for _, r := range running {
			e.Notebooks = append(e.Notebooks, r.notebook)
		}
		return e
	}
	if b.starting == nil {
		b.starting = map[backends.ID]struct{}{}
	}
	b.starting[spec.ID] = struct{}{}
	return nil
}

// full says why no further sandbox may start, or nothing.
func full(most int, memory int64, running []use, starting int) string {
	var used int64
	for _, r := range running {
		used += r.memory
	}
	switch n := len(running) + starting; {
	case n >= most:
		return fmt.Sprintf("%d sandboxes are running, as many as this server may have.", n)
	case len(running) > 0 && memory > 0 && used > memory/100*fullAt:
		return fmt.Sprintf("The running sandboxes use %.1f GiB of the %.1f GiB of memory they may use together.", float64(used)/(1<<30), float64(memory)/(1<<30))
	}
	return ""
}

func (b *Backend) admitted(id backends.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.starting, id)
}

// use is what one live sandbox takes.
type use struct {
	id       backends.ID
	notebook string
	memory   int64
}

// running lists the live sandboxes of this install, the largest first.
func (b *Backend) running(h host) []use {
	var out []use
	for _, l := range b.list() {
		s, err := b.open(h, l.ID)
		if err != nil || s.pidfd == nil {
			continue
		}
		_ = s.pidfd.Close()
		out = append(out, use{l.ID, l.Notebook, s.group.Held()})
	}
	slices.SortStableFunc(out, func(x, y use) int { return cmp.Compare(y.memory, x.memory) })
	return out
}
