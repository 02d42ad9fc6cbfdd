package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"sandbook/backends"
	"sandbook/kernel/notebook"
	"sandbook/kernel/wire"
)

// bootTime bounds the start of a sandbox and its kernel.
const bootTime = 60 * time.Second

// guestEnv is the whole environment of a sandbox. Caches go to /tmp, so that
// they are not taken for files a run made.
var guestEnv = []string{
	"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/work", "LANG=C.UTF-8", "TERM=xterm-256color",
	"XDG_CACHE_HOME=/tmp/cache", "XDG_CONFIG_HOME=/tmp/config", "MPLCONFIGDIR=/tmp/matplotlib",
	"IPYTHONDIR=/tmp/ipython",
}

// boot sees to it that a kernel runs or is being started. A sandbox that is
// there gets the next kernel; else a new sandbox is made.
func (s *Session) boot() {
	k := s.state.Kernel
	if k.Status != notebook.NoKernel && k.Status != notebook.Dead || !s.state.Deleted.IsZero() {
		return
	}
	if s.wanted = s.booting; s.booting {
		return // what is under way is not for this kernel; then comes the next
	}
	b, err := s.m.backends.Backend(s.state.Backend)
	if err != nil {
		s.bootFailed(k.Gen+1, k.Boot, "", err)
		return
	}
	limits := s.m.limits.WithDefaults()
	start := notebook.KernelStarting{Gen: k.Gen + 1, Boot: k.Boot, Sandbox: k.Sandbox, Backend: b.Name(), Memory: limits.Memory}
	for _, gap := range s.m.caps[b.Name()].Missing {
		start.Missing = append(start.Missing, notebook.Check{Name: gap.Cap, Detail: gap.Why + " " + gap.Fix})
		if gap.Cap == backends.CapMemory {
			start.Memory = 0
		}
	}
	if s.guest != nil {
		start.Message = "Starting a new kernel."
		if s.report(start.Gen, start) == nil {
			s.startKernel(start.Gen)
		}
		return
	}
	start.Boot++
	start.Sandbox = sandboxID(s.m.install, s.id, start.Boot)
	start.Message = "Starting an isolated sandbox."
	if err := s.report(start.Gen, start); err != nil {
		s.m.logger.LogAttrs(s.ctx, slog.LevelError, "record kernel start", slog.Any("error", err))
		return
	}
	s.booting = true
	spec := backends.Spec{
		ID:     backends.ID(start.Sandbox),
		Labels: backends.Labels{Install: s.m.install, Notebook: string(s.id), Boot: start.Boot},
		Guest:  s.m.guestPath, Limits: limits, Env: guestEnv,
	}
	files := s.state.Files
	s.m.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, bootTime)
		defer cancel()
		sb, g, w, err := s.makeSandbox(ctx, b, spec)
		if err == nil {
			err = s.restore(ctx, g, files)
		}
		s.post(func() { s.booted(start, sb, g, w, err) })
	})
}

// sandboxID names a sandbox after the notebook, short enough for any backend.
func sandboxID(install string, id notebook.ID, boot int) string {
	short := strings.ReplaceAll(string(id), "-", "")
	if len(short) > 20 {
		short = short[len(short)-20:]
	}
	return fmt.Sprintf("%s-%s-%d", install[:min(8, len(install))], strings.ToLower(short), boot)
}

// makeSandbox starts a sandbox, greets its guest and judges its posture. On
// error nothing is left.
func (s *Session) makeSandbox(ctx context.Context, b backends.Backend, spec backends.Spec) (backends.Sandbox, *guest, wire.Welcome, error) {
	sb, err := b.Start(ctx, spec)
	if err != nil {
		return nil, nil, wire.Welcome{}, err
	}
	hctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	g, w, err := greet(hctx, sb.Conn(), 0)
	if err == nil {
		if err = judge(w.Posture); err != nil {
			g.close(err)
		}
	}
	if err != nil {
		if exit, werr := sb.Wait(hctx); werr == nil && exit.Detail != "" { // it ended by itself and said why
			err = notebook.Errorf(notebook.Unavailable, "The guest program ended at once: %s", cut(strings.TrimSpace(exit.Detail), 1000))
		}
		if kerr := sb.Kill(context.WithoutCancel(ctx)); kerr != nil {
			err = errors.Join(err, kerr)
		}
		return nil, nil, w, err
	}
	return sb, g, w, nil
}

// judge refuses a sandbox whose self-check found a hole in its walls.
func judge(checks []wire.Check) error {
	var bad []string
	for _, c := range checks {
		if !c.OK {
			bad = append(bad, cut(c.Name, 60)+": "+cut(c.Detail, 200))
		}
	}
	if len(checks) == 0 {
		return notebook.Errorf(notebook.Unavailable, "The sandbox did not report its self-check, so nothing was run in it.")
	}
	if len(bad) > 0 {
		return notebook.Errorf(notebook.Unavailable, "The sandbox failed its self-check, so nothing was run in it. %s.", strings.Join(bad, "; "))
	}
	return nil
}

// booted takes over a sandbox that has started, or says why it has not.
func (s *Session) booted(start notebook.KernelStarting, sb backends.Sandbox, g *guest, w wire.Welcome, err error) {
	s.booting = false
	k := s.state.Kernel
	current := k.Status == notebook.Starting && k.Gen == start.Gen
	if err != nil || !current {
		if g != nil {
			g.close(errGuestGone)
		}
		if sb != nil {
			s.sandbox = sb
			s.endSandbox()
		}
		if err != nil && current {
			s.bootFailed(start.Gen, start.Boot, start.Sandbox, err)
		} else if !current {
			s.bootIfAsked()
		}
		return
	}
	s.adopt(sb, g)
	if err := s.report(start.Gen, notebook.SandboxUp{Posture: posture(w.Posture)}); err != nil {
		s.m.logger.LogAttrs(s.ctx, slog.LevelError, "record sandbox", slog.Any("error", err))
	}
	s.startKernel(start.Gen)
}

// bootIfAsked starts a kernel if somebody wanted one, or queued cells, while
// something outdated finished.
func (s *Session) bootIfAsked() {
	if len(s.state.Queue) > 0 || s.wanted {
		s.wanted = false
		s.boot()
	}
}

// askAgain repeats what the guest may not have got before the connection ended:
// the live run, which it takes once, and an interrupt of it.
func (s *Session) askAgain() {
	r := s.state.Runs[s.state.Live]
	if r == nil {
		return
	}
	s.sendRun(r.ID)
	if r.Stage == "asked" {
		s.guest.send(wire.Request{Op: wire.OpInterrupt, RunID: string(r.ID)})
	}
}

func posture(in []wire.Check) []notebook.Check {
	out := make([]notebook.Check, 0, len(in))
	for _, c := range in[:min(len(in), 64)] {
		out = append(out, notebook.Check{Name: cut(c.Name, 60), OK: c.OK, Detail: cut(c.Detail, 300)})
	}
	return out
}

// bootFailed records a kernel that could not be started.
func (s *Session) bootFailed(gen, boot int, sandbox string, err error) {
	msg := err.Error()
	if e, ok := errors.AsType[*notebook.Error](err); ok {
		msg = e.Message
	} else if errors.Is(err, context.DeadlineExceeded) {
		msg = fmt.Sprintf("It did not start within %s.", bootTime)
	}
	if s.state.Kernel.Gen != gen {
		_ = s.report(gen, notebook.KernelStarting{Gen: gen, Boot: boot, Sandbox: sandbox})
	}
	s.m.logger.LogAttrs(s.ctx, slog.LevelError, "start kernel", slog.String("notebook", string(s.id)), slog.Any("error", err))
	_ = s.report(gen, notebook.KernelDied{Gen: gen, Cause: "start_failed", Message: "The kernel could not be started. " + cut(msg, 2000), Gone: true})
}

// adopt makes a greeted sandbox the session's own and watches for its end.
func (s *Session) adopt(sb backends.Sandbox, g *guest) {
	s.sandbox, s.guest, s.events = sb, g, g.events
	s.link.Store(g)
	s.m.wg.Go(func() {
		exit, err := sb.Wait(s.ctx)
		if s.ctx.Err() != nil {
			return
		}
		s.post(func() { s.exited(sb, exit, err) })
	})
}

// exited records the end of the sandbox the session has.
func (s *Session) exited(sb backends.Sandbox, exit backends.Exit, err error) {
	if s.sandbox != sb {
		return
	}
	s.takeRest()
	s.forget(errGuestGone)
	if err != nil {
		exit.Cause = backends.Lost
	}
	_ = s.report(s.state.Kernel.Gen, notebook.KernelDied{
		Gen: s.state.Kernel.Gen, Cause: string(exit.Cause), Code: exit.Code, Signal: exit.Signal, Peak: exit.PeakMemory,
		Gone: true, Message: exitWords(exit, s.state.Kernel.Memory),
	})
}

// takeRest takes what a guest said last before its sandbox ended.
func (s *Session) takeRest() {
	late := time.NewTimer(2 * time.Second)
	defer late.Stop()
	for s.guest != nil {
		select {
		case e, ok := <-s.events:
			if !ok {
				return
			}
			s.guest.took(e)
			s.take(e)
		case <-late.C:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// exitWords says why a sandbox ended.
func exitWords(x backends.Exit, limit int64) string {
	const after = " Variables are gone; files that were kept come back with the next kernel."
	switch x.Cause {
	case backends.OutOfMem:
		return fmt.Sprintf("The sandbox ran out of memory: its limit is %s, and it had used %s.", sizeWords(limit), sizeWords(x.PeakMemory)) + after
	case backends.Orphaned:
		return "No server claimed the kernel for ten minutes, so it ended itself." + after
	case backends.KilledByUs:
		return "The sandbox was stopped." + after
	case backends.Signaled:
		return fmt.Sprintf("The sandbox was ended from outside by signal %d.", x.Signal) + after
	case backends.Exited:
		return fmt.Sprintf("The sandbox ended by itself with code %d.", x.Code) + after
	}
	return "The sandbox is gone, and nobody saw why; the machine may have been restarted." + after
}

// reattach connects again to a sandbox this or an earlier server started.
func (s *Session) reattach() {
	k := s.state.Kernel
	if s.guest != nil || s.booting || s.failed != nil || k.Sandbox == "" || k.Status == notebook.NoKernel {
		return
	}
	since := uint64(0)
	if s.cursor.Boot == k.Boot {
		since = s.cursor.Seq
	}
	name := k.Backend
	s.booting = true
	s.m.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, handshakeTime)
		defer cancel()
		sb, g, w, err := s.attach(ctx, name, backends.ID(k.Sandbox), since)
		s.post(func() { s.attached(k, since, sb, g, w, err) })
	})
}

func (s *Session) attach(ctx context.Context, name string, id backends.ID, since uint64) (backends.Sandbox, *guest, wire.Welcome, error) {
	b, err := s.m.backends.Backend(name)
	if err != nil {
		return nil, nil, wire.Welcome{}, err
	}
	at, ok := b.(backends.Attacher)
	if !ok {
		return nil, nil, wire.Welcome{}, backends.ErrGone
	}
	sb, err := at.Attach(ctx, id)
	if err != nil {
		return nil, nil, wire.Welcome{}, err
	}
	// The greeting acknowledges what we have.
	if err := s.m.log.Sync(ctx); err != nil {
		return sb, nil, wire.Welcome{}, err
	}
	g, w, err := greet(ctx, sb.Conn(), since)
	return sb, g, w, err
}

// attached goes on with a sandbox that was found again, or records its end.
func (s *Session) attached(k notebook.Kernel, since uint64, sb backends.Sandbox, g *guest, w wire.Welcome, err error) {
	s.booting = false
	if s.state.Kernel.Sandbox != k.Sandbox || s.state.Kernel.Gen != k.Gen {
		if g != nil {
			g.close(errGuestGone)
		}
		if sb != nil && s.state.Kernel.Sandbox != k.Sandbox { // stopped meanwhile
			s.sandbox = sb
			s.endSandbox()
		}
		s.bootIfAsked()
		return
	}
	if err != nil {
		s.attachFailed(k, sb, err)
		return
	}
	same := s.sandbox != nil && s.sandbox.ID() == sb.ID()
	s.adopt(sb, g)
	if w.First > since+1 {
		s.m.logger.LogAttrs(s.ctx, slog.LevelError, "events were lost", slog.String("notebook", string(s.id)), slog.Uint64("have", since), slog.Uint64("first", w.First))
	}
	if !same {
		_ = s.report(k.Gen, notebook.KernelAdopted{Gen: k.Gen})
	}
	if k.Status == notebook.Starting {
		s.startKernel(k.Gen)
	}
	s.askAgain()
	s.pendingFiles()
	if st := s.state.Kernel.Status; st == notebook.NoKernel || st == notebook.Dead { // restarted meanwhile
		s.bootIfAsked()
	}
	if evs := s.follow(nil); len(evs) > 0 && s.commit(evs, notebook.Batch{}) == nil {
		s.react(nil, evs)
	}
}

func (s *Session) attachFailed(k notebook.Kernel, sb backends.Sandbox, err error) {
	s.m.logger.LogAttrs(s.ctx, slog.LevelWarn, "attach", slog.String("notebook", string(s.id)), slog.Any("error", err))
	if !errors.Is(err, backends.ErrGone) {
		if sb == nil && s.sandbox == nil {
			s.m.after(s, time.Second, func() { s.reattach() })
			return
		}
		if sb != nil {
			s.sandbox = sb
		}
		s.endSandbox()
	}
	words := exitWords(backends.Exit{Cause: backends.Lost}, k.Memory)
	cause := string(backends.Lost)
	if !errors.Is(err, backends.ErrGone) {
		words = "The sandbox did not answer any more and was ended: " + cut(err.Error(), 300) + "."
	}
	if x, ok := errors.AsType[*backends.ExitError](err); ok {
		words, cause = exitWords(x.Exit, k.Memory), string(x.Exit.Cause)
	}
	_ = s.report(k.Gen, notebook.KernelDied{Gen: k.Gen, Cause: cause, Gone: true, Message: words})
}

// restore puts the kept copies of the workspace's files into a new sandbox.
func (s *Session) restore(ctx context.Context, g *guest, files map[string]notebook.File) error {
	paths := make([]string, 0, len(files))
	for p, f := range files {
		if f.Blob != "" {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	for _, p := range paths {
		f := files[p]
		r, err := s.m.blobs.Open(ctx, f.Blob)
		if err != nil {
			return fmt.Errorf("restore %q: %w", p, err)
		}
		err = g.writeFile(ctx, wire.FileInfo{Path: p, Mode: f.Mode, Kind: "file"}, io.LimitReader(r, f.Size))
		_ = r.Close()
		if err != nil && notebook.CodeOf(err) == notebook.Internal {
			return fmt.Errorf("restore %q: %w", p, err)
		}
	}
	return nil
}
