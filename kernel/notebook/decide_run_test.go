package notebook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRunOneCell(t *testing.T) {
	t.Parallel()
	st := tell(t, "print(1)")
	evs := st.happens(robot, RunCells{Cells: []CellID{"a"}, TimeoutMS: 5000}, "run.queued")
	q := evs[0].Body.(RunQueued)
	if q.Source != "print(1)" || q.SHA256 != SourceHash("print(1)") || q.TimeoutMS != 5000 || q.Run != "id1" || q.Batch != "id2" {
		t.Errorf("queued %+v", q)
	}
	if st.cell("a").Pending != "id1" || st.cell("a").Run != "" || st.s.Position("id1") != 1 || st.s.Position("x") != 0 {
		t.Errorf("cell %+v", st.cell("a"))
	}
	st.happens(TheServer, Dispatch{}) // there is no kernel yet
	st.boot()
	st.happens(TheServer, Dispatch{}, "run.sent")
	st.happens(TheServer, Dispatch{}) // one at a time
	sent := st.now
	r := st.s.Runs["id1"]
	if !st.s.Busy() || r.Status != Running || r.Count != 1 || r.Gen != 1 || r.Order != 1 || r.By != robot.Author || st.cell("a").Run != "id1" || st.cell("a").Pending != "" {
		t.Errorf("run %+v", r)
	}
	st.report(StreamAppended{Run: "id1", Name: "stdout", Text: "1\n"})
	st.report(RunEnded{Run: "id1", Status: OK, WallMS: 12, CPUMS: 8, PeakMemory: 1 << 20})
	r = st.s.Runs["id1"]
	if r.Status != OK || r.WallMS != 12 || r.CPUMS != 8 || r.PeakMemory != 1<<20 || !r.Started.Equal(sent.Add(-time.Second)) || st.s.Busy() || st.printed("a") != "1\n" {
		t.Errorf("run %+v", r)
	}
	if got := st.report(RunEnded{Run: "id1", Status: Failed}); len(got) > 0 {
		t.Errorf("a run ended twice: %v", got)
	}
	// The next run knows how long it took, and takes the place of the first.
	st.start(RunCells{Cells: []CellID{"a"}})
	if r := st.s.Runs[st.s.Live]; r.Last != 12 || r.Count != 2 || r.Order != 2 || len(st.s.Runs) != 1 {
		t.Errorf("run %+v of %d", r, len(st.s.Runs))
	}
}

func TestRunScopes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op   RunCells
		want string
	}{
		{RunCells{Cells: []CellID{"d", "a"}}, "da"},
		{RunCells{Scope: "cells", Cells: []CellID{"b"}}, "b"},
		{RunCells{Scope: "all"}, "ade"}, // b is empty, c is text
		{RunCells{Scope: "above", Cells: []CellID{"d"}}, "a"},
		{RunCells{Scope: "below", Cells: []CellID{"c"}}, "de"},
		{RunCells{Scope: "below", Cells: []CellID{"a"}}, "ade"},
	} {
		st := tell(t, "1", " \n", "# text", "2", "3")
		st.do(ada, SetCellKind{"c", MarkdownCell})
		got := ""
		for _, e := range st.do(ada, c.op) {
			got += string(e.Body.(RunQueued).Cell)
		}
		if got != c.want {
			t.Errorf("%+v runs %s, want %s", c.op, got, c.want)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "# text")
	st.do(ada, SetCellKind{"b", MarkdownCell})
	st.refuses(ada, RunCells{}, Invalid, "which cells")
	st.refuses(ada, RunCells{Scope: "cells"}, Invalid, "which cells")
	st.refuses(ada, RunCells{Scope: "some"}, Invalid, `not "some"`)
	st.refuses(ada, RunCells{Scope: "above"}, Invalid, "exactly one")
	st.refuses(ada, RunCells{Scope: "below", Cells: []CellID{"a", "b"}}, Invalid, "exactly one")
	st.refuses(ada, RunCells{Scope: "above", Cells: []CellID{"a"}}, Invalid, "no code to run")
	st.refuses(ada, RunCells{Scope: "below", Cells: []CellID{"x"}}, NotFound, "no cell")
	st.refuses(ada, RunCells{Cells: []CellID{"x"}}, NotFound, "no cell")
	st.refuses(ada, RunCells{Cells: []CellID{"b"}}, Invalid, "only code runs")
	st.refuses(ada, RunCells{Cells: []CellID{"a", "a"}}, Invalid, "twice")
	st.refuses(ada, RunCells{Cells: []CellID{"a"}, TimeoutMS: -1}, Invalid, "negative")
	st.refuses(ada, RunCells{Cells: []CellID{"a"}, Versions: []int{}}, Invalid, "one version")
	st.refuses(ada, RunCells{Cells: []CellID{"a"}, Versions: []int{2}}, Conflict, "since you read it")
	st.happens(ada, RunCells{Cells: []CellID{"a"}, Versions: []int{1}}, "run.queued")
	st.refuses(ada, RunCells{Cells: []CellID{"a"}}, Conflict, "already waiting")
	if _, err := Decide(st.s, ada, RunCells{Scope: "all"}, day); CodeOf(err) != Internal {
		t.Errorf("without Prepare: %v", err)
	}
}

func TestRunAllAgainReplacesWhatWaits(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2")
	first := st.start(RunCells{Scope: "all"})
	st.happens(ada, RunCells{Scope: "all"}, "run.ended", "run.queued", "run.ended", "run.queued")
	for _, id := range first {
		if e := st.ended(id); e.Status != Cancelled || e.Reason != "It was asked for again." {
			t.Errorf("run %s: %+v", id, e)
		}
	}
	if len(st.s.Queue) != 2 || len(st.s.Runs) != 2 {
		t.Errorf("%d wait, %d runs", len(st.s.Queue), len(st.s.Runs))
	}
}

func TestWhatRanIsWhatWasAsked(t *testing.T) {
	t.Parallel()
	st := tell(t, "x = 1")
	st.boot()
	st.do(ada, RunCells{Cells: []CellID{"a"}})
	st.do(robot, EditCell{"a", 1, "x = 2"}) // while it waits
	st.do(TheServer, Dispatch{})
	r := st.s.Runs[st.s.Live]
	if r.Source != "x = 1" || r.SHA256 != SourceHash("x = 1") {
		t.Errorf("ran %q", r.Source)
	}
	if got := st.s.Staleness(st.cell("a")); got != EditedSince {
		t.Errorf("staleness %q", got)
	}
}

func TestStopOnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status    RunStatus
		keepGoing bool
		reason    string // of the runs after it; empty: they go on
	}{
		{OK, false, ""},
		{Failed, false, "A cell before it failed."},
		{Failed, true, ""},
		{TimedOut, false, "A cell before it ran out of time."},
		{TimedOut, true, "A cell before it ran out of time."},
		{Interrupted, true, "A cell before it was stopped."},
		{Killed, false, "The kernel died before it could run."},
	} {
		st := tell(t, "1", "2", "3", "4")
		st.boot()
		runs := st.start(RunCells{Cells: []CellID{"a", "b", "c"}, KeepGoing: c.keepGoing})
		other := st.do(ada, RunCells{Cells: []CellID{"d"}})[0].Body.(RunQueued).Run
		st.report(RunEnded{Run: runs[0], Status: c.status, EName: "ValueError", EValue: "no"})
		st.status(runs[0], c.status, "")
		for _, id := range runs[1:] {
			if c.reason == "" {
				st.status(id, Queued, "")
			} else {
				st.status(id, Skipped, c.reason) // shown, as the cell has nothing else
			}
		}
		if c.status == Killed {
			st.status(other, Skipped, c.reason)
		} else {
			st.status(other, Queued, "") // another batch
		}
	}
}

// A run asked for after one took the kernel down, and before the kernel's end
// was reported, is for the next kernel.
func TestRunWhileKernelDies(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2")
	st.boot()
	first := st.start(RunCells{Cells: []CellID{"a"}})[0]
	st.report(RunEnded{Run: first, Status: Killed})
	if st.s.Kernel.Status != Dying {
		t.Fatalf("kernel %s", st.s.Kernel.Status)
	}
	next := st.do(ada, RunCells{Cells: []CellID{"b"}})[0].Body.(RunQueued).Run
	if evs := st.do(TheServer, Dispatch{}); len(evs) != 0 {
		t.Errorf("sent to a dying kernel: %v", evs)
	}
	st.report(KernelDied{Gen: st.s.Kernel.Gen, Cause: "signaled", Message: "It died."})
	st.status(next, Queued, "")
	if st.s.Kernel.Message != "It died." {
		t.Errorf("message %q", st.s.Kernel.Message)
	}
}

func TestSkippedRunDoesNotReplaceOutputs(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2")
	st.boot()
	first := st.start(RunCells{Cells: []CellID{"b"}})[0]
	st.report(StreamAppended{Run: first, Name: "stdout", Text: "kept\n"})
	st.report(RunEnded{Run: first, Status: OK})
	runs := st.start(RunCells{Scope: "all"})
	st.report(RunEnded{Run: runs[0], Status: Failed})
	if e := st.ended(runs[1]); e.Status != Skipped || st.cell("b").Run != first || st.printed("b") != "kept\n" || st.cell("b").Pending != "" {
		t.Errorf("ended as %+v, cell %+v", e, st.cell("b"))
	}
}

func TestCancelRun(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2", "3")
	st.boot()
	runs := st.start(RunCells{Scope: "all"})
	st.refuses(ada, CancelRun{runs[0]}, Conflict, "interrupt it instead")
	st.refuses(ada, CancelRun{"x"}, NotFound, "no such run")
	st.refuses(ada, CancelRun{}, NotFound, "no such run")
	st.happens(robot, CancelRun{runs[2]}, "run.ended")
	if e := st.ended(runs[2]); e.Status != Cancelled || len(st.s.Queue) != 1 {
		t.Errorf("%+v, %v", e, st.s.Queue)
	}
	st.happens(robot, CancelRun{runs[1]}, "run.ended")
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2")
	st.refuses(ada, Interrupt{}, Conflict, "Nothing is running")
	runs := st.start(RunCells{Scope: "all"})
	st.happens(ada, Interrupt{}, "run.ended", "run.ended") // before there is a kernel
	if e := st.ended(runs[1]); e.Status != Skipped || e.Reason != "The run before it was interrupted." {
		t.Errorf("%+v", e)
	}
	st.boot()
	runs = st.start(RunCells{Scope: "all"})
	st.happens(ada, Interrupt{}, "run.ended", "run.stage")
	st.report(RunStage{Run: runs[0], Stage: "sigint"})
	if got := st.s.Runs[runs[0]].Stage; got != "sigint" {
		t.Errorf("stage %q", got)
	}
	st.report(RunEnded{Run: runs[0], Status: Interrupted, Reason: "It was interrupted."})
	st.status(runs[0], Interrupted, "interrupted")
	if got := st.report(RunStage{Run: runs[0], Stage: "kill"}); len(got) > 0 || st.s.Runs[runs[0]].Stage != "" {
		t.Errorf("a stage after the end: %v", got)
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	st := tell(t, "input()")
	st.boot()
	run := st.start(RunCells{Scope: "all"})[0]
	st.refuses(ada, ReplyInput{run, "x"}, Conflict, "not waiting for input")
	st.report(InputRequested{Run: run, Prompt: "Name? "})
	if in := st.s.Input; in == nil || in.Run != run || in.Prompt != "Name? " || in.Password {
		t.Fatalf("input %+v", in)
	}
	st.refuses(ada, ReplyInput{"x", "x"}, Conflict, "not waiting for input")
	st.refuses(ada, ReplyInput{run, strings.Repeat("x", MaxInput+1)}, TooLarge, "The answer")
	st.happens(robot, ReplyInput{run, "Ada"}, "input.answered")
	st.refuses(ada, ReplyInput{run, "late"}, Conflict, "answered already")
	st.report(StreamAppended{Run: run, Name: "stdout", Text: "Hi Ada\n"})
	if got := st.printed("a"); got != "Name? Ada\nHi Ada\n" {
		t.Errorf("printed %q", got)
	}
	st.report(InputRequested{Run: run, Prompt: "Password: ", Password: true})
	evs := st.happens(ada, ReplyInput{run, "hunter2"}, "input.answered")
	log, _ := json.Marshal(st.events)
	state, _ := json.Marshal(st.s)
	if evs[0].Body.(InputAnswered).Value != "" || strings.Contains(string(log)+string(state), "hunter2") {
		t.Error("a password is kept")
	}
	if got := st.printed("a"); !strings.HasSuffix(got, "Password: ········\n") {
		t.Errorf("printed %q", got)
	}
	// The kernel gives up waiting, and the end of the run ends the question.
	st.report(InputRequested{Run: run, Prompt: strings.Repeat("long ", 1000)})
	if n := len([]rune(st.s.Input.Prompt)); n != 1001 {
		t.Errorf("prompt of %d characters", n)
	}
	if got := st.report(InputAnswered{Run: "x"}); len(got) > 0 {
		t.Errorf("%v", got)
	}
	st.report(InputAnswered{Run: run, Value: "not believed"})
	if st.s.Input != nil || strings.Contains(st.printed("a"), "believed") {
		t.Errorf("input %+v, %q", st.s.Input, st.printed("a"))
	}
	st.report(InputRequested{Run: run, Prompt: "again"})
	st.report(RunEnded{Run: run, Status: Interrupted})
	if st.s.Input != nil {
		t.Errorf("input %+v", st.s.Input)
	}
	if got := st.report(InputRequested{Run: run}); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

func TestStartStopRestart(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2", "")
	st.refuses(ada, StopKernel{}, Conflict, "no kernel running")
	st.happens(ada, StartKernel{})
	st.report(KernelStarting{Gen: 1, Boot: 1, Sandbox: "sb1", Backend: "bubblewrap", Message: "Making a sandbox.", Memory: 1 << 30})
	if k := st.s.Kernel; k.Status != Starting || k.Sandbox != "sb1" || k.Memory != 1<<30 || k.Message != "Making a sandbox." {
		t.Errorf("kernel %+v", k)
	}
	st.refuses(ada, StartKernel{}, Conflict, "already running")
	st.refuses(ada, RestartKernel{}, Conflict, "starting already")
	st.refuses(TheServer, Report{Body: KernelStarting{Gen: 2}}, Conflict, "already running")
	st.report(SandboxUp{Posture: []Check{{Name: "net", OK: true}}})
	st.report(KernelReady{Gen: 1, Info: KernelInfo{Language: "python", Version: "3.11"}})
	if got := st.report(KernelReady{Gen: 1}); len(got) > 0 {
		t.Errorf("ready twice: %v", got)
	}
	st.refuses(ada, StartKernel{}, Conflict, "already running")
	st.report(KernelAdopted{Gen: 1})
	if k := st.s.Kernel; k.Status != Ready || k.Info.Version != "3.11" || k.Message != "" || k.Adopted != 1 || len(k.Posture) != 1 {
		t.Errorf("kernel %+v", k)
	}

	runs := st.start(RunCells{Scope: "all"})
	st.report(InputRequested{Run: runs[0]})
	st.happens(ada, RestartKernel{RunAll: true}, "run.ended", "run.ended", "kernel.stopped", "run.queued", "run.queued")
	st.status(runs[0], Killed, "The kernel was restarted.")
	if r := st.s.Runs[runs[0]]; r.WallMS <= 0 {
		t.Errorf("it took %d ms", r.WallMS)
	}
	if k := st.s.Kernel; k.Status != NoKernel || k.Sandbox != "sb1" || st.s.Input != nil {
		t.Errorf("kernel %+v", k)
	}
	// The same sandbox, a new kernel: the self-check still holds, counts begin again.
	st.report(KernelStarting{Gen: 2, Boot: 1, Sandbox: "sb1"})
	if k := st.s.Kernel; len(k.Posture) != 1 || k.Adopted != 0 || st.s.Count != 0 {
		t.Errorf("kernel %+v, count %d", k, st.s.Count)
	}
	st.report(KernelReady{Gen: 2})
	st.do(TheServer, Dispatch{})
	live := st.s.Live
	st.happens(ada, StopKernel{}, "run.ended", "run.ended", "kernel.stopped")
	st.status(live, Killed, "The kernel was stopped.")
	if k := st.s.Kernel; k.Status != NoKernel || k.Sandbox != "" {
		t.Errorf("kernel %+v", k)
	}
	// Another sandbox has to check itself.
	st.report(KernelStarting{Gen: 3, Boot: 2, Sandbox: "sb2"})
	if k := st.s.Kernel; k.Posture != nil {
		t.Errorf("kernel %+v", k)
	}
	st.happens(ada, StopKernel{}, "kernel.stopped") // while it starts
	st.happens(ada, RestartKernel{})                // nothing to end, the session starts one
}

func TestKernelDies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		waiting int
		cause   string
		status  RunStatus
		message string
	}{
		{0, "signaled", Killed, "It died."},
		{1, "out_of_memory", Killed, "It died. One waiting cell was skipped."},
		{2, "lost", LostRun, "It died. 2 waiting cells were skipped."},
	} {
		st := tell(t, "1", "2", "3")
		st.boot()
		cells := []CellID{"a", "b", "c"}[:c.waiting+1]
		runs := st.start(RunCells{Cells: cells})
		st.report(KernelDied{Gen: 1, Cause: c.cause, Message: "It died.", Gone: c.waiting > 0})
		st.status(runs[0], c.status, "It died.")
		for _, id := range runs[1:] {
			st.status(id, Skipped, "died before it could run")
		}
		if k := st.s.Kernel; k.Status != Dead || k.Message != c.message || (k.Sandbox == "") != (c.waiting > 0) {
			t.Errorf("kernel %+v", k)
		}
		if got := st.report(KernelDied{Gen: 1}); len(got) > 0 {
			t.Errorf("died twice: %v", got)
		}
		st.refuses(ada, StopKernel{}, Conflict, "no kernel running")
		// What the dead one still says about itself is not taken.
		if got := st.report(RunEnded{Run: runs[0], Status: OK}); len(got) > 0 {
			t.Errorf("%v", got)
		}
		st.happens(ada, StartKernel{})
		st.boot()
		if got := st.do(TheServer, Report{Gen: 1, Body: KernelDied{Gen: 1}}); len(got) > 0 || st.s.Kernel.Gen != 2 {
			t.Errorf("an old kernel ended the new one: %v", got)
		}
	}
}

func TestOnlyTheServerReports(t *testing.T) {
	t.Parallel()
	st := tell(t, "1")
	st.boot()
	run := st.start(RunCells{Scope: "all"})[0]
	for _, a := range []Actor{ada, robot} {
		st.refuses(a, Report{Gen: 1, Body: RunEnded{Run: run, Status: OK}}, Denied, "Only the server")
	}
}

// TestStrayReports: what is about another generation or run changes nothing.
func TestStrayReports(t *testing.T) {
	t.Parallel()
	st := tell(t, "1")
	for _, b := range []Body{KernelReady{}, SandboxUp{}, RunEnded{}, StreamAppended{}} {
		if got := st.report(b); len(got) > 0 {
			t.Errorf("%s without a kernel: %v", b.Event(), got)
		}
	}
	st.boot()
	run := st.start(RunCells{Scope: "all"})[0]
	for _, b := range []Body{
		RunEnded{Run: "x", Status: OK},
		RunEnded{Status: OK},
		RunStage{Run: "x"},
		StreamAppended{Run: "x", Name: "stdout", Text: "x"},
		StreamAppended{Run: run, Name: "stdout"}, // nothing printed
		StreamOmitted{Run: "x", Name: "stdout", Bytes: 1},
		OutputAdded{Run: "x"},
		OutputsCleared{Run: "x"},
		InputRequested{Run: "x"},
		FilesChanged{Run: "x"},
		Renamed{Title: "owned"}, // not a kernel's to say
		Created{Title: "owned"},
		CellEdited{Cell: "a", Source: "owned"},
		RunQueued{Run: "y", Cell: "a"},
		RunSent{Run: run},
	} {
		if got := st.report(b); len(got) > 0 {
			t.Errorf("%s %+v was taken: %v", b.Event(), b, got)
		}
	}
	if got := st.do(TheServer, Report{Gen: 7, Body: RunEnded{Run: run, Status: OK}}); len(got) > 0 {
		t.Errorf("another generation: %v", got)
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2")
	st.boot()
	run := st.start(RunCells{Scope: "all"})[0]
	html := func(s string) map[string]Value { return map[string]Value{"text/html": {Text: s}} }
	kinds := func() string {
		var out []string
		for _, o := range st.s.Runs[run].Outputs {
			k := string(o.Kind)
			if o.Background {
				k += "-late"
			}
			out = append(out, k)
		}
		return strings.Join(out, " ")
	}
	st.report(StreamAppended{Run: run, Name: "stdout", Text: "a"})
	st.report(StreamAppended{Run: run, Name: "stdout", Text: "b\xff\n"})
	st.report(StreamAppended{Run: run, Name: "stderr", Text: "warning\n"})
	st.report(StreamAppended{Run: run, Name: "stdout", Text: "c\n"})
	st.report(OutputAdded{Run: run, Output: Output{Kind: DisplayOutput, DisplayID: "d1", Data: html("one")}})
	st.report(OutputAdded{Run: run, Output: Output{Kind: DisplayOutput, DisplayID: "d1", Data: html("one")}})
	st.report(OutputUpdated{DisplayID: "d1", Data: html("two"), Metadata: json.RawMessage(`{"x":1}`)})
	st.report(OutputUpdated{DisplayID: "dX", Data: html("three")})
	if got := kinds(); got != "stream stream stream display display" {
		t.Errorf("outputs %s", got)
	}
	outs := st.s.Runs[run].Outputs
	if outs[0].Text.String() != "ab\uFFFD\n" || outs[3].Data["text/html"].Text != "two" || outs[4].Data["text/html"].Text != "two" || string(outs[4].Metadata) != `{"x":1}` {
		t.Errorf("outputs %+v", outs)
	}
	st.report(OutputsCleared{Run: run, Wait: true})
	if got := kinds(); got != "stream stream stream display display" {
		t.Errorf("cleared too early: %s", got)
	}
	st.report(OutputAdded{Run: run, Output: Output{Kind: ResultOutput}})
	if got := kinds(); got != "result" {
		t.Errorf("outputs %s", got)
	}
	st.report(OutputsCleared{Run: run})
	if got := kinds(); got != "" {
		t.Errorf("outputs %s", got)
	}
	st.report(OutputsCleared{Run: run, Wait: true})
	st.report(StreamAppended{Run: run, Name: "stdout", Text: "new\n"})
	st.report(OutputsCleared{Run: run, Wait: true})
	st.report(StreamOmitted{Run: run, Name: "stdout", Bytes: 1000, Lines: 10, Tail: "t\xffail\n"})
	if o := st.s.Runs[run].Outputs; len(o) != 1 || o[0].Text.Bytes != 1000 || o[0].Text.Lines[0] != "t\uFFFDail" {
		t.Errorf("outputs %+v", o[0].Text)
	}
	st.report(StreamOmitted{Run: run, Name: "stdout", Bytes: 500, Lines: 5, Tail: "end\n"})
	st.report(StreamOmitted{Run: run, Name: "stderr", Bytes: 5, Lines: 1})
	if o := st.s.Runs[run].Outputs; len(o) != 2 || o[0].Text.Bytes != 1500 || o[1].Name != "stderr" {
		t.Errorf("outputs %+v", o)
	}

	// After its end, what a run prints is marked, and goes to no other.
	st.report(RunEnded{Run: run, Status: OK})
	st.do(TheServer, Dispatch{})
	st.report(StreamAppended{Run: run, Name: "stdout", Text: "late\n"})
	st.report(StreamAppended{Run: run, Name: "stdout", Text: "later\n"})
	st.report(OutputAdded{Run: run, Output: Output{Kind: DisplayOutput}})
	if got := kinds(); got != "stream stream stream-late display-late" {
		t.Errorf("outputs %s", got)
	}
	if got := st.printed("b"); got != "" {
		t.Errorf("the next run shows %q", got)
	}
}

func TestOutputsAreBounded(t *testing.T) {
	t.Parallel()
	st := tell(t, "1")
	st.boot()
	run := st.start(RunCells{Scope: "all"})[0]
	for range MaxOutputs + 10 {
		st.report(OutputAdded{Run: run, Output: Output{Kind: DisplayOutput}})
	}
	if n := len(st.s.Runs[run].Outputs); n != MaxOutputs {
		t.Errorf("%d outputs", n)
	}
}

func TestFilesOfTheWorkspace(t *testing.T) {
	t.Parallel()
	st := tell(t, "1")
	st.boot()
	run := st.start(RunCells{Scope: "all"})[0]
	st.report(FilesChanged{Run: run, Files: Files{Changed: []File{{Path: "a.csv", Size: 3}, {Path: "b.csv", Size: 4}}}})
	st.report(RunEnded{Run: run, Status: OK})
	st.report(FilesChanged{Run: run, Files: Files{Changed: []File{{Path: "a.csv", Size: 3, Blob: "abc"}}, Removed: []string{"b.csv", "x"}}})
	st.report(FilesChanged{Files: Files{Changed: []File{{Path: "up.txt"}}}}) // an upload
	if f := st.s.Files; len(f) != 2 || f["a.csv"].Blob != "abc" || f["up.txt"].Path != "up.txt" {
		t.Errorf("files %v", f)
	}
	if f := st.s.Runs[run].Files; len(f.Changed) != 1 || len(f.Removed) != 2 {
		t.Errorf("files of the run %+v", f)
	}
	st.hasty = true
	var many Files
	for i := range MaxFiles + 10 {
		many.Changed = append(many.Changed, File{Path: fmt.Sprint("f", i)})
	}
	many.Changed = append(many.Changed, File{Path: "a.csv", Size: 9})
	st.report(FilesChanged{Files: many})
	if f := st.s.Files; len(f) != MaxFiles || f["a.csv"].Size != 9 {
		t.Errorf("%d files, a.csv %+v", len(f), f["a.csv"])
	}
}

func TestStaleness(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "# text")
	st.do(ada, SetCellKind{"b", MarkdownCell})
	is := func(id CellID, want Staleness) {
		t.Helper()
		if got := st.s.Staleness(st.cell(id)); got != want {
			t.Errorf("cell %s is %q, want %q", id, got, want)
		}
	}
	is("a", NeverRun)
	is("b", Fresh)
	st.boot()
	run := st.start(RunCells{Scope: "all"})[0]
	is("a", Fresh)
	st.report(RunEnded{Run: run, Status: OK})
	st.do(ada, EditCell{"a", 1, "2"})
	is("a", EditedSince)
	st.do(ada, EditCell{"a", 2, "1"})
	is("a", Fresh)
	st.do(ada, RestartKernel{})
	is("a", EarlierKernel)
	st.boot()
	is("a", EarlierKernel)
}

func TestTimesHaveMilliseconds(t *testing.T) {
	t.Parallel()
	st := tell(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 6_789_012, time.FixedZone("X", 3600))
	evs, err := Decide(st.s, ada, Rename{"x"}, now)
	if err != nil || !slices.Equal([]time.Time{evs[0].At}, []time.Time{time.Date(2026, 1, 2, 2, 4, 5, 6_000_000, time.UTC)}) {
		t.Errorf("%v, %v", evs, err)
	}
}

func TestRunStatusFinal(t *testing.T) {
	t.Parallel()
	for _, s := range []RunStatus{OK, Failed, Interrupted, TimedOut, Killed, Skipped, Cancelled, LostRun} {
		if !s.Final() {
			t.Errorf("%s is not final", s)
		}
	}
	if Queued.Final() || Running.Final() {
		t.Error("queued or running is final")
	}
}

// Matrix Q08: an update reaches what the kernel itself displayed under the id.
func TestUpdatesReachOnlyTheirOwnDisplays(t *testing.T) {
	t.Parallel()
	html := func(s string) map[string]Value { return map[string]Value{"text/html": {Text: s}} }
	show := func(st *story, run RunID, id string) {
		st.report(OutputAdded{Run: run, Output: Output{Kind: DisplayOutput, DisplayID: id, Data: html("shown " + id)}})
	}
	for name, c := range map[string]struct{ id, want string }{
		"no id":       {"", "shown , shown d | shown , shown d"},
		"own id":      {"d", "shown , shown d | shown , forged"},
		"another id":  {"e", "shown , shown d | shown , shown d"},
		"id's prefix": {"d ", "shown , shown d | shown , shown d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := tell(t, "1", "2")
			var runs []RunID
			for i, cell := range []CellID{"a", "b"} { // each in a kernel of its own
				st.boot()
				run := st.start(RunCells{Cells: []CellID{cell}})[0]
				show(st, run, "")
				show(st, run, "d")
				runs = append(runs, run)
				if i == 0 {
					st.report(RunEnded{Run: run, Status: OK})
					st.do(ada, RestartKernel{})
				}
			}
			st.report(OutputUpdated{DisplayID: c.id, Data: html("forged")})
			var got []string
			for _, run := range runs {
				var texts []string
				for _, o := range st.s.Runs[run].Outputs {
					texts = append(texts, o.Data["text/html"].Text)
				}
				got = append(got, strings.Join(texts, ", "))
			}
			if s := strings.Join(got, " | "); s != c.want {
				t.Errorf("got %s, want %s", s, c.want)
			}
		})
	}
	// A log that holds such an event already is read the same way.
	st := tell(t, "1")
	st.boot()
	run := st.start(RunCells{Cells: []CellID{"a"}})[0]
	show(st, run, "")
	if after := Apply(st.s, Event{Seq: st.s.Seq + 1, Body: OutputUpdated{Data: html("forged")}}); after.Runs[run].Outputs[0].Data["text/html"].Text != "shown " {
		t.Error("an update without an id changed an output")
	}
}
