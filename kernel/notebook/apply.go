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
		s = applyCell(s, e)
	case RunQueued, RunSent, RunStage, RunEnded, FilesChanged, InputRequested, InputAnswered:
		s = applyRun(s, e)
	case StreamAppended, StreamOmitted, OutputAdded, OutputUpdated, OutputsCleared:
		s = applyOutput(s, e)
	default:
		s = applyKernel(s, e)
	}
	return s
}

// place returns where a cell goes that stands after id.
func place(cells []*Cell, after CellID) int {
	if after == "" {
		return 0
	}
	return slices.IndexFunc(cells, func(c *Cell) bool { return c.ID == after }) + 1
}

// with returns s with cell id replaced by a changed copy.
func (s State) with(id CellID, change func(*Cell)) State {
	c, i := s.Cell(id)
	if c == nil {
		return s
	}
	n := *c
	change(&n)
	s.Cells = slices.Clone(s.Cells)
	s.Cells[i] = &n
	return s
}

// withRun returns s with run id replaced by a changed copy.
func (s State) withRun(id RunID, change func(*Run)) State {
	r := s.Runs[id]
	if r == nil {
		return s
	}
	n := *r
	change(&n)
	s.Runs = maps.Clone(s.Runs)
	s.Runs[id] = &n
	return s
}

// dropRun forgets a run that nothing shows or waits for any more.
func (s State) dropRun(id RunID) State {
	if id == "" || id == s.Live || slices.Contains(s.Queue, id) {
		return s
	}
	s.Runs = maps.Clone(s.Runs)
	delete(s.Runs, id)
	return s
}

func applyCell(s State, e Event) State {
	switch b := e.Body.(type) {
	case CellInserted:
		c := &Cell{ID: b.Cell, Kind: b.Kind, Source: b.Source, Version: 1, By: e.By, At: e.At}
		s.Cells = slices.Insert(slices.Clone(s.Cells), place(s.Cells, b.After), c)
	case CellEdited:
		s = s.with(b.Cell, func(c *Cell) { c.Source, c.Version, c.By, c.At = b.Source, b.Version, e.By, e.At })
	case CellMoved:
		c, i := s.Cell(b.Cell)
		if c == nil {
			return s
		}
		cells := slices.Delete(slices.Clone(s.Cells), i, i+1)
		s.Cells = slices.Insert(cells, place(cells, b.After), c)
	case CellDeleted:
		c, i := s.Cell(b.Cell)
		if c == nil {
			return s
		}
		t := &Deleted{Cell: c, By: e.By, At: e.At}
		if i > 0 {
			t.After = s.Cells[i-1].ID
		}
		s.Cells = slices.Delete(slices.Clone(s.Cells), i, i+1)
		s.Trash = append(slices.Clone(s.Trash), t)
		if len(s.Trash) > MaxTrash {
			s = s.dropRun(s.Trash[0].Cell.Run)
			s.Trash = s.Trash[1:]
		}
	case CellRestored:
		i := slices.IndexFunc(s.Trash, func(t *Deleted) bool { return t.Cell.ID == b.Cell })
		if i < 0 {
			return s
		}
		c := s.Trash[i].Cell
		s.Trash = slices.Delete(slices.Clone(s.Trash), i, i+1)
		s.Cells = slices.Insert(slices.Clone(s.Cells), place(s.Cells, b.After), c)
	case CellKindSet:
		s = s.with(b.Cell, func(c *Cell) { c.Kind = b.Kind; c.Version++ })
	case CellCleared:
		for _, c := range s.Cells {
			if (b.Cell == "" || c.ID == b.Cell) && c.Run != "" && c.Run != s.Live {
				old := c.Run
				s = s.with(c.ID, func(c *Cell) { c.Run = "" })
				s = s.dropRun(old)
			} else if (b.Cell == "" || c.ID == b.Cell) && c.Run != "" {
				s = s.withRun(c.Run, func(r *Run) { r.Outputs = nil })
			}
		}
	}
	return s
}

func applyRun(s State, e Event) State {
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
		s.Runs = maps.Clone(s.Runs)
		s.Runs[b.Run] = r
		s.Queue = append(slices.Clone(s.Queue), b.Run)
		s = s.with(b.Cell, func(c *Cell) { c.Pending = b.Run })
	case RunSent:
		s.Queue = without(s.Queue, b.Run)
		s.Live, s.Count = b.Run, b.Count
		s.Order++
		s = s.withRun(b.Run, func(r *Run) {
			r.Status, r.Started, r.Gen, r.Count, r.Order = Running, e.At, b.Gen, b.Count, s.Order
		})
		s = s.show(b.Run)
	case RunStage:
		s = s.withRun(b.Run, func(r *Run) { r.Stage = b.Stage })
	case RunEnded:
		s = s.endRun(b, e.At)
	case FilesChanged:
		s = s.withRun(b.Run, func(r *Run) { r.Files = &b.Files })
		s = s.changeFiles(b.Files)
	case InputRequested:
		s.Input = &Input{Run: b.Run, Prompt: b.Prompt, Password: b.Password, At: e.At}
	case InputAnswered:
		in := s.Input
		s.Input = nil
		if in == nil {
			return s
		}
		echo := in.Prompt + b.Value + "\n"
		if in.Password {
			echo = in.Prompt + "········\n"
		}
		s = s.withRun(b.Run, func(r *Run) { r.print("stdout", echo, false) })
	}
	return s
}

// MaxFiles bounds the workspace listing a state keeps.
const MaxFiles = 20000

func (s State) changeFiles(f Files) State {
	s.Files = maps.Clone(s.Files)
	if s.Files == nil {
		s.Files = map[string]File{}
	}
	for _, c := range f.Changed {
		if _, known := s.Files[c.Path]; known || len(s.Files) < MaxFiles {
			s.Files[c.Path] = c
		}
	}
	for _, p := range f.Removed {
		delete(s.Files, p)
	}
	return s
}

// show makes a run the one its cell displays, in place of the one before.
func (s State) show(id RunID) State {
	r := s.Runs[id]
	if r == nil {
		return s
	}
	var old RunID
	s = s.with(r.Cell, func(c *Cell) { old, c.Run, c.Pending = c.Run, id, "" })
	if old != id {
		s = s.dropRun(old)
	}
	return s
}

func (s State) endRun(b RunEnded, at time.Time) State {
	r := s.Runs[b.Run]
	if r == nil {
		return s
	}
	neverSent := r.Started.IsZero()
	s.Queue = without(s.Queue, b.Run)
	if s.Live == b.Run {
		s.Live = ""
	}
	if s.Input != nil && s.Input.Run == b.Run {
		s.Input = nil
	}
	s = s.withRun(b.Run, func(r *Run) {
		r.Status, r.Reason, r.EName, r.EValue, r.Ended = b.Status, b.Reason, b.EName, b.EValue, at
		r.WallMS, r.CPUMS, r.PeakMemory, r.Stage = b.WallMS, b.CPUMS, b.PeakMemory, ""
	})
	if !neverSent {
		return s
	}
	// It never ran: the cell keeps showing what it had, and says so.
	s = s.with(r.Cell, func(c *Cell) {
		if c.Pending == b.Run {
			c.Pending = ""
		}
	})
	if c, _ := s.Cell(r.Cell); c != nil && b.Status == Skipped && c.Run == "" {
		return s.with(r.Cell, func(c *Cell) { c.Run = b.Run })
	}
	return s.dropRun(b.Run)
}

func without(q []RunID, id RunID) []RunID {
	i := slices.Index(q, id)
	if i < 0 {
		return q
	}
	return slices.Delete(slices.Clone(q), i, i+1)
}

func applyKernel(s State, e Event) State {
	k := &s.Kernel
	switch b := e.Body.(type) {
	case KernelStarting:
		posture := k.Posture
		if b.Boot != k.Boot {
			posture = nil
		}
		*k = Kernel{
			Status: Starting, Gen: b.Gen, Boot: b.Boot, Sandbox: b.Sandbox, Backend: b.Backend,
			Started: e.At, Posture: posture, Message: b.Message, Memory: b.Memory,
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
	return s
}
