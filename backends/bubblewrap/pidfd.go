package bubblewrap

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// Numbers the syscall package lacks; the same on every architecture we build.
const (
	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434
	idPidfd            = 3 // P_PIDFD
)

// pollable makes a process descriptor one the runtime can wait on.
func pollable(fd int) *os.File {
	_ = syscall.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "pidfd") //nolint:gosec // a descriptor
}

func openPid(pid int) (*os.File, error) {
	fd, _, e := syscall.Syscall(sysPidfdOpen, uintptr(pid), 0, 0) //nolint:gosec // a process id
	if e != 0 {
		return nil, e
	}
	syscall.CloseOnExec(int(fd))  //nolint:gosec // a descriptor
	return pollable(int(fd)), nil //nolint:gosec // a descriptor
}

// signal sends to exactly that process, or nobody if it is gone.
func signal(p *os.File, sig syscall.Signal) error {
	c, err := p.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	if err := c.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall6(sysPidfdSendSignal, fd, uintptr(sig), 0, 0, 0, 0) //nolint:gosec // a signal
	}); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

type pollFD struct {
	fd      int32
	events  int16
	revents int16
}

// ended reports whether the process of a descriptor has ended.
func ended(fd uintptr) bool {
	p := pollFD{fd: int32(fd), events: 1} //nolint:gosec // a descriptor
	n, _, e := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&syscall.Timespec{})), 0, 0, 0)
	return e == 0 && n == 1
}

// hasEnded reports whether the process has ended, without waiting.
func hasEnded(p *os.File) bool {
	c, err := p.SyscallConn()
	if err != nil {
		return true
	}
	var yes bool
	return c.Control(func(fd uintptr) { yes = ended(fd) }) != nil || yes
}

// waitFor returns once the process has ended. A closed descriptor means that
// somebody already saw the end.
func waitFor(ctx context.Context, p *os.File) error {
	c, err := p.SyscallConn()
	if err != nil {
		return nil //nolint:nilerr // closed
	}
	// Each waiter has a descriptor of its own, so that giving up disturbs no
	// other.
	var own *os.File
	err = c.Control(func(fd uintptr) {
		nfd, _, e := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_DUPFD_CLOEXEC, 0)
		if e == 0 {
			own = pollable(int(nfd)) //nolint:gosec // a descriptor
		}
	})
	if err != nil {
		return nil //nolint:nilerr // closed
	}
	if own == nil {
		return fmt.Errorf("wait for the sandbox: no descriptor left")
	}
	defer own.Close()
	stop := context.AfterFunc(ctx, func() { _ = own.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	rc, err := own.SyscallConn()
	if err != nil {
		return err
	}
	if err := rc.Read(ended); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return nil
}

// reapChild collects the process if it is a child of ours.
func reapChild(p *os.File) {
	c, err := p.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Control(func(fd uintptr) {
		var info [128]byte
		_, _, _ = syscall.Syscall6(syscall.SYS_WAITID, idPidfd, fd, uintptr(unsafe.Pointer(&info)), syscall.WEXITED, 0, 0)
	})
}
