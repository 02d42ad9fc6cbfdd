package ipynb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Write encodes a notebook as format 4.5, the way Jupyter lays files out: one
// space of indent, names sorted, text as a list of lines. It is deterministic,
// and Read of its result gives the same notebook. What the format does not
// allow is left out, so that the file is always valid.
func Write(nb Notebook) ([]byte, error) {
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
		m, err := cell(c, i+1)
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

// exportID keeps a good id, and otherwise names the cell by its place.
func exportID(id string, n int, taken map[string]bool) string {
	if used := taken[id]; !used && cellID.MatchString(id) {
		taken[id] = true
		return id
	}
	id = fmt.Sprintf("cell-%d", n)
	for k := 2; ; k++ {
		if _, known := taken[id]; !known {
			taken[id] = true
			return id
		}
		id = fmt.Sprintf("cell-%d-%d", n, k)
	}
}

func members(raw json.RawMessage) map[string]any {
	m := map[string]any{}
	if o, ok := object(raw); ok {
		for k, v := range o {
			m[k] = v
		}
	}
	return m
}

func cell(c Cell, n int) (map[string]any, error) {
	meta := members(c.Metadata)
	cleanCell(c.Kind, meta)
	if c.Attribution != nil {
		meta[ownKey] = map[string]any{"author": c.Attribution}
	}
	m := map[string]any{"cell_type": string(c.Kind), "metadata": meta, "source": lines(c.Source)}
	switch c.Kind {
	case Code:
		m["execution_count"] = count(c.Count)
		outs := make([]any, 0, len(c.Outputs))
		for _, o := range c.Outputs {
			out, err := output(o, c.Count)
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

func count(n int) any {
	if n <= 0 {
		return nil
	}
	return n
}

// lines splits text after each newline; joined it is the same text.
func lines(s string) []string {
	if s == "" {
		return []string{}
	}
	parts := strings.SplitAfter(s, "\n")
	if parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return parts
}

func output(o Output, n int) (map[string]any, error) {
	switch o.Kind {
	case Stream:
		name := "stdout"
		if o.Name == "stderr" {
			name = "stderr"
		}
		return map[string]any{"output_type": "stream", "name": name, "text": lines(o.Text)}, nil
	case Display, Result:
		m := map[string]any{"output_type": "display_data", "data": exportBundle(o.Data), "metadata": members(o.Metadata)}
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

func exportBundle(data map[string]string) map[string]any {
	m := map[string]any{}
	for mime, v := range data {
		switch {
		case jsonMime.MatchString(mime) && json.Valid([]byte(v)):
			m[mime] = json.RawMessage(v)
		case binary.MatchString(mime) || jsonMime.MatchString(mime):
			m[mime] = v
		default:
			m[mime] = lines(v)
		}
	}
	return m
}

// describe adds what Jupyter needs to choose a kernel, where the file did not
// bring it.
func describe(meta map[string]any, lang string) {
	if _, has := meta["language_info"]; !has {
		meta["language_info"] = map[string]any{"name": lang}
	}
	if _, has := meta["kernelspec"]; !has {
		name, display := lang, strings.ToUpper(lang[:1])+lang[1:]
		if lang == "python" {
			name, display = "python3", "Python 3"
		}
		meta["kernelspec"] = map[string]any{"name": name, "display_name": display, "language": lang}
	}
}

var (
	metaName = regexp.MustCompile(`^[^\r\n\x{2028}\x{2029}]+$`)
	metaTag  = regexp.MustCompile(`^[^,\n]+$`)
)

// cleanCell removes metadata whose form the format does not allow.
func cleanCell(kind Kind, meta map[string]any) {
	keepIf(meta, "name", func(raw json.RawMessage) bool { s, ok := text(raw); return ok && metaName.MatchString(s) })
	keepIf(meta, "jupyter", isObject)
	keepIf(meta, "tags", func(raw json.RawMessage) bool {
		tags, ok := strs(raw)
		seen := map[string]bool{}
		for _, t := range tags {
			ok = ok && !seen[t] && metaTag.MatchString(t)
			seen[t] = true
		}
		return ok
	})
	switch kind {
	case Raw:
		keepIf(meta, "format", isText)
	case Code:
		keepIf(meta, "collapsed", isBool)
		keepIf(meta, "scrolled", func(raw json.RawMessage) bool { return isBool(raw) || string(raw) == `"auto"` })
		keepIf(meta, "execution", func(raw json.RawMessage) bool {
			m, ok := object(raw)
			for _, v := range m {
				ok = ok && isText(v)
			}
			return ok
		})
	}
	delete(meta, "trusted")
}

func cleanNotebook(meta map[string]any) {
	for _, drop := range []string{"orig_nbformat", "signature", "trusted"} {
		delete(meta, drop)
	}
	keepIf(meta, "title", isText)
	keepIf(meta, "authors", func(raw json.RawMessage) bool { return firstIs(raw, '[') })
	keepIf(meta, "kernelspec", func(raw json.RawMessage) bool {
		m, ok := object(raw)
		return ok && isText(m["name"]) && isText(m["display_name"])
	})
	keepIf(meta, "language_info", func(raw json.RawMessage) bool {
		m, ok := object(raw)
		ok = ok && isText(m["name"])
		for _, k := range []string{"file_extension", "mimetype", "pygments_lexer"} {
			ok = ok && (m[k] == nil || isText(m[k]))
		}
		mode := m["codemirror_mode"]
		return ok && (mode == nil || isText(mode) || isObject(mode))
	})
}

func keepIf(meta map[string]any, key string, ok func(json.RawMessage) bool) {
	if raw, has := meta[key].(json.RawMessage); has && !ok(raw) {
		delete(meta, key)
	}
}

func isText(raw json.RawMessage) bool   { _, ok := text(raw); return ok }
func isObject(raw json.RawMessage) bool { return firstIs(raw, '{') }
func isBool(raw json.RawMessage) bool   { return string(raw) == "true" || string(raw) == "false" }
