package ipynb

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// wholeWrite is what Encode must agree with byte for byte: all of the notebook
// as one value for encoding/json.
func wholeWrite(nb Notebook) ([]byte, error) {
	meta := members(nb.Metadata)
	cleanNotebook(meta)
	if nb.Title != "" {
		meta["title"] = nb.Title
	}
	if language.MatchString(nb.Language) {
		describe(meta, nb.Language)
	}
	cells := make([]any, 0, len(nb.Cells))
	taken := map[string]bool{}
	for _, c := range nb.Cells {
		taken[c.ID] = false
	}
	for i, c := range nb.Cells {
		m, err := wholeCell(c, i+1)
		if err != nil {
			return nil, err
		}
		m["id"] = exportID(c.ID, i+1, taken)
		cells = append(cells, m)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(map[string]any{"cells": cells, "metadata": meta, "nbformat": 4, "nbformat_minor": 5})
	if err != nil {
		return nil, fmt.Errorf("encode notebook: %w", err)
	}
	return b.Bytes(), nil
}

func wholeCell(c Cell, n int) (map[string]any, error) {
	meta := members(c.Metadata)
	cleanCell(c.Kind, meta)
	if c.Attribution != nil {
		meta[ownKey] = map[string]any{"author": c.Attribution}
	}
	m := map[string]any{"cell_type": string(c.Kind), "metadata": meta, "source": wholeLines(c.Source)}
	switch c.Kind {
	case Code:
		m["execution_count"] = count(c.Count)
		outs := make([]any, 0, len(c.Outputs))
		for _, o := range c.Outputs {
			out, err := wholeOutput(o, c.Count)
			if err != nil {
				return nil, fmt.Errorf("cell %d: %w", n, err)
			}
			outs = append(outs, out)
		}
		m["outputs"] = outs
	case Markdown, Raw:
		if _, ok := object(c.Attachments); ok {
			m["attachments"] = c.Attachments
		}
	default:
		return nil, fmt.Errorf("cell %d: unknown kind %q", n, c.Kind)
	}
	return m, nil
}

func wholeLines(s string) []string {
	if s == "" {
		return []string{}
	}
	parts := strings.SplitAfter(s, "\n")
	if parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return parts
}

func wholeOutput(o Output, n int) (map[string]any, error) {
	switch o.Kind {
	case Stream:
		name := "stdout"
		if o.Name == "stderr" {
			name = "stderr"
		}
		return map[string]any{"output_type": "stream", "name": name, "text": wholeLines(o.Text)}, nil
	case Display, Result:
		m := map[string]any{"output_type": "display_data", "data": wholeBundle(o.Data), "metadata": members(o.Metadata)}
		if o.Kind == Result {
			m["output_type"], m["execution_count"] = "execute_result", count(n)
		}
		return m, nil
	case Error:
		tb := o.Traceback
		if tb == nil {
			tb = []string{}
		}
		return map[string]any{"output_type": "error", "ename": o.EName, "evalue": o.EValue, "traceback": tb}, nil
	}
	return nil, fmt.Errorf("output of unknown kind %q", o.Kind)
}

func wholeBundle(data map[string]string) map[string]any {
	m := map[string]any{}
	for mime, v := range data {
		switch {
		case jsonMime.MatchString(mime) && json.Valid([]byte(v)):
			m[mime] = json.RawMessage(v)
		case binary.MatchString(mime) || jsonMime.MatchString(mime):
			m[mime] = v
		default:
			m[mime] = wholeLines(v)
		}
	}
	return m
}

// stored puts the values of a notebook behind readers that give them in pieces of
// any size.
func stored(nb Notebook) Notebook {
	pieces := []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader, func(r io.Reader) io.Reader { return r }}
	nb.Cells = slices.Clone(nb.Cells)
	for i, c := range nb.Cells {
		nb.Cells[i].Outputs = slices.Clone(c.Outputs)
		for k, o := range c.Outputs {
			if o.Data == nil {
				continue
			}
			out := &nb.Cells[i].Outputs[k]
			out.Data, out.Stored = map[string]string{}, map[string]Stored{}
			for mime, v := range o.Data {
				b, err := base64.StdEncoding.DecodeString(v)
				is64 := binary.MatchString(mime) && err == nil && base64.StdEncoding.EncodeToString(b) == v
				if !is64 {
					b = []byte(v)
				}
				out.Stored[mime] = Stored{Base64: is64, Open: func() (io.ReadCloser, error) {
					return io.NopCloser(pieces[(len(mime)+k)%len(pieces)](bytes.NewReader(b))), nil
				}}
			}
		}
	}
	return nb
}

func agrees(t *testing.T, name string, nb Notebook) {
	t.Helper()
	want, err := wholeWrite(nb)
	if err != nil {
		t.Fatal(err)
	}
	for how, nb := range map[string]Notebook{"in memory": nb, "stored": stored(nb)} {
		got, err := Write(nb)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s, %s: %v, got\n%s\nwant\n%s", name, how, err, got, want)
		}
	}
}

func TestPiecesAreTheWhole(t *testing.T) {
	t.Parallel()
	for name, nb := range odd() {
		agrees(t, name, nb)
	}
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "\n", "é", "😀", "\xff", "\xf0\x9f", "\"", "\\", "\x00", "<&>", "\u2028", "\r\n", strings.Repeat("long ", 9000), strings.Repeat("ü", 40000), "\ufffd", "\u007f"}
	for range 40 {
		var b strings.Builder
		for range r.IntN(12) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		s := b.String()
		agrees(t, fmt.Sprintf("%.40q", s), Notebook{Cells: []Cell{{ID: "a", Kind: Code, Source: s, Outputs: []Output{
			{Kind: Stream, Name: "stdout", Text: s},
			{Kind: Display, Data: map[string]string{
				"text/plain": s, "application/json": s, "application/x+json": "[" + strings.Repeat("1,", 50000) + "{\"<\":[]}]", "image/png": s,
				"application/pdf": base64.StdEncoding.EncodeToString([]byte(s)),
			}},
		}}}})
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("a\nb", "{}")
	f.Add("\xf0\x9f\n\xff", "[1, 2.50]")
	f.Fuzz(func(t *testing.T, text, other string) {
		agrees(t, "fuzzed", Notebook{Title: other, Cells: []Cell{{ID: text, Kind: Code, Source: text, Outputs: []Output{
			{Kind: Result, Data: map[string]string{"text/html": text, "application/json": other, "image/gif": other}},
			{Kind: Stream, Text: other},
		}}}})
	})
}

// A notebook is not held in memory to be written. Not parallel: it counts what
// is allocated.
func TestEncodeKeepsLittle(t *testing.T) {
	const outputs, size = 50, 1 << 20
	value := strings.Repeat("0123456789\n", size/11)
	nb := Notebook{Cells: []Cell{{ID: "a", Kind: Code}}}
	n := int64(0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := Encode(writer(func(p []byte) (int, error) { n += int64(len(p)); return len(p), nil }), nb, func(int) iter.Seq[Output] {
		return func(yield func(Output) bool) {
			for range outputs {
				open := func() (io.ReadCloser, error) { return io.NopCloser(struct{ io.Reader }{strings.NewReader(value)}), nil }
				if !yield(Output{Kind: Display, Stored: map[string]Stored{"text/plain": {Open: open}, "image/png": {Open: open, Base64: true}}}) {
					return
				}
			}
		}
	})
	if err != nil || n < outputs*size*2 {
		t.Fatalf("wrote %d bytes: %v", n, err)
	}
	runtime.ReadMemStats(&after)
	if got := int64(after.TotalAlloc - before.TotalAlloc); got > n/10 {
		t.Errorf("allocated %d bytes in all to write %d, want at most a tenth", got, n)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestEncodeEndsWithAnError(t *testing.T) {
	t.Parallel()
	bad := errors.New("sector 17 is bad")
	open := func(r io.Reader) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(r), nil }
	}
	for name, s := range map[string]Stored{
		"no value":    {Open: func() (io.ReadCloser, error) { return nil, bad }},
		"half a text": {Open: open(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(bad)))},
		"half bytes":  {Open: open(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(bad))), Base64: true},
	} {
		for _, mime := range []string{"text/plain", "image/png", "application/json"} {
			nb := Notebook{Cells: []Cell{{ID: "a", Kind: Code, Outputs: []Output{{Kind: Display, Stored: map[string]Stored{mime: s}}}}}}
			if err := Encode(io.Discard, nb, nil); !errors.Is(err, bad) {
				t.Errorf("%s of %s: %v, want %v", name, mime, err, bad)
			}
		}
	}
	broken := writer(func([]byte) (int, error) { return 0, bad })
	if err := Encode(broken, full(), nil); !errors.Is(err, bad) {
		t.Errorf("to a broken writer: %v, want %v", err, bad)
	}
}
