// Sandbook-shim watches over one sandbox: it prepares the mounts, makes the
// control group, starts bubblewrap inside both, waits, writes down how it
// ended and removes what it made. It outlives the server that started it, and
// shares no descriptor, session or terminal with it.
//
// It takes no commands but SIGTERM, which means: end the sandbox now. Nothing
// from inside the sandbox reaches it except the last lines of standard error,
// which it keeps as they are.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	"sandbook/backends/internal/shim/job"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == job.Trial {
		return
	}
	// Bubblewrap is told to die with the thread that forked it, so that must
	// be one that lives as long as this process.
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(8 << 20)

	ready := os.NewFile(job.FDReady, "ready")
	if ready == nil {
		os.Exit(2)
	}
	w := &watch{}
	err := w.start()
	if err != nil {
		w.undo()
	}
	r := job.Ready{}
	if err != nil {
		r.Error = err.Error()
	}
	_ = json.NewEncoder(ready).Encode(r)
	_ = ready.Close()
	if err != nil {
		os.Exit(1)
	}
	w.finish()
}

// watch is the state of the one sandbox.
type watch struct {
	job     job.Job
	dir     *os.Root // of the run directory, which the mounts may hide
	pid     atomic.Int64
	killed  atomic.Bool
	grouped bool
	tail    chan []byte
}

// start brings the sandbox up. It returns once bubblewrap has built the walls.
func (w *watch) start() error {
	if err := hygiene(); err != nil {
		return err
	}
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	go func() {
		for range terms {
			w.kill()
		}
	}()
	if err := w.readJob(); err != nil {
		return err
	}
	var err error
	if w.dir, err = os.OpenRoot(w.job.Dir); err != nil {
		return err
	}
	if err := os.Chdir(w.job.Dir); err != nil {
		return err
	}
	if err := w.writeState(); err != nil {
		return err
	}
	if err := prepare(&w.job); err != nil {
		return fmt.Errorf("prepare mounts: %w", err)
	}
	// From here on the current folder still is the run directory, though its
	// path may be hidden; a short name keeps within a socket's path limit.
	listener, err := listen(job.SocketFile)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer listener.Close()
	w.grouped = true
	if err := w.job.Group.Create(w.job.Limits); err != nil {
		return fmt.Errorf("make control group: %w", err)
	}
	if err := w.job.Group.LimitTotal(w.job.Total); err != nil {
		return fmt.Errorf("limit all sandboxes together: %w", err)
	}
	if err := limits(w.job); err != nil {
		return fmt.Errorf("set resource limits: %w", err)
	}
	return w.spawn(listener)
}

func (w *watch) readJob() error {
	f := os.NewFile(job.FDJob, "job")
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, job.MaxSize+1))
	if err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	if len(b) > job.MaxSize {
		return errors.New("the job is too long")
	}
	if err := json.Unmarshal(b, &w.job); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	return nil
}

func (w *watch) writeState() error {
	s := job.State{Pid: os.Getpid(), Group: w.job.Group}
	var err1, err2 error
	s.Start, err1 = job.StartTime(s.Pid)
	s.Boot, err2 = job.BootID()
	return errors.Join(err1, err2, w.write(job.StateFile, s))
}

// write puts v into a file of the run directory, whole or not at all.
func (w *watch) write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := "." + name
	if err := w.dir.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return w.dir.Rename(tmp, name)
}

// kill ends every process of the sandbox.
func (w *watch) kill() {
	w.killed.Store(true)
	if w.grouped {
		_ = w.job.Group.Kill()
	}
	if pid := int(w.pid.Load()); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// reap waits for every child, and returns the status of bubblewrap. This
// process adopts orphans of the sandbox, so when there are no children left
// there are no processes left.
func (w *watch) reap() syscall.WaitStatus {
	var status syscall.WaitStatus
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return status
		}
		if int64(pid) == w.pid.Load() {
			status = ws
			w.pid.Store(0)
			// Whatever of the sandbox still lives has lost its monitor.
			if w.grouped {
				_ = w.job.Group.Kill()
			}
		}
	}
}

// finish waits for the end and writes it down.
func (w *watch) finish() {
	status := w.reap()
	e := job.Exit{Killed: w.killed.Load(), Usage: w.job.Group.Usage(), Detail: string(<-w.tail)}
	switch {
	case status.Signaled():
		e.Signal = int(status.Signal())
	case status.ExitStatus() > 128:
		// Bubblewrap reports a signal of its child as a shell does.
		e.Signal = status.ExitStatus() - 128
	default:
		e.Code = status.ExitStatus()
	}
	err := w.write(job.ExitFile, e)
	w.undo()
	if err != nil {
		os.Exit(1)
	}
}

// undo removes what start made, except what tells of the end.
func (w *watch) undo() {
	if pid := w.pid.Load(); pid > 0 {
		w.kill()
		w.reap()
	}
	if w.grouped {
		_ = w.job.Group.Remove()
	}
	if w.dir != nil {
		_ = w.dir.Remove(job.SocketFile)
		_ = w.dir.Remove(job.StateFile)
	}
}
