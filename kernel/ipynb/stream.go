package ipynb

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Stored is a value of an output that is not in memory. Only a value of a JSON
// type is ever read whole: whether it is one shows at its end.
type Stored struct {
	Open   func() (io.ReadCloser, error)
	Base64 bool // it is bytes, which the file holds in base64
}

// Encode writes a notebook as Write does, piece by piece: it keeps no more than
// one output in memory. The outputs of code cell i are what outputs yields for
// it, in place of those in nb; nil means those in nb.
func Encode(w io.Writer, nb Notebook, outputs func(i int) iter.Seq[Output]) error {
	if outputs == nil {
		outputs = func(i int) iter.Seq[Output] { return slices.Values(nb.Cells[i].Outputs) }
	}
	meta := members(nb.Metadata)
	cleanNotebook(meta)
	if nb.Title != "" {
		meta["title"] = nb.Title
	}
	if language.MatchString(nb.Language) {
		describe(meta, nb.Language)
	}
	taken := map[string]bool{}
	for _, c := range nb.Cells {
		taken[c.ID] = false
	}
	p := &printer{w: bufio.NewWriterSize(w, 64<<10)}
	p.open('{')
	p.name("cells")
	p.open('[')
	for i, c := range nb.Cells {
		p.item()
		if err := p.cell(c, exportID(c.ID, i+1, taken), outputs(i)); err != nil {
			return fmt.Errorf("cell %d: %w", i+1, err)
		}
	}
	p.close(']')
	p.member("metadata", meta)
	p.member("nbformat", 4)
	p.member("nbformat_minor", 5)
	p.close('}')
	p.raw("\n")
	if p.err != nil {
		return fmt.Errorf("encode notebook: %w", p.err)
	}
	return p.w.Flush()
}

// printer writes JSON as Jupyter lays it out. It keeps its first error.
type printer struct {
	w     *bufio.Writer
	err   error
	begun []bool // for each open value, whether it has something in it
}

func (p *printer) raw(s string) {
	if p.err == nil {
		_, p.err = p.w.WriteString(s)
	}
}

func (p *printer) bytes(b []byte) {
	if p.err == nil {
		_, p.err = p.w.Write(b)
	}
}

func (p *printer) line() { p.raw("\n          "[:1+len(p.begun)]) } // none is deeper

func (p *printer) open(bracket byte) {
	p.raw(string(bracket))
	p.begun = append(p.begun, false)
}

func (p *printer) close(bracket byte) {
	last := len(p.begun) - 1
	some := p.begun[last]
	p.begun = p.begun[:last]
	if some {
		p.line()
	}
	p.raw(string(bracket))
}

// item begins the next value of what is open.
func (p *printer) item() {
	last := len(p.begun) - 1
	if p.begun[last] {
		p.raw(",")
	}
	p.begun[last] = true
	p.line()
}

func (p *printer) name(key string) {
	p.item()
	p.value(key)
	p.raw(": ")
}

func (p *printer) member(key string, v any) {
	p.name(key)
	p.value(v)
}

// value writes what is in memory.
func (p *printer) value(v any) {
	if p.err != nil {
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent(strings.Repeat(" ", len(p.begun)), " ")
	if p.err = enc.Encode(v); p.err == nil {
		_, p.err = p.w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	}
}

// cell writes one cell; names come in their order.
func (p *printer) cell(c Cell, id string, outputs iter.Seq[Output]) error {
	meta := members(c.Metadata)
	cleanCell(c.Kind, meta)
	if c.Attribution != nil {
		meta[ownKey] = map[string]any{"author": c.Attribution}
	}
	switch c.Kind {
	case Code, Markdown, Raw:
	default:
		return fmt.Errorf("unknown kind %q", c.Kind)
	}
	p.open('{')
	if _, ok := object(c.Attachments); ok && c.Kind != Code {
		p.member("attachments", c.Attachments)
	}
	p.member("cell_type", string(c.Kind))
	if c.Kind == Code {
		p.member("execution_count", count(c.Count))
	}
	p.member("id", id)
	p.member("metadata", meta)
	if c.Kind == Code {
		p.name("outputs")
		p.open('[')
		for o := range outputs {
			p.item()
			if err := p.output(o, c.Count); err != nil {
				return err
			}
		}
		p.close(']')
	}
	p.name("source")
	p.text(strings.NewReader(c.Source), true)
	p.close('}')
	return p.err
}

func (p *printer) output(o Output, n int) error {
	p.open('{')
	switch o.Kind {
	case Stream:
		name := "stdout"
		if o.Name == "stderr" {
			name = "stderr"
		}
		p.member("name", name)
		p.member("output_type", "stream")
		p.name("text")
		p.text(strings.NewReader(o.Text), true)
	case Display, Result:
		p.name("data")
		p.bundle(o)
		if o.Kind == Result {
			p.member("execution_count", count(n))
		}
		p.member("metadata", members(o.Metadata))
		p.member("output_type", map[OutputKind]string{Display: "display_data", Result: "execute_result"}[o.Kind])
	case Error:
		tb := o.Traceback
		if tb == nil {
			tb = []string{}
		}
		p.member("ename", o.EName)
		p.member("evalue", o.EValue)
		p.member("output_type", "error")
		p.member("traceback", tb)
	default:
		return fmt.Errorf("output of unknown kind %q", o.Kind)
	}
	p.close('}')
	return p.err
}

// bundle writes the values of an output by MIME type.
func (p *printer) bundle(o Output) {
	types := slices.Collect(maps.Keys(o.Data))
	for mime := range o.Stored {
		if _, both := o.Data[mime]; !both {
			types = append(types, mime)
		}
	}
	slices.Sort(types)
	p.open('{')
	for _, mime := range types {
		p.name(mime)
		if s, ok := o.Stored[mime]; ok {
			p.stored(mime, s)
			continue
		}
		v := o.Data[mime]
		switch {
		case jsonMime.MatchString(mime) && json.Valid([]byte(v)):
			p.value(json.RawMessage(v))
		default:
			p.text(strings.NewReader(v), listed(mime))
		}
	}
	p.close('}')
}

// listed says whether a type's text is a list of lines in the file.
func listed(mime string) bool { return !binary.MatchString(mime) && !jsonMime.MatchString(mime) }

func (p *printer) stored(mime string, s Stored) {
	if p.err != nil {
		return
	}
	r, err := s.Open()
	if err != nil {
		p.err = err
		return
	}
	defer func() { _ = r.Close() }()
	switch {
	case s.Base64:
		t := p.begin(listed(mime))
		enc := base64.NewEncoder(base64.StdEncoding, t)
		if _, err := io.Copy(enc, r); err != nil && p.err == nil {
			p.err = err
		}
		_ = enc.Close() // what t could not write is in p.err
		t.end()
	case jsonMime.MatchString(mime):
		b, err := io.ReadAll(r)
		switch {
		case err != nil:
			p.err = err
		case json.Valid(b):
			p.value(json.RawMessage(b))
		default:
			p.text(bytes.NewReader(b), false)
		}
	default:
		p.text(r, listed(mime))
	}
}

// text writes what r holds as a string, or as a list of its lines.
func (p *printer) text(r io.Reader, list bool) {
	t := p.begin(list)
	if _, err := io.Copy(t, r); err != nil && p.err == nil {
		p.err = err
	}
	t.end()
}

func (p *printer) begin(list bool) *textWriter {
	t := &textWriter{p: p, list: list}
	if list {
		p.open('[')
	} else {
		p.raw(`"`)
	}
	return t
}

// textWriter writes a text whose pieces come one after the other; what is not
// UTF-8 of it is replaced as encoding/json does.
type textWriter struct {
	p      *printer
	list   bool
	inLine bool
	rest   []byte // the beginning of a character
}

// Write implements io.Writer.
func (t *textWriter) Write(b []byte) (int, error) {
	n := len(b)
	if len(t.rest) > 0 {
		b = append(t.rest, b...)
		t.rest = nil
	}
	end := len(b)
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		if c := b[len(b)-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-back:]) {
				end = len(b) - back
			}
			break
		}
	}
	t.rest = bytes.Clone(b[end:])
	t.pieces(b[:end])
	return n, t.p.err
}

func (t *textWriter) pieces(b []byte) {
	for len(b) > 0 && t.p.err == nil {
		piece := b[:min(len(b), 32<<10)]
		for len(piece) < len(b) && !utf8.RuneStart(b[len(piece)]) { // not within a character
			piece = b[:len(piece)+1]
		}
		if !t.list {
			t.escaped(piece)
			b = b[len(piece):]
			continue
		}
		if !t.inLine {
			t.p.item()
			t.p.raw(`"`)
			t.inLine = true
		}
		nl := bytes.IndexByte(piece, '\n')
		if nl >= 0 {
			piece = b[:nl+1]
		}
		t.escaped(piece)
		if nl >= 0 {
			t.p.raw(`"`)
			t.inLine = false
		}
		b = b[len(piece):]
	}
}

// escaped writes a piece of a string, as encoding/json would: plain stretches as
// they are.
func (t *textWriter) escaped(piece []byte) {
	for len(piece) > 0 {
		n := 0
		for n < len(piece) && piece[n] >= ' ' && piece[n] != '"' && piece[n] != '\\' && piece[n] < utf8.RuneSelf {
			n++
		}
		t.p.bytes(piece[:n])
		if piece = piece[n:]; len(piece) == 0 {
			return
		}
		r, size := utf8.DecodeRune(piece)
		switch {
		case r == '"' || r == '\\':
			t.p.raw(`\`)
			t.p.bytes(piece[:1])
		case r < ' ':
			t.p.raw(escapes[r])
		case r == utf8.RuneError && size == 1:
			t.p.raw(`\ufffd`)
		case r == '\u2028':
			t.p.raw(`\u2028`)
		case r == '\u2029':
			t.p.raw(`\u2029`)
		default:
			t.p.bytes(piece[:size])
		}
		piece = piece[size:]
	}
}

// escapes are how JSON writes control characters.
var escapes = func() (out [' ']string) {
	for c := range out {
		b, err := json.Marshal(string(rune(c)))
		if err != nil {
			panic(err)
		}
		out[c] = strings.Trim(string(b), `"`)
	}
	return out
}()

// end writes what is left and closes the value.
func (t *textWriter) end() {
	rest := t.rest
	t.rest = nil
	t.pieces(rest)
	if !t.list || t.inLine {
		t.p.raw(`"`)
	}
	if t.list {
		t.p.close(']')
	}
}
