// Probe is a small static program that the conformance suite shows to a
// sandbox and runs there: each subcommand tries one thing and prints what
// happened as JSON. It judges nothing.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	do, ok := map[string]func([]string) any{
		"read": read, "create": create, "syscalls": syscalls, "int80": int80Call, "fill": fill, "inodes": inodes,
		"unlinked": unlinked, "spawn": spawn, "status": status, "fds": fds, "dial": dial,
		"spin": spin, "daemon": daemon, "hold": hold, "kill": kill, "limits": limits, "interfaces": interfaces,
		"sched": sched, "stat": stat, "inotify": inotify, "environs": environs, "zombies": zombies, "openfiles": openfiles,
		"listen": listen, "grow": grow, "id": id, "setuid": setuid, "links": links,
	}[os.Args[1]]
	if !ok {
		os.Exit(2)
	}
	_ = json.NewEncoder(os.Stdout).Encode(do(os.Args[2:]))
}

// code is the errno of an error as a name-independent number, 0 for none and
// -1 for an error that carries none.
func code(err error) int {
	for err != nil {
		if e, ok := err.(syscall.Errno); ok {
			return int(e)
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return -1
		}
		err = u.Unwrap()
	}
	return 0
}

func each(args []string, f func(string) int) map[string]int {
	out := map[string]int{}
	for _, a := range args {
		out[a] = f(a)
	}
	return out
}

// read opens and reads a little of each path, or lists it.
func read(paths []string) any {
	return each(paths, func(p string) int {
		f, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return code(err)
		}
		defer f.Close()
		if fi, err := f.Stat(); err == nil && fi.IsDir() {
			_, err = f.Readdirnames(1)
			if err != nil && err.Error() == "EOF" {
				err = nil
			}
			return code(err)
		}
		_, err = f.Read(make([]byte, 64))
		if err != nil && err.Error() == "EOF" {
			return 0
		}
		return code(err)
	})
}

// create tries to make a file, or to open an existing one for writing.
func create(paths []string) any {
	return each(paths, func(p string) int {
		f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			_ = f.Close()
		}
		return code(err)
	})
}

type call struct {
	Nr   uintptr   `json:"nr"`
	Args []uint64  `json:"args"`
	Text [6]string `json:"text"` // where not empty, the argument is a pointer to it
}

// syscalls makes raw calls and reports their errno, 0 for success.
func syscalls(args []string) any {
	var calls []call
	if err := json.Unmarshal([]byte(args[0]), &calls); err != nil {
		return err.Error()
	}
	var out []int
	for _, c := range calls {
		var a [6]uintptr
		for i := range a {
			if i < len(c.Args) {
				a[i] = uintptr(c.Args[i])
			}
			if c.Text[i] != "" {
				p, _ := syscall.BytePtrFromString(c.Text[i])
				a[i] = uintptr(unsafe.Pointer(p))
			}
		}
		_, _, e := syscall.RawSyscall6(c.Nr, a[0], a[1], a[2], a[3], a[4], a[5])
		out = append(out, int(e))
	}
	return out
}

func int80Call([]string) any { return int80() }

// fill writes to a new file in a folder until it fails.
func fill(args []string) any {
	limit, _ := strconv.ParseInt(args[1], 10, 64)
	signal.Ignore(syscall.SIGXFSZ)
	var n int64
	var err error
	for i := 0; err == nil && n < limit; i++ {
		var f *os.File
		f, err = os.Create(filepath.Join(args[0], fmt.Sprint("fill", i)))
		for err == nil && n < limit {
			var k int
			k, err = f.Write(make([]byte, 1<<20))
			n += int64(k)
			if err != nil && code(err) == int(syscall.EFBIG) {
				err = nil // the next file
				break
			}
		}
		_ = f.Close()
	}
	for i := range 64 {
		_ = os.Remove(filepath.Join(args[0], fmt.Sprint("fill", i)))
	}
	return map[string]int64{"bytes": n, "errno": int64(code(err))}
}

// unlinked is fill with a file that has no name any more.
func unlinked(args []string) any {
	limit, _ := strconv.ParseInt(args[1], 10, 64)
	signal.Ignore(syscall.SIGXFSZ)
	f, err := os.Create(filepath.Join(args[0], "unlinked"))
	if err != nil {
		return map[string]int64{"errno": int64(code(err))}
	}
	_ = os.Remove(f.Name())
	var n int64
	for err == nil && n < limit {
		var k int
		k, err = f.Write(make([]byte, 1<<20))
		n += int64(k)
	}
	return map[string]int64{"bytes": n, "errno": int64(code(err))}
}

// inodes makes empty files until it fails.
func inodes(args []string) any {
	limit, _ := strconv.Atoi(args[1])
	dir := filepath.Join(args[0], "inodes")
	_ = os.Mkdir(dir, 0o700)
	var err error
	n := 0
	for ; n < limit && err == nil; n++ {
		var f *os.File
		if f, err = os.Create(filepath.Join(dir, strconv.Itoa(n))); err == nil {
			_ = f.Close()
		}
	}
	_ = os.RemoveAll(dir)
	return map[string]int{"files": n, "errno": code(err)}
}

// grow sets the size of a file.
func grow(args []string) any {
	size, _ := strconv.ParseInt(args[1], 10, 64)
	signal.Ignore(syscall.SIGXFSZ)
	f, err := os.Create(args[0])
	if err != nil {
		return code(err)
	}
	defer os.Remove(args[0])
	return code(f.Truncate(size))
}

// spawn starts processes until one is refused, and ends them.
func spawn(args []string) any {
	limit, _ := strconv.Atoi(args[0])
	var started []*os.Process
	var err error
	for range limit {
		var p *os.Process
		p, err = os.StartProcess("/proc/self/exe", []string{"probe", "hold"}, &os.ProcAttr{})
		if err != nil {
			break
		}
		started = append(started, p)
	}
	for _, p := range started {
		_ = p.Kill()
		_, _ = p.Wait()
	}
	return map[string]int{"started": len(started), "errno": code(err)}
}

func hold([]string) any {
	for {
		<-time.After(time.Hour) // the runtime takes a bare select for a deadlock
	}
}

// daemon starts a copy of this program that has left every group it could:
// new session, no death signal, a reaper of its own. Its arguments carry a
// marker for the host to look for.
func daemon(args []string) any {
	if len(args) > 1 && args[1] == "child" {
		const prSetSubreaper, prSetPdeathsig = 36, 1
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetSubreaper, 1, 0)
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetPdeathsig, 0, 0)
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		cmd := exec.Command("/proc/self/exe", "hold", args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start()
		hold(nil)
	}
	cmd := exec.Command("/proc/self/exe", "daemon", args[0], "child")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err.Error()
	}
	return cmd.Process.Pid
}

func kill(args []string) any {
	pid, _ := strconv.Atoi(args[0])
	sig, _ := strconv.Atoi(args[1])
	return code(syscall.Kill(pid, syscall.Signal(sig)))
}

// status reads what /proc says of every thread of every process.
func status([]string) any {
	type thread struct {
		Pid, Tid int
		Fields   map[string]string
	}
	var out []thread
	paths, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/status")
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		t := thread{Fields: map[string]string{}}
		parts := strings.Split(p, "/")
		t.Pid, _ = strconv.Atoi(parts[2])
		t.Tid, _ = strconv.Atoi(parts[4])
		for line := range strings.Lines(string(b)) {
			k, v, _ := strings.Cut(line, ":")
			t.Fields[k] = strings.TrimSpace(v)
		}
		out = append(out, t)
	}
	return out
}

// fds lists the open descriptors this program was started with.
func fds([]string) any {
	out := map[string]string{}
	names, _ := filepath.Glob("/proc/self/fd/*")
	for _, n := range names {
		to, err := os.Readlink(n)
		// The runtime's own and the one that lists are not inherited.
		if err == nil && !strings.Contains(to, "/proc/") && !strings.HasPrefix(to, "anon_inode:") {
			out[filepath.Base(n)] = to
		}
	}
	return out
}

// dial connects to network|address pairs.
func dial(args []string) any {
	return each(args, func(a string) int {
		network, addr, _ := strings.Cut(a, "|")
		c, err := net.DialTimeout(network, addr, 2*time.Second)
		if err != nil {
			return code(err)
		}
		defer c.Close()
		if network == "udp" || network == "udp4" || network == "udp6" {
			_, err = c.Write([]byte("x"))
		}
		return code(err)
	})
}

func listen(args []string) any {
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err.Error()
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return code(err)
		}
		_ = c.Close()
	}
}

// spin burns processor time in so many threads for so many milliseconds.
func spin(args []string) any {
	n, _ := strconv.Atoi(args[0])
	ms, _ := strconv.Atoi(args[1])
	runtime.GOMAXPROCS(n)
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for time.Now().Before(end) { //nolint:revive // burning time is the point
			}
		})
	}
	wg.Wait()
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()).Milliseconds()
}
