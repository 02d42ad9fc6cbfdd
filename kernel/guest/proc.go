package guest

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// procs starts and reaps processes. As the first process of a sandbox the
// guest must reap whatever ends there, so one loop waits for every child and
// hands the status to whoever started it. os/exec is not used: its own wait
// would race with that loop.
type procs struct {
	mu      sync.Mutex
	waiters map[int]chan exit
	groups  map[int]struct{} // leaders of commands, not of a kernel
	bounds  bounds           // of kernels and commands
}

// exit is how a process ended.
type exit struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
}

func newProcs(b bounds) *procs {
	p := &procs{bounds: b, waiters: map[int]chan exit{}, groups: map[int]struct{}{}}
	child := make(chan os.Signal, 1)
	signal.Notify(child, syscall.SIGCHLD)
	// The loop ends with the program: a first process always reaps.
	go func() {
		for range child {
			p.reap()
		}
	}()
	return p
}

func (p *procs) reap() {
	for {
		var e exit
		pid, err := syscall.Wait4(-1, &e.status, syscall.WNOHANG, &e.usage)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		p.mu.Lock()
		ch := p.waiters[pid]
		delete(p.waiters, pid)
		delete(p.groups, pid)
		p.mu.Unlock()
		if ch != nil {
			ch <- e
		}
	}
}

// start runs a program in a new session, within the bounds. The channel gets
// its end.
func (p *procs) start(argv []string, attr *syscall.ProcAttr, command bool) (int, <-chan exit, error) {
	if attr.Sys == nil {
		attr.Sys = &syscall.SysProcAttr{}
	}
	attr.Sys.Setsid = true
	var started *report
	if p.bounds != (bounds{}) {
		var err error
		if argv, attr, started, err = p.bounds.wrap(argv, attr); err != nil {
			return 0, nil, err
		}
		defer started.close()
	}
	pid, ch, err := p.fork(argv, attr, command)
	if err != nil || started == nil {
		return pid, ch, err
	}
	if err := started.wait(pid); err != nil {
		return 0, nil, err
	}
	return pid, ch, nil
}

func (p *procs) fork(argv []string, attr *syscall.ProcAttr, command bool) (int, <-chan exit, error) {
	ch := make(chan exit, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err := syscall.ForkExec(argv[0], argv, attr)
	if err != nil {
		return 0, nil, err
	}
	p.waiters[pid] = ch
	if command {
		p.groups[pid] = struct{}{}
	}
	return pid, ch, nil
}

// stat is what /proc/<pid>/stat says of a process.
type stat struct {
	pid, ppid, session int
	state              byte
	utime, stime       int64 // ticks
	cutime, cstime     int64
	rss                int64 // pages
}

// readProc reads a small file of /proc at one go. The calls are made directly
// since two such files are read for every run, and an os.File costs three times
// as much.
func readProc(pid int, name string) (string, bool) {
	fd, err := syscall.Open("/proc/"+strconv.Itoa(pid)+"/"+name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer func() { _ = syscall.Close(fd) }()
	var b [4096]byte
	n, err := syscall.Read(fd, b[:])
	return string(b[:max(0, n)]), err == nil && n > 0
}

func readStat(pid int) (stat, bool) {
	s, ok := readProc(pid, "stat")
	if !ok {
		return stat{}, false
	}
	// The name may hold anything, so fields are counted from its end.
	i := strings.LastIndexByte(s, ')')
	if i < 0 {
		return stat{}, false
	}
	f := strings.Fields(s[i+1:])
	if len(f) < 22 {
		return stat{}, false
	}
	n := func(i int) int64 { v, _ := strconv.ParseInt(f[i], 10, 64); return v }
	return stat{
		pid: pid, ppid: int(n(1)), session: int(n(3)), state: f[0][0],
		utime: n(11), stime: n(12), cutime: n(13), cstime: n(14), rss: n(21),
	}, true
}

// children returns every live process below this one.
func children() []stat {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := d.Readdirnames(-1)
	_ = d.Close()
	all := map[int]stat{}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if st, ok := readStat(pid); ok {
				all[pid] = st
			}
		}
	}
	self := os.Getpid()
	var out []stat
	for pid, st := range all {
		p := st.ppid
		for range 64 {
			if p == self || p == 0 {
				break
			}
			p = all[p].ppid
		}
		if p == self && pid != self {
			out = append(out, st)
		}
	}
	return out
}

// killKernel ends every process that does not belong to a command, and returns
// when they are gone.
func (p *procs) killKernel() {
	deadline := time.Now().Add(5 * time.Second)
	for wait := time.Millisecond; time.Now().Before(deadline); wait = min(2*wait, 20*time.Millisecond) {
		p.mu.Lock()
		commands := make(map[int]struct{}, len(p.groups))
		for pid := range p.groups {
			commands[pid] = struct{}{}
		}
		p.mu.Unlock()
		if len(commands) == 0 && os.Getpid() == 1 {
			// The first process of its own namespace: everything but itself
			// goes at once, however fast it forks.
			_ = syscall.Kill(-1, syscall.SIGKILL)
		}
		left := 0
		all := children()
		parent := make(map[int]int, len(all))
		for _, st := range all {
			parent[st.pid] = st.ppid
		}
		for _, st := range all {
			if st.state == 'Z' || ofCommand(st, parent, commands) {
				continue
			}
			left++
			_ = syscall.Kill(st.pid, syscall.SIGKILL)
		}
		if left == 0 {
			return
		}
		pause(wait)
	}
}

func ofCommand(st stat, parent map[int]int, commands map[int]struct{}) bool {
	if _, ok := commands[st.session]; ok {
		return true
	}
	for pid, n := st.pid, 0; pid != 0 && n < 64; pid, n = parent[pid], n+1 {
		if _, ok := commands[pid]; ok {
			return true
		}
	}
	return false
}

// pause waits a moment for the system to act on a signal: there is nothing
// else to wait on for a process that is no child of ours.
func pause(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}

// cpuTime returns the processor time of a process and of its children that
// were waited for.
func cpuTime(pid int) time.Duration {
	var ts syscall.Timespec
	// The process clock of pid, as clock_getcpuclockid makes it.
	clock := uintptr(^pid<<3 | 2)
	var d time.Duration
	if _, _, e := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0); e == 0 { //nolint:gosec // the call fills ts
		d = time.Duration(ts.Nano())
	}
	st, ok := readStat(pid)
	if !ok {
		return d
	}
	if d == 0 {
		d = time.Duration(st.utime+st.stime) * tick
	}
	return d + time.Duration(st.cutime+st.cstime)*tick
}

// tick is one unit of /proc times.
const tick = 10 * time.Millisecond

// peakMemory returns the most memory a live process has held.
func peakMemory(pid int) int64 {
	s, _ := readProc(pid, "status")
	for line := range strings.Lines(s) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}
