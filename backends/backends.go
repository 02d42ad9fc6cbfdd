// Package backends is the contract between a kernel and the technology that
// isolates it. A backend starts one program in an isolated place and hands
// back a byte stream to it; it knows nothing of cells, runs or languages.
//
// Concrete backends are subpackages and are imported only by cmd/web.
package backends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// ID names one sandbox. It is unique per install and safe as a file name:
// lower-case letters, digits and dashes, at most 64 bytes.
type ID string

// Labels say whose a sandbox is. Every resource a backend creates carries
// them, so that a restarted server can adopt or reap what is its own and
// leave everything else alone.
type Labels struct {
	Install  string // this server's install id
	Notebook string // notebook id
	Boot     int    // counts the sandboxes of one notebook, from 1
}

// Spec says what to run, and within which limits.
type Spec struct {
	ID     ID
	Labels Labels

	// Guest is the host path of the static guest program. It becomes the
	// sandbox's first process; Args are its arguments.
	Guest string
	Args  []string

	// Env is the whole environment of the guest. Nothing is inherited.
	Env []string

	// Mounts are host paths shown read-only to the guest besides the
	// backend's own runtime. A path that does not exist is an error.
	Mounts []Mount

	Limits Limits
}

// Mount shows the host path Source at Target, read-only.
type Mount struct{ Source, Target string }

// Limits bound one sandbox. A zero field takes the value of DefaultLimits;
// there is no way to ask for "unlimited".
type Limits struct {
	Memory          int64         // bytes, swap included
	CPU             int64         // thousandths of one processor
	Pids            int64         // processes and threads
	Workspace       int64         // bytes of the writable workspace
	WorkspaceInodes int64         // files in the workspace
	Tmp             int64         // bytes of /tmp
	OpenFiles       int64         // descriptors per process
	Orphan          time.Duration // how long a sandbox lives that no server claims
}

// DefaultLimits is what a notebook gets when nobody chose.
func DefaultLimits() Limits {
	return Limits{
		Memory:          2 << 30,
		CPU:             2000,
		Pids:            512,
		Workspace:       512 << 20,
		WorkspaceInodes: 65536,
		Tmp:             256 << 20,
		OpenFiles:       1024,
		Orphan:          10 * time.Minute,
	}
}

// WithDefaults fills the zero fields of l.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	pick := func(v *int64, def int64) {
		if *v <= 0 {
			*v = def
		}
	}
	pick(&l.Memory, d.Memory)
	pick(&l.CPU, d.CPU)
	pick(&l.Pids, d.Pids)
	pick(&l.Workspace, d.Workspace)
	pick(&l.WorkspaceInodes, d.WorkspaceInodes)
	pick(&l.Tmp, d.Tmp)
	pick(&l.OpenFiles, d.OpenFiles)
	if l.Orphan <= 0 {
		l.Orphan = d.Orphan
	}
	return l
}

// Caps says what a backend enforces on this host. It is shown to people as it
// stands; nothing in it is a promise of a weaker substitute.
type Caps struct {
	Backend   string   `json:"backend"`
	Version   string   `json:"version"`
	Isolation string   `json:"isolation"` // one line, such as "namespaces, seccomp, cgroup v1"
	Enforced  []string `json:"enforced"`  // Cap… values
	Missing   []Gap    `json:"missing"`
}

// Has reports whether the capability is enforced.
func (c Caps) Has(name string) bool {
	for _, e := range c.Enforced {
		if e == name {
			return true
		}
	}
	return false
}

// Gap is one thing a host cannot enforce, and how to mend it.
type Gap struct {
	Cap string `json:"cap"`
	Why string `json:"why"` // sentence for people
	Fix string `json:"fix"` // sentence for people; may hold a command
}

// Capability names used in Caps.
const (
	CapNamespaces = "namespaces"      // own mount, pid, net, ipc, uts, user namespaces
	CapSeccomp    = "seccomp"         // allow-list filter
	CapNoNetwork  = "no-network"      // no interface but loopback
	CapMemory     = "memory-limit"    // with the kernel's own out-of-memory count
	CapPids       = "pids-limit"      //
	CapCPU        = "cpu-limit"       //
	CapWorkspace  = "workspace-quota" // bytes and inodes
	CapKillAll    = "kill-all"        // every process ends, whatever it did
	CapAttach     = "attach"          // survives a server restart
)

// Cause says in one word why a sandbox ended.
type Cause string

// The causes. Exited covers an orderly end and the guest's own exit codes.
const (
	Exited     Cause = "exited"
	Signaled   Cause = "signaled"
	OutOfMem   Cause = "out_of_memory"
	KilledByUs Cause = "killed"
	Orphaned   Cause = "orphaned" // no server claimed it in time
	Lost       Cause = "lost"     // gone, and nobody saw how
)

// Exit says how a sandbox ended. Facts come from the host: the wait status and
// the cgroup's counters, never from the code that ran.
type Exit struct {
	Cause      Cause         `json:"cause"`
	Code       int           `json:"code,omitempty"`
	Signal     int           `json:"signal,omitempty"`
	OOMKills   int64         `json:"oom_kills,omitempty"`
	PeakMemory int64         `json:"peak_memory,omitempty"` // bytes
	CPU        time.Duration `json:"cpu,omitempty"`

	// Detail holds the guest's last words on standard error, at most 4 KiB,
	// for operators. They come from inside and are not to be trusted.
	Detail string `json:"detail,omitempty"`
}

// OrphanCode is the exit code of a guest that ends because no server claimed
// it in time.
const OrphanCode = 75

// Backend makes sandboxes of one technology. Methods may be called
// concurrently.
type Backend interface {
	// Name is the registry key, such as "bubblewrap".
	Name() string

	// Probe says what this host can enforce. An error means no sandbox can be
	// started at all, and is a sentence for people with the fix in it.
	Probe(ctx context.Context) (Caps, error)

	// Start makes a sandbox. ctx bounds only the start: the sandbox outlives
	// it. On error nothing is left behind.
	Start(ctx context.Context, spec Spec) (Sandbox, error)

	// Reap ends and removes every sandbox of the install whose ID is not in
	// keep, together with what it left. Sandboxes of other installs are not
	// touched.
	Reap(ctx context.Context, install string, keep []ID) error
}

// Sandbox is one running sandbox. Methods may be called concurrently.
type Sandbox interface {
	ID() ID

	// Conn is the stream to the guest. Closing it does not end the sandbox.
	Conn() io.ReadWriteCloser

	// Wait returns once the sandbox is gone and everything it left is
	// removed. It may be called any number of times.
	Wait(ctx context.Context) (Exit, error)

	// Kill ends every process of the sandbox at once. It is idempotent and
	// returns when they are gone.
	Kill(ctx context.Context) error
}

// Attacher is a backend whose sandboxes outlive the server.
type Attacher interface {
	// Attach connects again to a sandbox started earlier, perhaps by an
	// earlier server. ErrGone if there is none, as an *ExitError where it is
	// still known how it ended.
	Attach(ctx context.Context, id ID) (Sandbox, error)
}

// Usager is a sandbox that can say what it uses now, by the host's counters.
type Usager interface {
	Usage() (Usage, error)
}

// Usage is a sample of one sandbox by the host's counters.
type Usage struct {
	Memory     int64         `json:"memory"` // bytes now
	PeakMemory int64         `json:"peak_memory"`
	Pids       int64         `json:"pids"`
	CPU        time.Duration `json:"cpu"` // since start
	OOMKills   int64         `json:"oom_kills"`
}

// ErrGone is returned by Attach for a sandbox that no longer exists.
var ErrGone = errors.New("sandbox is gone")

// FullError is returned by Start while the sandboxes that run are all there may
// be. Notebooks are theirs, those that use most first.
type FullError struct {
	Why       string // sentence for people
	Notebooks []string
}

// named is how many notebooks the sentence of a FullError names.
const named = 3

// Error is a sentence for people, with the way out.
func (e *FullError) Error() string {
	if len(e.Notebooks) == 0 {
		return e.Why + " Stop kernels you do not need."
	}
	most := e.Notebooks[:min(named, len(e.Notebooks))]
	return e.Why + " Stop kernels you do not need; those of these notebooks use most: " + strings.Join(most, ", ") + "."
}

// Registry holds the backends of a server by name.
type Registry struct {
	names []string
	by    map[string]Backend
}

// NewRegistry makes a registry; the first backend is the default.
func NewRegistry(bs ...Backend) *Registry {
	r := &Registry{by: map[string]Backend{}}
	for _, b := range bs {
		r.names = append(r.names, b.Name())
		r.by[b.Name()] = b
	}
	return r
}

// Names lists the backends, the default first.
func (r *Registry) Names() []string { return append([]string(nil), r.names...) }

// Backend finds a backend; the empty name is the default. There is no
// fallback: an unknown name is an error.
func (r *Registry) Backend(name string) (Backend, error) {
	if name == "" && len(r.names) > 0 {
		name = r.names[0]
	}
	if b, ok := r.by[name]; ok {
		return b, nil
	}
	return nil, fmt.Errorf("there is no backend %q; this server has %v", name, r.names)
}

// ExitError is ErrGone with the record of how the sandbox ended.
type ExitError struct{ Exit Exit }

func (e *ExitError) Error() string { return "sandbox is gone: " + string(e.Exit.Cause) }

// Unwrap makes it ErrGone.
func (e *ExitError) Unwrap() error { return ErrGone }
