package sessionstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"sandbook/kernel/notebook"

	"github.com/google/go-cmp/cmp"
)

// L03: the same key fifty times at once is done once, now and after a restart.
func TestSameKeyFiftyTimesIsDoneOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Options{Dir: dir})
	create(t, s, "n1")
	var done atomic.Int64
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			r := notebook.Receipt{Actor: "ann", Key: "k", Hash: "h", First: 2, Last: 2, IDs: []string{fmt.Sprint(i)}}
			switch err := s.Append(t.Context(), "n1", notebook.Batch{Events: evs(2, notebook.Renamed{Title: fmt.Sprint(i)}), Receipt: &r}); notebook.CodeOf(err) {
			case "":
				done.Add(1)
			case notebook.Conflict:
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if done.Load() != 1 {
		t.Fatalf("done %d times", done.Load())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir})
	r, ok, err := s.Done(t.Context(), "n1", "ann", "k")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	got, err := s.Events(t.Context(), "n1", 1, 10)
	if err != nil || len(got) != 1 {
		t.Fatal(len(got), err)
	}
	if d := cmp.Diff(notebook.Body(notebook.Renamed{Title: r.IDs[0]}), got[0].Body); d != "" {
		t.Fatal(d)
	}
}

// Writes of others that share a transaction with a refused one are done.
func TestRefusedWriteDoesNotHurtOthers(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	const n = 40
	for i := range n {
		create(t, s, notebook.ID(fmt.Sprintf("n%d", i)))
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			seq := int64(2 + i%2*5) // every other one leaves a gap
			err := s.Append(t.Context(), notebook.ID(fmt.Sprintf("n%d", i)), notebook.Batch{Events: evs(seq, notebook.Renamed{Title: "x"})})
			if want := map[int]notebook.Code{0: "", 1: notebook.Conflict}[i%2]; notebook.CodeOf(err) != want {
				t.Errorf("n%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		got, err := s.Events(t.Context(), notebook.ID(fmt.Sprintf("n%d", i)), 0, 10)
		if err != nil || len(got) != 2-i%2 {
			t.Errorf("n%d: %d events, %v", i, len(got), err)
		}
	}
}

func TestCancelledWriteAndClose(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	create(t, s, "n1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Append(ctx, "n1", notebook.Batch{Events: evs(2, notebook.Renamed{Title: "x"})})
	got, lerr := s.Events(t.Context(), "n1", 0, 10)
	if lerr != nil {
		t.Fatal(lerr)
	}
	if written := len(got) == 2; written != (err == nil) || err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, but %d events", err, len(got))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.Append(t.Context(), "n1", notebook.Batch{Events: evs(int64(len(got))+1, notebook.Renamed{})}), notebook.Unavailable)
}

// Appends that race with Close are either durable or refused.
func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Options{Dir: dir})
	var acked [8]int64
	started := make(chan struct{}, len(acked))
	var wg sync.WaitGroup
	for i := range acked {
		id := notebook.ID(fmt.Sprintf("n%d", i))
		create(t, s, id)
		wg.Go(func() {
			for seq := int64(2); ; seq++ {
				err := s.Append(context.Background(), id, notebook.Batch{Events: evs(seq, notebook.Renamed{Title: "x"})})
				if err != nil {
					if notebook.CodeOf(err) != notebook.Unavailable {
						t.Error(err)
					}
					return
				}
				if acked[i] = seq; seq == 20 {
					started <- struct{}{}
				}
			}
		})
	}
	for range acked {
		<-started
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	s = open(t, Options{Dir: dir})
	for i, want := range acked {
		got, err := s.Events(t.Context(), notebook.ID(fmt.Sprintf("n%d", i)), 0, 1<<30)
		if err != nil || int64(len(got)) != want {
			t.Errorf("n%d: %d events of %d, %v", i, len(got), want, err)
		}
	}
}

func output(t *testing.T, s *Store, id notebook.ID, run notebook.RunID, stream string) string {
	t.Helper()
	r, err := s.RunOutput(t.Context(), id, run, stream)
	if err != nil {
		t.Fatal(err)
	}
	p, err := io.ReadAll(iotest.OneByteReader(r))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return string(p)
}

func TestRuns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, Options{})
	create(t, s, "n1")
	seq := int64(2)
	add := func(bodies ...notebook.Body) {
		t.Helper()
		appendTo(t, s, "n1", notebook.Batch{Events: evs(seq, bodies...)})
		seq += int64(len(bodies))
	}
	var want strings.Builder
	for i, run := range []notebook.RunID{"r1", "r2", "r3"} {
		cell := notebook.CellID([]string{"c1", "c2", "c1"}[i])
		add(notebook.RunQueued{Run: run, Cell: cell, Source: "src of " + string(run), SHA256: "h", Batch: "b", TimeoutMS: 5},
			notebook.RunSent{Run: run, Gen: 2, Count: i + 1})
	}
	for i := range 100 {
		add(notebook.StreamAppended{Run: "r1", Name: "stdout", Text: fmt.Sprintf("line %d\n", i)},
			notebook.StreamAppended{Run: "r2", Name: "stdout", Text: "other"},
			notebook.StreamAppended{Run: "r1", Name: "stderr", Text: "e"},
			notebook.StreamAppended{Run: "r1", Name: "stdout", Text: ""})
		fmt.Fprintf(&want, "line %d\n", i)
	}
	add(notebook.StreamOmitted{Run: "r1", Name: "stdout", Bytes: 1000, Lines: 10, Tail: "last\n"},
		notebook.RunEnded{Run: "r1", Status: notebook.Failed, Reason: "why", EName: "E", EValue: "v", WallMS: 1, CPUMS: 2, PeakMemory: 3},
		notebook.StreamAppended{Run: "r1", Name: "stdout", Text: "late\n", Background: true})
	want.WriteString("\n… 995 bytes in 10 lines were printed here and not kept …\nlast\nlate\n")

	if d := cmp.Diff(want.String(), output(t, s, "n1", "r1", "stdout")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(strings.Repeat("e", 100), output(t, s, "n1", "r1", "stderr")); d != "" {
		t.Error(d)
	}
	if got := output(t, s, "n1", "r3", ""); got != "" {
		t.Errorf("output is %q", got)
	}
	_, err := s.RunOutput(ctx, "n1", "nope", "stdout")
	wantCode(t, err, notebook.NotFound)

	ids := func(q RunsQuery) (ids []notebook.RunID) {
		t.Helper()
		runs, err := s.Runs(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		return ids
	}
	if d := cmp.Diff([]notebook.RunID{"r3", "r2", "r1"}, ids(RunsQuery{Notebook: "n1"})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]notebook.RunID{"r3", "r1"}, ids(RunsQuery{Notebook: "n1", Cell: "c1"})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]notebook.RunID{"r1"}, ids(RunsQuery{Notebook: "n1", Cell: "c1", Before: 5, Limit: 1})); d != "" {
		t.Error(d)
	}
	r, err := s.Run(ctx, "n1", "r1")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(RunRecord{Seq: 2, Run: notebook.Run{
		ID: "r1", Cell: "c1", Source: "src of r1", SHA256: "h", By: ann, Batch: "b", TimeoutMS: 5,
		Status: notebook.Failed, Reason: "why", EName: "E", EValue: "v", Queued: t0.Add(2 * time.Second), Started: t0.Add(3 * time.Second),
		Ended: t0.Add(409 * time.Second), WallMS: 1, CPUMS: 2, PeakMemory: 3, Count: 1, Gen: 2,
	}}, r); d != "" {
		t.Error(d)
	}
}

func TestBlobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, Options{})
	for _, size := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 3*chunkSize + 5} {
		p := randomBytes(uint64(size), size)
		var hash string
		for range 2 {
			h, n, err := s.PutBlob(ctx, bytes.NewReader(p), int64(size))
			if err != nil || n != int64(size) {
				t.Fatal(size, n, err)
			}
			hash = h
		}
		checkBlob(t, s, hash)
		r, n, err := s.OpenBlob(ctx, hash)
		if err != nil || n != int64(size) {
			t.Fatal(n, err)
		}
		if err := iotest.TestReader(r, p); err != nil {
			t.Fatal(size, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 1)); err == nil {
			t.Fatal("a closed blob can be read")
		}
		if size > 0 {
			_, _, err = s.PutBlob(ctx, bytes.NewReader(append(p, 1)), int64(size))
			wantCode(t, err, notebook.TooLarge)
		}
	}
	broken := io.MultiReader(bytes.NewReader(randomBytes(9, 3*chunkSize)), iotest.ErrReader(errors.New("gone")))
	if _, _, err := s.PutBlob(ctx, broken, 1<<30); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Fatal(err)
	}
	var blobs, chunks int
	if err := s.reads.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM blobs), (SELECT COUNT(*) FROM blob_chunks)").Scan(&blobs, &chunks); err != nil || blobs != 6 || chunks != 1+1+1+2+4 {
		t.Fatal(blobs, chunks, err)
	}
	var sum int64
	if err := s.reads.QueryRowContext(ctx, "SELECT SUM(size) FROM blobs").Scan(&sum); err != nil {
		t.Fatal(err)
	}
	if n, _ := s.BlobBytes(ctx); n != sum {
		t.Fatalf("counted %d bytes, there are %d", n, sum)
	}
	_, _, err := s.OpenBlob(ctx, "nope")
	wantCode(t, err, notebook.NotFound)
	if ok, err := s.HasBlob(ctx, "nope"); ok || err != nil {
		t.Fatal(ok, err)
	}
}

// The same bytes put by many at once are stored once.
func TestSameBlobAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	p := randomBytes(1, 2*chunkSize)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, _, err := s.PutBlob(context.Background(), bytes.NewReader(p), 1<<30); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var blobs, chunks int
	if err := s.reads.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM blobs), (SELECT COUNT(*) FROM blob_chunks)").Scan(&blobs, &chunks); err != nil || blobs != 1 || chunks != 2 {
		t.Fatal(blobs, chunks, err)
	}
	if n, _ := s.BlobBytes(t.Context()); n != int64(len(p)) {
		t.Fatal(n)
	}
}

// zeros brings n bytes that are not all the same.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	for i := range p[:n] {
		p[i] = byte(z.left >> 12)
	}
	z.left -= n
	return int(n), nil
}

// 200 MB pass through without being held.
func TestLargeBlobKeepsMemoryFlat(t *testing.T) { // not parallel: it measures the heap
	if testing.Short() {
		t.Skip("200 MB take some seconds; -short leaves them out")
	}
	s := open(t, Options{})
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() {
		var high uint64
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				peak <- high
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				high = max(high, m.HeapInuse)
			}
		}
	}()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	hash, n, err := s.PutBlob(t.Context(), &zeros{200e6}, 1<<30)
	if err != nil || n != 200e6 {
		t.Fatal(n, err)
	}
	checkBlob(t, s, hash)
	close(stop)
	if grew := int64(<-peak) - int64(before.HeapInuse); grew > 40<<20 {
		t.Fatalf("the heap grew by %d bytes", grew)
	} else {
		t.Logf("the heap grew by at most %d KiB", grew>>10)
	}
}

func TestCollectBlobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var now atomic.Int64
	now.Store(t0.UnixMilli())
	s := open(t, Options{Now: func() time.Time { return time.UnixMilli(now.Load()) }})
	put := func(n uint64) string {
		t.Helper()
		h, _, err := s.PutBlob(ctx, bytes.NewReader(randomBytes(n, 2*chunkSize)), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	shown, updated, file, loose, again := put(1), put(2), put(3), put(4), put(5)
	create(t, s, "n1",
		notebook.OutputAdded{Run: "r", Output: notebook.Output{Data: map[string]notebook.Value{"image/png": {Blob: shown}}}},
		notebook.OutputUpdated{DisplayID: "d", Data: map[string]notebook.Value{"image/png": {Blob: updated}, "text/plain": {Text: "x"}}},
		notebook.FilesChanged{Run: "r", Files: notebook.Files{Changed: []notebook.File{{Path: "a", Blob: file}, {Path: "b"}}}},
		notebook.NotebookDeleted{})
	gone := func(want int) {
		t.Helper()
		n, freed, err := s.CollectBlobs(ctx)
		if err != nil || n != want || freed != int64(want)*2*chunkSize {
			t.Fatal(n, freed, err)
		}
	}
	gone(0) // too young
	now.Add(2 * time.Hour.Milliseconds())
	put(5) // young again
	gone(1)
	for hash, want := range map[string]bool{shown: true, updated: true, file: true, again: true, loose: false} {
		if ok, err := s.HasBlob(ctx, hash); ok != want || err != nil {
			t.Fatal(hash, ok, err)
		}
	}
	if ok, err := s.Names(ctx, "n1", shown); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := s.Names(ctx, "n2", shown); ok || err != nil {
		t.Fatal(ok, err)
	}
	if n, err := s.NotebookBlobBytes(ctx, "n1"); n != 3*2*chunkSize || err != nil {
		t.Fatal(n, err)
	}

	// With the notebook its blobs go.
	now.Add(TrashTTL.Milliseconds())
	if err := s.Maintain(ctx); err != nil {
		t.Fatal(err)
	}
	if n, _ := s.BlobBytes(ctx); n != 0 {
		t.Fatalf("%d bytes are left", n)
	}
	_, err := s.Load(ctx, "n1")
	wantCode(t, err, notebook.NotFound)
	var rows int
	if err := s.reads.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM events) + (SELECT COUNT(*) FROM blob_refs) + (SELECT COUNT(*) FROM artifacts)
		+ (SELECT COUNT(*) FROM blob_chunks) + (SELECT COUNT(*) FROM blobs) + (SELECT COUNT(*) FROM notebooks)`).Scan(&rows); err != nil || rows != 0 {
		t.Fatal(rows, err)
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, Options{})
	for i := range 4 {
		id := notebook.ID(fmt.Sprintf("n%d", i))
		create(t, s, id)
		st := notebook.New(id)
		st.Deleted = map[int]time.Time{1: t0, 2: t0.Add(time.Hour), 3: t0}[i]
		bodies := make([]notebook.Body, 0, purgeEvents+10)
		for range cap(bodies) {
			bodies = append(bodies, notebook.Renamed{Title: "x"})
		}
		appendTo(t, s, id, notebook.Batch{Events: evs(2, bodies...), State: &st})
	}
	n, err := s.Purge(ctx, t0.Add(time.Minute))
	if n != 2 || err != nil {
		t.Fatal(n, err)
	}
	for i, want := range []notebook.Code{"", notebook.NotFound, "", notebook.NotFound} {
		_, err := s.Load(ctx, notebook.ID(fmt.Sprintf("n%d", i)))
		wantCode(t, err, want)
	}
	page, err := s.List(ctx, ListQuery{Deleted: true})
	if err != nil || len(page.Notebooks) != 1 || page.Notebooks[0].ID != "n2" {
		t.Fatal(page, err)
	}
	var events int
	if err := s.reads.QueryRowContext(ctx, "SELECT COUNT(*) FROM events").Scan(&events); err != nil || events != 2*(purgeEvents+11) {
		t.Fatal(events, err)
	}
}

// L17: a backup under load is a whole database of one moment.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	create(t, s, "n1")
	hash, _, err := s.PutBlob(t.Context(), bytes.NewReader(randomBytes(1, 3*chunkSize)), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	appendTo(t, s, "n1", notebook.Batch{Events: evs(2, notebook.FilesChanged{Run: "r", Files: notebook.Files{Changed: []notebook.File{{Path: "a", Blob: hash}}}})})
	stop, ready := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for seq := int64(3); ; seq += 2 {
			appendTo(t, s, "n1", notebook.Batch{Events: evs(seq, notebook.Renamed{Title: "a"}, notebook.Renamed{Title: "b"})})
			if seq == 101 {
				close(ready)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	<-ready
	restored := filepath.Join(t.TempDir(), "restored")
	path := filepath.Join(restored, dbName)
	err = s.Backup(t.Context(), path)
	close(stop)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatal(fi.Mode(), err)
	}
	wantCode(t, s.Backup(t.Context(), path), notebook.Conflict)

	b := open(t, Options{Dir: restored})
	l, err := b.Load(t.Context(), "n1")
	if err != nil || len(l.Events)%2 != 0 || len(l.Events) < 100 {
		t.Fatal(len(l.Events), err)
	}
	all, err := s.Events(t.Context(), "n1", 0, len(l.Events))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(all, l.Events); d != "" {
		t.Fatal(d)
	}
	checkBlob(t, b, hash)
	if err := b.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTokensAndSettings(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, Options{Now: func() time.Time { return t0 }})
	tok := Token{ID: "j1", Kind: notebook.Agent, Subject: "agent:a", Name: "a", Audience: "api", Notebook: "n1", Scopes: []string{"read"}, Created: t0, Expires: t0.Add(time.Hour)}
	if err := s.CreateToken(ctx, tok); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.CreateToken(ctx, tok), notebook.Conflict)
	wantCode(t, s.CreateToken(ctx, Token{}), notebook.Invalid)
	got, err := s.Tokens(ctx)
	if d := cmp.Diff([]Token{tok}, got); d != "" || err != nil {
		t.Fatal(d, err)
	}
	if s.Revoked("j1") || s.Revoked("unknown") {
		t.Fatal("revoked without having been")
	}
	for range 2 {
		if err := s.RevokeToken(ctx, "j1"); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, s.RevokeToken(ctx, "unknown"), notebook.NotFound)
	if !s.Revoked("j1") {
		t.Fatal("not revoked")
	}

	if _, ok, err := s.Setting(ctx, "x"); ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, v := range []string{"1", "2"} {
		if err := s.PutSetting(ctx, "x", v); err != nil {
			t.Fatal(err)
		}
	}
	if v, ok, err := s.Setting(ctx, "x"); v != "2" || !ok || err != nil {
		t.Fatal(v, ok, err)
	}
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			var err error
			if ids[i], err = s.InstallID(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if len(id) != 16 || id != ids[0] {
			t.Fatal(ids)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !s.Revoked("j9") {
		t.Fatal("a database that cannot tell must count as a yes")
	}
}

func TestReceiptsAreForgotten(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(t0.UnixMilli())
	s := open(t, Options{Now: func() time.Time { return time.UnixMilli(now.Load()) }})
	create(t, s, "n1")
	appendTo(t, s, "n1", notebook.Batch{Receipt: &notebook.Receipt{Actor: "a", Key: "k"}})
	for _, c := range []struct {
		after time.Duration
		there bool
	}{{ReceiptTTL - time.Minute, true}, {2 * time.Minute, false}} {
		now.Add(c.after.Milliseconds())
		if err := s.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := s.Done(t.Context(), "n1", "a", "k"); ok != c.there || err != nil {
			t.Fatal(ok, err)
		}
	}
}

// A snapshot that cannot be used costs time, not data.
func TestUnusableSnapshotIsIgnored(t *testing.T) {
	t.Parallel()
	for name, stmt := range map[string]string{
		"garbage":      "UPDATE snapshots SET body = X'00'",
		"cut":          "UPDATE snapshots SET codec = 'deflate'",
		"other format": "UPDATE snapshots SET format = 99",
		"of later":     "UPDATE snapshots SET seq = 99",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, Options{})
			create(t, s, "n1")
			st := notebook.New("n1")
			st.Seq = 1
			if err := s.Save(t.Context(), st); err != nil {
				t.Fatal(err)
			}
			if _, err := s.w.conn.ExecContext(t.Context(), stmt); err != nil {
				t.Fatal(err)
			}
			l, err := s.Load(t.Context(), "n1")
			if err != nil || l.State != nil || len(l.Events) != 1 {
				t.Fatal(l, err)
			}
		})
	}
}

// What may reach the disk later is there after Sync, after the next batch that
// may not, and after the end of a store that was closed.
func TestRelaxedBatches(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Options{Dir: dir})
	create(t, s, "n1")
	behind := func() int64 { return s.w.commits.Load() - s.w.synced.Load() }
	add := func(seq int64, relaxed bool) {
		appendTo(t, s, "n1", notebook.Batch{Events: evs(seq, notebook.Renamed{Title: "x"}), Relaxed: relaxed})
	}
	if behind() != 0 {
		t.Fatalf("%d commits are not on the disk after an ordinary batch", behind())
	}
	add(2, true)
	add(3, true)
	if behind() == 0 {
		t.Fatal("a relaxed batch waited for the disk")
	}
	if err := s.Sync(t.Context()); err != nil || behind() != 0 {
		t.Fatalf("%d commits are not on the disk after Sync, %v", behind(), err)
	}
	add(4, true)
	add(5, false)
	if behind() != 0 {
		t.Fatalf("%d commits are not on the disk after an ordinary batch", behind())
	}
	add(6, true)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := open(t, Options{Dir: dir}).Events(t.Context(), "n1", 0, 100)
	if err != nil || len(got) != 6 {
		t.Fatalf("%d events, %v", len(got), err)
	}
}
