package live_test

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
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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
	"sandbook/web"
	"sandbook/web/auth"
)

// The tests talk to the real server over loopback: its routes and tokens, real
// sessions, a real SQLite store. Only the backend is a fake. Where the clock
// matters, they serve one socket over a pipe in a synctest bubble instead.

func TestMain(m *testing.M) { os.Exit(testkit.Run(m, "sandbook/web", "sandbook/kernel")) }

const patience = 40 * time.Second

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	testkit.Eventually(t, patience, what, cond)
}

var alice = notebook.Actor{
	Author: notebook.Author{Kind: notebook.Person, ID: "alice", Name: "Alice"},
	Scopes: auth.PersonScopes(),
}

func agent(name string, scopes ...notebook.Scope) notebook.Actor {
	return notebook.Actor{Author: notebook.Author{Kind: notebook.Agent, ID: "agent:" + name, Name: name}, Scopes: scopes}
}

var allOf = []notebook.Scope{notebook.ScopeRead, notebook.ScopeEdit, notebook.ScopeRun}

// sessions is a store with sessions on it, without HTTP.
type sessions struct {
	t     *testing.T
	f     *fake
	st    *sessionstore.Store
	blobs *artifacts.Store
	m     *kernel.Manager
	fault atomic.Pointer[error] // of every Append, if there is one
}

// flaky is the store with faults put in.
type flaky struct {
	*sessionstore.Store
	fault *atomic.Pointer[error]
}

func (l flaky) Append(ctx context.Context, id notebook.ID, b notebook.Batch) error {
	if err := l.fault.Load(); err != nil {
		return *err
	}
	return l.Store.Append(ctx, id, b)
}

func newSessions(t *testing.T) *sessions {
	t.Helper()
	st, err := sessionstore.Open(context.Background(), sessionstore.Options{Dir: t.TempDir(), NoMaintenance: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := &sessions{t: t, f: &fake{}, st: st, blobs: artifacts.New(st, artifacts.Quota{})}
	w.open()
	return w
}

func (w *sessions) open() {
	w.m = kernel.New(kernel.Options{
		Log: flaky{w.st, &w.fault}, Blobs: w.blobs, Backends: backends.NewRegistry(w.f), Install: "test", GuestPath: "/guest",
		NewID: func() string { return uuid.Must(uuid.NewV7()).String() }, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
}

func (w *sessions) close() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.m.Close(ctx); err != nil {
		w.t.Error(err)
	}
}

// closeAll is the end of the test.
func (w *sessions) closeAll() {
	w.t.Helper()
	w.close()
	w.f.end()
	if err := w.st.Close(); err != nil {
		w.t.Error(err)
	}
}

// notebook makes one with code cells.
func (w *sessions) notebook(cells ...string) notebook.ID {
	w.t.Helper()
	var cs []kernel.NewCell
	for _, c := range cells {
		cs = append(cs, kernel.NewCell{Kind: notebook.CodeCell, Source: c})
	}
	id, err := w.m.Create(context.Background(), alice, notebook.Created{Language: "python"}, cs, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *sessions) session(id notebook.ID) *kernel.Session {
	w.t.Helper()
	s, err := w.m.Open(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *sessions) do(id notebook.ID, op notebook.Op) kernel.Result {
	w.t.Helper()
	res, err := w.session(id).Do(context.Background(), alice, op, "")
	if err != nil {
		w.t.Fatalf("%s: %v", op.Op(), err)
	}
	return res
}

// run runs the i-th cell to its end.
func (w *sessions) run(id notebook.ID, i int) {
	w.t.Helper()
	s := w.session(id)
	run := notebook.RunID(w.do(id, notebook.RunCells{Cells: []notebook.CellID{s.State().Cells[i].ID}}).IDs[0])
	eventually(w.t, "the end of the run", func() bool { r := s.State().Runs[run]; return r != nil && r.Status.Final() })
}

// events is the whole log.
func (w *sessions) events(id notebook.ID) []notebook.Event {
	w.t.Helper()
	var all []notebook.Event
	for {
		since := int64(len(all))
		evs, err := w.st.Events(context.Background(), id, since, 1000)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(evs) == 0 {
			return all
		}
		all = append(all, evs...)
	}
}

// server is the whole server, on loopback.
type server struct {
	*sessions
	keys   *auth.Keys
	app    *web.Server
	http   *httptest.Server
	narrow bool // little can be on its way to a client
}

func newServer(t *testing.T, options ...func(*server)) *server {
	t.Helper()
	s := &server{sessions: newSessions(t)}
	for _, o := range options {
		o(s)
	}
	var err error
	if s.keys, err = auth.OpenKeys(filepath.Join(t.TempDir(), "secrets"), s.st); err != nil {
		t.Fatal(err)
	}
	s.serve()
	t.Cleanup(func() {
		s.shutdown()
		s.closeAll()
	})
	return s
}

func narrow(s *server) { s.narrow = true }

func (s *server) serve() {
	s.http = httptest.NewUnstartedServer(nil)
	url := "http://" + s.http.Listener.Addr().String()
	site, err := auth.NewSite([]string{url}, true)
	if err != nil {
		s.t.Fatal(err)
	}
	s.app = web.New(web.Options{
		Manager: s.m, Store: s.st, Blobs: s.blobs, Keys: s.keys, Door: auth.NewDoor(s.keys, 1, false), Site: site,
		Assets: &static.Assets{}, FrameOrigin: "http://localhost:1", Backends: backends.NewRegistry(s.f), Build: "test-build", Logger: slog.New(slog.DiscardHandler),
	})
	s.http.Config.Handler = s.app
	if s.narrow {
		s.http.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
			return ctx
		}
	}
	s.http.Start()
}

// shutdown ends the server as cmd/web does: sessions, sockets, requests.
func (s *server) shutdown() {
	s.t.Helper()
	s.close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.app.Drain(ctx); err != nil {
		s.t.Errorf("the sockets did not end: %v", err)
	}
	s.http.Close()
}

// restart starts the server again on the same data.
func (s *server) restart() {
	s.open()
	s.serve()
}

// token mints a bearer token.
func (s *server) token(a notebook.Actor, ttl time.Duration) (text, id string) {
	s.t.Helper()
	id = uuid.NewString()
	text, err := s.keys.Mint(auth.Claims{Actor: a, Audience: auth.AudienceAPI, ID: id}, ttl, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	return text, id
}

// dialing is how to open a socket. The zero value is Alice's, from the start.
type dialing struct {
	token  string
	header http.Header // instead of the token
	query  string      // such as "since=3"
	bare   bool        // no subprotocol
	narrow bool        // little can be on its way
}

// tryDial opens a socket; err holds the answer if it was refused.
func (s *server) tryDial(id notebook.ID, d dialing) (*client, error) {
	if d.token == "" && d.header == nil {
		d.token, _ = s.token(alice, time.Hour)
	}
	if d.header == nil {
		d.header = http.Header{"Authorization": {"Bearer " + d.token}}
	}
	o := &websocket.DialOptions{HTTPClient: s.http.Client(), HTTPHeader: d.header, Subprotocols: []string{"sandbook.v1"}}
	if d.bare {
		o.Subprotocols = nil
	}
	var conn *net.TCPConn
	if d.narrow {
		o.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				conn = c.(*net.TCPConn)
				err = conn.SetReadBuffer(4 << 10)
			}
			return c, err
		}}}
	}
	c, err := dial(s.t, s.http.URL+"/api/v1/notebooks/"+string(id)+"/live?"+d.query, o)
	if err == nil {
		c.conn = conn
		s.t.Cleanup(func() { _ = c.ws.CloseNow() })
	}
	return c, err
}

func (s *server) dial(id notebook.ID, d dialing) *client {
	s.t.Helper()
	c, err := s.tryDial(id, d)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// refusal is an answer instead of a socket.
type refusal struct {
	status        int
	Code, Message string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.status, r.Code, r.Message) }

func dial(t *testing.T, url string, o *websocket.DialOptions) (*client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, res, err := websocket.Dial(ctx, url, o) //nolint:bodyclose // the library closes it
	if err != nil {
		if res == nil {
			return nil, err
		}
		b, _ := io.ReadAll(res.Body)
		var p struct{ Error refusal }
		_ = json.Unmarshal(b, &p)
		p.Error.status = res.StatusCode
		return nil, &p.Error
	}
	ws.SetReadLimit(64 << 20)
	return &client{t: t, ws: ws, answers: map[string]answer{}, next: 1000, waits: patience}, nil
}

// client is a view: it keeps what it was sent.
type client struct {
	t       *testing.T
	ws      *websocket.Conn
	hello   *hello
	start   *notebook.State  // what came first, without since
	evs     []notebook.Event // and after it
	answers map[string]answer
	order   []string // ids, as they were answered
	pings   int
	usage   json.RawMessage
	patches []patchMessage
	next    int
	waits   time.Duration // at most, for what it is told to wait for
	conn    *net.TCPConn  // of a narrow one
}

type hello struct {
	Seq      int64
	Server   string
	Resumed  bool
	Notebook notebook.ID
}

type answer struct {
	OK    json.RawMessage
	Error *fault
	times int
}

type fault struct {
	Code, Message string
	Data          json.RawMessage
}

type patchMessage struct {
	Seq    int64
	Patch  json.RawMessage
	Notice string
}

var errOdd = errors.New("a message that the page on the API does not know")

// step takes one message in. It refuses what is not documented.
func (c *client) step(ctx context.Context) error {
	kind, b, err := c.ws.Read(ctx)
	if err != nil {
		return err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil || kind != websocket.MessageText {
		return fmt.Errorf("%w: %.300s", errOdd, b)
	}
	switch {
	case m["hello"] != nil:
		if c.hello != nil {
			return fmt.Errorf("%w: a second hello", errOdd)
		}
		return json.Unmarshal(m["hello"], &c.hello)
	case c.hello == nil:
		return fmt.Errorf("%w: %.300s before hello", errOdd, b)
	case m["state"] != nil:
		c.start = &notebook.State{}
		return json.Unmarshal(m["state"], c.start)
	case m["event"] != nil:
		var e notebook.Event
		if err := json.Unmarshal(b, &e); err != nil {
			return err
		}
		c.evs = append(c.evs, e)
	case m["id"] != nil:
		var a answer
		if err := json.Unmarshal(b, &a); err != nil {
			return err
		}
		if (a.OK == nil) == (a.Error == nil) {
			return fmt.Errorf("%w: %.300s is neither ok nor an error", errOdd, b)
		}
		id := string(m["id"])
		a.times = c.answers[id].times + 1
		c.answers[id] = a
		c.order = append(c.order, id)
	case m["ping"] != nil:
		c.pings++
	case m["usage"] != nil:
		c.usage = m["usage"]
	case m["seq"] != nil:
		var p patchMessage
		if err := json.Unmarshal(b, &p); err != nil {
			return err
		}
		c.patches = append(c.patches, p)
	default:
		return fmt.Errorf("%w: %.300s", errOdd, b)
	}
	return nil
}

// try reads until cond holds.
func (c *client) try(cond func() bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.waits)
	defer cancel()
	for !cond() {
		if err := c.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) until(what string, cond func() bool) {
	c.t.Helper()
	if err := c.try(cond); err != nil {
		c.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// seq is how far the client is.
func (c *client) seq() int64 {
	switch {
	case len(c.evs) > 0:
		return c.evs[len(c.evs)-1].Seq
	case c.start != nil:
		return c.start.Seq
	case c.hello != nil && c.hello.Resumed:
		return c.hello.Seq
	}
	return -1
}

// reach reads until the client has the event.
func (c *client) reach(seq int64) {
	c.t.Helper()
	c.until(fmt.Sprintf("seq %d", seq), func() bool { return c.seq() >= seq })
}

// closed reads to the end and returns the code and the reason of it.
func (c *client) closed() (websocket.StatusCode, string) {
	c.t.Helper()
	err := c.try(func() bool { return false })
	if ce, ok := errors.AsType[websocket.CloseError](err); ok {
		return ce.Code, ce.Reason
	}
	return -1, err.Error()
}

func (c *client) wantClosed(code websocket.StatusCode, reason string) {
	c.t.Helper()
	if gotCode, got := c.closed(); gotCode != code || got != reason {
		c.t.Errorf("closed with %d %q, want %d %q", gotCode, got, code, reason)
	}
}

func (c *client) send(text string) {
	c.t.Helper()
	if err := c.ws.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

// request is the text of an op.
func request(id any, op string, args any, key string) string {
	m := map[string]any{"id": id, "op": op}
	if args != nil {
		m["args"] = args
	}
	if key != "" {
		m["key"] = key
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// op sends an op, or a question, and waits for its answer.
func (c *client) op(name string, args any, key string) answer {
	c.t.Helper()
	a, err := c.tryOp(name, args, key)
	if err != nil {
		c.t.Fatalf("waiting for the answer to %s: %v", name, err)
	}
	return a
}

func (c *client) tryOp(name string, args any, key string) (answer, error) {
	c.next++
	id := fmt.Sprint(c.next)
	if err := c.ws.Write(context.Background(), websocket.MessageText, []byte(request(c.next, name, args, key))); err != nil {
		return answer{}, err
	}
	err := c.try(func() bool { return c.answers[id].times > 0 })
	return c.answers[id], err
}

func (c *client) insert(source string) answer {
	c.t.Helper()
	return c.op("cell.insert", map[string]any{"source": source}, "")
}

func wantFault(t *testing.T, what string, a answer, code, message string) {
	t.Helper()
	if a.Error == nil || a.Error.Code != code || a.Error.Message != message {
		t.Errorf("%s: got ok %s, error %+v; want %s %q", what, a.OK, a.Error, code, message)
	}
}

func result(t *testing.T, a answer) kernel.Result {
	t.Helper()
	if a.Error != nil {
		t.Fatalf("refused: %s %s", a.Error.Code, a.Error.Message)
	}
	var r kernel.Result
	if err := json.Unmarshal(a.OK, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// sameEvents compares by what a client is sent.
func sameEvents(t *testing.T, what string, got, want []notebook.Event) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) {
			t.Errorf("%s: %d events, want %d", what, len(got), len(want))
			return
		}
		g, err1 := json.Marshal(got[i])
		w, err2 := json.Marshal(want[i])
		if err1 != nil || err2 != nil || string(g) != string(w) {
			t.Errorf("%s: event %d is %s, want %s (%v, %v)", what, i, g, w, err1, err2)
			return
		}
	}
}

// together runs fn n times at once and waits.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}
