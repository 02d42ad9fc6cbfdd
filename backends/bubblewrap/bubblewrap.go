// Package bubblewrap makes sandboxes with bubblewrap: all namespaces, a user
// that is nobody outside, an allow-list of system calls, no capabilities, no
// network, a read-only runtime from the host's /usr, a private workspace in
// memory with a quota, and control groups. It shares the host's kernel, and so
// is not a boundary for tenants that attack kernels.
//
// # What must hold and what may be missing
//
// Namespaces, the filter and the workspace quota are required: where one of
// them cannot be had, no sandbox starts and Probe says why. Limits on memory and
// processor time need control groups, which an ordinary user without delegation
// may not make. Without a limit on memory no sandbox starts either, unless the
// administrator has said so (Options.AllowUnlimited): then Caps lists the limits
// as missing with the way to get them, and nothing else pretends to be one. The
// number of processes is limited by the guest, too, for what it starts: the
// system counts them by user namespace since Linux 5.14.
//
// # How it is built
//
// Each sandbox has a shim (backends/internal/shim) that outlives the server.
// The run directory of a sandbox, <RunDir>/<id>, holds its labels, the socket
// its guest listens on, and at last how it ended; it is the only state, and
// what Attach and Reap go by. A server under a service manager should be
// stopped without its children (systemd: KillMode=process), or its sandboxes
// end with it.
//
// As root, each sandbox's processes belong to a host user of their own, so
// that no quota the kernel keeps per user is shared. As an ordinary user they
// are that user's.
package bubblewrap

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"sandbook/backends"
	"sandbook/backends/internal/cgroup"
	"sandbook/backends/internal/seccomp"
)

// Name is the registry key.
const Name = "bubblewrap"

// Options say where a backend keeps its state and whose it is.
type Options struct {
	RunDir   string // absolute; made if missing, closed to others
	CacheDir string // absolute; for KeepCaches alone, made if missing; empty: none
	Install  string // install id

	// AllowUnlimited starts sandboxes also where their memory cannot be limited.
	AllowUnlimited bool

	// MaxSandboxes bounds how many sandboxes of the install run at one time.
	// 0: 32.
	MaxSandboxes int
	// TotalMemory bounds what they use together, in bytes; one may always have
	// its own limit. 0: what the machine has less 2 GiB, or half of it.
	TotalMemory int64
}

// Backend makes sandboxes with bubblewrap.
type Backend struct {
	opts Options

	setup func() (host, error)

	fonts fontLists

	mu       sync.Mutex
	uids     map[int]backends.ID      // host users in use; nil until read from disk
	starting map[backends.ID]struct{} // admitted, and perhaps not to be seen yet
}

var (
	_ backends.Backend  = (*Backend)(nil)
	_ backends.Attacher = (*Backend)(nil)
)

// host is what a backend knows of the machine; it does not change.
type host struct {
	bwrap   string
	runtime hostRuntime
	filter  []byte
	cgroup  *cgroup.Host

	// countsProcesses says whether RLIMIT_NPROC counts a sandbox by itself.
	countsProcesses bool
}

// New makes a backend. It touches nothing yet.
func New(opts Options) (*Backend, error) {
	if !filepath.IsAbs(opts.RunDir) {
		return nil, fmt.Errorf("run directory %q is not absolute", opts.RunDir)
	}
	if !validName(opts.Install) {
		return nil, fmt.Errorf("install id %q is not made of lower-case letters, digits and dashes", opts.Install)
	}
	if opts.CacheDir != "" && !filepath.IsAbs(opts.CacheDir) {
		return nil, fmt.Errorf("cache directory %q is not absolute", opts.CacheDir)
	}
	if opts.MaxSandboxes <= 0 {
		opts.MaxSandboxes = defaultSandboxes
	}
	if opts.TotalMemory <= 0 {
		opts.TotalMemory = defaultTotal(hostMemory())
	}
	b := &Backend{opts: opts, fonts: fontLists{places: hostFontPlaces}}
	b.setup = sync.OnceValues(b.look)
	return b, nil
}

// Name implements backends.Backend.
func (*Backend) Name() string { return Name }

// look finds out once what the host has.
func (b *Backend) look() (host, error) {
	var h host
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return h, errors.New("Bubblewrap is not installed. Install it with `apt install bubblewrap` and start again.") //nolint:revive,staticcheck // for people
	}
	if h.bwrap, err = filepath.EvalSymlinks(path); err != nil {
		return h, err
	}
	if h.filter, err = seccomp.Filter(); err != nil {
		return h, err
	}
	if err := os.MkdirAll(b.opts.RunDir, 0o700); err != nil {
		return h, fmt.Errorf("make the run directory: %w", err)
	}
	h.runtime = findRuntime()
	h.cgroup = cgroup.Detect(b.opts.Install)
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return h, err
	}
	h.countsProcesses = countsProcesses(string(release), os.Geteuid() == 0)
	return h, nil
}

// countsProcesses reports whether RLIMIT_NPROC counts the processes of each
// sandbox by themselves: as root each has a host user of its own, and since
// Linux 5.14 they are counted by user namespace.
func countsProcesses(release string, root bool) bool {
	major, rest, _ := strings.Cut(release, ".")
	minor := rest[:max(0, strings.IndexFunc(rest+".", func(r rune) bool { return r < '0' || r > '9' }))]
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	return root || err1 == nil && err2 == nil && (a > 5 || a == 5 && b >= 14)
}

// Host users of sandboxes: each install has a block of its own in a range that
// nothing else on a usual host uses.
const (
	firstUID   = 2_000_000
	uidsPer    = 4096
	uidInstall = 4096
)

// takeUID reserves a host user for a sandbox. Zero means the server's own,
// which is what an ordinary user gets.
func (b *Backend) takeUID(id backends.ID) (int, error) {
	if os.Geteuid() != 0 {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.uids == nil {
		b.uids = map[int]backends.ID{}
		for _, l := range b.list() {
			b.uids[l.UID] = l.ID
		}
	}
	f := fnv.New32a()
	_, _ = f.Write([]byte(b.opts.Install))
	base := firstUID + int(f.Sum32()%uidInstall)*uidsPer
	for uid := base; uid < base+uidsPer; uid++ {
		if _, used := b.uids[uid]; !used {
			b.uids[uid] = id
			return uid, nil
		}
	}
	return 0, fmt.Errorf("The limit of %d sandboxes on one host is reached; end some first.", uidsPer) //nolint:revive,staticcheck // for people
}

func (b *Backend) freeUID(id backends.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, of := range b.uids {
		if of == id {
			delete(b.uids, uid)
		}
	}
}

// Start implements backends.Backend.
func (b *Backend) Start(ctx context.Context, spec backends.Spec) (backends.Sandbox, error) {
	h, err := b.setup()
	if err != nil {
		return nil, err
	}
	if err := b.limited(h); err != nil {
		return nil, err
	}
	spec.Limits = spec.Limits.WithDefaults()
	if err := validate(spec, b.opts.Install); err != nil {
		return nil, err
	}
	if err := b.admit(h, spec); err != nil {
		return nil, err
	}
	defer b.admitted(spec.ID)
	uid, err := b.takeUID(spec.ID)
	if err != nil {
		return nil, err
	}
	s, err := b.start(ctx, h, spec, uid)
	if err != nil {
		b.freeUID(spec.ID)
		return nil, err
	}
	return s, nil
}
