package guest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// poller waits for descriptors and for wake. Only wake may be called by
// another goroutine than the one that waits. It is an epoll descriptor of its
// own that the runtime waits for: a goroutine that waits so costs no thread,
// and its wakening no change of thread.
type poller struct {
	file *os.File
	conn syscall.RawConn
	ep   int

	mu    sync.Mutex
	woken bool
}

func newPoller() (*poller, error) {
	ep, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(ep, true); err != nil { // else the runtime does not wait for it
		_ = syscall.Close(ep)
		return nil, err
	}
	p := &poller{ep: ep, file: os.NewFile(uintptr(ep), "epoll")}
	p.conn, err = p.file.SyscallConn()
	if err == nil {
		err = p.file.SetReadDeadline(time.Time{})
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("wait by the runtime: %w", err)
	}
	return p, nil
}

func (p *poller) add(fd int) error {
	e := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)} //nolint:gosec // a descriptor
	return syscall.EpollCtl(p.ep, syscall.EPOLL_CTL_ADD, fd, &e)
}

func (p *poller) remove(fd int) {
	_ = syscall.EpollCtl(p.ep, syscall.EPOLL_CTL_DEL, fd, nil)
}

// wait returns the descriptors that can be read, at the latest at the given
// time; the zero time is never.
func (p *poller) wait(until time.Time, fds []int) []int {
	p.mu.Lock()
	if p.woken {
		until = time.Now()
		p.woken = false
	}
	_ = p.file.SetReadDeadline(until)
	p.mu.Unlock()
	var events [64]syscall.EpollEvent
	n := 0
	err := p.conn.Read(func(uintptr) bool {
		n = p.look(events[:])
		return n > 0
	})
	if err != nil { // woken, or the time has come
		n = p.look(events[:])
	}
	fds = fds[:0]
	for _, e := range events[:n] {
		fds = append(fds, int(e.Fd))
	}
	return fds
}

// look asks what can be read now.
func (p *poller) look(events []syscall.EpollEvent) int {
	for {
		n, err := syscall.EpollWait(p.ep, events, 0)
		if !errors.Is(err, syscall.EINTR) {
			return max(0, n)
		}
	}
}

// wake makes the wait in progress, or the next one, return.
func (p *poller) wake() {
	p.mu.Lock()
	p.woken = true
	_ = p.file.SetReadDeadline(past)
	p.mu.Unlock()
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

func (p *poller) close() { _ = p.file.Close() }

// read reads what is there. It returns 0, nil when there is nothing now, and
// ended when nothing will come any more.
func read(fd int, b []byte) (n int, ended bool) {
	for {
		n, err := syscall.Read(fd, b)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return 0, false
		case err != nil || n == 0:
			return 0, true
		}
		return n, false
	}
}

// pipe makes a pipe whose read end does not block. Neither end is inherited.
func pipe() (r, w int, err error) {
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
		return 0, 0, err
	}
	// A new pipe has no other flags that this could clear.
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, uintptr(p[0]), syscall.F_SETFL, syscall.O_NONBLOCK); e != 0 {
		_ = syscall.Close(p[0])
		_ = syscall.Close(p[1])
		return 0, 0, e
	}
	return p[0], p[1], nil
}
