package render

import (
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	// maxSpans bounds the elements one text may open; past it text is written
	// without colours and links, and nothing of it is lost.
	maxSpans = 20000
	// maxSequence bounds one escape sequence. A longer one is not a sequence:
	// its introducer is dropped and the rest is text.
	maxSequence = 4096
	maxURL      = 2048
)

// style is the state that SGR sequences change. Colours are -1 or 0..255.
type style struct {
	fg, bg                                        int16
	bold, dim, italic, underline, strike, inverse bool
}

var plain = style{fg: -1, bg: -1}

// ANSI renders terminal text: SGR colours and weights as classes, OSC 8 links
// to http and https as links, every other escape sequence removed, every other
// control character shown. Newlines and tabs are kept, so the result belongs
// in a <pre>. Carriage returns and cursor movement are expected to have been
// folded before; what is left of them is removed or shown.
func ANSI(text string) HTML {
	p := &ansi{s: validUTF8(text), now: plain, open: plain}
	p.w.how = exact
	p.w.Grow(len(text) + len(text)/8)
	p.run()
	return HTML(p.w.String())
}

type ansi struct {
	s     string
	i     int
	w     writer
	spans int

	now  style  // what the text asks for
	open style  // what the open span shows
	span bool   // a span is open
	link string // what the text asks for
	href string // what the open link shows
}

func (p *ansi) run() {
	start := 0
	flush := func() {
		if p.i > start {
			p.write(p.s[start:p.i])
		}
	}
	for p.i < len(p.s) {
		r, n := utf8.DecodeRuneInString(p.s[p.i:])
		skip := p.sequence(r, n)
		if skip == 0 {
			p.i += n
			continue
		}
		flush()
		p.apply(p.s[p.i : p.i+skip])
		p.i += skip
		start = p.i
	}
	flush()
	p.closeSpan()
	p.closeLink()
}

// sequence returns the length of what begins at p.i and is not text, or 0.
func (p *ansi) sequence(r rune, n int) int {
	rest := p.s[p.i:]
	switch r {
	case 0x07: // a bell rings nowhere
		return 1
	case '\r':
		if strings.HasPrefix(rest, "\r\n") {
			return 1
		}
		return 0
	case 0x1B:
		return escape(rest)
	case 0x9B:
		return n + csi(rest[n:])
	case 0x90, 0x98, 0x9D, 0x9E, 0x9F:
		return n + stringSequence(rest[n:])
	}
	return 0
}

// escape measures a sequence that begins with ESC.
func escape(s string) int {
	if len(s) < 2 {
		return 1
	}
	switch c := s[1]; {
	case c == '[':
		return 2 + csi(s[2:])
	case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
		return 2 + stringSequence(s[2:])
	case c >= 0x20 && c <= 0x2F:
		i := 2
		for i < len(s) && i < 8 && s[i] >= 0x20 && s[i] <= 0x2F {
			i++
		}
		if i < len(s) && s[i] >= 0x30 && s[i] <= 0x7E {
			return i + 1
		}
		return 1
	case c >= 0x30 && c <= 0x7E:
		return 2
	}
	return 1
}

// csi measures parameters, intermediates and the final byte. A sequence that
// never ends contributes only what can belong to it.
func csi(s string) int {
	i := 0
	for i < len(s) && i < maxSequence && s[i] >= 0x30 && s[i] <= 0x3F {
		i++
	}
	for i < len(s) && i < maxSequence && s[i] >= 0x20 && s[i] <= 0x2F {
		i++
	}
	if i < len(s) && s[i] >= 0x40 && s[i] <= 0x7E {
		return i + 1
	}
	return i
}

// stringSequence measures the text up to its terminator (BEL, ESC \ or ST). One
// without a terminator on its line is no sequence: it must not swallow output.
func stringSequence(s string) int {
	for i := 0; i < len(s) && i < maxSequence; i++ {
		switch {
		case s[i] == 0x07:
			return i + 1
		case s[i] == 0x1B && i+1 < len(s) && s[i+1] == '\\':
			return i + 2
		case s[i] == 0xC2 && i+1 < len(s) && s[i+1] == 0x9C:
			return i + 2
		case s[i] == '\n' || s[i] == 0x1B:
			return 0
		}
	}
	return 0
}

// apply acts on the two kinds of sequence that mean something here.
func (p *ansi) apply(seq string) {
	body, ok := strings.CutPrefix(seq, "\x1b[")
	if !ok {
		body, ok = strings.CutPrefix(seq, "\u009b")
	}
	if ok {
		if params, ok := strings.CutSuffix(body, "m"); ok {
			p.now.sgr(params)
		}
		return
	}
	body, ok = strings.CutPrefix(seq, "\x1b]8;")
	if !ok {
		body, ok = strings.CutPrefix(seq, "\u009d8;")
	}
	if !ok {
		return
	}
	body = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(body, "\x07"), "\x1b\\"), "\u009c")
	if _, uri, ok := strings.Cut(body, ";"); ok {
		p.link = ""
		if u, _, ok := webURL(uri); ok {
			p.link = u
		}
	}
}

// sgr applies "select graphic rendition" parameters.
func (st *style) sgr(params string) {
	if strings.ContainsAny(params, "<=>? !\"#$%&'()*+,-./") {
		return // private or with intermediates: not SGR
	}
	fields := strings.Split(params, ";")
	if len(fields) > 64 {
		fields = fields[:64]
	}
	for i := 0; i < len(fields); i++ {
		sub := strings.Split(fields[i], ":")
		code := number(sub[0])
		switch code {
		case 38, 48:
			var c int16
			if len(sub) > 1 {
				c = colour(withoutSpace(sub[1:]))
			} else {
				var used int
				c, used = colourList(fields[i+1:])
				i += used
			}
			if c >= 0 {
				st.set(code, c)
			}
		case 58: // underline colour: skipped with its arguments
			if len(sub) == 1 {
				_, used := colourList(fields[i+1:])
				i += used
			}
		case 4:
			st.underline = len(sub) < 2 || number(sub[1]) != 0
		default:
			st.simple(code)
		}
	}
}

func (st *style) set(code int, c int16) {
	if code == 38 {
		st.fg = c
	} else {
		st.bg = c
	}
}

// simple applies a code without arguments. Conceal and blink are ignored:
// output may not hide itself.
func (st *style) simple(code int) {
	switch {
	case code == 0:
		*st = plain
	case code == 1:
		st.bold = true
	case code == 2:
		st.dim = true
	case code == 3:
		st.italic = true
	case code == 7:
		st.inverse = true
	case code == 9:
		st.strike = true
	case code == 21:
		st.underline = true
	case code == 22:
		st.bold, st.dim = false, false
	case code == 23:
		st.italic = false
	case code == 24:
		st.underline = false
	case code == 27:
		st.inverse = false
	case code == 29:
		st.strike = false
	case code >= 30 && code <= 37:
		st.fg = int16(code - 30)
	case code == 39:
		st.fg = -1
	case code >= 40 && code <= 47:
		st.bg = int16(code - 40)
	case code == 49:
		st.bg = -1
	case code >= 90 && code <= 97:
		st.fg = int16(code - 90 + 8)
	case code >= 100 && code <= 107:
		st.bg = int16(code - 100 + 8)
	}
}

// number reads a parameter: empty is 0, anything odd is -1.
func number(s string) int {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return -1
	}
	return int(n)
}

// withoutSpace drops the colour space of 38:2:SPACE:r:g:b.
func withoutSpace(args []string) []string {
	if len(args) >= 5 && args[0] == "2" {
		return append([]string{"2"}, args[2:]...)
	}
	return args
}

func colourList(args []string) (c int16, used int) {
	if len(args) == 0 {
		return -1, 0
	}
	switch args[0] {
	case "5":
		used = min(2, len(args))
	case "2":
		used = min(4, len(args))
	default:
		return -1, 0
	}
	return colour(args[:used]), used
}

// colour reads "5;n" or "2;r;g;b" and returns a palette index.
func colour(args []string) int16 {
	if len(args) == 0 {
		return -1
	}
	vals := make([]int, 0, 3)
	for _, a := range args[1:min(len(args), 4)] {
		n := number(a)
		if n < 0 || n > 255 {
			return -1
		}
		vals = append(vals, n)
	}
	switch {
	case args[0] == "5" && len(vals) >= 1:
		return int16(vals[0]) //nolint:gosec // 0 to 255
	case args[0] == "2" && len(vals) == 3:
		return nearest(vals[0], vals[1], vals[2])
	}
	return -1
}

// nearest maps a true colour to the fixed part of the palette, 16..255, for
// pages allow no style attributes.
func nearest(r, g, b int) int16 {
	step := func(v int) int {
		switch {
		case v < 48:
			return 0
		case v < 115:
			return 1
		}
		return (v - 35) / 40
	}
	dist := func(c int) int {
		cr, cg, cb := paletteRGB(c)
		return (cr-r)*(cr-r) + (cg-g)*(cg-g) + (cb-b)*(cb-b)
	}
	cube := 16 + 36*step(r) + 6*step(g) + step(b)
	grey := 232 + max(0, min(23, ((r+g+b)/3-3)/10))
	if dist(grey) < dist(cube) {
		return int16(grey)
	}
	return int16(cube) //nolint:gosec // 16 to 255
}

// paletteRGB is xterm's palette for 16..255.
func paletteRGB(c int) (r, g, b int) {
	if c >= 232 {
		v := 8 + 10*(c-232)
		return v, v, v
	}
	level := [6]int{0, 95, 135, 175, 215, 255}
	c -= 16
	return level[c/36], level[c/6%6], level[c%6]
}

func (p *ansi) write(s string) {
	if p.link != p.href {
		p.closeSpan()
		p.closeLink()
		p.openLink()
	}
	if p.now != p.open {
		p.closeSpan()
		p.openSpan()
	}
	p.w.text(s)
}

func (p *ansi) openLink() {
	if p.link == "" || p.spans >= maxSpans {
		return
	}
	_, host, ok := webURL(p.link)
	if !ok {
		return
	}
	p.spans++
	p.href = p.link
	p.w.WriteString(`<a href="` + attr(p.link) + `" title="Opens ` + attr(host) +
		`" target="_blank" rel="noopener noreferrer nofollow">`)
}

func (p *ansi) closeLink() {
	if p.href != "" {
		p.w.WriteString("</a>")
		p.href = ""
	}
}

func (p *ansi) openSpan() {
	if p.now == plain || p.spans >= maxSpans {
		return
	}
	p.spans++
	p.open, p.span = p.now, true
	p.w.WriteString(`<span class="` + p.now.classes() + `">`)
}

func (p *ansi) closeSpan() {
	if p.span {
		p.w.WriteString("</span>")
	}
	p.open, p.span = plain, false
}

// classes lists the classes of a style. Inverse swaps the colours that are
// set; the class itself gives the ones that are not.
func (st style) classes() string {
	var c []string
	add := func(on bool, name string) {
		if on {
			c = append(c, name)
		}
	}
	fg, bg := st.fg, st.bg
	if st.inverse {
		fg, bg = bg, fg
	}
	add(st.bold, "ansi-bold")
	add(st.dim, "ansi-dim")
	add(st.italic, "ansi-italic")
	add(st.underline, "ansi-underline")
	add(st.strike, "ansi-strike")
	add(st.inverse, "ansi-inverse")
	if fg >= 0 {
		c = append(c, "ansi-fg-"+strconv.Itoa(int(fg)))
	}
	if bg >= 0 {
		c = append(c, "ansi-bg-"+strconv.Itoa(int(bg)))
	}
	return strings.Join(c, " ")
}

// webURL checks an absolute http or https URL from outside and returns it in
// normal form with its host in ASCII, so that look-alike letters are seen.
func webURL(raw string) (normal, host string, ok bool) {
	if raw == "" || len(raw) > maxURL {
		return "", "", false
	}
	for _, r := range raw {
		if r <= ' ' || r == '\\' || hidden(0, r, 0, exact) {
			return "", "", false
		}
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.User != nil || u.Hostname() == "" {
		return "", "", false
	}
	name := u.Hostname()
	if !strings.Contains(name, ":") {
		if name, err = idna.Lookup.ToASCII(name); err != nil {
			return "", "", false
		}
		if port := u.Port(); port != "" {
			u.Host = name + ":" + port
		} else {
			u.Host = name
		}
	}
	if strings.ContainsAny(u.Host, "<>\"'` ") {
		return "", "", false
	}
	return u.String(), u.Host, true
}
