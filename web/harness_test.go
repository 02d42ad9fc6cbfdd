package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"sandbook/artifacts"
	"sandbook/backends"
	"sandbook/internal/testkit"
	"sandbook/kernel"
	"sandbook/kernel/notebook"
	"sandbook/sessionstore"
	"sandbook/static"
	"sandbook/web/auth"
)

// The tests talk HTTP to a whole server on loopback: real store, real sessions,
// real tokens. Only the sandboxes are missing: nothing here runs code, so the
// backend refuses to start one, as on a host that cannot isolate.

func TestMain(m *testing.M) { os.Exit(testkit.Run(m, "sandbook/")) }

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	testkit.Eventually(t, patience, what, cond)
}

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// nowhere is a backend of a host that cannot isolate.
type nowhere struct{}

var _ backends.Backend = nowhere{}

func (nowhere) Name() string { return "nowhere" }

func (nowhere) Probe(context.Context) (backends.Caps, error) {
	return backends.Caps{Backend: "nowhere"}, nil
}

func (nowhere) Start(context.Context, backends.Spec) (backends.Sandbox, error) {
	return nil, errors.New("no sandbox can be made here")
}

func (nowhere) Reap(context.Context, string, []backends.ID) error { return nil }

// rig is a running server.
type rig struct {
	t       *testing.T
	app     *Server
	store   *sessionstore.Store
	manager *kernel.Manager
	blobs   *artifacts.Store
	keys    *auth.Keys
	log     *testkit.Log
	port    int
	base    string // where it listens
	origin  string // under which people reach it
	client  *http.Client
}

const frameOrigin = "http://127.0.0.1:9"

// newRig starts a server that is reached on loopback, or under the public
// address if there is one.
func newRig(t *testing.T, public ...string) *rig {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	j := &testkit.Log{}
	r := &rig{t: t, log: j, client: &http.Client{
		Timeout:       patience,
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	logger := slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
	dir := filepath.Join(t.TempDir(), "data")
	var err error
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r.store, err = sessionstore.Open(ctx, sessionstore.Options{Dir: dir, Logger: logger, NoMaintenance: true, Reserve: -1})
	must(err)
	t.Cleanup(func() {
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
	})
	r.keys, err = auth.OpenKeys(filepath.Join(dir, "secrets"), r.store)
	must(err)
	r.blobs = artifacts.New(r.store, artifacts.Quota{})
	registry := backends.NewRegistry(nowhere{})
	r.manager = kernel.New(kernel.Options{
		Log: r.store, Blobs: r.blobs, Backends: registry, Caps: []backends.Caps{{Backend: "nowhere"}}, Install: "test", GuestPath: "/nowhere",
		Limits: backends.DefaultLimits(), NewID: func() string { return uuid.Must(uuid.NewV7()).String() }, Now: time.Now, Logger: logger,
	})
	assets, err := static.Open()
	must(err)
	srv := httptest.NewUnstartedServer(nil)
	r.base = "http://" + srv.Listener.Addr().String()
	u, err := url.Parse(r.base)
	must(err)
	r.port, err = strconv.Atoi(u.Port())
	must(err)
	r.origin = r.base
	if len(public) > 0 {
		r.origin = public[0]
	}
	site, err := auth.NewSite([]string{r.origin}, len(public) == 0)
	must(err)
	r.app = New(Options{
		Manager: r.manager, Store: r.store, Blobs: r.blobs, Keys: r.keys, Door: auth.NewDoor(r.keys, r.port, strings.HasPrefix(r.origin, "https:")),
		Site: site, Assets: assets, FrameOrigin: frameOrigin, Caps: []backends.Caps{{Backend: "nowhere"}}, Backends: registry, Build: "test", Logger: logger,
	})
	srv.Config.Handler = r.app
	srv.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelError)
	srv.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(r.manager.Close(ctx), r.app.Drain(ctx)); err != nil {
			t.Error(err)
		}
		r.client.CloseIdleConnections()
		srv.Close()
	})
	return r
}

// credential puts something that should let one in on a request; nil is nothing.
type credential func(*http.Request)

// withCookie is a credential in the cookie of this server.
func (r *rig) withCookie(value string) credential {
	return func(q *http.Request) {
		q.AddCookie(&http.Cookie{Name: "sandbook-" + strconv.Itoa(r.port), Value: value})
	}
}

func withBearer(token string) credential {
	return func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+token) }
}

func agentClaims(scopes ...notebook.Scope) auth.Claims {
	return auth.Claims{
		Actor:    notebook.Actor{Author: notebook.Author{Kind: notebook.Agent, ID: "agent:tester", Name: "Tester"}, Scopes: scopes},
		Audience: auth.AudienceAPI, ID: uuid.NewString(),
	}
}

func ownerClaims() auth.Claims {
	return auth.Claims{
		Actor:    notebook.Actor{Author: notebook.Author{Kind: notebook.Person, ID: "owner", Name: "You"}, Scopes: auth.PersonScopes()},
		Audience: auth.AudiencePage, ID: uuid.NewString(),
	}
}

// mint makes a token with these keys that was issued so long ago.
func mint(t *testing.T, k *auth.Keys, c auth.Claims, ttl, ago time.Duration) string {
	t.Helper()
	s, err := k.Mint(c, ttl, time.Now().Add(-ago))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// agent is a good bearer token with these scopes.
func (r *rig) agent(scopes ...notebook.Scope) credential {
	r.t.Helper()
	return withBearer(mint(r.t, r.keys, agentClaims(scopes...), time.Hour, 0))
}

// bound is a good bearer token for one notebook with all an agent can hold.
func (r *rig) bound(id notebook.ID) credential {
	r.t.Helper()
	c := agentClaims(notebook.ScopeRead, notebook.ScopeEdit, notebook.ScopeRun)
	c.Notebook = string(id)
	return withBearer(mint(r.t, r.keys, c, time.Hour, 0))
}

// owner is the cookie of somebody who signed in.
func (r *rig) owner() credential {
	r.t.Helper()
	return r.withCookie(mint(r.t, r.keys, ownerClaims(), time.Hour, 0))
}

// call is one request. Without an Origin of its own, one that changes something
// says that it is from the server's own page.
type call struct {
	method, path string
	body         string
	as           credential
	head         map[string]string // an empty value leaves a header out
	host         string            // of the Host header, when not the server's
}

// answer is what came back.
type answer struct {
	status int
	head   http.Header
	body   string
}

func (a answer) String() string {
	return fmt.Sprintf("%d %s %s", a.status, a.head.Get("Content-Type"), cutRunes(a.body, 300))
}

func (r *rig) request(c call) *http.Request {
	r.t.Helper()
	u, err := url.Parse(r.base)
	if err != nil {
		r.t.Fatal(err)
	}
	p, query, _ := strings.Cut(c.path, "?")
	// Opaque sends the path as it is written here, dots and all.
	u.Opaque, u.RawQuery = p, query
	req := &http.Request{Method: c.method, URL: u, Host: u.Host, Header: http.Header{}, ProtoMajor: 1, ProtoMinor: 1}
	if own, err := url.Parse(r.origin); err == nil {
		req.Host = own.Host
	}
	if c.host != "" {
		req.Host = c.host
	}
	if c.body != "" {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(c.body)), int64(len(c.body))
	}
	if c.method != http.MethodGet && c.method != http.MethodHead {
		req.Header.Set("Origin", r.origin)
	}
	if strings.HasPrefix(c.path, "/api/") && c.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range c.head {
		if v == "" {
			req.Header.Del(k)
		} else {
			req.Header.Set(k, v)
		}
	}
	if c.as != nil {
		c.as(req)
	}
	return req.WithContext(context.WithoutCancel(r.t.Context()))
}

func (r *rig) do(c call) answer {
	r.t.Helper()
	a, err := r.try(c)
	if err != nil {
		r.t.Fatalf("%s %s: %v", c.method, cutRunes(c.path, 200), err)
	}
	return a
}

func (r *rig) try(c call) (answer, error) {
	res, err := r.client.Do(r.request(c))
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusSwitchingProtocols {
		return answer{status: res.StatusCode, head: res.Header}, nil
	}
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(b)}, err
}

// raw sends a request as it is written and returns all that comes back.
func (r *rig) raw(text string) string {
	r.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.base, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, text); err != nil {
		r.t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// asPage makes a request look like a browser that wants something to look at.
func asPage() map[string]string {
	return map[string]string{"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
}

// upgrade has the headers of a WebSocket handshake.
func upgrade(origin string) map[string]string {
	return map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		"Sec-WebSocket-Protocol": "sandbook.v1", "Origin": origin,
	}
}

func merged(maps ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// wantProblem checks that an answer is an error in the documented form.
func wantProblem(t *testing.T, what string, a answer, status int, code string) {
	t.Helper()
	var p struct {
		Error *struct {
			Code      string `json:"code"`
			Message   string `json:"message"`
			RequestID string `json:"request_id"`
		} `json:"error"`
	}
	switch {
	case a.status != status:
		t.Errorf("%s: got %s, want status %d", what, a, status)
	case !strings.HasPrefix(a.head.Get("Content-Type"), "application/json") || json.Unmarshal([]byte(a.body), &p) != nil || p.Error == nil:
		t.Errorf("%s: got %s, want an error as JSON", what, a)
	case p.Error.Code != code:
		t.Errorf("%s: got code %q (%s), want %q", what, p.Error.Code, p.Error.Message, code)
	case !sentence(p.Error.Message):
		t.Errorf("%s: got the message %q, want a sentence", what, p.Error.Message)
	case p.Error.RequestID == "" || p.Error.RequestID != a.head.Get("X-Request-Id"):
		t.Errorf("%s: got request id %q, want that of the header, %q", what, p.Error.RequestID, a.head.Get("X-Request-Id"))
	}
}

// sentence reports whether s can be shown to people: a capital, a full stop,
// nothing of the inside.
func sentence(s string) bool {
	return s != "" && strings.ToUpper(s[:1]) == s[:1] && strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "..") &&
		!strings.Contains(s, "SQL logic") && !strings.Contains(s, "goroutine") && !strings.Contains(s, "sandbook/")
}

// wantPage checks that an answer is a page with a sentence about what went wrong.
func wantPage(t *testing.T, what string, a answer, status int) {
	t.Helper()
	if a.status != status || !strings.HasPrefix(a.head.Get("Content-Type"), "text/html") || !strings.Contains(a.body, `data-testid="problem"`) {
		t.Errorf("%s: got %s, want a page with status %d that says what is wrong", what, a, status)
	}
}

// notebook makes one with these code cells.
func (r *rig) notebook(title string, cells ...string) notebook.ID {
	r.t.Helper()
	var in []kernel.NewCell
	for _, c := range cells {
		in = append(in, kernel.NewCell{Kind: notebook.CodeCell, Source: c})
	}
	a := ownerClaims().Actor
	id, err := r.manager.Create(context.WithoutCancel(r.t.Context()), a, notebook.Created{Title: title, Language: "python"}, in, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *rig) state(id notebook.ID) notebook.State {
	r.t.Helper()
	s, err := r.manager.Open(context.WithoutCancel(r.t.Context()), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.State()
}

// put writes a workspace file and returns the name of its blob.
func (r *rig) put(id notebook.ID, path, content string) string {
	r.t.Helper()
	s, err := r.manager.Open(context.WithoutCancel(r.t.Context()), id)
	if err != nil {
		r.t.Fatal(err)
	}
	f, err := s.Upload(context.WithoutCancel(r.t.Context()), ownerClaims().Actor, path, strings.NewReader(content))
	if err != nil {
		r.t.Fatal(err)
	}
	return f.Blob
}

// imported makes a notebook of a Jupyter file.
func (r *rig) imported(ipynb string) notebook.ID {
	r.t.Helper()
	a := r.do(call{method: "POST", path: "/api/v1/import?name=x.ipynb", body: ipynb, as: r.owner()})
	var out struct{ ID notebook.ID }
	if a.status != http.StatusCreated || json.Unmarshal([]byte(a.body), &out) != nil {
		r.t.Fatalf("import: got %s, want 201", a)
	}
	return out.ID
}

// record is all a store holds that a request could change, to compare.
func (r *rig) record() string {
	r.t.Helper()
	ctx := context.WithoutCancel(r.t.Context())
	var all []any
	for _, deleted := range []bool{false, true} {
		p, err := r.store.List(ctx, sessionstore.ListQuery{Deleted: deleted, Limit: 500})
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, p.Notebooks)
		for _, n := range p.Notebooks {
			all = append(all, r.state(n.ID).Files)
		}
	}
	tokens, err := r.store.Tokens(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	bytes, err := r.store.BlobBytes(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := json.MarshalIndent(append(all, tokens, bytes), "", " ")
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// dial opens the socket of a notebook.
func (r *rig) dial(id notebook.ID, as credential) (*websocket.Conn, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), patience)
	defer cancel()
	q := r.request(call{method: "GET", path: "/", as: as, head: map[string]string{"Origin": r.origin}})
	ws, _, err := websocket.Dial(ctx, r.base+"/api/v1/notebooks/"+string(id)+"/live", &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient: &http.Client{Transport: r.client.Transport}, HTTPHeader: q.Header, Subprotocols: []string{"sandbook.v1"}, Host: q.Host,
	})
	if err == nil {
		r.t.Cleanup(func() { _ = ws.CloseNow() })
	}
	return ws, err
}

// closed reads a socket to its end and says with which code that was.
func (r *rig) closed(ws *websocket.Conn) websocket.StatusCode {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), patience)
	defer cancel()
	for {
		if _, _, err := ws.Read(ctx); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// alive asks something on a socket and waits for the answer.
func (r *rig) alive(ws *websocket.Conn) error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), patience)
	defer cancel()
	if err := ws.Write(ctx, websocket.MessageText, []byte(`{"id":"alive","op":"cell.clear"}`)); err != nil {
		return err
	}
	for {
		_, b, err := ws.Read(ctx)
		if err != nil || strings.Contains(string(b), `"id":"alive"`) {
			return err
		}
	}
}
