package live_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"sandbook/internal/testkit"
	"sandbook/kernel/notebook"
	"sandbook/web/live"
)

// pipe serves sockets of one notebook over pipes, which hold nothing on their
// way and work in a synctest bubble.
type pipe struct {
	*sessions
	id      notebook.ID
	change  func(*live.Options)
	ln      *listener
	srv     *http.Server
	ended   chan struct{} // the server's end
	serving sync.WaitGroup
	open    atomic.Int32 // sockets
	logged  testkit.Log
}

// newPipe serves the notebook with Alice's rights, as changed. Close it before
// the bubble ends.
func newPipe(w *sessions, id notebook.ID, change func(*live.Options)) *pipe {
	p := &pipe{sessions: w, id: id, change: change, ln: &listener{conns: make(chan net.Conn), done: make(chan struct{})}, ended: make(chan struct{})}
	p.srv = &http.Server{Handler: p, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go func() { defer close(p.ended); _ = p.srv.Serve(p.ln) }()
	return p
}

func (p *pipe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.serving.Add(1)
	defer p.serving.Done()
	p.open.Add(1)
	defer p.open.Add(-1)
	o := live.Options{Session: p.session(p.id), Log: p.st, Actor: alice, Since: -1, Build: "test-build", Logger: slog.New(slog.NewTextHandler(&p.logged, nil))}
	if v := r.URL.Query().Get("since"); v != "" {
		o.Since, _ = strconv.ParseInt(v, 10, 64)
	}
	if p.change != nil {
		p.change(&o)
	}
	live.Serve(w, r, o)
}

// end waits for the end of every socket, and then of everything.
func (p *pipe) end() {
	p.close()
	p.serving.Wait()
	_ = p.srv.Close()
	<-p.ended
	p.closeAll()
}

// conn is a connection to the server.
func (p *pipe) conn() net.Conn {
	ours, theirs := net.Pipe()
	p.ln.conns <- theirs
	return ours
}

func (p *pipe) dial(query string) *client {
	p.t.Helper()
	return p.dialOver(p.conn(), query)
}

func (p *pipe) dialOver(conn net.Conn, query string) *client {
	p.t.Helper()
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	c, err := dial(p.t, "ws://sandbook/?"+query, &websocket.DialOptions{HTTPClient: &http.Client{Transport: tr}, Subprotocols: []string{live.Subprotocol}})
	if err != nil {
		p.t.Fatal(err)
	}
	c.waits = time.Hour // of the bubble's time
	return c
}

type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, io.EOF
	}
}

func (l *listener) Close() error { l.once.Do(func() { close(l.done) }); return nil }
func (l *listener) Addr() net.Addr {
	return &net.UnixAddr{Name: "pipe", Net: "pipe"}
}
