package notebook

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func ptr[T any](v T) *T { return &v }

func TestRename(t *testing.T) {
	t.Parallel()
	st := tell(t)
	st.happens(ada, Rename{"  Sales 2026 "}, "notebook.renamed")
	if st.s.Title != "Sales 2026" || !st.s.Updated.Equal(st.now) {
		t.Errorf("title %q, updated %v", st.s.Title, st.s.Updated)
	}
	st.happens(ada, Rename{"Sales 2026"})
	st.happens(ada, Rename{strings.Repeat("ü", MaxTitle)}, "notebook.renamed")
	for _, bad := range []string{"", "  ", strings.Repeat("ü", MaxTitle+1)} {
		st.refuses(ada, Rename{bad}, Invalid, "1 to 200 characters")
	}
	st.refuses(ada, Rename{"a\xffb"}, Invalid, "UTF-8")
	st.refuses(ada, Rename{"a\x00b"}, Invalid, "NUL")
	st.refuses(ada, Rename{"a\nb"}, Invalid, "one line")
	st.refuses(ada, Rename{"a\x7fb"}, Invalid, "one line")
}

func TestNotebookGoesToTheTrashAndComesBack(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2")
	st.refuses(ada, RestoreNotebook{}, Conflict, "not in the trash")
	st.boot()
	runs := st.start(RunCells{Scope: "all"})
	st.happens(ada, DeleteNotebook{}, "run.ended", "notebook.deleted")
	if e := st.ended(runs[1]); e.Status != Skipped || e.Reason != "The notebook was deleted." {
		t.Errorf("the waiting run ended as %+v", e)
	}
	st.refuses(ada, InsertCell{Cell: "x"}, Conflict, "in the trash")
	st.refuses(robot, DeleteNotebook{}, Conflict, "in the trash")
	st.report(RunEnded{Run: runs[0], Status: OK})
	st.status(runs[0], OK, "")
	st.happens(ada, RestoreNotebook{}, "notebook.restored")
	st.happens(ada, InsertCell{Cell: "x"}, "cell.inserted")
}

func TestInsertCell(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2")
	st.happens(ada, InsertCell{Cell: "end"}, "cell.inserted")
	st.happens(ada, InsertCell{Cell: "top", After: ptr(CellID("")), Kind: MarkdownCell, Source: "# Hi"}, "cell.inserted")
	st.happens(robot, InsertCell{Cell: "mid", After: ptr(CellID("a")), Kind: RawCell}, "cell.inserted")
	if got := st.order(); got != "topamidbend" {
		t.Errorf("cells stand as %s", got)
	}
	if c := st.cell("mid"); c.By != robot.Author || c.Version != 1 || c.Kind != RawCell || st.cell("end").Kind != CodeCell {
		t.Errorf("cell %+v", c)
	}
	evs := st.happens(ada, InsertCell{}, "cell.inserted")
	if evs[0].Body.(CellInserted).Cell != "id1" {
		t.Errorf("the server chose %v", evs[0].Body)
	}

	st.do(ada, DeleteCell{"b"})
	st.refuses(ada, InsertCell{Cell: "a"}, Conflict, "already")
	st.refuses(ada, InsertCell{Cell: "b"}, Conflict, "already") // it may come back
	st.refuses(ada, InsertCell{Cell: "x", After: ptr(CellID("b"))}, NotFound, "no cell")
	st.refuses(ada, InsertCell{Cell: "x", Kind: "sql"}, Invalid, "code, markdown or raw")
	st.refuses(ada, InsertCell{Cell: "x/y"}, Invalid, "letters, digits")
	st.refuses(ada, InsertCell{Cell: CellID(strings.Repeat("x", 65))}, Invalid, "1 to 64")
	st.refuses(ada, InsertCell{Cell: "x", Source: strings.Repeat("x", MaxSource+1)}, TooLarge, "limit")
	st.refuses(ada, InsertCell{Cell: "x", Source: "\xff"}, Invalid, "UTF-8")
	st.refuses(ada, InsertCell{Cell: "x", Source: "\x00"}, Invalid, "NUL")
	_, err := Decide(st.s, ada, InsertCell{}, st.now) // without Prepare
	if CodeOf(err) != Invalid {
		t.Errorf("without an id: %v", err)
	}
}

func TestNotebookHoldsSoManyCells(t *testing.T) {
	t.Parallel()
	st := tell(t)
	st.hasty = true
	for i := range MaxCells {
		st.s.Cells = append(st.s.Cells, &Cell{ID: CellID(fmt.Sprint("c", i)), Kind: CodeCell, Source: "1", Version: 1})
	}
	st.refuses(ada, InsertCell{Cell: "x"}, TooLarge, "at most 5000 cells")
	st.refuses(ada, SplitCell{Cell: "c0", Base: 1, At: 1, New: "x"}, TooLarge, "at most 5000 cells")
	if evs := st.do(ada, RunCells{Scope: "all"}); len(evs) != MaxCells {
		t.Errorf("%d events", len(evs))
	}
	st.refuses(ada, RunCells{Cells: []CellID{"c0"}}, TooLarge, "can wait")
}

func TestEditCell(t *testing.T) {
	t.Parallel()
	st := tell(t, "x = 1")
	st.happens(robot, EditCell{"a", 1, "x = 2"}, "cell.edited")
	if c := st.cell("a"); c.Source != "x = 2" || c.Version != 2 || c.By != robot.Author {
		t.Errorf("cell %+v", c)
	}
	st.happens(ada, EditCell{"a", 2, "x = 2"}) // nothing new
	st.refuses(ada, EditCell{"a", 1, "x = 3"}, Conflict, "since you read it")
	_, err := st.try(ada, EditCell{"a", 1, "x = 3"})
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	data := e.Data.(map[string]any)
	if data["version"] != 2 || data["source"] != "x = 2" || data["by"] != robot.Author || data["cell"] != CellID("a") {
		t.Errorf("a conflict comes with %v", data)
	}
	st.refuses(ada, EditCell{"zz", 1, ""}, NotFound, `"zz"`)
	st.refuses(ada, EditCell{CellID(strings.Repeat("z", 500)), 1, ""}, NotFound, "…")
	st.refuses(ada, EditCell{"a", 2, strings.Repeat("x", MaxSource+1)}, TooLarge, "limit")
}

func TestMoveCell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cell, after, want string }{
		{"a", "c", "bcad"},
		{"d", "", "dabc"},
		{"c", "a", "acbd"},
		{"b", "d", "acdb"},
		{"b", "a", ""},
		{"a", "", ""},
	} {
		st := tell(t, "1", "2", "3", "4")
		if c.want == "" {
			st.happens(ada, MoveCell{CellID(c.cell), CellID(c.after)})
			c.want = "abcd"
		} else {
			st.happens(ada, MoveCell{CellID(c.cell), CellID(c.after)}, "cell.moved")
		}
		if got := st.order(); got != c.want {
			t.Errorf("%s after %q: %s, want %s", c.cell, c.after, got, c.want)
		}
	}
	st := tell(t, "1")
	st.refuses(ada, MoveCell{"x", "a"}, NotFound, "no cell")
	st.refuses(ada, MoveCell{"a", "x"}, NotFound, "no cell")
	st.refuses(ada, MoveCell{"a", "a"}, Invalid, "after itself")
}

func TestDeletedCellComesBackWhereItWas(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2", "3")
	st.refuses(ada, DeleteCell{"x"}, NotFound, "no cell")
	st.refuses(ada, RestoreCell{}, NotFound, "no deleted cell")
	st.happens(ada, DeleteCell{"b"}, "cell.deleted")
	st.happens(ada, DeleteCell{"a"}, "cell.deleted")
	st.refuses(ada, RestoreCell{"c"}, NotFound, "no deleted cell")
	st.happens(ada, RestoreCell{}, "cell.restored") // the newest
	if got := st.order(); got != "ac" {
		t.Errorf("cells stand as %s", got)
	}
	st.happens(robot, RestoreCell{"b"}, "cell.restored")
	if got := st.order(); got != "abc" {
		t.Errorf("cells stand as %s", got)
	}
	// What stood before it is gone: it goes to the end.
	st.do(ada, DeleteCell{"b"})
	st.do(ada, DeleteCell{"a"})
	st.do(ada, RestoreCell{"b"})
	if got := st.order(); got != "cb" {
		t.Errorf("cells stand as %s", got)
	}
	st.do(ada, DeleteCell{"b"})
	st.do(ada, DeleteCell{"c"})
	st.do(ada, RestoreCell{"b"})
	if got := st.order(); got != "b" || len(st.s.Trash) != 2 {
		t.Errorf("cells stand as %s, %d in the trash", got, len(st.s.Trash))
	}
}

func TestTrashForgetsTheOldest(t *testing.T) {
	t.Parallel()
	st := tell(t, "1")
	st.boot()
	runs := st.start(RunCells{Cells: []CellID{"a"}})
	st.do(ada, DeleteCell{"a"}) // while it runs
	for range MaxTrash {
		evs := st.do(ada, InsertCell{})
		st.do(ada, DeleteCell{evs[0].Body.(CellInserted).Cell})
	}
	if len(st.s.Trash) != MaxTrash {
		t.Errorf("%d in the trash", len(st.s.Trash))
	}
	st.refuses(ada, RestoreCell{"a"}, NotFound, "no deleted cell")
	st.report(RunEnded{Run: runs[0], Status: OK})
	if len(st.s.Runs) != 0 {
		t.Errorf("runs that nothing shows: %v", st.s.Runs)
	}
}

func TestSetCellKind(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2")
	st.happens(ada, SetCellKind{"a", CodeCell})
	st.happens(ada, SetCellKind{"a", MarkdownCell}, "cell.kind")
	if c := st.cell("a"); c.Kind != MarkdownCell || c.Version != 2 {
		t.Errorf("cell %+v", c)
	}
	st.refuses(ada, SetCellKind{"x", RawCell}, NotFound, "no cell")
	st.refuses(ada, SetCellKind{"a", "sql"}, Invalid, "not \"sql\"")
	evs := st.do(ada, RunCells{Cells: []CellID{"b"}})
	st.happens(ada, SetCellKind{"b", CodeCell})
	st.happens(ada, SetCellKind{"b", RawCell}, "run.ended", "cell.kind")
	if e := st.ended(evs[0].Body.(RunQueued).Run); e.Status != Cancelled || !strings.Contains(e.Reason, "changed to text") {
		t.Errorf("the run ended as %+v", e)
	}
}

func TestSplitCell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at         int
		head, tail string
		events     []string
	}{
		{0, "", "äb\ncd", []string{"cell.edited", "cell.inserted"}},
		{2, "äb", "cd", []string{"cell.edited", "cell.inserted"}},
		{3, "äb", "cd", []string{"cell.edited", "cell.inserted"}},
		{4, "äb\nc", "d", []string{"cell.edited", "cell.inserted"}},
		{5, "äb\ncd", "", []string{"cell.inserted"}},
	} {
		st := tell(t, "äb\ncd", "z")
		st.happens(ada, SplitCell{Cell: "a", Base: 1, At: c.at, New: "n"}, c.events...)
		if st.order() != "anb" || st.cell("a").Source != c.head || st.cell("n").Source != c.tail {
			t.Errorf("at %d: %s, %q and %q", c.at, st.order(), st.cell("a").Source, st.cell("n").Source)
		}
	}
	st := tell(t, "ab")
	st.refuses(ada, SplitCell{Cell: "a", Base: 1, At: 3}, Invalid, "2 characters")
	st.refuses(ada, SplitCell{Cell: "a", Base: 1, At: -1}, Invalid, "2 characters")
	st.refuses(ada, SplitCell{Cell: "a", Base: 2, At: 1}, Conflict, "since you read it")
	st.refuses(ada, SplitCell{Cell: "x", Base: 1, At: 1}, NotFound, "no cell")
	st.refuses(ada, SplitCell{Cell: "a", Base: 1, At: 1, New: "a"}, Conflict, "already")
	st.happens(ada, SplitCell{Cell: "a", Base: 1, At: 1}, "cell.edited", "cell.inserted")
}

func TestMergeCells(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2", "3")
	st.do(ada, RunCells{Cells: []CellID{"b"}})
	st.happens(ada, MergeCells{"a"}, "cell.edited", "run.ended", "cell.deleted")
	if st.order() != "ac" || st.cell("a").Source != "1\n2" || st.cell("a").Version != 2 {
		t.Errorf("%s, %+v", st.order(), st.cell("a"))
	}
	st.refuses(ada, MergeCells{"x"}, NotFound, "no cell")
	st.refuses(ada, MergeCells{"c"}, Invalid, "no cell below")
	st.do(ada, InsertCell{Cell: "big", Source: strings.Repeat("x", MaxSource)})
	st.refuses(ada, MergeCells{"c"}, TooLarge, "The merged cell")
}

func TestClearOutputs(t *testing.T) {
	t.Parallel()
	st := tell(t, "1", "2", "3")
	st.boot()
	runs := st.start(RunCells{Scope: "all"})
	for _, id := range runs[:2] {
		st.report(StreamAppended{Run: id, Name: "stdout", Text: "hi\n"})
		st.report(RunEnded{Run: id, Status: OK})
		st.do(TheServer, Dispatch{})
	}
	st.report(StreamAppended{Run: runs[2], Name: "stdout", Text: "live\n"})
	st.refuses(ada, ClearOutputs{"x"}, NotFound, "no cell")
	st.happens(ada, ClearOutputs{"a"}, "cell.cleared")
	if st.cell("a").Run != "" || st.printed("b") != "hi\n" || st.s.Runs[runs[0]] != nil {
		t.Errorf("one cell cleared: %q, %q", st.printed("a"), st.printed("b"))
	}
	st.happens(ada, ClearOutputs{}, "cell.cleared")
	if st.cell("b").Run != "" || st.cell("c").Run != runs[2] || st.printed("c") != "" {
		t.Errorf("all cleared: %+v, %+v", st.cell("b"), st.cell("c"))
	}
	st.report(StreamAppended{Run: runs[2], Name: "stdout", Text: "more\n"})
	if st.printed("c") != "more\n" {
		t.Errorf("the live run goes on with %q", st.printed("c"))
	}
}

type unknownOp struct{}

func (unknownOp) Op() string { return "burn" }

func TestUnknownOp(t *testing.T) {
	t.Parallel()
	tell(t).refuses(ada, unknownOp{}, Invalid, "no such op")
}

func TestErrors(t *testing.T) {
	t.Parallel()
	e := Errorf(NotFound, "There is no %s.", "moon")
	wrapped := fmt.Errorf("look up: %w", e)
	for _, c := range []struct {
		err  error
		code Code
		msg  string
	}{
		{e, NotFound, "There is no moon."},
		{wrapped, NotFound, "There is no moon."},
		{errors.New("disk on fire"), Internal, "Something went wrong on the server. The log has the details."},
	} {
		if CodeOf(c.err) != c.code || MessageOf(c.err) != c.msg {
			t.Errorf("%v: %s, %q", c.err, CodeOf(c.err), MessageOf(c.err))
		}
	}
	if CodeOf(nil) != "" || e.Error() != "not_found: There is no moon." {
		t.Errorf("%q, %q", CodeOf(nil), e)
	}
}
