package kernel

import (
	"strings"
	"testing"

	"sandbook/kernel/notebook"
)

// feed gives a meter the same fact n times and returns what is recorded.
func feed(m *meter, n int, b notebook.Body) []notebook.Body {
	var out []notebook.Body
	for range n {
		out = append(out, m.take(b)...)
	}
	return out
}

func costs(bodies []notebook.Body) int64 {
	var n int64
	for _, b := range bodies {
		n += cost(b)
	}
	return n
}

// notes is what is printed about what was not kept.
func notes(bodies []notebook.Body) string {
	var s strings.Builder
	for _, b := range bodies {
		if a, ok := b.(notebook.StreamAppended); ok && a.Name == "stderr" {
			s.WriteString(a.Text)
		}
	}
	return s.String()
}

func display(n int) notebook.Body {
	return notebook.OutputAdded{Run: "r", Output: notebook.Output{Kind: notebook.DisplayOutput, Data: map[string]notebook.Value{"text/html": {Text: strings.Repeat("x", n)}}}}
}

// Whatever a guest repeats, one run adds a bounded amount to the log, the run's
// end is recorded, and the next run starts afresh.
func TestOneRunIsBounded(t *testing.T) {
	t.Parallel()
	end := notebook.RunEnded{Run: "r", Status: notebook.OK}
	for name, c := range map[string]struct {
		body notebook.Body
		n    int
		note string
	}{
		"displays":            {display(60 << 10), 2000, "were not kept: the displays of one run may take up 8 MiB"},
		"small displays":      {display(1), 50_000, "were not kept: the displays of one run"},
		"updates":             {notebook.OutputUpdated{DisplayID: "d", Data: map[string]notebook.Value{"a/b": {Text: strings.Repeat("x", 1000)}}}, 20_000, "were not kept"},
		"metadata":            {notebook.OutputAdded{Run: "r", Output: notebook.Output{Metadata: []byte(strings.Repeat("x", 60<<10))}}, 2000, "were not kept"},
		"tracebacks":          {notebook.OutputAdded{Run: "r", Output: notebook.Output{Kind: notebook.ErrorOutput, Traceback: []string{strings.Repeat("x", 8<<10)}}}, 9000, "were not kept"},
		"questions":           {notebook.InputRequested{Run: "r", Prompt: strings.Repeat("?", 1000)}, 50_000, "were not kept"},
		"clearing":            {notebook.OutputsCleared{Run: "r"}, 250_000, "were not kept"},
		"text":                {notebook.StreamAppended{Run: "r", Name: "stdout", Text: strings.Repeat("x", 100_000)}, 2000, ""},
		"one byte at a time":  {notebook.StreamAppended{Run: "r", Name: "stdout", Text: "x"}, 250_000, ""},
		"counts of lost text": {notebook.StreamOmitted{Run: "r", Name: "stderr", Bytes: 10, Tail: strings.Repeat("x", 32<<10)}, 5000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &meter{}
			got := feed(m, c.n, c.body)
			last := m.take(end)
			if n := costs(got) + costs(last); n > maxRunLog+1<<20 {
				t.Errorf("%d bytes of log, want at most %d", n, maxRunLog)
			}
			if last[len(last)-1] != notebook.Body(end) {
				t.Errorf("the last event is %T, want the run's end", last[len(last)-1])
			}
			if s := notes(last); !strings.Contains(s, c.note) {
				t.Errorf("note %q, want %q", s, c.note)
			}
			if again := m.take(c.body); len(again) != 1 {
				t.Errorf("the next run records %v", again)
			}
		})
	}
}

// Of text that is left out the count is exact and the end is kept.
func TestLeftOutTextIsCounted(t *testing.T) {
	t.Parallel()
	m := &meter{}
	const n = 400_000
	var shown, omitted int64
	tail := ""
	for _, b := range append(feed(m, n, notebook.StreamAppended{Run: "r", Name: "stdout", Text: "é\n"}), m.take(notebook.RunEnded{Run: "r"})...) {
		switch b := b.(type) {
		case notebook.StreamAppended:
			shown += int64(len(b.Text))
		case notebook.StreamOmitted:
			omitted += b.Bytes
			tail = b.Tail
			if b.Lines*3 != b.Bytes {
				t.Fatalf("%d lines in %d bytes", b.Lines, b.Bytes)
			}
		}
	}
	if shown+omitted != 3*n || omitted == 0 {
		t.Errorf("%d bytes shown, %d left out, want %d together", shown, omitted, 3*n)
	}
	if !strings.HasSuffix(tail, "é\né\n") || len(tail) > maxLeft {
		t.Errorf("the end is %q", tail)
	}
}

// A notebook whose log is full records how runs end, and says why it shows no
// output.
func TestFullLog(t *testing.T) {
	t.Parallel()
	m := &meter{log: maxLog}
	if got := append(feed(m, 10, notebook.StreamAppended{Run: "r", Name: "stdout", Text: "hello\n"}), m.take(display(10))...); len(got) != 0 {
		t.Errorf("recorded %v", got)
	}
	got := m.take(notebook.RunEnded{Run: "r"})
	if s := notes(got); !strings.Contains(s, "reached its limit of 1.0 GiB") {
		t.Errorf("note %q", s)
	}
	if om, ok := got[0].(notebook.StreamOmitted); !ok || om.Bytes != 60 {
		t.Errorf("first %+v, want 60 bytes left out", got[0])
	}
}
