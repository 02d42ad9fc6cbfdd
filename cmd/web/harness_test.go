package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sandbook/kernel/notebook"
)

// binary is the real program, built once for all tests of this package.
var binary string

func buildBinary(dir string) error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	for _, b := range []struct{ out, pkg string }{
		{"kernel/guestbin/dist/sandbook-guest-linux-" + runtime.GOARCH, "./kernel/guest/sandbook-guest"},
		{"backends/internal/shim/dist/sandbook-shim-linux-" + runtime.GOARCH, "./backends/internal/shim/sandbook-shim"},
		{filepath.Join(dir, "web"), "./cmd/web"},
	} {
		out := b.out
		if !filepath.IsAbs(out) {
			out = filepath.Join(root, out)
			if _, err := os.Stat(out); err == nil && os.Getenv("SANDBOOK_REBUILD") == "" {
				continue // built by make
			}
		}
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, b.pkg)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if msg, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", b.pkg, err, msg)
		}
	}
	binary = filepath.Join(dir, "web")
	return nil
}

// serverProc is a server run as its user would.
type serverProc struct {
	t    *testing.T
	data string
	args []string
	addr string
	cmd  *exec.Cmd
	log  *bytes.Buffer
	mu   sync.Mutex
	link string
	http *http.Client
}

var linkLine = regexp.MustCompile(`http://\S+/login\?token=\S+`)

// startServer starts one on free ports with a fresh data folder.
func startServer(t *testing.T, args ...string) *serverProc {
	t.Helper()
	dir, err := os.MkdirTemp("", "sb") //nolint:usetesting // removed last, after the sandboxes
	if err != nil {
		t.Fatal(err)
	}
	jar, _ := cookiejar.New(nil)
	s := &serverProc{t: t, data: dir, args: args, addr: "127.0.0.1:0", log: &bytes.Buffer{}, http: &http.Client{Jar: jar, Timeout: 60 * time.Second}}
	t.Cleanup(func() {
		s.stopKernels()
		s.kill(syscall.SIGKILL)
		s.reap()
		_ = os.RemoveAll(dir)
		if t.Failed() {
			s.mu.Lock()
			t.Logf("server log:\n%s", tailOf(s.log.String(), 8000))
			s.mu.Unlock()
		}
	})
	s.start()
	return s
}

func tailOf(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// start runs the program and waits for the sign-in link.
func (s *serverProc) start() {
	s.t.Helper()
	args := append([]string{"run", "--data", s.data, "--addr", s.addr, "--log", "info"}, s.args...)
	s.cmd = exec.Command(binary, args...)
	s.cmd.Env = append(os.Environ(), "CANARY_SECRET=canary-hunter2", "SANDBOOK_DEV=1")
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	errs, err := s.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go s.copyLog(errs)
	link := make(chan string, 1)
	go func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if m := linkLine.FindString(sc.Text()); m != "" {
				link <- m
			}
		}
		close(link)
	}()
	select {
	case l, ok := <-link:
		if !ok {
			_ = s.cmd.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.t.Fatalf("the server ended without a link:\n%s", s.log)
		}
		s.link = l
	case <-time.After(30 * time.Second):
		s.t.Fatal("no sign-in link within 30 s")
	}
	s.addr = strings.TrimPrefix(s.link[:strings.Index(s.link, "/login")], "http://")
	res, err := s.http.Get(s.link)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		s.t.Fatalf("sign-in: %s", res.Status)
	}
}

func (s *serverProc) copyLog(r io.Reader) {
	b := make([]byte, 4096)
	for {
		n, err := r.Read(b)
		s.mu.Lock()
		s.log.Write(b[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *serverProc) kill(sig syscall.Signal) {
	if s.cmd == nil || s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	_ = s.cmd.Wait()
}

// stopKernels ends every kernel of the server so that nothing stays behind.
func (s *serverProc) stopKernels() {
	if s.cmd == nil || s.cmd.ProcessState != nil {
		return
	}
	var list struct {
		Notebooks []struct {
			ID string `json:"id"`
		} `json:"notebooks"`
	}
	if s.tryJSON("GET", "/api/v1/notebooks", nil, &list) != nil {
		return
	}
	for _, n := range list.Notebooks {
		_ = s.tryJSON("POST", "/api/v1/notebooks/"+n.ID+"/ops", map[string]any{"op": "kernel.stop"}, nil)
	}
}

// reap kills what shims of this data folder are left, by their run directories.
func (s *serverProc) reap() {
	cmd := exec.Command(binary, "reap", "--data", s.data)
	_ = cmd.Run()
}

// json makes a request and fails the test on any status but 2xx.
func (s *serverProc) json(method, path string, in, out any) {
	s.t.Helper()
	if err := s.tryJSON(method, path, in, out); err != nil {
		s.t.Fatal(err)
	}
}

func (s *serverProc) tryJSON(method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, "http://"+s.addr+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", "http://"+s.addr)
	res, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, tailOf(string(b), 500))
	}
	if out != nil {
		return json.Unmarshal(b, out)
	}
	return nil
}

// notebook makes one with the given code cells and returns its id.
func (s *serverProc) notebook(cells ...string) notebook.ID {
	s.t.Helper()
	type cell struct {
		Kind   string `json:"kind"`
		Source string `json:"source"`
	}
	in := map[string]any{"title": "Test", "cells": []cell{}}
	var cs []cell
	for _, c := range cells {
		cs = append(cs, cell{"code", c})
	}
	in["cells"] = cs
	var out struct{ ID notebook.ID }
	s.json("POST", "/api/v1/notebooks", in, &out)
	return out.ID
}

func (s *serverProc) state(id notebook.ID) notebook.State {
	s.t.Helper()
	var st notebook.State
	s.json("GET", "/api/v1/notebooks/"+string(id), nil, &st)
	return st
}

// client is a socket client that folds events into a state, as any view does.
type client struct {
	t     *testing.T
	ws    *websocket.Conn
	state notebook.State
	evs   []notebook.Event
	next  int
	oks   map[string]json.RawMessage
	errs  map[string]string
}

func (s *serverProc) dial(id notebook.ID, since int64) *client {
	s.t.Helper()
	c, err := s.tryDial(id, since)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.ws.CloseNow() })
	return c
}

func (s *serverProc) tryDial(id notebook.ID, since int64) (*client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	url := "ws://" + s.addr + "/api/v1/notebooks/" + string(id) + "/live"
	if since >= 0 {
		url += fmt.Sprintf("?since=%d", since)
	}
	ws, res, err := websocket.Dial(ctx, url, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient: s.http, Subprotocols: []string{"sandbook.v1"},
		HTTPHeader: http.Header{"Origin": {"http://" + s.addr}},
	})
	if err != nil {
		if res != nil && res.Body != nil {
			b, _ := io.ReadAll(res.Body)
			return nil, fmt.Errorf("%w: %s", err, b)
		}
		return nil, err
	}
	ws.SetReadLimit(64 << 20)
	return &client{t: s.t, ws: ws, oks: map[string]json.RawMessage{}, errs: map[string]string{}}, nil
}

// step reads one message.
func (c *client) step(ctx context.Context) error {
	_, b, err := c.ws.Read(ctx)
	if err != nil {
		return err
	}
	var m struct {
		State *notebook.State `json:"state"`
		Event string          `json:"event"`
		ID    json.RawMessage `json:"id"`
		OK    json.RawMessage `json:"ok"`
		Error *struct {
			Code, Message string
		} `json:"error"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	switch {
	case m.State != nil:
		c.state = *m.State
	case m.Event != "":
		var e notebook.Event
		if err := json.Unmarshal(b, &e); err != nil {
			return err
		}
		c.evs = append(c.evs, e)
		c.state = notebook.Apply(c.state, e)
	case len(m.ID) > 0 && m.Error != nil:
		c.errs[string(m.ID)] = m.Error.Code + ": " + m.Error.Message
	case len(m.ID) > 0:
		c.oks[string(m.ID)] = m.OK
	}
	return nil
}

// until reads until the condition holds.
func (c *client) until(what string, limit time.Duration, cond func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for !cond() {
		if err := c.step(ctx); err != nil {
			b, _ := json.Marshal(c.state)
			c.t.Fatalf("waiting for %s: %v\nstate: %s", what, err, tailOf(string(b), 3000))
		}
	}
}

// op sends an op and waits for its answer.
func (c *client) op(name string, args any) error {
	c.t.Helper()
	c.next++
	id := fmt.Sprint(c.next)
	b, err := json.Marshal(map[string]any{"id": c.next, "op": name, "args": args})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.ws.Write(context.Background(), websocket.MessageText, b); err != nil {
		return err
	}
	c.until("the answer to "+name, 20*time.Second, func() bool { return c.oks[id] != nil || c.errs[id] != "" })
	if e := c.errs[id]; e != "" {
		return fmt.Errorf("%s", e)
	}
	return nil
}

// run runs the i-th cell and waits for its end.
func (c *client) run(i int, limit time.Duration) *notebook.Run {
	c.t.Helper()
	if c.state.Seq == 0 {
		c.until("the state", 10*time.Second, func() bool { return c.state.Seq > 0 })
	}
	cell := c.state.Cells[i].ID
	before := c.state.Cells[i].Run
	if err := c.op("run", map[string]any{"cells": []notebook.CellID{cell}}); err != nil {
		c.t.Fatal(err)
	}
	return c.ended(i, before, limit)
}

// ended waits until the i-th cell shows a finished run other than before.
func (c *client) ended(i int, before notebook.RunID, limit time.Duration) *notebook.Run {
	c.t.Helper()
	c.until(fmt.Sprintf("the end of cell %d", i), limit, func() bool {
		cell := c.state.Cells[i]
		r := c.state.Runs[cell.Run]
		return r != nil && cell.Run != before && cell.Pending == "" && r.Status.Final()
	})
	return c.state.Runs[c.state.Cells[i].Run]
}

// text is what a run printed to a stream, as the state shows it.
func text(r *notebook.Run, name string) string {
	var b strings.Builder
	for _, o := range r.Outputs {
		if o.Kind == notebook.StreamOutput && o.Name == name {
			b.WriteString(o.Text.String())
		}
	}
	return b.String()
}

// plain is the text/plain of a run's result.
func plain(r *notebook.Run) string {
	for _, o := range r.Outputs {
		if o.Kind == notebook.ResultOutput {
			return o.Data["text/plain"].Text
		}
	}
	return ""
}
