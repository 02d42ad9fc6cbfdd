package sessionstore

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"sandbook/kernel/notebook"
	"sandbook/migrations"
)

// filled makes a data folder with a closed database in it.
func filled(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Options{Dir: dir})
	create(t, s, "n1", notebook.CellInserted{Cell: "c1", Kind: notebook.CodeCell, Source: strings.Repeat("print(1)\n", 20_000)})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// refused opens a folder that must be refused with a sentence.
func refused(t *testing.T, o Options, code notebook.Code, says ...string) error {
	t.Helper()
	o.NoMaintenance = true
	s, err := Open(t.Context(), o)
	if err == nil {
		_ = s.Close()
		t.Fatal("it was opened")
	}
	wantCode(t, err, code)
	msg := notebook.MessageOf(err)
	for _, want := range append(says, ".") {
		if !strings.Contains(msg, want) {
			t.Fatalf("message %q lacks %q", msg, want)
		}
	}
	return err
}

func TestFolderIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a b?c%20#d")
	s := open(t, Options{Dir: dir, Reserve: 1 << 20})
	create(t, s, "n1")
	fi, err := os.Stat(dir)
	if err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatal(fi.Mode(), err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, n := range names {
		fi, err := n.Info()
		if err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", n.Name(), fi.Mode(), err)
		}
		seen[n.Name()] = true
	}
	for _, want := range []string{dbName, dbName + "-wal", dbName + "-shm", lockName, ballastName} {
		if !seen[want] {
			t.Errorf("there is no %s", want)
		}
	}

	open0755 := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open0755, 0o755); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Dir: open0755}) // empty: tightened
	if fi, err := os.Stat(open0755); err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatal(fi.Mode(), err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "mine.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(other, 0o755); err != nil {
		t.Fatal(err)
	}
	refused(t, Options{Dir: other}, notebook.Denied, "chmod 700")
	refused(t, Options{}, notebook.Invalid)
	refused(t, Options{Dir: filepath.Join(other, "mine.txt")}, notebook.Invalid, "is a file")
}

func TestEveryConnectionIsSetUp(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Readers: 3})
	for i := range 3 {
		c, err := s.reads.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for pragma, want := range map[string]string{
			"journal_mode": "wal", "synchronous": "1", "foreign_keys": "1", "busy_timeout": "5000", "query_only": "1",
		} {
			var got string
			if err := c.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("reader %d: %s = %s, %v", i, pragma, got, err)
			}
		}
	}
	for _, v := range []struct {
		a, b string
		less bool
	}{{"3.51.2", "3.51.3", true}, {"3.51.3", "3.51.3", false}, {"3.9.0", "3.51.3", true}, {"4.0", "3.51.3", false}, {"x", "3.51.3", true}} {
		if versionLess(v.a, v.b) != v.less {
			t.Errorf("versionLess(%s, %s) is not %v", v.a, v.b, v.less)
		}
	}
}

// L11: two servers on one database.
func TestSecondServerIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Options{Dir: dir})
	create(t, s, "n1")
	refused(t, Options{Dir: dir}, notebook.Conflict, "Another server (process ", dir)
	appendTo(t, s, "n1", notebook.Batch{Events: evs(2, notebook.Renamed{Title: "still ours"})})

	// On a file system where locks do not work, the fence still holds.
	if _, err := s.w.conn.ExecContext(t.Context(), "UPDATE instance SET fence = fence + 1"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := s.Append(t.Context(), "n1", notebook.Batch{Events: evs(3, notebook.Renamed{Title: "late"})})
		wantCode(t, err, notebook.Unavailable)
		if !strings.Contains(notebook.MessageOf(err), "taken over") {
			t.Fatal(err)
		}
	}
	if got, err := s.Events(t.Context(), "n1", 0, 10); len(got) != 2 || err != nil {
		t.Fatal(len(got), err)
	}
}

// L14: whatever is wrong with the files, the start is refused, the way out is
// said, and nothing is touched.
func TestDamageIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, path string, at int64, p []byte) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(p, at); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	junk := bytes.Repeat([]byte("junk"), 1024)
	for name, hurt := range map[string]func(t *testing.T, db string){
		"bad header":        func(t *testing.T, db string) { write(t, db, 0, junk[:16]) },
		"garbage":           func(t *testing.T, db string) { write(t, db, 0, bytes.Repeat(junk, 20)) },
		"page of garbage":   func(t *testing.T, db string) { write(t, db, 8*pageSize, junk) },
		"schema of garbage": func(t *testing.T, db string) { write(t, db, 100, junk[:8]) },
		"zero length": func(t *testing.T, db string) {
			if err := os.Truncate(db, 0); err != nil {
				t.Fatal(err)
			}
		},
		"cut": func(t *testing.T, db string) {
			if err := os.Truncate(db, 5*pageSize); err != nil {
				t.Fatal(err)
			}
		},
		"garbage in the journal": func(t *testing.T, db string) { write(t, db+"-wal", 0, junk) },
		"stub of a journal":      func(t *testing.T, db string) { write(t, db+"-wal", 0, junk[:7]) },
		"missing, with journal": func(t *testing.T, db string) {
			write(t, db+"-wal", 0, junk)
			if err := os.Remove(db); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filled(t)
			hurt(t, filepath.Join(dir, dbName))
			before := contents(t, dir)
			for range 2 { // the second time shows that the lock was given up
				refused(t, Options{Dir: dir}, notebook.Unavailable, "Nothing was changed or deleted.", "no backup")
			}
			after := contents(t, dir)
			for name, sum := range before {
				if after[name] != sum {
					t.Errorf("%s was changed", name)
				}
			}
			backup := filepath.Join(dir, backupDir, "b.db")
			write2(t, backup)
			refused(t, Options{Dir: dir}, notebook.Unavailable, "newest backup is "+backup)
		})
	}
}

func write2(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// contents hashes the files SQLite has to do with.
func contents(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	sums := map[string][32]byte{}
	for _, n := range []string{dbName, dbName + "-wal"} {
		p, err := os.ReadFile(filepath.Join(dir, n))
		if err == nil {
			sums[n] = sha256.Sum256(p)
		}
	}
	return sums
}

func TestMissingSharedMemoryIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := filled(t)
	for _, n := range []string{dbName + "-shm", dbName + "-wal"} {
		if err := os.Remove(filepath.Join(dir, n)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	s := open(t, Options{Dir: dir})
	if _, err := s.Load(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
}

func TestCrashWhileCreating(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	write2(t, filepath.Join(dir, dbName+".new"))
	create(t, open(t, Options{Dir: dir}), "n1")
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	dir := filled(t)
	execRaw(t, dir, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)")
	refused(t, Options{Dir: dir}, notebook.Conflict, "schema 999", "newer version")
}

func TestForeignDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	execRaw(t, dir, "CREATE TABLE recipes (id INTEGER)")
	refused(t, Options{Dir: dir}, notebook.Invalid, "another program")
}

func execRaw(t *testing.T, dir, stmt string) {
	t.Helper()
	pool, err := sql.Open("sqlite", dsn(filepath.Join(dir, dbName)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.ExecContext(t.Context(), stmt); err != nil {
		t.Fatal(err)
	}
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}
}

// steps is the product's schema and one more step.
func steps(t *testing.T, extra string) fs.FS {
	t.Helper()
	m := fstest.MapFS{"9000_extra.sql": {Data: []byte("-- +goose Up\n" + extra)}}
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		p, err := fs.ReadFile(migrations.FS, n)
		if err != nil {
			t.Fatal(err)
		}
		m[n] = &fstest.MapFile{Data: p}
	}
	return m
}

// L18: a step that fails halfway changes nothing, and works once it is mended;
// before it runs there is a backup.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	dir := filled(t)
	_, err := Open(t.Context(), Options{Dir: dir, NoMaintenance: true, steps: steps(t, "CREATE TABLE extra (a INTEGER) STRICT;\nINSERT INTO nowhere VALUES (1);\n")})
	if err == nil || !strings.Contains(err.Error(), "upgrade schema") {
		t.Fatal(err)
	}
	s := open(t, Options{Dir: dir}) // the version before still works
	if _, err := s.Load(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir, steps: steps(t, "CREATE TABLE extra (a INTEGER) STRICT;\n")})
	st, err := s.Stats(t.Context())
	if err != nil || st.Schema != 9000 {
		t.Fatal(st.Schema, err)
	}
	if _, err := s.Load(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	if newestBackup(filepath.Join(dir, backupDir)) == "" {
		t.Fatal("there is no backup from before the upgrade")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	refused(t, Options{Dir: dir}, notebook.Conflict, "schema 9000")
}
