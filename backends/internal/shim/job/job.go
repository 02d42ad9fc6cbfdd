// Package job is what a server tells the program that watches over one
// sandbox, and what that program writes down for later servers. It is plain
// data; the server and the program are built at the same time.
package job

import (
	"sandbook/backends/internal/cgroup"
)

// The shim is also the program of a trial sandbox: found at Self by the shim
// that starts it, and given Trial as its first argument it ends at once, well.
const (
	Self  = "/proc/self/exe"
	Trial = "trial"
)

// Names of the files in a sandbox's run directory.
const (
	LabelsFile = "labels.json" // written by the server before anything runs
	StateFile  = "state.json"  // State, written by the shim
	ExitFile   = "exit.json"   // Exit, written by the shim at the end
	SocketFile = "guest.sock"  // the guest listens here
)

// Descriptors the shim starts with.
const (
	FDJob   = 3 // JSON Job, until end of file
	FDReady = 4 // the shim writes one JSON Ready
)

// Descriptors bubblewrap starts with. FDListen is the guest's too.
const (
	FDArgs    = 3
	FDListen  = 4
	FDSeccomp = 5
	FDBlock   = 6
)

// Where the shim prepares what bubblewrap binds: in its own mount namespace,
// on a small file system over Staging, so that a sandbox's user can reach it
// although the server's folders are closed to everyone else.
const (
	Staging   = "/tmp"
	Root      = Staging + "/root" // becomes the sandbox's root folder
	Workspace = Staging + "/work"
	Tmp       = Staging + "/tmp"
	Shm       = Staging + "/shm"
)

// MountPoint is the folder within a sandbox's run directory over which the
// staging file system is first mounted.
const MountPoint = "m"

// MaxSize bounds the encoded Job, in bytes.
const MaxSize = 1 << 20

// Job is one sandbox to start and watch over.
type Job struct {
	Dir   string   `json:"dir"` // run directory of the sandbox
	Bwrap string   `json:"bwrap"`
	Args  []string `json:"args"` // options of bubblewrap, read by it from FDArgs
	Argv  []string `json:"argv"` // the guest's argument vector

	Seccomp []byte `json:"seccomp"`

	Tree []Node `json:"tree"` // what the root folder shows

	// Host user and group of the sandbox's processes. Zero keeps the shim's
	// own: then it runs in a user namespace of an ordinary user.
	UID int `json:"uid"`

	Files     int64 `json:"files"`      // RLIMIT_NOFILE
	Workspace int64 `json:"workspace"`  // bytes, RLIMIT_FSIZE too
	Inodes    int64 `json:"inodes"`     // of the workspace
	Tmp       int64 `json:"tmp"`        // bytes
	TmpInodes int64 `json:"tmp_inodes"` //
	Shm       int64 `json:"shm"`        // bytes

	Group  cgroup.Group  `json:"group"`
	Limits cgroup.Limits `json:"limits"`
	Total  cgroup.Total  `json:"total"` // of all sandboxes of the install
}

// Ready is the shim's word that the sandbox's walls stand, or why not.
type Ready struct {
	Error string `json:"error,omitempty"`
}

// State lets a later server find the shim and what belongs to the sandbox.
type State struct {
	Pid   int          `json:"pid"`
	Start uint64       `json:"start"` // of the process, in clock ticks since boot
	Boot  string       `json:"boot"`  // boot id of the host
	Group cgroup.Group `json:"group"`
}

// Exit is how the sandbox ended, from the wait status and the counters.
type Exit struct {
	Code   int          `json:"code"`
	Signal int          `json:"signal"`
	Killed bool         `json:"killed"` // the server asked for it
	Usage  cgroup.Usage `json:"usage"`
	Detail string       `json:"detail"` // last words on standard error
}

// Kind says what a Node is.
type Kind string

// The kinds of nodes. Missing parents of a node are made as folders.
const (
	Dir  Kind = "dir"
	Link Kind = "link" // Text is the target
	File Kind = "file" // Text is the content
	Copy Kind = "copy" // a program copied from Source
	Bind Kind = "bind" // Source as it is, with what is mounted below
)

// Node is one entry of the sandbox's root folder.
type Node struct {
	Kind   Kind   `json:"kind"`
	Path   string `json:"path"` // absolute and clean
	Text   string `json:"text,omitempty"`
	Source string `json:"source,omitempty"` // host path
}
