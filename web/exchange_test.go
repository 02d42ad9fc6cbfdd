package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandbook/kernel/notebook"
)

// What belongs to one notebook is not to be had through another, by any
// address, not even the news that it exists.
func TestNothingIsReadThroughAnotherNotebook(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.place()
	other := r.notebook("Other")
	r.put(other, "own.txt", "own")
	stray, _, err := r.blobs.Put(t.Context(), strings.NewReader("named by nobody"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := "/api/v1/notebooks/"+string(p.id), "/api/v1/notebooks/"+string(other)
	for name, tc := range map[string]struct {
		path string
		head map[string]string
	}{
		"blob":                      {path: theirs + "/blobs/" + p.hash},
		"blob, page's address":      {path: "/n/" + string(other) + "/blob/" + p.hash},
		"blob, as if kept":          {path: theirs + "/blobs/" + p.hash, head: map[string]string{"If-None-Match": `"` + p.hash + `"`}},
		"blob, a part":              {path: theirs + "/blobs/" + p.hash, head: map[string]string{"Range": "bytes=0-1"}},
		"blob of no notebook":       {path: mine + "/blobs/" + stray},
		"blob of unknown notebook":  {path: "/api/v1/notebooks/nope/blobs/" + p.hash},
		"blob in nothing":           {path: "/n/%20/blob/" + p.hash},
		"file":                      {path: theirs + "/files/data/a.txt"},
		"file, page's address":      {path: "/n/" + string(other) + "/files/data/a.txt"},
		"output of a run":           {path: theirs + "/runs/" + p.run + "/output"},
		"output of unknown":         {path: "/api/v1/notebooks/nope/runs/" + p.run + "/output"},
		"runs of unknown":           {path: "/api/v1/notebooks/nope/runs"},
		"events of unknown":         {path: "/api/v1/notebooks/nope/events"},
		"export of unknown":         {path: "/api/v1/notebooks/nope/export.ipynb"},
		"files of unknown":          {path: "/api/v1/notebooks/nope/files"},
		"page of unknown":           {path: "/n/nope"},
		"notebook with SQL":         {path: "/api/v1/notebooks/'%20OR%201=1--"},
		"notebook with a wild card": {path: "/api/v1/notebooks/%25"},
		"run with a wild card":      {path: mine + "/runs/%25/output"},
	} {
		for _, as := range []credential{r.owner(), r.agent(notebook.ScopeRead, notebook.ScopeEdit, notebook.ScopeRun), r.bound(other), r.bound(p.id)} {
			a := r.do(call{method: "GET", path: tc.path, head: tc.head, as: as})
			wantProblem(t, name, a, 404, "not_found")
			if strings.Contains(a.body, "canary") || a.head.Get("ETag") != "" {
				t.Errorf("%s: the refusal tells something: %s", name, a)
			}
		}
	}
	runs := r.do(call{method: "GET", path: theirs + "/runs", as: r.owner()})
	cell := r.do(call{method: "GET", path: theirs + "/runs?cell=" + string(r.state(p.id).Cells[0].ID), as: r.owner()})
	for _, a := range []answer{runs, cell} {
		if a.status != http.StatusOK || strings.Contains(a.body, p.run) {
			t.Errorf("runs of the other: got %s, want none of these", a)
		}
	}
	wantProblem(t, "a file deleted through another", r.do(call{method: "DELETE", path: theirs + "/files/data/a.txt", as: r.owner()}), 404, "not_found")
	// Whoever has the bytes may keep them, too.
	r.put(other, "same.txt", "kept-canary")
	if a := r.do(call{method: "GET", path: theirs + "/blobs/" + p.hash, as: r.bound(other)}); a.status != http.StatusOK || a.body != "kept-canary" {
		t.Errorf("its own copy: got %s, want it", a)
	}
	// A copy of a notebook has the files and outputs, and stays when the first goes.
	a := r.do(call{method: "POST", path: mine + "/duplicate", as: r.owner()})
	var made struct{ ID string }
	if a.status != http.StatusCreated || json.Unmarshal([]byte(a.body), &made) != nil {
		t.Fatalf("got %s, want a copy", a)
	}
	if a := r.do(call{method: "GET", path: "/api/v1/notebooks/" + made.ID + "/files/data/a.txt", as: r.owner()}); a.body != "kept-canary" {
		t.Errorf("the copy's file: got %s", a)
	}
}

const (
	script   = `<script>alert(1)</script>`
	svg      = `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)">` + script + `</svg>`
	pngBytes = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde"
)

// hostile are files whose bytes a browser might take for a page, by every name
// that might make it do so.
var hostile = map[string]string{
	"page.html":       "<!doctype html>" + script,
	"page.htm":        script,
	"page.xhtml":      `<html xmlns="http://www.w3.org/1999/xhtml">` + script + `</html>`,
	"page.xml":        `<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">` + script + `</html>`,
	"page.mht":        "MIME-Version: 1.0\r\nContent-Type: text/html\r\n\r\n" + script,
	"picture.svg":     svg,
	"picture.svgz":    svg,
	"picture.png":     "<!doctype html>" + script,
	"real.png":        pngBytes + script,
	"gif.html":        "GIF89a/*" + script + "*/=1",
	"noname":          "<!doctype html>" + script,
	"text.txt":        "<!doctype html>" + script,
	"script.js":       "alert(1)",
	"style.css":       "body{background:url(//evil.example)}",
	"worker.mjs":      "self.onmessage=alert",
	"doc.pdf":         "%PDF-1.4\n1 0 obj<</OpenAction<</S/JavaScript/JS(app.alert(1))>>>>",
	"data.json":       `{"a":"` + script + `"}`,
	"bom.txt":         "\xff\xfe<\x00s\x00c\x00r\x00i\x00p\x00t\x00>\x00",
	"utf7.txt":        "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
	"app.webmanifest": `{"start_url":"/"}`,
	"x.swf":           "CWS\x09" + script,
	"empty.html":      "",
	"a.html;b.png":    script,
	"a.html\u202egnp": script,
	"spaced .html":    script,
	`quo"te.html`:     script,
	"ümläut.html":     script,
	"semi;colon=1":    script,
}

// mayShow are the types a browser shows as they are: none of them runs a script.
var mayShow = map[string]bool{"text/plain; charset=utf-8": true, "image/png": true, "image/gif": true, "image/jpeg": true, "image/webp": true}

// Bytes that came out of a sandbox never act as a page of the application,
// whatever they are, whatever they are called and whatever a request says they
// are: they are shown only if harmless, and have no origin in any case.
func TestBytesOfASandboxNeverAct(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N")
	for name, content := range hostile {
		hash := r.put(id, name, content)
		e := url.PathEscape(name)
		for way, path := range map[string]string{
			"file":               "/n/" + string(id) + "/files/" + e,
			"file, API":          "/api/v1/notebooks/" + string(id) + "/files/" + e,
			"blob":               "/n/" + string(id) + "/blob/" + hash,
			"blob, API":          "/api/v1/notebooks/" + string(id) + "/blobs/" + hash,
			"blob said SVG":      "/n/" + string(id) + "/blob/" + hash + "?type=image/svg%2Bxml",
			"blob said HTML":     "/n/" + string(id) + "/blob/" + hash + "?type=text/html",
			"blob said JS":       "/n/" + string(id) + "/blob/" + hash + "?type=text/javascript",
			"blob with an end":   "/n/" + string(id) + "/blob/" + hash + "?x=.html",
			"file said to be so": "/n/" + string(id) + "/files/" + e + "?type=text/html&inline=1",
		} {
			for _, head := range []map[string]string{asPage(), {"Accept": "image/*", "Sec-Fetch-Dest": "iframe"}, {"Range": "bytes=0-"}} {
				what := fmt.Sprintf("%s %q", way, name)
				a := r.do(call{method: "GET", path: path, head: head, as: r.owner()})
				if a.status == http.StatusRequestedRangeNotSatisfiable && content == "" {
					continue
				}
				if a.status != http.StatusOK && a.status != http.StatusPartialContent || a.body != content {
					t.Errorf("%s: got %s, want its bytes", what, a)
					continue
				}
				wantHeaders(t, what, a, bytesPolicy)
				ct, cd := a.head.Get("Content-Type"), a.head.Get("Content-Disposition")
				kind, _, _ := strings.Cut(cd, ";")
				switch {
				case kind == "attachment" && (ct == "application/octet-stream" || mayShow[ct]):
				case kind == "inline" && mayShow[ct]:
				case kind == "inline" && ct == "image/svg+xml" && strings.HasPrefix(way, "blob") && strings.HasPrefix(content, "<svg"): // for <img>; as a page, the policy above stops its scripts
				default:
					t.Errorf("%s: it is %q with %q, want it saved, or shown as something harmless", what, ct, cd)
				}
				if strings.ContainsAny(cd, "\r\n\u202e") || strings.Count(cd, `"`)%2 != 0 {
					t.Errorf("%s: the name in %q", what, cd)
				}
			}
		}
	}
}

// Outputs a Jupyter file brings are bytes of a stranger, too.
func TestImportedOutputsNeverAct(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	big := strings.Repeat(" ", 1<<20) // so that it becomes a blob
	j := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	id := r.imported(`{"nbformat":4,"nbformat_minor":5,"metadata":{"title":"</title>` + strings.ReplaceAll(script, `/`, `\/`) + `"},"cells":[{"id":"a","cell_type":"code","source":` + j(script) + `,"metadata":{},"execution_count":1,"outputs":[
		{"output_type":"display_data","metadata":{},"data":{"text/html":` + j(script+big) + `}},
		{"output_type":"display_data","metadata":{},"data":{"image/svg+xml":` + j(svg+big) + `}},
		{"output_type":"display_data","metadata":{},"data":{"application/javascript":` + j("alert(1)"+big) + `}}]}]}`)
	st := r.state(id)
	n := 0
	for _, run := range st.Runs {
		for _, o := range run.Outputs {
			for mime, v := range o.Data {
				if v.Blob == "" {
					t.Errorf("%s is no blob, so this tests nothing", mime)
					continue
				}
				n++
				for _, q := range []string{"", "?type=" + url.QueryEscape(mime)} {
					a := r.do(call{method: "GET", path: "/n/" + string(id) + "/blob/" + v.Blob + q, as: r.owner(), head: asPage()})
					wantHeaders(t, mime+q, a, bytesPolicy)
					ct := a.head.Get("Content-Type")
					if strings.Contains(ct, "html") || strings.Contains(ct, "javascript") || strings.Contains(ct, "svg") && mime != "image/svg+xml" {
						t.Errorf("%s%s is served as %q", mime, q, ct)
					}
				}
			}
		}
	}
	if n != 3 {
		t.Errorf("%d outputs were looked at, want 3", n)
	}
	for _, path := range []string{"/", "/n/" + string(id)} {
		a := r.do(call{method: "GET", path: path, as: r.owner()})
		if a.status != http.StatusOK || strings.Contains(a.body, script) {
			t.Errorf("%s: got %d, and the script in the page: %t", path, a.status, strings.Contains(a.body, script))
		}
	}
	if a := r.do(call{method: "GET", path: "/n/" + string(id) + "/export.ipynb", as: r.owner()}); !strings.HasPrefix(a.head.Get("Content-Disposition"), "attachment") || a.head.Get("Content-Type") != "application/x-ipynb+json" {
		t.Errorf("the export is %q with %q", a.head.Get("Content-Type"), a.head.Get("Content-Disposition"))
	}
}

// A title or file name never gets out of the header it is put into.
func TestNamesInHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, title := range []string{`a"; filename="evil.html`, `a'*=b`, "../../etc/passwd", `C:\x`, "ü→🎉", "a;b=c", "%0d%0aSet-Cookie: a=b", "<b>", ".", "CON"} {
		id := r.notebook(title)
		a := r.do(call{method: "GET", path: "/n/" + string(id) + "/export.ipynb", as: r.owner()})
		cd := a.head.Get("Content-Disposition")
		if a.status != http.StatusOK || !strings.HasPrefix(cd, `attachment; filename="`) || strings.Count(strings.Split(cd, "; filename*=")[0], `"`) != 2 || strings.ContainsAny(cd, "/\\\r\n<") {
			t.Errorf("%q: got %d with %q, want one safe name", title, a.status, cd)
		}
		if len(a.head.Values("Set-Cookie")) > 0 {
			t.Errorf("%q sets a cookie", title)
		}
	}
}

// climbs are paths that are none of a workspace, as they are written in an
// address.
var climbs = map[string]string{
	"up":                     "..",
	"up and away":            "../../../../etc/passwd",
	"up, escaped":            "%2e%2e/%2e%2e/etc/passwd",
	"up, escaped slash":      "..%2f..%2fetc%2fpasswd",
	"up, all escaped":        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
	"up, mixed":              ".%2e/%2E./x",
	"up in the middle":       "a/../../x",
	"up in the middle again": "a/..%2f..%2fx",
	"up at the end":          "a/..",
	"here":                   "./a",
	"here, escaped":          "%2e/a",
	"here at the end":        "a/.",
	"absolute":               "/etc/passwd",
	"absolute, escaped":      "%2fetc%2fpasswd",
	"two slashes":            "a//b",
	"slash at the end":       "a/",
	"nothing":                "",
	"only a slash":           "%2f",
	"NUL":                    "a%00.txt",
	"NUL alone":              "%00",
	"NUL after up":           "..%00/x",
	"backslash":              "..%5c..%5cx",
	"backslash, plain":       `..\..\x`,
	"backslash, absolute":    "%5cetc%5cpasswd",
	"drive":                  "C:%5cx",
	"overlong dot":           "%c0%ae%c0%ae/x",
	"overlong slash":         "..%c0%afx",
	"overlong, three bytes":  "%e0%80%ae%e0%80%ae/x",
	"overlong, four bytes":   "%f0%80%80%af",
	"not UTF-8":              "a%ff",
	"half a surrogate":       "a%ed%a0%80",
	"newline":                "a%0ab",
	"carriage return":        "a%0d%0aX: y",
	"escape":                 "a%1b%5b31m",
	"delete":                 "a%7f",
	"long name":              strings.Repeat("a", 256),
	"long path":              strings.Repeat("a/", 600) + "a",
}

// No path leaves the workspace, to read, to write or to delete.
func TestPathsStayInTheWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.place()
	before := r.record()
	for name, path := range climbs {
		for _, base := range []string{"/api/v1/notebooks/" + string(p.id) + "/files/", "/n/" + string(p.id) + "/files/"} {
			for _, method := range []string{"GET", "PUT", "DELETE"} {
				if method != "GET" && strings.HasPrefix(base, "/n/") {
					continue
				}
				c := call{method: method, path: base + path, as: r.owner()}
				if method == "PUT" {
					c.body = "x"
				}
				q := r.request(c) // written by hand: no library would send it so
				var b strings.Builder
				if err := q.Write(&b); err != nil {
					t.Fatal(err)
				}
				text := strings.Replace(b.String(), "Host: ", "Connection: close\r\nHost: ", 1)
				if first, _, _ := strings.Cut(text, "\r\n"); first != method+" "+c.path+" HTTP/1.1" {
					t.Fatalf("%s: the request is %q", name, first)
				}
				head, body, _ := strings.Cut(r.raw(text), "\r\n\r\n")
				status := strings.TrimPrefix(head, "HTTP/1.1 ")
				refused := strings.HasPrefix(status, "400 ") && strings.Contains(body, "A file's path is relative to the workspace")
				byServer := strings.HasPrefix(status, "400 ") && strings.HasPrefix(body, "400 Bad Request") // net/http itself
				if !refused && !byServer {
					t.Errorf("%s, %s %s: got %.60s %.200s, want 400 and a sentence", name, method, c.path, head, body)
				}
			}
		}
	}
	if now := r.record(); now != before {
		t.Errorf("something changed.\nbefore %s\nafter %s", before, now)
	}
}

// A file comes back under the name it was given, character by character: no
// escape is undone twice.
func TestFileNamesAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N")
	base := "/api/v1/notebooks/" + string(id) + "/files/"
	want := map[string]bool{}
	for _, name := range []string{
		"a.txt", "dir/sub/a.txt", "with space.txt", "ümläut/ñ.txt", "日本.csv", "a%2fb", "%2e%2e%2fx", "100%", "%", "%zz", "a%20b", "a+b", "a?b", "a#b", "a&b=c", "...", "..a", "a..",
		".hidden", "a:b", "a;b", "a\"b", "a'b", "a*b", "~", "-rf", strings.Repeat("a", 255), strings.TrimSuffix(strings.Repeat("b/", 512), "/"),
	} {
		want[name] = true
		parts := strings.Split(name, "/")
		for i, s := range parts {
			parts[i] = url.PathEscape(s)
		}
		body := "content of " + name
		forms := map[string]string{"escaped": strings.Join(parts, "/"), "slashes escaped": url.PathEscape(name)}
		for form, path := range forms {
			if a := r.do(call{method: "PUT", path: base + path, body: body, as: r.owner()}); a.status != http.StatusOK {
				t.Errorf("PUT %q, %s: got %s, want 200", cutRunes(name, 40), form, a)
			}
		}
		for form, path := range forms {
			if a := r.do(call{method: "GET", path: base + path, as: r.owner()}); a.status != http.StatusOK || a.body != body {
				t.Errorf("GET %q, %s: got %s, want what was written", cutRunes(name, 40), form, a)
			}
		}
	}
	got := map[string]bool{}
	for name := range r.state(id).Files {
		got[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the workspace differs (-want +got):\n%s", diff)
	}
	for name := range want {
		if a := r.do(call{method: "DELETE", path: base + url.PathEscape(name), as: r.owner()}); a.status != http.StatusNoContent {
			t.Errorf("DELETE %q: got %s, want 204", cutRunes(name, 40), a)
		}
	}
	if n := len(r.state(id).Files); n != 0 {
		t.Errorf("%d files are left, want none", n)
	}
}

// broken are files that are no Jupyter notebook we can read, and what is said.
var broken = map[string]struct {
	text   string
	status int
	says   string
}{
	"nothing":                    {"", 400, "not a JSON object"},
	"not JSON":                   {"hello", 400, "not a JSON object"},
	"cut off":                    {`{"nbformat":4,"cells":[`, 400, "not a JSON object"},
	"an array":                   {`[]`, 400, "not a JSON object"},
	"null":                       {`null`, 400, "not a JSON object"},
	"two objects":                {smallNotebook + smallNotebook, 400, "not a JSON object"},
	"a bracket too many":         {smallNotebook + "}", 400, "not a JSON object"},
	"not UTF-8":                  {"{\"nbformat\":4,\"x\":\"\xff\"}", 400, "not UTF-8"},
	"UTF-16":                     {"\xff\xfe{\x00}\x00", 400, "not UTF-8"},
	"a ZIP file":                 {"PK\x03\x04\x14\x00\x00\x00", 400, "not a JSON object"},
	"HTML":                       {"<!doctype html><p>404", 400, "not a JSON object"},
	"no version":                 {`{"cells":[]}`, 400, "which version"},
	"version as text":            {`{"nbformat":"4","cells":[]}`, 400, "which version"},
	"version 1":                  {`{"nbformat":1,"cells":[]}`, 400, "version 1"},
	"version 2":                  {`{"nbformat":2,"worksheets":[]}`, 400, "version 2"},
	"version 3":                  {`{"nbformat":3,"nbformat_minor":0,"worksheets":[{"cells":[]}]}`, 400, "version 3"},
	"worksheets alone":           {`{"worksheets":[]}`, 400, "version 1"},
	"version 0":                  {`{"nbformat":0,"cells":[]}`, 400, "version"},
	"negative version":           {`{"nbformat":-4,"cells":[]}`, 400, "version"},
	"version 4.6":                {`{"nbformat":4,"nbformat_minor":6,"cells":[]}`, 400, "version 4.6"},
	"version 5":                  {`{"nbformat":5,"nbformat_minor":0,"cells":[]}`, 400, "version 5.0"},
	"version 4.-1":               {`{"nbformat":4,"nbformat_minor":-1,"cells":[]}`, 400, "version"},
	"huge version":               {`{"nbformat":99999999999999999999,"cells":[]}`, 400, "version"},
	"no cells":                   {`{"nbformat":4}`, 400, "no list of cells"},
	"cells is an object":         {`{"nbformat":4,"cells":{}}`, 400, "no list of cells"},
	"cell is null":               {`{"nbformat":4,"cells":[null]}`, 400, "Cell 1"},
	"cell is text":               {`{"nbformat":4,"cells":["x"]}`, 400, "Cell 1"},
	"cell without kind":          {`{"nbformat":4,"cells":[{"source":""}]}`, 400, "Cell 1"},
	"cell of unknown kind":       {`{"nbformat":4,"cells":[{"cell_type":"sql","source":""}]}`, 400, "Cell 1"},
	"heading of version 3":       {`{"nbformat":4,"cells":[{"cell_type":"heading","level":1,"source":""}]}`, 400, "Cell 1"},
	"cell without source":        {`{"nbformat":4,"cells":[{"cell_type":"code"}]}`, 400, "Cell 1"},
	"source is a number":         {`{"nbformat":4,"cells":[{"cell_type":"code","source":7}]}`, 400, "Cell 1"},
	"source holds null":          {`{"nbformat":4,"cells":[{"cell_type":"code","source":["a",null]}]}`, 400, "Cell 1"},
	"source with NUL":            {`{"nbformat":4,"cells":[{"cell_type":"code","source":"a\u0000b"}]}`, 400, "NUL"},
	"second cell":                {`{"nbformat":4,"cells":[{"cell_type":"code","source":""},7]}`, 400, "Cell 2"},
	"outputs is text":            {`{"nbformat":4,"cells":[{"cell_type":"code","source":"","outputs":"x"}]}`, 400, "Cell 1"},
	"output is null":             {`{"nbformat":4,"cells":[{"cell_type":"code","source":"","outputs":[null]}]}`, 400, "Cell 1"},
	"output of unknown kind":     {`{"nbformat":4,"cells":[{"cell_type":"code","source":"","outputs":[{"output_type":"pyout"}]}]}`, 400, "Cell 1"},
	"stream without text":        {`{"nbformat":4,"cells":[{"cell_type":"code","source":"","outputs":[{"output_type":"stream"}]}]}`, 400, "Cell 1"},
	"display without data":       {`{"nbformat":4,"cells":[{"cell_type":"code","source":"","outputs":[{"output_type":"display_data"}]}]}`, 400, "Cell 1"},
	"data is a number":           {`{"nbformat":4,"cells":[{"cell_type":"code","source":"","outputs":[{"output_type":"display_data","data":{"text/plain":7}}]}]}`, 400, "Cell 1"},
	"metadata is text":           {`{"nbformat":4,"metadata":"x","cells":[]}`, 400, "metadata"},
	"cell's metadata is text":    {`{"nbformat":4,"cells":[{"cell_type":"code","source":"","metadata":"x"}]}`, 400, "metadata"},
	"attachments is text":        {`{"nbformat":4,"cells":[{"cell_type":"markdown","source":"","attachments":"x"}]}`, 400, "attachments"},
	"another language":           {`{"nbformat":4,"metadata":{"kernelspec":{"name":"ir","language":"R"}},"cells":[]}`, 400, "This notebook is in r"},
	"deep":                       {strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300), 413, "nested"},
	"very deep":                  {strings.Repeat("[", 1<<20), 413, "nested"},
	"too many cells":             {`{"nbformat":4,"cells":[` + strings.Repeat(`{"cell_type":"raw","source":""},`, 10000) + `{"cell_type":"raw","source":""}]}`, 413, "cells"},
	"more cells than a notebook": {`{"nbformat":4,"cells":[` + strings.Repeat(`{"cell_type":"raw","source":""},`, notebook.MaxCells) + `{"cell_type":"raw","source":""}]}`, 413, "cells"},
	"large source":               {`{"nbformat":4,"cells":[{"cell_type":"code","source":"` + strings.Repeat("a", notebook.MaxSource+1) + `"}]}`, 413, "source"},
	"large metadata":             {`{"nbformat":4,"metadata":{"a":"` + strings.Repeat("a", 8<<20) + `"},"cells":[]}`, 413, "metadata"},
	"many outputs":               {`{"nbformat":4,"cells":[{"cell_type":"code","source":"","outputs":[` + strings.Repeat(`{"output_type":"stream","text":""},`, 2000) + `{"output_type":"stream","text":""}]}]}`, 413, "outputs"},
	"large file":                 {strings.Repeat(" ", maxImport+1), 413, "too large"},
}

// A file that cannot be read makes nothing, and what is wrong with it is said
// in a sentence, to programs and to people.
func TestBrokenNotebooks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := r.record()
	for name, b := range broken {
		code := map[int]string{400: "invalid", 413: "too_large"}[b.status]
		a := r.do(call{method: "POST", path: "/api/v1/import?name=x.ipynb", body: b.text, as: r.owner()})
		wantProblem(t, name, a, b.status, code)
		if !strings.Contains(a.body, b.says) {
			t.Errorf("%s: got %s, want it to say %q", name, a, b.says)
		}
		if len(b.text) > 100<<10 {
			continue // once is enough for these
		}
		page := r.do(call{
			method: "POST", path: "/import", as: r.owner(), head: merged(asPage(), map[string]string{"Content-Type": "multipart/form-data; boundary=x"}),
			body: "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.ipynb\"\r\n\r\n" + b.text + "\r\n--x--\r\n",
		})
		wantPage(t, name, page, b.status)
	}
	for name, c := range map[string]call{
		"no file":       {body: "--x\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n1\r\n--x--\r\n"},
		"no form":       {body: "file=x"},
		"cut off":       {body: "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.ipynb\"\r\n\r\n" + smallNotebook},
		"nothing":       {},
		"large file":    {body: "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.ipynb\"\r\n\r\n" + strings.Repeat(" ", maxImport+1<<20)},
		"not multipart": {body: smallNotebook, head: map[string]string{"Content-Type": "application/json"}},
	} {
		c.method, c.path, c.as = "POST", "/import", r.owner()
		c.head = merged(asPage(), map[string]string{"Content-Type": "multipart/form-data; boundary=x"}, c.head)
		a := r.do(c)
		status, says := 400, "Choose an .ipynb file first."
		if name == "large file" {
			status, says = 413, "The file is larger than 64 MiB."
		}
		wantPage(t, name, a, status)
		if !strings.Contains(a.body, says) {
			t.Errorf("%s: got %s, want it to say %q", name, a, says)
		}
	}
	if now := r.record(); now != before {
		t.Errorf("something changed.\nbefore %s\nafter %s", before, now)
	}
}

// Every version of format 4 is read, cells, outputs and all, and nothing of it
// runs.
func TestVersionsOfTheFormat(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for minor := range 6 {
		id := r.imported(fmt.Sprintf(`{"nbformat":4,"nbformat_minor":%d,"metadata":{"orig_nbformat":3,"signature":"x","kernelspec":{"name":"python3","language":"python"}},"cells":[
			{"cell_type":"markdown","source":["# T\n","x"],"metadata":{"trusted":true}},
			{"id":"b","cell_type":"code","source":"1+1","metadata":{},"execution_count":7,"outputs":[{"output_type":"execute_result","execution_count":7,"data":{"text/plain":["2"]},"metadata":{}}]},
			{"cell_type":"raw","source":"raw"}]}`, minor))
		st := r.state(id)
		if len(st.Cells) != 3 || st.Cells[0].Source != "# T\nx" || st.Cells[1].Source != "1+1" || st.Cells[2].Kind != notebook.RawCell || len(st.Runs) != 1 || st.Kernel.Status != "none" {
			t.Errorf("4.%d: got %+v", minor, st)
		}
		for _, run := range st.Runs {
			if run.Count != 7 || !run.Status.Final() || len(run.Outputs) != 1 || run.Outputs[0].Data["text/plain"].Text != "2" {
				t.Errorf("4.%d: the run is %+v", minor, run)
			}
		}
		// What is exported can be imported, and says the same.
		a := r.do(call{method: "GET", path: "/api/v1/notebooks/" + string(id) + "/export.ipynb", as: r.owner()})
		again := r.state(r.imported(a.body))
		for i, c := range again.Cells {
			if c.Source != st.Cells[i].Source || c.Kind != st.Cells[i].Kind {
				t.Errorf("4.%d: cell %d comes back as %+v, want %+v", minor, i, c, st.Cells[i])
			}
		}
	}
}

// The title comes from the file, else from its name, and never from a path.
func TestTitlesOfImports(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, want := range map[string]string{
		"a.ipynb": "a", "a b.ipynb": "a b", "../../etc/passwd": "passwd", `C:\dir\b.ipynb`: "b", "": "file", ".ipynb": "ipynb",
		strings.Repeat("ä", 300) + ".ipynb": "", "a\x00b.ipynb": "ab", "a\nb.ipynb": "ab", "\u202eevil.ipynb": "evil",
	} {
		a := r.do(call{method: "POST", path: "/api/v1/import?name=" + url.QueryEscape(name), body: `{"nbformat":4,"cells":[]}`, as: r.owner()})
		var made struct{ ID notebook.ID }
		if a.status != http.StatusCreated || json.Unmarshal([]byte(a.body), &made) != nil {
			t.Errorf("%q: got %s, want 201", name, a)
			continue
		}
		title := r.state(made.ID).Title
		if want != "" && title != want || title == "" || len([]rune(title)) > notebook.MaxTitle {
			t.Errorf("%q: the title is %q, want %q", name, title, want)
		}
	}
}
