package bubblewrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandbook/backends"
	"sandbook/backends/internal/shim/job"
)

// staleNew is how old a half-made run directory is before Reap removes it.
const staleNew = time.Minute

// open finds a sandbox by its run directory. The sandbox has a process
// descriptor if its shim lives, and none otherwise.
func (b *Backend) open(h host, id backends.ID) (*sandbox, error) {
	var l labels
	if !validName(string(id)) || readJSON(filepath.Join(b.dir(id), job.LabelsFile), &l) != nil || l.ID != id || l.Install != b.opts.Install {
		return nil, backends.ErrGone
	}
	s := &sandbox{b: b, id: id, dir: b.dir(id), group: h.cgroup.Group(string(id))}
	var st job.State
	if err := readJSON(filepath.Join(s.dir, job.StateFile), &st); err != nil {
		return s, nil //nolint:nilerr // the shim has ended, or never began
	}
	// The groups are where they were made, wherever this server is now.
	s.group = st.Group
	boot, err := job.BootID()
	if err != nil || boot != st.Boot {
		return s, nil //nolint:nilerr // from before the host was restarted
	}
	p, err := openPid(st.Pid)
	if err != nil {
		return s, nil //nolint:nilerr // ended
	}
	// The start time was read after the descriptor was had, so that it is the
	// descriptor's process if it matches.
	if start, err := job.StartTime(st.Pid); err != nil || start != st.Start || hasEnded(p) {
		_ = p.Close()
		return s, nil //nolint:nilerr // another process got the number, or a dead one still has it
	}
	s.pid, s.pidfd = st.Pid, p
	return s, nil
}

// Attach implements backends.Attacher. What is left of a sandbox that has
// ended stays until Reap, so that its end can be asked for again.
func (b *Backend) Attach(ctx context.Context, id backends.ID) (backends.Sandbox, error) {
	h, err := b.setup()
	if err != nil {
		return nil, err
	}
	s, err := b.open(h, id)
	if err != nil {
		return nil, err
	}
	if s.pidfd == nil {
		return nil, &backends.ExitError{Exit: readExit(s.dir)}
	}
	s.conn, err = dial(ctx, s.dir)
	if err == nil {
		return s, nil
	}
	if ctx.Err() != nil {
		_ = s.pidfd.Close()
		return nil, ctx.Err()
	}
	// Nobody listens: the guest has ended and the shim is about to.
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	waitErr := waitFor(short, s.pidfd)
	_ = s.pidfd.Close()
	if waitErr != nil {
		return nil, fmt.Errorf("attach to sandbox %s: %w", id, err)
	}
	return nil, &backends.ExitError{Exit: readExit(s.dir)}
}

// Reap implements backends.Backend. The run directory says what there is; a
// group of the install without a directory is a left-over too.
func (b *Backend) Reap(ctx context.Context, install string, keep []backends.ID) error {
	if install != b.opts.Install {
		return fmt.Errorf("this backend works for install %q, not %q", b.opts.Install, install)
	}
	h, err := b.setup()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range b.list() {
		if l.Install != install || slices.Contains(keep, l.ID) {
			continue
		}
		if err := b.reap(ctx, h, l.ID); err != nil {
			errs = append(errs, fmt.Errorf("reap sandbox %s: %w", l.ID, err))
		}
	}
	b.sweep()
	for _, name := range h.cgroup.Stray() {
		if slices.Contains(keep, backends.ID(name)) {
			continue
		}
		if _, err := os.Lstat(b.dir(backends.ID(name))); err == nil {
			continue
		}
		g := h.cgroup.Group(name)
		errs = append(errs, g.Kill(), g.Remove())
	}
	return errors.Join(errs...)
}

func (b *Backend) reap(ctx context.Context, h host, id backends.ID) error {
	s, err := b.open(h, id)
	if errors.Is(err, backends.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.pidfd == nil {
		_, err := b.cleanup(id, s.group)
		return err
	}
	return s.Kill(ctx)
}

// sweep removes run directories that a start never finished making.
func (b *Backend) sweep() {
	entries, err := os.ReadDir(b.opts.RunDir)
	if err != nil {
		return
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), ".new-") || time.Since(fi.ModTime()) < staleNew {
			continue
		}
		_ = os.RemoveAll(filepath.Join(b.opts.RunDir, e.Name()))
	}
}
