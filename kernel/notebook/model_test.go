package notebook

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// chaos makes random ops and reports: plausible ones, stale ones and lies.
type chaos struct {
	*story
	rng *rand.Rand
}

func (c *chaos) n(n int) int { return c.rng.IntN(n) }

// anyCell is a cell of the document, mostly; else one of the trash or none.
func (c *chaos) anyCell() CellID {
	switch r := c.n(20); {
	case r == 0:
		return "nowhere"
	case r == 1 && len(c.s.Trash) > 0:
		return c.s.Trash[c.n(len(c.s.Trash))].Cell.ID
	case len(c.s.Cells) > 0:
		return c.s.Cells[c.n(len(c.s.Cells))].ID
	}
	return ""
}

func (c *chaos) anyRun() RunID {
	switch r := c.n(10); {
	case r == 0:
		return "nobody"
	case r == 1 && len(c.s.Queue) > 0:
		return c.s.Queue[c.n(len(c.s.Queue))]
	case r == 2:
		return RunID(fmt.Sprint("id", c.n(c.ids+1)))
	}
	return c.s.Live
}

func (c *chaos) version(id CellID) int {
	if cell, _ := c.s.Cell(id); cell != nil && c.n(10) > 0 {
		return cell.Version
	}
	return c.n(5)
}

func (c *chaos) op() Op {
	cell := c.anyCell()
	switch c.n(20) {
	case 0, 1, 2:
		o := InsertCell{Source: fmt.Sprint("x = ", c.n(100)), Kind: []CellKind{"", CodeCell, MarkdownCell, RawCell}[c.n(4)]}
		if c.n(2) == 0 {
			o.After = &cell
		}
		return o
	case 3, 4:
		return EditCell{cell, c.version(cell), fmt.Sprint("y = ", c.n(5))}
	case 5:
		return MoveCell{cell, c.anyCell()}
	case 6:
		return DeleteCell{cell}
	case 7:
		return RestoreCell{[]CellID{"", cell}[c.n(2)]}
	case 8:
		return SetCellKind{cell, []CellKind{CodeCell, CodeCell, MarkdownCell, "odd"}[c.n(4)]}
	case 9:
		return SplitCell{Cell: cell, Base: c.version(cell), At: c.n(8)}
	case 10:
		return MergeCells{cell}
	case 11:
		return ClearOutputs{[]CellID{"", cell}[c.n(2)]}
	case 12, 13, 14:
		o := RunCells{Scope: []string{"", "all", "above", "below"}[c.n(4)], KeepGoing: c.n(2) == 0}
		if o.Scope != "all" {
			o.Cells = []CellID{cell}
		}
		return o
	case 15:
		return CancelRun{c.anyRun()}
	case 16:
		return []Op{Interrupt{}, ReplyInput{c.anyRun(), "hi"}}[c.n(2)]
	case 17:
		return []Op{StartKernel{}, StopKernel{}, RestartKernel{RunAll: c.n(2) == 0}}[c.n(3)]
	case 18:
		return Rename{fmt.Sprint("Title ", c.n(3))}
	}
	return []Op{DeleteNotebook{}, RestoreNotebook{}, RestoreNotebook{}, RestoreNotebook{}}[c.n(4)]
}

func (c *chaos) report() Op {
	k := c.s.Kernel
	gen := k.Gen
	if c.n(15) == 0 {
		gen--
	}
	run := c.anyRun()
	data := map[string]Value{"text/plain": {Text: fmt.Sprint(c.n(9))}}
	var b Body
	switch c.n(14) {
	case 0, 1:
		b = KernelStarting{Gen: k.Gen + 1, Boot: k.Boot + c.n(2), Sandbox: "sb", Backend: "bubblewrap"}
	case 2, 3:
		b = []Body{KernelReady{Gen: gen}, SandboxUp{Posture: []Check{{Name: "x"}}}}[c.n(2)]
	case 4:
		b = KernelAdopted{Gen: gen}
	case 5:
		if c.n(4) > 0 {
			return Dispatch{}
		}
		b = KernelDied{Gen: gen, Cause: []string{"exited", "lost"}[c.n(2)], Message: "It died.", Gone: c.n(2) == 0}
	case 6, 7:
		b = RunEnded{Run: run, Status: []RunStatus{OK, OK, Failed, TimedOut, Interrupted, Killed}[c.n(6)], WallMS: int64(c.n(100))}
	case 8, 9:
		b = StreamAppended{Run: run, Name: []string{"stdout", "stderr"}[c.n(2)], Text: noise(c.rng, c.n(5))}
	case 10:
		b = StreamOmitted{Run: run, Name: "stdout", Bytes: int64(c.n(1000)), Lines: int64(c.n(10)), Tail: noise(c.rng, c.n(5))}
	case 11:
		b = []Body{
			OutputAdded{Run: run, Output: Output{Kind: DisplayOutput, DisplayID: fmt.Sprint("d", c.n(3)), Data: data}},
			OutputUpdated{DisplayID: fmt.Sprint("d", c.n(3)), Data: data, Metadata: json.RawMessage(`{}`)},
			OutputsCleared{Run: run, Wait: c.n(2) == 0},
		}[c.n(3)]
	case 12:
		b = []Body{InputRequested{Run: run, Prompt: "? ", Password: c.n(2) == 0}, InputAnswered{Run: run}, RunStage{Run: run, Stage: "sigint"}}[c.n(3)]
	default:
		b = FilesChanged{Run: run, Files: Files{Changed: []File{{Path: fmt.Sprint("f", c.n(5)), Size: int64(c.n(9))}}, Removed: []string{fmt.Sprint("f", c.n(5))}}}
	}
	return Report{Gen: gen, Body: b}
}

// TestAnythingMayHappen goes through thousands of random steps and holds the
// state against everything that must always be true.
func TestAnythingMayHappen(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			c := &chaos{story: tell(t, "1", "2", "3"), rng: rand.New(rand.NewPCG(seed, 11))}
			c.hasty = true // the states kept below are compared instead
			type past struct {
				s    State
				json string
			}
			var pasts []past
			seen := map[string]bool{}
			steps := 1200
			if testing.Short() {
				steps = 300
			}
			for i := range steps {
				a, o := ada, c.op()
				if c.n(3) > 0 {
					a, o = TheServer, c.report()
				} else if c.n(2) == 0 {
					a = robot
				}
				if len(c.s.Queue) > 0 && c.n(3) == 0 {
					a, o = TheServer, Dispatch{}
				}
				evs, err := c.try(a, o)
				if err != nil && (CodeOf(err) == Internal || CodeOf(err) == Denied) {
					t.Fatalf("step %d, %s: %v", i, o.Op(), err)
				}
				for _, e := range evs {
					seen[e.Body.Event()] = true
					c.apply(e)
					if msg := broken(c.s); msg != "" {
						t.Fatalf("step %d, %s, after %s: %s", i, o.Op(), e.Body.Event(), msg)
					}
				}
				if i%25 == 0 {
					b, err := json.Marshal(c.s)
					if err != nil {
						t.Fatal(err)
					}
					pasts = append(pasts, past{c.s, string(b)})
				}
			}
			for i, p := range pasts {
				if b, _ := json.Marshal(p.s); string(b) != p.json {
					t.Fatalf("the state of step %d changed after it was left behind", i*25)
				}
			}
			checkLog(t, c.events)
			checkReplay(t, c.s, c.events)
			for _, name := range EventNames() {
				if !seen[name] && name != "notebook.created" && !testing.Short() {
					t.Logf("seed %d never saw %s", seed, name)
				}
			}
		})
	}
}

// checkLog checks what must be true of the events alone.
func checkLog(t *testing.T, events []Event) {
	t.Helper()
	queued, sent, ended := map[RunID]bool{}, map[RunID]bool{}, map[RunID]bool{}
	gens := 0
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d has seq %d", i+1, e.Seq)
		}
		switch b := e.Body.(type) {
		case RunQueued:
			if queued[b.Run] {
				t.Fatalf("run %s was queued twice", b.Run)
			}
			queued[b.Run] = true
		case RunSent:
			if !queued[b.Run] || sent[b.Run] || ended[b.Run] {
				t.Fatalf("run %s was sent without being queued, twice or after its end", b.Run)
			}
			sent[b.Run] = true
		case RunEnded:
			if !queued[b.Run] || ended[b.Run] || !b.Status.Final() {
				t.Fatalf("run %s ended as %s without being queued, or twice", b.Run, b.Status)
			}
			if ran := b.Status != Skipped && b.Status != Cancelled; ran != sent[b.Run] {
				t.Fatalf("run %s ended as %s; sent: %t", b.Run, b.Status, sent[b.Run])
			}
			ended[b.Run] = true
		case KernelStarting:
			if b.Gen != gens+1 {
				t.Fatalf("generation %d follows %d", b.Gen, gens)
			}
			gens = b.Gen
		}
	}
}

// checkReplay reads the log back: one by one, all at once, through JSON, and
// from a snapshot in the middle.
func checkReplay(t *testing.T, want State, events []Event) {
	t.Helper()
	one := New("nb")
	var decoded []Event
	half := len(events) / 2
	var snapshot []byte
	for i, e := range events {
		one = Apply(one, e)
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back Event
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if d := cmp.Diff(e, back, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%s through JSON:\n%s", e.Body.Event(), d)
		}
		decoded = append(decoded, back)
		if i == half {
			if snapshot, err = json.Marshal(one); err != nil {
				t.Fatal(err)
			}
		}
	}
	same(t, "folded one by one", one, want)
	same(t, "folded at once", Fold(New("nb"), events), want)
	same(t, "folded from JSON", Fold(New("nb"), decoded), want)
	var mid State
	if err := json.Unmarshal(snapshot, &mid); err != nil {
		t.Fatal(err)
	}
	same(t, "folded from a snapshot", Fold(mid, decoded[half+1:]), want)
}

// TestFoldLeavesTheStateAlone: a fold changes in place what it copied, and
// nothing else.
func TestFoldLeavesTheStateAlone(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2", "3")
	st.boot()
	runs := st.start(RunCells{Scope: "all"})
	before := st.s
	b, _ := json.Marshal(before)
	n := len(st.events)
	st.report(StreamAppended{Run: runs[0], Name: "stdout", Text: "x\n"})
	st.report(FilesChanged{Run: runs[0], Files: Files{Changed: []File{{Path: "f"}}}})
	st.report(RunEnded{Run: runs[0], Status: Failed})
	st.do(ada, DeleteCell{"a"})
	st.do(ada, MoveCell{"c", ""})
	st.do(ada, RunCells{Scope: "all"})
	st.do(ada, CancelRun{st.s.Queue[1]})
	st.do(ada, RestoreCell{})
	st.do(ada, ClearOutputs{})
	same(t, "fold", Fold(before, st.events[n:]), st.s)
	same(t, "fold again", Fold(before, st.events[n:]), st.s)
	if after, _ := json.Marshal(before); string(after) != string(b) {
		t.Error("a fold changed the state it began with")
	}
}

// TestApplyStandsStrangeEvents: a log written by another version may name
// cells and runs that are not there.
func TestApplyStandsStrangeEvents(t *testing.T) {
	t.Parallel()
	st := tell(t, "1")
	for _, b := range []Body{
		CellEdited{Cell: "x"}, CellMoved{Cell: "x"}, CellDeleted{Cell: "x"}, CellRestored{Cell: "x"}, CellKindSet{Cell: "x"}, CellCleared{Cell: "x"},
		CellMoved{Cell: "a", After: "x"}, RunSent{Run: "x"}, RunStage{Run: "x"}, RunEnded{Run: "x"}, InputAnswered{Run: "x"},
		StreamAppended{Run: "x"}, StreamOmitted{Run: "x"}, OutputAdded{Run: "x"}, OutputsCleared{Run: "x"}, OutputUpdated{DisplayID: "x"},
		KernelDied{}, KernelStopped{}, KernelAdopted{}, KernelReady{}, SandboxUp{},
	} {
		s := Apply(st.s, Event{Seq: st.s.Seq + 1, At: day.Add(time.Hour), Body: b})
		if s.Seq != st.s.Seq+1 || len(s.Cells) != 1 || s.Cells[0].Source != "1" {
			t.Errorf("after %s: %+v", b.Event(), s)
		}
	}
}
