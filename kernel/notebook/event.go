package notebook

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Event is a fact about a notebook. Seq counts from 1 without gaps.
type Event struct {
	Seq  int64
	At   time.Time
	By   Author
	Body Body
}

// Body is what happened. Its type name is part of the stored format: bodies
// may gain fields, never lose or rename them.
type Body interface{ Event() string }

type eventJSON struct {
	Seq  int64           `json:"seq"`
	At   int64           `json:"at"` // unix ms
	By   Author          `json:"by"`
	Type string          `json:"event"`
	Body json.RawMessage `json:"body"`
}

// MarshalJSON encodes {"seq","at","by","event","body"}; at is unix milliseconds.
func (e Event) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(e.Body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(eventJSON{e.Seq, e.At.UnixMilli(), e.By, e.Body.Event(), b})
}

// UnmarshalJSON decodes what MarshalJSON made. An unknown type is an error.
func (e *Event) UnmarshalJSON(p []byte) error {
	var j eventJSON
	if err := json.Unmarshal(p, &j); err != nil {
		return err
	}
	body, err := DecodeBody(j.Type, j.Body)
	if err != nil {
		return err
	}
	*e = Event{j.Seq, time.UnixMilli(j.At).UTC(), j.By, body}
	return nil
}

// DecodeBody decodes a body by its type name.
func DecodeBody(name string, p []byte) (Body, error) {
	mk, ok := bodies[name]
	if !ok {
		return nil, fmt.Errorf("unknown event %q", name)
	}
	return mk(p)
}

// EventNames lists the type names of all events, sorted.
func EventNames() []string { return slices.Sorted(maps.Keys(bodies)) }

var bodies = map[string]func([]byte) (Body, error){}

func body[T Body]() struct{} {
	var zero T
	bodies[zero.Event()] = func(p []byte) (Body, error) {
		var v T
		err := json.Unmarshal(p, &v)
		return v, err
	}
	return struct{}{}
}

var _ = []struct{}{
	body[Created](), body[Renamed](), body[NotebookDeleted](), body[NotebookRestored](),
	body[CellInserted](), body[CellEdited](), body[CellMoved](), body[CellDeleted](), body[CellRestored](), body[CellKindSet](),
	body[RunQueued](), body[RunSent](), body[RunStage](), body[RunEnded](),
	body[StreamAppended](), body[StreamOmitted](), body[OutputAdded](), body[OutputUpdated](), body[OutputsCleared](), body[CellCleared](),
	body[InputRequested](), body[InputAnswered](), body[FilesChanged](),
	body[KernelStarting](), body[SandboxUp](), body[KernelReady](), body[KernelAdopted](), body[KernelDied](), body[KernelStopped](),
}

// The document.
type (
	// Created is always the first event.
	Created struct {
		Title    string `json:"title"`
		Language string `json:"language"`
		Backend  string `json:"backend,omitempty"`
	}
	// Renamed changes the title.
	Renamed struct {
		Title string `json:"title"`
	}
	// NotebookDeleted puts the notebook into the trash.
	NotebookDeleted struct{}
	// NotebookRestored takes it out again.
	NotebookRestored struct{}
	// CellInserted adds a cell after another; an empty After is the start.
	CellInserted struct {
		Cell   CellID   `json:"cell"`
		After  CellID   `json:"after"`
		Kind   CellKind `json:"kind"`
		Source string   `json:"source"`
	}
	// CellEdited replaces a cell's text.
	CellEdited struct {
		Cell    CellID `json:"cell"`
		Version int    `json:"version"`
		Source  string `json:"source"`
	}
	// CellMoved puts a cell after another; an empty After is the start.
	CellMoved struct {
		Cell  CellID `json:"cell"`
		After CellID `json:"after"`
	}
	// CellDeleted puts a cell into the trash.
	CellDeleted struct {
		Cell CellID `json:"cell"`
	}
	// CellRestored takes a cell out of the trash.
	CellRestored struct {
		Cell  CellID `json:"cell"`
		After CellID `json:"after"`
	}
	// CellKindSet makes a cell code, Markdown or raw.
	CellKindSet struct {
		Cell CellID   `json:"cell"`
		Kind CellKind `json:"kind"`
	}
)

// Runs and what they print.
type (
	// RunQueued asks for a run; Source is exactly what will run.
	RunQueued struct {
		Run       RunID  `json:"run"`
		Cell      CellID `json:"cell"`
		Source    string `json:"source"`
		SHA256    string `json:"sha256"`
		Batch     string `json:"batch"`
		KeepGoing bool   `json:"keep_going,omitempty"`
		TimeoutMS int64  `json:"timeout_ms,omitempty"`
	}
	// RunSent is made durable before the kernel is told, so that a restarted
	// server knows to ask the kernel about it.
	RunSent struct {
		Run   RunID `json:"run"`
		Gen   int   `json:"gen"`
		Count int   `json:"count"`
	}
	// RunStage says how far an interrupt has gone.
	RunStage struct {
		Run   RunID  `json:"run"`
		Stage string `json:"stage"`
	}
	// RunEnded ends a run, once.
	RunEnded struct {
		Run        RunID     `json:"run"`
		Status     RunStatus `json:"status"`
		Reason     string    `json:"reason,omitempty"`
		EName      string    `json:"ename,omitempty"`
		EValue     string    `json:"evalue,omitempty"`
		WallMS     int64     `json:"wall_ms,omitempty"`
		CPUMS      int64     `json:"cpu_ms,omitempty"`
		PeakMemory int64     `json:"peak_memory,omitempty"`
	}
	// StreamAppended is text a run printed.
	StreamAppended struct {
		Run        RunID  `json:"run"`
		Name       string `json:"name"`
		Text       string `json:"text"`
		Background bool   `json:"background,omitempty"`
	}
	// StreamOmitted counts text that was printed and not kept; Tail is the
	// newest text, which replaces what stood at the end.
	StreamOmitted struct {
		Run   RunID  `json:"run"`
		Name  string `json:"name"`
		Bytes int64  `json:"bytes"`
		Lines int64  `json:"lines"`
		Tail  string `json:"tail,omitempty"`
	}
	// OutputAdded is a display, a result or an error.
	OutputAdded struct {
		Run    RunID  `json:"run"`
		Output Output `json:"output"`
	}
	// OutputUpdated replaces every output that the present kernel displayed
	// under the id.
	OutputUpdated struct {
		DisplayID string           `json:"display_id"`
		Data      map[string]Value `json:"data"`
		Metadata  json.RawMessage  `json:"metadata,omitempty"`
	}
	// OutputsCleared is clear_output: now, or when the next output comes.
	OutputsCleared struct {
		Run  RunID `json:"run"`
		Wait bool  `json:"wait,omitempty"`
	}
	// CellCleared removes a cell's outputs; an empty Cell is all of them.
	CellCleared struct {
		Cell CellID `json:"cell,omitempty"`
	}
	// InputRequested says that the run waits for somebody to type.
	InputRequested struct {
		Run      RunID  `json:"run"`
		Prompt   string `json:"prompt"`
		Password bool   `json:"password,omitempty"`
	}
	// InputAnswered says that it no longer waits. A password is not kept.
	InputAnswered struct {
		Run   RunID  `json:"run"`
		Value string `json:"value,omitempty"`
	}
	// FilesChanged lists what changed in the workspace: by a run, or, with an
	// empty Run, by somebody who uploaded or deleted. It comes again for the
	// same run once copies of the files are kept.
	FilesChanged struct {
		Run   RunID `json:"run,omitempty"`
		Files Files `json:"files"`
	}
)

// The kernel.
type (
	// KernelStarting begins a generation. Boot and Sandbox differ from before
	// when it gets a new sandbox.
	KernelStarting struct {
		Gen     int    `json:"gen"`
		Boot    int    `json:"boot"`
		Sandbox string `json:"sandbox"`
		Backend string `json:"backend"`
		Memory  int64  `json:"memory,omitempty"`
		Message string `json:"message,omitempty"`
		// Missing lists what the backend cannot enforce on this host; none of
		// it is OK.
		Missing []Check `json:"missing,omitempty"`
	}
	// SandboxUp brings the self-check of the sandbox.
	SandboxUp struct {
		Posture []Check `json:"posture"`
	}
	// KernelReady says that the kernel can run cells.
	KernelReady struct {
		Gen  int        `json:"gen"`
		Info KernelInfo `json:"info"`
	}
	// KernelAdopted says that a restarted server found the kernel alive.
	KernelAdopted struct {
		Gen int `json:"gen"`
	}
	// KernelDied ends a generation that nobody asked to end.
	KernelDied struct {
		Gen     int    `json:"gen"`
		Cause   string `json:"cause"`   // exited, signaled, out_of_memory, orphaned, lost, start_failed
		Message string `json:"message"` // sentence for people
		Code    int    `json:"code,omitempty"`
		Signal  int    `json:"signal,omitempty"`
		Peak    int64  `json:"peak,omitempty"`
		Gone    bool   `json:"gone,omitempty"` // the sandbox is gone, too
	}
	// KernelStopped ends a generation that somebody asked to end.
	KernelStopped struct {
		Gen  int  `json:"gen"`
		Gone bool `json:"gone,omitempty"`
	}
)

// Event names, one per body.
func (Created) Event() string          { return "notebook.created" }
func (Renamed) Event() string          { return "notebook.renamed" }
func (NotebookDeleted) Event() string  { return "notebook.deleted" }
func (NotebookRestored) Event() string { return "notebook.restored" }
func (CellInserted) Event() string     { return "cell.inserted" }
func (CellEdited) Event() string       { return "cell.edited" }
func (CellMoved) Event() string        { return "cell.moved" }
func (CellDeleted) Event() string      { return "cell.deleted" }
func (CellRestored) Event() string     { return "cell.restored" }
func (CellKindSet) Event() string      { return "cell.kind" }
func (CellCleared) Event() string      { return "cell.cleared" }
func (RunQueued) Event() string        { return "run.queued" }
func (RunSent) Event() string          { return "run.sent" }
func (RunStage) Event() string         { return "run.stage" }
func (RunEnded) Event() string         { return "run.ended" }
func (StreamAppended) Event() string   { return "output.stream" }
func (StreamOmitted) Event() string    { return "output.omitted" }
func (OutputAdded) Event() string      { return "output.added" }
func (OutputUpdated) Event() string    { return "output.updated" }
func (OutputsCleared) Event() string   { return "output.cleared" }
func (InputRequested) Event() string   { return "input.requested" }
func (InputAnswered) Event() string    { return "input.answered" }
func (FilesChanged) Event() string     { return "files.changed" }
func (KernelStarting) Event() string   { return "kernel.starting" }
func (SandboxUp) Event() string        { return "kernel.sandbox" }
func (KernelReady) Event() string      { return "kernel.ready" }
func (KernelAdopted) Event() string    { return "kernel.adopted" }
func (KernelDied) Event() string       { return "kernel.died" }
func (KernelStopped) Event() string    { return "kernel.stopped" }
