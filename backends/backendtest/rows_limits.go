package backendtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sandbook/backends"
	"sandbook/kernel/wire"
)

func processRows() []row {
	all := []string{backends.CapKillAll}
	return []row{
		{id: "P01", sev: HostDoS, title: "a fork bomb ends at the limit, and the neighbour does not feel it", needs: []string{backends.CapPids}, run: (*T).forkBomb},
		{id: "P02", sev: HostDoS, title: "threads count as processes do", needs: []string{backends.CapPids}, run: (*T).threadBomb},
		{id: "P03", sev: HostDoS, title: "a daemon that left every group dies with the sandbox (P11 too)", needs: all, run: (*T).daemons},
		{id: "P05", sev: SelfDoS, title: "orphans are reaped", run: (*T).reaped},
		{id: "P07", sev: InternalEsc, title: "signals to everything and to the first process end no sandbox", run: (*T).signals},
		{id: "P08", sev: InternalEsc, title: "the first process's memory and descriptors are closed", run: (*T).supervisor},
		{id: "P09", sev: HostDoS, title: "a guest that is killed from outside takes everything with it", needs: all, run: (*T).guestKilled},
		{id: "P12", sev: PeerDoS, title: "real-time and raised priorities are refused", run: (*T).priorities},
		{id: "P13", sev: SelfDoS, title: "an argument list that is too long is an error", run: (*T).longArgs},
	}
}

func limitRows() []row {
	mem := []string{backends.CapMemory}
	return []row{
		{id: "M01", sev: HostDoS, title: "memory ends at the limit; the counter tells, the guest lives (M05)", needs: mem, run: (*T).memoryBomb},
		{id: "M03", sev: HostDoS, title: "swap counts", needs: mem, run: (*T).swap},
		{id: "M04", sev: HostDoS, title: "memory files and shared memory are charged", needs: mem, run: (*T).memoryFiles},
		{id: "M10", sev: HostDoS, title: "socket buffers are charged", needs: mem, run: (*T).socketBuffers},
		{id: "M07", sev: SelfDoS, title: "address space is not limited", run: (*T).addressSpace},
		{id: "M08", sev: HostDoS, title: "a guest that outgrows its memory ends as out of memory", needs: mem, run: (*T).guestMemory},
		{id: "C01", sev: PeerDoS, title: "processor time is held to the quota", needs: []string{backends.CapCPU}, run: (*T).cpuQuota},
		{id: "C05", sev: Escape, title: "the clock cannot be set", run: (*T).clock},
		{id: "E01", sev: SelfDoS, title: "open files end at the limit", run: (*T).openFiles},
		{id: "E02", sev: HostDoS, title: "descriptors in flight are bounded", run: (*T).inFlight},
		{id: "E05", sev: PeerDoS, title: "descriptors in flight keep no kernel from its next run", run: (*T).runsWithDescriptorsInFlight},
		{id: "E03", sev: PeerDoS, title: "the kernel's per-user quotas are not shared", run: (*T).userQuotas},
		{id: "E04", sev: HostLeak, title: "a program starts with its three descriptors only", run: (*T).descriptors},
	}
}

func (t *T) forkBomb() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{Pids: 64}})
	r := try[map[string]int](t, b, "spawn", "500")
	if r["errno"] != int(syscall.EAGAIN) || r["started"] > 62 || r["started"] < 3 {
		t.Errorf("%d started, then %s", r["started"], errnoText(r["errno"]))
	}
	t.alive(b)
	// And a real one, which never stops trying.
	bomb, err := b.start(wire.Command{Argv: []string{"/bin/sh", "-c", "f() { f | f & }; f; echo x; wait; sleep 60"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = bomb.output(t.ctx)
	began := time.Now()
	t.alive(t.other())
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("the neighbour took %v to answer", d)
	}
	if t.caps.Has(backends.CapMemory) { // there are counters
		if u := t.usage(b); u.Pids > 64 {
			t.Errorf("%d processes", u.Pids)
		}
	}
	began = time.Now()
	t.ends(b)
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("the kill took %v", d)
	}
}

func (t *T) threadBomb() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{Pids: 64}})
	out := t.python(b, `
import threading
n = 0
try:
    for _ in range(500):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        n += 1
except RuntimeError as e:
    print(n)
`)
	if n, err := strconv.Atoi(out); err != nil || n > 62 || n < 3 {
		t.Errorf("%q threads", out)
	}
	t.alive(b)
}

func (t *T) daemons() {
	b := t.open(t, backends.Spec{})
	marker := "sb-daemon-" + random()
	for range 3 {
		t.exec(b, probePath, "daemon", marker)
	}
	for len(hostProcs(marker)) < 6 {
		select {
		case <-t.ctx.Done():
			t.Fatalf("only %d daemons came up", len(hostProcs(marker)))
		case <-time.After(5 * time.Millisecond):
		}
	}
	t.ends(b)
	if n := hostProcs(marker); len(n) > 0 {
		t.Errorf("%v survived", n)
	}
}

func (t *T) reaped() {
	if n := try[int](t, t.a(), "zombies", "50"); n != 0 {
		t.Errorf("%d zombies are left", n)
	}
}

func (t *T) signals() {
	b := t.open(t, backends.Spec{})
	for _, sig := range []string{"9", "15", "19", "11", "6"} {
		try[int](t, b, "kill", "1", sig)
		t.alive(b)
	}
	victim, err := b.start(wire.Command{Argv: []string{"/bin/sh", "-c", "echo up; exec sleep 60"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = victim.output(t.ctx)
	try[int](t, b, "kill", "-1", "9")
	if r, err := victim.wait(t.ctx); err != nil || r.Signal != int(syscall.SIGKILL) {
		t.Errorf("the other process ended with %+v %v", r, err)
	}
	t.alive(b)
	t.alive(t.other())
}

func (t *T) supervisor() {
	t.expect(try[map[string]int](t, t.a(), "read", "/proc/1/mem", "/proc/1/environ", "/proc/1/maps", "/proc/1/auxv", "/proc/1/fd", "/proc/1/io"),
		syscall.EACCES, syscall.EPERM)
	t.expect(try[map[string]int](t, t.a(), "create", "/proc/1/mem", "/proc/1/oom_score_adj", "/proc/1/setgroups", "/proc/1/uid_map"),
		syscall.EACCES, syscall.EPERM, syscall.EROFS)
	t.expectCalls(t.a(), syscall.EPERM, "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp")
}

func (t *T) guestKilled() {
	b := t.open(t, backends.Spec{})
	marker := "sb-orphaned-" + random()
	t.exec(b, probePath, "daemon", marker)
	procs := hostProcs(marker)
	if len(procs) == 0 {
		t.Fatal("the daemon did not come up")
	}
	guest := firstProcess(procs[0])
	if guest == 0 {
		t.unenforced("the guest's host process cannot be found")
	}
	if err := syscall.Kill(guest, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e := t.waits(b)
	if e.Cause != backends.Signaled || e.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", e)
	}
	if n := hostProcs(marker); len(n) > 0 {
		t.Errorf("%v survived", n)
	}
}

// firstProcess walks up from a host process to the one that is first in its
// process namespace.
func firstProcess(pid int) int {
	for range 32 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0
		}
		var ppid int
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "NSpid:" && f[len(f)-1] == "1" && len(f) > 2 {
				return pid
			} else if len(f) == 2 && f[0] == "PPid:" {
				ppid, _ = strconv.Atoi(f[1])
			}
		}
		if ppid <= 1 {
			return 0
		}
		pid = ppid
	}
	return 0
}

func (t *T) priorities() {
	t.expect(try[map[string]int](t, t.a(), "sched"), syscall.EPERM, syscall.EACCES)
}

func (t *T) longArgs() {
	r, err := t.a().run(t.ctx, "/bin/echo", strings.Repeat("x", 200<<10))
	if err == nil && r.Code == 0 {
		t.Error("an argument of 200 KiB was taken")
	}
	t.alive(t.a())
}

func (t *T) memoryBomb() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{Memory: 96 * mib}})
	r := t.exec(b, t.opts.Python, "-I", "-c", "x = bytearray(1 << 30); print(len(x))")
	if r.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", r.CommandResult)
	}
	u := t.usage(b)
	if u.OOMKills != 1 || u.PeakMemory > 96*mib || u.PeakMemory < 48*mib {
		t.Errorf("%+v", u)
	}
	t.alive(b)
	t.shutdown(b)
	if e := t.waits(b); e.OOMKills != 1 || e.Cause != backends.Exited || e.PeakMemory < 48*mib {
		t.Errorf("%+v", e)
	}
}

func (t *T) swap() {
	b, err := os.ReadFile("/proc/swaps")
	if err == nil && strings.Count(string(b), "\n") < 2 {
		t.unenforced("this host has no swap to use; the limit itself is checked by the backend's own test")
	}
	t.memoryBomb()
}

func (t *T) memoryFiles() {
	for name, code := range map[string]string{
		"memfd": "import os\nfd = os.memfd_create('x')\nfor _ in range(512): os.write(fd, b'x' * (1 << 20))\nprint('all of it')",
		"shm":   "from multiprocessing import shared_memory as s\nm = s.SharedMemory(create=True, size=48 << 20)\nfor i in range(0, 48 << 20, 4096): m.buf[i] = 1\nx = bytearray(80 << 20)\nprint('all of it')",
		"sockets": "import socket\nkeep = []\nwhile True:\n a, b = socket.socketpair()\n a.setblocking(False)\n" +
			" try:\n  while True: a.send(b'x' * 65536)\n except BlockingIOError: keep.append((a, b))",
	} {
		b := t.open(t, backends.Spec{Limits: backends.Limits{Memory: 96 * mib, OpenFiles: 4096}})
		r := t.exec(b, t.opts.Python, "-I", "-c", code)
		if strings.Contains(r.out, "all of it") || r.Code == 0 && r.Signal == 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if u := t.usage(b); u.PeakMemory > 96*mib {
			t.Errorf("%s: %d bytes", name, u.PeakMemory)
		}
		t.alive(b)
	}
}

// socketBuffers fills the buffers of connections over the sandbox's own
// loopback, which nobody reads.
func (t *T) socketBuffers() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{Memory: 96 * mib, OpenFiles: 4096}})
	r := t.exec(b, t.opts.Python, "-I", "-c", `
import socket
l = socket.create_server(('127.0.0.1', 0), backlog=200)
keep, total = [l], 0
for _ in range(150):
    a = socket.create_connection(l.getsockname())
    keep += [a, l.accept()[0]]
    a.setblocking(False)
    try:
        while True: total += a.send(b'x' * 65536)
    except BlockingIOError: pass
    if total > 160 << 20: print('all of it'); break
print('took', total)`)
	if strings.Contains(r.out, "all of it") {
		t.Errorf("a sandbox of 96 MiB holds 160 MiB in its sockets: %+v", r)
	}
	t.alive(b)
}

func (t *T) addressSpace() {
	const infinity = ^uint64(0)
	if l := try[map[string][2]uint64](t, t.a(), "limits"); l["as"][1] != infinity {
		t.Errorf("address space is limited to %d", l["as"][1])
	}
}

func (t *T) guestMemory() {
	// Smaller than the guest itself, so that it is the victim.
	sp := t.spec(backends.Spec{Limits: backends.Limits{Memory: 1 * mib}})
	sb, err := t.b.Start(t.ctx, sp)
	if err != nil {
		t.Logf("refused at once: %v", err)
		return
	}
	t.Cleanup(func() { _ = sb.Kill(t.ctx) })
	e, err := sb.Wait(t.ctx)
	if err != nil || e.Cause != backends.OutOfMem || e.OOMKills == 0 {
		t.Errorf("%+v %v", e, err)
	}
}

func (t *T) cpuQuota() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{CPU: 300}})
	before := t.usage(b).CPU
	used := try[int64](t, b, "spin", "4", "1500")
	if used > 900 || used < 100 {
		t.Errorf("used %d ms in 1500 ms at 30 %% of a processor", used)
	}
	if d := t.usage(b).CPU - before; d < 100*time.Millisecond || d > 1200*time.Millisecond {
		t.Errorf("the counter says %v", d)
	}
}

func (t *T) clock() {
	t.expectCalls(t.a(), syscall.EPERM, "settimeofday", "clock_settime", "clock_adjtime", "adjtimex")
}

func (t *T) openFiles() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{OpenFiles: 256}})
	r := try[map[string]int](t, b, "openfiles", "100000")
	if r["opened"] > 256 || r["opened"] < 200 || r["errno"] != int(syscall.EMFILE) {
		t.Errorf("%d opened, then %s", r["opened"], errnoText(r["errno"]))
	}
	t.alive(b)
}

func (t *T) inFlight() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{OpenFiles: 256}})
	out := t.python(b, `
import socket, array, os
n = 0
keep = []
try:
    fd = os.open("/dev/null", os.O_RDONLY)
    for _ in range(100):
        a, b = socket.socketpair()
        keep.append((a, b))
        a.setblocking(False)
        for _ in range(100):
            try:
                a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd] * 200))])
            except BlockingIOError:
                break
            n += 200
except OSError as e:
    print(n, e.errno)
`)
	var n, errno int
	_, _ = fmt.Sscan(out, &n, &errno)
	if n > 2000 || errno != int(syscall.ETOOMANYREFS) {
		t.Errorf("%q in flight", out)
	}
	t.alive(b)
}

// runsWithDescriptorsInFlight: Linux counts descriptors in flight per host user
// and refuses the next ones of whoever sends. A run is handed to its kernel with
// two; it hung for ever, in every sandbox of the same host user.
func (t *T) runsWithDescriptorsInFlight() {
	if t.opts.Python == "" {
		t.unenforced("the backend's runtime has no Python")
	}
	a, b := t.open(t, backends.Spec{}), t.open(t, backends.Spec{})
	for _, box := range []*box{a, b} {
		if err := box.startKernel(t.ctx); err != nil {
			t.Fatal(err)
		}
	}
	end, err := a.runCell(t.ctx, "fill", `
import socket, array, os
keep = []
fd = os.open("/dev/null", os.O_RDONLY)
try:
    for _ in range(200):
        keep.append(socket.socketpair())
        keep[-1][0].setblocking(False)
        try:
            while True: keep[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd] * 200))])
        except BlockingIOError: pass
except OSError as e:
    assert e.errno == 109, e
else:
    raise SystemError("all of them were taken")
`)
	if err != nil || end.Status != wire.RunOK {
		t.Fatalf("fill the user's share: %+v %v", end, err)
	}
	for name, box := range map[string]*box{"its own kernel": a, "a neighbour's": b} {
		if end, err := box.runCell(t.ctx, "next", "print(1)"); err != nil || end.Status != wire.RunOK {
			t.Errorf("the next run of %s: %+v %v", name, end, err)
		}
	}
}

func (t *T) userQuotas() {
	if os.Geteuid() != 0 {
		t.unenforced("the server is an ordinary user, so its sandboxes share one host user; run it as root to give each its own")
	}
	a := t.open(t, backends.Spec{Limits: backends.Limits{OpenFiles: 8192}})
	hold, err := a.start(wire.Command{Argv: []string{probePath, "inotify", "5000", "hold"}}, true)
	if err != nil {
		t.Fatal(err)
	}
	first, err := hold.output(t.ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := try[map[string]int](t, t.other(), "inotify", "16")
	if r["made"] != 16 {
		t.Errorf("with %s taken by one sandbox, another got %d, then %s", strings.TrimSpace(first), r["made"], errnoText(r["errno"]))
	}
}

func (t *T) descriptors() {
	got := try[map[string]string](t, t.a(), "fds")
	for fd, to := range got {
		if fd != "0" && fd != "1" && fd != "2" {
			t.Errorf("descriptor %s is %s", fd, to)
		}
	}
	if len(got) != 3 {
		t.Errorf("%v", got)
	}
}
