package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/labstack/echo/v4"

	"sandbook/internal/testkit"
	"sandbook/kernel/notebook"
)

// badInput is what programs get wrong, and the answer: a status, a code, and
// something of the sentence that helps.
type badInput struct {
	call
	status int
	code   string
	says   string
}

// badOps are requests to do an op. CELL is a cell of the notebook.
var badOps = map[string]struct {
	body   string
	status int
	code   string
	says   string
}{
	"nothing":                  {``, 400, "invalid", "no op"},
	"not JSON":                 {`op=run`, 400, "invalid", "does not fit"},
	"cut off":                  {`{"op":"kernel.start"`, 400, "invalid", "does not fit"},
	"two values":               {`{"op":"kernel.start"}{}`, 400, "invalid", "follows"},
	"a bracket too many":       {`{"op":"kernel.start"}}`, 400, "invalid", "follows"},
	"a list's end too many":    {`{"op":"kernel.start"}]`, 400, "invalid", "follows"},
	"rubbish after":            {`{"op":"kernel.start"}x`, 400, "invalid", "follows"},
	"NUL after":                {"{\"op\":\"kernel.start\"}\x00", 400, "invalid", "follows"},
	"an array":                 {`[]`, 400, "invalid", "does not fit"},
	"text":                     {`"kernel.start"`, 400, "invalid", "does not fit"},
	"null":                     {`null`, 400, "invalid", "no op"},
	"byte order mark":          {"\ufeff{\"op\":\"kernel.start\"}", 400, "invalid", "does not fit"},
	"single quotes":            {`{'op':'kernel.start'}`, 400, "invalid", "does not fit"},
	"comment":                  {`{"op":"kernel.start"/**/}`, 400, "invalid", "does not fit"},
	"unknown op":               {`{"op":"launch"}`, 400, "invalid", "cell.insert"},
	"empty op":                 {`{"op":""}`, 400, "invalid", "no op"},
	"op in capitals":           {`{"op":"KERNEL.START"}`, 400, "invalid", "no op"},
	"op is a number":           {`{"op":7}`, 400, "invalid", "does not fit"},
	"op is a list":             {`{"op":["kernel.start"]}`, 400, "invalid", "does not fit"},
	"server's op":              {`{"op":"report"}`, 400, "invalid", "no op"},
	"server's other op":        {`{"op":"dispatch"}`, 400, "invalid", "no op"},
	"long op":                  {`{"op":"` + strings.Repeat("x", 100000) + `"}`, 400, "invalid", "no op"},
	"unknown field":            {`{"op":"kernel.start","force":true}`, 400, "invalid", "force"},
	"long unknown field":       {`{"op":"kernel.start","` + strings.Repeat("x", 100000) + `":1}`, 400, "invalid", "unknown field"},
	"long unknown argument":    {`{"op":"kernel.start","args":{"` + strings.Repeat("x", 100000) + `":1}}`, 400, "invalid", "unknown field"},
	"unknown argument":         {`{"op":"cell.insert","args":{"sauce":"x"}}`, 400, "invalid", "sauce"},
	"argument of another op":   {`{"op":"kernel.start","args":{"run_all":true}}`, 400, "invalid", "run_all"},
	"run ids from outside":     {`{"op":"run","args":{"cells":["CELL"],"IDs":["x"]}}`, 400, "invalid", "IDs"},
	"arguments are a list":     {`{"op":"cell.insert","args":[]}`, 400, "invalid", "cell.insert"},
	"arguments are text":       {`{"op":"cell.insert","args":"{}"}`, 400, "invalid", "cell.insert"},
	"source is a number":       {`{"op":"cell.insert","args":{"source":7}}`, 400, "invalid", "source"},
	"base is text":             {`{"op":"cell.edit","args":{"cell":"CELL","base":"1","source":"x"}}`, 400, "invalid", "base"},
	"base is a fraction":       {`{"op":"cell.edit","args":{"cell":"CELL","base":1.5,"source":"x"}}`, 400, "invalid", "base"},
	"base is huge":             {`{"op":"cell.edit","args":{"cell":"CELL","base":99999999999999999999,"source":"x"}}`, 400, "invalid", "base"},
	"cells is text":            {`{"op":"run","args":{"cells":"CELL"}}`, 400, "invalid", "cells"},
	"no cell":                  {`{"op":"cell.edit","args":{"base":1,"source":"x"}}`, 404, "not_found", ""},
	"unknown cell":             {`{"op":"cell.edit","args":{"cell":"nope","base":1,"source":"x"}}`, 404, "not_found", ""},
	"unknown cell to run":      {`{"op":"run","args":{"cells":["nope"]}}`, 404, "not_found", ""},
	"one unknown cell of two":  {`{"op":"run","args":{"cells":["CELL","nope"]}}`, 404, "not_found", ""},
	"unknown cell to move":     {`{"op":"cell.move","args":{"cell":"nope","after":""}}`, 404, "not_found", ""},
	"after an unknown cell":    {`{"op":"cell.insert","args":{"source":"x","after":"nope"}}`, 404, "not_found", ""},
	"unknown cell to restore":  {`{"op":"cell.restore","args":{"cell":"nope"}}`, 404, "not_found", ""},
	"unknown run to cancel":    {`{"op":"run.cancel","args":{"run":"nope"}}`, 404, "not_found", ""},
	"nothing to merge with":    {`{"op":"cell.merge","args":{"cell":"LAST"}}`, 0, "", ""},
	"stale version":            {`{"op":"cell.edit","args":{"cell":"CELL","base":99,"source":"x"}}`, 409, "conflict", ""},
	"negative version":         {`{"op":"cell.edit","args":{"cell":"CELL","base":-1,"source":"x"}}`, 409, "conflict", ""},
	"stale version to run":     {`{"op":"run","args":{"cells":["CELL"],"versions":[99]}}`, 409, "conflict", ""},
	"stale version to split":   {`{"op":"cell.split","args":{"cell":"CELL","base":99,"at":1}}`, 409, "conflict", ""},
	"versions do not match":    {`{"op":"run","args":{"cells":["CELL"],"versions":[1,2]}}`, 400, "invalid", ""},
	"split outside":            {`{"op":"cell.split","args":{"cell":"CELL","base":1,"at":999}}`, 400, "invalid", ""},
	"split before":             {`{"op":"cell.split","args":{"cell":"CELL","base":1,"at":-1}}`, 400, "invalid", ""},
	"unknown kind":             {`{"op":"cell.kind","args":{"cell":"CELL","kind":"sql"}}`, 400, "invalid", ""},
	"insert of unknown kind":   {`{"op":"cell.insert","args":{"source":"","kind":"heading"}}`, 400, "invalid", ""},
	"unknown scope":            {`{"op":"run","args":{"scope":"everything"}}`, 400, "invalid", ""},
	"scope without its cell":   {`{"op":"run","args":{"scope":"above"}}`, 400, "invalid", ""},
	"nothing to run":           {`{"op":"run","args":{"cells":[]}}`, 400, "invalid", ""},
	"negative timeout":         {`{"op":"run","args":{"cells":["CELL"],"timeout_ms":-1}}`, 400, "invalid", ""},
	"id that is none":          {`{"op":"cell.insert","args":{"source":"x","cell":"a/../b"}}`, 400, "invalid", ""},
	"id that is taken":         {`{"op":"cell.insert","args":{"source":"x","cell":"CELL"}}`, 409, "conflict", ""},
	"long id":                  {`{"op":"cell.insert","args":{"source":"x","cell":"` + strings.Repeat("a", 65) + `"}}`, 400, "invalid", ""},
	"NUL in source":            {`{"op":"cell.insert","args":{"source":"a\u0000b"}}`, 400, "invalid", "NUL"},
	"large source":             {`{"op":"cell.insert","args":{"source":"` + strings.Repeat("a", notebook.MaxSource+1) + `"}}`, 413, "too_large", ""},
	"empty title":              {`{"op":"notebook.rename","args":{"title":""}}`, 400, "invalid", ""},
	"blank title":              {`{"op":"notebook.rename","args":{"title":"  "}}`, 400, "invalid", ""},
	"long title":               {`{"op":"notebook.rename","args":{"title":"` + strings.Repeat("a", notebook.MaxTitle+1) + `"}}`, 400, "invalid", ""},
	"NUL in title":             {`{"op":"notebook.rename","args":{"title":"a\u0000b"}}`, 400, "invalid", ""},
	"answer to nothing":        {`{"op":"input.reply","args":{"run":"nope","value":"x"}}`, 409, "conflict", ""},
	"restore what is not gone": {`{"op":"notebook.restore"}`, 0, "", ""},
	"deep":                     {`{"op":"run","args":` + strings.Repeat("[", 100000) + `}`, 400, "invalid", ""},
	"deep and whole":           {`{"op":"cell.insert","args":` + strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20001), 400, "invalid", ""},
	"huge":                     {`{"op":"` + strings.Repeat("a", maxBody) + `"}`, 413, "too_large", "too large"},
	"huge after the value":     {`{"op":"kernel.interrupt"}` + strings.Repeat(" ", maxBody), 413, "too_large", "too large"},
	"long key":                 {`{"op":"cell.clear","key":"` + strings.Repeat("k", 129) + `"}`, 400, "invalid", "128"},
	"key is a number":          {`{"op":"cell.clear","key":7}`, 400, "invalid", "key"},
}

// Whatever a program sends, it gets a sentence, and the notebook has not moved.
func TestBadOps(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N", "one", "two")
	st := r.state(id)
	fill := strings.NewReplacer("CELL", string(st.Cells[0].ID), "LAST", string(st.Cells[1].ID))
	before := r.record()
	for name, op := range badOps {
		a := r.do(call{method: "POST", path: "/api/v1/notebooks/" + string(id) + "/ops", body: fill.Replace(op.body), as: r.owner()})
		if op.status == 0 { // it may be refused or do nothing
			if a.status >= 500 || a.status >= 300 && !strings.Contains(a.body, `"message":"`) {
				t.Errorf("%s: got %s, want nothing to happen", name, a)
			}
		} else {
			wantProblem(t, name, a, op.status, op.code)
			if !strings.Contains(a.body, op.says) {
				t.Errorf("%s: got %s, want it to say %q", name, a, op.says)
			}
		}
		if strings.Contains(a.body, "Go struct") || strings.Contains(a.body, "json:") {
			t.Errorf("%s: got %s, want no words of the program", name, a)
		}
		if len(a.body) > 2000 {
			t.Errorf("%s: the answer has %d bytes, so it repeats what was sent", name, len(a.body))
		}
		if now := r.record(); now != before {
			t.Fatalf("%s moved the notebook from seq %d to %d", name, st.Seq, r.state(id).Seq)
		}
	}
}

// The same through the socket: it answers each and stays open.
func TestBadOpsOnTheSocket(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N", "one", "two")
	st := r.state(id)
	fill := strings.NewReplacer("CELL", string(st.Cells[0].ID), "LAST", string(st.Cells[1].ID))
	ws, err := r.dial(id, r.owner())
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(1 << 20)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for name, op := range badOps {
		if op.status == 0 || !json.Valid([]byte(fill.Replace(op.body))) || strings.HasPrefix(name, "huge") || strings.Contains(name, "unknown field") || len(op.body) > 4<<20 || !strings.HasPrefix(op.body, `{"op":"`) {
			continue // what is no message at all is the socket's own matter
		}
		body := `{"id":"x",` + strings.TrimPrefix(fill.Replace(op.body), "{")
		if err := ws.Write(ctx, websocket.MessageText, []byte(body)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var m struct {
			ID    json.RawMessage
			Error *struct{ Code, Message string }
		}
		for string(m.ID) != `"x"` && m.Error == nil { // what cannot be read is answered without its id
			_, b, err := ws.Read(ctx)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			m.ID = nil
			if err := json.Unmarshal(b, &m); err != nil {
				t.Fatalf("%s: got %q: %v", name, b, err)
			}
		}
		if m.Error == nil || m.Error.Code != op.code || !sentence(m.Error.Message) {
			t.Errorf("%s: got %+v, want %s and a sentence", name, m.Error, op.code)
		}
	}
	if now := r.state(id); now.Seq != st.Seq {
		t.Errorf("the notebook moved from %d to %d", st.Seq, now.Seq)
	}
	if err := r.alive(ws); err != nil {
		t.Errorf("the socket afterwards: %v", err)
	}
}

// Bad requests to everything else.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.place()
	nb := "/api/v1/notebooks/" + string(p.id)
	text := map[string]string{"Content-Type": "text/plain"}
	get := func(path string) call { return call{method: "GET", path: path} }
	post := func(path, body string) call { return call{method: "POST", path: path, body: body} }
	for name, b := range map[string]badInput{
		"create, unknown field":       {post("/api/v1/notebooks", `{"name":"x"}`), 400, "invalid", "name"},
		"create, unknown cell field":  {post("/api/v1/notebooks", `{"cells":[{"type":"code"}]}`), 400, "invalid", "type"},
		"create, wrong type":          {post("/api/v1/notebooks", `{"title":7}`), 400, "invalid", "title"},
		"create, unknown kind":        {post("/api/v1/notebooks", `{"cells":[{"kind":"sql","source":""}]}`), 400, "invalid", ""},
		"create, other language":      {post("/api/v1/notebooks", `{"language":"r"}`), 400, "invalid", "python"},
		"create, unknown backend":     {post("/api/v1/notebooks", `{"backend":"chroot"}`), 400, "invalid", ""},
		"create, long title":          {post("/api/v1/notebooks", `{"title":"`+strings.Repeat("a", 201)+`"}`), 400, "invalid", ""},
		"create, too many cells":      {post("/api/v1/notebooks", `{"cells":[`+strings.Repeat(`{"kind":"raw"},`, notebook.MaxCells)+`{"kind":"raw"}]}`), 413, "too_large", ""},
		"create, large cell":          {post("/api/v1/notebooks", `{"cells":[{"kind":"code","source":"`+strings.Repeat("a", notebook.MaxSource+1)+`"}]}`), 413, "too_large", ""},
		"create, huge":                {post("/api/v1/notebooks", `{"title":"`+strings.Repeat("a", maxBody)+`"}`), 413, "too_large", ""},
		"create, wrong content type":  {call{method: "POST", path: "/api/v1/notebooks", body: `{}`, head: text}, 400, "invalid", "application/json"},
		"create, form":                {call{method: "POST", path: "/api/v1/notebooks", body: `title=x`, head: form}, 400, "invalid", "application/json"},
		"create, no content type":     {call{method: "POST", path: "/api/v1/notebooks", body: `{}`, head: map[string]string{"Content-Type": ""}}, 400, "invalid", "application/json"},
		"create, odd content type":    {call{method: "POST", path: "/api/v1/notebooks", body: `{}`, head: map[string]string{"Content-Type": "application/json; ="}}, 400, "invalid", "application/json"},
		"create, almost content type": {call{method: "POST", path: "/api/v1/notebooks", body: `{}`, head: map[string]string{"Content-Type": "application/json-patch+json"}}, 400, "invalid", "application/json"},
		"ops, wrong content type":     {call{method: "POST", path: nb + "/ops", body: `{"op":"cell.clear"}`, head: text}, 400, "invalid", "application/json"},
		"key header, too long":        {call{method: "POST", path: nb + "/ops", body: `{"op":"cell.clear"}`, head: map[string]string{"Idempotency-Key": strings.Repeat("k", 129)}}, 400, "invalid", "128"},
		"ask, unknown":                {post(nb+"/ask", `{"op":"eval","code":"1"}`), 400, "invalid", "complete"},
		"ask, nothing":                {post(nb+"/ask", ``), 400, "invalid", "complete"},
		"ask, unknown field":          {post(nb+"/ask", `{"op":"files","exec":"ls"}`), 400, "invalid", "exec"},
		"ask, wrong type":             {post(nb+"/ask", `{"op":"complete","pos":"1"}`), 400, "invalid", "pos"},
		"ask, no kernel":              {post(nb+"/ask", `{"op":"complete","code":"a","pos":1}`), 503, "unavailable", "no kernel"},
		"ask, unknown notebook":       {post("/api/v1/notebooks/nope/ask", `{"op":"files"}`), 404, "not_found", ""},
		"ops, unknown notebook":       {post("/api/v1/notebooks/nope/ops", `{"op":"cell.clear"}`), 404, "not_found", ""},
		"duplicate, unknown notebook": {post("/api/v1/notebooks/nope/duplicate", ``), 404, "not_found", ""},
		"put, unknown notebook":       {call{method: "PUT", path: "/api/v1/notebooks/nope/files/a", body: "x"}, 404, "not_found", ""},
		"put, in the trash":           {call{method: "PUT", path: "/api/v1/notebooks/" + string(p.trashed) + "/files/a", body: "x"}, 409, "conflict", "trash"},
		"ops, in the trash":           {post("/api/v1/notebooks/"+string(p.trashed)+"/ops", `{"op":"cell.insert","args":{"source":""}}`), 409, "conflict", "trash"},
		"delete, unknown file":        {call{method: "DELETE", path: nb + "/files/nope.txt"}, 404, "not_found", ""},
		"get, unknown file":           {get(nb + "/files/nope.txt"), 404, "not_found", "nope.txt"},
		"list, odd cursor":            {get("/api/v1/notebooks?cursor=nonsense"), 400, "invalid", "cursor"},
		"list, cursor of nothing":     {get("/api/v1/notebooks?cursor=" + url.QueryEscape("AAAA")), 400, "invalid", "cursor"},
		"list, long search":           {get("/api/v1/notebooks?q=" + strings.Repeat("a", 5000)), 413, "too_large", "search"},
		"events, negative":            {get(nb + "/events?since=-1"), 400, "invalid", "since"},
		"events, text":                {get(nb + "/events?since=x"), 400, "invalid", "since"},
		"events, huge":                {get(nb + "/events?since=99999999999999999999"), 400, "invalid", "since"},
		"events, fraction":            {get(nb + "/events?since=1.5"), 400, "invalid", "since"},
		"events, hex":                 {get(nb + "/events?since=0x10"), 400, "invalid", "since"},
		"events, limit":               {get(nb + "/events?limit=-5"), 400, "invalid", "limit"},
		"events, wait":                {get(nb + "/events?wait=soon"), 400, "invalid", "wait"},
		"runs, before":                {get(nb + "/runs?before=x"), 400, "invalid", "before"},
		"runs, limit":                 {get(nb + "/runs?limit=-1"), 400, "invalid", "limit"},
		"output, unknown stream":      {get(nb + "/runs/" + p.run + "/output?stream=stdin"), 400, "invalid", "stdout"},
		"output, unknown run":         {get(nb + "/runs/nope/output"), 404, "not_found", ""},
		"blob, no hash":               {get(nb + "/blobs/xyz"), 400, "invalid", "sha256"},
		"blob, upper case":            {get(nb + "/blobs/" + strings.ToUpper(p.hash)), 400, "invalid", "sha256"},
		"blob, a path":                {get(nb + "/blobs/..%2f..%2fsecrets%2fsign-in"), 400, "invalid", "sha256"},
		"live, no upgrade":            {call{method: "GET", path: nb + "/live", head: map[string]string{"Origin": r.origin}}, 426, "invalid", "WebSocket"},
		"live, since":                 {call{method: "GET", path: nb + "/live?since=-2", head: upgrade(r.origin)}, 400, "invalid", "since"},
		"live, view":                  {call{method: "GET", path: nb + "/live?view=all", head: upgrade(r.origin)}, 400, "invalid", "view"},
		"live, unknown notebook":      {call{method: "GET", path: "/api/v1/notebooks/nope/live", head: upgrade(r.origin)}, 404, "not_found", ""},
		"docs, unknown":               {get("/docs/nope"), 404, "not_found", ""},
		"docs, climbing":              {get("/docs/..%2f..%2froutes"), 404, "not_found", ""},
		"docs, dots":                  {get("/docs/../docs"), 404, "not_found", ""},
	} {
		before := r.record()
		b.as = r.owner()
		a := r.do(b.call)
		wantProblem(t, name, a, b.status, b.code)
		if !strings.Contains(a.body, b.says) {
			t.Errorf("%s: got %s, want it to say %q", name, a, b.says)
		}
		if now := r.record(); now != before {
			t.Errorf("%s changed something.\nbefore %s\nafter %s", name, before, now)
		}
	}
}

// A form that is refused says why above the list it came from, and what was
// too large or malformed is not taken for an empty one.
func TestBadForms(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.place()
	for name, tc := range map[string]struct {
		path, body string
		head       map[string]string
		status     int
	}{
		"create, long title":         {"/notebooks", "title=" + strings.Repeat("a", 201), form, 400},
		"create, NUL":                {"/notebooks", "title=a%00b", form, 400},
		"create, not UTF-8":          {"/notebooks", "title=%ff", form, 400},
		"create, huge":               {"/notebooks", "title=" + strings.Repeat("a", maxForm), form, 413},
		"create, malformed":          {"/notebooks", "title=%zz", form, 400},
		"create, malformed parts":    {"/notebooks", "--x\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\ncut off", map[string]string{"Content-Type": "multipart/form-data; boundary=x"}, 400},
		"create, huge parts":         {"/notebooks", "--x\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\n" + strings.Repeat("a", maxForm) + "\r\n--x--\r\n", map[string]string{"Content-Type": "multipart/form-data; boundary=x"}, 413},
		"rename, empty":              {"/n/" + string(p.id) + "/rename", "title=", form, 400},
		"rename, nothing":            {"/n/" + string(p.id) + "/rename", "", form, 400},
		"rename, in the address":     {"/n/" + string(p.id) + "/rename?title=x", "", form, 400},
		"rename, long":               {"/n/" + string(p.id) + "/rename", "title=" + strings.Repeat("a", 201), form, 400},
		"rename, huge":               {"/n/" + string(p.id) + "/rename", "title=" + strings.Repeat("a", maxForm), form, 413},
		"rename, malformed":          {"/n/" + string(p.id) + "/rename", "title=%", form, 400},
		"rename, unknown notebook":   {"/n/nope/rename", "title=x", form, 404},
		"rename, in the trash":       {"/n/" + string(p.trashed) + "/rename", "title=x", form, 409},
		"delete, unknown notebook":   {"/n/nope/delete", "", nil, 404},
		"restore, unknown notebook":  {"/n/nope/restore", "", nil, 404},
		"duplicate, unknown":         {"/n/nope/duplicate", "", nil, 404},
		"create, as JSON":            {"/notebooks", `{"title":"x"}`, map[string]string{"Content-Type": "application/json"}, 0},
		"delete, what is in there":   {"/n/" + string(p.trashed) + "/delete", "", nil, 0},
		"restore, what is not there": {"/n/" + string(p.id) + "/restore", "", nil, 0},
	} {
		before := r.record()
		a := r.do(call{method: "POST", path: tc.path, body: tc.body, head: merged(asPage(), tc.head), as: r.owner()})
		if tc.status == 0 {
			if a.status >= 500 {
				t.Errorf("%s: got %s, want no fault", name, a)
			}
			continue
		}
		wantPage(t, name, a, tc.status)
		if now := r.record(); now != before {
			t.Errorf("%s changed something.\nbefore %s\nafter %s", name, before, now)
		}
	}
}

// A key makes an op happen once; with another op it is refused. Actors do not
// share keys.
func TestKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N", "one")
	path := "/api/v1/notebooks/" + string(id) + "/ops"
	insert := func(source, key string, head map[string]string, as credential) answer {
		body := fmt.Sprintf(`{"op":"cell.insert","args":{"source":%q},"key":%q}`, source, key)
		return r.do(call{method: "POST", path: path, body: body, head: head, as: as})
	}
	first := insert("a", "k", nil, r.owner())
	again := insert("a", "k", nil, r.owner())
	header := insert("a", "", map[string]string{"Idempotency-Key": "k"}, r.owner())
	if first.status != 200 || again.body != first.body || header.body != first.body || len(r.state(id).Cells) != 2 {
		t.Errorf("got %s, then %s, then %s with %d cells, want one insert", first, again, header, len(r.state(id).Cells))
	}
	seq := r.state(id).Seq
	wantProblem(t, "another op", insert("b", "k", nil, r.owner()), 409, "conflict")
	wantProblem(t, "another op by header", insert("b", "", map[string]string{"Idempotency-Key": "k"}, r.owner()), 409, "conflict")
	if got := r.state(id).Seq; got != seq {
		t.Errorf("the notebook moved from %d to %d", seq, got)
	}
	if a := insert("b", "k", nil, r.agent(notebook.ScopeEdit, notebook.ScopeRead)); a.status != 200 || r.state(id).Seq == seq {
		t.Errorf("another actor: got %s, want its own insert", a)
	}
	// Keys of all kinds of characters are only ever compared.
	for _, k := range []string{"' OR 1=1--", "ü", "\u202e", strings.Repeat("k", 128), "a\nb", "\x00"} {
		n := len(r.state(id).Cells)
		b, _ := json.Marshal(map[string]any{"op": "cell.insert", "args": map[string]any{"source": "x"}, "key": k})
		for range 2 {
			if a := r.do(call{method: "POST", path: path, body: string(b), as: r.owner()}); a.status != 200 {
				t.Errorf("key %q: got %s, want 200", k, a)
			}
		}
		if got := len(r.state(id).Cells); got != n+1 {
			t.Errorf("key %q: %d cells were made, want 1", k, got-n)
		}
	}
}

// An op asks for its own scope, whatever the route asks for.
func TestOpsAskForTheirScope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N", "one")
	cell := string(r.state(id).Cells[0].ID)
	before := r.record()
	for op, needs := range map[string]notebook.Scope{
		`{"op":"cell.insert","args":{"source":"x"}}`:                              notebook.ScopeEdit,
		`{"op":"cell.edit","args":{"cell":"` + cell + `","base":1,"source":"x"}}`: notebook.ScopeEdit,
		`{"op":"notebook.delete"}`:                                                notebook.ScopeEdit,
		`{"op":"run","args":{"cells":["` + cell + `"]}}`:                          notebook.ScopeRun,
		`{"op":"kernel.start"}`:                                                   notebook.ScopeRun,
		`{"op":"kernel.stop"}`:                                                    notebook.ScopeRun,
	} {
		for _, scopes := range [][]notebook.Scope{{notebook.ScopeRead}, {notebook.ScopeRead, notebook.ScopeRun}, {notebook.ScopeRead, notebook.ScopeEdit}} {
			if scopes[len(scopes)-1] == needs {
				continue
			}
			a := r.do(call{method: "POST", path: "/api/v1/notebooks/" + string(id) + "/ops", body: op, as: r.agent(scopes...)})
			wantProblem(t, fmt.Sprintf("%s with %v", op, scopes), a, 403, "denied")
			if !strings.Contains(a.body, string(needs)) {
				t.Errorf("%s: got %s, want it to name the scope %q", op, a, needs)
			}
		}
	}
	for _, ask := range []string{"complete", "inspect", "is_complete", "variables"} {
		wantProblem(t, ask, r.do(call{method: "POST", path: "/api/v1/notebooks/" + string(id) + "/ask", body: `{"op":"` + ask + `"}`, as: r.agent(notebook.ScopeRead)}), 403, "denied")
	}
	if now := r.record(); now != before {
		t.Errorf("something changed.\nbefore %s\nafter %s", before, now)
	}
}

// Waiting for events ends with the first of them.
func TestWaitingForEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N", "one")
	nb := "/api/v1/notebooks/" + string(id)
	seq := r.state(id).Seq
	got := make(chan answer, 1)
	as := r.agent(notebook.ScopeRead)
	go func() {
		a, err := r.try(call{method: "GET", path: fmt.Sprintf("%s/events?since=%d&wait=25", nb, seq), as: as})
		if err != nil {
			a.body = err.Error()
		}
		got <- a
	}()
	eventually(t, "the request to wait", func() bool { return strings.Contains(testkit.Stacks(), "(*Server).apiEvents") })
	if a := r.do(call{method: "POST", path: nb + "/ops", body: `{"op":"notebook.rename","args":{"title":"M"}}`, as: r.owner()}); a.status != 200 {
		t.Fatalf("got %s, want 200", a)
	}
	if a := <-got; a.status != 200 || !strings.Contains(a.body, "notebook.renamed") {
		t.Errorf("got %s, want the new title", a)
	}
	for q, want := range map[string]int{"": int(seq) + 1, "?limit=1": 1, "?since=" + fmt.Sprint(seq): 1, "?since=999": 0, "?limit=99999999999": int(seq) + 1, "?since=999&wait=0": 0} {
		a := r.do(call{method: "GET", path: nb + "/events" + q, as: r.owner()})
		var page struct {
			Events []notebook.Event
			Seq    int64
		}
		if err := json.Unmarshal([]byte(a.body), &page); err != nil || len(page.Events) != want || page.Seq != seq+1 {
			t.Errorf("%q: got %d events at seq %d (%v), want %d at %d", q, len(page.Events), page.Seq, err, want, seq+1)
		}
	}
}

// canaries are what must never stand in a log: credentials of all kinds, and
// what people type.
func (r *rig) canaries(p place) map[string]string {
	r.t.Helper()
	return map[string]string{
		"sign-in secret":     p.secret,
		"cookie":             mint(r.t, r.keys, ownerClaims(), time.Hour, 0),
		"expired cookie":     mint(r.t, r.keys, ownerClaims(), time.Minute, time.Hour),
		"bearer":             mint(r.t, r.keys, agentClaims(notebook.ScopeRead, notebook.ScopeEdit, notebook.ScopeRun), time.Hour, 0),
		"garbage":            "garbage-canary-hunter2",
		"source of a cell":   "source-canary-hunter2",
		"title":              "title-canary-hunter2",
		"file":               "file-canary-hunter2",
		"answer to a prompt": "reply-canary-hunter2",
	}
}

// Nothing of a credential or of what people write is in the log, at its most
// talkative, whatever goes wrong with a request.
func TestTheLogHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.place()
	secrets := r.canaries(p)
	nb := "/api/v1/notebooks/" + string(p.id)
	bearer, cookie := secrets["bearer"], secrets["cookie"]
	ways := []credential{nil}
	for _, s := range secrets {
		ways = append(ways, r.withCookie(s), withBearer(s), withBearer(s+", "+s),
			func(q *http.Request) { q.Header.Set("Authorization", "Basic "+s) },
			func(q *http.Request) { q.Header.Set("Authorization", s) },
			func(q *http.Request) { q.Header.Set("X-Api-Key", s) },
			func(q *http.Request) { q.URL.RawQuery = "token=" + s + "&access_token=" + s },
			func(q *http.Request) { q.Header.Set("Sec-WebSocket-Protocol", "sandbook.v1, sandbook.ticket."+s) },
			func(q *http.Request) { q.Header.Set("Referer", "http://x/login?token="+s) },
			func(q *http.Request) { q.Header.Set("User-Agent", s) },
			func(q *http.Request) { withBearer(bearer)(q); r.withCookie(cookie)(q) },
		)
	}
	calls := []call{
		{method: "GET", path: "/"}, {method: "GET", path: nb}, {method: "GET", path: "/nothing"}, {method: "GET", path: "/gallery"}, {method: "GET", path: "/n/nope"},
		{method: "GET", path: nb + "/live", head: upgrade(r.origin)}, {method: "GET", path: nb + "/live", head: upgrade("https://evil.example")},
		{method: "PATCH", path: nb}, {method: "POST", path: nb + "/ops", body: `{`}, {method: "POST", path: nb + "/ops", body: `{}`, head: map[string]string{"Origin": "https://evil.example"}},
		{method: "GET", path: "/", host: "evil.example"},
	}
	for _, as := range ways {
		for _, c := range calls {
			c.as = as
			if _, err := r.try(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.useSecrets(t, p, secrets)
	log := r.log.String()
	if !strings.Contains(log, `"msg":"request"`) || !strings.Contains(log, `"msg":"request refused"`) || !strings.Contains(log, `"msg":"panic"`) {
		t.Fatalf("the log is not as talkative as this test needs: %.500s", log)
	}
	for name, s := range secrets {
		for form, text := range map[string]string{"": s, ", escaped": url.QueryEscape(s)} {
			if i := strings.Index(log, text); i >= 0 {
				t.Errorf("the %s%s is in the log: %s", name, form, log[max(0, i-200):min(len(log), i+20)])
			}
		}
		// Half of a token is too much, too.
		if parts := strings.Split(s, "."); len(parts) == 3 && strings.Contains(log, parts[2]) {
			t.Errorf("the signature of the %s is in the log", name)
		}
	}
}

// useSecrets puts each secret where people put them, rightly and wrongly.
func (r *rig) useSecrets(t *testing.T, p place, secrets map[string]string) {
	t.Helper()
	nb := "/api/v1/notebooks/" + string(p.id)
	r.app.echo.POST("/crash", func(c echo.Context) error {
		_, _ = c.FormValue("token"), c.Request().Header
		panic("crash")
	})
	owner := r.owner()
	for _, s := range secrets {
		q, j := url.QueryEscape(s), fmt.Sprintf("%q", s)
		for _, c := range []call{
			{method: "GET", path: "/login?token=" + q},
			{method: "GET", path: "/login?next=" + q},
			{method: "POST", path: "/login", body: "token=" + q, head: form},
			{method: "POST", path: "/login", body: "token=" + q + "%zz", head: form},
			{method: "POST", path: "/login", body: "token=" + q, head: merged(form, map[string]string{"Origin": "https://evil.example"})},
			{method: "GET", path: "/?q=" + q, as: owner},
			{method: "GET", path: "/api/v1/notebooks?cursor=" + q, as: owner},
			{method: "DELETE", path: "/api/v1/tokens/" + s, as: owner},
			{method: "POST", path: "/api/v1/tokens", body: `{"name":` + j + `}`, as: owner},
			{method: "POST", path: "/notebooks", body: "title=" + q, head: form, as: owner},
			{method: "POST", path: nb + "/ops", body: `{"op":` + j + `}`, as: owner},
			{method: "POST", path: nb + "/ops", body: `{"op":"cell.insert","args":{"source":` + j + `},"key":` + j + `}`, as: owner},
			{method: "POST", path: nb + "/ops", body: `{"op":"input.reply","args":{"run":"x","value":` + j + `}}`, as: owner},
			{method: "POST", path: nb + "/ask", body: `{"op":"complete","code":` + j + `}`, as: owner},
			{method: "PUT", path: nb + "/files/a", body: s, as: owner},
			{method: "POST", path: "/api/v1/import?name=" + q, body: s, as: owner},
			{method: "POST", path: "/crash?token=" + q, body: "token=" + q, head: form, as: owner},
			{method: "POST", path: "/logout", as: r.withCookie(s)},
		} {
			if _, err := r.try(c); err != nil {
				t.Fatal(err)
			}
		}
		_ = r.raw("GET /login?token=" + s + " HTTP/1.1\r\nHost: bad host\r\nConnection: close\r\n\r\n")
		_ = r.raw("GET / HTTP/1.1\r\nHost: x\r\nBad Header: " + s + "\r\nConnection: close\r\n\r\n")
	}
}
