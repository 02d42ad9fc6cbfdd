package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sandbook/kernel/notebook"
)

// The stories of this file are told to the real binary, with real sandboxes.

func TestFirstRun(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial(s.notebook("1+1", "print('out'); import sys; print('err', file=sys.stderr); 1/0"), -1)
	r := c.run(0, 30*time.Second)
	if r.Status != notebook.OK || plain(r) != "2" || r.Count != 1 {
		t.Fatalf("1+1: %s %q [%d]", r.Status, plain(r), r.Count)
	}
	if r.SHA256 != notebook.SourceHash("1+1") || r.By.Kind != notebook.Person {
		t.Fatalf("the record says hash %s by %s", r.SHA256, r.By.Kind)
	}
	for _, check := range c.state.Kernel.Posture {
		if !check.OK {
			t.Errorf("posture %s: %s", check.Name, check.Detail)
		}
	}
	r = c.run(1, 30*time.Second)
	if r.Status != notebook.Failed || r.EName != "ZeroDivisionError" || text(r, "stdout") != "out\n" || text(r, "stderr") != "err\n" {
		t.Fatalf("error run: %s %s %q %q", r.Status, r.EName, text(r, "stdout"), text(r, "stderr"))
	}
}

// A batch stops at the first error and says what it skipped.
func TestStopOnError(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial(s.notebook("1/0", "2", "3"), -1)
	c.until("the state", 10*time.Second, func() bool { return c.state.Seq > 0 })
	if err := c.op("run", map[string]any{"scope": "all"}); err != nil {
		t.Fatal(err)
	}
	c.until("the end", 30*time.Second, func() bool {
		r := c.state.Runs[c.state.Cells[2].Run]
		return r != nil && r.Status.Final()
	})
	r := c.state.Runs[c.state.Cells[2].Run]
	if r.Status != notebook.Skipped || r.Reason != "A cell before it failed." {
		t.Fatalf("third cell: %s %q", r.Status, r.Reason)
	}
}

func TestInterruptKeepsState(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial(s.notebook("x = 42", "while True: pass", "x"), -1)
	c.run(0, 30*time.Second)
	cell := c.state.Cells[1].ID
	if err := c.op("run", map[string]any{"cells": []notebook.CellID{cell}}); err != nil {
		t.Fatal(err)
	}
	c.until("the loop", 10*time.Second, func() bool { return c.state.Live != "" })
	start := time.Now()
	if err := c.op("kernel.interrupt", nil); err != nil {
		t.Fatal(err)
	}
	r := c.ended(1, "", 10*time.Second)
	t.Logf("interrupt of while True took %s", time.Since(start).Round(time.Millisecond))
	if r.Status != notebook.Interrupted {
		t.Fatalf("status %s %s", r.Status, r.Reason)
	}
	if r := c.run(2, 10*time.Second); plain(r) != "42" {
		t.Fatalf("x is %q after the interrupt", plain(r))
	}
}

// An interrupt that comes before the kernel has begun the run counts: the first
// signal is enough, every time.
func TestInterruptAtOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial(s.notebook("while True: pass"), -1)
	c.until("the state", 10*time.Second, func() bool { return c.state.Seq > 0 })
	for range 40 {
		before := c.state.Cells[0].Run
		if err := c.op("run", map[string]any{"cells": []notebook.CellID{c.state.Cells[0].ID}}); err != nil {
			t.Fatal(err)
		}
		c.until("the run", 30*time.Second, func() bool { return c.state.Live != "" })
		if err := c.op("kernel.interrupt", nil); err != nil {
			t.Fatal(err)
		}
		if r := c.ended(0, before, 20*time.Second); r.Status != notebook.Interrupted {
			t.Fatalf("status %s %s", r.Status, r.Reason)
		}
	}
	for _, e := range c.evs {
		if b, ok := e.Body.(notebook.RunStage); ok && b.Stage != "asked" && b.Stage != "sigint" {
			t.Errorf("an interrupt went as far as %s", b.Stage)
		}
	}
}

// Code that swallows the interrupt, or holds the interpreter in C, is killed
// within the grace; the page says so and the next cell works.
func TestInterruptIgnored(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for name, code := range map[string]string{
		"swallowed": "while True:\n    try:\n        while True: pass\n    except KeyboardInterrupt: pass",
		"in C":      "sum(range(10**13))",
	} {
		c := s.dial(s.notebook(code, "1+1"), -1)
		c.until("the state", 10*time.Second, func() bool { return c.state.Seq > 0 })
		if err := c.op("run", map[string]any{"cells": []notebook.CellID{c.state.Cells[0].ID}}); err != nil {
			t.Fatal(err)
		}
		c.until("the loop", 30*time.Second, func() bool { return c.state.Live != "" })
		if err := c.op("kernel.interrupt", nil); err != nil {
			t.Fatal(err)
		}
		r := c.ended(0, "", 20*time.Second)
		if r.Status != notebook.Killed && r.Status != notebook.Interrupted || r.Reason == "" && r.Status == notebook.Killed {
			t.Errorf("%s: %s %q", name, r.Status, r.Reason)
		}
		if r := c.run(1, 30*time.Second); plain(r) != "2" {
			t.Errorf("%s: the next cell gave %q (%s)", name, plain(r), r.Reason)
		}
	}
}

// What a hostile cell uses up is said in words, and a neighbour goes on.
func TestHogs(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--memory", "512MiB", "--workspace", "64MiB", "--pids", "128")
	neighbour := s.dial(s.notebook("1+1"), -1)
	neighbour.run(0, 30*time.Second)
	cases := []struct {
		name, code string
		want       func(r *notebook.Run, st notebook.State) bool
	}{
		{"memory bomb", "hog = []\nwhile True: hog.append(bytearray(20_000_000))", func(r *notebook.Run, st notebook.State) bool {
			return r.Status == notebook.Killed && strings.Contains(r.Reason, "out of memory") || r.EName == "MemoryError"
		}},
		{"fork bomb", "import os, time\nkids = 0\ntry:\n    while True:\n        if os.fork() == 0:\n            time.sleep(60); os._exit(0)\n        kids += 1\nexcept OSError as e:\n    print('stopped after', kids, e)", func(r *notebook.Run, _ notebook.State) bool {
			return strings.Contains(text(r, "stdout"), "stopped after")
		}},
		{"full disk", "with open('big', 'wb') as f:\n    while True: f.write(bytes(1 << 20))", func(r *notebook.Run, _ notebook.State) bool {
			return r.EName == "OSError" && (strings.Contains(r.EValue, "No space left") || strings.Contains(r.EValue, "File too large"))
		}},
		{"full inodes", "i = 0\nwhile True:\n    open(f'f{i}', 'w').close(); i += 1", func(r *notebook.Run, _ notebook.State) bool {
			return r.EName == "OSError" && (strings.Contains(r.EValue, "No space left") || strings.Contains(r.EValue, "File too large"))
		}},
	}
	for _, tc := range cases {
		c := s.dial(s.notebook(tc.code, "1+1"), -1)
		r := c.run(0, 90*time.Second)
		if !tc.want(r, c.state) {
			t.Errorf("%s: status %s, reason %q, %s: %s, kernel %q, out %q", tc.name, r.Status, r.Reason, r.EName, r.EValue, c.state.Kernel.Message, tailOf(text(r, "stdout"), 200))
		}
		if r := neighbour.run(0, 20*time.Second); plain(r) != "2" {
			t.Errorf("%s: the neighbour gave %q", tc.name, plain(r))
		}
		if r := c.run(1, 30*time.Second); plain(r) != "2" {
			t.Errorf("%s: the next cell gave %q (%s %s)", tc.name, plain(r), r.Status, r.Reason)
		}
		_ = c.op("kernel.stop", nil)
	}
}

// 1 GiB printed: the server's memory stays flat, the count is exact, and what
// is kept can be read.
func TestFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("prints 1 GiB; not in short mode")
	}
	t.Parallel()
	s := startServer(t)
	const lines = 1 << 20
	c := s.dial(s.notebook(fmt.Sprintf("line = 'x' * 1023\nfor _ in range(%d): print(line)", lines)), -1)
	before := rss(t, s.cmd.Process.Pid)
	peak := make(chan int64)
	stop := make(chan struct{})
	go func() {
		var m int64
		for {
			select {
			case <-stop:
				peak <- m
				return
			case <-time.After(100 * time.Millisecond):
				m = max(m, rss(t, s.cmd.Process.Pid))
			}
		}
	}()
	start := time.Now()
	r := c.run(0, 5*time.Minute)
	took := time.Since(start)
	close(stop)
	top := <-peak
	t.Logf("1 GiB in %s; server memory %d → at most %d MiB", took.Round(time.Millisecond), before>>20, top>>20)
	if r.Status != notebook.OK {
		t.Fatalf("status %s %s", r.Status, r.Reason)
	}
	var total int64
	for _, o := range r.Outputs {
		if o.Text != nil {
			total += o.Text.Bytes
		}
	}
	if total != lines*1024 {
		t.Errorf("counted %d bytes, printed %d", total, lines*1024)
	}
	if top-before > 150<<20 {
		t.Errorf("the server grew by %d MiB", (top-before)>>20)
	}
	if shown := len(text(r, "stdout")); shown > 256<<10 {
		t.Errorf("%d bytes are shown", shown)
	}
}

func rss(t *testing.T, pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Error(err)
		return 0
	}
	n, _ := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return n * int64(os.Getpagesize())
}

// The server is killed again and again while a cell counts, prints and writes a
// file. The cell runs once, the kernel is found again each time, and not a line
// is lost or doubled.
func TestKilledServer(t *testing.T) {
	if testing.Short() {
		t.Skip("kills the server a hundred times; not in short mode")
	}
	t.Parallel()
	kills := 100
	if v := os.Getenv("SANDBOOK_KILLS"); v != "" {
		kills, _ = strconv.Atoi(v)
	}
	s := startServer(t)
	id := s.notebook(`import time, os
n = int(open('starts').read()) if os.path.exists('starts') else 0
open('starts', 'w').write(str(n + 1))
i = 0
while not os.path.exists('stop'):
    print('line', i)
    i += 1
    time.sleep(0.004)
print('end', i, 'starts', open('starts').read())`, "1+1")
	c := s.dial(id, -1)
	c.until("the state", 10*time.Second, func() bool { return c.state.Seq > 0 })
	if err := c.op("run", map[string]any{"cells": []notebook.CellID{c.state.Cells[0].ID}}); err != nil {
		t.Fatal(err)
	}
	c.until("output", 30*time.Second, func() bool { r := c.state.Runs[c.state.Live]; return r != nil && len(r.Outputs) > 0 })
	rnd := rand.New(rand.NewPCG(1, 2))
	var slowest time.Duration
	for range kills {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(400))*time.Millisecond)
		for c.step(ctx) == nil {
		}
		cancel()
		s.kill(syscall.SIGKILL)
		_ = c.ws.CloseNow()
		start := time.Now()
		s.start()
		next, err := s.tryDial(id, c.state.Seq)
		if err != nil {
			t.Fatal(err)
		}
		next.state, next.evs = c.state, c.evs
		c = next
		have := c.state.Seq
		c.until("new output after the restart", 30*time.Second, func() bool {
			for _, e := range c.evs[len(c.evs)-min(len(c.evs), 50):] {
				if _, ok := e.Body.(notebook.StreamAppended); ok && e.Seq > have {
					return true
				}
			}
			return false
		})
		slowest = max(slowest, time.Since(start))
	}
	s.put(id, "stop", "now")
	r := c.ended(0, "", 60*time.Second)
	for i := 1; i < len(c.evs); i++ {
		if c.evs[i].Seq != c.evs[i-1].Seq+1 {
			t.Fatalf("event %d follows %d", c.evs[i].Seq, c.evs[i-1].Seq)
		}
	}
	all := s.output(id, r.ID)
	lines := strings.Split(strings.TrimSuffix(all, "\n"), "\n")
	for i, l := range lines[:len(lines)-1] {
		if l != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d reads %q", i, l)
		}
	}
	want := fmt.Sprintf("end %d starts 1", len(lines)-1)
	if lines[len(lines)-1] != want || r.Status != notebook.OK {
		t.Fatalf("it ended with %q (%s %s), want %q", lines[len(lines)-1], r.Status, r.Reason, want)
	}
	if c.state.Kernel.Adopted == 0 {
		t.Error("no kernel was adopted")
	}
	t.Logf("%d kills: %d lines, none lost, none doubled, one start; slowest restart to new output %s", kills, len(lines), slowest.Round(time.Millisecond))
	_ = c.ws.CloseNow()
}

// put uploads a workspace file.
func (s *serverProc) put(id notebook.ID, path, content string) {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodPut, "http://"+s.addr+"/api/v1/notebooks/"+string(id)+"/files/"+path, strings.NewReader(content))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Origin", "http://"+s.addr)
	res, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		s.t.Fatalf("upload: %s %s", res.Status, b)
	}
}

// output is everything a run printed.
func (s *serverProc) output(id notebook.ID, run notebook.RunID) string {
	s.t.Helper()
	res, err := s.http.Get("http://" + s.addr + "/api/v1/notebooks/" + string(id) + "/runs/" + string(run) + "/output?stream=stdout")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("output: %s %v %s", res.Status, err, b)
	}
	return string(b)
}

// Files come back with the next sandbox; a kernel that exits says so.
func TestFilesComeBack(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	id := s.notebook("open('a.txt','w').write('kept')", "import os; os._exit(7)", "open('a.txt').read()")
	c := s.dial(id, -1)
	c.run(0, 30*time.Second)
	c.until("the copy of a.txt", 20*time.Second, func() bool { return c.state.Files["a.txt"].Blob != "" })
	r := c.run(1, 20*time.Second)
	if r.Status != notebook.Killed || !strings.Contains(r.Reason+c.state.Kernel.Message, "7") {
		t.Errorf("os._exit: %s %q, kernel %q", r.Status, r.Reason, c.state.Kernel.Message)
	}
	c.until("the death", 10*time.Second, func() bool { return c.state.Kernel.Status == notebook.Dead })
	if r := c.run(2, 30*time.Second); plain(r) != "'kept'" {
		t.Fatalf("in the same sandbox: %q %s", plain(r), r.EValue)
	}
	if err := c.op("kernel.stop", nil); err != nil {
		t.Fatal(err)
	}
	boot := c.state.Kernel.Boot
	if r := c.run(2, 30*time.Second); plain(r) != "'kept'" {
		t.Fatalf("in a new sandbox: %q %s", plain(r), r.EValue)
	}
	if c.state.Kernel.Boot != boot+1 {
		t.Errorf("boot %d, want %d", c.state.Kernel.Boot, boot+1)
	}
}

// Two clients and a person's input: the question is part of the state, the
// first answer wins.
func TestInput(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	id := s.notebook("name = input('who? ')\nprint('hello', name)", "import getpass; p = getpass.getpass(); print(len(p))")
	a, b := s.dial(id, -1), s.dial(id, -1)
	a.until("the state", 10*time.Second, func() bool { return a.state.Seq > 0 })
	if err := a.op("run", map[string]any{"cells": []notebook.CellID{a.state.Cells[0].ID}}); err != nil {
		t.Fatal(err)
	}
	b.until("the question", 30*time.Second, func() bool { return b.state.Input != nil })
	if b.state.Input.Prompt != "who? " {
		t.Errorf("prompt %q", b.state.Input.Prompt)
	}
	if err := b.op("input.reply", map[string]any{"run": b.state.Input.Run, "value": "Ana"}); err != nil {
		t.Fatal(err)
	}
	r := a.ended(0, "", 20*time.Second)
	if !strings.Contains(text(r, "stdout"), "who? Ana\nhello Ana\n") {
		t.Errorf("output %q", text(r, "stdout"))
	}
	if err := b.op("input.reply", map[string]any{"run": r.ID, "value": "Eve"}); err == nil || !strings.HasPrefix(err.Error(), "conflict") {
		t.Errorf("a second answer: %v", err)
	}
	if err := a.op("run", map[string]any{"cells": []notebook.CellID{a.state.Cells[1].ID}}); err != nil {
		t.Fatal(err)
	}
	a.until("the password prompt", 20*time.Second, func() bool { return a.state.Input != nil })
	if !a.state.Input.Password {
		t.Error("a password prompt must say so")
	}
	if err := a.op("input.reply", map[string]any{"run": a.state.Input.Run, "value": "hunter2-secret"}); err != nil {
		t.Fatal(err)
	}
	r = a.ended(1, "", 20*time.Second)
	if !strings.Contains(text(r, "stdout"), "14\n") {
		t.Errorf("output %q", text(r, "stdout"))
	}
	res, err := s.http.Get("http://" + s.addr + "/api/v1/notebooks/" + string(id) + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	log, _ := io.ReadAll(res.Body)
	if strings.Contains(string(log), "hunter2-secret") {
		t.Error("the password is in the event log")
	}
}

// A key makes an op happen once, also over a restart of the server.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	id := s.notebook("x = 1")
	path := "/api/v1/notebooks/" + string(id) + "/ops"
	insert := map[string]any{"op": "cell.insert", "args": map[string]any{"source": "y = 2"}, "key": "k1"}
	var first, again struct{ First int64 }
	s.json("POST", path, insert, &first)
	s.json("POST", path, insert, &again)
	s.kill(syscall.SIGKILL)
	s.start()
	s.json("POST", path, insert, &again)
	if first.First == 0 || again.First != first.First || len(s.state(id).Cells) != 2 {
		t.Fatalf("first %d, again %d, %d cells", first.First, again.First, len(s.state(id).Cells))
	}
	insert["args"] = map[string]any{"source": "z = 3"}
	if err := s.tryJSON("POST", path, insert, nil); err == nil || !strings.Contains(err.Error(), "409") {
		t.Fatalf("another op under the key: %v", err)
	}
}

// Bad input gets a clear error and changes nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	id := s.notebook("1")
	nb := "/api/v1/notebooks/" + string(id)
	seq := s.state(id).Seq
	deep := strings.Repeat("[", 100000)
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"unknown notebook", "GET", "/api/v1/notebooks/nope", "", 404},
		{"unknown op", "POST", nb + "/ops", `{"op":"launch"}`, 400},
		{"server's op", "POST", nb + "/ops", `{"op":"report"}`, 400},
		{"unknown field", "POST", nb + "/ops", `{"op":"cell.insert","args":{"sauce":"x"}}`, 400},
		{"wrong type", "POST", nb + "/ops", `{"op":"cell.insert","args":{"source":7}}`, 400},
		{"unknown cell", "POST", nb + "/ops", `{"op":"run","args":{"cells":["nope"]}}`, 404},
		{"stale version", "POST", nb + "/ops", fmt.Sprintf(`{"op":"cell.edit","args":{"cell":%q,"base":9,"source":"x"}}`, s.state(id).Cells[0].ID), 409},
		{"not JSON", "POST", nb + "/ops", `op=run`, 400},
		{"two values", "POST", nb + "/ops", `{"op":"kernel.start"}{}`, 400},
		{"deep JSON", "POST", nb + "/ops", deep, 400},
		{"huge body", "POST", nb + "/ops", `{"op":"` + strings.Repeat("a", 5<<20) + `"}`, 413},
		{"NUL in source", "POST", nb + "/ops", `{"op":"cell.insert","args":{"source":"a\u0000b"}}`, 400},
		{"bad since", "GET", nb + "/events?since=-1", "", 400},
		{"path climbs", "PUT", nb + "/files/..%2Fx", "x", 400},
		{"absolute path", "PUT", nb + "/files/%2Fetc%2Fx", "x", 400},
		{"broken notebook", "POST", "/api/v1/import", `{"cells":`, 400},
		{"old notebook", "POST", "/api/v1/import", `{"nbformat":3,"worksheets":[]}`, 400},
		{"unknown address", "GET", "/api/v1/x", "", 404},
		{"wrong method", "DELETE", "/api/v1/notebooks", "", 405},
		{"bad blob", "GET", nb + "/blobs/xyz", "", 400},
		{"foreign blob", "GET", nb + "/blobs/" + strings.Repeat("a", 64), "", 404},
		{"no such run", "GET", nb + "/runs/nope/output", "", 404},
	} {
		req, err := http.NewRequest(tc.method, "http://"+s.addr+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Origin", "http://"+s.addr)
		res, err := s.http.Do(req)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		b, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		var p struct {
			Error struct{ Code, Message string }
		}
		if res.StatusCode != tc.status || json.Unmarshal(b, &p) != nil || !strings.HasSuffix(p.Error.Message, ".") {
			t.Errorf("%s: %d %s, want %d and a sentence", tc.name, res.StatusCode, tailOf(string(b), 300), tc.status)
		}
	}
	if got := s.state(id).Seq; got != seq {
		t.Errorf("the notebook moved from %d to %d", seq, got)
	}
}

// A socket answers malformed messages and goes on.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	id := s.notebook("1")
	c := s.dial(id, -1)
	c.until("the state", 10*time.Second, func() bool { return c.state.Seq > 0 })
	ctx := t.Context()
	for _, m := range []string{"", "{", "[]", "7", `{"op":"run"}`, `{"id":1,"op":"nope"}`, `{"id":"x","op":"cell.edit","args":[]}`, "\xff\xfe"} {
		if err := c.ws.Write(ctx, websocket.MessageText, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.ws.Write(ctx, websocket.MessageBinary, []byte{1, 2}); err != nil {
		t.Fatal(err)
	}
	c.next = 100
	if r := c.run(0, 30*time.Second); plain(r) != "1" {
		t.Fatalf("after bad messages: %q", plain(r))
	}
	huge := []byte(`{"id":9,"op":"` + strings.Repeat("a", 9<<20) + `"}`)
	_ = c.ws.Write(ctx, websocket.MessageText, huge)
	for {
		if _, _, err := c.ws.Read(ctx); err != nil {
			if websocket.CloseStatus(err) != websocket.StatusMessageTooBig && !errors.Is(err, io.EOF) && websocket.CloseStatus(err) != -1 {
				t.Errorf("a huge message closed with %v", err)
			}
			break
		}
	}
}

// Nothing of a sandbox stays behind when its kernel is stopped.
func TestNothingLeft(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial(s.notebook("import subprocess; subprocess.Popen(['setsid', 'sleep', '1000']); 1"), -1)
	c.run(0, 30*time.Second)
	sandbox := c.state.Kernel.Sandbox
	if err := c.op("kernel.stop", nil); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		left := leftovers(t, sandbox)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left of %s: %v", sandbox, left)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// leftovers looks for processes, mounts and groups that name the sandbox.
func leftovers(t *testing.T, sandbox string) []string {
	var out []string
	procs, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, p := range procs {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), sandbox) {
			out = append(out, p)
		}
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil && strings.Contains(string(b), sandbox) {
		out = append(out, "a mount")
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/*/" + sandbox, "/sys/fs/cgroup/*/*/*/" + sandbox, "/sys/fs/cgroup/*/*/*/*/" + sandbox} {
		groups, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, groups...)
	}
	return out
}
