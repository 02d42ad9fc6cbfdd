package notebook

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Decide says which events the op causes, without changing s. An *Error says
// why it may not happen; nothing then has happened. Whether the actor may ask
// at all is policy's question; Decide answers whether the notebook can do it.
//
// A Report about something that is over returns no events and no error.
func Decide(s State, a Actor, o Op, now time.Time) ([]Event, error) {
	// Events keep milliseconds; what was decided and what is read back are the same.
	d := decision{s: folder{State: s}, by: a.Author, now: now.UTC().Truncate(time.Millisecond)}
	if _, ok := o.(RestoreNotebook); !ok && a.Kind != Server {
		if err := InTrash(s); err != nil {
			return nil, err
		}
	}
	var err error
	switch v := o.(type) {
	case Rename:
		err = d.rename(v)
	case DeleteNotebook:
		d.deleteNotebook()
	case RestoreNotebook:
		if s.Deleted.IsZero() {
			return nil, Errorf(Conflict, "This notebook is not in the trash.")
		}
		d.emit(NotebookRestored{})
	case InsertCell:
		err = d.insert(v)
	case EditCell:
		err = d.edit(v)
	case MoveCell:
		err = d.move(v)
	case DeleteCell:
		err = d.deleteCell(v.Cell)
	case RestoreCell:
		err = d.restore(v)
	case SetCellKind:
		err = d.kind(v)
	case SplitCell:
		err = d.split(v)
	case MergeCells:
		err = d.merge(v)
	case ClearOutputs:
		err = d.clear(v)
	case RunCells:
		err = d.run(v)
	case CancelRun:
		err = d.cancel(v)
	case Interrupt:
		err = d.interrupt()
	case ReplyInput:
		err = d.reply(v)
	case StartKernel:
		if s.Kernel.Status != NoKernel && s.Kernel.Status != Dead {
			return nil, Errorf(Conflict, "The kernel is already running.")
		}
	case StopKernel:
		err = d.stopKernel()
	case RestartKernel:
		err = d.restart(v)
	case Report:
		err = d.report(a, v)
	case Dispatch:
		d.dispatch()
	default:
		err = Errorf(Invalid, "There is no such op.")
	}
	if err != nil {
		return nil, err
	}
	return d.out, nil
}

// InTrash is why a deleted notebook stays as it is; nil if it is not deleted.
func InTrash(s State) error {
	if s.Deleted.IsZero() {
		return nil
	}
	return Errorf(Conflict, "This notebook is in the trash. Restore it first.")
}

// decision collects the events of one op. s moves on with them, so that later
// checks of the same op see what the earlier ones caused.
type decision struct {
	s   folder
	by  Author
	now time.Time
	out []Event
}

func (d *decision) emit(b Body) {
	e := Event{Seq: d.s.Seq + 1, At: d.now, By: d.by, Body: b}
	d.out = append(d.out, e)
	d.s.apply(e)
}

// last emits an op's only event. Nothing more is decided, so s need not move
// on: what a kernel prints is folded once, by the owner.
func (d *decision) last(b Body) {
	d.out = append(d.out, Event{Seq: d.s.Seq + 1, At: d.now, By: d.by, Body: b})
}

func (d *decision) cell(id CellID) (*Cell, error) {
	c, _ := d.s.Cell(id)
	if c == nil {
		return nil, Errorf(NotFound, "There is no cell %q in this notebook. It may have been deleted.", clip(string(id), 40))
	}
	return c, nil
}

// after checks that a cell can stand after id; empty is the start.
func (d *decision) after(id CellID) error {
	if id == "" {
		return nil
	}
	_, err := d.cell(id)
	return err
}

// stale says that the editor saw another version.
func stale(c *Cell) error {
	return &Error{
		Code:    Conflict,
		Message: "Somebody changed this cell since you read it. Your change was not made.",
		Data:    map[string]any{"cell": c.ID, "version": c.Version, "source": c.Source, "by": c.By},
	}
}

func (d *decision) rename(o Rename) error {
	t := strings.TrimSpace(o.Title)
	if t == "" || utf8.RuneCountInString(t) > MaxTitle {
		return Errorf(Invalid, "A title has 1 to %d characters.", MaxTitle)
	}
	if err := checkText("The title", t, 4*MaxTitle); err != nil {
		return err
	}
	if strings.ContainsFunc(t, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return Errorf(Invalid, "A title is one line without control characters.")
	}
	if t != d.s.Title {
		d.emit(Renamed{Title: t})
	}
	return nil
}

func (d *decision) deleteNotebook() {
	d.flush("The notebook was deleted.")
	d.emit(NotebookDeleted{})
}

func checkKind(k CellKind) error {
	if k != CodeCell && k != MarkdownCell && k != RawCell {
		return Errorf(Invalid, "A cell is code, markdown or raw, not %q.", clip(string(k), 20))
	}
	return nil
}

func (d *decision) insert(o InsertCell) error {
	if o.Kind == "" {
		o.Kind = CodeCell
	}
	if err := checkKind(o.Kind); err != nil {
		return err
	}
	if err := checkID("A cell id", string(o.Cell)); err != nil {
		return err
	}
	if err := checkText("The cell", o.Source, MaxSource); err != nil {
		return err
	}
	if len(d.s.Cells) >= MaxCells {
		return Errorf(TooLarge, "A notebook holds at most %d cells.", MaxCells)
	}
	if c, _ := d.s.Cell(o.Cell); c != nil || d.trashed(o.Cell) >= 0 {
		return Errorf(Conflict, "There is a cell %s already.", o.Cell)
	}
	after := CellID("")
	if o.After != nil {
		after = *o.After
	} else if n := len(d.s.Cells); n > 0 {
		after = d.s.Cells[n-1].ID
	}
	if err := d.after(after); err != nil {
		return err
	}
	d.emit(CellInserted{Cell: o.Cell, After: after, Kind: o.Kind, Source: o.Source})
	return nil
}

func (d *decision) edit(o EditCell) error {
	c, err := d.cell(o.Cell)
	if err != nil {
		return err
	}
	if err := checkText("The cell", o.Source, MaxSource); err != nil {
		return err
	}
	if o.Base != c.Version {
		return stale(c)
	}
	if o.Source != c.Source {
		d.emit(CellEdited{Cell: c.ID, Version: c.Version + 1, Source: o.Source})
	}
	return nil
}

func (d *decision) move(o MoveCell) error {
	if _, err := d.cell(o.Cell); err != nil {
		return err
	}
	if o.After == o.Cell {
		return Errorf(Invalid, "A cell cannot stand after itself.")
	}
	if err := d.after(o.After); err != nil {
		return err
	}
	_, i := d.s.Cell(o.Cell)
	_, j := d.s.Cell(o.After)
	if j != i-1 {
		d.emit(CellMoved(o))
	}
	return nil
}

func (d *decision) deleteCell(id CellID) error {
	c, err := d.cell(id)
	if err != nil {
		return err
	}
	if c.Pending != "" {
		d.emit(RunEnded{Run: c.Pending, Status: Cancelled, Reason: "The cell was deleted before it ran."})
	}
	d.emit(CellDeleted{Cell: id})
	return nil
}

func (d *decision) trashed(id CellID) int {
	return slices.IndexFunc(d.s.Trash, func(t *Deleted) bool { return t.Cell.ID == id })
}

func (d *decision) restore(o RestoreCell) error {
	i := len(d.s.Trash) - 1
	if o.Cell != "" {
		i = d.trashed(o.Cell)
	}
	if i < 0 {
		return Errorf(NotFound, "There is no deleted cell to bring back.")
	}
	t := d.s.Trash[i]
	after := t.After
	if d.after(after) != nil { // its neighbour is gone, too: to the end
		after = ""
		if n := len(d.s.Cells); n > 0 {
			after = d.s.Cells[n-1].ID
		}
	}
	d.emit(CellRestored{Cell: t.Cell.ID, After: after})
	return nil
}

func (d *decision) kind(o SetCellKind) error {
	c, err := d.cell(o.Cell)
	if err != nil {
		return err
	}
	if err := checkKind(o.Kind); err != nil {
		return err
	}
	if c.Pending != "" && o.Kind != CodeCell {
		d.emit(RunEnded{Run: c.Pending, Status: Cancelled, Reason: "The cell was changed to text before it ran."})
	}
	if c.Kind != o.Kind {
		d.emit(CellKindSet(o))
	}
	return nil
}

func (d *decision) split(o SplitCell) error {
	c, err := d.cell(o.Cell)
	if err != nil {
		return err
	}
	if o.Base != c.Version {
		return stale(c)
	}
	r := []rune(c.Source)
	if o.At < 0 || o.At > len(r) {
		return Errorf(Invalid, "The cell has %d characters; it cannot be split at %d.", len(r), o.At)
	}
	head, tail := strings.TrimSuffix(string(r[:o.At]), "\n"), strings.TrimPrefix(string(r[o.At:]), "\n")
	if head != c.Source {
		d.emit(CellEdited{Cell: c.ID, Version: c.Version + 1, Source: head})
	}
	return d.insert(InsertCell{Cell: o.New, After: &c.ID, Kind: c.Kind, Source: tail})
}

func (d *decision) merge(o MergeCells) error {
	c, err := d.cell(o.Cell)
	if err != nil {
		return err
	}
	_, i := d.s.Cell(o.Cell)
	if i+1 >= len(d.s.Cells) {
		return Errorf(Invalid, "There is no cell below to merge with.")
	}
	next := d.s.Cells[i+1]
	joined := c.Source + "\n" + next.Source
	if err := checkText("The merged cell", joined, MaxSource); err != nil {
		return err
	}
	d.emit(CellEdited{Cell: c.ID, Version: c.Version + 1, Source: joined})
	return d.deleteCell(next.ID)
}

func (d *decision) clear(o ClearOutputs) error {
	if o.Cell != "" {
		if _, err := d.cell(o.Cell); err != nil {
			return err
		}
	}
	d.emit(CellCleared(o))
	return nil
}

// SourceHash is the sha256 of a source, in hex: what a run is bound to.
func SourceHash(source string) string {
	h := sha256.Sum256([]byte(source))
	return hex.EncodeToString(h[:])
}
