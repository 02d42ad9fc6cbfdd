package guest

import (
	"encoding/binary"
	"errors"
	"syscall"
	"time"
)

// poller waits for descriptors and for wake. Only wake may be called by
// another goroutine than the one that waits.
type poller struct {
	ep, event int
}

func newPoller() (*poller, error) {
	ep, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	const nonblockCloexec = syscall.O_NONBLOCK | syscall.O_CLOEXEC
	ev, _, e := syscall.Syscall(syscall.SYS_EVENTFD2, 0, nonblockCloexec, 0)
	if e != 0 {
		_ = syscall.Close(ep)
		return nil, e
	}
	p := &poller{ep: ep, event: int(ev)}
	if err := p.add(p.event); err != nil {
		p.close()
		return nil, err
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
	ms := -1
	if !until.IsZero() {
		d := time.Until(until)
		ms = int(max(0, (d+time.Millisecond-1)/time.Millisecond))
	}
	var events [64]syscall.EpollEvent
	n, err := syscall.EpollWait(p.ep, events[:], ms)
	if err != nil {
		return fds[:0]
	}
	fds = fds[:0]
	for _, e := range events[:n] {
		if int(e.Fd) == p.event {
			var b [8]byte
			_, _ = syscall.Read(p.event, b[:])
			continue
		}
		fds = append(fds, int(e.Fd))
	}
	return fds
}

func (p *poller) wake() {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], 1)
	_, _ = syscall.Write(p.event, b[:])
}

func (p *poller) close() {
	_ = syscall.Close(p.event)
	_ = syscall.Close(p.ep)
}

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
	if err := syscall.SetNonblock(p[0], true); err != nil {
		_ = syscall.Close(p[0])
		_ = syscall.Close(p[1])
		return 0, 0, err
	}
	return p[0], p[1], nil
}
