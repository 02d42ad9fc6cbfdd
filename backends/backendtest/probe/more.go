package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// limits reads the resource limits by name.
func limits([]string) any {
	out := map[string][2]uint64{}
	for name, n := range map[string]int{"core": 4, "nofile": 7, "fsize": 1, "as": 9, "nproc": 6} {
		var r syscall.Rlimit
		// The runtime raises the soft limit of open files for itself, so only
		// the hard one tells.
		_ = syscall.Getrlimit(n, &r)
		out[name] = [2]uint64{r.Cur, r.Max}
	}
	return out
}

func interfaces([]string) any {
	ifs, err := net.Interfaces()
	if err != nil {
		// No netlink in a sandbox: the kernel's table says the same.
		b, _ := os.ReadFile("/proc/net/dev")
		var out []string
		for line := range strings.Lines(string(b)) {
			if name, _, ok := strings.Cut(line, ":"); ok {
				out = append(out, strings.TrimSpace(name))
			}
		}
		return out
	}
	var out []string
	for _, i := range ifs {
		out = append(out, i.Name)
	}
	return out
}

// sched asks for priorities that would hurt others.
func sched([]string) any {
	out := map[string]int{}
	param := int32(50)
	out["fifo"] = schedSet(1, &param)
	out["rr"] = schedSet(2, &param)
	out["nice"] = code(syscall.Setpriority(syscall.PRIO_PROCESS, 0, -20))
	out["ioprio"] = ioprio(1 << 13)
	return out
}

// stat describes files, without following links.
func stat(paths []string) any {
	type info struct {
		Errno int
		Mode  uint32
		Rdev  uint64
		UID   uint32
		Flags int64 // of the file system
		Size  int64
	}
	out := map[string]info{}
	for _, p := range paths {
		var s syscall.Stat_t
		var fs syscall.Statfs_t
		i := info{Errno: code(syscall.Lstat(p, &s))}
		_ = syscall.Statfs(p, &fs)
		i.Mode, i.Rdev, i.UID, i.Flags, i.Size = s.Mode, s.Rdev, s.Uid, fs.Flags, s.Size
		out[p] = i
	}
	return out
}

// inotify makes watches' instances until it fails, and keeps them a while.
func inotify(args []string) any {
	limit, _ := strconv.Atoi(args[0])
	n := 0
	var err error
	for ; n < limit; n++ {
		if _, err = syscall.InotifyInit1(syscall.IN_CLOEXEC); err != nil {
			break
		}
	}
	if len(args) > 1 {
		_, _ = os.Stdout.WriteString(strconv.Itoa(n) + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
	return map[string]int{"made": n, "errno": code(err)}
}

// environs reads every environment and command line there is.
func environs([]string) any {
	out := map[string]string{}
	for _, pattern := range []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline", "/proc/[0-9]*/mountinfo", "/proc/[0-9]*/cgroup"} {
		paths, _ := filepath.Glob(pattern)
		for _, p := range paths {
			if b, err := os.ReadFile(p); err == nil {
				out[p] = string(b)
			}
		}
	}
	return out
}

// zombies leaves orphans that end at once, and counts what is not reaped.
func zombies(args []string) any {
	n, _ := strconv.Atoi(args[0])
	for range n {
		// The shell's child outlives it and is the first process's to reap.
		_ = exec.Command("/bin/sh", "-c", "(exec sleep 0.01) &").Run()
	}
	count := func() int {
		z := 0
		paths, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, p := range paths {
			if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), ") Z ") {
				z++
			}
		}
		return z
	}
	left := count()
	for deadline := time.Now().Add(5 * time.Second); left > 0 && time.Now().Before(deadline); left = count() {
		<-time.After(20 * time.Millisecond)
	}
	return left
}

// openfiles opens files until it is refused.
func openfiles(args []string) any {
	limit, _ := strconv.Atoi(args[0])
	n := 0
	var err error
	for ; n < limit; n++ {
		if _, err = syscall.Open("/dev/null", syscall.O_RDONLY, 0); err != nil {
			break
		}
	}
	return map[string]int{"opened": n, "errno": code(err)}
}

func id([]string) any {
	groups, _ := os.Getgroups()
	host, _ := os.Hostname()
	uidMap, _ := os.ReadFile("/proc/self/uid_map")
	cwd, _ := os.Getwd()
	return map[string]any{
		"uid": os.Getuid(), "euid": os.Geteuid(), "gid": os.Getgid(), "groups": groups,
		"host": host, "uid_map": string(uidMap), "cwd": cwd, "env": os.Environ(), "pid": os.Getpid(),
	}
}

// setuid makes a set-user-id copy of this program and runs it.
func setuid(args []string) any {
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err.Error()
	}
	path := filepath.Join(args[0], "setuid")
	defer os.Remove(path)
	if err := os.WriteFile(path, b, 0o755); err != nil {
		return err.Error()
	}
	chown := code(os.Chown(path, 0, 0))
	_ = os.Chmod(path, 0o4755|os.ModeSetuid)
	out, err := exec.Command(path, "id").Output()
	text := string(out)
	if err != nil {
		text = err.Error()
	}
	return map[string]any{"chown": chown, "out": text}
}

// links reads the magic links of every process.
func links([]string) any {
	out := map[string]string{}
	for _, pattern := range []string{"/proc/[0-9]*/cwd", "/proc/[0-9]*/root", "/proc/[0-9]*/exe", "/proc/[0-9]*/fd/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, p := range paths {
			if to, err := os.Readlink(p); err == nil {
				out[p] = to
			}
		}
	}
	return out
}
