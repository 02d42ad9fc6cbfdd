package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"sandbook/backends/internal/shim/job"
)

// Numbers the syscall package lacks; the same on every architecture we build.
const (
	sysCloseRange       = 436
	closeRangeCloexec   = 4
	prSetName           = 15
	prSetChildSubreaper = 36
)

// tailSize is how much of standard error is kept.
const tailSize = 4 << 10

// maxData is what fits into a pipe without a reader.
const maxData = 60 << 10

// hygiene cuts what was inherited from the server.
func hygiene() error {
	syscall.Umask(0o077)
	if _, _, e := syscall.RawSyscall(sysCloseRange, 3, ^uintptr(0), closeRangeCloexec); e != 0 {
		return fmt.Errorf("mark descriptors: %w", e)
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); e != 0 {
		return fmt.Errorf("become reaper: %w", e)
	}
	// Executed by descriptor, it would be called by its number.
	name := []byte("sandbook-shim\x00")
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&name[0])), 0) //nolint:gosec // the kernel reads it
	return nil
}

// limits sets the resource limits the sandbox inherits.
func limits(j job.Job) error {
	set := func(what int, n int64) error {
		v := uint64(n) //nolint:gosec // positive
		return syscall.Setrlimit(what, &syscall.Rlimit{Cur: v, Max: v})
	}
	return errors.Join(
		set(syscall.RLIMIT_CORE, 0),
		limitFiles(uint64(j.Files)), //nolint:gosec // positive
		set(syscall.RLIMIT_FSIZE, j.Workspace),
	)
}

// guestFiles is how many more descriptors the guest may have than what it
// starts, which it limits itself. Descriptors in flight are counted per host
// user and refused by the limit of who sends: with a larger one the guest can
// still hand over its own when code has as many in flight as it may.
const guestFiles = 16 << 10

// limitFiles sets the limit of open files, as far as this process may have so
// many.
func limitFiles(n uint64) error {
	var have syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &have); err != nil {
		return err
	}
	want := syscall.Rlimit{Cur: n + guestFiles, Max: n + guestFiles}
	err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want)
	if !errors.Is(err, syscall.EPERM) || have.Max >= want.Max {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: have.Max, Max: have.Max})
}

// dataFD is the reading end of a pipe that holds b.
func dataFD(b []byte) (*os.File, error) {
	if len(b) > maxData {
		return nil, fmt.Errorf("%d bytes are too many for a pipe", len(b))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		_ = r.Close()
		_ = w.Close()
		return nil, err
	}
	return r, w.Close()
}

// socketpair returns two connected sockets. Bubblewrap reads one byte from the
// second just before it hands over to the guest, and closes it.
func socketpair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "block"), os.NewFile(uintptr(fds[1]), "block"), nil //nolint:gosec // descriptors
}

// spawn starts bubblewrap inside the control group and waits until it has
// built the sandbox. On error the caller kills and reaps.
func (w *watch) spawn(listener *os.File) error {
	ours, theirs, err := socketpair()
	if err != nil {
		return err
	}
	defer ours.Close()
	stderr, stderrW, err := os.Pipe()
	if err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	files := []*os.File{null, stderrW, stderrW, nil, listener, nil, theirs}
	if files[job.FDArgs], err = dataFD(nulSeparated(w.job.Args)); err != nil {
		return err
	}
	if files[job.FDSeccomp], err = dataFD(w.job.Seccomp); err != nil {
		return err
	}
	if _, err := ours.Write([]byte{1}); err != nil {
		return err
	}
	err = w.fork(files)
	for i, f := range files {
		if i != job.FDListen && i != 2 {
			_ = f.Close()
		}
	}
	if err != nil {
		_ = stderr.Close()
		return err
	}
	w.tail = make(chan []byte, 1)
	go func() { w.tail <- readTail(stderr) }()
	return w.walls(ours)
}

// walls waits until bubblewrap has done all its work. It has if it took the
// byte: a socket closed with the byte still in it gives a reset instead.
func (w *watch) walls(ours *os.File) error {
	_, err := ours.Read(make([]byte, 1))
	if !errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	w.kill()
	w.reap()
	detail := strings.TrimSpace(string(<-w.tail))
	if detail == "" {
		detail = "bubblewrap ended without a word"
	}
	return errors.New(detail)
}

// fork starts bubblewrap from this thread, which enters the version 1 groups
// for that moment; the version 2 group takes the new process by descriptor.
func (w *watch) fork(files []*os.File) error {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if w.job.UID != 0 {
		id := uint32(w.job.UID) //nolint:gosec // chosen by the server
		attr.Credential = &syscall.Credential{Uid: id, Gid: id}
	}
	group, err := w.job.Group.OpenV2()
	if err != nil {
		return err
	}
	if group != nil {
		defer group.Close()
		attr.UseCgroupFD, attr.CgroupFD = true, int(group.Fd()) //nolint:gosec // a descriptor
	}
	tid := syscall.Gettid()
	if err := w.job.Group.EnterThread(tid); err != nil {
		return fmt.Errorf("enter control group: %w", err)
	}
	argv := append([]string{"bwrap", "--args", fmt.Sprint(job.FDArgs), "--"}, w.job.Argv...)
	p, err := os.StartProcess(w.job.Bwrap, argv, &os.ProcAttr{Dir: "/", Env: []string{}, Files: files, Sys: attr})
	err = errors.Join(err, w.job.Group.LeaveThread(tid))
	if p != nil {
		w.pid.Store(int64(p.Pid))
		_ = p.Release()
	}
	if err == nil && w.killed.Load() {
		w.kill() // asked for while there was nothing to kill
	}
	return err
}

func nulSeparated(args []string) []byte {
	var b []byte
	for _, a := range args {
		b = append(b, a...)
		b = append(b, 0)
	}
	return b
}

// readTail reads to the end and keeps the last bytes.
func readTail(f *os.File) []byte {
	defer f.Close()
	var keep []byte
	buf := make([]byte, tailSize)
	for {
		n, err := f.Read(buf)
		keep = append(keep, buf[:n]...)
		if over := len(keep) - tailSize; over > 0 {
			keep = append(keep[:0], keep[over:]...)
		}
		if err != nil {
			return keep
		}
	}
}
