package backendtest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sandbook/backends"
	"sandbook/kernel/wire"
)

func syscallRows() []row {
	f := []string{backends.CapSeccomp}
	return []row{
		{id: "S01", sev: Escape, title: "every thread of every process is filtered, without privileges or capabilities", needs: f, run: (*T).everyThread},
		{id: "S02", sev: Escape, title: "dangerous system calls are refused, each with its number", needs: f, run: (*T).refusedCalls},
		{id: "S03", sev: Escape, title: "the 32-bit convention kills", needs: f, run: (*T).int80},
		{id: "S04", sev: Escape, title: "the x32 convention does not exist", needs: f, run: (*T).x32},
		{id: "S05", sev: Escape, title: "high argument bits change nothing (CVE-2019-10063)", needs: f, run: (*T).highBits},
		{id: "S07", sev: Escape, title: "calls that do not exist yet are refused", needs: f, run: (*T).unknownCalls},
		{id: "S11", sev: Integrity, title: "nobody changes the limits or the priority of another process, such as the guest", needs: f, run: (*T).othersLimits},
		{id: "S12", sev: Escape, title: "sockets of the Internet speak TCP and UDP only", needs: f, run: (*T).protocols},
		{id: "S08", sev: SelfDoS, title: "languages work: Python threads, processes, sqlite, TLS, asyncio; Node, Java, R, shell", run: (*T).languages},
		{id: "S10", sev: Escape, title: "no user namespace can be made, and no mount (CVE-2022-0492, CVE-2021-41133)", run: (*T).nested},
		{id: "T01", sev: Escape, title: "a terminal cannot be typed into (CVE-2017-5226)", run: (*T).typing},
		{id: "T02", sev: Escape, title: "there is no controlling terminal", run: (*T).terminal},
	}
}

func procRows() []row {
	return []row{
		{id: "R01", sev: HostLeak, title: "only the sandbox's own processes are seen", run: (*T).ownProcesses},
		{id: "R02", sev: HostLeak, title: "no environment, command line or mount tells of the server (R03)", run: (*T).tellTales},
		{id: "R04", sev: HostLeak, title: "no mount names the layers of an image", run: (*T).layers},
		{id: "R05", sev: HostLeak, title: "files of /proc that tell about the host are masked (CVE-2025-31133)", run: (*T).maskedProc},
		{id: "R06", sev: Escape, title: "the kernel's settings cannot be written (CVE-2025-52881)", run: (*T).kernelSettings},
		{id: "R07", sev: Escape, title: "/sys is absent or closed, and no control group can be written", run: (*T).noSys},
		{id: "R08", sev: Escape, title: "the guest program cannot be overwritten (CVE-2019-5736)", run: (*T).overwrite},
	}
}

func identityRows() []row {
	return []row{
		{id: "I01", sev: Escape, title: "the user is nobody, inside and outside", run: (*T).user},
		{id: "I02", sev: Escape, title: "there are no groups of the server", run: (*T).groups},
		{id: "I03", sev: Escape, title: "no program gives privileges", run: (*T).privileged},
		{id: "I04", sev: HostLeak, title: "kernel keyrings are closed", run: (*T).keyrings},
		{id: "V04", sev: HostLeak, title: "no credentials of a cloud, cluster or registry are there", run: (*T).credentials},
	}
}

func neighbourRows() []row {
	return []row{
		{id: "X01", sev: Lateral, title: "a neighbour's files are not seen", run: (*T).neighbourFiles},
		{id: "X02", sev: Lateral, title: "a neighbour's processes are not seen", run: (*T).neighbourProcesses},
		{id: "X03", sev: Lateral, title: "queues, shared memory and abstract sockets are one's own", run: (*T).neighbourIPC},
		{id: "X04", sev: PeerDoS, title: "a busy neighbour does not stop one", needs: []string{backends.CapCPU}, run: (*T).busyNeighbour},
	}
}

type thread struct {
	Pid, Tid int
	Fields   map[string]string
}

func (t *T) everyThread() {
	// With something running besides the guest and the probe.
	long, err := t.a().start(wire.Command{Argv: []string{"/bin/sh", "-c", "echo up; sleep 3"}, TimeoutMS: 5000}, false)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = long.output(t.ctx)
	threads := try[[]thread](t, t.a(), "status")
	if len(threads) < 4 {
		t.Fatalf("only %d threads", len(threads))
	}
	const none = "0000000000000000"
	for _, th := range threads {
		for field, want := range map[string]string{
			"Seccomp": "2", "NoNewPrivs": "1", "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		} {
			if got := th.Fields[field]; got != want {
				t.Errorf("process %d thread %d (%s): %s is %q, want %q", th.Pid, th.Tid, th.Fields["Name"], field, got, want)
			}
		}
	}
}

func (t *T) refusedCalls() {
	special := []string{
		"clone", "clone3", "getpid", "ioctl", "personality", "socket", "socketpair",
		"prlimit64", "sched_setscheduler", "sched_setparam", "sched_setattr", "setpriority", "ioprio_set",
	}
	var names []string
	for n := range maps.Keys(numbers) {
		if !slices.Contains(special, n) {
			names = append(names, n)
		}
	}
	t.expectCalls(t.a(), syscall.EPERM, names...)
	t.expectCalls(t.a(), syscall.ENOSYS, "clone3")
	var clones []string
	var calls []sysCall
	for name, flag := range map[string]uint64{
		"user": 0x10000000, "ns": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000, "cgroup": 0x02000000,
	} {
		clones = append(clones, "clone "+name, "clone "+name+" with SIGCHLD", "clone "+name+" high")
		calls = append(calls, named("clone", flag), named("clone", flag|17), named("clone", flag|0xff<<32))
	}
	for _, p := range []uint64{1, 8, 0x20000, 0x0040000, 0x0800000} {
		clones = append(clones, fmt.Sprintf("personality %#x", p))
		calls = append(calls, named("personality", p))
	}
	t.expect(t.calls(t.a(), clones, calls), syscall.EPERM)
}

func (t *T) int80() {
	if runtime.GOARCH != "amd64" {
		t.unenforced("this processor has no 32-bit convention of that kind")
	}
	r := t.exec(t.a(), probePath, "int80")
	switch {
	case r.Signal == int(syscall.SIGSYS):
	case strings.Contains(r.err, "unexpected fault address") || strings.Contains(r.err, "SIGSEGV"):
		// The processor's gate is closed: nothing to filter.
		if err := exec.Command(filepath.Join(t.probe, "probe"), "int80").Run(); err == nil {
			t.Error("it faults inside and works outside")
		}
		t.unenforced("this host's kernel has no 32-bit system calls at all")
	default:
		t.Errorf("%+v", r)
	}
}

func (t *T) x32() {
	if runtime.GOARCH != "amd64" {
		t.unenforced("this processor has no x32 convention")
	}
	var names []string
	var calls []sysCall
	for _, n := range []uint64{0, 1, 39, 56, 101, 165, 272, 512, 521, 545} {
		names = append(names, fmt.Sprintf("x32 call %d", n))
		calls = append(calls, sysCall{Nr: n | 0x40000000})
	}
	t.expect(t.calls(t.a(), names, calls), syscall.ENOSYS)
}

func (t *T) highBits() {
	t.expect(t.calls(t.a(), []string{"TIOCSTI", "TIOCSTI high", "TIOCLINUX", "TIOCLINUX high", "netlink high", "personality high", "clone high"}, []sysCall{
		named("ioctl", 0, 0x5412), named("ioctl", 0, 0x5412|1<<32), named("ioctl", 0, 0x541C), named("ioctl", 0, 0x541C|7<<40),
		named("socket", 16|1<<32, 3, 0), named("personality", 8|1<<32), named("clone", 0x10000000|1<<32),
	}), syscall.EPERM)
}

// othersLimits: with a limit of three descriptors the guest would see no file
// that a run has written, and say nothing.
func (t *T) othersLimits() {
	const files, pointer = 7, 1 // a pointer that cannot be read: who is let through gets EFAULT
	refused := map[string]sysCall{
		"limit of the guest": named("prlimit64", 1, files, pointer, 0), "limit, high pointer": named("prlimit64", 1, files, 1<<40, 0),
		"limit, high number": named("prlimit64", 1|1<<32, files, pointer, 0), "scheduler": named("sched_setscheduler", 1, 5, pointer),
		"parameters": named("sched_setparam", 1, pointer), "attributes": named("sched_setattr", 1, pointer, 0),
		"nice": named("setpriority", 0, 1, 19), "nice group": named("setpriority", 1, 1, 19), "nice user": named("setpriority", 2, 0, 19),
		"disk": named("ioprio_set", 1, 1, 3<<13), "disk of the user": named("ioprio_set", 3, 0, 3<<13),
	}
	var names []string
	var calls []sysCall
	for name, c := range refused {
		names, calls = append(names, name), append(calls, c)
	}
	t.expect(t.calls(t.a(), names, calls), syscall.EPERM)
	t.expect(t.calls(t.a(), []string{"read the guest's limit", "own limit", "own nice"}, []sysCall{
		named("prlimit64", 1, files, 0, 0), named("prlimit64", 0, files, 0, 0), named("setpriority", 0, 0, 1),
	}), 0)
}

func (t *T) protocols() {
	out := t.python(t.a(), `
import socket, itertools
for family, kind, proto in itertools.product((socket.AF_INET, socket.AF_INET6), (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW), (1, 2, 4, 33, 41, 47, 58, 115, 132, 136, 255, 256, 262, 263)):
    for make in (socket.socket, socket.socketpair):
        try:
            make(family, kind, proto)
            print(family, kind, proto, "was made")
        except OSError as e:
            if e.errno != 1 and make is socket.socket: print(family, kind, proto, e)
for family in (socket.AF_INET, socket.AF_INET6):
    for kind, proto in ((socket.SOCK_STREAM, 0), (socket.SOCK_STREAM, 6), (socket.SOCK_DGRAM, 0), (socket.SOCK_DGRAM, 17)):
        try: socket.socket(family, kind, proto).close()
        except OSError as e:
            if e.errno != 97: print(family, kind, proto, e)  # 97: the host has no such family
socket.socketpair()
`)
	if out != "" {
		t.Error(out)
	}
}

func (t *T) unknownCalls() {
	var names []string
	var calls []sysCall
	for n := uint64(470); n < 1024; n++ {
		names = append(names, strconv.FormatUint(n, 10))
		calls = append(calls, sysCall{Nr: n})
	}
	t.expect(t.calls(t.a(), names, calls), syscall.EPERM)
}

func (t *T) languages() {
	out := t.python(t.a(), `
import threading, subprocess, asyncio, sqlite3, ssl, multiprocessing as mp, tempfile, os, socket, time, ctypes, random, hashlib
def work(x): return x * x
l = []
ts = [threading.Thread(target=l.append, args=(i,)) for i in range(20)]
[t.start() for t in ts]; [t.join() for t in ts]
assert len(l) == 20
assert subprocess.run(["sh", "-c", "echo hi | tr a-z A-Z"], capture_output=True).stdout == b"HI\n"
async def f():
    p = await asyncio.create_subprocess_exec("echo", "x", stdout=-1)
    return (await p.communicate())[0]
assert asyncio.run(f()) == b"x\n"
db = sqlite3.connect("/work/t.db"); db.execute("pragma journal_mode=wal"); db.execute("create table if not exists t(x)"); db.execute("insert into t values(1)"); db.commit()
ssl.create_default_context()
with mp.get_context("fork").Pool(2) as p: assert p.map(work, range(4)) == [0, 1, 4, 9]
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); c = socket.create_connection(s.getsockname()); s.accept()[0].send(b"x"); assert c.recv(1) == b"x"
assert os.path.expanduser("~") == "/work" and tempfile.gettempdir() == "/tmp"
import pwd; assert pwd.getpwuid(os.getuid()).pw_name
print("ok")
`)
	if out != "ok" {
		t.Errorf("python: %q", out)
	}
	for _, l := range [][]string{
		{"/usr/bin/node", "-e", "const {Worker}=require('worker_threads');new Worker(\"require('worker_threads').parentPort.postMessage(1)\",{eval:true}).on('message',()=>{require('child_process').execSync('true');console.log('ok');process.exit(0)})"},
		{"/usr/bin/java", "-version"},
		{"/usr/bin/R", "--slave", "-e", "cat('ok')"},
		{"/bin/bash", "-c", "diff <(echo a) <(echo a) && echo ok"},
		{"/usr/bin/perl", "-e", "print 'ok'"},
	} {
		if _, err := os.Stat(l[0]); err != nil {
			t.Logf("not on this host: %s", l[0])
			continue
		}
		if r := t.exec(t.a(), l...); r.Code != 0 || r.Signal != 0 {
			t.Errorf("%s: %+v", l[0], r)
		}
	}
}

func (t *T) nested() {
	for _, args := range [][]string{
		{"/usr/bin/unshare", "-U", "true"}, {"/usr/bin/unshare", "-Ur", "true"}, {"/usr/bin/unshare", "-UrmC", "sh", "-c", "mount -t cgroup2 x /tmp"},
		{"/usr/bin/bwrap", "--ro-bind", "/", "/", "true"}, {"/bin/mount", "-t", "tmpfs", "x", "/tmp"}, {"/bin/umount", "/proc"},
		{"/usr/bin/nsenter", "-t", "1", "-m", "true"},
	} {
		if r := t.exec(t.a(), args...); r.Code == 0 && r.Signal == 0 {
			t.Errorf("%v worked", args)
		}
	}
}

func (t *T) typing() {
	out := t.python(t.a(), `
import pty, fcntl, os
a, b = pty.openpty()
os.setsid() if os.getpid() != os.getsid(0) else None
for name, nr in [("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C), ("TIOCSETD", 0x5423), ("TIOCSTI high", 0x100005412 - (1 << 32))]:
    try:
        fcntl.ioctl(b, nr, b"\x1b\0\0\0")
        print(name, "worked")
    except OSError as e:
        if e.errno != 1: print(name, e)
`)
	if out != "" {
		t.Error(out)
	}
}

func (t *T) terminal() {
	t.expect(try[map[string]int](t, t.a(), "read", "/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1"), syscall.ENXIO, syscall.ENOENT, syscall.EACCES)
}

func (t *T) ownProcesses() {
	for _, th := range try[[]thread](t, t.a(), "status") {
		if th.Fields["NSpid"] != strconv.Itoa(th.Tid) {
			t.Errorf("process %d has the numbers %q", th.Pid, th.Fields["NSpid"])
		}
	}
	r := t.exec(t.a(), "/bin/sh", "-c", "ls -d /proc/[0-9]* | wc -l")
	if n, err := strconv.Atoi(strings.TrimSpace(r.out)); err != nil || n > 40 {
		t.Errorf("%s processes", r.out)
	}
}

func (t *T) tellTales() {
	words := []string{t.canary}
	for _, p := range t.opts.Secrets {
		words = append(words, filepath.Dir(p))
	}
	words = append(words, t.opts.Guest, t.opts.Install)
	if wd, err := os.Getwd(); err == nil {
		words = append(words, wd)
	}
	for path, text := range try[map[string]string](t, t.a(), "environs") {
		if strings.HasSuffix(path, "/mountinfo") {
			// The probe's own folder is the suite's doing, not the backend's.
			text = strings.ReplaceAll(text, t.probe, "")
		}
		for _, w := range words {
			if strings.Contains(text, w) {
				t.Errorf("%s holds %q", path, w)
			}
		}
		if strings.HasSuffix(path, "/environ") && strings.Contains(text, "SANDBOOK_TEST_SECRET") {
			t.Errorf("%s has the server's variables", path)
		}
	}
}

func (t *T) layers() {
	got := t.exec(t.a(), "/bin/cat", "/proc/self/mountinfo").out
	if !strings.Contains(got, "lowerdir=") {
		return
	}
	host, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil && strings.Contains(string(host), "lowerdir=") {
		t.unenforced("the host's own /usr is on an overlay, whose mount options name its layers; run the server outside a container")
	}
	t.Errorf("%s", clip(got))
}

func (t *T) maskedProc() {
	names := []string{
		"kcore", "keys", "key-users", "kallsyms", "timer_list", "sched_debug", "latency_stats", "config.gz", "interrupts", "cmdline",
		"diskstats", "kmsg", "vmallocinfo", "slabinfo", "modules", "partitions", "swaps", "kpageflags", "acpi/wakeup", "scsi/scsi", "bus/pci/devices",
	}
	args := []string{"-c", "for f in \"$@\"; do printf '%s ' $f; head -c 4096 /proc/$f 2>/dev/null | tr -d '\\0' | wc -c; done", "sh"}
	r := t.exec(t.a(), append(append([]string{"/bin/sh"}, args...), names...)...)
	for line := range strings.Lines(r.out) {
		if f := strings.Fields(line); len(f) == 2 && f[1] != "0" {
			t.Errorf("/proc/%s gives %s bytes", f[0], f[1])
		}
	}
	const device = 1<<8 | 3 // of /dev/null
	for path, s := range try[map[string]struct {
		Errno int
		Mode  uint32
		Rdev  uint64
	}](t, t.a(), "stat", "/proc/keys", "/proc/config.gz", "/proc/interrupts", "/proc/kallsyms") {
		if s.Errno == 0 && s.Mode&syscall.S_IFMT == syscall.S_IFLNK {
			t.Errorf("%s is a link", path)
		}
		if s.Errno == 0 && s.Mode&syscall.S_IFMT == syscall.S_IFCHR && s.Rdev != device {
			t.Errorf("%s is device %#x", path, s.Rdev)
		}
	}
}

func (t *T) kernelSettings() {
	t.expect(try[map[string]int](t, t.a(), "create",
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory",
		"/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity",
		"/proc/sys/user/max_user_namespaces", "/proc/sys/fs/binfmt_misc/register", "/proc/1/uid_map",
		"/proc/sys/fs/pipe-max-size", "/proc/mtrr", "/proc/timer_list"),
		syscall.EROFS, syscall.EACCES, syscall.EPERM, syscall.ENOENT)
	// These may be opened, being the process's own; what is written is refused.
	r := t.exec(t.a(), "/bin/sh", "-c", "for f in uid_map gid_map; do echo '0 0 1' > /proc/self/$f && echo $f; done 2>/dev/null; true")
	if strings.TrimSpace(r.out) != "" {
		t.Errorf("written: %s", r.out)
	}
}

func (t *T) noSys() {
	t.expect(try[map[string]int](t, t.a(), "create",
		"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/release_agent", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/memory/tasks", "/sys/power/state"),
		syscall.ENOENT, syscall.EROFS, syscall.EACCES)
	t.expect(try[map[string]int](t, t.a(), "read", "/sys/class/powercap/intel-rapl", "/sys/firmware/dmi", "/sys/kernel/debug", "/sys/kernel/tracing"),
		syscall.ENOENT, syscall.EACCES)
}

func (t *T) overwrite() {
	before, err := os.ReadFile(t.opts.Guest)
	if err != nil {
		t.Fatal(err)
	}
	t.expect(try[map[string]int](t, t.a(), "create", "/proc/self/exe", "/proc/1/exe", "/run/sandbook/guest", "/proc/1/root/run/sandbook/guest", probePath),
		syscall.EROFS, syscall.ETXTBSY, syscall.EACCES, syscall.EPERM, syscall.ENOENT)
	// By the old way: wait for it to be free, through a descriptor.
	out := t.python(t.a(), `
import os
for path in ["/proc/1/exe", "/run/sandbook/guest"]:
    try:
        fd = os.open(path, os.O_PATH)
        os.open("/proc/self/fd/%d" % fd, os.O_WRONLY | os.O_TRUNC)
        print("opened", path)
    except OSError:
        pass
`)
	if out != "" {
		t.Error(out)
	}
	if after, err := os.ReadFile(t.opts.Guest); err != nil || !slices.Equal(before, after) {
		t.Errorf("the guest program has changed (%v)", err)
	}
}

func (t *T) user() {
	id := try[struct{ UID, Euid, Gid int }](t, t.a(), "id")
	if id.UID == 0 || id.Euid == 0 || id.Gid == 0 {
		t.Errorf("inside: %+v", id)
	}
	b := t.open(t, backends.Spec{})
	marker := "sb-user-" + random()
	t.exec(b, probePath, "daemon", marker)
	for _, pid := range hostProcs(marker) {
		var st syscall.Stat_t
		if err := syscall.Stat(fmt.Sprintf("/proc/%d", pid), &st); err != nil {
			continue
		}
		if st.Uid == 0 || os.Geteuid() == 0 && st.Uid < 65536 {
			t.Errorf("outside, the user is %d", st.Uid)
		}
	}
}

func (t *T) groups() {
	id := try[struct{ Groups []int }](t, t.a(), "id")
	for _, g := range id.Groups {
		if g != 1000 && g != 65534 {
			t.Errorf("groups %v", id.Groups)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	for _, th := range try[[]thread](t, t.a(), "status") {
		if g := strings.TrimSpace(th.Fields["Groups"]); g != "" && g != "1000" {
			t.Errorf("process %d has the groups %q", th.Pid, g)
		}
	}
}

func (t *T) privileged() {
	for _, args := range [][]string{
		{"/usr/bin/sudo", "-n", "true"}, {"/bin/su", "-c", "true"}, {"/bin/ping", "-c", "1", "127.0.0.1"}, {"/usr/bin/newuidmap", "1", "0", "0", "1"},
		{"/usr/bin/pkexec", "true"}, {"/usr/bin/passwd", "-d", "root"}, {"/usr/bin/chsh", "-s", "/bin/sh"},
	} {
		if _, err := os.Stat(args[0]); err != nil {
			continue
		}
		r, err := t.a().start(wire.Command{Argv: args, TimeoutMS: 3000}, false)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.wait(t.ctx); err == nil && got.Code == 0 && got.Signal == 0 && !got.TimedOut {
			t.Errorf("%v worked: %s", args, clip(got.out))
		}
	}
}

func (t *T) keyrings() {
	t.expectCalls(t.a(), syscall.EPERM, "keyctl", "add_key", "request_key")
}

func (t *T) credentials() {
	t.expect(try[map[string]int](t, t.a(), "read",
		"/work/.docker/config.json", "/work/.aws", "/work/.ssh", "/work/.netrc", "/root/.docker/config.json", "/root/.aws/credentials", "/root/.config/gcloud",
		"/var/run/secrets/kubernetes.io/serviceaccount/token", "/run/secrets", "/etc/kubernetes", "/etc/docker", "/etc/pip.conf", "/etc/npmrc",
		"/etc/gitconfig", "/etc/environment", "/etc/krb5.keytab", "/etc/ssl/private", "/etc/apt/auth.conf"),
		syscall.ENOENT, syscall.EACCES, syscall.ENOTDIR)
}

func (t *T) neighbourFiles() {
	secret := "sb-neighbour-" + random()
	t.exec(t.other(), "/bin/sh", "-c", "for d in /work /tmp /dev/shm /var/tmp; do echo "+secret+" > $d/"+secret+"; done")
	r := t.exec(t.a(), "/bin/sh", "-c", "find /work /tmp /dev/shm /var/tmp /run /proc/1/root/tmp -name '"+secret+"' 2>/dev/null; true")
	if strings.TrimSpace(r.out) != "" {
		t.Errorf("found %s", r.out)
	}
}

func (t *T) neighbourProcesses() {
	marker := "sb-peer-" + random()
	t.exec(t.other(), probePath, "daemon", marker)
	for path, text := range try[map[string]string](t, t.a(), "environs") {
		if strings.HasSuffix(path, "/cmdline") && strings.Contains(text, marker) {
			t.Errorf("%s is the neighbour's", path)
		}
	}
	for _, pid := range hostProcs(marker) {
		if e := try[int](t, t.a(), "kill", strconv.Itoa(pid), "9"); e == 0 && pid > 300 {
			t.Errorf("process %d of the host could be signalled", pid)
		}
	}
	if len(hostProcs(marker)) == 0 {
		t.Error("the neighbour's processes are gone")
	}
}

func (t *T) neighbourIPC() {
	const make = `
import ctypes, socket, os, time
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0x5b5b, 4096, 0o1666), libc.msgget(0x5b5b, 0o1666), libc.semget(0x5b5b, 1, 0o1666), flush=True)
s = socket.socket(socket.AF_UNIX); s.bind("\0sandbook-x03"); s.listen()
print("up", flush=True); time.sleep(20)`
	r, err := t.other().start(wire.Command{Argv: []string{t.opts.Python, "-I", "-c", make}, TimeoutMS: 5000}, false)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.output(t.ctx); err != nil || strings.Contains(out, "-1") {
		t.Fatalf("%q %v", out, err)
	}
	out := t.python(t.a(), `
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0x5b5b, 4096, 0), libc.msgget(0x5b5b, 0), libc.semget(0x5b5b, 1, 0))
try:
    socket.socket(socket.AF_UNIX).connect("\0sandbook-x03"); print("connected")
except OSError as e: pass
`)
	if out != "-1 -1 -1" {
		t.Errorf("%q", out)
	}
}

func (t *T) busyNeighbour() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{CPU: 500}})
	r, err := b.start(wire.Command{Argv: []string{"/bin/sh", "-c", "echo up; while :; do /bin/true; done"}, TimeoutMS: 20000}, false)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = r.output(t.ctx)
	var worst time.Duration
	for range 30 {
		began := time.Now()
		t.alive(t.other())
		worst = max(worst, time.Since(began))
	}
	if worst > time.Second {
		t.Errorf("the slowest of 30 answers took %v", worst)
	}
}
