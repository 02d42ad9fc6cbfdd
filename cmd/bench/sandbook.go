package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"sandbook/kernel/notebook"
)

// sandbook is our server, started as its user would.
type sandbook struct {
	web, data, addr string
	cmd             *exec.Cmd
	http            *http.Client
}

var link = regexp.MustCompile(`http://(\S+)/login\?token=\S+`)

func startSandbook(ctx context.Context, web string) (*sandbook, error) {
	data, err := os.MkdirTemp("", "sbbench")
	if err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	s := &sandbook{web: web, data: data, addr: "127.0.0.1:0", http: &http.Client{Jar: jar, Timeout: time.Minute}}
	if err := s.up(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sandbook) name() string { return "Sandbook" }

func (s *sandbook) up(ctx context.Context) error {
	s.cmd = exec.CommandContext(ctx, s.web, "run", "--data", s.data, "--addr", s.addr, "--log", "error") //nolint:gosec // the program to measure
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w; run make build", s.web, err)
	}
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		if m := link.FindStringSubmatch(sc.Text()); m != nil {
			s.addr = m[1]
			go func() { _, _ = io.Copy(io.Discard, out) }()
			res, err := s.do(ctx, http.MethodGet, strings.TrimPrefix(m[0], "http://"+s.addr), nil)
			if err != nil {
				return err
			}
			return res.Body.Close()
		}
	}
	return errors.New("the server printed no link")
}

func (s *sandbook) do(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", "http://"+s.addr)
	res, err := s.http.Do(req)
	if err == nil && res.StatusCode/100 != 2 {
		b, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		return nil, fmt.Errorf("%s %s: %s %s", method, path, res.Status, b)
	}
	return res, err
}

func (s *sandbook) kernel(ctx context.Context) (kernelClient, error) {
	res, err := s.do(ctx, http.MethodPost, "/api/v1/notebooks", map[string]any{"title": "bench", "cells": []map[string]string{{"kind": "code", "source": "1"}}})
	if err != nil {
		return nil, err
	}
	var made struct{ ID notebook.ID }
	err = json.NewDecoder(res.Body).Decode(&made)
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	return s.dial(ctx, made.ID)
}

func (s *sandbook) dial(ctx context.Context, id notebook.ID) (*sandbookKernel, error) {
	k := &sandbookKernel{s: s, id: id}
	return k, k.connect(ctx)
}

func (s *sandbook) close() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	reap := exec.CommandContext(context.Background(), s.web, "reap", "--data", s.data) //nolint:gosec // the program to measure
	_ = reap.Run()
	_ = os.RemoveAll(s.data)
}

// restart kills the server under a running cell and measures from the start of
// the next one to the first new output.
func (s *sandbook) restart(ctx context.Context) (figure, error) {
	f := figure{Name: "server killed: restart to new output, p50", Unit: "ms", Values: map[string]float64{}}
	c, err := s.kernel(ctx)
	if err != nil {
		return f, err
	}
	k, ok := c.(*sandbookKernel)
	if !ok {
		return f, errors.New("not ours")
	}
	if err := k.start(ctx, "import time\nwhile True:\n    print('x'); time.sleep(0.005)"); err != nil {
		return f, err
	}
	var t []time.Duration
	for range 5 {
		pause(ctx, 300*time.Millisecond)
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		_ = k.ws.CloseNow()
		start := time.Now()
		if err := s.up(ctx); err != nil {
			return f, err
		}
		if err := k.connect(ctx); err != nil {
			return f, err
		}
		for seq := k.state.Seq; ; {
			e, err := k.next(ctx)
			if err != nil {
				return f, err
			}
			if _, ok := e.Body.(notebook.StreamAppended); ok && e.Seq > seq {
				break
			}
		}
		t = append(t, time.Since(start))
	}
	f.Values[s.name()] = at(t, 0.5)
	k.close(ctx)
	return f, nil
}

// sandbookKernel is a notebook of one cell over the native socket.
type sandbookKernel struct {
	s       *sandbook
	id      notebook.ID
	ws      *websocket.Conn
	state   notebook.State
	n       int
	printed int
}

func (k *sandbookKernel) connect(ctx context.Context) error {
	ws, _, err := websocket.Dial(ctx, "ws://"+k.s.addr+"/api/v1/notebooks/"+string(k.id)+"/live", &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient: k.s.http, Subprotocols: []string{"sandbook.v1"}, HTTPHeader: http.Header{"Origin": {"http://" + k.s.addr}},
	})
	if err != nil {
		return err
	}
	ws.SetReadLimit(64 << 20)
	k.ws, k.state = ws, notebook.State{}
	for k.state.Seq == 0 {
		if _, err := k.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// next reads one message; anything but an event gives an event without a body.
func (k *sandbookKernel) next(ctx context.Context) (notebook.Event, error) {
	_, b, err := k.ws.Read(ctx)
	if err != nil {
		return notebook.Event{}, err
	}
	var m struct {
		State *notebook.State
		Event string
		Error *struct{ Message string }
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return notebook.Event{}, err
	}
	switch {
	case m.Error != nil:
		return notebook.Event{}, errors.New(m.Error.Message)
	case m.State != nil:
		k.state = *m.State
	case m.Event != "":
		var e notebook.Event
		if err := json.Unmarshal(b, &e); err != nil {
			return e, err
		}
		k.state = notebook.Apply(k.state, e)
		return e, nil
	}
	return notebook.Event{}, nil
}

func (k *sandbookKernel) send(ctx context.Context, op string, args any) error {
	k.n++
	b, err := json.Marshal(map[string]any{"id": k.n, "op": op, "args": args})
	if err != nil {
		return err
	}
	return k.ws.Write(ctx, websocket.MessageText, b)
}

func (k *sandbookKernel) start(ctx context.Context, code string) error {
	c := k.state.Cells[0]
	if c.Source != code {
		if err := k.send(ctx, "cell.edit", map[string]any{"cell": c.ID, "base": c.Version, "source": code}); err != nil {
			return err
		}
	}
	k.printed = 0
	return k.send(ctx, "run", map[string]any{"cells": []notebook.CellID{c.ID}})
}

func (k *sandbookKernel) wait(ctx context.Context) error {
	for {
		e, err := k.next(ctx)
		if err != nil {
			return err
		}
		switch b := e.Body.(type) {
		case notebook.StreamAppended:
			k.printed += len(b.Text)
		case notebook.RunEnded:
			return nil
		case notebook.KernelDied:
			return errors.New(b.Message)
		}
	}
}

func (k *sandbookKernel) run(ctx context.Context, code string) (int, error) {
	if err := k.start(ctx, code); err != nil {
		return 0, err
	}
	err := k.wait(ctx)
	return k.printed, err
}

func (k *sandbookKernel) interrupt(ctx context.Context) error {
	return k.send(ctx, "kernel.interrupt", struct{}{})
}

func (k *sandbookKernel) close(ctx context.Context) {
	_ = k.send(ctx, "kernel.stop", struct{}{})
	for k.state.Kernel.Sandbox != "" {
		if _, err := k.next(ctx); err != nil {
			break
		}
	}
	_ = k.ws.CloseNow()
}

// memory sums every process of the sandbox and its shim.
func (k *sandbookKernel) memory() (int64, error) {
	return pss(func(pid string) bool {
		if b, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup")); err == nil && strings.Contains(string(b), k.state.Kernel.Sandbox) {
			return true
		}
		b, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		return err == nil && strings.HasPrefix(string(b), "sandbook-shim")
	})
}

// pss sums the proportional memory of the processes that match.
func pss(match func(pid string) bool) (int64, error) {
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, p := range procs {
		if !match(filepath.Base(p)) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(p, "smaps_rollup"))
		if err != nil {
			continue
		}
		for l := range strings.SplitSeq(string(b), "\n") {
			if f := strings.Fields(l); len(f) > 1 && f[0] == "Pss:" {
				n, _ := strconv.ParseInt(f[1], 10, 64)
				sum += n << 10
			}
		}
	}
	if sum == 0 {
		return 0, errors.New("no process of the kernel can be read; run as root")
	}
	return sum, nil
}
