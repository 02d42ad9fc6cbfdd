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
	var b bytes.Buffer
	if err := Encode(&b, nb, nil); err != nil {
		return nil, err
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

func count(n int) any {
	if n <= 0 {
		return nil
	}
	return n
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
