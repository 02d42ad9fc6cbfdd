package wire

import "encoding/json"

// Hello opens a conversation. Since is the last event the host has made
// durable; the guest drops everything up to it from its spool and sends the
// rest again.
type Hello struct {
	Version int    `json:"version"`
	Since   uint64 `json:"since"`
}

// Welcome answers Hello. First and Last bound what the spool holds; a First
// greater than Since+1 means events were lost, which the host must say.
type Welcome struct {
	Version int     `json:"version"`
	Error   string  `json:"error,omitempty"` // why the guest refuses, a sentence
	First   uint64  `json:"first"`
	Last    uint64  `json:"last"`
	Posture []Check `json:"posture"`
	Gen     int     `json:"gen"`           // generation of the live kernel, 0 if none
	Run     string  `json:"run,omitempty"` // run in progress
}

// Check is one fact of the posture self-check: what the guest found when it
// looked at its own walls from inside before taking any code.
type Check struct {
	Name   string `json:"name"` // stable, such as "seccomp"
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // what was found, for people
}

// Request asks the guest for something. Fields beyond ID and Op are those the
// op uses; the others are zero.
type Request struct {
	ID uint64 `json:"id"`
	Op Op     `json:"op"`

	Gen   int          `json:"gen,omitempty"`
	Start *StartKernel `json:"start,omitempty"`
	Run   *Run         `json:"run,omitempty"`
	RunID string       `json:"run_id,omitempty"` // interrupt, input
	Value string       `json:"value,omitempty"`  // input
	Code  string       `json:"code,omitempty"`   // complete, inspect, is_complete
	Pos   int          `json:"pos,omitempty"`    // cursor, in code points
	Level int          `json:"level,omitempty"`  // inspect detail
	Path  string       `json:"path,omitempty"`   // files: relative to the workspace, slash-separated
	To    string       `json:"to,omitempty"`     // rename
	File  *FileInfo    `json:"file,omitempty"`   // write: mode and time to set
	Limit int64        `json:"limit,omitempty"`  // read: at most so many bytes; list: entries
	Off   int64        `json:"off,omitempty"`    // read: from this byte
	Cmd   *Command     `json:"cmd,omitempty"`
}

// Op names a request.
type Op string

// The ops a guest knows. It answers any other with an error reply.
const (
	// OpStart starts the kernel of generation Gen. Starting a generation that
	// is live or past is answered OK and does nothing.
	OpStart Op = "start_kernel"
	// OpStop ends the kernel and every process it started.
	OpStop Op = "stop_kernel"
	// OpRun runs a cell. A RunID seen before in this guest's life is answered
	// OK and does nothing, so a host that does not know may always ask again.
	OpRun Op = "run"
	// OpInterrupt stops the run: SIGINT to the kernel, then to its process
	// group, then kill. Each stage is an event.
	OpInterrupt Op = "interrupt"
	// OpInput answers a pending input request of the run.
	OpInput Op = "input"
	// OpComplete, OpInspect and OpIsComplete ask the kernel about Code; the
	// reply's Result is Jupyter's reply content.
	OpComplete   Op = "complete"
	OpInspect    Op = "inspect"
	OpIsComplete Op = "is_complete"
	// OpVariables lists the user's names; Result is []Variable.
	OpVariables Op = "variables"
	// OpList lists the workspace (or one folder, Path); Result is []FileInfo.
	OpList Op = "list_files"
	// OpRead sends a file as data on the request's stream, then End.
	OpRead Op = "read_file"
	// OpWrite takes a file as data on the request's stream until End, then
	// replies. The file appears whole or not at all.
	OpWrite  Op = "write_file"
	OpRemove Op = "remove_file"
	OpRename Op = "rename_file"
	OpMkdir  Op = "make_dir"
	// OpCommand runs a program: its standard output and error are data on the
	// request's stream and the next one, its input is data from the host; the
	// reply's Result is CommandResult.
	OpCommand Op = "command"
	// OpUsage samples what the guest's processes use; Result is Usage.
	OpUsage Op = "usage"
	// OpShutdown ends the guest, and with it the sandbox.
	OpShutdown Op = "shutdown"
)

// StartKernel says which driver to start.
type StartKernel struct {
	Language string   `json:"language"`
	Argv     []string `json:"argv,omitempty"` // interpreter; empty: the driver's default
	Env      []string `json:"env,omitempty"`  // added to the guest's environment
}

// Run is one execution.
type Run struct {
	ID          string `json:"id"`
	Code        string `json:"code"`
	Name        string `json:"name"`  // of the cell, for tracebacks
	Count       int    `json:"count"` // execution count, chosen by the host
	Silent      bool   `json:"silent,omitempty"`
	NoStdin     bool   `json:"no_stdin,omitempty"`
	TimeoutMS   int64  `json:"timeout_ms,omitempty"`   // wall clock, 0: none
	OutputLimit int64  `json:"output_limit,omitempty"` // bytes of stream text sent whole; beyond it only a rolling tail and the exact count
}

// Command is a program to run beside the kernel.
type Command struct {
	Argv      []string `json:"argv"`
	Dir       string   `json:"dir,omitempty"` // relative to the workspace
	Env       []string `json:"env,omitempty"`
	TimeoutMS int64    `json:"timeout_ms,omitempty"`
}

// CommandResult is how a command ended.
type CommandResult struct {
	Code     int  `json:"code"`
	Signal   int  `json:"signal,omitempty"`
	TimedOut bool `json:"timed_out,omitempty"`
}

// Reply answers the request of the same id.
type Reply struct {
	ID     uint64          `json:"id"`
	Error  string          `json:"error,omitempty"` // a sentence; empty: done
	Code   ErrorCode       `json:"code,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// ErrorCode classifies a reply's error.
type ErrorCode string

// The codes of a reply.
const (
	CodeInvalid  ErrorCode = "invalid"
	CodeNotFound ErrorCode = "not_found"
	CodeBusy     ErrorCode = "busy"
	CodeNoKernel ErrorCode = "no_kernel"
	CodeFull     ErrorCode = "full" // workspace quota
	CodeFailed   ErrorCode = "failed"
)

// End closes a stream.
type End struct {
	Error string `json:"error,omitempty"`
}

// EventType names an event.
type EventType string

// The closed vocabulary of events. A host drops and counts any other.
const (
	EventReady     EventType = "ready"      // Content: KernelInfo
	EventRunStart  EventType = "run_start"  // the kernel took the run
	EventStream    EventType = "stream"     // Name stdout or stderr; Data: UTF-8 text
	EventOmitted   EventType = "omitted"    // Content: Omitted; Data: the rolling tail
	EventDisplay   EventType = "display"    // Content: Jupyter display_data
	EventResult    EventType = "result"     // Content: Jupyter execute_result
	EventUpdate    EventType = "update"     // Content: Jupyter update_display_data
	EventClear     EventType = "clear"      // Content: Jupyter clear_output
	EventError     EventType = "error"      // Content: Jupyter error
	EventInput     EventType = "input"      // Content: Jupyter input_request
	EventComm      EventType = "comm"       // Content: {msg_type, content}
	EventRunEnd    EventType = "run_end"    // Content: RunEnd
	EventInterrupt EventType = "interrupt"  // Content: InterruptStage
	EventDied      EventType = "died"       // Content: Died; the generation is over
	EventFiles     EventType = "files"      // Content: Files, what a run changed; follows every run_end, also when empty
	EventSpoolFull EventType = "spool_full" // Content: Omitted; output was dropped because no host took it
)

// Event is a fact the guest reports. Gen and Run say what it belongs to; an
// empty Run is a background output that no live run owns.
type Event struct {
	Seq        uint64          `json:"-"`
	Type       EventType       `json:"type"`
	Gen        int             `json:"gen,omitempty"`
	Run        string          `json:"run,omitempty"`
	At         int64           `json:"at,omitempty"` // unix ms by the guest's clock; advice only
	Name       string          `json:"name,omitempty"`
	Background bool            `json:"background,omitempty"` // printed after the run ended
	Content    json.RawMessage `json:"content,omitempty"`
	Data       []byte          `json:"-"`
}

// KernelInfo describes a kernel that is ready to run.
type KernelInfo struct {
	Language       string   `json:"language"`
	Version        string   `json:"version"`
	Implementation string   `json:"implementation"` // such as "CPython 3.11.2, IPython 8.5.0"
	Pid            int      `json:"pid"`
	Features       []string `json:"features"` // complete, inspect, stdin, magics …
}

// RunEnd ends a run. Times and memory come from the supervisor.
type RunEnd struct {
	Status RunStatus `json:"status"`
	// Reason is a sentence when the status needs one.
	Reason string `json:"reason,omitempty"`
	EName  string `json:"ename,omitempty"`
	EValue string `json:"evalue,omitempty"`
	WallMS int64  `json:"wall_ms"`
	CPUMS  int64  `json:"cpu_ms"`
	Peak   int64  `json:"peak"` // bytes, peak resident memory of the kernel process so far
}

// RunStatus is how a run ended.
type RunStatus string

// How runs end. Killed and Lost mean the kernel is gone.
const (
	RunOK          RunStatus = "ok"
	RunError       RunStatus = "error"
	RunInterrupted RunStatus = "interrupted"
	RunTimeout     RunStatus = "timeout"
	RunKilled      RunStatus = "killed"
)

// InterruptStage says how far an interrupt has gone.
type InterruptStage struct {
	Stage string `json:"stage"` // "sigint", "sigint_group", "kill"
}

// Died says how a kernel process ended.
type Died struct {
	Code   int    `json:"code"`
	Signal int    `json:"signal,omitempty"`
	Asked  bool   `json:"asked,omitempty"`  // we ended it
	Reason string `json:"reason,omitempty"` // sentence, where the supervisor knows more
	Peak   int64  `json:"peak,omitempty"`   // bytes
}

// Omitted counts what was left out: bytes (and line ends) that were printed
// since the last such event and are in no stream event. An omitted event's Data
// is the rolling tail, a copy of the newest of them; it replaces the tail of the
// omitted event before it.
type Omitted struct {
	Name  string `json:"name,omitempty"` // stream
	Bytes int64  `json:"bytes"`          // since the last such event
	Lines int64  `json:"lines"`
}

// Files lists what a run changed in the workspace.
type Files struct {
	Changed []FileInfo `json:"changed,omitempty"`
	Removed []string   `json:"removed,omitempty"`
	More    int        `json:"more,omitempty"` // further changes not listed
}

// FileInfo describes one entry of the workspace.
type FileInfo struct {
	Path  string `json:"path"` // slash-separated, relative, valid UTF-8; other names are escaped and not readable
	Kind  string `json:"kind"` // "file", "dir", "link", "other"
	Size  int64  `json:"size"`
	Mode  uint32 `json:"mode"`  // permission bits
	MTime int64  `json:"mtime"` // unix ms
	Link  string `json:"link,omitempty"`
}

// Variable is a name the user defined.
type Variable struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape string `json:"shape,omitempty"`
	Size  int64  `json:"size,omitempty"`
	Value string `json:"value,omitempty"` // at most 200 characters
}

// Usage samples the sandbox from inside.
type Usage struct {
	Procs  int   `json:"procs"`
	Memory int64 `json:"memory"` // bytes resident, all processes
	CPUMS  int64 `json:"cpu_ms"`
}
