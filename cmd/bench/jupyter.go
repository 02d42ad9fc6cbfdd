package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
)

// jupyter is Jupyter Server with ipykernel, the peer.
type jupyter struct {
	cmd  *exec.Cmd
	addr string
	dir  string
}

const jupyterToken = "bench"

func startJupyter(ctx context.Context) (*jupyter, error) {
	const python = "/usr/bin/python3"
	if err := exec.CommandContext(ctx, python, "-c", "import jupyter_server, ipykernel").Run(); err != nil {
		return nil, errors.New("python3 has no jupyter_server or no ipykernel")
	}
	dir, err := os.MkdirTemp("", "sbjup")
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	j := &jupyter{addr: l.Addr().String(), dir: dir}
	_, port, _ := net.SplitHostPort(j.addr)
	_ = l.Close()
	j.cmd = exec.CommandContext(ctx, python, "-m", "jupyter_server", "--allow-root", "--no-browser", "--ServerApp.ip=127.0.0.1", //nolint:gosec // the peer
		"--ServerApp.port="+port, "--ServerApp.token="+jupyterToken, "--ServerApp.root_dir="+dir, "--log-level=ERROR")
	j.cmd.Env = append(os.Environ(), "HOME="+dir, "JUPYTER_RUNTIME_DIR="+dir, "IPYTHONDIR="+dir)
	j.cmd.Dir = dir
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	for range 150 {
		if res, err := j.do(ctx, http.MethodGet, "/api/kernels", nil); err == nil {
			_ = res.Body.Close()
			return j, nil
		}
		pause(ctx, 200*time.Millisecond)
	}
	j.close()
	return nil, errors.New("jupyter_server did not answer within 30 s")
}

func (j *jupyter) name() string { return "Jupyter" }

func (j *jupyter) close() {
	_ = j.cmd.Process.Signal(os.Interrupt)
	done := make(chan struct{})
	go func() { _ = j.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(3 * time.Second):
		_ = j.cmd.Process.Kill()
		<-done
	}
	_ = os.RemoveAll(j.dir)
}

func (j *jupyter) do(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+j.addr+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "token "+jupyterToken)
	c := &http.Client{Timeout: time.Minute}
	res, err := c.Do(req)
	if err == nil && res.StatusCode/100 != 2 {
		_ = res.Body.Close()
		return nil, fmt.Errorf("%s %s: %s", method, path, res.Status)
	}
	return res, err
}

func (j *jupyter) kernel(ctx context.Context) (kernelClient, error) {
	res, err := j.do(ctx, http.MethodPost, "/api/kernels", map[string]string{"name": "python3"})
	if err != nil {
		return nil, err
	}
	k := &jupyterKernel{j: j, session: uuid.NewString()}
	err = json.NewDecoder(res.Body).Decode(&k.model)
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	k.ws, _, err = websocket.Dial(ctx, "ws://"+j.addr+"/api/kernels/"+k.model.ID+"/channels?session_id="+k.session, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPHeader: http.Header{"Authorization": {"token " + jupyterToken}},
	})
	if err != nil {
		return nil, err
	}
	k.ws.SetReadLimit(64 << 20)
	return k, nil
}

type jupyterKernel struct {
	j       *jupyter
	model   struct{ ID string }
	session string
	ws      *websocket.Conn
	msg     string
	printed int
}

func (k *jupyterKernel) start(ctx context.Context, code string) error {
	k.msg, k.printed = uuid.NewString(), 0
	b, err := json.Marshal(map[string]any{
		"header":        map[string]any{"msg_id": k.msg, "session": k.session, "username": "bench", "date": time.Now().Format(time.RFC3339), "msg_type": "execute_request", "version": "5.3"},
		"parent_header": map[string]any{}, "metadata": map[string]any{}, "channel": "shell", "buffers": []any{},
		"content": map[string]any{"code": code, "silent": false, "store_history": true, "user_expressions": map[string]any{}, "allow_stdin": false, "stop_on_error": true},
	})
	if err != nil {
		return err
	}
	return k.ws.Write(ctx, websocket.MessageText, b)
}

// wait reads until both the reply and idle have come, as a client must.
func (k *jupyterKernel) wait(ctx context.Context) error {
	reply, idle := false, false
	for !reply || !idle {
		_, b, err := k.ws.Read(ctx)
		if err != nil {
			return err
		}
		var m struct {
			MsgType string `json:"msg_type"`
			Parent  struct {
				ID string `json:"msg_id"`
			} `json:"parent_header"`
			Content struct {
				State string `json:"execution_state"`
				Text  string
			}
		}
		if err := json.Unmarshal(b, &m); err != nil || m.Parent.ID != k.msg {
			continue
		}
		switch m.MsgType {
		case "stream":
			k.printed += len(m.Content.Text)
		case "execute_reply":
			reply = true
		case "status":
			idle = idle || m.Content.State == "idle"
		}
	}
	return nil
}

func (k *jupyterKernel) run(ctx context.Context, code string) (int, error) {
	if err := k.start(ctx, code); err != nil {
		return 0, err
	}
	err := k.wait(ctx)
	return k.printed, err
}

func (k *jupyterKernel) interrupt(ctx context.Context) error {
	res, err := k.j.do(ctx, http.MethodPost, "/api/kernels/"+k.model.ID+"/interrupt", nil)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

func (k *jupyterKernel) close(ctx context.Context) {
	_ = k.ws.CloseNow()
	if res, err := k.j.do(ctx, http.MethodDelete, "/api/kernels/"+k.model.ID, nil); err == nil {
		_ = res.Body.Close()
	}
}

func (k *jupyterKernel) memory() (int64, error) {
	return pss(func(pid string) bool {
		b, err := os.ReadFile("/proc/" + pid + "/cmdline")
		return err == nil && strings.Contains(string(b), k.model.ID)
	})
}
