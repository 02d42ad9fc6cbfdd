package notebook

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxPen    = 64   // bytes of colour state carried along
	maxSeq    = 60   // bytes of one escape sequence's parameters
	maxOSC    = 4096 // bytes of a title, link or the like, which is not shown
	maxColumn = 500  // how far right of a line's end a cursor can be moved
	reset     = "\x1b[0m"
)

// terminal carries out what is printed during one Append. It works in one of
// two ways. While the cursor is at the end of the last line (col < 0) text is
// simply added there. When the cursor has been moved, the line it is in is
// taken apart into glyphs, once for each Append.
//
// Each step depends on the state and the character alone, never on how much
// text comes in one piece. Each character costs a bounded time, except that of
// a line taken apart, so that hostile text cannot keep the owner busy.
type terminal struct {
	head         string
	bytes        int64
	omittedBytes int64
	omittedLines int64

	lines []string
	first int          // number of lines[0]; counts lines that went out during this Append
	rows  map[int]*row // lines taken apart, by number; their strings are out of date
	size  int          // bytes of all lines but the last, with line ends
	tail  []byte       // the last line while col < 0

	up, col int
	pen     string
	rest    string

	pens   []string // pens in rows, by index; 0 is none
	penIDs map[string]int32
}

// row is a line taken apart.
type row struct {
	cells []glyph
	size  int // bytes when put together
}

// glyph is one character and the colours in force there.
type glyph struct {
	r   rune
	pen int32
}

func (e *terminal) print(s string) {
	for s != "" {
		if n := plain(s); n > 0 {
			e.write(s[:n])
			s = s[n:]
			continue
		}
		s = e.control(s)
	}
}

// plain counts the leading bytes that need no terminal: no control characters.
func plain(s string) int {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\t' || c == 0x7f {
			return i
		}
	}
	return len(s)
}

// write prints s, which holds no control characters. A character is kept if
// the line is at least four bytes short of its bound, whatever its own size.
func (e *terminal) write(s string) {
	if e.col >= 0 {
		for _, r := range s {
			e.put(r)
		}
		return
	}
	cut := textMaxLine - utf8.UTFMax - len(e.tail) + 1
	if cut >= len(s) {
		e.tail = append(e.tail, s...)
		return
	}
	cut = max(0, cut)
	for cut < len(s) && !utf8.RuneStart(s[cut]) {
		cut++
	}
	e.tail = append(e.tail, s[:cut]...)
	e.omittedBytes += int64(len(s) - cut)
}

// control carries out the control character or escape sequence at the start of
// s and returns what follows it.
func (e *terminal) control(s string) string {
	switch s[0] {
	case '\n':
		e.newline()
	case '\r':
		if len(s) == 1 { // may be half of \r\n
			e.rest = s
			return ""
		}
		if s[1] == '\n' {
			e.newline()
			return s[2:]
		}
		e.leave()
		e.col = 0
	case '\b':
		e.leave()
		e.col = max(0, e.col-1)
	case 0x1b:
		return e.escape(s)
	}
	return s[1:]
}

// newline goes down one line, and adds one at the bottom.
func (e *terminal) newline() {
	if e.up > 0 {
		e.up--
		e.col = 0
		e.settle()
		return
	}
	n := len(e.lines)
	if e.col < 0 {
		open := e.pen != ""
		if len(e.tail) > textMaxLine-utf8.UTFMax { // colours may not have found room
			open = penAtEnd(e.tail) != ""
		}
		if open {
			e.tail = append(e.tail, reset...)
		}
		e.lines[n-1] = string(e.tail)
		e.tail = e.tail[:0]
	}
	e.size += e.length(n-1) + 1
	e.lines = append(e.lines, "")
	e.col = -1
	e.tail = append(e.tail[:0], e.pen...)
	e.trim()
}

// length is how many bytes line i has.
func (e *terminal) length(i int) int {
	if r := e.rows[e.first+i]; r != nil {
		return r.size
	}
	return len(e.lines[i])
}

// leave takes the cursor off the end of the last line, so that it can move.
func (e *terminal) leave() {
	if e.col >= 0 {
		return
	}
	e.lines[len(e.lines)-1] = string(e.tail)
	e.col = 0
	e.col = len(e.row().cells)
}

// settle goes back to simply adding text if the cursor is in a last line that
// is empty.
func (e *terminal) settle() {
	last := len(e.lines) - 1
	if e.up > 0 || e.col != 0 || e.length(last) > 0 {
		return
	}
	delete(e.rows, e.first+last)
	e.col = -1
	e.tail = append(e.tail[:0], e.pen...)
}

// row takes the line of the cursor apart.
func (e *terminal) row() *row {
	i := len(e.lines) - 1 - e.up
	r := e.rows[e.first+i]
	if r == nil {
		r = e.decode(e.lines[i])
		if e.rows == nil {
			e.rows = map[int]*row{}
		}
		e.rows[e.first+i] = r
		if e.up > 0 {
			e.size += r.size - len(e.lines[i])
		}
	}
	return r
}

// grow notes that the line of the cursor became n bytes longer.
func (e *terminal) grow(r *row, n int) {
	r.size += n
	if e.up > 0 {
		e.size += n
	}
}

// put prints one character over what stands at the cursor.
func (e *terminal) put(c rune) {
	r := e.row()
	n := len(r.cells)
	if e.col >= n {
		if r.size+e.col-n > textMaxLine-utf8.UTFMax {
			e.omittedBytes += int64(utf8.RuneLen(c))
			return
		}
		e.grow(r, e.col+1-n) // without colours, a blank is one byte
		for len(r.cells) <= e.col {
			r.cells = append(r.cells, glyph{' ', 0})
		}
	}
	g := glyph{c, e.penID(e.pen)}
	if r.size > textMaxLine {
		g.pen = 0
	}
	e.set(r, e.col, g)
	e.col++
}

func (e *terminal) set(r *row, i int, g glyph) {
	old, before, after := r.cells[i], r.penAt(i-1), r.penAt(i+1)
	r.cells[i] = g
	e.grow(r, e.edge(before, g.pen)+utf8.RuneLen(g.r)+e.edge(g.pen, after)-
		e.edge(before, old.pen)-utf8.RuneLen(old.r)-e.edge(old.pen, after))
}

func (e *terminal) cut(r *row, n int) {
	for i := len(r.cells) - 1; i >= n; i-- {
		before, old := r.penAt(i-1), r.cells[i]
		e.grow(r, e.edge(before, 0)-e.edge(before, old.pen)-utf8.RuneLen(old.r)-e.edge(old.pen, 0))
	}
	r.cells = r.cells[:n]
}

func (r *row) penAt(i int) int32 {
	if i < 0 || i >= len(r.cells) {
		return 0
	}
	return r.cells[i].pen
}

// edge is how many bytes the change from one pen to the next takes.
func (e *terminal) edge(from, to int32) int {
	if from == to {
		return 0
	}
	n := 0
	if from != 0 {
		n = len(reset)
	}
	if to != 0 {
		n += len(e.pens[to])
	}
	return n
}

func (e *terminal) penID(pen string) int32 {
	if pen == "" {
		return 0
	}
	id, ok := e.penIDs[pen]
	if !ok {
		if e.pens == nil {
			e.pens, e.penIDs = []string{""}, map[string]int32{}
		}
		id = int32(len(e.pens)) //nolint:gosec // fewer than bytes in one Append
		e.pens = append(e.pens, pen)
		e.penIDs[pen] = id
	}
	return id
}

// decode takes a line apart. Its escape sequences are colours, all of them.
func (e *terminal) decode(line string) *row {
	r := &row{cells: make([]glyph, 0, len(line))}
	pen, id := "", int32(0)
	for i := 0; i < len(line); {
		if line[i] == 0x1b {
			if j := strings.IndexByte(line[i:], 'm'); j > 0 {
				pen = nextPen(pen, line[i:i+j+1])
				id = e.penID(pen)
				i += j + 1
				continue
			}
		}
		c, n := utf8.DecodeRuneInString(line[i:])
		last := r.penAt(len(r.cells) - 1)
		r.size += e.edge(last, id) - e.edge(last, 0) + utf8.RuneLen(c) + e.edge(id, 0)
		r.cells = append(r.cells, glyph{c, id})
		i += n
	}
	return r
}

// encode puts a line together again.
func (e *terminal) encode(r *row) string {
	var b strings.Builder
	b.Grow(r.size)
	pen := int32(0)
	for _, g := range r.cells {
		e.change(&b, pen, g.pen)
		pen = g.pen
		b.WriteRune(g.r)
	}
	e.change(&b, pen, 0)
	return b.String()
}

func (e *terminal) change(b *strings.Builder, from, to int32) {
	if from == to {
		return
	}
	if from != 0 {
		b.WriteString(reset)
	}
	if to != 0 {
		b.WriteString(e.pens[to])
	}
}

// nextPen is the pen after a colour sequence.
func nextPen(pen, seq string) string {
	params := seq[2 : len(seq)-1]
	switch {
	case strings.Trim(params, "0") == "":
		return ""
	case strings.HasPrefix(params, "0;"):
		return seq
	case strings.HasSuffix(pen, seq):
		return pen
	case len(pen)+len(seq) > maxPen:
		return seq
	}
	return pen + seq
}

// penAtEnd is the pen in force at the end of a line.
func penAtEnd(line []byte) string {
	pen := ""
	for s := string(line); ; {
		i := strings.IndexByte(s, 0x1b)
		if i < 0 {
			return pen
		}
		j := strings.IndexByte(s[i:], 'm')
		if j < 0 {
			return pen
		}
		pen = nextPen(pen, s[i:i+j+1])
		s = s[i+j+1:]
	}
}

// escape handles what starts with ESC.
func (e *terminal) escape(s string) string {
	if len(s) == 1 {
		e.rest = s
		return ""
	}
	switch c := s[1]; {
	case c == '[':
		return e.sequence(s)
	case c == ']', c == 'P', c == '_', c == '^', c == 'X':
		return e.skip(s)
	case c >= 0x20 && c <= 0x2f: // such as ESC ( B, which chooses a character set
		if len(s) == 2 {
			e.rest = s
			return ""
		}
		if s[2] >= 0x30 && s[2] <= 0x7e {
			return s[3:]
		}
		return s[2:]
	case c >= 0x30 && c <= 0x7e:
		return s[2:]
	}
	return s[1:]
}

// skip goes over a string, such as a title, that ends with BEL or ESC \. One
// that is too long or broken by a line end has been dropped so far as it came.
func (e *terminal) skip(s string) string {
	for i := 2; i < len(s) && i < maxOSC; i++ {
		switch s[i] {
		case '\a':
			return s[i+1:]
		case '\n':
			return s[i:]
		case 0x1b:
			if i+1 == len(s) {
				e.rest = s
				return ""
			}
			if s[i+1] == '\\' {
				return s[i+2:]
			}
			return s[i:]
		}
	}
	if len(s) < maxOSC {
		e.rest = s
		return ""
	}
	i := maxOSC
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}

// sequence handles ESC [ parameters final.
func (e *terminal) sequence(s string) string {
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 0x40 && c <= 0x7e:
			e.csi(s[2:i], c, s[:i+1])
			return s[i+1:]
		case c < 0x20 || c > 0x7e || i-2 > maxSeq:
			return s[i:] // not an escape sequence after all
		}
	}
	e.rest = s
	return ""
}

// csi carries out one control sequence.
func (e *terminal) csi(params string, final byte, whole string) {
	if final == 'm' {
		e.sgr(params, whole)
		return
	}
	if strings.IndexByte("ABCDEFGKJ", final) < 0 {
		return
	}
	first, _, _ := strings.Cut(params, ";")
	n, err := strconv.Atoi(first)
	if err != nil || n < 0 {
		n = 0
	}
	n = min(n, textMaxLine)
	move := max(1, n)
	if final == 'J' && n >= 2 {
		e.clear()
		return
	}
	e.leave()
	switch final {
	case 'A', 'F':
		e.up = min(e.up+move, len(e.lines)-1, textScreen)
	case 'B', 'E':
		e.up = max(0, e.up-move)
	case 'C':
		e.moveTo(e.col + move)
	case 'D':
		e.col = max(0, e.col-move)
	case 'G':
		e.moveTo(move - 1)
	case 'K':
		e.eraseLine(n)
	case 'J':
		if n == 0 {
			e.eraseBelow()
		}
	}
	if final == 'E' || final == 'F' {
		e.col = 0
	}
	e.settle()
}

// moveTo goes to a column, not too far beyond the line's end.
func (e *terminal) moveTo(col int) {
	e.col = min(col, max(maxColumn, len(e.row().cells)))
}

// sgr changes the pen and, at the end of the last line, writes the sequence
// there.
func (e *terminal) sgr(params, whole string) {
	if strings.Trim(params, "0123456789;:") != "" {
		return // not colours, in spite of the m
	}
	e.pen = nextPen(e.pen, whole)
	if e.col < 0 && len(e.tail) <= textMaxLine-utf8.UTFMax {
		e.tail = append(e.tail, whole...)
	}
}

// eraseLine is CSI K: 0 from the cursor on, 1 up to it, 2 all of it.
func (e *terminal) eraseLine(how int) {
	r := e.row()
	switch how {
	case 0:
		if e.col < len(r.cells) {
			e.cut(r, e.col)
		}
	case 1:
		for i := range min(e.col+1, len(r.cells)) {
			if r.cells[i] != (glyph{' ', 0}) {
				e.set(r, i, glyph{' ', 0})
			}
		}
	case 2:
		e.cut(r, 0)
	}
}

// eraseBelow is CSI J: from the cursor to the end of everything.
func (e *terminal) eraseBelow() {
	e.eraseLine(0)
	n := len(e.lines)
	for i := n - 1; i > n-1-e.up; i-- {
		if i < n-1 {
			e.size -= e.length(i) + 1
		}
		delete(e.rows, e.first+i)
	}
	if e.up > 0 { // the line of the cursor is now the last, which is not counted
		e.size -= e.length(n-1-e.up) + 1
	}
	e.lines = e.lines[:n-e.up]
	e.up = 0
}

// clear is CSI 2J: an empty screen. What went out of it before stays.
func (e *terminal) clear() {
	e.lines, e.rows, e.size = []string{""}, nil, 0
	e.up, e.col = 0, -1
	e.tail = append(e.tail[:0], e.pen...)
}

// trim keeps the text within its bounds when a line was added: the first lines
// go to the head once, then the oldest of the others are left out and counted.
func (e *terminal) trim() {
	if !e.over(0) {
		return
	}
	last := len(e.lines) - 1
	n := 0
	if e.head == "" {
		var b strings.Builder
		for n < last && n < textHeadLines && b.Len() < textHeadBytes {
			l := e.lines[n]
			if r := e.rows[e.first+n]; r != nil {
				l = e.encode(r)
			}
			b.WriteString(l)
			b.WriteByte('\n')
			e.size -= len(l) + 1
			n++
		}
		e.head = b.String()
	}
	for n < last && e.over(n) {
		l := e.length(n) + 1
		e.omittedBytes += int64(l)
		e.omittedLines++
		e.size -= l
		n++
	}
	for i := range n {
		e.lines[i] = "" // let go of the text
		delete(e.rows, e.first+i)
	}
	e.lines = e.lines[n:]
	e.first += n
}

// over reports whether the text is too long without its first n lines.
func (e *terminal) over(n int) bool {
	lines := len(e.lines) - n
	if e.head != "" {
		lines += textHeadLines
	}
	return lines > textMaxLines || e.size+len(e.head) > textMaxBytes
}
