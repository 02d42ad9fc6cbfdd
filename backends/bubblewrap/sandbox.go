package bubblewrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"sandbook/backends"
	"sandbook/backends/internal/cgroup"
	"sandbook/backends/internal/shim"
	"sandbook/backends/internal/shim/job"
)

// sandbox is one running sandbox. It has no goroutine of its own: whoever
// waits, waits on the shim's process descriptor.
type sandbox struct {
	b     *Backend
	id    backends.ID
	dir   string
	pid   int // of the shim
	pidfd *os.File
	group cgroup.Group
	conn  net.Conn

	end  sync.Once
	exit backends.Exit
	gone error
}

var (
	_ backends.Sandbox = (*sandbox)(nil)
	_ backends.Usager  = (*sandbox)(nil)
)

// labels is what the run directory says about a sandbox.
type labels struct {
	ID backends.ID `json:"id"`
	backends.Labels
	UID int `json:"uid,omitempty"` // host user
}

func (b *Backend) dir(id backends.ID) string { return filepath.Join(b.opts.RunDir, string(id)) }

// list reads the labels of every sandbox in the run directory.
func (b *Backend) list() []labels {
	entries, err := os.ReadDir(b.opts.RunDir)
	if err != nil {
		return nil
	}
	var out []labels
	for _, e := range entries {
		var l labels
		if err := readJSON(filepath.Join(b.opts.RunDir, e.Name(), job.LabelsFile), &l); err == nil && string(l.ID) == e.Name() {
			out = append(out, l)
		}
	}
	return out
}

// makeDir makes the run directory of a sandbox, labelled from the moment it
// has its name.
func (b *Backend) makeDir(l labels) error {
	tmp := filepath.Join(b.opts.RunDir, ".new-"+string(l.ID))
	if err := os.MkdirAll(filepath.Join(tmp, job.MountPoint), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(tmp, job.LabelsFile), text, 0o600)
	if err == nil {
		if _, statErr := os.Lstat(b.dir(l.ID)); statErr == nil {
			err = fmt.Errorf("there is already a sandbox %s", l.ID)
		} else {
			err = os.Rename(tmp, b.dir(l.ID))
		}
	}
	if err != nil {
		_ = os.RemoveAll(tmp)
	}
	return err
}

func newJob(h host, spec backends.Spec, dir string, uid int) job.Job {
	l := spec.Limits
	return job.Job{
		Dir: dir, Bwrap: h.bwrap, Argv: argv(spec, h.countsProcesses), Seccomp: h.filter,
		Args: options(h.runtime, spec), Tree: tree(h.runtime, spec),
		UID: uid, Files: l.OpenFiles,
		Workspace: l.Workspace, Inodes: l.WorkspaceInodes,
		Tmp: l.Tmp, TmpInodes: l.WorkspaceInodes, Shm: min(shmSize, l.Memory),
		Group:  h.cgroup.Group(string(spec.ID)),
		Limits: cgroup.Limits{Memory: l.Memory, CPU: l.CPU, Pids: l.Pids},
	}
}

// start brings a sandbox up and connects to its guest.
func (b *Backend) start(ctx context.Context, h host, spec backends.Spec, uid int) (*sandbox, error) {
	s, err := b.raise(ctx, h, spec, uid)
	if err != nil {
		return nil, err
	}
	if s.conn, err = dial(ctx, s.dir); err != nil {
		s.abandon()
		detail := strings.TrimSpace(s.exit.Detail)
		return nil, fmt.Errorf("start sandbox: the guest ended at once: %w %s", err, detail)
	}
	return s, nil
}

// raise makes a sandbox up to the point where its guest begins.
func (b *Backend) raise(ctx context.Context, h host, spec backends.Spec, uid int) (_ *sandbox, err error) {
	dir := b.dir(spec.ID)
	if err := b.makeDir(labels{ID: spec.ID, Labels: spec.Labels, UID: uid}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	j := newJob(h, spec, dir, uid)
	j.Total = b.total(spec.Limits)
	j.Tree = append(j.Tree, b.fonts.nodes()...)
	s := &sandbox{b: b, id: spec.ID, dir: dir, group: j.Group}
	ready, err := s.launch(j)
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var r job.Ready
	err = json.NewDecoder(io.LimitReader(ready, 64<<10)).Decode(&r)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err != nil:
		err = fmt.Errorf("the sandbox's shim ended before it was ready: %w", err)
	case r.Error != "":
		err = errors.New(r.Error)
	}
	if err != nil {
		s.abandon()
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	return s, nil
}

// launch starts the shim with its job, and returns where it says it is ready.
func (s *sandbox) launch(j job.Job) (*os.File, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	jobR, jobW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	readyR, readyW, err := os.Pipe()
	if err != nil {
		_, _ = jobR.Close(), jobW.Close()
		return nil, err
	}
	pid, fd, err := shim.Start(jobR, readyW)
	_, _ = jobR.Close(), readyW.Close()
	if err == nil {
		s.pid, s.pidfd = pid, pollable(fd)
		_, err = jobW.Write(text)
	}
	_ = jobW.Close()
	if err != nil {
		_ = readyR.Close()
		if s.pidfd != nil {
			s.abandon()
		}
		return nil, fmt.Errorf("start the sandbox's shim: %w", err)
	}
	return readyR, nil
}

// abandon ends a sandbox that did not come up.
func (s *sandbox) abandon() {
	_ = signal(s.pidfd, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := waitFor(ctx, s.pidfd); err != nil {
		_ = signal(s.pidfd, syscall.SIGKILL)
		_ = waitFor(context.Background(), s.pidfd)
	}
	s.finish()
}

// dial connects to the guest's socket, whose path may be longer than a socket
// address can hold.
func dial(ctx context.Context, dir string) (net.Conn, error) {
	d, err := os.Open(dir) //nolint:gosec // our own run directory
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var nd net.Dialer
	return nd.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), job.SocketFile))
}

// ID implements backends.Sandbox.
func (s *sandbox) ID() backends.ID { return s.id }

// Conn implements backends.Sandbox.
func (s *sandbox) Conn() io.ReadWriteCloser { return s.conn }

// Wait implements backends.Sandbox.
func (s *sandbox) Wait(ctx context.Context) (backends.Exit, error) {
	if err := waitFor(ctx, s.pidfd); err != nil {
		return backends.Exit{}, err
	}
	s.finish()
	return s.exit, s.gone
}

// Kill implements backends.Sandbox.
func (s *sandbox) Kill(ctx context.Context) error {
	_ = signal(s.pidfd, syscall.SIGTERM)
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := waitFor(short, s.pidfd); err != nil && ctx.Err() == nil {
		// A shim that does not answer is ended too; bubblewrap and with it
		// the process namespace die with their parent.
		_ = s.group.Kill()
		_ = signal(s.pidfd, syscall.SIGKILL)
	}
	_, err := s.Wait(ctx)
	return err
}

// Usage implements backends.Usager.
func (s *sandbox) Usage() (backends.Usage, error) {
	if !s.group.Exists() {
		return backends.Usage{}, errors.New("no control group counts this sandbox")
	}
	u := s.group.Usage()
	return backends.Usage{Memory: u.Memory, PeakMemory: u.Peak, Pids: u.Pids, CPU: u.CPU, OOMKills: u.OOMKills}, nil
}

// finish runs once the shim has ended: it takes down how, and removes what is
// left.
func (s *sandbox) finish() {
	s.end.Do(func() {
		reapChild(s.pidfd)
		s.exit, s.gone = s.b.cleanup(s.id, s.group)
		if s.conn != nil {
			_ = s.conn.Close()
		}
		_ = s.pidfd.Close()
	})
}

// cleanup reads how a sandbox without a shim ended and removes what is left of
// it: usually only the directory.
func (b *Backend) cleanup(id backends.ID, group cgroup.Group) (backends.Exit, error) {
	_ = group.Kill()
	exit := readExit(b.dir(id))
	err := errors.Join(group.Remove(), os.RemoveAll(b.dir(id)))
	b.freeUID(id)
	return exit, err
}

// readExit turns the shim's last words into the contract's.
func readExit(dir string) backends.Exit {
	var e job.Exit
	if err := readJSON(filepath.Join(dir, job.ExitFile), &e); err != nil {
		return backends.Exit{Cause: backends.Lost}
	}
	out := backends.Exit{
		Cause: backends.Exited, Code: e.Code, Signal: e.Signal,
		OOMKills: e.Usage.OOMKills, PeakMemory: e.Usage.Peak, CPU: e.Usage.CPU,
		Detail: e.Detail,
	}
	switch {
	case e.Killed:
		out.Cause = backends.KilledByUs
	case e.Signal == int(syscall.SIGKILL) && e.Usage.OOMKills > 0:
		out.Cause = backends.OutOfMem
	case e.Signal != 0:
		out.Cause = backends.Signaled
	case e.Code == backends.OrphanCode:
		out.Cause = backends.Orphaned
	}
	return out
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path) //nolint:gosec // our own run directory
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
