package notebook

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of the text kept of one stream output. The whole text stays in the
// event log up to the run's quota; this is what pages and agents see.
const (
	textHeadLines = 200      // kept from the start once the text is long
	textMaxLines  = 1000     // head and tail together
	textMaxBytes  = 96 << 10 // likewise
	textMaxLine   = 16 << 10 // bytes of one line
	textScreen    = 200      // lines a cursor can move up over
	maxPen        = 64       // bytes of colour state carried along
)

// Text is what a stream printed, as a terminal would show it: \r, \b and
// cursor movement are carried out, not kept. Colours (SGR) stay as they are.
// The zero value is empty. A Text is a value: Append returns a new one.
type Text struct {
	Head  string   `json:"head,omitempty"`  // first lines of a long text, with line ends
	Lines []string `json:"lines,omitempty"` // the rest without line ends; the last may be unfinished
	Bytes int64    `json:"bytes"`           // printed in all
	// What was left out between Head and Lines.
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
	if t.OmittedBytes > 0 || t.OmittedLines > 0 {
		b.WriteString("… " + strconv.FormatInt(t.OmittedLines, 10) + " lines (" + strconv.FormatInt(t.OmittedBytes, 10) + " bytes) are not shown here …\n")
	}
	b.WriteString(strings.Join(t.Lines, "\n"))
	return b.String()
}

// Append prints s at the cursor.
func (t Text) Append(s string) Text {
	t.Bytes += int64(len(s))
	s = t.Rest + s
	t.Rest = ""
	t.Lines = slices.Clone(t.Lines)
	if len(t.Lines) == 0 {
		t.Lines = []string{""}
		t.Col = -1
	}
	for s != "" {
		n := plain(s)
		if n > 0 && t.Up == 0 && t.Col < 0 {
			t.last(s[:n])
			s = s[n:]
		} else if n > 0 {
			n = utf8.RuneCountInString(s[:n])
			s = t.overwrite(s, n)
		}
		if s == "" {
			break
		}
		s = t.control(s)
		if len(t.Lines) > textMaxLines+textScreen {
			t.trim()
		}
	}
	t.trim()
	return t
}

// Omit leaves out what was never received: n bytes in so many lines. The tail
// replaces the lines at the end.
func (t Text) Omit(bytes, lines int64, tail string) Text {
	t.Bytes += bytes
	t.Rest, t.Up, t.Col = "", 0, -1
	if t.Head == "" {
		t.Head = strings.Join(t.Lines, "\n") + "\n"
		t.Lines = nil
	}
	for _, l := range t.Lines {
		t.OmittedBytes += int64(len(l)) + 1
		t.OmittedLines++
	}
	t.Lines = []string{""}
	t.OmittedBytes += bytes
	t.OmittedLines += lines
	next := t.Append(tail)
	next.Bytes = t.Bytes
	next.OmittedBytes = max(0, next.OmittedBytes-int64(len(tail)))
	next.OmittedLines = max(0, next.OmittedLines-int64(strings.Count(tail, "\n")))
	return next
}

// plain counts the leading bytes that need no terminal: no control characters.
func plain(s string) int {
	for i := range len(s) {
		if s[i] < 0x20 && s[i] != '\t' || s[i] == 0x7f {
			return i
		}
	}
	return len(s)
}

// last appends to the last line, within its bound.
func (t *Text) last(s string) {
	l := &t.Lines[len(t.Lines)-1]
	if room := textMaxLine - len(*l); len(s) > room {
		cut := max(0, room)
		for cut > 0 && cut < len(s) && !utf8.RuneStart(s[cut]) {
			cut--
		}
		t.OmittedBytes += int64(len(s) - cut)
		s = s[:cut]
	}
	*l += s
}

func (t *Text) newline() {
	if t.Up > 0 {
		t.Up--
		t.Col = 0
		if t.Up == 0 && t.Lines[len(t.Lines)-1] == "" {
			t.Col = -1
		}
		return
	}
	t.Lines = append(t.Lines, "")
	t.Col = -1
	if t.Pen != "" {
		t.Lines[len(t.Lines)-1] = t.Pen
	}
}

// control carries out the control character or escape sequence at the start of
// s and returns what follows it.
func (t *Text) control(s string) string {
	switch s[0] {
	case '\n':
		t.newline()
	case '\r':
		if strings.HasPrefix(s, "\r\n") {
			t.newline()
			return s[2:]
		}
		if len(s) == 1 { // may be half of \r\n
			t.Rest = s
			return ""
		}
		t.Col = 0
	case '\b':
		t.Col = max(0, t.column()-1)
	case 0x1b:
		return t.escape(s)
	}
	return s[1:]
}

// escape handles what starts with ESC.
func (t *Text) escape(s string) string {
	if len(s) == 1 {
		t.Rest = s
		return ""
	}
	switch s[1] {
	case '[':
	case ']', 'P', '_', '^', 'X': // strings, ended by BEL or ESC \
		if i := strings.IndexAny(s[2:], "\a\x1b"); i >= 0 {
			if s[2+i] == '\a' {
				return s[2+i+1:]
			}
			if len(s) > 2+i+1 {
				return s[2+i+2:]
			}
		}
		if len(s) < 4096 {
			t.Rest = s
		}
		return ""
	default:
		return s[2:]
	}
	i := 2
	for i < len(s) && (s[i] < 0x40 || s[i] > 0x7e) {
		if i > 2+maxPen || s[i] < 0x20 {
			return s[i:] // not an escape sequence after all
		}
		i++
	}
	if i == len(s) {
		t.Rest = s
		return ""
	}
	t.csi(s[2:i], s[i], s[:i+1])
	return s[i+1:]
}

// csi carries out one control sequence.
func (t *Text) csi(params string, final byte, whole string) {
	first, _, _ := strings.Cut(params, ";")
	n, err := strconv.Atoi(first)
	if err != nil || n > textMaxLine {
		n = 0
	}
	move := max(1, n)
	switch final {
	case 'm':
		t.sgr(params, whole)
	case 'A', 'F':
		if final == 'A' {
			t.Col = t.column()
		} else {
			t.Col = 0
		}
		t.Up = min(t.Up+move, len(t.Lines)-1, textScreen)
	case 'B', 'E':
		if final == 'B' {
			t.Col = t.column()
		} else {
			t.Col = 0
		}
		t.Up = max(0, t.Up-move)
	case 'C':
		t.Col = min(t.column()+move, textMaxLine)
	case 'D':
		t.Col = max(0, t.column()-move)
	case 'G':
		t.Col = move - 1
	case 'K':
		t.eraseLine(n)
	case 'J':
		if n == 0 {
			t.eraseLine(0)
			t.Lines = t.Lines[:len(t.Lines)-t.Up]
			t.Up = 0
		} else {
			t.Lines, t.Up, t.Col = []string{""}, 0, -1
		}
	}
}

// sgr changes the pen and, at the end of a line, writes the sequence there.
func (t *Text) sgr(params, whole string) {
	if params == "" || params == "0" {
		t.Pen = ""
	} else if t.Pen += whole; len(t.Pen) > maxPen {
		t.Pen = whole
	}
	if t.Up == 0 && t.Col < 0 {
		t.last(whole)
	}
}

// column is where the cursor stands, in characters.
func (t *Text) column() int {
	if t.Col >= 0 {
		return t.Col
	}
	return len(glyphs(t.Lines[len(t.Lines)-1-t.Up]))
}

// glyph is one character and the colours in force there.
type glyph struct {
	r   rune
	pen string
}

// glyphs takes a line apart.
func glyphs(line string) []glyph {
	out := make([]glyph, 0, len(line))
	pen := ""
	for i := 0; i < len(line); {
		if line[i] == 0x1b {
			if j := strings.IndexByte(line[i:], 'm'); j > 0 {
				seq := line[i : i+j+1]
				if seq == "\x1b[m" || seq == "\x1b[0m" {
					pen = ""
				} else if pen += seq; len(pen) > maxPen {
					pen = seq
				}
				i += j + 1
				continue
			}
		}
		r, n := utf8.DecodeRuneInString(line[i:])
		out = append(out, glyph{r, pen})
		i += n
	}
	return out
}

// join puts a line together again.
func join(gs []glyph) string {
	var b strings.Builder
	pen := ""
	for _, g := range gs {
		if g.pen != pen {
			if pen != "" {
				b.WriteString("\x1b[0m")
			}
			b.WriteString(g.pen)
			pen = g.pen
		}
		b.WriteRune(g.r)
	}
	if pen != "" {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// overwrite prints the first n characters of s over what stands at the cursor
// and returns the rest.
func (t *Text) overwrite(s string, n int) string {
	i := len(t.Lines) - 1 - t.Up
	gs := glyphs(t.Lines[i])
	col := t.column()
	for ; n > 0; n-- {
		r, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		if col >= textMaxLine/4 {
			t.OmittedBytes += int64(size)
			continue
		}
		for len(gs) <= col {
			gs = append(gs, glyph{' ', ""})
		}
		gs[col] = glyph{r, t.Pen}
		col++
	}
	t.Lines[i] = join(gs)
	t.Col = col
	if t.Up == 0 && col == len(gs) {
		t.Col = -1
		t.Lines[i] += t.Pen
	}
	return s
}

// eraseLine is CSI K: 0 from the cursor on, 1 up to it, 2 all of it.
func (t *Text) eraseLine(how int) {
	i := len(t.Lines) - 1 - t.Up
	gs := glyphs(t.Lines[i])
	col := min(t.column(), len(gs))
	switch how {
	case 0:
		gs = gs[:col]
	case 1:
		for j := range col {
			gs[j] = glyph{' ', ""}
		}
	case 2:
		gs = nil
	}
	t.Col = col
	t.Lines[i] = join(gs)
}

// trim keeps the text within its bounds: the first lines go to Head once, then
// the oldest of the others are left out and counted.
func (t *Text) trim() {
	size := 0
	for _, l := range t.Lines {
		size += len(l) + 1
	}
	if len(t.Lines)+t.headLines() <= textMaxLines && size+len(t.Head) <= textMaxBytes {
		return
	}
	keep := len(t.Lines) - 1 - t.Up // never drop what the cursor can reach again by staying put
	if t.Head == "" {
		n, b := 0, 0
		for n < textHeadLines && n < keep && b < textMaxBytes/4 {
			b += len(t.Lines[n]) + 1
			n++
		}
		if n > 0 {
			t.Head = strings.Join(t.Lines[:n], "\n") + "\n"
			t.Lines, size, keep = t.Lines[n:], size-b, keep-n
		}
	}
	drop := 0
	for drop < keep && (len(t.Lines)-drop > textMaxLines-textHeadLines || size+len(t.Head) > textMaxBytes) {
		t.OmittedBytes += int64(len(t.Lines[drop])) + 1
		t.OmittedLines++
		size -= len(t.Lines[drop]) + 1
		drop++
	}
	t.Lines = slices.Clone(t.Lines[drop:])
}

func (t *Text) headLines() int {
	if t.Head == "" {
		return 0
	}
	return textHeadLines
}
