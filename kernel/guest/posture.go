package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"sandbook/kernel/wire"
)

// harden makes the guest itself as hard to touch as it can be and looks at the
// walls around it. It must be called before any other process is started.
func harden(workspace string, listenFD int) []wire.Check {
	// This one is a property of threads, and of those they start.
	_, _, _ = syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0)
	_ = prctl(prSetSubreaper, 1)
	var core syscall.Rlimit
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &core)
	checks := posture(workspace, listenFD)
	_ = prctl(prSetDumpable, 0)
	return checks
}

// posture looks at the walls from inside. It only reports: the server decides.
func posture(workspace string, listenFD int) []wire.Check {
	status := procStatus()
	type look struct {
		name  string
		check func() (bool, string)
	}
	looks := []look{
		{"seccomp", func() (bool, string) {
			if mode := status["Seccomp"]; mode != "2" {
				return false, "System calls are not filtered (mode " + orNone(mode) + " instead of 2)."
			}
			return true, "A filter decides which system calls may be made."
		}},
		{"no_new_privs", func() (bool, string) {
			return status["NoNewPrivs"] == "1", "NoNewPrivs is " + orNone(status["NoNewPrivs"]) + "."
		}},
		{"capabilities", func() (bool, string) { return checkCaps(status) }},
		{"user", func() (bool, string) { return checkUser(status) }},
		{"network", checkNetwork},
		{"sockets", checkSockets},
		{"read_only", checkReadOnly},
		{"workspace", func() (bool, string) { return checkWorkspace(workspace) }},
		{"descriptors", func() (bool, string) { return checkDescriptors(listenFD) }},
		{"environment", checkEnvironment},
		{"processes", checkProcesses},
		{"syscalls", checkSyscalls},
		{"io_uring", checkURing},
		{"devices", checkDevices},
		{"core_dumps", checkCore},
		{"kernel_settings", checkKernelSettings},
		{"host_files", checkHostFiles},
	}
	out := make([]wire.Check, 0, len(looks))
	for _, l := range looks {
		ok, detail := l.check()
		out = append(out, wire.Check{Name: l.name, OK: ok, Detail: cutText(detail, 500)})
	}
	return out
}

// some names the first few of many.
func some(names []string) string {
	const few = 20
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], " "), len(names)-few)
	}
	return strings.Join(names, " ")
}

func orNone(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func procStatus() map[string]string {
	out := map[string]string{}
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			out[name] = strings.TrimSpace(value)
		}
	}
	return out
}

func checkCaps(status map[string]string) (bool, string) {
	var held []string
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if v := status[set]; strings.Trim(v, "0") != "" || v == "" {
			held = append(held, set+" "+orNone(v))
		}
	}
	if len(held) > 0 {
		return false, "There are capabilities: " + strings.Join(held, ", ") + "."
	}
	return true, "All five capability sets are empty."
}

func checkUser(status map[string]string) (bool, string) {
	uid, gid := os.Getuid(), os.Getgid()
	ok := uid != 0 && gid != 0 && os.Geteuid() == uid && os.Getegid() == gid
	var extra []string
	for g := range strings.FieldsSeq(status["Groups"]) {
		// 65534 is a group that does not exist in the user namespace.
		if g != strconv.Itoa(gid) && g != "65534" {
			extra = append(extra, g)
			ok = false
		}
	}
	detail := fmt.Sprintf("The user is %d, the group %d", uid, gid)
	if len(extra) > 0 {
		detail += ", and there are the groups " + strings.Join(extra, " ")
	}
	return ok, detail + "."
}

func checkNetwork() (bool, string) {
	b, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return true, "There is no list of network interfaces."
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	for _, n := range names {
		if n != "lo" {
			return false, "There are network interfaces besides loopback: " + some(names) + "."
		}
	}
	return true, "The only network interface is loopback."
}

func checkSockets() (bool, string) {
	families := []struct {
		name      string
		family, t int
	}{
		{"netlink", syscall.AF_NETLINK, syscall.SOCK_RAW},
		{"packet", syscall.AF_PACKET, syscall.SOCK_RAW},
		{"vsock", 40, syscall.SOCK_STREAM},
		{"alg", 38, syscall.SOCK_SEQPACKET},
		{"raw", syscall.AF_INET, syscall.SOCK_RAW},
		{"bluetooth", 31, syscall.SOCK_RAW},
	}
	var open []string
	for _, f := range families {
		protocol := 0
		if f.name == "raw" {
			protocol = syscall.IPPROTO_ICMP
		}
		if fd, err := syscall.Socket(f.family, f.t|syscall.SOCK_CLOEXEC, protocol); err == nil {
			_ = syscall.Close(fd)
			open = append(open, f.name)
		}
	}
	if len(open) > 0 {
		return false, "Sockets of these kinds can be made: " + strings.Join(open, ", ") + "."
	}
	return true, "Netlink, packet, vsock, crypto, raw and Bluetooth sockets are refused."
}

func checkReadOnly() (bool, string) {
	var open []string
	for _, dir := range []string{"/", "/usr", "/usr/bin", "/etc", "/lib", "/dev", "/proc", "/sys", "/run", "/var"} {
		p := filepath.Join(dir, ".sandbook-posture")
		fd, err := syscall.Open(p, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY|syscall.O_CLOEXEC, 0o600)
		if err == nil {
			_ = syscall.Close(fd)
			_ = syscall.Unlink(p)
			open = append(open, dir)
		}
	}
	if len(open) > 0 {
		return false, "Files can be made in " + strings.Join(open, ", ") + "."
	}
	return true, "The system folders are read-only."
}

func checkWorkspace(dir string) (bool, string) {
	p := filepath.Join(dir, tempPrefix+"posture")
	fd, err := syscall.Open(p, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return false, "The workspace cannot be written: " + cause(err) + "."
	}
	_ = syscall.Close(fd)
	_ = syscall.Unlink(p)
	return true, "The workspace can be written."
}

func checkDescriptors(listenFD int) (bool, string) {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return false, "The list of open descriptors cannot be read."
	}
	names, _ := d.Readdirnames(-1)
	own := int(d.Fd())
	_ = d.Close()
	var stray []string
	count := 0
	for _, n := range names {
		fd, err := strconv.Atoi(n)
		if err != nil || fd == own {
			continue
		}
		to, err := os.Readlink("/proc/self/fd/" + n)
		if err != nil {
			continue // the runtime closed it meanwhile
		}
		switch {
		case fd <= 2, fd == listenFD, strings.HasPrefix(to, "anon_inode:[event"):
			count++
		default:
			stray = append(stray, n+" "+kindOf(to))
		}
	}
	if len(stray) > 0 {
		sort.Strings(stray)
		return false, "There are inherited descriptors: " + strings.Join(stray, ", ") + "."
	}
	return true, fmt.Sprintf("No descriptor was inherited besides the host's socket (%d open).", count)
}

// kindOf names what a descriptor is without giving a path away.
func kindOf(link string) string {
	if kind, _, ok := strings.Cut(link, ":"); ok && !strings.HasPrefix(link, "/") {
		return kind
	}
	return "file"
}

func checkEnvironment() (bool, string) {
	given := map[string]bool{}
	var names []string
	for _, e := range os.Environ() {
		given[e] = true
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
	}
	// With dumpable set this is readable; a first process of another user is
	// not, which is as good.
	b, err := os.ReadFile("/proc/1/environ")
	if err == nil {
		for e := range strings.SplitSeq(strings.TrimRight(string(b), "\x00"), "\x00") {
			if e != "" && !given[e] {
				name, _, _ := strings.Cut(e, "=")
				return false, "The first process has a variable the sandbox was not given: " + name + "."
			}
		}
	}
	for _, n := range names {
		up := strings.ToUpper(n)
		for _, word := range []string{"SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "PRIVATE"} {
			if strings.Contains(up, word) {
				return false, "The environment has a variable that looks like a secret: " + n + "."
			}
		}
	}
	sort.Strings(names)
	return true, "The environment holds only: " + some(names) + "."
}

func checkProcesses() (bool, string) {
	d, err := os.Open("/proc")
	if err != nil {
		return false, "There is no /proc."
	}
	names, _ := d.Readdirnames(-1)
	_ = d.Close()
	var others []string
	self := os.Getpid()
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil && pid != self && pid != 1 {
			others = append(others, n)
		}
	}
	if len(others) > 0 || self > 2 {
		return false, fmt.Sprintf("%d other processes can be seen.", len(others))
	}
	return true, "No process outside the sandbox can be seen."
}

// checkSyscalls makes calls that would do no harm if they were let through,
// and that a filter refuses before it looks at their arguments.
func checkSyscalls() (bool, string) {
	calls := []struct {
		name string
		nr   uintptr
		args [3]uintptr
	}{
		{"ptrace", syscall.SYS_PTRACE, [3]uintptr{0x4206, 0, 0}}, // PTRACE_SEIZE of no process
		{"unshare", syscall.SYS_UNSHARE, [3]uintptr{0x10000000}}, // CLONE_NEWUSER; refused in a program with threads as well
		{"mount", syscall.SYS_MOUNT, [3]uintptr{0, 0, 0}},
		{"pivot_root", syscall.SYS_PIVOT_ROOT, [3]uintptr{0, 0, 0}},
		{"keyctl", syscall.SYS_KEYCTL, [3]uintptr{0, ^uintptr(2), 0}}, // GET_KEYRING_ID of the session
		{"perf_event_open", syscall.SYS_PERF_EVENT_OPEN, [3]uintptr{0, 0, 0}},
		{"kexec_load", syscall.SYS_KEXEC_LOAD, [3]uintptr{0, 0, 0}},
		{"settimeofday", syscall.SYS_SETTIMEOFDAY, [3]uintptr{0, 1, 0}},
	}
	var open []string
	for _, c := range calls {
		_, _, e := syscall.Syscall6(c.nr, c.args[0], c.args[1], c.args[2], 0, 0, 0)
		if e != syscall.EPERM && e != syscall.ENOSYS && e != syscall.EACCES {
			open = append(open, c.name)
		}
	}
	if len(open) > 0 {
		return false, "These system calls are let through: " + strings.Join(open, ", ") + "."
	}
	return true, "Tracing, namespaces, mounts, keyrings, perf, kexec and the clock are refused."
}

func checkURing() (bool, string) {
	const ioURingSetup = 425
	_, _, e := syscall.Syscall(ioURingSetup, 0, 0, 0)
	if e == syscall.EPERM || e == syscall.ENOSYS || e == syscall.EACCES {
		return true, "io_uring is refused."
	}
	return false, "io_uring can be set up."
}

func checkDevices() (bool, string) {
	safe := map[string]bool{
		"null": true, "zero": true, "full": true, "random": true, "urandom": true, "tty": true, "ptmx": true,
		"pts": true, "fd": true, "stdin": true, "stdout": true, "stderr": true, "core": true, "shm": true,
		"mqueue": true, "console": true,
	}
	d, err := os.Open("/dev")
	if err != nil {
		return true, "There is no /dev."
	}
	names, _ := d.Readdirnames(-1)
	_ = d.Close()
	var odd []string
	for _, n := range names {
		if !safe[n] {
			odd = append(odd, shown(n))
		}
	}
	if len(odd) > 0 {
		sort.Strings(odd)
		return false, "There are devices that should not be here: " + some(odd) + "."
	}
	return true, fmt.Sprintf("/dev holds %d harmless entries.", len(names))
}

func checkCore() (bool, string) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &r); err != nil {
		return false, "The limit of core dumps cannot be read."
	}
	return r.Cur == 0 && r.Max == 0, fmt.Sprintf("Core dumps are limited to %d bytes.", r.Max)
}

func checkKernelSettings() (bool, string) {
	var open []string
	for _, p := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/sys/vm/overcommit_memory"} {
		if fd, err := syscall.Open(p, syscall.O_WRONLY|syscall.O_CLOEXEC, 0); err == nil {
			_ = syscall.Close(fd)
			open = append(open, p)
		}
	}
	for _, p := range []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug"} {
		fd, err := syscall.Open(p, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		var b [1]byte
		if n, err := syscall.Read(fd, b[:]); err == nil && n > 0 {
			open = append(open, p)
		}
		_ = syscall.Close(fd)
	}
	if len(open) > 0 {
		return false, "These kernel files are open: " + strings.Join(open, ", ") + "."
	}
	return true, "The kernel's settings and memory files are closed."
}

func checkHostFiles() (bool, string) {
	var open []string
	for _, p := range []string{
		"/etc/shadow", "/root/.ssh", "/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock",
		"/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/var/run/secrets", "/tmp/.X11-unix",
	} {
		const readOK = 4
		if err := access(p, readOK); err == nil {
			open = append(open, p)
		}
	}
	if len(open) > 0 {
		return false, "These files of the host can be reached: " + strings.Join(open, ", ") + "."
	}
	return true, "No password file, key or engine socket of the host can be reached."
}

func access(path string, mode uint32) error {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	at := -100                                                                                                          // AT_FDCWD
	_, _, e := syscall.Syscall6(syscall.SYS_FACCESSAT, uintptr(at), uintptr(unsafe.Pointer(p)), uintptr(mode), 0, 0, 0) //nolint:gosec // a path for the kernel
	if e != 0 {
		return e
	}
	return nil
}
