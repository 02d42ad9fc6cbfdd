package sessionstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sandbook/kernel/notebook"
)

// BenchmarkAppend is one op as a notebook makes it: three small events, durable.
func BenchmarkAppend(b *testing.B) {
	s := open(b, Options{})
	create(b, s, "n1", notebook.CellInserted{Cell: "c1", Kind: notebook.CodeCell, Source: "1+1"})
	seq := int64(3)
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		run := notebook.RunID(fmt.Sprintf("r%d", seq))
		at := time.Now()
		appendTo(b, s, "n1", notebook.Batch{Events: evs(seq,
			notebook.RunQueued{Run: run, Cell: "c1", Source: "1+1", SHA256: strings.Repeat("a", 64)},
			notebook.RunSent{Run: run, Gen: 1, Count: 1},
			notebook.StreamAppended{Run: run, Name: "stdout", Text: "hello\n"})})
		took = append(took, time.Since(at))
		seq += 3
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkAppendConcurrent is 64 notebooks that write at the same time.
func BenchmarkAppendConcurrent(b *testing.B) {
	s := open(b, Options{})
	const owners = 64
	for i := range owners {
		create(b, s, notebook.ID(fmt.Sprintf("n%d", i)))
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range owners {
		wg.Go(func() {
			id := notebook.ID(fmt.Sprintf("n%d", i))
			for seq := int64(2); left.Add(-1) >= 0; seq += 3 {
				err := s.Append(context.Background(), id, notebook.Batch{Events: evs(seq,
					notebook.StreamAppended{Run: "r", Name: "stdout", Text: "hello\n"},
					notebook.StreamAppended{Run: "r", Name: "stdout", Text: "hello\n"},
					notebook.StreamAppended{Run: "r", Name: "stdout", Text: "hello\n"})})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(3*b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(b.N)/float64(s.w.commits.Load()), "appends/commit")
}

// BenchmarkLoad reads 1,000 events.
func BenchmarkLoad(b *testing.B) {
	s := open(b, Options{})
	create(b, s, "n1")
	for seq := int64(2); seq < 1000; seq += 100 {
		bodies := make([]notebook.Body, 100)
		for i := range bodies {
			bodies[i] = notebook.StreamAppended{Run: "r", Name: "stdout", Text: "hello\n"}
		}
		appendTo(b, s, "n1", notebook.Batch{Events: evs(seq, bodies...)})
	}
	for b.Loop() {
		if _, err := s.Load(context.Background(), "n1"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen is what a start costs the server.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir() + "/data"
	for b.Loop() {
		s, err := Open(context.Background(), Options{Dir: dir, NoMaintenance: true})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSearch looks through 500 notebooks of 20 cells.
func BenchmarkSearch(b *testing.B) {
	s := open(b, Options{})
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			var cells []notebook.Body
			for c := range 20 {
				cells = append(cells, notebook.CellInserted{Cell: notebook.CellID(fmt.Sprint(c)), Kind: notebook.CodeCell, Source: strings.Repeat("x = compute(y)\n", 30)})
			}
			create(b, s, notebook.ID(fmt.Sprintf("n%d", i)), cells...)
		})
	}
	wg.Wait()
	for b.Loop() {
		if _, err := s.List(context.Background(), ListQuery{Search: "needle"}); err != nil {
			b.Fatal(err)
		}
	}
}
