package sessionstore

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandbook/kernel/notebook"

	"golang.org/x/sys/unix"
)

// L12: a full disk is said in words, what is there can be read, the reserve
// lets runs end, and everything goes on once there is room, without a restart.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(mount, "data")
	s := open(t, Options{Dir: dir, Reserve: 1 << 20})
	create(t, s, "n1")
	filler := filepath.Join(mount, "filler")
	if err := os.WriteFile(filler, make([]byte, 700<<10), 0o600); err != nil {
		t.Fatal(err)
	}

	seq := int64(2)
	add := func(size int) error {
		err := s.Append(t.Context(), "n1", notebook.Batch{Events: evs(seq, notebook.StreamAppended{Run: "r", Name: "stdout", Text: strings.Repeat("x", size)})})
		if err == nil {
			seq++
		}
		return err
	}
	reserve := filepath.Join(dir, ballastName)
	there := func() bool { _, err := os.Stat(reserve); return err == nil }
	if !there() {
		t.Fatal("there is no reserve")
	}
	var err error
	spent := int64(0)
	for err == nil && seq < 1000 {
		if err = add(32 << 10); err == nil && !there() && spent == 0 {
			spent = seq
		}
	}
	wantCode(t, err, notebook.Unavailable)
	if !strings.HasPrefix(notebook.MessageOf(err), "The disk is full") {
		t.Fatal(err)
	}
	if spent == 0 {
		t.Error("the reserve was not given up before the disk was full")
	}
	st, err := s.Stats(t.Context())
	if err != nil || !st.DiskFull {
		t.Fatalf("disk full: %v, %v", st.DiskFull, err)
	}
	if _, _, err := s.PutBlob(t.Context(), bytes.NewReader(randomBytes(1, 300_000)), 1<<30); notebook.CodeOf(err) != notebook.Unavailable {
		t.Fatal(err)
	}
	l, err := s.Load(t.Context(), "n1")
	if err != nil || int64(len(l.Events)) != seq-1 {
		t.Fatalf("%d events of %d, %v", len(l.Events), seq-1, err)
	}

	// Room again.
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := add(32 << 10); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := s.Stats(t.Context()); err != nil || st.DiskFull {
		t.Fatalf("disk full: %v, %v", st.DiskFull, err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err = s.Load(t.Context(), "n1")
	if err != nil || int64(len(l.Events)) != seq-1 {
		t.Fatalf("%d events of %d, %v", len(l.Events), seq-1, err)
	}
	if err := s.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// L16: the write-ahead log stays small, and a reader that held it up does so
// only as long as it reads.
func TestWriteAheadLogIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	create(t, s, "n1")
	seq := int64(2)
	write := func(mib int) {
		t.Helper()
		for range mib * 16 {
			appendTo(t, s, "n1", notebook.Batch{Events: evs(seq, notebook.StreamAppended{Run: "r", Name: "stdout", Text: strings.Repeat("x", 64<<10)})})
			seq++
		}
	}
	wal := func() int64 {
		t.Helper()
		fi, err := os.Stat(filepath.Join(s.dir, dbName+"-wal"))
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	write(12)
	if n := wal(); n > 8<<20 {
		t.Fatalf("the log has %d bytes after 12 MiB", n)
	}
	tx, err := s.reads.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM notebooks").Scan(&n); err != nil {
		t.Fatal(err)
	}
	write(12)
	if n := wal(); n < 10<<20 {
		t.Fatalf("the reader did not hold the log up: %d bytes", n)
	}
	if err := s.w.checkpoint(t.Context()); err != nil { // cannot, and does not wait for long
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	held := wal()
	write(12)
	if n := wal(); n > held+8<<20 {
		t.Fatalf("the log went on growing: %d bytes after %d", n, held)
	}
	if err := s.w.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := wal(); n != 0 {
		t.Fatalf("the log has %d bytes after a checkpoint", n)
	}
}
