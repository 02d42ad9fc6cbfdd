package notebook

import (
	"fmt"
	"strings"
	"testing"
)

func big(n int) State {
	s := New("nb")
	s.Kernel = Kernel{Status: Ready, Gen: 1, Boot: 1}
	for i := range n {
		c := &Cell{ID: CellID(fmt.Sprint("c", i)), Kind: CodeCell, Source: "print(1)", Version: 1, Run: RunID(fmt.Sprint("r", i))}
		s.Cells = append(s.Cells, c)
		s.Runs[c.Run] = &Run{ID: c.Run, Cell: c.ID, Status: OK}
	}
	return s
}

func BenchmarkAppendSmallPrints(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		t := Text{}
		for i := range 10_000 {
			t = t.Append("line " + fmt.Sprint(i) + "\n")
		}
	}
	b.ReportMetric(10_000, "prints/op")
}

func BenchmarkAppendMiB(b *testing.B) {
	chunk := strings.Repeat("the quick brown fox jumps over the lazy dog, twice a day.\n", 1<<20/58)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		Text{}.Append(chunk)
	}
}

func BenchmarkAppendProgressBar(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		t := Text{}
		for i := range 1000 {
			t = t.Append(fmt.Sprintf("\r%3d%%|%-40s| %d/1000", i/10, strings.Repeat("█", i/25), i))
		}
	}
	b.ReportMetric(1000, "updates/op")
}

// BenchmarkAppendHostile is text that makes a terminal work hardest for each
// byte: jumps between two long lines, and far columns.
func BenchmarkAppendHostile(b *testing.B) {
	for name, s := range map[string]string{
		"jump":  strings.Repeat("x", 16000) + "\n" + strings.Repeat("y", 16000) + strings.Repeat("\x1b[Ab\x1b[Bb", 256<<10/8),
		"wide":  strings.Repeat("\x1b[1000Gx\n", 256<<10/9),
		"erase": strings.Repeat("x", 16000) + strings.Repeat("\b\x1b[1K", 256<<10/5),
		"pens":  strings.Repeat("\r\x1b[31mx\x1b[1my", 256<<10/13),
		"bells": strings.Repeat("a\a", 256<<10/2),
		"cr":    strings.Repeat("x", 16000) + strings.Repeat("\rb", 256<<10/2),
		"osc":   strings.Repeat("\x1b]0;"+strings.Repeat("x", 5000)+"\n", 256<<10/5005),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				Text{}.Append(s)
			}
		})
	}
}

func BenchmarkStreamEvent(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		b.Run(fmt.Sprint(n, " cells"), func(b *testing.B) {
			s := big(n)
			s.Live = "r0"
			b.ReportAllocs()
			for b.Loop() {
				evs, err := Decide(s, TheServer, Report{Gen: 1, Body: StreamAppended{Run: "r0", Name: "stdout", Text: "hello\n"}}, day)
				if err != nil {
					b.Fatal(err)
				}
				s = Apply(s, evs[0])
			}
		})
	}
}

func BenchmarkRunAll(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(n, " cells"), func(b *testing.B) {
			s := big(n)
			ids := 0
			for b.Loop() {
				o := Prepare(s, RunCells{Scope: "all"}, func() string { ids++; return fmt.Sprint("id", ids) })
				if _, err := Decide(s, ada, o, day); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
