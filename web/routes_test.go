package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/web/auth"
)

// expectation says by hand what the table says in code: who may call a route,
// and what somebody who may gets. A new route has to be considered here, too.
type expectation struct {
	needs notebook.Scope // empty: open to everybody
	page  bool           // a browser comes here, so it is answered in HTML
	path  string         // :id, :hash, :run and :token are filled in
	body  string
	head  map[string]string
	good  int // with a sufficient credential
}

var form = map[string]string{"Content-Type": "application/x-www-form-urlencoded"}

const anyone notebook.Scope = ""

// expectations by "METHOD path" as Routes lists them.
var expectations = map[string]expectation{
	"GET /healthz":     {needs: anyone, path: "/healthz", good: 200},
	"GET /readyz":      {needs: anyone, path: "/readyz", good: 200},
	"GET /login":       {needs: anyone, page: true, path: "/login", good: 200},
	"POST /login":      {needs: anyone, page: true, path: "/login", body: "token=SECRET", head: form, good: 303},
	"POST /logout":     {needs: anyone, page: true, path: "/logout", good: 303},
	"GET /static/*":    {needs: anyone, path: "/static/ASSET", good: 200},
	"GET /favicon.ico": {needs: anyone, path: "/favicon.ico", good: 302},

	"GET /":                     {needs: notebook.ScopeRead, page: true, path: "/", good: 200},
	"GET /n/:id":                {needs: notebook.ScopeRead, page: true, path: "/n/:id", good: 200},
	"GET /n/:id/blob/:hash":     {needs: notebook.ScopeRead, page: true, path: "/n/:id/blob/:hash", good: 200},
	"GET /n/:id/files/*":        {needs: notebook.ScopeRead, page: true, path: "/n/:id/files/data/a.txt", good: 200},
	"GET /n/:id/export.ipynb":   {needs: notebook.ScopeRead, page: true, path: "/n/:id/export.ipynb", good: 200},
	"POST /notebooks":           {needs: notebook.ScopeEdit, page: true, path: "/notebooks", body: "title=New", head: form, good: 303},
	"POST /import":              {needs: notebook.ScopeEdit, page: true, path: "/import", body: multipartNotebook, head: map[string]string{"Content-Type": "multipart/form-data; boundary=x"}, good: 303},
	"POST /n/:id/rename":        {needs: notebook.ScopeEdit, page: true, path: "/n/:id/rename", body: "title=Renamed", head: form, good: 303},
	"POST /n/:id/duplicate":     {needs: notebook.ScopeEdit, page: true, path: "/n/:id/duplicate", good: 303},
	"POST /n/:id/delete":        {needs: notebook.ScopeEdit, page: true, path: "/n/:id/delete", good: 303},
	"POST /n/:id/restore":       {needs: notebook.ScopeEdit, page: true, path: "/n/:trashed/restore", good: 303},
	"GET /gallery":              {needs: notebook.ScopeAdmin, page: true, path: "/gallery", good: 200},
	"GET /docs":                 {needs: notebook.ScopeRead, page: true, path: "/docs", good: 200},
	"GET /docs/*":               {needs: notebook.ScopeRead, page: true, path: "/docs/api", good: 200},
	"GET /api/v1/status":        {needs: notebook.ScopeRead, path: "/api/v1/status", good: 200},
	"GET /api/v1/notebooks":     {needs: notebook.ScopeRead, path: "/api/v1/notebooks", good: 200},
	"POST /api/v1/notebooks":    {needs: notebook.ScopeEdit, path: "/api/v1/notebooks", body: `{"title":"New"}`, good: 201},
	"POST /api/v1/import":       {needs: notebook.ScopeEdit, path: "/api/v1/import?name=a.ipynb", body: smallNotebook, good: 201},
	"GET /api/v1/tokens":        {needs: notebook.ScopeAdmin, path: "/api/v1/tokens", good: 200},
	"POST /api/v1/tokens":       {needs: notebook.ScopeAdmin, path: "/api/v1/tokens", body: `{"name":"a"}`, good: 201},
	"GET /api/v1/notebooks/:id": {needs: notebook.ScopeRead, path: "/api/v1/notebooks/:id", good: 200},
	// The route itself asks for read; policy asks each op for more. Renaming
	// needs edit, which is why a reader is refused here all the same.
	"POST /api/v1/notebooks/:id/ops":             {needs: notebook.ScopeEdit, path: "/api/v1/notebooks/:id/ops", body: `{"op":"notebook.rename","args":{"title":"Renamed"}}`, good: 200},
	"GET /api/v1/notebooks/:id/events":           {needs: notebook.ScopeRead, path: "/api/v1/notebooks/:id/events", good: 200},
	"GET /api/v1/notebooks/:id/live":             {needs: notebook.ScopeRead, path: "/api/v1/notebooks/:id/live", good: 101},
	"POST /api/v1/notebooks/:id/ask":             {needs: notebook.ScopeRead, path: "/api/v1/notebooks/:id/ask", body: `{"op":"files"}`, good: 503},
	"POST /api/v1/notebooks/:id/duplicate":       {needs: notebook.ScopeEdit, path: "/api/v1/notebooks/:id/duplicate", good: 201},
	"GET /api/v1/notebooks/:id/export.ipynb":     {needs: notebook.ScopeRead, path: "/api/v1/notebooks/:id/export.ipynb", good: 200},
	"GET /api/v1/notebooks/:id/runs":             {needs: notebook.ScopeRead, path: "/api/v1/notebooks/:id/runs", good: 200},
	"GET /api/v1/notebooks/:id/runs/:run/output": {needs: notebook.ScopeRead, path: "/api/v1/notebooks/:id/runs/:run/output", good: 200},
	"GET /api/v1/notebooks/:id/blobs/:hash":      {needs: notebook.ScopeRead, path: "/api/v1/notebooks/:id/blobs/:hash", good: 200},
	"GET /api/v1/notebooks/:id/files":            {needs: notebook.ScopeRead, path: "/api/v1/notebooks/:id/files", good: 200},
	"GET /api/v1/notebooks/:id/files/*":          {needs: notebook.ScopeRead, path: "/api/v1/notebooks/:id/files/data/a.txt", good: 200},
	"PUT /api/v1/notebooks/:id/files/*":          {needs: notebook.ScopeEdit, path: "/api/v1/notebooks/:id/files/data/b.txt", body: "new", good: 200},
	"DELETE /api/v1/notebooks/:id/files/*":       {needs: notebook.ScopeEdit, path: "/api/v1/notebooks/:id/files/data/a.txt", good: 204},
	"DELETE /api/v1/tokens/:token":               {needs: notebook.ScopeAdmin, path: "/api/v1/tokens/:token", good: 204},
}

const smallNotebook = `{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":[
	{"id":"a","cell_type":"code","source":"source_canary","metadata":{},"execution_count":1,"outputs":[{"output_type":"stream","name":"stdout","text":"printed-canary\n"}]}]}`

const multipartNotebook = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.ipynb\"\r\n\r\n" + smallNotebook + "\r\n--x--\r\n"

// place is what the routes are filled in with: a notebook that has of
// everything, and one in the trash.
type place struct {
	id, trashed notebook.ID
	hash, run   string
	token       string
	secret      string
	asset       string
}

func (r *rig) place() place {
	r.t.Helper()
	p := place{id: r.imported(smallNotebook), trashed: r.notebook("In the trash"), secret: r.keys.SignInSecret()}
	p.hash = r.put(p.id, "data/a.txt", "kept-canary")
	for id := range r.state(p.id).Runs {
		p.run = string(id)
	}
	if a := r.do(call{method: "POST", path: "/n/" + string(p.trashed) + "/delete", as: r.owner()}); a.status != http.StatusSeeOther {
		r.t.Fatalf("delete: got %s, want 303", a)
	}
	a := r.do(call{method: "POST", path: "/api/v1/tokens", body: `{"name":"somebody"}`, as: r.owner()})
	var made struct{ ID string }
	if a.status != http.StatusCreated || json.Unmarshal([]byte(a.body), &made) != nil {
		r.t.Fatalf("token: got %s, want 201", a)
	}
	p.token = made.ID
	p.asset = strings.TrimPrefix(r.app.assets.URL("app.css"), "/static/")
	return p
}

// call fills a route in.
func (p place) call(route string, e expectation, as credential) call {
	fill := strings.NewReplacer(":id", string(p.id), ":trashed", string(p.trashed), ":hash", p.hash, ":run", p.run, ":token", p.token, "ASSET", p.asset, "SECRET", url.QueryEscape(p.secret))
	method, _, _ := strings.Cut(route, " ")
	c := call{method: method, path: fill.Replace(e.path), body: fill.Replace(e.body), as: as, head: e.head}
	if e.page {
		c.head = merged(asPage(), e.head)
	}
	return c
}

// handshake makes the call of a socket's route one.
func (r *rig) handshake(route string, c call) call {
	if strings.HasSuffix(route, "/live") {
		c.head = merged(upgrade(r.origin), c.head)
	}
	return c
}

func TestEveryRouteIsConsidered(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range (&Server{}).routes() {
		name := r.method + " " + r.path
		e, ok := expectations[name]
		if !ok {
			t.Errorf("%s is not in expectations: say there who may call it and what they get", name)
			continue
		}
		seen[name] = true
		// The one route whose rights are those of the op it is asked for.
		if strings.HasSuffix(name, "/ops") {
			continue
		}
		if r.access.public != (e.needs == anyone) || r.access.scope != e.needs {
			t.Errorf("%s asks for public=%t scope=%q, want scope %q", name, r.access.public, r.access.scope, e.needs)
		}
		if r.access.socket != strings.HasSuffix(name, "/live") {
			t.Errorf("%s: socket is %t", name, r.access.socket)
		}
	}
	for name := range expectations {
		if !seen[name] {
			t.Errorf("%s is in expectations and is no route any more", name)
		}
	}
}

// refusal is a credential that must not get through, and how the refusal looks.
type refusal struct {
	as     func() credential
	status int
	code   string
	// applies says to which routes; nil is all that are not public.
	applies func(e expectation, path string) bool
}

// refusals of a server; bound tokens are for another notebook than id.
func (r *rig) refusals(other notebook.ID) map[string]refusal {
	r.t.Helper()
	foreign, err := auth.OpenKeys(filepath.Join(r.t.TempDir(), "secrets"), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	everything := []notebook.Scope{notebook.ScopeRead, notebook.ScopeEdit, notebook.ScopeRun}
	token := func(k *auth.Keys, c auth.Claims, ttl, ago time.Duration) credential {
		s := mint(r.t, k, c, ttl, ago)
		if c.Audience == auth.AudiencePage {
			return r.withCookie(s)
		}
		return withBearer(s)
	}
	of := func(c credential) func() credential { return func() credential { return c } }
	api, page := mint(r.t, r.keys, agentClaims(everything...), time.Hour, 0), mint(r.t, r.keys, ownerClaims(), time.Hour, 0)
	takenBack := func(c auth.Claims) credential {
		s := token(r.keys, c, time.Hour, 0)
		if err := r.app.signedOut(r.t.Context(), withTimes(c)); err != nil {
			r.t.Fatal(err)
		}
		return s
	}
	unsigned := api[:strings.LastIndexByte(api, '.')+1]
	needs := func(s ...notebook.Scope) func(expectation, string) bool {
		return func(e expectation, _ string) bool {
			for _, x := range s {
				if e.needs == x {
					return true
				}
			}
			return false
		}
	}
	const no, denied = "unauthenticated", "denied"
	return map[string]refusal{
		"no credential":            {of(nil), 401, no, nil},
		"garbage cookie":           {of(r.withCookie("garbage")), 401, no, nil},
		"garbage bearer":           {of(withBearer("garbage")), 401, no, nil},
		"empty bearer":             {of(withBearer("")), 401, no, nil},
		"basic":                    {of(func(q *http.Request) { q.SetBasicAuth("owner", r.keys.SignInSecret()) }), 401, no, nil},
		"sign-in secret as bearer": {of(withBearer(r.keys.SignInSecret())), 401, no, nil},
		"sign-in secret as cookie": {of(r.withCookie(r.keys.SignInSecret())), 401, no, nil},
		"token in the query":       {of(func(q *http.Request) { q.URL.RawQuery = "token=" + api + "&access_token=" + api }), 401, no, nil},
		"expired cookie":           {of(token(r.keys, ownerClaims(), time.Minute, 2*time.Minute)), 401, no, nil},
		"expired bearer":           {of(token(r.keys, agentClaims(everything...), time.Minute, 2*time.Minute)), 401, no, nil},
		"bearer as cookie":         {of(r.withCookie(api)), 401, no, nil},
		"cookie as bearer":         {of(withBearer(page)), 401, no, nil},
		"cookie of another port":   {of(func(q *http.Request) { q.AddCookie(&http.Cookie{Name: "sandbook-1", Value: page}) }), 401, no, nil},
		"cookie of another key":    {of(token(foreign, ownerClaims(), time.Hour, 0)), 401, no, nil},
		"bearer of another key":    {of(token(foreign, agentClaims(everything...), time.Hour, 0)), 401, no, nil},
		"bearer without signature": {of(withBearer(unsigned)), 401, no, nil},
		"revoked cookie":           {of(takenBack(ownerClaims())), 401, no, nil},
		"revoked bearer":           {of(takenBack(agentClaims(everything...))), 401, no, nil},
		"cookie and bearer": {of(func(q *http.Request) {
			r.withCookie(page)(q)
			withBearer(api)(q)
		}), 401, no, nil},
		"only run":      {of(r.agent(notebook.ScopeRun)), 403, denied, nil},
		"only export":   {of(r.agent(auth.ScopeExport)), 403, denied, nil},
		"reader":        {of(r.agent(notebook.ScopeRead)), 403, denied, needs(notebook.ScopeEdit, notebook.ScopeAdmin)},
		"runner":        {of(r.agent(notebook.ScopeRead, notebook.ScopeRun)), 403, denied, needs(notebook.ScopeEdit, notebook.ScopeAdmin)},
		"agent for all": {of(r.agent(everything...)), 403, denied, needs(notebook.ScopeAdmin)},
		// It is not said whether the other notebook exists.
		"bound to another notebook": {of(r.bound(other)), 404, "not_found", nil},
	}
}

// withTimes fills in what Mint sets, for the record of a token.
func withTimes(c auth.Claims) auth.Claims {
	c.Issued, c.Expires = time.Now(), time.Now().Add(time.Hour)
	return c
}

// Nobody gets anywhere with a credential that is not enough: each route refuses
// each of them, says why in its own form, and changes nothing.
func TestEveryRouteRefusesWhatIsNotEnough(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.place()
	refusals := r.refusals(r.notebook("Another"))
	before := r.record()
	for name, e := range expectations {
		if e.needs == anyone {
			continue
		}
		for kind, bad := range refusals {
			if bad.applies != nil && !bad.applies(e, e.path) {
				continue
			}
			what := kind + " at " + name
			c := r.handshake(name, p.call(name, e, bad.as()))
			a := r.do(c)
			switch {
			case !e.page:
				wantProblem(t, what, a, bad.status, bad.code)
			case bad.status == http.StatusUnauthorized:
				wantSignIn(t, what, c, a)
			default:
				wantPage(t, what, a, bad.status)
			}
			for _, leak := range []string{"kept-canary", "printed-canary", "source_canary", string(p.trashed), p.token} {
				if strings.Contains(a.body, leak) {
					t.Errorf("%s: the refusal holds %q: %s", what, leak, a)
				}
			}
		}
		if now := r.record(); now != before {
			t.Fatalf("%s changed something though it was refused.\nbefore %s\nafter %s", name, before, now)
		}
	}
}

// wantSignIn checks that a browser is sent to sign in, and comes back after.
func wantSignIn(t *testing.T, what string, c call, a answer) {
	t.Helper()
	path, _, _ := strings.Cut(c.path, "?")
	if c.method != http.MethodGet {
		path = "/" // what was posted is lost, and cannot be fetched
	}
	if want := "/login?next=" + url.QueryEscape(path); a.status != http.StatusSeeOther || a.head.Get("Location") != want || len(a.head.Values("Set-Cookie")) > 0 {
		t.Errorf("%s: got %s to %q with cookies %q, want 303 to %q without", what, a, a.head.Get("Location"), a.head.Values("Set-Cookie"), want)
	}
}

// With a credential that is just enough, every route does what it is for.
func TestEveryRouteServesWhoMay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, e := range expectations {
		t.Run(name, func(t *testing.T) {
			enough := map[string]func(p place) credential{"cookie of the owner": func(place) credential { return r.owner() }}
			switch e.needs {
			case anyone:
				enough["nobody"] = func(place) credential { return nil }
				enough["expired cookie"] = func(place) credential {
					return r.withCookie(mint(t, r.keys, ownerClaims(), time.Minute, 2*time.Minute))
				}
			case notebook.ScopeAdmin:
				c := ownerClaims()
				c.Audience, c.Actor.Scopes = auth.AudienceAPI, []notebook.Scope{notebook.ScopeAdmin}
				enough["bearer with admin"] = func(place) credential { return withBearer(mint(t, r.keys, c, time.Hour, 0)) }
			default:
				scopes := []notebook.Scope{notebook.ScopeRead, e.needs}
				if e.needs == notebook.ScopeRead {
					scopes = scopes[:1]
				}
				enough["bearer with "+string(e.needs)] = func(place) credential { return r.agent(scopes...) }
				// A copy would be another notebook, which the token is not for.
				if strings.Contains(e.path, ":id") && !strings.HasSuffix(e.path, "/duplicate") {
					enough["bearer for this notebook"] = func(p place) credential { return r.bound(p.id) }
				}
			}
			for kind, as := range enough {
				p := r.place()
				a := r.do(r.handshake(name, p.call(name, e, as(p))))
				want := e.good
				if name == "GET /login" && kind == "cookie of the owner" {
					want = http.StatusSeeOther
				}
				if a.status != want {
					t.Errorf("%s: got %s, want %d", kind, a, want)
				}
			}
		})
	}
}

// A token for one notebook sees no list and makes no other notebook.
func TestABoundTokenStaysInItsNotebook(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.place()
	other := r.notebook("Secret title")
	before := r.record()
	for _, c := range []call{
		{method: "GET", path: "/api/v1/notebooks"},
		{method: "POST", path: "/api/v1/notebooks", body: `{"title":"x"}`},
		{method: "POST", path: "/api/v1/import", body: smallNotebook},
		{method: "GET", path: "/api/v1/notebooks/" + string(other)},
		{method: "GET", path: "/n/" + string(other)},
		{method: "GET", path: "/"},
		{method: "GET", path: "/api/v1/tokens"},
	} {
		c.as = r.bound(p.id)
		a := r.do(c)
		wantProblem(t, c.method+" "+c.path, a, 404, "not_found")
		if strings.Contains(a.body, "Secret title") {
			t.Errorf("%s %s tells of another notebook: %s", c.method, c.path, a)
		}
	}
	for _, path := range []string{"/api/v1/notebooks/" + string(p.id) + "/duplicate", "/n/" + string(p.id) + "/duplicate"} {
		a := r.do(call{method: "POST", path: path, as: r.bound(p.id), head: map[string]string{"Accept": "application/json"}})
		if a.status != http.StatusForbidden {
			t.Errorf("POST %s: got %s, want 403", path, a)
		}
	}
	if now := r.record(); now != before {
		t.Errorf("something changed.\nbefore %s\nafter %s", before, now)
	}
}

// An agent's token made here holds what was asked for and no more.
func TestTokensAreMadeWithinBounds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N")
	before := r.record()
	for name, body := range map[string]string{
		"no name":           `{}`,
		"blank name":        `{"name":"  "}`,
		"long name":         `{"name":"` + strings.Repeat("a", 61) + `"}`,
		"control in name":   `{"name":"a\u0007b"}`,
		"bidi in name":      `{"name":"a\u202eb"}`,
		"review":            `{"name":"a","scopes":["read","review"]}`,
		"admin":             `{"name":"a","scopes":["admin"]}`,
		"export":            `{"name":"a","scopes":["export"]}`,
		"unknown scope":     `{"name":"a","scopes":["root"]}`,
		"too long":          `{"name":"a","days":366}`,
		"negative":          `{"name":"a","days":-1}`,
		"fraction":          `{"name":"a","days":1.5}`,
		"unknown field":     `{"name":"a","kind":"person"}`,
		"malformed subject": `{"name":"a","notebook":["x"]}`,
	} {
		wantProblem(t, name, r.do(call{method: "POST", path: "/api/v1/tokens", body: body, as: r.owner()}), 400, "invalid")
	}
	wantProblem(t, "unknown notebook", r.do(call{method: "POST", path: "/api/v1/tokens", body: `{"name":"a","notebook":"nope"}`, as: r.owner()}), 404, "not_found")
	wantProblem(t, "revoke unknown", r.do(call{method: "DELETE", path: "/api/v1/tokens/nope", as: r.owner()}), 404, "not_found")
	if now := r.record(); now != before {
		t.Errorf("something changed.\nbefore %s\nafter %s", before, now)
	}

	a := r.do(call{method: "POST", path: "/api/v1/tokens", body: `{"name":"Bot 7","scopes":["read","read"],"notebook":"` + string(id) + `"}`, as: r.owner()})
	var made struct{ ID, Token string }
	if a.status != http.StatusCreated || json.Unmarshal([]byte(a.body), &made) != nil {
		t.Fatalf("got %s, want a token", a)
	}
	c, err := r.keys.Verify(made.Token, auth.AudienceAPI, time.Now())
	if err != nil || c.Actor.Kind != notebook.Agent || len(c.Actor.Scopes) != 1 || c.Actor.Scopes[0] != notebook.ScopeRead || c.Notebook != string(id) || c.ID != made.ID {
		t.Errorf("got %+v (%v), want an agent that reads %s", c, err, id)
	}
	list := r.do(call{method: "GET", path: "/api/v1/tokens", as: r.owner()})
	if !strings.Contains(list.body, made.ID) || strings.Contains(list.body, made.Token) {
		t.Errorf("got %s, want the token's id and not the token", list)
	}
}

// Unknown addresses and methods answer the same to all, and tell nothing.
func TestUnknownAddressesAndMethods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := string(r.notebook("N"))
	for _, as := range []credential{nil, r.owner()} {
		for path, status := range map[string]int{
			"/api": 404, "/api/v1": 404, "/api/v1/": 404, "/api/v2/notebooks": 404, "/api/v1/notebooks/": 404, "/api/v1/notebooks/" + id + "/": 404,
			"/metrics": 404, "/debug/pprof/": 404, "/.git/config": 404, "/n/" + id + "/": 404, "/static": 404, "/static/../web.go": 404,
			"/static/manifest.json": 404, "/static/%2e%2e/manifest.json": 404,
		} {
			a := r.do(call{method: "GET", path: path, as: as})
			if a.status != status {
				t.Errorf("GET %s: got %s, want %d", path, a, status)
			}
		}
		wantPage(t, "a page that is none", r.do(call{method: "GET", path: "/nothing", head: asPage(), as: as}), 404)
		for _, c := range []call{
			{method: "DELETE", path: "/api/v1/notebooks"}, {method: "PATCH", path: "/api/v1/notebooks/" + id}, {method: "TRACE", path: "/api/v1/notebooks"},
			{method: "PUT", path: "/api/v1/notebooks/" + id + "/ops"}, {method: "BREW", path: "/api/v1/status"},
		} {
			c.as = as
			a := r.do(c)
			wantProblem(t, c.method+" "+c.path, a, 405, "invalid")
			if a.head.Get("Allow") == "" {
				t.Errorf("%s %s: no Allow header", c.method, c.path)
			}
		}
		wantPage(t, "GET of a form's address", r.do(call{method: "GET", path: "/notebooks", head: asPage(), as: as}), 405)
	}
}
