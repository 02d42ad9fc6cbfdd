package ipynb

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"sandbook/kernel/notebook"
)

// Read decodes a notebook of format 4.0 to 4.5. newID makes ids for cells whose
// id is missing, malformed or taken; it is asked again when its id is taken
// too. An error is a *FormatError.
func Read(data []byte, limits Limits, newID func() string) (Notebook, error) {
	if len(data) > limits.Bytes {
		return Notebook{}, tooLarge("This file has %d bytes. At most %d are taken; clear large outputs and try again.", len(data), limits.Bytes)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		return Notebook{}, problem("This file is not UTF-8 text, so it is no Jupyter notebook. Save it again from Jupyter.")
	}
	if notebook.Deeper(data, limits.Depth) {
		return Notebook{}, tooLarge("This file is nested more than %d levels deep, which no notebook is.", limits.Depth)
	}
	top, ok := object(data)
	if !ok {
		return Notebook{}, problem("This file is no Jupyter notebook: it is not a JSON object. Choose a file that ends in .ipynb.")
	}
	if err := version(top); err != nil {
		return Notebook{}, err
	}
	r := &reader{limits: limits, newID: newID, taken: map[string]bool{}}
	return r.notebook(top)
}

// object decodes a JSON object; its names are matched exactly, as the struct
// decoder does not.
func object(raw []byte) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	if !firstIs(raw, '{') || json.Unmarshal(raw, &m) != nil {
		return nil, false
	}
	return m, true
}

func firstIs(raw []byte, c byte) bool {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return len(raw) > 0 && raw[0] == c
}

func text(raw json.RawMessage) (string, bool) {
	var s string
	ok := firstIs(raw, '"') && json.Unmarshal(raw, &s) == nil
	return s, ok
}

func integer(raw json.RawMessage) (int, bool) {
	var n int
	ok := len(raw) > 0 && raw[0] != 'n' && json.Unmarshal(raw, &n) == nil
	return n, ok
}

// multiline reads a string or a list of strings.
func multiline(raw json.RawMessage) (string, bool) {
	if s, ok := text(raw); ok {
		return s, true
	}
	list, ok := strs(raw)
	return strings.Join(list, ""), ok
}

// strs reads a list of strings; null in it is no string.
func strs(raw json.RawMessage) ([]string, bool) {
	var list []*string
	if !firstIs(raw, '[') || json.Unmarshal(raw, &list) != nil {
		return nil, false
	}
	out := make([]string, len(list))
	for i, s := range list {
		if s == nil {
			return nil, false
		}
		out[i] = *s
	}
	return out, true
}

func version(top map[string]json.RawMessage) error {
	major, ok := integer(top["nbformat"])
	minor, _ := integer(top["nbformat_minor"])
	_, worksheets := top["worksheets"]
	switch {
	case !ok && !worksheets:
		return problem("This file is no Jupyter notebook: it does not say which version of the format it has.")
	case worksheets || major < 4:
		return problem("This notebook has version %d of the format. Open it in Jupyter and save it, which makes it version 4, then import it again.", max(major, 1))
	case major > 4 || minor > 5 || minor < 0:
		return problem("This notebook has version %d.%d of the format; versions 4.0 to 4.5 can be read. Save it in one of those and import it again.", major, minor)
	}
	return nil
}

type reader struct {
	limits  Limits
	newID   func() string
	taken   map[string]bool
	outputs int // bytes so far
}

func (r *reader) notebook(top map[string]json.RawMessage) (Notebook, error) {
	var nb Notebook
	meta, err := r.metadata(top["metadata"], "This notebook")
	if err != nil {
		return nb, err
	}
	nb.Title, _ = text(meta["title"])
	nb.Language = languageOf(meta)
	for _, drop := range []string{"title", "orig_nbformat", "signature", "trusted"} {
		delete(meta, drop)
	}
	nb.Metadata = pack(meta)
	var cells []json.RawMessage
	if !firstIs(top["cells"], '[') || json.Unmarshal(top["cells"], &cells) != nil {
		return nb, problem("This notebook has no list of cells, so it is damaged.")
	}
	if len(cells) > r.limits.Cells {
		return nb, tooLarge("This notebook has %d cells. At most %d are taken; split it and try again.", len(cells), r.limits.Cells)
	}
	r.claim(cells)
	nb.Cells = make([]Cell, 0, len(cells))
	for i, raw := range cells {
		c, err := r.cell(raw, i+1)
		if err != nil {
			return Notebook{}, err
		}
		nb.Cells = append(nb.Cells, c)
	}
	return nb, nil
}

// claim notes the ids cells bring, so that a new id never takes the one of a
// later cell.
func (r *reader) claim(cells []json.RawMessage) {
	for _, raw := range cells {
		if c, ok := object(raw); ok {
			if id, ok := text(c["id"]); ok && cellID.MatchString(id) {
				r.taken[id] = false // brought, not yet used
			}
		}
	}
}

// id returns the cell's own id, or a new one.
func (r *reader) id(raw json.RawMessage, n int) (string, error) {
	own, ok := text(raw)
	if used, brought := r.taken[own]; ok && brought && !used {
		r.taken[own] = true
		return own, nil
	}
	for range 100 {
		id := r.newID()
		if _, known := r.taken[id]; !known && cellID.MatchString(id) {
			r.taken[id] = true
			return id, nil
		}
	}
	return "", problem("Cell %d could not be given an id of its own. Try again.", n)
}

func (r *reader) cell(raw json.RawMessage, n int) (Cell, error) {
	var c Cell
	m, ok := object(raw)
	if !ok {
		return c, problem("Cell %d of this notebook is damaged.", n)
	}
	kind, _ := text(m["cell_type"])
	c.Kind = Kind(kind)
	if c.Kind != Code && c.Kind != Markdown && c.Kind != Raw {
		return c, problem("Cell %d of this notebook is neither code, Markdown nor raw text.", n)
	}
	if c.Source, ok = multiline(m["source"]); !ok {
		return c, problem("Cell %d of this notebook has no source that can be read.", n)
	}
	if len(c.Source) > r.limits.Source {
		return c, tooLarge("The source of cell %d has %d bytes. At most %d are taken.", n, len(c.Source), r.limits.Source)
	}
	var err error
	if c.ID, err = r.id(m["id"], n); err != nil {
		return c, err
	}
	if err = r.cellMetadata(&c, m["metadata"]); err != nil {
		return c, err
	}
	if c.Kind != Code { // outputs elsewhere are no outputs
		c.Attachments, err = r.attachments(m["attachments"], n)
		return c, err
	}
	if count, ok := integer(m["execution_count"]); ok && count > 0 {
		c.Count = count
	}
	c.Outputs, err = r.cellOutputs(m["outputs"], n)
	return c, err
}

func (r *reader) cellMetadata(c *Cell, raw json.RawMessage) error {
	meta, err := r.metadata(raw, "A cell")
	if err != nil {
		return err
	}
	delete(meta, "trusted")
	if own, ok := object(meta[ownKey]); ok {
		var a Attribution
		if by, ok := object(own["author"]); ok {
			a.Kind, _ = text(by["kind"])
			a.Name, _ = text(by["name"])
		}
		if (a.Kind == "person" || a.Kind == "agent") && len(a.Name) <= 200 {
			c.Attribution = &a
		}
		delete(meta, ownKey)
	}
	c.Metadata = pack(meta)
	return nil
}

// metadata reads an object of metadata within its bound.
func (r *reader) metadata(raw json.RawMessage, whose string) (map[string]json.RawMessage, error) {
	if len(raw) > r.limits.Metadata {
		return nil, tooLarge("%s has %d bytes of metadata. At most %d are taken.", whose, len(raw), r.limits.Metadata)
	}
	if len(raw) == 0 || string(raw) == "null" {
		return map[string]json.RawMessage{}, nil
	}
	m, ok := object(raw)
	if !ok {
		return nil, problem("%s has metadata that cannot be read.", whose)
	}
	return m, nil
}

// pack encodes metadata, or nothing when there is none. Names are sorted.
func pack(m map[string]json.RawMessage) json.RawMessage {
	if len(m) == 0 {
		return nil
	}
	out, err := json.Marshal(m)
	if err != nil {
		return nil
	}
	return out
}

// languageOf finds the language where the tools of Jupyter put it.
func languageOf(meta map[string]json.RawMessage) string {
	for _, at := range [][2]string{{"language_info", "name"}, {"kernelspec", "language"}, {"kernelspec", "name"}} {
		if m, ok := object(meta[at[0]]); ok {
			if s, ok := text(m[at[1]]); ok && language.MatchString(s) {
				if at[1] == "name" && at[0] == "kernelspec" {
					s = strings.TrimRight(s, "0123456789.")
				}
				return strings.ToLower(s)
			}
		}
	}
	return ""
}

// attachments stay opaque, but their form is checked.
func (r *reader) attachments(raw json.RawMessage, n int) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if len(raw) > r.limits.Metadata {
		return nil, tooLarge("The attachments of cell %d have %d bytes. At most %d are taken.", n, len(raw), r.limits.Metadata)
	}
	files, ok := object(raw)
	for _, f := range files {
		bundle, isBundle := object(f)
		ok = ok && isBundle
		for mime, v := range bundle {
			_, isText := multiline(v)
			ok = ok && (isText || jsonMime.MatchString(mime))
		}
	}
	if !ok {
		return nil, problem("Cell %d of this notebook has attachments that cannot be read.", n)
	}
	return pack(files), nil
}

func (r *reader) cellOutputs(raw json.RawMessage, n int) ([]Output, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if r.outputs += len(raw); r.outputs > r.limits.Output {
		return nil, tooLarge("The outputs of this notebook have more than %d bytes. Clear the large ones and try again.", r.limits.Output)
	}
	var list []json.RawMessage
	if !firstIs(raw, '[') || json.Unmarshal(raw, &list) != nil {
		return nil, problem("Cell %d of this notebook has outputs that cannot be read.", n)
	}
	if len(list) > r.limits.Outputs {
		return nil, tooLarge("Cell %d has %d outputs. At most %d are taken; clear them and try again.", n, len(list), r.limits.Outputs)
	}
	var outs []Output
	for _, raw := range list {
		o, ok := r.output(raw)
		if !ok {
			return nil, problem("Cell %d of this notebook has an output that cannot be read.", n)
		}
		outs = append(outs, o)
	}
	return outs, nil
}

func (r *reader) output(raw json.RawMessage) (o Output, ok bool) {
	m, ok := object(raw)
	if !ok {
		return o, false
	}
	switch kind, _ := text(m["output_type"]); kind {
	case "stream":
		o.Kind, o.Name = Stream, "stdout"
		if name, _ := text(m["name"]); name == "stderr" {
			o.Name = name
		}
		o.Text, ok = multiline(m["text"])
	case "display_data", "execute_result":
		o.Kind = Display
		if kind == "execute_result" {
			o.Kind = Result
		}
		if o.Data, ok = bundle(m["data"]); !ok {
			return o, false
		}
		if meta, isObject := object(m["metadata"]); isObject && len(m["metadata"]) <= r.limits.Metadata {
			o.Metadata = pack(meta)
		}
	case "error":
		o.Kind = Error
		o.EName, _ = text(m["ename"])
		o.EValue, _ = text(m["evalue"])
		if o.Traceback, ok = strs(m["traceback"]); !ok {
			o.Traceback, ok = nil, len(m["traceback"]) == 0
		}
		if len(o.Traceback) == 0 {
			o.Traceback = nil
		}
	default:
		return o, false
	}
	return o, ok
}

// bundle reads a MIME bundle. Types with odd names are left out.
func bundle(raw json.RawMessage) (map[string]string, bool) {
	m, ok := object(raw)
	if !ok {
		return nil, false
	}
	out := make(map[string]string, len(m))
	for mime, v := range m {
		if !mimeForm.MatchString(mime) {
			continue
		}
		if jsonMime.MatchString(mime) {
			var b bytes.Buffer
			if json.Compact(&b, v) != nil {
				return nil, false
			}
			out[mime] = b.String()
			continue
		}
		s, ok := multiline(v)
		if !ok {
			return nil, false
		}
		if binary.MatchString(mime) {
			s = plainBase64(s)
		}
		out[mime] = s
	}
	return out, true
}

// plainBase64 removes the line breaks in base64; what is not base64 stays as
// it is, and is shown by nobody.
func plainBase64(s string) string {
	one := strings.Map(func(c rune) rune {
		if c == '\n' || c == '\r' || c == ' ' || c == '\t' {
			return -1
		}
		return c
	}, s)
	if _, err := base64.StdEncoding.DecodeString(one); err != nil {
		return s
	}
	return one
}
