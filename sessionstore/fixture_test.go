package sessionstore

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/migrations"

	"github.com/google/go-cmp/cmp"
)

// A fixture testdata/schema-NNNN.sql is the dump of a database of that schema,
// with data in it, written once by -update when the schema is new and never
// again. Every later version must open each of them and find all of the data.

// fixtureData is what every fixture holds.
func fixtureData(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	create(t, s, "n1",
		notebook.CellInserted{Cell: "c1", Kind: notebook.CodeCell, Source: "print('hä')"},
		notebook.CellInserted{Cell: "c2", After: "c1", Kind: notebook.MarkdownCell, Source: "# it's"},
	)
	create(t, s, "n2")
	hash, _, err := s.PutBlob(ctx, strings.NewReader("a plot"), 100)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Load(ctx, "n1")
	if err != nil {
		t.Fatal(err)
	}
	st := notebook.New("n1")
	for _, e := range l.Events {
		st = notebook.Apply(st, e)
	}
	if err := s.Save(ctx, st); err != nil {
		t.Fatal(err)
	}
	more := evs(4,
		notebook.RunQueued{Run: "r1", Cell: "c1", Source: "print('hä')", SHA256: "ab", Batch: "b1"},
		notebook.RunSent{Run: "r1", Gen: 1, Count: 1},
		notebook.StreamAppended{Run: "r1", Name: "stdout", Text: "hä\n"},
		notebook.OutputAdded{Run: "r1", Output: notebook.Output{Kind: notebook.DisplayOutput, Data: map[string]notebook.Value{"image/png": {Blob: hash, Size: 6}}}},
		notebook.RunEnded{Run: "r1", Status: notebook.OK, WallMS: 12, CPUMS: 3, PeakMemory: 4096},
		notebook.FilesChanged{Run: "r1", Files: notebook.Files{Changed: []notebook.File{{Path: "plot.png", Size: 6, Blob: hash, MIME: "image/png", Width: 2, Height: 3}}}})
	for _, e := range more {
		st = notebook.Apply(st, e)
	}
	appendTo(t, s, "n1", notebook.Batch{
		Events: more, State: &st, Cursor: &notebook.Cursor{Boot: 1, Seq: 9},
		Receipt: &notebook.Receipt{Actor: "ann", Key: "k", Hash: "h", First: 4, Last: 9, IDs: []string{"r1"}},
	})
	if err := s.CreateToken(ctx, Token{ID: "j1", Kind: notebook.Agent, Subject: "agent:a", Name: "a", Scopes: []string{"read", "run"}, Expires: t0.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeToken(ctx, "j1"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSetting(ctx, installSetting, "0123456789abcdef"); err != nil {
		t.Fatal(err)
	}
}

// fixtureWants checks the data through the present API.
func fixtureWants(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	l, err := s.Load(ctx, "n1")
	if err != nil {
		t.Fatal(err)
	}
	st := notebook.New("n1")
	if l.State != nil {
		st = *l.State
	}
	for _, e := range l.Events {
		st = notebook.Apply(st, e)
	}
	if st.Seq != 9 || len(st.Cells) != 2 || st.Cells[0].Source != "print('hä')" || st.Runs["r1"].Status != notebook.OK || l.Cursor.Seq != 9 {
		t.Errorf("state is %+v, cursor %+v", st, l.Cursor)
	}
	page, err := s.List(ctx, ListQuery{Search: "# it's"})
	if err != nil || len(page.Notebooks) != 1 || page.Notebooks[0].Cells != 2 {
		t.Errorf("list is %+v, %v", page, err)
	}
	runs, err := s.Runs(ctx, RunsQuery{Notebook: "n1"})
	if err != nil || len(runs) != 1 || runs[0].WallMS != 12 || runs[0].Source != "print('hä')" {
		t.Errorf("runs are %+v, %v", runs, err)
	}
	if got := output(t, s, "n1", "r1", ""); got != "hä\n" {
		t.Errorf("output is %q", got)
	}
	files, err := s.Artifacts(ctx, "n1", "r1")
	if err != nil || len(files) != 1 || files[0].Path != "plot.png" || files[0].Width != 2 {
		t.Errorf("artifacts are %+v, %v", files, err)
	} else {
		checkBlob(t, s, files[0].Blob)
		if ok, err := s.Names(ctx, "n1", files[0].Blob); !ok || err != nil {
			t.Errorf("blob is not named: %v", err)
		}
	}
	if _, ok, err := s.Done(ctx, "n1", "ann", "k"); !ok || err != nil {
		t.Errorf("receipt: %v %v", ok, err)
	}
	if !s.Revoked("j1") {
		t.Error("a revoked token works again")
	}
	if id, err := s.InstallID(ctx); id != "0123456789abcdef" || err != nil {
		t.Errorf("install id %q, %v", id, err)
	}
	appendTo(t, s, "n1", notebook.Batch{Events: evs(10, notebook.Renamed{Title: "goes on"})})
	if err := s.Check(ctx); err != nil {
		t.Error(err)
	}
}

func TestUpgradeFromEveryRelease(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Now: func() time.Time { return t0 }})
	_, wants, err := schema(t.Context(), s.w.pool, s.reads, migrations.FS)
	if err != nil {
		t.Fatal(err)
	}
	newest := filepath.Join("testdata", fmt.Sprintf("schema-%04d.sql", wants))
	if _, err := os.Stat(newest); err != nil {
		if !*update {
			t.Fatalf("there is no fixture for schema %d; run with -update", wants)
		}
		fixtureData(t, s)
		if err := os.WriteFile(newest, dump(t, s.reads), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fixtures, err := filepath.Glob("testdata/schema-*.sql")
	if err != nil || len(fixtures) == 0 {
		t.Fatal("no fixtures", err)
	}
	for _, f := range fixtures {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			script, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			execRaw(t, dir, string(script))
			fixtureWants(t, open(t, Options{Dir: dir}))
		})
	}
}

// dump writes a database as SQL.
func dump(t *testing.T, pool *sql.DB) []byte {
	t.Helper()
	ctx := context.Background()
	var b bytes.Buffer
	query := func(q string, args ...any) (rows []string) {
		rs, err := pool.QueryContext(ctx, q, args...)
		if err != nil {
			t.Fatal(err)
		}
		defer rs.Close()
		for rs.Next() {
			var s string
			if err := rs.Scan(&s); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, s)
		}
		if err := rs.Err(); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	for _, s := range query("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type = 'index', rowid") {
		b.WriteString(s + ";\n")
	}
	for _, table := range query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid") {
		cols := query("SELECT name FROM pragma_table_info(?) ORDER BY cid", table)
		for _, row := range query("SELECT quote(" + strings.Join(cols, ")||', '||quote(") + ") FROM " + table) {
			fmt.Fprintf(&b, "INSERT INTO %s (%s) VALUES (%s);\n", table, strings.Join(cols, ", "), row)
		}
	}
	return b.Bytes()
}

func TestFixtureDataIsWhatIsChecked(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Now: func() time.Time { return t0 }})
	fixtureData(t, s)
	fixtureWants(t, s)
	if d := cmp.Diff(true, bytes.Contains(dump(t, s.reads), []byte("goose_db_version"))); d != "" {
		t.Error(d)
	}
}
