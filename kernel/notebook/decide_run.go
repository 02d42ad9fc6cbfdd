package notebook

import (
	"fmt"
	"slices"
	"strings"
)

// run queues the runs of a RunCells op.
func (d *decision) run(o RunCells) error {
	switch o.Scope {
	case "", "cells", "all", "above", "below":
	default:
		return Errorf(Invalid, "The scope of a run is cells, all, above or below, not %q.", clip(o.Scope, 20))
	}
	if (o.Scope == "above" || o.Scope == "below") && len(o.Cells) != 1 {
		return Errorf(Invalid, "A run of what is %s needs exactly one cell.", o.Scope)
	}
	if o.TimeoutMS < 0 {
		return Errorf(Invalid, "A time limit cannot be negative.")
	}
	if o.Versions != nil && len(o.Versions) != len(o.Cells) {
		return Errorf(Invalid, "There must be one version for each cell.")
	}
	for i, id := range o.Cells {
		c, err := d.cell(id)
		if err != nil {
			return err
		}
		if slices.Contains(o.Cells[:i], id) {
			return Errorf(Invalid, "Cell %s is named twice.", id)
		}
		if o.Versions != nil && o.Versions[i] != c.Version {
			return stale(c)
		}
		if c.Kind != CodeCell && (o.Scope == "" || o.Scope == "cells") {
			return Errorf(Invalid, "Cell %s is %s; only code runs.", id, c.Kind)
		}
	}
	cells := d.s.scope(o.Scope, o.Cells)
	if len(cells) == 0 {
		if o.Scope == "" || o.Scope == "cells" {
			return Errorf(Invalid, "Say which cells to run.")
		}
		return Errorf(Invalid, "There is no code to run.")
	}
	return d.queue(cells, o.IDs, o.KeepGoing, o.TimeoutMS)
}

func (d *decision) queue(cells []CellID, ids []RunID, keepGoing bool, timeout int64) error {
	if len(ids) < len(cells)+1 {
		return fmt.Errorf("queue %d runs with %d ids", len(cells), len(ids))
	}
	if len(d.s.Queue)+len(cells) > MaxQueue {
		return Errorf(TooLarge, "At most %d runs can wait.", MaxQueue)
	}
	batch := string(ids[len(cells)])
	for i, id := range cells {
		c, _ := d.s.Cell(id)
		if c.Pending != "" {
			if len(cells) == 1 {
				return Errorf(Conflict, "This cell is already waiting to run.")
			}
			d.emit(RunEnded{Run: c.Pending, Status: Cancelled, Reason: "It was asked for again."})
		}
		d.emit(RunQueued{Run: ids[i], Cell: id, Source: c.Source, SHA256: SourceHash(c.Source), Batch: batch, KeepGoing: keepGoing, TimeoutMS: timeout})
	}
	return nil
}

// dispatch sends the next waiting run if the kernel is free.
func (d *decision) dispatch() {
	if d.s.Kernel.Status == Ready && d.s.Live == "" && len(d.s.Queue) > 0 {
		d.emit(RunSent{Run: d.s.Queue[0], Gen: d.s.Kernel.Gen, Count: d.s.Count + 1})
	}
}

func (d *decision) cancel(o CancelRun) error {
	if o.Run == d.s.Live && o.Run != "" {
		return Errorf(Conflict, "The run has started; interrupt it instead.")
	}
	if !slices.Contains(d.s.Queue, o.Run) {
		return Errorf(NotFound, "There is no such run waiting.")
	}
	d.emit(RunEnded{Run: o.Run, Status: Cancelled, Reason: "It was taken off the queue."})
	return nil
}

func (d *decision) interrupt() error {
	if d.s.Live == "" && len(d.s.Queue) == 0 {
		return Errorf(Conflict, "Nothing is running.")
	}
	d.flush("The run before it was interrupted.")
	if d.s.Live != "" {
		d.emit(RunStage{Run: d.s.Live, Stage: "asked"})
	}
	return nil
}

func (d *decision) reply(o ReplyInput) error {
	in := d.s.Input
	if in == nil || in.Run != o.Run {
		return Errorf(Conflict, "This run is not waiting for input. Somebody may have answered already.")
	}
	if err := checkText("The answer", o.Value, MaxInput); err != nil {
		return err
	}
	ans := InputAnswered(o)
	if in.Password {
		ans.Value = ""
	}
	d.emit(ans)
	return nil
}

func (d *decision) stopKernel() error {
	if d.s.Kernel.Status == NoKernel || d.s.Kernel.Status == Dead {
		return Errorf(Conflict, "There is no kernel running.")
	}
	d.flush("The kernel was stopped.")
	d.endLive(Killed, "The kernel was stopped.")
	d.emit(KernelStopped{Gen: d.s.Kernel.Gen, Gone: true})
	return nil
}

func (d *decision) restart(o RestartKernel) error {
	if d.s.Kernel.Status == Starting {
		return Errorf(Conflict, "The kernel is starting already.")
	}
	d.flush("The kernel was restarted.")
	d.endLive(Killed, "The kernel was restarted.")
	if d.s.Kernel.Status == Ready || d.s.Kernel.Status == Dying {
		d.emit(KernelStopped{Gen: d.s.Kernel.Gen})
	}
	if cells := d.s.scope("all", nil); o.RunAll && len(cells) > 0 {
		return d.queue(cells, o.IDs, false, 0)
	}
	return nil
}

// flush skips everything that waits.
func (d *decision) flush(why string) {
	for len(d.s.Queue) > 0 {
		d.emit(RunEnded{Run: d.s.Queue[0], Status: Skipped, Reason: why})
	}
}

// endLive ends the live run from the server's side.
func (d *decision) endLive(status RunStatus, why string) {
	if d.s.Live == "" {
		return
	}
	r := d.s.Runs[d.s.Live]
	d.emit(RunEnded{Run: d.s.Live, Status: status, Reason: why, WallMS: d.now.Sub(r.Started).Milliseconds()})
}

// report judges a fact from the kernel's side. What is about something that is
// over is dropped without an error.
func (d *decision) report(a Actor, o Report) error {
	if a.Kind != Server {
		return Errorf(Denied, "Only the server reports what a kernel did.")
	}
	k := d.s.Kernel
	switch b := o.Body.(type) {
	case KernelStarting:
		if k.Status != NoKernel && k.Status != Dead {
			return Errorf(Conflict, "The kernel is already running.")
		}
		d.emit(b)
		return nil
	case KernelDied:
		if k.Status == NoKernel || k.Status == Dead || b.Gen != k.Gen {
			return nil
		}
		d.died(b)
		return nil
	case FilesChanged: // a copy may be finished after the kernel has gone
		d.reportRun(b)
		return nil
	}
	if o.Gen != k.Gen || k.Status == NoKernel || k.Status == Dead {
		return nil
	}
	switch b := o.Body.(type) {
	case SandboxUp, KernelAdopted:
		d.emit(b)
	case KernelReady:
		if k.Status == Starting {
			d.emit(b)
		}
	default:
		d.reportRun(b)
	}
	return nil
}

// died ends everything a dead kernel held.
func (d *decision) died(b KernelDied) {
	status := Killed
	if b.Cause == "lost" {
		status = LostRun
	}
	dying := d.s.Kernel.Status == Dying // what waits was asked for since, and is for the next kernel
	d.endLive(status, b.Message)
	if n := len(d.s.Queue); n > 0 && !dying {
		d.flush("The kernel died before it could run.")
		b.Message += " " + waiting(n)
	}
	d.emit(b)
}

func waiting(n int) string {
	if n == 1 {
		return "One waiting cell was skipped."
	}
	return fmt.Sprintf("%d waiting cells were skipped.", n)
}

// reportRun judges what a run printed or how it ended.
func (d *decision) reportRun(body Body) {
	live := func(id RunID) bool { return id != "" && id == d.s.Live }
	switch b := body.(type) {
	case RunStage:
		if live(b.Run) {
			d.emit(b)
		}
	case RunEnded:
		if live(b.Run) {
			d.ended(b)
		}
	case StreamAppended:
		b.Background = b.Background || !live(b.Run)
		b.Text = strings.ToValidUTF8(b.Text, "\uFFFD")
		if d.s.Runs[b.Run] != nil && b.Text != "" {
			d.last(b)
		}
	case StreamOmitted:
		b.Tail = strings.ToValidUTF8(b.Tail, "\uFFFD")
		if d.s.Runs[b.Run] != nil {
			d.last(b)
		}
	case OutputAdded:
		b.Output.Background = b.Output.Background || !live(b.Run)
		if d.s.Runs[b.Run] != nil {
			d.last(b)
		}
	case OutputUpdated:
		if b.DisplayID != "" {
			d.last(b)
		}
	case OutputsCleared:
		if live(b.Run) {
			d.emit(b)
		}
	case InputRequested:
		if live(b.Run) {
			b.Prompt = clip(b.Prompt, 1000)
			d.emit(b)
		}
	case InputAnswered:
		if d.s.Input != nil && d.s.Input.Run == b.Run {
			d.emit(InputAnswered{Run: b.Run})
		}
	case FilesChanged:
		if len(b.Files.Changed)+len(b.Files.Removed)+b.Files.More == 0 {
			return
		}
		if d.s.Runs[b.Run] != nil || b.Run == "" {
			d.emit(b)
		}
	}
}

// ended ends the live run, and after an error skips the rest of its batch.
func (d *decision) ended(b RunEnded) {
	r := d.s.Runs[b.Run]
	d.emit(b)
	if takesKernel(r, b.Status) {
		d.flush("The kernel died before it could run.")
	}
	if b.Status == OK || r.KeepGoing && b.Status == Failed {
		return
	}
	why := map[RunStatus]string{
		Failed:   "A cell before it failed.",
		TimedOut: "A cell before it ran out of time.",
	}[b.Status]
	if why == "" {
		why = "A cell before it was stopped."
	}
	for _, id := range slices.Clone(d.s.Queue) {
		if d.s.Runs[id].Batch == r.Batch {
			d.emit(RunEnded{Run: id, Status: Skipped, Reason: why})
		}
	}
}
