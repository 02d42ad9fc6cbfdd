package sessionstore

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sandbook/kernel/notebook"
)

const (
	crashRounds = 40
	crashOwners = 4
)

// crashWriter is the process that gets killed: it appends as fast as it can
// and says what was acknowledged.
func crashWriter(dir string) int {
	ctx := context.Background()
	s, err := Open(ctx, Options{Dir: dir, Reserve: -1})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	var wg sync.WaitGroup
	for i := range crashOwners {
		wg.Go(func() {
			id := notebook.ID(fmt.Sprintf("n%d", i))
			l, err := s.Load(ctx, id)
			if notebook.CodeOf(err) == notebook.NotFound {
				err = s.Create(ctx, id, evs(1, notebook.Created{Title: "crash"}))
				l.Events = make([]notebook.Event, 1)
			}
			if err != nil {
				say("error %v", err)
				return
			}
			seq := int64(len(l.Events)) + 1
			for ; ; seq += 2 {
				err := s.Append(ctx, id, notebook.Batch{
					Events:  evs(seq, notebook.StreamAppended{Run: "r", Name: "stdout", Text: fmt.Sprint(seq)}, notebook.Renamed{Title: fmt.Sprint(seq)}),
					Cursor:  &notebook.Cursor{Boot: 1, Seq: uint64(seq)},
					Receipt: &notebook.Receipt{Actor: "a", Key: fmt.Sprint(seq), Hash: "h", First: seq, Last: seq + 1},
				})
				if err != nil {
					say("error %v", err)
					return
				}
				say("ack %s %d", id, seq+1)
			}
		})
	}
	wg.Go(func() {
		for n := uint64(0); ; n++ {
			hash, _, err := s.PutBlob(ctx, bytes.NewReader(randomBytes(n, 300_000)), 1<<30)
			if err != nil {
				say("error %v", err)
				return
			}
			say("blob %s", hash)
		}
	})
	wg.Wait()
	return 1
}

func randomBytes(seed uint64, n int) []byte {
	var key [32]byte
	key[0], key[1], key[2] = byte(seed), byte(seed>>8), 7
	p := make([]byte, n)
	r := rand.NewChaCha8(key)
	_, _ = r.Read(p)
	return p
}

// Kill -9 of the writer at any moment loses nothing that was acknowledged and
// leaves no half of a batch or a blob.
func TestKilledWriterLosesNothing(t *testing.T) {
	t.Parallel()
	rounds := crashRounds
	if testing.Short() {
		rounds = 5
	}
	dir := filepath.Join(t.TempDir(), "data")
	rng := rand.New(rand.NewPCG(1, 2))
	acked := map[string]int64{}
	blobs := map[string]bool{}
	for round := range rounds {
		crashRound(t, dir, 1+rng.IntN(150), acked, blobs)
		s, err := Open(t.Context(), Options{Dir: dir, Reserve: -1, NoMaintenance: true})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for id, last := range acked {
			checkCrashed(t, s, notebook.ID(id), last)
		}
		for hash := range blobs {
			checkBlob(t, s, hash)
			delete(blobs, hash)
		}
		var unnamed int
		if err := s.reads.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM blobs WHERE hash IS NULL").Scan(&unnamed); err != nil || unnamed != 0 {
			t.Fatalf("round %d: %d unfinished blobs, %v", round, unnamed, err)
		}
		if round%10 == 9 { // each opening has made the quick check
			if err := s.Check(t.Context()); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	total := int64(0)
	for _, n := range acked {
		total += n
	}
	t.Logf("%d rounds, %d events acknowledged, 0 lost", rounds, total)
}

// crashRound runs a writer until it has said n lines, kills it and notes all
// it said.
func crashRound(t *testing.T, dir string, n int, acked map[string]int64, blobs map[string]bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "SANDBOOK_CRASH_DIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := lines.Text()
		var id string
		var seq int64
		switch {
		case strings.HasPrefix(line, "blob "):
			blobs[line[5:]] = true
		case strings.HasPrefix(line, "ack "):
			if _, err := fmt.Sscanf(line, "ack %s %d", &id, &seq); err == nil { // the last line may be cut
				acked[id] = max(acked[id], seq)
			}
		default:
			t.Errorf("writer: %s", line)
		}
		if n--; n == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // killed
}

func checkCrashed(t *testing.T, s *Store, id notebook.ID, acked int64) {
	t.Helper()
	l, err := s.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	n := int64(len(l.Events))
	if n < acked {
		t.Fatalf("%s: %d events acknowledged, %d there", id, acked, n)
	}
	if n%2 != 1 {
		t.Fatalf("%s: half a batch: %d events", id, n)
	}
	for i, e := range l.Events {
		if e.Seq != int64(i)+1 {
			t.Fatalf("%s: event %d has seq %d", id, i, e.Seq)
		}
	}
	if n > 1 {
		if want := uint64(n - 1); l.Cursor.Seq != want {
			t.Fatalf("%s: cursor %d, want %d", id, l.Cursor.Seq, want)
		}
		if _, ok, err := s.Done(t.Context(), id, "a", fmt.Sprint(n-1)); !ok || err != nil {
			t.Fatalf("%s: receipt of the last batch: %v %v", id, ok, err)
		}
	}
}

func checkBlob(t *testing.T, s *Store, hash string) {
	t.Helper()
	r, _, err := s.OpenBlob(t.Context(), hash)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != hash {
		t.Fatalf("blob %s holds %s", hash, got)
	}
}
