package guest

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// bounds are resource limits of kernels and commands that are tighter than the
// guest's own, so that it goes on when they have taken all they may. A zero
// field is not bounded here.
//
// A program cannot be given them once it runs: its system calls are filtered
// as ours are, and the filter lets nobody change the limits of another process.
// So it starts by way of this program, which sets them for itself and becomes
// the other one.
type bounds struct {
	processes uint64 // that the user may have, threads included
	files     uint64 // descriptors of a process, and those in flight of the user
}

const (
	boundedWord  = "run-bounded" // first argument of this program when it does that
	rlimitNproc  = 6
	startsWithin = 5 * time.Second
)

// wrap makes the arguments of a bounded start. The file tells how it went.
func (b bounds) wrap(argv []string, attr *syscall.ProcAttr) ([]string, *syscall.ProcAttr, *report, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	own := *attr
	own.Files = append(slices.Clone(attr.Files), w.Fd())
	n := func(v uint64) string { return strconv.FormatUint(v, 10) }
	args := []string{"/proc/self/exe", boundedWord, strconv.Itoa(len(attr.Files)), n(b.processes), n(b.files)}
	return append(args, argv...), &own, &report{r: r, w: w}, nil
}

// report is how a bounded start tells that it failed: by the number of the
// error. It ends without a word when the program runs.
type report struct{ r, w *os.File }

func (r *report) close() { _, _ = r.r.Close(), r.w.Close() }

// wait returns why the program did not start.
func (r *report) wait(pid int) error {
	defer r.close()
	_ = r.w.Close()
	_ = r.r.SetReadDeadline(time.Now().Add(startsWithin))
	b := make([]byte, 16)
	n, err := r.r.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return err
	}
	if n == 0 {
		return nil
	}
	e, err := strconv.Atoi(string(b[:n]))
	if err != nil || e <= 0 {
		return syscall.EIO
	}
	return syscall.Errno(e)
}

// runBounded is this program on its way to become another: args are the
// descriptor of the report, the bounds, and the other program's arguments. It
// returns only if that fails.
func runBounded(args []string) int {
	if len(args) < 4 {
		return 2
	}
	fd, err1 := strconv.Atoi(args[0])
	processes, err2 := strconv.ParseUint(args[1], 10, 64)
	files, err3 := strconv.ParseUint(args[2], 10, 64)
	if errors.Join(err1, err2, err3) != nil || fd < 3 {
		return 2
	}
	syscall.CloseOnExec(fd)
	err := setBounds(bounds{processes: processes, files: files})
	if err == nil {
		err = syscall.Exec(args[3], args[3:], os.Environ()) //nolint:gosec // what it is for
	}
	e := syscall.EIO
	_ = errors.As(err, &e)
	_, _ = syscall.Write(fd, []byte(strconv.Itoa(int(e))))
	return 127
}

// setBounds limits this process. The number of processes comes last, since
// there may be as many already and then this one makes no more threads.
func setBounds(b bounds) error {
	for _, l := range []struct {
		what int
		max  uint64
	}{{syscall.RLIMIT_NOFILE, b.files}, {rlimitNproc, b.processes}} {
		if l.max == 0 {
			continue
		}
		var have syscall.Rlimit
		if err := syscall.Getrlimit(l.what, &have); err != nil {
			return err
		}
		l.max = min(l.max, have.Max)
		if err := syscall.Setrlimit(l.what, &syscall.Rlimit{Cur: l.max, Max: l.max}); err != nil {
			return err
		}
	}
	return nil
}
