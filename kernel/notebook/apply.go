package notebook

import (
	"maps"
	"slices"
	"time"
)

// New is the state before the first event.
func New(id ID) State {
	return State{ID: id, Runs: map[RunID]*Run{}, Kernel: Kernel{Status: NoKernel}}
}

// Apply folds one event into s. It cannot fail: an event is a fact. What it
// changes it copies, so earlier states stay as they were.
func Apply(s State, e Event) State {
	f := folder{State: s}
	f.apply(e)
	return f.State
}

// Fold applies events in order. It is Apply for each of them, and copies only
// once what many of them change.
func Fold(s State, events []Event) State {
	f := folder{State: s}
	for _, e := range events {
		f.apply(e)
	}
	return f.State
}

// folder is a state under change. What is marked as its own has been copied
// since it began, and may be changed in place; cells and runs themselves are
// copied each time.
type folder struct {
	State
	ownCells, ownRuns, ownQueue, ownFiles bool
}

func (s *folder) apply(e Event) {
	s.Seq = e.Seq
	switch b := e.Body.(type) {
	case Created:
		s.Title, s.Language, s.Backend = b.Title, b.Language, b.Backend
		s.Created, s.Updated = e.At, e.At
	case Renamed:
		s.Title, s.Updated = b.Title, e.At
	case NotebookDeleted:
		s.Deleted = e.At
	case NotebookRestored:
		s.Deleted = time.Time{}
	case CellInserted, CellEdited, CellMoved, CellDeleted, CellRestored, CellKindSet, CellCleared:
		s.Updated = e.At
		s.applyCell(e)
	case RunQueued, RunSent, RunStage, RunEnded, FilesChanged, InputRequested, InputAnswered:
		s.applyRun(e)
	case StreamAppended, StreamOmitted, OutputAdded, OutputUpdated, OutputsCleared:
		s.applyOutput(e)
	default:
		s.applyKernel(e)
	}
}

// The slices and maps of s, its own.

func (s *folder) cells() []*Cell {
	if !s.ownCells {
		s.Cells, s.ownCells = slices.Clone(s.Cells), true
	}
	return s.Cells
}

func (s *folder) runs() map[RunID]*Run {
	if !s.ownRuns {
		s.Runs, s.ownRuns = maps.Clone(s.Runs), true
	}
	return s.Runs
}

func (s *folder) queue() []RunID {
	if !s.ownQueue {
		s.Queue, s.ownQueue = slices.Clone(s.Queue), true
	}
	return s.Queue
}

func (s *folder) files() map[string]File {
	if !s.ownFiles {
		s.Files, s.ownFiles = maps.Clone(s.Files), true
	}
	if s.Files == nil {
		s.Files = map[string]File{}
	}
	return s.Files
}

// place returns where a cell goes that stands after id.
func place(cells []*Cell, after CellID) int {
	if after == "" {
		return 0
	}
	return slices.IndexFunc(cells, func(c *Cell) bool { return c.ID == after }) + 1
}

// with replaces cell id by a changed copy.
func (s *folder) with(id CellID, change func(*Cell)) {
	c, i := s.Cell(id)
	if c == nil {
		return
	}
	n := *c
	change(&n)
	s.cells()[i] = &n
}

// withRun replaces run id by a changed copy.
func (s *folder) withRun(id RunID, change func(*Run)) {
	r := s.Runs[id]
	if r == nil {
		return
	}
	n := *r
	change(&n)
	s.runs()[id] = &n
}

// dropRun forgets a run that nothing shows or waits for any more.
func (s *folder) dropRun(id RunID) {
	if id == "" || id == s.Live || slices.Contains(s.Queue, id) {
		return
	}
	delete(s.runs(), id)
}

// unqueue takes a run off the queue.
func (s *folder) unqueue(id RunID) {
	switch i := slices.Index(s.Queue, id); {
	case i == 0:
		s.Queue = s.Queue[1:]
	case i > 0:
		s.Queue = slices.Delete(s.queue(), i, i+1)
	}
}

func (s *folder) applyCell(e Event) {
	switch b := e.Body.(type) {
	case CellInserted:
		c := &Cell{ID: b.Cell, Kind: b.Kind, Source: b.Source, Version: 1, By: e.By, At: e.At}
		s.Cells = slices.Insert(s.cells(), place(s.Cells, b.After), c)
	case CellEdited:
		s.with(b.Cell, func(c *Cell) { c.Source, c.Version, c.By, c.At = b.Source, b.Version, e.By, e.At })
	case CellMoved:
		c, i := s.Cell(b.Cell)
		if c == nil {
			return
		}
		s.Cells = slices.Delete(s.cells(), i, i+1)
		s.Cells = slices.Insert(s.Cells, place(s.Cells, b.After), c)
	case CellDeleted:
		c, i := s.Cell(b.Cell)
		if c == nil {
			return
		}
		t := &Deleted{Cell: c, By: e.By, At: e.At}
		if i > 0 {
			t.After = s.Cells[i-1].ID
		}
		s.Cells = slices.Delete(s.cells(), i, i+1)
		s.Trash = append(slices.Clone(s.Trash), t)
		if len(s.Trash) > MaxTrash {
			old := s.Trash[0].Cell.Run
			s.Trash = s.Trash[1:]
			s.dropRun(old)
		}
	case CellRestored:
		i := slices.IndexFunc(s.Trash, func(t *Deleted) bool { return t.Cell.ID == b.Cell })
		if i < 0 {
			return
		}
		c := s.Trash[i].Cell
		s.Trash = slices.Delete(slices.Clone(s.Trash), i, i+1)
		s.Cells = slices.Insert(s.cells(), place(s.Cells, b.After), c)
	case CellKindSet:
		s.with(b.Cell, func(c *Cell) { c.Kind = b.Kind; c.Version++ })
	case CellCleared:
		for _, c := range s.Cells {
			if (b.Cell == "" || c.ID == b.Cell) && c.Run != "" && c.Run != s.Live {
				old := c.Run
				s.with(c.ID, func(c *Cell) { c.Run = "" })
				s.dropRun(old)
			} else if (b.Cell == "" || c.ID == b.Cell) && c.Run != "" {
				s.withRun(c.Run, func(r *Run) { r.Outputs = nil })
			}
		}
	}
}

func (s *folder) applyRun(e Event) {
	switch b := e.Body.(type) {
	case RunQueued:
		r := &Run{
			ID: b.Run, Cell: b.Cell, Source: b.Source, SHA256: b.SHA256, By: e.By, Batch: b.Batch,
			KeepGoing: b.KeepGoing, TimeoutMS: b.TimeoutMS, Status: Queued, Queued: e.At,
		}
		if c, _ := s.Cell(b.Cell); c != nil {
			if old := s.Runs[c.Run]; old != nil && old.Status == OK {
				r.Last = old.WallMS
			}
		}
		s.runs()[b.Run] = r
		s.Queue = append(s.queue(), b.Run)
		s.with(b.Cell, func(c *Cell) { c.Pending = b.Run })
	case RunSent:
		s.unqueue(b.Run)
		s.Live, s.Count = b.Run, b.Count
		s.Order++
		s.withRun(b.Run, func(r *Run) {
			r.Status, r.Started, r.Gen, r.Count, r.Order = Running, e.At, b.Gen, b.Count, s.Order
		})
		s.show(b.Run)
	case RunStage:
		s.withRun(b.Run, func(r *Run) { r.Stage = b.Stage })
	case RunEnded:
		s.endRun(b, e.At)
	case FilesChanged:
		s.withRun(b.Run, func(r *Run) { r.Files = &b.Files })
		s.changeFiles(b.Files)
	case InputRequested:
		s.Input = &Input{Run: b.Run, Prompt: b.Prompt, Password: b.Password, At: e.At}
	case InputAnswered:
		in := s.Input
		s.Input = nil
		if in == nil {
			return
		}
		echo := in.Prompt + b.Value + "\n"
		if in.Password {
			echo = in.Prompt + "········\n"
		}
		s.withRun(b.Run, func(r *Run) { r.print("stdout", echo, false) })
	}
}

// MaxFiles bounds the workspace listing a state keeps.
const MaxFiles = 20000

func (s *folder) changeFiles(f Files) {
	files := s.files()
	for _, c := range f.Changed {
		_, known := files[c.Path]
		if gone := !known && c.Blob == "" && c.Why != ""; gone {
			continue // removed before a copy could be made
		}
		if known || len(files) < MaxFiles {
			files[c.Path] = c
		}
	}
	for _, p := range f.Removed {
		delete(files, p)
	}
}

// show makes a run the one its cell displays, in place of the one before.
func (s *folder) show(id RunID) {
	r := s.Runs[id]
	if r == nil {
		return
	}
	var old RunID
	s.with(r.Cell, func(c *Cell) { old, c.Run, c.Pending = c.Run, id, "" })
	if old != id {
		s.dropRun(old)
	}
}

func (s *folder) endRun(b RunEnded, at time.Time) {
	r := s.Runs[b.Run]
	if r == nil {
		return
	}
	neverSent := r.Started.IsZero()
	if takesKernel(r, b.Status) && s.Kernel.Status == Ready {
		s.Kernel.Status = Dying
	}
	s.unqueue(b.Run)
	if s.Live == b.Run {
		s.Live = ""
	}
	if s.Input != nil && s.Input.Run == b.Run {
		s.Input = nil
	}
	s.withRun(b.Run, func(r *Run) {
		r.Status, r.Reason, r.EName, r.EValue, r.Ended = b.Status, b.Reason, b.EName, b.EValue, at
		r.WallMS, r.CPUMS, r.PeakMemory, r.Stage = b.WallMS, b.CPUMS, b.PeakMemory, ""
	})
	if !neverSent {
		if !s.shown(b.Run) { // its cell left the trash while it ran
			s.dropRun(b.Run)
		}
		return
	}
	// It never ran: the cell keeps showing what it had, and says so.
	s.with(r.Cell, func(c *Cell) {
		if c.Pending == b.Run {
			c.Pending = ""
		}
	})
	if c, _ := s.Cell(r.Cell); c != nil && b.Status == Skipped && c.Run == "" {
		s.with(r.Cell, func(c *Cell) { c.Run = b.Run })
		return
	}
	s.dropRun(b.Run)
}

// shown reports whether a cell, of the document or the trash, displays the run.
func (s State) shown(id RunID) bool {
	return slices.ContainsFunc(s.Cells, func(c *Cell) bool { return c.Run == id }) ||
		slices.ContainsFunc(s.Trash, func(t *Deleted) bool { return t.Cell.Run == id })
}

func (s *folder) applyKernel(e Event) {
	k := &s.Kernel
	switch b := e.Body.(type) {
	case KernelStarting:
		posture := k.Posture
		if b.Boot != k.Boot {
			posture = nil
		}
		*k = Kernel{
			Status: Starting, Gen: b.Gen, Boot: b.Boot, Sandbox: b.Sandbox, Backend: b.Backend,
			Started: e.At, Posture: posture, Message: b.Message, Memory: b.Memory, Missing: b.Missing,
		}
		s.Count = 0
	case SandboxUp:
		k.Posture = b.Posture
	case KernelReady:
		k.Status, k.Info, k.Message = Ready, b.Info, ""
	case KernelAdopted:
		k.Adopted++
	case KernelDied:
		k.Status, k.Message = Dead, b.Message
		if b.Gone {
			k.Sandbox = ""
		}
	case KernelStopped:
		k.Status, k.Message = NoKernel, ""
		if b.Gone {
			k.Sandbox = ""
		}
	}
}

// takesKernel reports whether a run that ends so has taken the kernel with it.
func takesKernel(r *Run, status RunStatus) bool {
	return !r.Started.IsZero() && (status == Killed || r.Stage == "kill")
}
