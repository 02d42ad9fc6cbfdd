package notebook

import (
	"encoding/json"
	"slices"
	"time"
)

// Ids. They are UUIDv7 made by the caller; the model only compares them.
type (
	// ID names a notebook.
	ID string
	// CellID names a cell within a notebook.
	CellID string
	// RunID names one run.
	RunID string
)

// State is one notebook: document, outputs, queue, pending input and kernel.
type State struct {
	ID       ID        `json:"id"`
	Seq      int64     `json:"seq"` // of the last event applied
	Title    string    `json:"title"`
	Language string    `json:"language"`
	Backend  string    `json:"backend"` // name; empty is the server's default
	Created  time.Time `json:"created"`
	Updated  time.Time `json:"updated"` // last change to the document
	Deleted  time.Time `json:"deleted,omitzero"`

	Cells []*Cell        `json:"cells"`
	Trash []*Deleted     `json:"trash,omitempty"` // newest last
	Runs  map[RunID]*Run `json:"runs"`            // the last run of each cell, and every live one
	Queue []RunID        `json:"queue,omitempty"` // waiting, in order
	Live  RunID          `json:"live,omitempty"`  // sent to the kernel and not ended

	Kernel Kernel          `json:"kernel"`
	Files  map[string]File `json:"files,omitempty"` // the workspace, by path, as last reported
	Input  *Input          `json:"input,omitempty"` // what the live run waits for
	Count  int             `json:"count"`           // execution count of the kernel
	Order  int64           `json:"order"`           // counts runs sent, over all kernels
}

// CellKind says what a cell holds.
type CellKind string

// The kinds of cell.
const (
	CodeCell     CellKind = "code"
	MarkdownCell CellKind = "markdown"
	RawCell      CellKind = "raw"
)

// Cell is one cell of the document.
type Cell struct {
	ID      CellID    `json:"id"`
	Kind    CellKind  `json:"kind"`
	Source  string    `json:"source"`
	Version int       `json:"version"` // counts edits, from 1
	By      Author    `json:"by"`      // who wrote the present text
	At      time.Time `json:"at"`
	Run     RunID     `json:"run,omitempty"`     // the run whose outputs it shows
	Pending RunID     `json:"pending,omitempty"` // queued, not yet sent
}

// Deleted is a cell in the trash.
type Deleted struct {
	Cell  *Cell     `json:"cell"`
	After CellID    `json:"after"` // what stood before it
	By    Author    `json:"by"`
	At    time.Time `json:"at"`
}

// RunStatus is where a run stands.
type RunStatus string

// The statuses of a run. Those after Running are final.
const (
	Queued      RunStatus = "queued"
	Running     RunStatus = "running"
	OK          RunStatus = "ok"
	Failed      RunStatus = "error"
	Interrupted RunStatus = "interrupted"
	TimedOut    RunStatus = "timeout"
	Killed      RunStatus = "killed"    // the kernel died or was stopped under it
	Skipped     RunStatus = "skipped"   // an earlier run of its batch failed
	Cancelled   RunStatus = "cancelled" // taken off the queue by somebody
	LostRun     RunStatus = "lost"      // the sandbox vanished; nobody knows how far it came
)

// Final reports whether a run in this status is over.
func (s RunStatus) Final() bool { return s != Queued && s != Running }

// Run is one execution of one cell's exact source.
type Run struct {
	ID         RunID     `json:"id"`
	Cell       CellID    `json:"cell"`
	Source     string    `json:"source"` // exactly what runs
	SHA256     string    `json:"sha256"` // of Source, hex
	By         Author    `json:"by"`
	Batch      string    `json:"batch"`                // runs asked for together
	KeepGoing  bool      `json:"keep_going,omitempty"` // an error does not skip the rest
	TimeoutMS  int64     `json:"timeout_ms,omitempty"`
	Status     RunStatus `json:"status"`
	Reason     string    `json:"reason,omitempty"` // sentence, why it ended as it did
	EName      string    `json:"ename,omitempty"`
	EValue     string    `json:"evalue,omitempty"`
	Queued     time.Time `json:"queued"`
	Started    time.Time `json:"started,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
	Count      int       `json:"count,omitempty"` // execution count, [n]
	Gen        int       `json:"gen,omitempty"`   // kernel generation it ran in
	Order      int64     `json:"order,omitempty"`
	WallMS     int64     `json:"wall_ms,omitempty"`
	CPUMS      int64     `json:"cpu_ms,omitempty"`
	PeakMemory int64     `json:"peak_memory,omitempty"` // bytes
	Stage      string    `json:"stage,omitempty"`       // how far an interrupt has gone
	Last       int64     `json:"last_ms,omitempty"`     // how long the cell took last time

	Outputs   []*Output `json:"outputs,omitempty"`
	ClearNext bool      `json:"clear_next,omitempty"` // clear_output(wait=True)
	Files     *Files    `json:"files,omitempty"`
}

// OutputKind says what an output is.
type OutputKind string

// The kinds of output.
const (
	StreamOutput  OutputKind = "stream"
	DisplayOutput OutputKind = "display"
	ResultOutput  OutputKind = "result"
	ErrorOutput   OutputKind = "error"
)

// Output is one output of a run.
type Output struct {
	Kind       OutputKind       `json:"kind"`
	Name       string           `json:"name,omitempty"`       // stdout, stderr
	Background bool             `json:"background,omitempty"` // printed after the run ended
	Text       *Text            `json:"text,omitempty"`       // of a stream
	Data       map[string]Value `json:"data,omitempty"`       // by MIME type
	Metadata   json.RawMessage  `json:"metadata,omitempty"`
	DisplayID  string           `json:"display_id,omitempty"`
	EName      string           `json:"ename,omitempty"`
	EValue     string           `json:"evalue,omitempty"`
	Traceback  []string         `json:"traceback,omitempty"`
}

// Value is one representation in a MIME bundle: text (base64 for binary
// types, as Jupyter has it), or the hash of a blob that holds the bytes.
type Value struct {
	Text string `json:"text,omitempty"`
	Blob string `json:"blob,omitempty"` // sha256, hex
	Size int64  `json:"size,omitempty"` // bytes of the blob
}

// File is one workspace file a run left.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	Blob   string `json:"blob,omitempty"` // sha256 of the kept copy; empty: not kept
	MIME   string `json:"mime,omitempty"`
	Width  int    `json:"width,omitempty"`
	Height int    `json:"height,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`
	Why    string `json:"why,omitempty"` // sentence, why it was not kept
}

// Files lists what a run changed in the workspace.
type Files struct {
	Changed []File   `json:"changed,omitempty"`
	Removed []string `json:"removed,omitempty"`
	More    int      `json:"more,omitempty"` // further changes not listed
}

// KernelStatus is where the kernel stands.
type KernelStatus string

// The statuses of a kernel.
const (
	NoKernel KernelStatus = "none"     // never started, or stopped
	Starting KernelStatus = "starting" //
	Ready    KernelStatus = "ready"    // idle or busy, see State.Live
	Dying    KernelStatus = "dying"    // a run took it down; its end is about to be reported
	Dead     KernelStatus = "dead"     // ended by itself, Message says why
)

// Kernel is the notebook's kernel and the sandbox it runs in.
type Kernel struct {
	Status  KernelStatus `json:"status"`
	Gen     int          `json:"gen"`     // counts kernels of this notebook
	Boot    int          `json:"boot"`    // counts sandboxes of this notebook
	Sandbox string       `json:"sandbox"` // backend's id of the live one
	Backend string       `json:"backend,omitempty"`
	Started time.Time    `json:"started,omitzero"`
	Info    KernelInfo   `json:"info,omitzero"`
	Posture []Check      `json:"posture,omitempty"`
	Message string       `json:"message,omitempty"` // sentence: progress while starting, cause when dead
	Adopted int          `json:"adopted,omitempty"` // how often a restarted server found it again
	Memory  int64        `json:"memory,omitempty"`  // limit, bytes; 0: there is none
	Missing []Check      `json:"missing,omitempty"` // what the backend cannot enforce here
}

// KernelInfo describes the interpreter.
type KernelInfo struct {
	Language       string   `json:"language"`
	Version        string   `json:"version"`
	Implementation string   `json:"implementation"`
	Features       []string `json:"features,omitempty"`
}

// Check is one line of the isolation self-check.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Input is a question the live run asks.
type Input struct {
	Run      RunID     `json:"run"`
	Prompt   string    `json:"prompt"`
	Password bool      `json:"password,omitempty"`
	At       time.Time `json:"at"`
}

// Cell finds a cell and its place; nil and -1 if there is none.
func (s State) Cell(id CellID) (*Cell, int) {
	i := slices.IndexFunc(s.Cells, func(c *Cell) bool { return c.ID == id })
	if i < 0 {
		return nil, -1
	}
	return s.Cells[i], i
}

// Busy reports whether a run is live.
func (s State) Busy() bool { return s.Live != "" }

// Position says where a queued run stands, from 1; 0 if it is not queued.
func (s State) Position(id RunID) int { return slices.Index(s.Queue, id) + 1 }

// Staleness says in one word how a cell's outputs relate to its text and the
// kernel: "" means they fit.
type Staleness string

// The kinds of staleness.
const (
	Fresh         Staleness = ""
	NeverRun      Staleness = "never_run"
	EditedSince   Staleness = "edited"
	EarlierKernel Staleness = "earlier_kernel"
)

// Staleness of a code cell.
func (s State) Staleness(c *Cell) Staleness {
	r := s.Runs[c.Run]
	switch {
	case c.Kind != CodeCell:
		return Fresh
	case r == nil || r.Started.IsZero():
		return NeverRun
	case r.Source != c.Source:
		return EditedSince
	case r.Gen != s.Kernel.Gen || s.Kernel.Status != Ready:
		return EarlierKernel
	}
	return Fresh
}
