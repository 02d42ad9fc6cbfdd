// Package shim carries the program that watches over one sandbox, built for
// this architecture, and starts it. The program itself is sandbook-shim below;
// its build puts the result into dist.
package shim

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

//go:embed all:dist
var dist embed.FS

// ErrNotBuilt is returned when the server was built without the program.
var ErrNotBuilt = errors.New("this build holds no sandbook-shim; run `make guest` and build again")

// program opens the shim once, as a sealed file in memory: nothing on disk can
// be exchanged under a running server, and nothing has to be cleaned up.
var program = sync.OnceValues(func() (*os.File, error) {
	b, err := dist.ReadFile("dist/sandbook-shim-linux-" + runtime.GOARCH)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotBuilt
	}
	if err != nil {
		return nil, err
	}
	return sealed("sandbook-shim", b)
})

// Numbers the syscall package lacks.
const (
	mfdCloexec      = 1
	mfdAllowSealing = 2
	mfdExec         = 16 // since Linux 6.3
	fAddSeals       = 1033
	sealAll         = 1 | 2 | 4 | 8 // seal, shrink, grow, write
)

func sealed(name string, content []byte) (*os.File, error) {
	nr := map[string]uintptr{"amd64": 319, "arm64": 279}[runtime.GOARCH]
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return nil, err
	}
	create := func(flags uintptr) (uintptr, syscall.Errno) {
		fd, _, e := syscall.Syscall(nr, uintptr(unsafe.Pointer(p)), flags, 0)
		return fd, e
	}
	fd, e := create(mfdCloexec | mfdAllowSealing | mfdExec)
	if e == syscall.EINVAL {
		fd, e = create(mfdCloexec | mfdAllowSealing)
	}
	if e != 0 {
		return nil, fmt.Errorf("make a file in memory: %w", e)
	}
	f := os.NewFile(fd, name)
	if _, err := bytes.NewReader(content).WriteTo(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, fd, fAddSeals, sealAll); e != 0 {
		_ = f.Close()
		return nil, fmt.Errorf("seal the file in memory: %w", e)
	}
	return f, nil
}

// Start starts the shim in namespaces of its own, with files as its
// descriptors from 3 on, and returns its process id and a descriptor for it.
// As an ordinary user it gets a user namespace in which it may mount.
func Start(files ...*os.File) (pid, pidfd int, err error) {
	prog, err := program()
	if err != nil {
		return 0, 0, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, 0, err
	}
	defer null.Close()
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS, PidFD: &pidfd}
	if uid := os.Geteuid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	p, err := os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", prog.Fd()), []string{"sandbook-shim"}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"GOMAXPROCS=1"}, // it mostly waits, and starts faster so
		Files: append([]*os.File{null, null, null}, files...),
		Sys:   attr,
	})
	if err != nil {
		return 0, 0, err
	}
	pid = p.Pid
	_ = p.Release()
	return pid, pidfd, nil
}
