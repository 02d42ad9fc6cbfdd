package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// The controllers this package uses, and a file each has in a version 1 group.
var v1Files = map[string]string{
	"memory":  "memory.limit_in_bytes",
	"pids":    "pids.max",
	"cpu":     "cpu.cfs_quota_us",
	"cpuacct": "cpuacct.usage",
}

var v2Wanted = []string{"memory", "pids", "cpu"}

// Host says which control groups this process may make, and where. It is made
// by Detect and not changed afterwards.
type Host struct {
	install string
	v1      map[string]string // controller → directory our group is made in
	v2      string            // the same for the unified hierarchy, or empty
	limits  []string          // controllers that limit in the unified hierarchy
	refused map[string]error  // controller → why it cannot be used
}

// mount is one mounted control group hierarchy.
type mount struct {
	root, dir   string
	v2          bool
	controllers []string
}

// None is a Host that may make no groups, for the reason given.
func None(why error) *Host {
	h := &Host{v1: map[string]string{}, refused: map[string]error{}}
	for _, c := range v2Wanted {
		h.refused[c] = why
	}
	return h
}

// parseMounts reads the hierarchies from the text of /proc/self/mountinfo.
func parseMounts(text string) []mount {
	var out []mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		m := mount{root: unescape(l[3]), dir: unescape(l[4])}
		switch r[0] {
		case "cgroup2":
			m.v2 = true
		case "cgroup":
			m.controllers = strings.Split(r[2], ",")
		default:
			continue
		}
		out = append(out, m)
	}
	return out
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parseSelf reads the text of /proc/self/cgroup: controller → path, with the
// empty controller for the unified hierarchy.
func parseSelf(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			out[c] = f[2]
		}
	}
	return out
}

// own is the directory of this process's group within a mount, or false if the
// mount does not show it.
func (m mount) own(path string) (string, bool) {
	rel, err := filepath.Rel(m.root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	return filepath.Join(m.dir, rel), true
}

// Detect must be called while no thread of this process is in a group made
// here. It finds out by trial which groups this process may make below its own.
// In the unified hierarchy it may have to move this process into a leaf of its
// group first, which it does only where the group was delegated to it.
func Detect(install string) *Host {
	h := &Host{install: install, v1: map[string]string{}, refused: map[string]error{}}
	mounts, err1 := os.ReadFile("/proc/self/mountinfo")
	self, err2 := os.ReadFile("/proc/self/cgroup")
	if err := errors.Join(err1, err2); err != nil {
		for _, c := range v2Wanted {
			h.refused[c] = err
		}
		return h
	}
	h.detect(parseMounts(string(mounts)), parseSelf(string(self)))
	return h
}

func (h *Host) detect(mounts []mount, self map[string]string) {
	for _, m := range mounts {
		if m.v2 {
			h.detectV2(m, self[""])
			continue
		}
		for _, c := range m.controllers {
			file, wanted := v1Files[c]
			if !wanted || h.v1[c] != "" {
				continue
			}
			if dir, ok := m.own(self[c]); ok {
				if err := h.try(dir, file); err != nil {
					h.refused[c] = err
					continue
				}
				h.v1[c] = dir
			}
		}
	}
	for _, c := range v2Wanted {
		if h.v1[c] != "" || slices.Contains(h.limits, c) {
			delete(h.refused, c)
		} else if h.refused[c] == nil {
			h.refused[c] = errors.New("no control group hierarchy has it")
		}
	}
}

func (h *Host) detectV2(m mount, path string) {
	if h.v2 != "" {
		return
	}
	dir, ok := m.own(path)
	if !ok {
		return
	}
	candidates := []string{dir}
	if os.Geteuid() == 0 && dir != m.dir {
		candidates = append(candidates, m.dir)
	}
	for _, base := range candidates {
		has := controllers(base, "cgroup.controllers")
		var want []string
		for _, c := range v2Wanted {
			if slices.Contains(has, c) {
				want = append(want, c)
			}
		}
		err := enable(base, want, base == m.dir)
		if err == nil {
			err = h.tryV2(base, want)
		}
		if err == nil {
			h.v2, h.limits = base, want
			return
		}
		for _, c := range v2Wanted {
			h.refused[c] = err
		}
	}
}

// try makes and removes a group to see that it can be done.
func (h *Host) try(base, file string) error {
	dir := filepath.Join(base, h.parent(), probeName())
	if err := makeDir(dir); err != nil {
		return err
	}
	defer func() { _ = removeWithParent(dir) }()
	return syscall.Access(filepath.Join(dir, file), 2)
}

func (h *Host) tryV2(base string, want []string) error {
	dir := filepath.Join(base, h.parent(), probeName())
	if err := makeDir(dir); err != nil {
		return err
	}
	defer func() { _ = removeWithParent(dir) }()
	if err := enable(filepath.Dir(dir), want, false); err != nil {
		return err
	}
	for _, c := range want {
		if err := syscall.Access(filepath.Join(dir, c+".max"), 2); err != nil {
			return err
		}
	}
	return syscall.Access(filepath.Join(dir, "cgroup.procs"), 2)
}

// probes numbers the groups made to try something, so that no two share one.
var probes atomic.Int64

func probeName() string { return fmt.Sprintf("probe-%d-%d", os.Getpid(), probes.Add(1)) }

func (h *Host) parent() string { return prefix + h.install }

func controllers(dir, file string) []string {
	b, err := os.ReadFile(filepath.Join(dir, file)) //nolint:gosec // a cgroup file
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// enable turns controllers on for the children of dir. A group with processes
// of its own refuses; if it was delegated to us (or is the root of a
// container's view) its processes are moved to a leaf and it is tried again.
func enable(dir string, want []string, isTop bool) error {
	have := controllers(dir, "cgroup.subtree_control")
	var add []string
	for _, c := range want {
		if !slices.Contains(have, c) {
			add = append(add, "+"+c)
		}
	}
	if len(add) == 0 {
		return nil
	}
	write := func() error { return put(filepath.Join(dir, "cgroup.subtree_control"), strings.Join(add, " ")) }
	err := write()
	if !errors.Is(err, syscall.EBUSY) {
		return err
	}
	if !isTop && !delegated(dir) {
		return err
	}
	leaf := filepath.Join(dir, prefix+"server")
	if err := os.MkdirAll(leaf, 0o755); err != nil { //nolint:gosec // a cgroup directory
		return err
	}
	for _, pid := range controllers(dir, "cgroup.procs") {
		if err := put(filepath.Join(leaf, "cgroup.procs"), pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return write()
}

// delegated reports whether the service manager marked the group as ours.
func delegated(dir string) bool {
	var buf [8]byte
	for _, attr := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := syscall.Getxattr(dir, attr, buf[:]); err == nil && bytes.Equal(buf[:n], []byte("1")) {
			return true
		}
	}
	return false
}

// Limits lists the controllers whose limits are enforced here.
func (h *Host) Limits() []string {
	var out []string
	for _, c := range v2Wanted {
		if h.refused[c] == nil {
			out = append(out, c)
		}
	}
	return out
}

// Refused says why a controller cannot be used, or nil if it can.
func (h *Host) Refused(controller string) error { return h.refused[controller] }

// Summary describes the hierarchies in use, such as "cgroup v1 and v2".
func (h *Host) Summary() string {
	switch {
	case len(h.Limits()) == 0:
		return "no control groups"
	case len(h.limits) > 0 && len(h.v1) == 0:
		return "cgroup v2"
	case h.v2 != "":
		return "cgroup v1, ended through v2"
	default:
		return "cgroup v1"
	}
}
