package guest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"sandbook/kernel/wire"
)

// Bounds of a command.
const (
	maxArgs     = 1024
	maxArgBytes = 1 << 20
	// afterExit is how long output of processes a command left behind is still
	// waited for.
	afterExit = 200 * time.Millisecond
)

// command runs a program beside the kernel. Its output goes to the streams
// out and errs, its input comes from out.
func (g *guest) command(cmd *wire.Command, out, errs *stream) (*wire.CommandResult, error) {
	if err := checkCommand(cmd); err != nil {
		return nil, err
	}
	dir := g.opts.Workspace
	if cmd.Dir != "" {
		dir = filepath.Join(dir, cmd.Dir)
	}
	env := append(os.Environ(), cmd.Env...)
	path, err := lookPath(cmd.Argv[0], dir)
	if err != nil {
		return nil, err
	}
	pid, ended, pipes, err := g.spawn(path, cmd.Argv, dir, env)
	if err != nil {
		return nil, err
	}
	readers := []*os.File{pipes[1], pipes[2]}
	var copying sync.WaitGroup
	for i, s := range []*stream{out, errs} {
		copying.Go(func() { copyOut(s, readers[i]) })
	}
	stdinDone := make(chan struct{})
	go func() {
		defer close(stdinDone)
		copyIn(pipes[0], out)
	}()
	res := &wire.CommandResult{}
	var timeout <-chan time.Time
	if cmd.TimeoutMS > 0 {
		t := time.NewTimer(time.Duration(cmd.TimeoutMS) * time.Millisecond)
		defer t.Stop()
		timeout = t.C
	}
	var e exit
	select {
	case e = <-ended:
	case <-timeout:
		res.TimedOut = true
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		e = <-ended
	case <-out.c.done:
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		e = <-ended
	}
	// Whoever still holds the pipes is not waited for.
	deadline := time.Now().Add(afterExit)
	for _, r := range readers {
		_ = r.SetReadDeadline(deadline)
	}
	copying.Wait()
	_ = pipes[0].Close()
	for _, r := range readers {
		_ = r.Close()
	}
	if st := e.status; st.Signaled() {
		res.Signal = int(st.Signal())
		res.Code = 128 + res.Signal
	} else {
		res.Code = st.ExitStatus()
	}
	out.finishInput()
	<-stdinDone
	out.end(nil)
	errs.end(nil)
	return res, nil
}

func checkCommand(cmd *wire.Command) error {
	bad := func(s string) error { return fmt.Errorf("%w: %s", errPath, s) }
	if cmd == nil || len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return bad("A command needs a program.")
	}
	if len(cmd.Argv) > maxArgs || len(cmd.Env) > maxArgs {
		return bad("The command has too many arguments.")
	}
	size := 0
	for _, s := range slices.Concat(cmd.Argv, cmd.Env) {
		size += len(s)
		if strings.ContainsRune(s, 0) {
			return bad("An argument holds a zero byte.")
		}
	}
	if size > maxArgBytes {
		return bad("The arguments of the command are too long.")
	}
	if cmd.Dir != "" {
		return checkPath(cmd.Dir)
	}
	return nil
}

func lookPath(name, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: There is no program %q in this sandbox.", errPath, cutText(name, 100)) //nolint:revive,staticcheck // a sentence for people
	}
	return path, nil
}

// spawn starts the program and returns our ends of its three pipes.
func (g *guest) spawn(path string, argv []string, dir string, env []string) (int, <-chan exit, [3]*os.File, error) {
	var ours [3]*os.File
	var theirs [3]*os.File
	undo := func() {
		for i := range ours {
			if ours[i] != nil {
				_ = ours[i].Close()
				_ = theirs[i].Close()
			}
		}
	}
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			undo()
			return 0, nil, ours, err
		}
		ours[i], theirs[i] = r, w
		if i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	attr := &syscall.ProcAttr{Dir: dir, Env: env, Files: []uintptr{theirs[0].Fd(), theirs[1].Fd(), theirs[2].Fd()}}
	pid, ended, err := g.procs.start(append([]string{path}, argv[1:]...), attr, true)
	if err != nil {
		undo()
		if errors.Is(err, syscall.E2BIG) {
			return 0, nil, ours, fmt.Errorf("%w: The arguments of the command are too long.", errPath) //nolint:revive,staticcheck // a sentence for people
		}
		return 0, nil, ours, fmt.Errorf("%w: The program could not be started: %s.", errPath, cause(err)) //nolint:revive,staticcheck // a sentence for people
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	return pid, ended, ours, nil
}

func copyOut(s *stream, r *os.File) {
	buf := make([]byte, copyChunk)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := s.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// copyIn feeds the program until the host ends the input or the program its
// reading.
func copyIn(w *os.File, s *stream) {
	broken := false
	for {
		b, err := s.next()
		if b == nil || err != nil {
			_ = w.Close()
			return
		}
		if !broken {
			if _, err := w.Write(b); err != nil {
				broken = true // the rest is taken and thrown away
			}
		}
	}
}

// finishInput ends the input from our side.
func (s *stream) finishInput() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inEnd == nil {
		s.inEnd = &wire.End{}
	}
	s.in = nil
	s.wake.Broadcast()
}

// usage samples every process below the guest.
func (g *guest) usage() wire.Usage {
	var u wire.Usage
	page := int64(os.Getpagesize())
	for _, st := range children() {
		if st.state == 'Z' {
			continue
		}
		u.Procs++
		u.Memory += st.rss * page
		u.CPUMS += ((time.Duration(st.utime+st.stime+st.cutime+st.cstime) * tick).Milliseconds())
	}
	return u
}
