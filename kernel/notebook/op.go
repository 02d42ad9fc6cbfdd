package notebook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Op is a request to change a notebook. The ops of clients are decoded by
// DecodeOp; Report and Dispatch are the server's own and have no wire form.
type Op interface{ Op() string }

// Bounds of what a document may hold.
const (
	MaxTitle  = 200       // characters
	MaxSource = 1 << 20   // bytes of one cell
	MaxCells  = 5000      //
	MaxInput  = 64 << 10  // bytes typed into one input()
	MaxQueue  = MaxCells  // waiting runs
	MaxTrash  = 200       // deleted cells kept for undo; older ones stay in the log
	maxID     = 64        // bytes of a client's id
	MaxText   = 256 << 10 // bytes of one StreamAppended
)

// Ops of clients.
type (
	// Rename changes the title.
	Rename struct {
		Title string `json:"title"`
	}
	// InsertCell adds a cell. Without After it goes to the end; an empty
	// After is the start. Without Cell the server chooses the id.
	InsertCell struct {
		Cell   CellID   `json:"cell,omitempty"`
		After  *CellID  `json:"after,omitempty"`
		Kind   CellKind `json:"kind,omitempty"`
		Source string   `json:"source"`
	}
	// EditCell replaces a cell's text. Base is the version the editor saw;
	// if the cell has moved on, the answer is a Conflict with the present
	// version and text as its data, and nothing changes.
	EditCell struct {
		Cell   CellID `json:"cell"`
		Base   int    `json:"base"`
		Source string `json:"source"`
	}
	// MoveCell puts a cell after another; an empty After is the start.
	MoveCell struct {
		Cell  CellID `json:"cell"`
		After CellID `json:"after"`
	}
	// DeleteCell puts a cell into the trash.
	DeleteCell struct {
		Cell CellID `json:"cell"`
	}
	// RestoreCell takes a cell out of the trash, by default the newest.
	RestoreCell struct {
		Cell CellID `json:"cell,omitempty"`
	}
	// SetCellKind makes a cell code, Markdown or raw.
	SetCellKind struct {
		Cell CellID   `json:"cell"`
		Kind CellKind `json:"kind"`
	}
	// SplitCell cuts a cell in two at At, counted in characters (Unicode code
	// points). The second part becomes the cell New.
	SplitCell struct {
		Cell CellID `json:"cell"`
		Base int    `json:"base"`
		At   int    `json:"at"`
		New  CellID `json:"new,omitempty"`
	}
	// MergeCells appends the next cell's text to a cell and deletes the next.
	MergeCells struct {
		Cell CellID `json:"cell"`
	}
	// ClearOutputs removes the outputs of a cell, or of all.
	ClearOutputs struct {
		Cell CellID `json:"cell,omitempty"`
	}

	// RunCells queues runs. Scope "cells" runs Cells in the given order; "all",
	// "above" (what stands before Cells[0]), "below" (Cells[0] and what stands
	// after it) run code cells in document order. Versions, if given, are what
	// the actor saw of each of Cells: a cell that moved on is a Conflict.
	RunCells struct {
		Scope     string   `json:"scope,omitempty"`
		Cells     []CellID `json:"cells,omitempty"`
		Versions  []int    `json:"versions,omitempty"`
		KeepGoing bool     `json:"keep_going,omitempty"`
		TimeoutMS int64    `json:"timeout_ms,omitempty"`
		IDs       []RunID  `json:"-"` // filled by Prepare
	}
	// CancelRun takes a waiting run off the queue.
	CancelRun struct {
		Run RunID `json:"run"`
	}
	// Interrupt stops the live run and empties the queue.
	Interrupt struct{}
	// ReplyInput answers the pending input.
	ReplyInput struct {
		Run   RunID  `json:"run"`
		Value string `json:"value"`
	}
	// StartKernel starts a kernel if there is none.
	StartKernel struct{}
	// StopKernel ends the kernel and its sandbox.
	StopKernel struct{}
	// RestartKernel ends the kernel and starts a new one; with RunAll it then
	// runs every code cell.
	RestartKernel struct {
		RunAll bool    `json:"run_all,omitempty"`
		IDs    []RunID `json:"-"`
	}
	// DeleteNotebook puts the notebook into the trash and stops its kernel.
	DeleteNotebook struct{}
	// RestoreNotebook takes it out again.
	RestoreNotebook struct{}
)

// Ops of the server itself.
type (
	// Report brings a fact from the kernel's side: the guest, the backend, the
	// session. Gen is the kernel generation it is about; a fact about a
	// generation that is over is dropped.
	Report struct {
		Gen  int
		Body Body
	}
	// Dispatch sends the next waiting run to an idle kernel.
	Dispatch struct{}
)

// Op names; the client ops are named as the socket, REST and MCP name them.
func (Rename) Op() string          { return "notebook.rename" }
func (DeleteNotebook) Op() string  { return "notebook.delete" }
func (RestoreNotebook) Op() string { return "notebook.restore" }
func (InsertCell) Op() string      { return "cell.insert" }
func (EditCell) Op() string        { return "cell.edit" }
func (MoveCell) Op() string        { return "cell.move" }
func (DeleteCell) Op() string      { return "cell.delete" }
func (RestoreCell) Op() string     { return "cell.restore" }
func (SetCellKind) Op() string     { return "cell.kind" }
func (SplitCell) Op() string       { return "cell.split" }
func (MergeCells) Op() string      { return "cell.merge" }
func (ClearOutputs) Op() string    { return "cell.clear" }
func (RunCells) Op() string        { return "run" }
func (CancelRun) Op() string       { return "run.cancel" }
func (Interrupt) Op() string       { return "kernel.interrupt" }
func (ReplyInput) Op() string      { return "input.reply" }
func (StartKernel) Op() string     { return "kernel.start" }
func (StopKernel) Op() string      { return "kernel.stop" }
func (RestartKernel) Op() string   { return "kernel.restart" }
func (Report) Op() string          { return "report" }
func (Dispatch) Op() string        { return "dispatch" }

var decoders = map[string]func([]byte) (Op, error){}

func op[T Op]() string {
	var zero T
	decoders[zero.Op()] = func(p []byte) (Op, error) {
		var v T
		d := json.NewDecoder(bytes.NewReader(p))
		d.DisallowUnknownFields()
		err := d.Decode(&v)
		if _, more := d.Token(); err == nil && more != io.EOF {
			err = errors.New("there is more than one value")
		}
		return v, err
	}
	return zero.Op()
}

var opNames = []string{
	op[Rename](), op[DeleteNotebook](), op[RestoreNotebook](),
	op[InsertCell](), op[EditCell](), op[MoveCell](), op[DeleteCell](), op[RestoreCell](), op[SetCellKind](), op[SplitCell](), op[MergeCells](), op[ClearOutputs](),
	op[RunCells](), op[CancelRun](), op[Interrupt](), op[ReplyInput](), op[StartKernel](), op[StopKernel](), op[RestartKernel](),
}

// OpNames lists the client ops.
func OpNames() []string { return slices.Clone(opNames) }

// DecodeOp decodes a client's op. Errors are Invalid and say what is wrong.
func DecodeOp(name string, p []byte) (Op, error) {
	mk, ok := decoders[name]
	if !ok {
		return nil, Errorf(Invalid, "There is no op %q. The ops are %s.", clip(name, 40), strings.Join(opNames, ", "))
	}
	if len(bytes.TrimSpace(p)) == 0 {
		p = []byte("{}")
	}
	v, err := mk(p)
	if err != nil {
		return nil, Errorf(Invalid, "The arguments of %s do not fit: %s.", name, Misfit(err))
	}
	return v, nil
}

// Misfit is what a client is told of an error of encoding/json, as the end of a
// sentence: our own types do not concern it, and what it sent is not repeated
// at length.
func Misfit(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return "it cannot be a JSON " + e.Value
		}
		return clip(e.Field, 100) + " cannot be a JSON " + clip(e.Value, 100)
	}
	return clip(strings.TrimPrefix(err.Error(), "json: "), 200)
}

// Prepare fills in the ids an op leaves to the server, so that Decide stays
// pure. newID must return a new UUIDv7 each time.
func Prepare(s State, o Op, newID func() string) Op {
	switch v := o.(type) {
	case InsertCell:
		if v.Cell == "" {
			v.Cell = CellID(newID())
		}
		return v
	case SplitCell:
		if v.New == "" {
			v.New = CellID(newID())
		}
		return v
	case RunCells:
		v.IDs = make([]RunID, len(s.scope(v.Scope, v.Cells))+1)
		for i := range v.IDs {
			v.IDs[i] = RunID(newID())
		}
		return v
	case RestartKernel:
		if v.RunAll {
			v.IDs = make([]RunID, len(s.scope("all", nil))+1)
			for i := range v.IDs {
				v.IDs[i] = RunID(newID())
			}
		}
		return v
	}
	return o
}

// scope lists the cells a run op means, without judging them.
func (s State) scope(scope string, cells []CellID) []CellID {
	from, to := 0, len(s.Cells)
	switch scope {
	case "", "cells":
		return cells
	case "above", "below":
		if len(cells) != 1 {
			return nil
		}
		_, i := s.Cell(cells[0])
		if i < 0 {
			return nil
		}
		if scope == "above" {
			to = i
		} else {
			from = i
		}
	case "all":
	default:
		return nil
	}
	var ids []CellID
	for _, c := range s.Cells[from:to] {
		if c.Kind == CodeCell && strings.TrimSpace(c.Source) != "" {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n]) + "…"
}

func checkText(what, s string, limit int) error {
	switch {
	case len(s) > limit:
		return Errorf(TooLarge, "%s is %d bytes long; the limit is %d.", what, len(s), limit)
	case !utf8.ValidString(s):
		return Errorf(Invalid, "%s is not valid UTF-8.", what)
	case strings.ContainsRune(s, 0):
		return Errorf(Invalid, "%s holds a NUL character.", what)
	}
	return nil
}

func checkID(what, id string) error {
	if id == "" || len(id) > maxID {
		return Errorf(Invalid, "%s must have 1 to %d characters.", what, maxID)
	}
	for _, r := range id {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return Errorf(Invalid, "%s may hold letters, digits, - and _ only.", what)
		}
	}
	return nil
}
