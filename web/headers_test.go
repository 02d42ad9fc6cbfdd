package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/labstack/echo/v4"

	"sandbook/internal/testkit"
	"sandbook/kernel/notebook"
)

// appPolicy is what every answer carries that is not bytes of a sandbox, word
// for word: a change of it is a decision.
const appPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; " +
	"frame-src " + frameOrigin + "; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'"

// bytesPolicy goes with bytes that came out of a sandbox: a page made of them
// has no origin, no scripts and no network.
const bytesPolicy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

// wantHeaders checks what every answer carries, whatever its status.
func wantHeaders(t *testing.T, what string, a answer, policy string) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Security-Policy":      policy,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Permissions-Policy":           "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
	} {
		if got := a.head.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s is %q, want %q", what, name, got, want)
		}
	}
	if a.head.Get("X-Request-Id") == "" {
		t.Errorf("%s: there is no request id", what)
	}
	for _, never := range []string{"Server", "X-Powered-By", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Service-Worker-Allowed"} {
		if got := a.head.Get(never); got != "" {
			t.Errorf("%s: %s is %q, want none", what, never, got)
		}
	}
}

// The headers that protect a page are there whatever happens, also when the
// router, the file server or a crash answers.
func TestEveryStatusHasTheHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.app.echo.GET("/broken", func(echo.Context) error { return errors.New("the password is hunter2") })
	r.app.echo.GET("/crash", func(echo.Context) error { panic("the password is hunter2") })
	r.app.echo.GET("/late", func(echo.Context) error { return context.DeadlineExceeded })
	p := r.place()
	nb := "/api/v1/notebooks/" + string(p.id)
	owner := r.owner()
	bytes := map[string]string{"Range": "bytes=0-1"}
	for name, c := range map[string]struct {
		call
		status int
		policy string
		cached bool // a browser may keep it
	}{
		"page":                     {call: call{method: "GET", path: "/", as: owner}, status: 200},
		"notebook":                 {call: call{method: "GET", path: "/n/" + string(p.id), as: owner}, status: 200},
		"sign-in page":             {call: call{method: "GET", path: "/login"}, status: 200},
		"health":                   {call: call{method: "GET", path: "/healthz"}, status: 200},
		"API":                      {call: call{method: "GET", path: nb, as: owner}, status: 200},
		"style":                    {call: call{method: "GET", path: "/static/" + p.asset}, status: 200, cached: true},
		"export":                   {call: call{method: "GET", path: nb + "/export.ipynb", as: owner}, status: 200},
		"output":                   {call: call{method: "GET", path: nb + "/runs/" + p.run + "/output", as: owner}, status: 200},
		"blob":                     {call: call{method: "GET", path: nb + "/blobs/" + p.hash, as: owner}, status: 200, policy: bytesPolicy, cached: true},
		"file":                     {call: call{method: "GET", path: nb + "/files/data/a.txt", as: owner}, status: 200, policy: bytesPolicy},
		"made":                     {call: call{method: "POST", path: "/api/v1/notebooks", body: `{}`, as: owner}, status: 201},
		"options":                  {call: call{method: "OPTIONS", path: nb, head: map[string]string{"Origin": "https://evil.example", "Access-Control-Request-Method": "PUT"}}, status: 204},
		"part of a blob":           {call: call{method: "GET", path: nb + "/blobs/" + p.hash, as: owner, head: bytes}, status: 206, policy: bytesPolicy, cached: true},
		"icon":                     {call: call{method: "GET", path: "/favicon.ico"}, status: 302},
		"to the sign-in page":      {call: call{method: "GET", path: "/", head: asPage()}, status: 303},
		"blob not modified":        {call: call{method: "GET", path: nb + "/blobs/" + p.hash, as: owner, head: map[string]string{"If-None-Match": `"` + p.hash + `"`}}, status: 304, policy: bytesPolicy, cached: true},
		"style not modified":       {call: call{method: "GET", path: "/static/" + p.asset, head: map[string]string{"If-None-Match": `"` + r.app.assets.URL("app.css") + `"`}}, status: 200, cached: true},
		"invalid":                  {call: call{method: "POST", path: nb + "/ops", body: `{`, as: owner}, status: 400},
		"no credential":            {call: call{method: "GET", path: nb}, status: 401},
		"wrong token, form":        {call: call{method: "POST", path: "/login", body: "token=x", head: form}, status: 401},
		"foreign page":             {call: call{method: "POST", path: nb + "/ops", body: `{}`, as: owner, head: map[string]string{"Origin": "https://evil.example"}}, status: 403},
		"too little, page":         {call: call{method: "GET", path: "/gallery", as: r.agent(notebook.ScopeRead), head: asPage()}, status: 403},
		"no such page":             {call: call{method: "GET", path: "/nothing", head: asPage()}, status: 404},
		"no such API":              {call: call{method: "GET", path: "/api/v1/nothing"}, status: 404},
		"no such style":            {call: call{method: "GET", path: "/static/nothing.css"}, status: 404},
		"no such blob":             {call: call{method: "GET", path: nb + "/blobs/" + strings.Repeat("a", 64), as: owner}, status: 404},
		"wrong method":             {call: call{method: "PATCH", path: nb, as: owner}, status: 405},
		"conflict":                 {call: call{method: "POST", path: nb + "/ops", body: `{"op":"cell.edit","args":{"cell":"` + string(r.state(p.id).Cells[0].ID) + `","base":99,"source":"x"}}`, as: owner}, status: 409},
		"too large":                {call: call{method: "POST", path: nb + "/ops", body: `{"op":"` + strings.Repeat("a", maxBody) + `"}`, as: owner}, status: 413},
		"no such part":             {call: call{method: "GET", path: nb + "/blobs/" + p.hash, as: owner, head: map[string]string{"Range": "bytes=999-"}}, status: 416, policy: bytesPolicy},
		"another host":             {call: call{method: "GET", path: "/", host: "evil.example"}, status: 421},
		"another host, page":       {call: call{method: "GET", path: "/", host: "evil.example", head: asPage()}, status: 421},
		"a socket that is none":    {call: call{method: "GET", path: nb + "/live", as: r.agent(notebook.ScopeRead)}, status: 426},
		"fault, page":              {call: call{method: "GET", path: "/broken", head: asPage()}, status: 500},
		"fault":                    {call: call{method: "GET", path: "/broken"}, status: 500},
		"crash, page":              {call: call{method: "GET", path: "/crash", head: asPage()}, status: 500},
		"crash":                    {call: call{method: "GET", path: "/crash"}, status: 500},
		"no kernel":                {call: call{method: "POST", path: nb + "/ask", body: `{"op":"files"}`, as: owner}, status: 503},
		"too slow":                 {call: call{method: "GET", path: "/late"}, status: 503},
		"socket":                   {call: call{method: "GET", path: nb + "/live", as: owner, head: upgrade(r.origin)}, status: 101},
		"socket from another page": {call: call{method: "GET", path: nb + "/live", as: owner, head: upgrade("https://evil.example")}, status: 403},
	} {
		a := r.do(c.call)
		if a.status != c.status {
			t.Errorf("%s: got %s, want %d", name, a, c.status)
		}
		if c.policy == "" {
			c.policy = appPolicy
		}
		wantHeaders(t, name, a, c.policy)
		if kept := strings.Contains(a.head.Get("Cache-Control"), "max-age"); kept != c.cached {
			t.Errorf("%s: Cache-Control is %q, want it kept: %t", name, a.head.Get("Cache-Control"), c.cached)
		}
		if strings.Contains(a.body, "hunter2") || strings.Contains(a.body, "goroutine") {
			t.Errorf("%s tells what went wrong inside: %s", name, a)
		}
	}
	for range 20 { // use up the attempts
		r.do(call{method: "POST", path: "/login", body: "token=x", head: form})
	}
	a := r.do(call{method: "POST", path: "/login", body: "token=x", head: form})
	if a.status != http.StatusTooManyRequests {
		t.Errorf("too many attempts: got %s, want 429", a)
	}
	wantHeaders(t, "too many attempts", a, appPolicy)
	for _, want := range []string{"request failed", `"msg":"panic"`, "hunter2"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log lacks %q, so nobody can find out what went wrong", want)
		}
	}
}

// A request whose sender has gone is no fault of the server.
func TestGivingUpIsNoFault(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := r.manager.Open(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	q := r.request(call{method: "GET", path: "/api/v1/notebooks/" + string(id) + "/events?since=999&wait=9999999999", as: r.owner()})
	done, sent := make(chan error), make(chan struct{})
	trace := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) }})
	go func() {
		res, err := r.client.Do(q.WithContext(trace))
		if err == nil {
			_ = res.Body.Close()
		}
		done <- err
	}()
	<-sent // the server will hear of it, whatever other tests ask of it meanwhile
	eventually(t, "the request to wait", func() bool { return strings.Contains(testkit.Stacks(), "(*Server).apiEvents") })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it to be given up", err)
	}
	eventually(t, "the request to end", func() bool { return strings.Contains(r.log.String(), "/events") })
	if log := r.log.String(); strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("the log calls it a fault: %s", log)
	}
	_ = s
}

// To a page under localhost the frame has that name, too, and its policy must
// allow it.
func TestThePolicyAllowsTheFrameOfTheName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(r.base, "http://"), ":")
	id := r.notebook("N")
	for host, want := range map[string]string{"127.0.0.1:" + port: "http://127.0.0.1:9", "localhost:" + port: "http://localhost:9"} {
		a := r.do(call{method: "GET", path: "/n/" + string(id), host: host, as: r.owner()})
		if a.status != http.StatusOK || !strings.Contains(a.head.Get("Content-Security-Policy"), "frame-src "+want+";") || !strings.Contains(a.body, want) {
			t.Errorf("under %s: got %d with %q, want %s in the policy and the page", host, a.status, a.head.Get("Content-Security-Policy"), want)
		}
	}
}

// origins are what a browser may say about where a request is from, and
// whether that may change anything.
func (r *rig) origins() map[string]struct {
	head map[string]string
	good bool
} {
	_, port, _ := strings.Cut(strings.TrimPrefix(r.base, "http://"), ":")
	type row = struct {
		head map[string]string
		good bool
	}
	from := func(o string) row { return row{head: map[string]string{"Origin": o}} }
	site := func(v string, good bool) row {
		return row{map[string]string{"Origin": "", "Sec-Fetch-Site": v}, good}
	}
	return map[string]row{
		"own page":               {map[string]string{"Origin": r.origin}, true},
		"own page, as fetched":   {map[string]string{"Origin": r.origin, "Sec-Fetch-Site": "same-origin"}, true},
		"none":                   from(""),
		"null":                   from("null"),
		"another port":           from("http://127.0.0.1:1"),
		"no port":                from("http://127.0.0.1"),
		"another scheme":         from("https://127.0.0.1:" + port),
		"another host":           from("https://evil.example"),
		"another loopback":       from("http://127.0.0.2:" + port),
		"another name of ours":   from("http://localhost:" + port),
		"look-alike host":        from("http://127.0.0.1.evil.example:" + port),
		"look-alike port":        from("http://127.0.0.1:" + port + ".evil.example"),
		"user in front":          from("http://127.0.0.1:" + port + "@evil.example"),
		"user behind":            from("http://evil.example@127.0.0.1:" + port),
		"path":                   from(r.origin + "/"),
		"backslash":              from(r.origin + `\.evil.example`),
		"space":                  from(r.origin + " https://evil.example"),
		"comma":                  from(r.origin + ", https://evil.example"),
		"upper case":             from("HTTP://127.0.0.1:" + port),
		"frame of outputs":       from(frameOrigin),
		"file":                   from("file://"),
		"extension":              from("chrome-extension://abcdefghijklmnop"),
		"own origin, cross-site": {map[string]string{"Origin": r.origin, "Sec-Fetch-Site": "cross-site"}, false},
		"own origin, same-site":  {map[string]string{"Origin": r.origin, "Sec-Fetch-Site": "same-site"}, false},
		"cross-site":             site("cross-site", false),
		"same-site":              site("same-site", false),
		"same-origin":            site("same-origin", true),
		"nonsense":               site("what", false),
	}
}

// With a cookie, nothing is changed by another site's page, by any way to send
// it: forms, fetch, sockets.
func TestOriginsOfChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.place()
	owner := r.owner()
	before := r.record()
	for from, o := range r.origins() {
		for name, e := range expectations {
			if method, _, _ := strings.Cut(name, " "); method == http.MethodGet || name == "POST /login" || o.good {
				continue
			}
			c := p.call(name, e, owner)
			c.head = merged(c.head, o.head)
			if a := r.do(c); a.status != http.StatusForbidden {
				t.Errorf("%s to %s: got %s, want 403", from, name, a)
			} else if e.page {
				wantPage(t, from+" to "+name, a, 403)
			} else {
				wantProblem(t, from+" to "+name, a, 403, "denied")
			}
		}
		if now := r.record(); now != before {
			t.Fatalf("%s changed something.\nbefore %s\nafter %s", from, before, now)
		}
	}
	for from, o := range r.origins() {
		if !o.good {
			continue
		}
		c := p.call("PUT /api/v1/notebooks/:id/files/*", expectations["PUT /api/v1/notebooks/:id/files/*"], owner)
		c.head = merged(c.head, o.head)
		if a := r.do(c); a.status != http.StatusOK {
			t.Errorf("%s: got %s, want 200", from, a)
		}
	}
}

// A program has no page and need not say where it is from, but when a browser
// says that it is a foreign page, the token does not help.
func TestOriginsOfPrograms(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N")
	for from, o := range r.origins() {
		want := http.StatusForbidden
		if o.good || from == "none" {
			want = http.StatusOK
		}
		a := r.do(call{method: "PUT", path: "/api/v1/notebooks/" + string(id) + "/files/x", body: "x", head: o.head, as: r.agent(notebook.ScopeEdit)})
		if a.status != want {
			t.Errorf("%s: got %s, want %d", from, a, want)
		}
	}
}

// A socket with a cookie is opened by our own page alone; reading by GET needs
// no origin, for no other page can see the answer.
func TestOriginsOfSockets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := string(r.notebook("N"))
	for from, o := range r.origins() {
		path := "/api/v1/notebooks/" + id + "/live"
		head := merged(upgrade(""), o.head)
		origin := o.head["Origin"]
		cookie := r.do(call{method: "GET", path: path, as: r.owner(), head: head})
		if origin == r.origin {
			if cookie.status != http.StatusSwitchingProtocols {
				t.Errorf("%s with a cookie: got %s, want 101", from, cookie)
			}
		} else {
			wantProblem(t, from+" with a cookie", cookie, 403, "denied")
		}
		want := http.StatusForbidden
		if origin == "" || origin == r.origin {
			want = http.StatusSwitchingProtocols
		}
		if a := r.do(call{method: "GET", path: path, as: r.agent(notebook.ScopeRead), head: head}); a.status != want {
			t.Errorf("%s with a token: got %s, want %d", from, a, want)
		}
		if a := r.do(call{method: "GET", path: "/api/v1/notebooks/" + id, as: r.owner(), head: o.head}); a.status != http.StatusOK || a.head.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s reads: got %s, want 200 that only we may see", from, a)
		}
	}
}

// A name of somebody else that resolves to this machine gets nothing (DNS
// rebinding), however it is written and whatever proxies are said to be there.
func TestHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.place()
	_, port, _ := strings.Cut(strings.TrimPrefix(r.base, "http://"), ":")
	before := r.record()
	for host, good := range map[string]bool{
		"127.0.0.1:" + port:                   true,
		"localhost:" + port:                   true,
		"LOCALHOST:" + port:                   true,
		"localhost":                           true, // a forwarded port may differ from ours
		"localhost:1":                         true,
		"[::1]:" + port:                       true,
		"evil.example":                        false,
		"evil.example:" + port:                false,
		"127.0.0.1.evil.example:" + port:      false,
		"localhost.evil.example:" + port:      false,
		"localhost.:" + port:                  false,
		"127.0.0.1.nip.io:" + port:            false,
		"0.0.0.0:" + port:                     false,
		"10.0.0.1:" + port:                    false,
		"[::ffff:10.0.0.1]:" + port:           false,
		"2130706433:" + port:                  false,
		"0x7f.1:" + port:                      false,
		"127.0.0.1:" + port + "@evil.example": false,
		"evil.example@127.0.0.1:" + port:      false,
		"localhost:" + port + ".evil.example": false,
		"localhost:" + port + "#":             false,
		"localhost/x":                         false,
	} {
		for _, path := range []string{"/", "/healthz", "/login", "/static/" + p.asset, "/api/v1/notebooks", "/nothing"} {
			for _, head := range []map[string]string{
				nil, asPage(), {"X-Forwarded-Host": "127.0.0.1:" + port, "Forwarded": "host=127.0.0.1:" + port, "X-Original-Host": "localhost"},
			} {
				a, err := r.try(call{method: "GET", path: path, host: host, as: r.owner(), head: head})
				switch {
				case good && err == nil && a.status != http.StatusMisdirectedRequest:
				case !good && (err != nil || a.status == http.StatusBadRequest): // net/http itself refuses it
				case !good && a.status == http.StatusMisdirectedRequest && len(a.head.Values("Set-Cookie")) == 0 && !strings.Contains(a.body, "evil.example"):
				default:
					t.Errorf("%s at %s: got %s (%v), want it served: %t", path, host, a, err, good)
				}
			}
		}
		if good {
			continue
		}
		a, err := r.try(call{method: "POST", path: "/login", body: "token=" + p.secret, head: merged(form, map[string]string{"Origin": "http://" + host}), host: host})
		if err == nil && (a.status < 400 || len(a.head.Values("Set-Cookie")) > 0) {
			t.Errorf("signed in under %s: %s", host, a)
		}
		a, err = r.try(call{method: "POST", path: "/n/" + string(p.id) + "/delete", host: host, as: r.owner(), head: map[string]string{"Origin": "http://" + host}})
		if err == nil && a.status < 400 {
			t.Errorf("deleted under %s: %s", host, a)
		}
	}
	wantProblem(t, "another host", r.do(call{method: "GET", path: "/api/v1/notebooks", host: "evil.example", as: r.owner()}), 421, "denied")
	wantPage(t, "another host", r.do(call{method: "GET", path: "/", host: "evil.example", head: asPage(), as: r.owner()}), 421)
	if now := r.record(); now != before {
		t.Errorf("something changed.\nbefore %s\nafter %s", before, now)
	}
}

// What no client library sends: no host, two, a zone, an address in the
// request line that says something else.
func TestHostsAsWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	own := strings.TrimPrefix(r.base, "http://")
	for name, c := range map[string]struct {
		text   string
		status string
	}{
		"fine":                      {"GET /healthz HTTP/1.1\r\nHost: " + own + "\r\n", "200"},
		"none":                      {"GET /healthz HTTP/1.1\r\n", "400"},
		"none, old":                 {"GET /healthz HTTP/1.0\r\n", "421"},
		"empty":                     {"GET /healthz HTTP/1.1\r\nHost: \r\n", "421"},
		"two":                       {"GET /healthz HTTP/1.1\r\nHost: " + own + "\r\nHost: evil.example\r\n", "400"},
		"zone":                      {"GET /healthz HTTP/1.1\r\nHost: [::1%25lo]\r\n", "421"},
		"address of another":        {"GET http://evil.example/healthz HTTP/1.1\r\nHost: " + own + "\r\n", "421"},
		"address of another, https": {"GET https://evil.example/healthz HTTP/1.1\r\nHost: " + own + "\r\n", "421"},
		"two slashes":               {"GET //evil.example/ HTTP/1.1\r\nHost: " + own + "\r\nAccept: text/html\r\n", "404"},
		"tunnel":                    {"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n", "421"},
	} {
		if got := r.raw(c.text + "Connection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 "+c.status) && !strings.HasPrefix(got, "HTTP/1.0 "+c.status) {
			t.Errorf("%s: got %q, want %s", name, cutRunes(got, 200), c.status)
		}
	}
}

// Under a public name only that name is good, and loopback no more.
func TestHostsOfAPublicServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, "https://notebooks.example")
	for host, good := range map[string]bool{
		"notebooks.example": true, "NOTEBOOKS.example": true, "notebooks.example:443": true,
		"notebooks.example:80": false, "notebooks.example.evil.example": false, "evil-notebooks.example": false, "127.0.0.1": false, "localhost": false,
	} {
		a := r.do(call{method: "GET", path: "/healthz", host: host})
		if want := map[bool]int{true: 200, false: 421}[good]; a.status != want {
			t.Errorf("%s: got %s, want %d", host, a, want)
		}
	}
	cookie := credential(func(q *http.Request) {
		q.AddCookie(&http.Cookie{Name: r.app.door.SignOut().Name, Value: mint(t, r.keys, ownerClaims(), 3600e9, 0)})
	})
	for origin, want := range map[string]int{"https://notebooks.example": 201, "http://notebooks.example": 403, "https://notebooks.example:444": 403, "https://www.notebooks.example": 403} {
		a := r.do(call{method: "POST", path: "/api/v1/notebooks", body: `{}`, as: cookie, head: map[string]string{"Origin": origin}})
		if a.status != want {
			t.Errorf("from %s: got %s, want %d", origin, a, want)
		}
	}
}

// A socket that has been let in speaks, and one on another subprotocol is told.
func TestSocketSpeaks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ws, err := r.dial(r.notebook("N"), r.owner())
	if err != nil {
		t.Fatal(err)
	}
	_, b, err := ws.Read(t.Context())
	if err != nil || !strings.Contains(string(b), `"hello"`) {
		t.Errorf("got %q (%v), want a hello", b, err)
	}
	q := r.request(call{method: "GET", path: "/", as: r.owner(), head: map[string]string{"Origin": r.origin}})
	other, _, err := websocket.Dial(t.Context(), r.base+"/api/v1/notebooks/"+string(r.notebook("M"))+"/live", &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient: &http.Client{Transport: r.client.Transport}, HTTPHeader: q.Header, Subprotocols: []string{"chat"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if code := r.closed(other); code != websocket.StatusPolicyViolation {
		t.Errorf("another subprotocol was closed with %d, want %d", code, websocket.StatusPolicyViolation)
	}
}
