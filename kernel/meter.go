package kernel

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"sandbook/kernel/notebook"
)

// Bounds of what a guest may add to the log. Text beyond outputLimit is counted
// and left out by the guest already; these hold whatever a guest does.
const (
	maxRunLog  = 48 << 20 // of one run, with a flat cost for each event
	maxRunKept = 8 << 20  // of its displays, as far as they stay in the events and so in memory
	maxLog     = 1 << 30  // of a notebook; then only what ends a run, or the notebook, is recorded
	eventCost  = 256      // bytes of the log an event takes besides its body, about
	maxLeft    = 8 << 10  // bytes of the end of a text that is left out
)

// meter counts what the runs of a session add to its log. It belongs to the
// owner.
type meter struct {
	log     int64 // bytes of the notebook's log, about
	run     int64 // of which since the last run ended
	kept    int64 // of which displays
	outputs int   // displays not kept since
	full    bool  // something was not kept because the log is full
	text    map[string]*leftOut
}

// leftOut is text of one stream that was not kept.
type leftOut struct {
	bytes, lines int64
	tail         string
	next         int64 // bytes at which the page hears of it before the run ends
}

// add charges for events an op of an actor made.
func (m *meter) add(evs []notebook.Event) {
	for _, e := range evs {
		m.log += cost(e.Body)
	}
}

// take charges for a fact a guest reports, and returns what is recorded of it.
func (m *meter) take(body notebook.Body) []notebook.Body {
	switch b := body.(type) {
	case notebook.OutputAdded, notebook.OutputUpdated:
		c := cost(body)
		if !m.room(c) || m.kept+c > maxRunKept {
			m.outputs++
			return nil
		}
		m.kept += c
		m.charge(c)
	case notebook.OutputsCleared, notebook.InputRequested:
		if !m.room(cost(body)) {
			m.outputs++
			return nil
		}
		m.charge(cost(body))
	case notebook.StreamAppended:
		if m.room(cost(body)) {
			m.charge(cost(body))
			break
		}
		return m.leave(b.Run, b.Name, int64(len(b.Text)), int64(strings.Count(b.Text, "\n")), b.Text)
	case notebook.StreamOmitted:
		if m.room(cost(body)) {
			m.charge(cost(body))
			break
		}
		return m.leave(b.Run, b.Name, b.Bytes, b.Lines, b.Tail)
	case notebook.RunEnded:
		return append(m.end(b.Run), body)
	default:
		m.charge(cost(body))
	}
	return []notebook.Body{body}
}

func (m *meter) room(c int64) bool {
	m.full = m.full || m.log+c > maxLog
	return m.run+c <= maxRunLog && m.log+c <= maxLog
}

func (m *meter) charge(c int64) { m.run, m.log = m.run+c, m.log+c }

// leave counts text that is not kept. The page hears of it each time it has
// doubled, and when the run ends.
func (m *meter) leave(run notebook.RunID, name string, bytes, lines int64, tail string) []notebook.Body {
	l := m.text[name]
	if l == nil {
		if m.text == nil {
			m.text = map[string]*leftOut{}
		}
		l = &leftOut{next: 1 << 20}
		m.text[name] = l
	}
	l.bytes, l.lines = l.bytes+bytes, l.lines+lines
	l.tail += tail
	if over := len(l.tail) - maxLeft; over > 0 {
		for over < len(l.tail) && !utf8.RuneStart(l.tail[over]) {
			over++
		}
		l.tail = strings.Clone(l.tail[over:])
	}
	if l.bytes < l.next {
		return nil
	}
	l.next = 2 * l.bytes
	return []notebook.Body{l.said(run, name)}
}

func (l *leftOut) said(run notebook.RunID, name string) notebook.Body {
	b := notebook.StreamOmitted{Run: run, Name: name, Bytes: l.bytes, Lines: l.lines, Tail: l.tail}
	l.bytes, l.lines, l.tail = 0, 0, ""
	return b
}

// end says what was not kept of a run, and begins anew.
func (m *meter) end(run notebook.RunID) []notebook.Body {
	var out []notebook.Body
	for _, name := range []string{"stdout", "stderr"} {
		if l := m.text[name]; l != nil && l.bytes > 0 {
			out = append(out, l.said(run, name))
		}
	}
	why := fmt.Sprintf("the displays of one run may take up %s", sizeWords(maxRunKept))
	if m.full {
		why = fmt.Sprintf("the history of this notebook has reached its limit of %s; duplicate the notebook to go on with a new one", sizeWords(maxLog))
	}
	switch {
	case m.outputs > 0:
		out = append(out, notebook.StreamAppended{Run: run, Name: "stderr", Text: fmt.Sprintf("\n%d further outputs of this run were not kept: %s.\n", m.outputs, why)})
	case m.full && len(out) > 0:
		out = append(out, notebook.StreamAppended{Run: run, Name: "stderr", Text: fmt.Sprintf("\nThe output of this run was not kept: %s.\n", why)})
	}
	*m = meter{log: m.log}
	return out
}

// cost is about what a body takes in the log and, for outputs, in memory.
func cost(body notebook.Body) int64 {
	n := eventCost
	switch b := body.(type) {
	case notebook.StreamAppended:
		n += len(b.Text)
	case notebook.StreamOmitted:
		n += len(b.Tail)
	case notebook.OutputAdded:
		n += valuesCost(b.Output.Data) + len(b.Output.Metadata)
		for _, l := range b.Output.Traceback {
			n += len(l)
		}
	case notebook.OutputUpdated:
		n += valuesCost(b.Data) + len(b.Metadata)
	case notebook.InputRequested:
		n += len(b.Prompt)
	case notebook.FilesChanged:
		n += eventCost * (len(b.Files.Changed) + len(b.Files.Removed))
	case notebook.CellInserted:
		n += len(b.Source)
	case notebook.CellEdited:
		n += len(b.Source)
	case notebook.RunQueued:
		n += len(b.Source)
	}
	return int64(n)
}

func valuesCost(data map[string]notebook.Value) int {
	n := 0
	for mime, v := range data {
		n += len(mime) + len(v.Text) + 100
	}
	return n
}
