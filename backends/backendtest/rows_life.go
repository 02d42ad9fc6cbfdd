package backendtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"sandbook/backends"
)

func lifeRows() []row {
	return []row{
		{id: "A01", sev: Integrity, title: "a guest's self-check of its walls finds nothing wrong", run: (*T).posture},
		{id: "A02", sev: Integrity, title: "a command runs, and its output, code and signal come back", run: (*T).commands},
		{id: "A03", sev: Integrity, title: "an orderly end is told from a kill, with counters", run: (*T).endings},
		{id: "A04", sev: Integrity, title: "a restarted server attaches and finds its files and processes", needs: []string{backends.CapAttach}, run: (*T).attach},
		{id: "A05", sev: Integrity, title: "attach to what has ended says how it ended; to what never was, that it is gone", needs: []string{backends.CapAttach}, run: (*T).attachGone},
		{id: "A06", sev: HostDoS, title: "reap ends what is not kept and leaves what is", run: (*T).reap},
		{id: "A07", sev: Lateral, title: "reap leaves another install's sandboxes alone", run: (*T).foreign},
		{id: "A08", sev: HostDoS, title: "a sandbox nobody claims ends by itself", needs: []string{backends.CapAttach}, run: (*T).orphan},
		{id: "A09", sev: HostDoS, title: "a start that fails says why and leaves nothing", run: (*T).badStarts},
		{id: "A10", sev: Escape, title: "ids, targets, environment and arguments cannot become options (CVE-2024-32462)", run: (*T).injection},
		{id: "L28", sev: Integrity, title: "kill and wait from many sides at once, again and again", run: (*T).storms},
		{id: "L20", sev: Integrity, title: "a start that is given up in the middle leaves nothing", run: (*T).givenUp},
	}
}

func (t *T) posture() {
	checks := t.a().welcome.Posture
	if len(checks) == 0 {
		t.Fatal("the guest checked nothing")
	}
	for _, c := range checks {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
		t.keep(c.Detail)
	}
	t.Logf("%d checks", len(checks))
}

func (t *T) commands() {
	r := t.exec(t.a(), "/bin/sh", "-c", "echo out; echo err >&2; exit 3")
	if r.out != "out\n" || r.err != "err\n" || r.Code != 3 {
		t.Errorf("got %+v", r)
	}
	if r := t.exec(t.a(), "/bin/sh", "-c", "kill -TERM $$"); r.Signal != int(syscall.SIGTERM) {
		t.Errorf("got %+v", r)
	}
}

func (t *T) endings() {
	b := t.open(t, backends.Spec{})
	t.exec(b, "/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
	t.shutdown(b)
	if e := t.waits(b); e.Cause != backends.Exited || e.Code != 0 {
		t.Errorf("after shutdown: %+v", e)
	} else if t.caps.Has(backends.CapMemory) && (e.PeakMemory == 0 || e.CPU == 0) {
		t.Errorf("no counters: %+v", e)
	}
	b = t.open(t, backends.Spec{})
	if e := t.ends(b); e.Cause != backends.KilledByUs {
		t.Errorf("after kill: %+v", e)
	}
	if _, err := b.Conn().Read(make([]byte, 1)); err == nil {
		t.Error("the stream of a dead sandbox still gives bytes")
	}
}

func (t *T) attach() {
	b := t.open(t, backends.Spec{})
	marker := "sb-attach-" + random()
	t.exec(b, probePath, "daemon", marker)
	t.exec(b, "/bin/sh", "-c", "echo kept > /work/kept")
	b.close() // as a killed server would
	again, ok := t.opts.Reopen().(backends.Attacher)
	if !ok {
		t.Fatal("the backend promises attach and cannot")
	}
	sb, err := again.Attach(t.ctx, b.ID())
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	c, err := connect(sb.Conn())
	if err != nil {
		t.Fatalf("talk again: %v", err)
	}
	t.Cleanup(c.close)
	nb := &box{sb, c}
	if r := t.exec(nb, "/bin/cat", "/work/kept"); r.out != "kept\n" {
		t.Errorf("the workspace holds %q", r.out)
	}
	if len(hostProcs(marker)) == 0 {
		t.Error("the sandbox's processes are gone")
	}
	if e := t.ends(nb); e.Cause != backends.KilledByUs {
		t.Errorf("%+v", e)
	}
	if n := hostProcs(marker); len(n) > 0 {
		t.Errorf("processes %v survived the kill", n)
	}
}

func (t *T) attachGone() {
	at, ok := t.opts.Reopen().(backends.Attacher)
	if !ok {
		t.Fatal("the backend promises attach and cannot")
	}
	for _, id := range []backends.ID{"never-was", "../../etc", "", "a/b", backends.ID(strings.Repeat("x", 300))} {
		if sb, err := at.Attach(t.ctx, id); !isGone(err) {
			t.Errorf("attach to %q: %v %v", id, sb, err)
		}
	}
	b := t.open(t, backends.Spec{})
	b.close()
	if err := t.exitUnseen(b); err != nil {
		t.Fatal(err)
	}
	_, err := at.Attach(t.ctx, b.ID())
	var known *backends.ExitError
	if !isGone(err) || !errors.As(err, &known) || known.Exit.Cause != backends.Exited || known.Exit.Code != 0 {
		t.Errorf("attach to an ended sandbox: %v", err)
	}
}

// exitUnseen lets a sandbox end while no server watches.
func (t *T) exitUnseen(b *box) error {
	at, _ := t.opts.Reopen().(backends.Attacher)
	sb, err := at.Attach(t.ctx, b.ID())
	if err != nil {
		return err
	}
	c, err := connect(sb.Conn())
	if err != nil {
		return err
	}
	t.shutdown(&box{sb, c})
	<-c.done
	// The end of the stream comes a little before the end of the sandbox.
	for {
		sb, err := at.Attach(t.ctx, b.ID())
		if isGone(err) {
			return nil
		}
		if err == nil {
			_ = sb.Conn().Close()
		}
		select {
		case <-t.ctx.Done():
			return t.ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (t *T) reap() {
	keep, drop := t.open(t, backends.Spec{}), t.open(t, backends.Spec{})
	marker := "sb-reap-" + random()
	t.exec(drop, probePath, "daemon", marker)
	again := t.opts.Reopen()
	kept := []backends.ID{keep.ID(), t.a().ID(), t.other().ID()}
	if err := again.Reap(t.ctx, t.opts.Install, kept); err != nil {
		t.Fatalf("reap: %v", err)
	}
	if n := hostProcs(marker); len(n) > 0 {
		t.Errorf("processes %v survived", n)
	}
	t.alive(keep)
	t.alive(t.a())
	if _, err := drop.Wait(t.ctx); err != nil {
		t.Errorf("wait after somebody else reaped: %v", err)
	}
}

func (t *T) foreign() {
	fb, install := t.opts.Foreign()
	f := t.openWith(t, fb, backends.Spec{Labels: backends.Labels{Install: install}})
	if err := t.opts.Reopen().Reap(t.ctx, t.opts.Install, []backends.ID{t.a().ID(), t.other().ID()}); err != nil {
		t.Fatalf("reap: %v", err)
	}
	t.alive(f)
	if at, ok := t.b.(backends.Attacher); ok {
		if _, err := at.Attach(t.ctx, f.ID()); !isGone(err) {
			t.Errorf("attach to another install's sandbox: %v", err)
		}
	}
	if err := fb.Reap(t.ctx, install, nil); err != nil {
		t.Errorf("reap of the other install: %v", err)
	}
	t.alive(t.a())
}

func (t *T) orphan() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{Orphan: 300 * time.Millisecond}})
	t.alive(b)
	b.close()
	if e := t.waits(b); e.Cause != backends.Orphaned {
		t.Errorf("%+v", e)
	}
}

func (t *T) badStarts() {
	dir := t.TempDir()
	notProgram := filepath.Join(dir, "text")
	if err := os.WriteFile(notProgram, []byte("not a program"), 0o700); err != nil { //nolint:gosec // should look like one
		t.Fatal(err)
	}
	for name, sp := range map[string]backends.Spec{
		"no guest":         {Guest: filepath.Join(dir, "missing")},
		"guest a folder":   {Guest: dir},
		"guest no program": {Guest: notProgram},
		"no mount":         {Mounts: []backends.Mount{{Source: filepath.Join(dir, "missing"), Target: "/opt/x"}}},
		"other install":    {Labels: backends.Labels{Install: "somebody-else"}},
	} {
		sb, err := t.b.Start(t.ctx, t.spec(sp))
		if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		// Where only the guest itself is bad, its end is what tells.
		e, werr := sb.Wait(t.ctx)
		if name != "guest no program" || werr != nil || e.Code == 0 {
			t.Errorf("%s: started, and ended with %+v %v", name, e, werr)
			_ = sb.Kill(t.ctx)
		}
	}
	sp := t.spec(backends.Spec{})
	sp.ID = t.a().ID()
	if sb, err := t.b.Start(t.ctx, sp); err == nil {
		t.Error("two sandboxes of one id")
		_ = sb.Kill(t.ctx)
	}
	t.alive(t.a())
}

func (t *T) injection() {
	for _, id := range []backends.ID{"--bind", "a b", "a\x00b", "../x", "a/../b", "A", "é", backends.ID(strings.Repeat("a", 65)), "."} {
		if sb, err := t.b.Start(t.ctx, t.spec(backends.Spec{ID: id})); err == nil {
			t.Errorf("the id %q was taken", id)
			_ = sb.Kill(t.ctx)
		}
	}
	for _, target := range []string{"", "/", "relative", "/../etc", "/opt/../etc", "/etc", "/usr/lib", "/proc/self", "/dev/x", "/work/x", "--bind", "/opt/x\x00/etc"} {
		if sb, err := t.b.Start(t.ctx, t.spec(backends.Spec{Mounts: []backends.Mount{{Source: t.probe, Target: target}}})); err == nil {
			t.Errorf("the mount target %q was taken", target)
			_ = sb.Kill(t.ctx)
		}
	}
	for _, env := range []string{"NOVALUE", "=x", "A=b\x00--bind", ""} {
		if sb, err := t.b.Start(t.ctx, t.spec(backends.Spec{Env: []string{env}})); err == nil {
			t.Errorf("the environment entry %q was taken", env)
			_ = sb.Kill(t.ctx)
		}
	}
	b := t.open(t, backends.Spec{Env: []string{"OPT=--bind", "LINES=a\nb", "--setenv=x"}})
	got := try[struct{ Env []string }](t, b, "id")
	for _, want := range []string{"OPT=--bind", "LINES=a\nb"} {
		found := false
		for _, kv := range got.Env {
			found = found || kv == want
		}
		if !found {
			t.Errorf("%q is not in %q", want, got.Env)
		}
	}
}

func (t *T) storms() {
	for range 3 {
		b := t.open(t, backends.Spec{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if i%2 == 0 {
					if err := b.Kill(t.ctx); err != nil {
						t.Errorf("kill: %v", err)
					}
				}
				if e, err := b.Wait(t.ctx); err != nil || e.Cause != backends.KilledByUs {
					t.Errorf("wait: %+v %v", e, err)
				}
			})
		}
		wg.Wait()
		if err := b.Kill(t.ctx); err != nil {
			t.Errorf("kill after the end: %v", err)
		}
	}
	b := t.open(t, backends.Spec{})
	short, cancel := context.WithTimeout(t.ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := b.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait that was given up: %v", err)
	}
	t.alive(b)
}

func (t *T) givenUp() {
	for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 8 * time.Millisecond, 15 * time.Millisecond, 25 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.ctx, after)
		sb, err := t.b.Start(ctx, t.spec(backends.Spec{}))
		cancel()
		if err == nil {
			_ = sb.Kill(t.ctx)
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given up after %v: %v", after, err)
		}
	}
}

func (t *T) noCanary() {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, text := range t.texts {
		n += len(text)
		if strings.Contains(text, t.canary) {
			t.Errorf("the canary appeared in: %s", clip(text))
		}
	}
	if n == 0 {
		t.Error("nothing was printed at all")
	}
	t.Logf("%d bytes looked at", n)
}

func (t *T) nothingLeft() {
	for _, left := range t.opts.Left() {
		t.Errorf("left behind: %s", left)
	}
	if n := hostProcs(probePath); len(n) > 0 {
		t.Errorf("processes left behind: %v", n)
	}
}
