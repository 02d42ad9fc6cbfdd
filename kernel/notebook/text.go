package notebook

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of the text kept of one stream output. The whole text stays in the
// event log up to the run's quota; this is what pages and agents see.
const (
	textHeadLines = 200      // kept from the start once the text is long
	textHeadBytes = 24 << 10 // likewise
	textMaxLines  = 1000     // head and tail together
	textMaxBytes  = 96 << 10 // likewise, without the last line
	textMaxLine   = 16 << 10 // bytes of one line
	textScreen    = 200      // lines a cursor can move up over
)

// Text is what a stream printed, as a terminal would show it: \r, \b and
// cursor movement are carried out, not kept. Colours (SGR) stay; a line that is
// finished ends without one in force. The zero value is empty. A Text is a
// value: Append returns a new one and leaves the old as it was. What it holds
// depends on what was printed, not on the pieces it came in.
type Text struct {
	Head  string   `json:"head,omitempty"`  // first lines of a long text, with line ends
	Lines []string `json:"lines,omitempty"` // the rest without line ends; the last may be unfinished
	Bytes int64    `json:"bytes"`           // printed in all
	// What was left out: between Head and Lines, and at the end of lines that
	// are too long. Of plain text, what is kept and what is left out add up to
	// Bytes exactly.
	OmittedBytes int64 `json:"omitted_bytes,omitempty"`
	OmittedLines int64 `json:"omitted_lines,omitempty"`

	Up   int    `json:"up,omitempty"`   // the cursor stands so many lines above the last
	Col  int    `json:"col,omitempty"`  // and at this column; -1 is the line's end
	Pen  string `json:"pen,omitempty"`  // colours in force at the cursor
	Rest string `json:"rest,omitempty"` // an escape sequence that has not ended yet
}

// String is the text with a plain sentence where something was left out.
func (t Text) String() string {
	var b strings.Builder
	b.WriteString(t.Head)
	gap := t.Head != "" || t.OmittedLines > 0
	if gap && t.OmittedBytes > 0 {
		fmt.Fprintf(&b, "… %d lines (%d bytes) are not shown here …\n", t.OmittedLines, t.OmittedBytes)
	}
	for i, l := range t.Lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(l)
	}
	if !gap && t.OmittedBytes > 0 {
		fmt.Fprintf(&b, "\n… %d bytes of long lines are not shown …\n", t.OmittedBytes)
	}
	return b.String()
}

// Append prints s at the cursor. What is not UTF-8 becomes U+FFFD.
func (t Text) Append(s string) Text {
	if s == "" {
		return t
	}
	t.Bytes += int64(len(s))
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	e := newTerminal(t)
	e.print(t.Rest + s)
	return e.text()
}

// Omit leaves out what was never received: n bytes in so many lines. The tail,
// the newest of what was printed, replaces the lines at the end.
func (t Text) Omit(bytes, lines int64, tail string) Text {
	total := t.Bytes + bytes
	lines -= int64(strings.Count(tail, "\n"))
	bytes -= int64(len(tail))
	old := t.Lines
	if n := len(old); t.Head == "" && n > 0 {
		var b strings.Builder
		for len(old) > 1 && n-len(old) < textHeadLines && b.Len() < textHeadBytes {
			b.WriteString(old[0])
			b.WriteByte('\n')
			old = old[1:]
		}
		if len(old) == 1 && old[0] != "" && b.Len() < textHeadBytes {
			// The end of this line is among what is left out; it is kept here.
			b.WriteString(old[0])
			b.WriteByte('\n')
			bytes, lines, old = bytes-1, lines-1, nil
		}
		t.Head = b.String()
	}
	for i, l := range old {
		t.OmittedBytes += int64(len(l))
		if i < len(old)-1 {
			t.OmittedBytes++
			t.OmittedLines++
		}
	}
	t.Lines, t.Rest, t.Pen, t.Up, t.Col = nil, "", "", 0, 0
	t = t.Append(tail)
	t.Bytes = total
	t.OmittedBytes = max(0, t.OmittedBytes+bytes)
	t.OmittedLines = max(0, t.OmittedLines+lines)
	return t
}

// newTerminal opens t for printing.
func newTerminal(t Text) *terminal {
	e := &terminal{
		head: t.Head, bytes: t.Bytes, omittedBytes: t.OmittedBytes, omittedLines: t.OmittedLines,
		up: t.Up, col: t.Col, pen: t.Pen,
	}
	n := len(t.Lines)
	if n == 0 {
		e.lines, e.col = []string{""}, -1
		return e
	}
	e.lines = make([]string, n, n+n/8+4)
	copy(e.lines, t.Lines)
	for _, l := range e.lines[:n-1] {
		e.size += len(l) + 1
	}
	e.up = min(e.up, n-1)
	if e.col < 0 {
		e.tail = append(e.tail, e.lines[n-1]...)
	}
	return e
}

// text closes the terminal.
func (e *terminal) text() Text {
	if e.col < 0 {
		e.lines[len(e.lines)-1] = string(e.tail)
	}
	for i, r := range e.rows {
		e.lines[i-e.first] = e.encode(r)
	}
	if cap(e.lines) > 2*len(e.lines)+64 {
		e.lines = slices.Clone(e.lines)
	}
	return Text{
		Head: e.head, Lines: e.lines, Bytes: e.bytes, OmittedBytes: e.omittedBytes, OmittedLines: e.omittedLines,
		Up: e.up, Col: e.col, Pen: e.pen, Rest: e.rest,
	}
}
