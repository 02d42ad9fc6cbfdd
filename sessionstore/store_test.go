package sessionstore

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"sandbook/kernel"
	"sandbook/kernel/notebook"

	"github.com/google/go-cmp/cmp"
)

var _ kernel.Log = (*Store)(nil)

var (
	t0  = time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	ann = notebook.Author{Kind: notebook.Person, ID: "ann", Name: "Ann"}
)

func open(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "data")
	}
	if o.Reserve == 0 {
		o.Reserve = -1
	}
	o.NoMaintenance = true
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// evs numbers bodies from seq on, one second apart.
func evs(seq int64, bodies ...notebook.Body) []notebook.Event {
	out := make([]notebook.Event, len(bodies))
	for i, b := range bodies {
		n := seq + int64(i)
		out[i] = notebook.Event{Seq: n, At: t0.Add(time.Duration(n) * time.Second), By: ann, Body: b}
	}
	return out
}

func create(t testing.TB, s *Store, id notebook.ID, more ...notebook.Body) {
	t.Helper()
	bodies := append([]notebook.Body{notebook.Created{Title: "Title of " + string(id), Language: "python"}}, more...)
	if err := s.Create(context.Background(), id, evs(1, bodies...)); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t testing.TB, s *Store, id notebook.ID, b notebook.Batch) {
	t.Helper()
	if err := s.Append(context.Background(), id, b); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code notebook.Code) {
	t.Helper()
	if got := notebook.CodeOf(err); got != code {
		t.Fatalf("error is %v (%s), want code %s", err, got, code)
	}
}

func TestAppendAndLoad(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Options{Dir: dir})
	create(t, s, "n1", notebook.CellInserted{Cell: "c1", Kind: notebook.CodeCell, Source: "1+1"})
	more := evs(3, notebook.Renamed{Title: "Neu"}, notebook.CellEdited{Cell: "c1", Version: 2, Source: "2+2"})
	appendTo(t, s, "n1", notebook.Batch{Events: more, Cursor: &notebook.Cursor{Boot: 2, Seq: 77}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, Options{Dir: dir})
	l, err := s.Load(ctx, "n1")
	if err != nil {
		t.Fatal(err)
	}
	want := append(evs(1, notebook.Created{Title: "Title of n1", Language: "python"}, notebook.CellInserted{Cell: "c1", Kind: notebook.CodeCell, Source: "1+1"}), more...)
	if d := cmp.Diff(notebook.Loaded{Events: want, Cursor: notebook.Cursor{Boot: 2, Seq: 77}, Bytes: l.Bytes}, l); d != "" {
		t.Fatal(d)
	}
	got, err := s.Events(ctx, "n1", 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want[1:3], got); d != "" {
		t.Fatal(d)
	}
	_, err = s.Load(ctx, "nobody")
	wantCode(t, err, notebook.NotFound)
}

func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	create(t, s, "n1")
	for name, c := range map[string]struct {
		id   notebook.ID
		b    notebook.Batch
		code notebook.Code
	}{
		"gap":             {"n1", notebook.Batch{Events: evs(3, notebook.Renamed{Title: "x"})}, notebook.Conflict},
		"again":           {"n1", notebook.Batch{Events: evs(1, notebook.Created{Title: "x"})}, notebook.Conflict},
		"gap inside":      {"n1", notebook.Batch{Events: append(evs(2, notebook.Renamed{}), evs(4, notebook.Renamed{})...)}, notebook.Conflict},
		"zero":            {"n1", notebook.Batch{Events: evs(0, notebook.Renamed{})}, notebook.Conflict},
		"unknown":         {"n2", notebook.Batch{Events: evs(2, notebook.Renamed{})}, notebook.NotFound},
		"unknown, cursor": {"n2", notebook.Batch{Cursor: &notebook.Cursor{}}, notebook.NotFound},
		"unknown, empty":  {"n2", notebook.Batch{}, notebook.NotFound},
		"not created":     {"n2", notebook.Batch{Events: evs(1, notebook.Renamed{})}, notebook.Conflict},
		"no id":           {"", notebook.Batch{Events: evs(1, notebook.Created{})}, notebook.Invalid},
		"no key":          {"n1", notebook.Batch{Receipt: &notebook.Receipt{}}, notebook.Invalid},
		"cursor":          {"n1", notebook.Batch{Cursor: &notebook.Cursor{Seq: 1 << 63}}, notebook.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantCode(t, s.Append(t.Context(), c.id, c.b), c.code)
		})
	}
	t.Run("nothing changed", func(t *testing.T) {
		got, err := s.Events(t.Context(), "n1", 0, 10)
		if err != nil || len(got) != 1 {
			t.Fatalf("%d events, %v", len(got), err)
		}
	})
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 100_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			s := open(t, Options{})
			src := make([]byte, size)
			for i := range src {
				src[i] = "abcdefgh\n"[i%9]
			}
			create(t, s, "n1", notebook.CellInserted{Cell: "c1", Kind: notebook.CodeCell, Source: string(src)})
			first, err := s.Load(t.Context(), "n1")
			if err != nil {
				t.Fatal(err)
			}
			state := notebook.New("n1")
			for _, e := range first.Events {
				state = notebook.Apply(state, e)
			}
			if err := s.Save(t.Context(), state); err != nil {
				t.Fatal(err)
			}
			later := evs(3, notebook.Renamed{Title: "x"})
			appendTo(t, s, "n1", notebook.Batch{Events: later})
			l, err := s.Load(t.Context(), "n1")
			if err != nil {
				t.Fatal(err)
			}
			if l.Bytes <= first.Bytes || first.Bytes < int64(size) {
				t.Errorf("the log takes %d bytes, and %d later", first.Bytes, l.Bytes)
			}
			l.Bytes = 0
			if d := cmp.Diff(notebook.Loaded{State: &state, Events: later}, l); d != "" {
				t.Fatal(d)
			}
			state.Seq = 9
			wantCode(t, s.Save(t.Context(), state), notebook.Conflict)
			state.ID = "n2"
			wantCode(t, s.Save(t.Context(), state), notebook.NotFound)
		})
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, Options{})
	for i := range 7 {
		id := notebook.ID(fmt.Sprintf("n%d", i))
		create(t, s, id, notebook.CellInserted{Cell: "c1", Kind: notebook.CodeCell, Source: fmt.Sprintf("import Thing%d\n%%_'", i)})
	}
	var seen []string
	for q := (ListQuery{Limit: 3}); ; {
		p, err := s.List(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range p.Notebooks {
			seen = append(seen, string(n.ID))
		}
		if q.Cursor = p.Next; q.Cursor == "" {
			break
		}
	}
	if d := cmp.Diff([]string{"n6", "n5", "n4", "n3", "n2", "n1", "n0"}, seen); d != "" {
		t.Fatal(d)
	}
	count := func(q ListQuery) int {
		t.Helper()
		p, err := s.List(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return len(p.Notebooks)
	}
	for search, want := range map[string]int{"thing3": 1, "TITLE OF": 7, "%_'": 7, "_t": 0, "nothing": 0, "": 7} {
		if got := count(ListQuery{Search: search}); got != want {
			t.Errorf("search %q finds %d, want %d", search, got, want)
		}
	}
	_, err := s.List(ctx, ListQuery{Cursor: "zzz"})
	wantCode(t, err, notebook.Invalid)

	// The state's side of the list.
	l, err := s.Load(ctx, "n3")
	if err != nil {
		t.Fatal(err)
	}
	st := notebook.New("n3")
	for _, e := range append(l.Events, evs(3,
		notebook.Renamed{Title: "Three"}, notebook.CellDeleted{Cell: "c1"},
		notebook.CellInserted{Cell: "c2", Kind: notebook.MarkdownCell, Source: "\n# Head\na\nb\nc"},
		notebook.KernelReady{Gen: 1})...) {
		st = notebook.Apply(st, e)
	}
	appendTo(t, s, "n3", notebook.Batch{Events: evs(3,
		notebook.Renamed{Title: "Three"}, notebook.CellDeleted{Cell: "c1"},
		notebook.CellInserted{Cell: "c2", Kind: notebook.MarkdownCell, Source: "\n# Head\na\nb\nc"},
		notebook.KernelReady{Gen: 1}), State: &st})
	got, err := s.Summary(ctx, "n3")
	if err != nil {
		t.Fatal(err)
	}
	want := Summary{
		ID: "n3", Title: "Three", Language: "python", Seq: 6, Created: t0.Add(time.Second), Updated: t0.Add(5 * time.Second),
		Kernel: notebook.Ready, Cells: 1, Preview: "# Head\na\nb",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if n := count(ListQuery{Search: "thing3"}); n != 0 {
		t.Error("a deleted cell is still found")
	}
	ids, err := s.WithSandbox(ctx)
	if d := cmp.Diff([]notebook.ID{"n3"}, ids); d != "" || err != nil {
		t.Fatal(d, err)
	}
}

func TestReceipts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, Options{})
	create(t, s, "n1")
	r := notebook.Receipt{Actor: "ann", Key: "k", Hash: "h", First: 2, Last: 2, IDs: []string{"r1", "r2"}}
	if _, ok, err := s.Done(ctx, "n1", "ann", "k"); ok || err != nil {
		t.Fatal(ok, err)
	}
	appendTo(t, s, "n1", notebook.Batch{Events: evs(2, notebook.Renamed{Title: "x"}), Receipt: &r})
	got, ok, err := s.Done(ctx, "n1", "ann", "k")
	if d := cmp.Diff(r, got); d != "" || !ok || err != nil {
		t.Fatal(d, ok, err)
	}
	if _, ok, _ := s.Done(ctx, "n1", "bob", "k"); ok {
		t.Fatal("another actor's key was found")
	}
	err = s.Append(ctx, "n1", notebook.Batch{Events: evs(3, notebook.Renamed{Title: "y"}), Receipt: &r})
	wantCode(t, err, notebook.Conflict)
	if all, _ := s.Events(ctx, "n1", 0, 10); len(all) != 2 {
		t.Fatalf("the refused batch left %d events", len(all))
	}
}
