package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sandbook/backends/internal/shim/job"
)

// prepare builds, in this process's own mount namespace, everything that
// bubblewrap binds into the sandbox: its root folder and sized file systems.
// They are built inside the run directory and then moved to job.Staging, where
// the sandbox's user can reach them; the host path of nothing is needed
// afterwards, and no mount of the sandbox names a folder of the server.
func prepare(j *job.Job) error {
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	at := job.MountPoint
	if err := mountTmpfs(at, "mode=0711,size=64m,nr_inodes=4096", 0); err != nil {
		return err
	}
	inside := func(path string) string { return at + strings.TrimPrefix(path, job.Staging) }
	owner := fmt.Sprintf("uid=%d,gid=%d", j.UID, j.UID)
	for _, m := range []struct {
		path, opts string
	}{
		{job.Workspace, fmt.Sprintf("mode=0700,%s,size=%d,nr_inodes=%d", owner, j.Workspace, j.Inodes)},
		{job.Tmp, fmt.Sprintf("mode=1777,%s,size=%d,nr_inodes=%d", owner, j.Tmp, j.TmpInodes)},
		{job.Shm, fmt.Sprintf("mode=1777,%s,size=%d,nr_inodes=%d", owner, j.Shm, j.TmpInodes)},
	} {
		if err := os.Mkdir(inside(m.path), 0o755); err != nil { //nolint:gosec // a mount point
			return err
		}
		if err := mountTmpfs(inside(m.path), m.opts, syscall.MS_NODEV); err != nil {
			return err
		}
	}
	for _, n := range j.Tree {
		if err := grow(inside(job.Root), n); err != nil {
			return fmt.Errorf("make %s: %w", n.Path, err)
		}
	}
	if err := syscall.Mount(at, job.Staging, "", syscall.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move to %s: %w", job.Staging, err)
	}
	return nil
}

// grow makes one entry of the sandbox's root folder.
func grow(root string, n job.Node) error {
	path := root + n.Path
	if n.Kind == job.Dir {
		return os.MkdirAll(path, 0o755) //nolint:gosec // readable by the sandbox
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	switch n.Kind {
	case job.Link:
		return os.Symlink(n.Text, path)
	case job.File:
		return os.WriteFile(path, []byte(n.Text), 0o444) //nolint:gosec // as above
	case job.Copy:
		return copyProgram(n.Source, path)
	case job.Bind:
		return bind(n.Source, path)
	default:
		return fmt.Errorf("unknown kind %q", n.Kind)
	}
}

func mountTmpfs(path, opts string, flags uintptr) error {
	if err := syscall.Mount("sandbook", path, "tmpfs", syscall.MS_NOSUID|flags, opts); err != nil {
		return fmt.Errorf("mount a file system of memory: %w", err)
	}
	return nil
}

func bind(source, target string) error {
	fi, err := os.Stat(source)
	if err != nil {
		return err
	}
	if fi.IsDir() {
		err = os.MkdirAll(target, 0o755) //nolint:gosec // a mount point
	} else {
		err = os.WriteFile(target, nil, 0o644) //nolint:gosec // a mount point
	}
	if err != nil {
		return err
	}
	return syscall.Mount(source, target, "", syscall.MS_BIND|syscall.MS_REC, "")
}

// maxProgram bounds the guest program, in bytes.
const maxProgram = 48 << 20

// copyProgram copies rather than binds, so that no mount of the sandbox names
// a folder of the server, and the server can be updated meanwhile.
func copyProgram(from, to string) error {
	in, err := os.Open(from) //nolint:gosec // the server's own program
	if err != nil {
		return err
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	if fi.Size() == 0 || fi.Size() > maxProgram {
		return fmt.Errorf("a program of %d bytes", fi.Size())
	}
	// Written from the page cache at once: this is on the way of every start.
	text, err := syscall.Mmap(int(in.Fd()), 0, int(fi.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE|syscall.MAP_POPULATE) //nolint:gosec // a descriptor
	if err != nil {
		return err
	}
	err = os.WriteFile(to, text, 0o555) //nolint:gosec // readable by the sandbox
	return errors.Join(err, syscall.Munmap(text))
}

// listen makes the guest's listening socket at a name in the current folder.
func listen(name string) (*os.File, error) {
	_ = os.Remove(name)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "guest") //nolint:gosec // a descriptor
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: name}), syscall.Listen(fd, 8)); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
