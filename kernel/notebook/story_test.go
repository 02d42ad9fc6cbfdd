package notebook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	day   = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	ada   = Actor{Author: Author{Kind: Person, ID: "p1", Name: "Ada"}, Scopes: []Scope{ScopeRead, ScopeEdit, ScopeRun, ScopeReview}}
	robot = Actor{Author: Author{Kind: Agent, ID: "a1", Name: "Robot"}, Scopes: []Scope{ScopeRead, ScopeEdit, ScopeRun}}
)

// story drives one notebook through ops and keeps all its events.
type story struct {
	t      testing.TB
	s      State
	events []Event
	now    time.Time
	ids    int
	hasty  bool // do not compare the state before and after each Decide
}

// tell begins a story with cells a, b, c … of the given sources.
func tell(t testing.TB, sources ...string) *story {
	st := &story{t: t, s: New("nb"), now: day}
	st.apply(Event{Seq: 1, At: day, By: TheServer.Author, Body: Created{Title: "Untitled", Language: "python"}})
	for i, src := range sources {
		st.do(ada, InsertCell{Cell: CellID(rune('a' + i)), Source: src})
	}
	return st
}

func (st *story) apply(e Event) {
	st.s = Apply(st.s, e)
	st.events = append(st.events, e)
}

func (st *story) id() string {
	st.ids++
	return fmt.Sprintf("id%d", st.ids)
}

func (st *story) try(a Actor, o Op) ([]Event, error) {
	st.now = st.now.Add(time.Second)
	var before []byte
	if !st.hasty {
		before, _ = json.Marshal(st.s)
	}
	evs, err := Decide(st.s, a, Prepare(st.s, o, st.id), st.now)
	if !st.hasty {
		if after, _ := json.Marshal(st.s); string(before) != string(after) {
			st.t.Fatalf("Decide of %s changed the state", o.Op())
		}
	}
	if err != nil && len(evs) > 0 {
		st.t.Fatalf("Decide of %s returned both events and %v", o.Op(), err)
	}
	return evs, err
}

// do carries out an op that must succeed.
func (st *story) do(a Actor, o Op) []Event {
	st.t.Helper()
	evs, err := st.try(a, o)
	if err != nil {
		st.t.Fatalf("%s: %v", o.Op(), err)
	}
	st.s = Fold(st.s, evs)
	st.events = append(st.events, evs...)
	if msg := broken(st.s); msg != "" {
		st.t.Fatalf("after %s: %s", o.Op(), msg)
	}
	return evs
}

// happens carries out an op and compares the names of its events.
func (st *story) happens(a Actor, o Op, want ...string) []Event {
	st.t.Helper()
	evs := st.do(a, o)
	var got []string
	for _, e := range evs {
		got = append(got, e.Body.Event())
		if e.By != a.Author {
			st.t.Errorf("%s was done by %v, not by %v", e.Body.Event(), e.By, a.Author)
		}
	}
	if !slices.Equal(got, want) {
		st.t.Errorf("%s caused %v, want %v", o.Op(), got, want)
	}
	return evs
}

// refuses carries out an op that must fail with the code and a sentence that
// holds the words.
func (st *story) refuses(a Actor, o Op, code Code, words string) {
	st.t.Helper()
	_, err := st.try(a, o)
	if CodeOf(err) != code || !strings.Contains(MessageOf(err), words) {
		st.t.Errorf("%s %+v: %v, want %s with %q", o.Op(), o, err, code, words)
	}
	if m := MessageOf(err); err != nil && (!strings.HasSuffix(m, ".") || m[0] < 'A' || m[0] > 'Z') {
		st.t.Errorf("%s: not a sentence: %q", o.Op(), m)
	}
}

func (st *story) report(b Body) []Event {
	st.t.Helper()
	return st.do(TheServer, Report{Gen: st.s.Kernel.Gen, Body: b})
}

// boot starts a kernel and makes it ready.
func (st *story) boot() {
	st.t.Helper()
	k := st.s.Kernel
	st.report(KernelStarting{Gen: k.Gen + 1, Boot: k.Boot + 1, Sandbox: fmt.Sprintf("sb%d", k.Boot+1), Backend: "bubblewrap"})
	st.report(SandboxUp{Posture: []Check{{Name: "seccomp", OK: true, Detail: "on"}}})
	st.report(KernelReady{Gen: st.s.Kernel.Gen, Info: KernelInfo{Language: "python", Version: "3.11"}})
}

// start runs cells and sends the first.
func (st *story) start(o RunCells) []RunID {
	st.t.Helper()
	var runs []RunID
	for _, e := range st.do(ada, o) {
		if q, ok := e.Body.(RunQueued); ok {
			runs = append(runs, q.Run)
		}
	}
	st.do(TheServer, Dispatch{})
	return runs
}

func (st *story) cell(id CellID) *Cell {
	st.t.Helper()
	c, _ := st.s.Cell(id)
	if c == nil {
		st.t.Fatalf("no cell %s", id)
	}
	return c
}

// order is the document's cells in one string.
func (st *story) order() string {
	var b strings.Builder
	for _, c := range st.s.Cells {
		b.WriteString(string(c.ID))
	}
	return b.String()
}

func (st *story) status(id RunID, want RunStatus, words string) {
	st.t.Helper()
	r := st.s.Runs[id]
	if r == nil {
		st.t.Fatalf("run %s is not in the state", id)
	}
	if r.Status != want || !strings.Contains(r.Reason, words) {
		st.t.Errorf("run %s is %s, %q; want %s with %q", id, r.Status, r.Reason, want, words)
	}
}

// ended finds how a run ended in the log.
func (st *story) ended(id RunID) RunEnded {
	st.t.Helper()
	for _, e := range st.events {
		if b, ok := e.Body.(RunEnded); ok && b.Run == id {
			return b
		}
	}
	st.t.Fatalf("run %s has not ended", id)
	return RunEnded{}
}

// printed is the text of a cell's streams.
func (st *story) printed(id CellID) string {
	st.t.Helper()
	var b strings.Builder
	if r := st.s.Runs[st.cell(id).Run]; r != nil {
		for _, o := range r.Outputs {
			if o.Kind == StreamOutput {
				b.WriteString(o.Text.String())
			}
		}
	}
	return b.String()
}

// broken says which invariant of a state does not hold.
func broken(s State) string {
	cells := map[CellID]bool{}
	shown := map[RunID]bool{}
	pending := map[CellID]RunID{}
	position := map[RunID]int{}
	for i, id := range s.Queue {
		position[id] = i + 1
	}
	for _, c := range s.Cells {
		pending[c.ID] = c.Pending
		if cells[c.ID] {
			return fmt.Sprintf("cell %s is there twice", c.ID)
		}
		cells[c.ID] = true
		if c.Run != "" && s.Runs[c.Run] == nil {
			return fmt.Sprintf("cell %s shows run %s, which is gone", c.ID, c.Run)
		}
		if c.Pending != "" && (position[c.Pending] == 0 || s.Runs[c.Pending].Cell != c.ID) {
			return fmt.Sprintf("cell %s waits for run %s, which is not its own in the queue", c.ID, c.Pending)
		}
		shown[c.Run], shown[c.Pending] = true, true
	}
	for _, d := range s.Trash {
		if cells[d.Cell.ID] {
			return fmt.Sprintf("cell %s is there and in the trash", d.Cell.ID)
		}
		cells[d.Cell.ID] = true
		if d.Cell.Run != "" && s.Runs[d.Cell.Run] == nil {
			return fmt.Sprintf("cell %s in the trash shows run %s, which is gone", d.Cell.ID, d.Cell.Run)
		}
		if d.Cell.Pending != "" {
			return fmt.Sprintf("cell %s in the trash waits to run", d.Cell.ID)
		}
		shown[d.Cell.Run] = true
	}
	queued := map[RunID]bool{}
	for _, id := range s.Queue {
		r := s.Runs[id]
		if queued[id] || r == nil || r.Status != Queued {
			return fmt.Sprintf("run %s in the queue is twice there, gone or not waiting", id)
		}
		queued[id] = true
		if pending[r.Cell] != id {
			return fmt.Sprintf("run %s waits, and its cell does not know", id)
		}
	}
	for id, r := range s.Runs {
		switch {
		case r.ID != id:
			return fmt.Sprintf("run %s is stored as %s", r.ID, id)
		case r.Status == Queued && !queued[id]:
			return fmt.Sprintf("run %s waits outside the queue", id)
		case (r.Status == Running) != (s.Live == id):
			return fmt.Sprintf("run %s is %s while %q is live", id, r.Status, s.Live)
		case r.Status.Final() && r.Ended.IsZero():
			return fmt.Sprintf("run %s is over without an end", id)
		case !shown[id] && !queued[id] && s.Live != id:
			return fmt.Sprintf("run %s is kept and nothing shows it", id)
		case r.SHA256 != SourceHash(r.Source):
			return fmt.Sprintf("run %s has another hash than its source", id)
		}
	}
	if s.Live != "" && (s.Runs[s.Live] == nil || s.Kernel.Status != Ready || s.Runs[s.Live].Gen != s.Kernel.Gen) {
		return fmt.Sprintf("run %s is live without a ready kernel of its generation", s.Live)
	}
	if s.Input != nil && s.Input.Run != s.Live {
		return fmt.Sprintf("run %s is not live and waits for input", s.Input.Run)
	}
	return ""
}

func same(t testing.TB, what string, got, want State) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", what, d)
	}
}
