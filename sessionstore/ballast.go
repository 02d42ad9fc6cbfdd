package sessionstore

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ballast is a file that only takes up room. On a full disk SQLite cannot even
// delete; giving up the file lets what is running end in order.
type ballast struct {
	path string
	size int64

	mu   sync.Mutex
	held bool
}

// restore makes the file if there is room for it and as much again.
func (b *ballast) restore() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held || b.size <= 0 {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(b.path[:len(b.path)-len(ballastName)], &st); err != nil {
		return err
	}
	if fi, err := os.Stat(b.path); err == nil && fi.Size() == b.size {
		b.held = true
		return nil
	}
	if int64(st.Bavail)*st.Bsize < 2*b.size { //nolint:gosec // a disk has fewer blocks
		return nil
	}
	f, err := os.OpenFile(b.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, b.size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.Write(make([]byte, b.size))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(b.path))
	}
	b.held = true
	return nil
}

// release gives the room up and reports whether there was any.
func (b *ballast) release() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held {
		return false
	}
	b.held = false
	err := os.Remove(b.path)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}
