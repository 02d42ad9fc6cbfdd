package ipynb

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "rewrite golden files")

// ids returns a maker of ids new-1, new-2 …
func ids() func() string {
	n := 0
	return func() string { n++; return fmt.Sprintf("new-%d", n) }
}

func full() Notebook {
	return Notebook{
		Title: "Größe & <Maß>", Language: "python",
		Metadata: json.RawMessage(`{"kernelspec":{"display_name":"Python 3","language":"python","name":"python3"},"language_info":{"name":"python"},"x":{"deep":[1,2.50,1e400]}}`),
		Cells: []Cell{
			{ID: "a", Kind: Markdown, Source: "# Title\n\n![x](attachment:x.png)", Attribution: &Attribution{Kind: "agent", Name: "Helper"}, Attachments: json.RawMessage(`{"x.png":{"image/png":"AAAA"}}`)},
			{ID: "b", Kind: Code, Source: "print('a')\r\n", Count: 3, Metadata: json.RawMessage(`{"collapsed":false,"scrolled":"auto","tags":["x","y"]}`), Outputs: []Output{
				{Kind: Stream, Name: "stdout", Text: "a\n\x1b[31mb\u2028c\n"},
				{Kind: Stream, Name: "stderr", Text: "warn"},
				{Kind: Display, Data: map[string]string{"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>", "image/svg+xml": "<svg>\n</svg>", "text/html": "<b>&</b>\n"}, Metadata: json.RawMessage(`{"image/png":{"height":10,"width":20}}`)},
				{Kind: Result, Data: map[string]string{"application/json": `{"a":[1,2.50]}`, "application/vnd.x+json": `"text"`, "text/plain": "1\n2"}},
				{Kind: Error, EName: "ValueError", EValue: "bad", Traceback: []string{"\x1b[31m---", "line"}},
				{Kind: Error, EName: "E"},
				{Kind: Display, Data: map[string]string{}},
			}},
			{ID: "c", Kind: Code},
			{ID: "d", Kind: Raw, Source: "raw\n", Metadata: json.RawMessage(`{"format":"text/latex"}`)},
		},
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	want := full()
	data, err := Write(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(data, DefaultLimits, ids())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again, err := Write(got)
	if err != nil || !bytes.Equal(data, again) {
		t.Errorf("the second file differs from the first: %v", err)
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	got, err := Write(full())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "full.golden.ipynb")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

func schema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile("testdata/nbformat.v4.5.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// valid checks a file against the official schema and for ids that are unique.
func valid(s *jsonschema.Schema, data []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	if err := s.Validate(v); err != nil {
		return err
	}
	var nb struct{ Cells []struct{ ID string } }
	if err := json.Unmarshal(data, &nb); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, c := range nb.Cells {
		if seen[c.ID] {
			return fmt.Errorf("id %q twice", c.ID)
		}
		seen[c.ID] = true
	}
	return nil
}

// odd are notebooks whose metadata the format does not allow everywhere.
func odd() map[string]Notebook {
	meta := func(s string) json.RawMessage { return json.RawMessage(s) }
	one := func(c Cell) Notebook { return Notebook{Cells: []Cell{c}} }
	return map[string]Notebook{
		"empty":            {},
		"full":             full(),
		"language":         {Language: "r"},
		"odd language":     {Language: "<x>"},
		"bad kernelspec":   {Language: "python", Metadata: meta(`{"kernelspec":{"name":1},"language_info":3,"title":5,"authors":{},"orig_nbformat":2}`)},
		"half kernelspec":  {Metadata: meta(`{"kernelspec":{"name":"x"},"language_info":{"name":"x","codemirror_mode":1}}`)},
		"mime type number": {Metadata: meta(`{"language_info":{"name":"x","mimetype":1}}`)},
		"metadata no JSON": {Metadata: meta(`{`)},
		"metadata list":    {Metadata: meta(`[1]`)},
		"tags":             one(Cell{ID: "a", Kind: Code, Metadata: meta(`{"tags":["a","a"],"name":"","jupyter":1,"collapsed":"x","scrolled":"y","execution":{"a":1}}`)}),
		"tags, comma":      one(Cell{ID: "a", Kind: Markdown, Metadata: meta(`{"tags":["a,b"],"name":"a\nb"}`)}),
		"tags, empty":      one(Cell{ID: "a", Kind: Raw, Metadata: meta(`{"tags":[""],"format":1}`)}),
		"no id":            one(Cell{Kind: Code}),
		"ids": {Cells: []Cell{
			{ID: "cell-2", Kind: Code}, {ID: "a b", Kind: Code}, {ID: "x", Kind: Raw}, {ID: "x", Kind: Raw}, {ID: strings.Repeat("a", 65), Kind: Markdown},
		}},
		"negative count": one(Cell{ID: "a", Kind: Code, Count: -1}),
		"stream name":    one(Cell{ID: "a", Kind: Code, Outputs: []Output{{Kind: Stream, Name: "x"}}}),
		"JSON no JSON":   one(Cell{ID: "a", Kind: Code, Outputs: []Output{{Kind: Display, Data: map[string]string{"application/json": "{", "application/x+json": "", "text/x+json": "{}"}}}}),
		"not UTF-8":      one(Cell{ID: "a", Kind: Code, Source: "\xff", Outputs: []Output{{Kind: Stream, Text: "\xff"}}}),
		"attachments":    one(Cell{ID: "a", Kind: Code, Attachments: meta(`{"x":{}}`)}),
	}
}

func TestWritesAreValid(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for name, nb := range odd() {
		data, err := Write(nb)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := valid(s, data); err != nil {
			t.Errorf("%s: %v\n%s", name, err, data)
		}
		if _, err := Read(data, DefaultLimits, ids()); err != nil {
			t.Errorf("%s cannot be read again: %v", name, err)
		}
	}
	for name, nb := range map[string]Notebook{
		"cell":   {Cells: []Cell{{ID: "a", Kind: "heading"}}},
		"output": {Cells: []Cell{{ID: "a", Kind: Code, Outputs: []Output{{Kind: "x"}}}}},
	} {
		if _, err := Write(nb); err == nil {
			t.Errorf("%s of an unknown kind is written", name)
		}
	}
}

// TestJupyterAgrees has Jupyter's own library judge what is written.
func TestJupyterAgrees(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3"
	if err := exec.CommandContext(t.Context(), python, "-c", "import nbformat").Run(); err != nil {
		t.Skipf("%s has no nbformat, so Jupyter's own judgement is left out; the schema test stands in (%v)", python, err)
	}
	dir := t.TempDir()
	all := odd()
	// Jupyter rounds numbers and breaks lines at U+2028; without those, its
	// layout is ours to the byte.
	all["layout"] = full()
	all["layout"].Cells[1].Outputs[0].Text = "a\n\x1b[31mb\n"
	all["layout"].Cells[1].Outputs[3].Data["application/json"] = `{"a":[1,2.5]}`
	layout := all["layout"]
	layout.Metadata = json.RawMessage(strings.Replace(string(layout.Metadata), "2.50,1e400", "2.5", 1))
	all["layout"] = layout
	for name, nb := range all {
		data, err := Write(nb)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".ipynb"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const script = `
import glob, sys, warnings, nbformat
warnings.simplefilter("error")
for p in glob.glob(sys.argv[1] + "/*.ipynb"):
    nb = nbformat.read(p, as_version=nbformat.NO_CONVERT)
    try:
        nbformat.validate(nb)
    except Exception as e:
        sys.exit("%s: %s" % (p, e))
    if p.endswith("/layout.ipynb"):
        with open(p, encoding="utf-8") as f:
            text = f.read()
        again = nbformat.writes(nb) + "\n"
        if again != text:
            import difflib
            sys.exit("Jupyter lays it out otherwise:\n" + "".join(difflib.unified_diff(text.splitlines(1), again.splitlines(1))))
print("ok")
`
	out, err := exec.CommandContext(t.Context(), python, "-c", script, dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ok") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestReadsOlderMinors(t *testing.T) {
	t.Parallel()
	for minor := range 6 {
		src := fmt.Sprintf(`{"nbformat":4,"nbformat_minor":%d,"metadata":{"kernelspec":{"name":"python3","display_name":"x"},"trusted":true,"signature":"s","title":"T"},"cells":[
			{"cell_type":"code","source":["a\n","b"],"metadata":{"trusted":true,"k":1},"execution_count":null,"outputs":[{"output_type":"stream","name":"stdout","text":["x\n","y"]}]},
			{"cell_type":"markdown","source":"m","metadata":{},"outputs":[{"output_type":"stream","name":"stdout","text":"never"}]}]}`, minor)
		got, err := Read([]byte("\ufeff"+src), DefaultLimits, ids())
		if err != nil {
			t.Fatal(err)
		}
		want := Notebook{Title: "T", Language: "python", Metadata: json.RawMessage(`{"kernelspec":{"name":"python3","display_name":"x"}}`), Cells: []Cell{
			{ID: "new-1", Kind: Code, Source: "a\nb", Metadata: json.RawMessage(`{"k":1}`), Outputs: []Output{{Kind: Stream, Name: "stdout", Text: "x\ny"}}},
			{ID: "new-2", Kind: Markdown, Source: "m"},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("4.%d: %s", minor, diff)
		}
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	var cells []string
	for _, id := range []string{`"new-2"`, `"x"`, `"x"`, `""`, `"a b"`, `1`, `null`, `"` + strings.Repeat("a", 65) + `"`, `"é"`, `"ok_-9"`} {
		cells = append(cells, `{"cell_type":"raw","source":"","metadata":{},"id":`+id+`}`)
	}
	nb, err := Read([]byte(`{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":[`+strings.Join(cells, ",")+`]}`), DefaultLimits, ids())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range nb.Cells {
		got = append(got, c.ID)
	}
	want := []string{"new-2", "x", "new-1", "new-3", "new-4", "new-5", "new-6", "new-7", "new-8", "ok_-9"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := Read([]byte(`{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":[`+cells[3]+`]}`), DefaultLimits, func() string { return "" }); err == nil {
		t.Error("an id that is none was taken")
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	cell := func(s string) string {
		return `{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":[` + s + `]}`
	}
	code := func(s string) string {
		return cell(`{"cell_type":"code","source":"","metadata":{},"execution_count":1,"outputs":` + s + `}`)
	}
	small := Limits{Bytes: 4000, Depth: 20, Cells: 2, Source: 10, Outputs: 2, Output: 200, Metadata: 100}
	for name, c := range map[string]struct {
		in    string
		large bool
	}{
		"nothing": {"", false}, "text": {"hello", false}, "list": {"[]", false}, "null": {"null", false}, "cut": {`{"nbformat":4`, false},
		"not UTF-8": {"{\"nbformat\":4,\"x\":\"\xff\"}", false}, "UTF-16": {"\xff\xfe{\x00", false}, "no version": {`{"cells":[]}`, false},
		"version 3": {`{"nbformat":3,"nbformat_minor":0,"worksheets":[{"cells":[]}]}`, false}, "version 2": {`{"nbformat":2}`, false}, "version 5": {`{"nbformat":5,"cells":[]}`, false},
		"version 4.6": {`{"nbformat":4,"nbformat_minor":6,"cells":[]}`, false}, "version text": {`{"nbformat":"4","cells":[]}`, false}, "version float": {`{"nbformat":4.5,"cells":[]}`, false},
		"worksheets in 4": {`{"nbformat":4,"nbformat_minor":0,"worksheets":[]}`, false}, "no cells": {`{"nbformat":4,"nbformat_minor":5,"metadata":{}}`, false},
		"cells object": {`{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":{}}`, false}, "Cells": {`{"nbformat":4,"nbformat_minor":5,"metadata":{},"Cells":[]}`, false},
		"metadata list": {`{"nbformat":4,"nbformat_minor":5,"metadata":[],"cells":[]}`, false}, "cell number": {cell("1"), false}, "cell null": {cell("null"), false},
		"cell heading": {cell(`{"cell_type":"heading","source":"","metadata":{}}`), false}, "no source": {cell(`{"cell_type":"raw","metadata":{}}`), false},
		"source number": {cell(`{"cell_type":"raw","source":1,"metadata":{}}`), false}, "source of numbers": {cell(`{"cell_type":"raw","source":[1],"metadata":{}}`), false},
		"source of null": {cell(`{"cell_type":"raw","source":[null],"metadata":{}}`), false}, "cell metadata": {cell(`{"cell_type":"raw","source":"","metadata":1}`), false},
		"outputs object": {code(`{}`), false}, "output number": {code(`[1]`), false}, "output pyout": {code(`[{"output_type":"pyout"}]`), false}, "output no text": {code(`[{"output_type":"stream","name":"stdout"}]`), false},
		"output data": {code(`[{"output_type":"display_data","data":[],"metadata":{}}]`), false}, "output html number": {code(`[{"output_type":"display_data","data":{"text/html":1},"metadata":{}}]`), false},
		"traceback":   {code(`[{"output_type":"error","ename":"","evalue":"","traceback":[1]}]`), false},
		"attachments": {cell(`{"cell_type":"raw","source":"","metadata":{},"attachments":{"a":1}}`), false}, "attachment data": {cell(`{"cell_type":"raw","source":"","metadata":{},"attachments":{"a":{"image/png":1}}}`), false},
		"many cells": {cell(`1,2,3`), true}, "large file": {strings.Repeat(" ", 4001), true}, "deep": {cell(strings.Repeat("[", 30) + strings.Repeat("]", 30)), true},
		"large source": {cell(`{"cell_type":"raw","source":"01234567890","metadata":{}}`), true}, "many outputs": {code(`[1,2,3]`), true},
		"large outputs": {code(`["` + strings.Repeat("a", 300) + `"]`), true}, "large metadata": {cell(`{"cell_type":"raw","source":"","metadata":{"a":"` + strings.Repeat("a", 100) + `"}}`), true},
		"large attachments": {cell(`{"cell_type":"raw","source":"","metadata":{},"attachments":{"a":"` + strings.Repeat("a", 100) + `"}}`), true},
	} {
		_, err := Read([]byte(c.in), small, ids())
		var p *FormatError
		if !errors.As(err, &p) || p.TooLarge != c.large {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m := p.Message; !unicode.IsUpper(rune(m[0])) || !strings.HasSuffix(m, ".") || strings.Contains(m, "json:") {
			t.Errorf("%s: %q is no sentence for people", name, m)
		}
	}
	deep := strings.Repeat(`{"a":`, 5000000)
	if _, err := Read([]byte(deep), DefaultLimits, ids()); err == nil {
		t.Error("depth is not bounded")
	}
	brackets := `{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":[{"cell_type":"raw","source":"` + strings.Repeat(`[{\"`, 1000) + `","metadata":{}}]}`
	if _, err := Read([]byte(brackets), DefaultLimits, ids()); err != nil {
		t.Errorf("brackets in text count as depth: %v", err)
	}
}

func TestValuesOfOutputs(t *testing.T) {
	t.Parallel()
	src := `{"nbformat":4,"nbformat_minor":5,"metadata":{"language_info":{"name":"R"}},"cells":[{"cell_type":"code","id":"a","source":"","metadata":{"sandbook":{"author":{"kind":"server","name":"x"}}},"execution_count":1.5,
		"outputs":[{"output_type":"execute_result","execution_count":9,"metadata":[],"data":{"image/png":["AAAA\n","AAAA\n"],"image/jpeg":"not base64!","image/svg+xml":["<svg>\n","</svg>"],"application/json":["a", {"b": 1.0}],"bad type":"x","\u0000/x":"y"}}]}]}`
	nb, err := Read([]byte(src), DefaultLimits, ids())
	if err != nil {
		t.Fatal(err)
	}
	want := []Cell{{ID: "a", Kind: Code, Outputs: []Output{{Kind: Result, Data: map[string]string{
		"image/png": "AAAAAAAA", "image/jpeg": "not base64!", "image/svg+xml": "<svg>\n</svg>", "application/json": `["a",{"b":1.0}]`,
	}}}}}
	if diff := cmp.Diff(want, nb.Cells); diff != "" || nb.Language != "r" {
		t.Errorf("%s %s", nb.Language, diff)
	}
}

func TestManyCellsAreQuick(t *testing.T) {
	t.Parallel()
	nb := Notebook{}
	for i := range DefaultLimits.Cells {
		nb.Cells = append(nb.Cells, Cell{ID: fmt.Sprint("c", i), Kind: Code, Source: "x = 1\n", Outputs: []Output{{Kind: Stream, Name: "stdout", Text: "1\n"}}})
	}
	data, err := Write(nb)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(data, DefaultLimits, ids())
	if err != nil || len(got.Cells) != len(nb.Cells) {
		t.Fatalf("%d cells, %v", len(got.Cells), err)
	}
	nb.Cells = append(nb.Cells, Cell{ID: "last", Kind: Raw})
	data, _ = Write(nb)
	var p *FormatError
	if _, err := Read(data, DefaultLimits, ids()); !errors.As(err, &p) || !p.TooLarge {
		t.Errorf("one more: %v", err)
	}
}

// FuzzRead: whatever is read can be written validly, and reads the same again.
func FuzzRead(f *testing.F) {
	for _, nb := range odd() {
		data, err := Write(nb)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"nbformat":4,"nbformat_minor":0,"cells":[{"cell_type":"code","source":["a"],"outputs":[{"output_type":"error","traceback":null}]}]}`))
	s := schema(f)
	huge := regexp.MustCompile(`[eE][+\-]?[0-9]{4,}`) // the validator writes such numbers out in full
	f.Fuzz(func(t *testing.T, data []byte) {
		nb, err := Read(data, DefaultLimits, ids())
		if err != nil {
			var p *FormatError
			if !errors.As(err, &p) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		out, err := Write(nb)
		if err != nil {
			t.Fatal(err)
		}
		if !huge.Match(out) {
			if err := valid(s, out); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		again, err := Read(out, DefaultLimits, ids())
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		second, err := Write(again)
		if err != nil || !bytes.Equal(out, second) {
			t.Fatalf("%v\n%s", err, cmp.Diff(string(out), string(second)))
		}
	})
}
