// Package cgroup makes the control groups of sandboxes, limits them, reads
// their counters and empties them. It speaks version 1, version 2 and hosts
// that mix both (limits in version 1, kill in a version 2 mount without
// controllers). It is not a general library: it knows memory, pids and cpu.
//
// Groups are made below the group this process is in, as
// sandbook-<install>/<id>, so that they stay within whatever limits the server
// itself, and one install never sees another's.
//
// A process that may not make groups (an ordinary user without delegation)
// gets a Host that refuses, with the reason; there is no substitute for it
// here. RLIMIT_AS and RLIMIT_DATA break runtimes that reserve address space,
// and hold for one process only.
package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const prefix = "sandbook-"

// period of the processor quota, in microseconds.
const period = 100_000

// maxSocketBuffers bounds what the sockets of a sandbox hold, in bytes.
const maxSocketBuffers = 64 << 20

// Limits of one group. All are set.
type Limits struct {
	Memory int64 `json:"memory"` // bytes, swap included
	CPU    int64 `json:"cpu"`    // thousandths of a processor
	Pids   int64 `json:"pids"`
}

// Total limits all groups of an install together. A zero field limits nothing.
type Total struct {
	Memory int64 `json:"memory,omitempty"` // bytes, swap included
	Pids   int64 `json:"pids,omitempty"`
}

// Group is the control group of one sandbox in every hierarchy used. It is
// plain data, so that the program that enters it can be another one.
type Group struct {
	V1   map[string]string `json:"v1,omitempty"`   // controller → directory
	Back map[string]string `json:"back,omitempty"` // controller → directory to return to
	V2   string            `json:"v2,omitempty"`
	Lim  []string          `json:"lim,omitempty"` // controllers that limit in V2
}

// Usage is a reading of the counters.
type Usage struct {
	Memory, Peak, Pids, OOMKills int64
	CPU                          time.Duration
}

// Group names the group of a sandbox; nothing is made yet.
func (h *Host) Group(id string) Group {
	g := Group{V1: map[string]string{}, Back: map[string]string{}, Lim: h.limits}
	for c, base := range h.v1 {
		g.V1[c] = filepath.Join(base, h.parent(), id)
		g.Back[c] = base
	}
	if h.v2 != "" {
		g.V2 = filepath.Join(h.v2, h.parent(), id)
	}
	return g
}

// Stray lists the names of all groups of the install, live or left over.
func (h *Host) Stray() []string {
	seen := map[string]bool{}
	var out []string
	bases := []string{}
	for _, b := range h.v1 {
		bases = append(bases, b)
	}
	if h.v2 != "" {
		bases = append(bases, h.v2)
	}
	for _, b := range bases {
		entries, err := os.ReadDir(filepath.Join(b, h.parent()))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() && !seen[e.Name()] {
				seen[e.Name()] = true
				out = append(out, e.Name())
			}
		}
	}
	return out
}

// Create makes the group and sets its limits. On error nothing is left.
func (g Group) Create(l Limits) (err error) {
	defer func() {
		if err != nil {
			_ = g.Remove()
		}
	}()
	for c, dir := range g.V1 {
		if err := makeDir(dir); err != nil {
			return err
		}
		if err := limitV1(c, dir, l); err != nil {
			return err
		}
	}
	if g.V2 == "" {
		return nil
	}
	if err := makeDir(g.V2); err != nil {
		return err
	}
	if len(g.Lim) > 0 {
		if err := enable(filepath.Dir(g.V2), g.Lim, false); err != nil {
			return err
		}
	}
	return limitV2(g.V2, g.Lim, l)
}

// LimitTotal limits what this group and all others of its install use together.
// The group must have been created, so that their parent is there and stays.
func (g Group) LimitTotal(t Total) error {
	if dir := g.V1["memory"]; dir != "" && t.Memory > 0 {
		if err := limitTotalV1(filepath.Dir(dir), t.Memory); err != nil {
			return err
		}
	}
	if dir := g.V1["pids"]; dir != "" && t.Pids > 0 {
		if err := put(filepath.Join(filepath.Dir(dir), "pids.max"), num(t.Pids)); err != nil {
			return err
		}
	}
	for _, c := range g.Lim {
		var err error
		switch {
		case c == "memory" && t.Memory > 0:
			err = errors.Join(put(filepath.Join(filepath.Dir(g.V2), "memory.max"), num(t.Memory)), noSwapV2(filepath.Dir(g.V2)))
		case c == "pids" && t.Pids > 0:
			err = put(filepath.Join(filepath.Dir(g.V2), "pids.max"), num(t.Pids))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// limitTotalV1 limits a parent group that may have another limit already. The
// limit of memory may never be above that with swap, so the order depends on
// whether it grows. A group that uses more keeps the limit it has.
func limitTotalV1(dir string, n int64) error {
	memory, swap := filepath.Join(dir, "memory.limit_in_bytes"), filepath.Join(dir, "memory.memsw.limit_in_bytes")
	err := put(memory, num(n))
	swapErr := put(swap, num(n))
	if errors.Is(err, syscall.EINVAL) {
		err = put(memory, num(n))
	}
	if errors.Is(swapErr, fs.ErrNotExist) {
		swapErr = put(filepath.Join(dir, "memory.swappiness"), "0")
	}
	// As much of it as socket buffers as all together might reasonably need.
	tcpErr := put(filepath.Join(dir, "memory.kmem.tcp.limit_in_bytes"), num(max(n/16, min(n, maxSocketBuffers))))
	for _, err := range []error{err, swapErr, tcpErr} {
		if err != nil && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func noSwapV2(dir string) error {
	err := put(filepath.Join(dir, "memory.swap.max"), "0")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without swap
	}
	return err
}

func limitV1(controller, dir string, l Limits) error {
	switch controller {
	case "memory":
		if err := put(filepath.Join(dir, "memory.limit_in_bytes"), num(l.Memory)); err != nil {
			return err
		}
		// Socket buffers are charged only once they have a limit of their own.
		// Without the file the system does not count them at all.
		err := put(filepath.Join(dir, "memory.kmem.tcp.limit_in_bytes"), num(min(l.Memory, maxSocketBuffers)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		err = put(filepath.Join(dir, "memory.memsw.limit_in_bytes"), num(l.Memory))
		if errors.Is(err, fs.ErrNotExist) {
			// Without swap accounting the next best is not to swap.
			return put(filepath.Join(dir, "memory.swappiness"), "0")
		}
		return err
	case "pids":
		return put(filepath.Join(dir, "pids.max"), num(l.Pids))
	case "cpu":
		if err := put(filepath.Join(dir, "cpu.cfs_period_us"), num(period)); err != nil {
			return err
		}
		return put(filepath.Join(dir, "cpu.cfs_quota_us"), num(l.CPU*period/1000))
	}
	return nil
}

func limitV2(dir string, controllers []string, l Limits) error {
	for _, c := range controllers {
		var err error
		switch c {
		case "memory":
			err = put(filepath.Join(dir, "memory.max"), num(l.Memory))
			if err == nil {
				err = noSwapV2(dir)
			}
		case "pids":
			err = put(filepath.Join(dir, "pids.max"), num(l.Pids))
		case "cpu":
			err = put(filepath.Join(dir, "cpu.max"), num(l.CPU*period/1000)+" "+num(period))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// EnterThread puts one thread into the version 1 groups. What it forks starts
// there; the thread must leave again with LeaveThread.
func (g Group) EnterThread(tid int) error { return moveThread(g.V1, tid) }

// LeaveThread puts the thread back where it came from.
func (g Group) LeaveThread(tid int) error { return moveThread(g.Back, tid) }

func moveThread(dirs map[string]string, tid int) error {
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, put(filepath.Join(dir, "tasks"), strconv.Itoa(tid)))
	}
	return errors.Join(errs...)
}

// OpenV2 opens the version 2 group so that a process can be made inside it;
// nil if there is none.
func (g Group) OpenV2() (*os.File, error) {
	if g.V2 == "" {
		return nil, nil
	}
	return os.OpenFile(g.V2, os.O_RDONLY|syscall.O_DIRECTORY, 0)
}

// Usage reads the counters. What no hierarchy counts is zero.
func (g Group) Usage() Usage {
	var u Usage
	if dir := g.V1["memory"]; dir != "" {
		u.Memory = read(dir, "memory.usage_in_bytes")
		u.Peak = read(dir, "memory.max_usage_in_bytes")
		u.OOMKills = field(dir, "memory.oom_control", "oom_kill")
	}
	if dir := g.V1["pids"]; dir != "" {
		u.Pids = read(dir, "pids.current")
	}
	if dir := g.V1["cpuacct"]; dir != "" {
		u.CPU = time.Duration(read(dir, "cpuacct.usage"))
	}
	if g.V2 == "" {
		return u
	}
	for _, c := range g.Lim {
		switch c {
		case "memory":
			u.Memory = read(g.V2, "memory.current")
			u.Peak = max(read(g.V2, "memory.peak"), u.Memory)
			u.OOMKills = field(g.V2, "memory.events", "oom_kill")
		case "pids":
			u.Pids = read(g.V2, "pids.current")
		}
	}
	if u.CPU == 0 {
		u.CPU = time.Duration(field(g.V2, "cpu.stat", "usage_usec")) * time.Microsecond
	}
	return u
}

// Held is the memory that the group does not give back when others need some:
// what it uses less the files of the host that it has read.
func (g Group) Held() int64 {
	dir, prefix := g.V1["memory"], "total_"
	if slices.Contains(g.Lim, "memory") {
		dir, prefix = g.V2, ""
	}
	if dir == "" {
		return 0
	}
	return max(0, g.Usage().Memory-field(dir, "memory.stat", prefix+"inactive_file")-field(dir, "memory.stat", prefix+"active_file"))
}

// Kill ends every process in the group, however it forks. It does not wait.
func (g Group) Kill() error {
	if g.V2 != "" {
		err := put(filepath.Join(g.V2, "cgroup.kill"), "1")
		if err == nil || errors.Is(err, fs.ErrNotExist) && !exists(g.V2) {
			return nil
		}
		_ = put(filepath.Join(g.V2, "cgroup.freeze"), "1")
		defer func() { _ = put(filepath.Join(g.V2, "cgroup.freeze"), "0") }()
	}
	for _, pid := range g.Procs() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return nil
}

// Procs lists the processes in the group.
func (g Group) Procs() []int {
	seen := map[int]bool{}
	var out []int
	for _, dir := range g.dirs() {
		for _, s := range controllers(dir, "cgroup.procs") {
			if pid, err := strconv.Atoi(s); err == nil && pid > 0 && !seen[pid] {
				seen[pid] = true
				out = append(out, pid)
			}
		}
	}
	return out
}

// Remove removes the group from every hierarchy. A group that still has
// processes gets a short while to lose them.
func (g Group) Remove() error {
	var errs []error
	for _, dir := range g.dirs() {
		errs = append(errs, removeWithParent(dir))
	}
	return errors.Join(errs...)
}

// Exists reports whether any directory of the group is there.
func (g Group) Exists() bool {
	for _, dir := range g.dirs() {
		if exists(dir) {
			return true
		}
	}
	return false
}

func (g Group) dirs() []string {
	var out []string
	for _, d := range g.V1 {
		out = append(out, d)
	}
	if g.V2 != "" {
		out = append(out, g.V2)
	}
	return out
}

// makeDir makes a group and its parent. Either may vanish in between, as the
// last sandbox of an install takes the parent along.
func makeDir(dir string) error {
	var err error
	for range 16 {
		err = os.MkdirAll(dir, 0o755) //nolint:gosec // a cgroup directory
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		_ = syscall.Rmdir(filepath.Dir(dir))
	}
	return err
}

// removeWithParent removes a group, and its parent once that is empty.
func removeWithParent(dir string) error {
	var err error
	for wait := time.Millisecond; wait < 2*time.Second; wait *= 2 {
		err = syscall.Rmdir(dir)
		if err == nil || errors.Is(err, syscall.ENOENT) {
			_ = syscall.Rmdir(filepath.Dir(dir))
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) {
			break
		}
		<-time.After(wait)
	}
	return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func put(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0) //nolint:gosec // a cgroup file
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func num(n int64) string { return strconv.FormatInt(n, 10) }

func read(dir, file string) int64 {
	b, err := os.ReadFile(filepath.Join(dir, file)) //nolint:gosec // a cgroup file
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// field reads one line "name value" of a file.
func field(dir, file, name string) int64 {
	b, err := os.ReadFile(filepath.Join(dir, file)) //nolint:gosec // a cgroup file
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}
