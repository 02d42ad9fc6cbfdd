package guest

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Main is the guest program: it reads the arguments, looks at the walls, and
// serves until it is told to end. It returns the exit code.
func Main(args []string) int {
	if len(args) > 0 && args[0] == boundedWord {
		return runBounded(args[1:])
	}
	runtime.GOMAXPROCS(1)
	// Nothing but the host ends the guest. As the first process it would be
	// spared most signals; elsewhere user code could send them.
	signal.Notify(make(chan os.Signal, 1))
	ignoreRest()
	opts, err := parse(args)
	if err == nil {
		var code int
		if code, err = Run(opts); err == nil {
			return code
		}
	}
	_, _ = fmt.Fprintln(os.Stderr, "sandbook-guest:", sentence(err))
	return 2
}

func parse(args []string) (Options, error) {
	var opts Options
	fs := flag.NewFlagSet("sandbook-guest", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fd := fs.Int("listen-fd", -1, "descriptor of the listening unix socket")
	fs.StringVar(&opts.Workspace, "workspace", "/work", "folder of files and kernels")
	fs.DurationVar(&opts.Orphan, "orphan", 10*time.Minute, "end when no host was connected for so long")
	fs.Int64Var(&opts.Spool, "spool", 64<<20, "bytes of events kept for the host")
	fs.DurationVar(&opts.Grace, "grace", 2*time.Second, "time between two stages of an interrupt")
	fs.Uint64Var(&opts.Processes, "processes", 0, "processes and threads that kernels and commands may start")
	fs.Uint64Var(&opts.Files, "files", 0, "open files of each process of kernels and commands")
	if err := fs.Parse(args); err != nil {
		return opts, err
	}
	if *fd < 0 || fs.NArg() > 0 {
		return opts, errors.New("The guest is started by a sandbox backend, with --listen-fd.") //nolint:revive,staticcheck // a sentence for people
	}
	f := os.NewFile(uintptr(*fd), "listener")
	if f == nil {
		return opts, fmt.Errorf("descriptor %d is not open", *fd)
	}
	opts.Posture = harden(opts.Workspace, *fd)
	closeOnExec()
	l, err := net.FileListener(f)
	_ = f.Close()
	if err != nil {
		return opts, fmt.Errorf("listen on descriptor %d: %w", *fd, err)
	}
	opts.Listener = l
	return opts, nil
}

// closeOnExec keeps whatever descriptor the guest was started with from its
// children. The self-check has reported stray ones before; a kernel that does
// not know the call (before 5.11) leaves it at that.
func closeOnExec() {
	const closeRange, cloexec = 436, 4
	_, _, _ = syscall.RawSyscall(closeRange, 3, ^uintptr(0), cloexec)
}

const (
	prSetDumpable   = 4
	prSetSubreaper  = 36
	prSetNoNewPrivs = 38
)

// ignoreRest ignores the signals that the Go runtime leaves alone because C
// libraries use them; their default is to end the process.
func ignoreRest() {
	act := [4]uint64{1} // SIG_IGN, no flags, no restorer, no mask
	for _, sig := range []uintptr{32, 34} {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0) //nolint:gosec // the call reads act
	}
}

func prctl(option, arg uintptr) error {
	if _, _, e := syscall.Syscall6(syscall.SYS_PRCTL, option, arg, 0, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}
