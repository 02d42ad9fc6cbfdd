package render

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
)

const (
	maxJSON      = 4 << 20
	maxJSONNodes = 3000 // values shown; the rest is counted
	maxJSONDepth = 40   // levels shown; deeper ones are named
	maxJSONText  = 2000 // bytes of one string shown
)

var errNotOne = errors.New("more than one value")

// JSON renders a JSON text as a tree that opens and closes without scripts.
// Keys keep their order and numbers their digits. A text that is no JSON is
// shown as it is.
func JSON(src string) HTML {
	src = validUTF8(src)
	if len(src) > maxJSON {
		return plainBlock(src)
	}
	p := &jsonTree{dec: json.NewDecoder(strings.NewReader(src)), w: &writer{how: exact}}
	p.dec.UseNumber()
	p.w.WriteString(`<div class="json">`)
	if err := p.whole(); err != nil {
		return plainBlock(src)
	}
	p.w.WriteString("</div>")
	return HTML(p.w.String())
}

type jsonTree struct {
	dec   *json.Decoder
	w     *writer
	nodes int
}

func (p *jsonTree) whole() error {
	if err := p.value("", 0); err != nil {
		return err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return errNotOne
	}
	return nil
}

// value writes one value with its label, which is safe markup or empty.
func (p *jsonTree) value(label string, depth int) error {
	t, err := p.dec.Token()
	if err != nil {
		return err
	}
	p.nodes++
	if d, ok := t.(json.Delim); ok {
		return p.composite(label, d, depth)
	}
	if p.nodes > maxJSONNodes {
		return nil
	}
	p.w.WriteString(`<div class="json-row">` + label)
	switch v := t.(type) {
	case string:
		p.text("json-string", quote(v))
	case json.Number:
		p.text("json-number", v.String())
	case bool:
		p.text("json-bool", strconv.FormatBool(v))
	default:
		p.text("json-null", "null")
	}
	p.w.WriteString("</div>")
	return nil
}

func (p *jsonTree) text(class, s string) {
	short, cut := clip(s, maxJSONText)
	p.w.WriteString(`<span class="` + class + `">`)
	p.w.text(short)
	if cut {
		p.w.WriteString("… (" + strconv.Itoa(len(s)-len(short)) + " bytes more)")
	}
	p.w.WriteString("</span>")
}

// quote writes a string as JSON does, but leaves what the page can show.
func quote(s string) string {
	r := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`)
	return `"` + r.Replace(s) + `"`
}

// composite writes an object or an array. Its summary needs the number of
// members, which is known at the end, so the members are written aside first.
func (p *jsonTree) composite(label string, open json.Delim, depth int) error {
	if p.nodes > maxJSONNodes || depth >= maxJSONDepth {
		n, err := p.skip()
		if err == nil && p.nodes <= maxJSONNodes {
			p.w.WriteString(`<div class="json-row">` + label + `<span class="json-more">` + summary(open, n) + " not shown</span></div>")
		}
		return err
	}
	outer := p.w
	p.w = &writer{how: exact, marks: outer.marks}
	count, err := p.members(open, depth)
	if err != nil {
		return err
	}
	inner := p.w
	p.w = outer
	p.w.marks = inner.marks
	if count == 0 {
		p.w.WriteString(`<div class="json-row">` + label + `<span class="json-more">` + summary(open, 0) + "</span></div>")
		return nil
	}
	p.w.WriteString(`<details class="json-node"`)
	if depth == 0 {
		p.w.WriteString(" open")
	}
	p.w.WriteString("><summary>" + label + `<span class="json-more">` + summary(open, count) + "</span></summary>" + inner.String())
	if depth == 0 && p.nodes > maxJSONNodes {
		p.w.WriteString(`<div class="json-row"><span class="json-more">` + strconv.Itoa(p.nodes-maxJSONNodes) +
			" more values not shown</span></div>")
	}
	p.w.WriteString("</details>")
	return nil
}

func (p *jsonTree) members(open json.Delim, depth int) (count int, err error) {
	for ; p.dec.More(); count++ {
		label := `<span class="json-key">` + strconv.Itoa(count) + `</span>: `
		if open == '{' {
			k, err := p.dec.Token()
			if err != nil {
				return 0, err
			}
			key, _ := k.(string)
			label = jsonKey(key)
		}
		if err := p.value(label, depth+1); err != nil {
			return 0, err
		}
	}
	_, err = p.dec.Token()
	return count, err
}

// skip reads to the end of the value whose opening has been read, counting what
// is in it.
func (p *jsonTree) skip() (members int, err error) {
	for depth := 1; depth > 0; {
		t, err := p.dec.Token()
		if err != nil {
			return 0, err
		}
		d, isDelim := t.(json.Delim)
		switch {
		case isDelim && (d == '}' || d == ']'):
			depth--
			continue
		case depth == 1:
			members++
		}
		if isDelim {
			depth++
		}
		if p.nodes > maxJSONNodes {
			p.nodes++
		}
	}
	return members, nil
}

func jsonKey(key string) string {
	w := &writer{how: exact}
	short, cut := clip(key, 200)
	w.WriteString(`<span class="json-key">`)
	w.text(strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(short))
	if cut {
		w.WriteString("…")
	}
	w.WriteString("</span>: ")
	return w.String()
}

func summary(open json.Delim, n int) string {
	one, many, left, right := "item", "items", "[", "]"
	if open == '{' {
		one, many, left, right = "key", "keys", "{", "}"
	}
	switch n {
	case 0:
		return left + right
	case 1:
		return left + "1 " + one + right
	}
	return left + strconv.Itoa(n) + " " + many + right
}
