package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sandbook/kernel/notebook"
	"sandbook/web"
)

// The API page names every route and every op, and its example runs.
func TestAPIPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../web/docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range notebook.OpNames() {
		if !bytes.Contains(page, []byte("| `"+op+"` |")) {
			t.Errorf("the op %s is not on the page", op)
		}
	}
	for _, r := range web.Routes() {
		if strings.HasPrefix(r, "GET /api/") || strings.Contains(r, " /api/") {
			if !bytes.Contains(page, []byte("`"+r+"`")) {
				t.Errorf("the route %s is not on the page", r)
			}
		}
	}
	block := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("there is no example")
	}
	s := startServer(t)
	out, err := exec.Command(binary, "token", "create", "--name", "an agent", "--data", s.data, "--addr", s.addr).CombinedOutput()
	if err != nil {
		t.Fatalf("token: %v %s", err, out)
	}
	cmd := exec.Command("/usr/bin/python3", "-c", string(block[1]))
	cmd.Env = append(os.Environ(), "SANDBOOK_URL=http://"+s.addr, "SANDBOOK_TOKEN="+strings.TrimSpace(string(out)))
	if out, err = cmd.CombinedOutput(); err != nil || string(out) != "42\n\n" {
		t.Fatalf("the example: %v %s", err, out)
	}
}

// Every relative link of the README and the docs leads to a file.
func TestLinks(t *testing.T) {
	t.Parallel()
	root := "../.."
	pages, err := filepath.Glob(root + "/web/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for _, p := range append(pages, root+"/README.md", root+"/CONTRIBUTING.md", root+"/SECURITY.md") {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(b, -1) {
			target := filepath.Join(filepath.Dir(p), string(m[1]))
			_, err := os.Stat(target)
			_, errMD := os.Stat(target + ".md")
			if err != nil && errMD != nil {
				t.Errorf("%s: the link %s leads nowhere", filepath.Base(p), m[1])
			}
		}
	}
}

// What the commands say, right and wrong.
func TestCommands(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	dir := t.TempDir()
	conf := filepath.Join(dir, "conf.json")
	if err := os.WriteFile(conf, []byte(`{"memory":"3GiB","cpu":"1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		env  string
		ok   bool
		want string
	}{
		{"help", nil, "", true, "web doctor"},
		{"version", []string{"version"}, "", true, "guest protocol 1"},
		{"unknown command", []string{"rum"}, "", false, `there is no command "rum"`},
		{"unknown argument", []string{"run", "now"}, "", false, `there is no argument "now"`},
		{"bad memory", []string{"run", "--data", dir, "--memory", "much"}, "", false, `"much" is not a size`},
		{"bad pids", []string{"run", "--data", dir, "--pids", "3"}, "", false, "at least 16"},
		{"no sandboxes", []string{"run", "--data", filepath.Join(dir, "c"), "--sandboxes", "0"}, "", false, "from 1 to 4096"},
		{"bad total", []string{"run", "--data", filepath.Join(dir, "c"), "--total-memory", "all"}, "", false, `"all" is not a size`},
		{"workspace over memory", []string{"run", "--data", dir, "--workspace", "4GiB"}, "", false, "smaller than the memory limit"},
		{"unknown backend", []string{"run", "--data", filepath.Join(dir, "a"), "--backend", "dokcer"}, "", false, `there is no backend "dokcer"`},
		{"bad log level", []string{"run", "--data", dir, "--log", "loud"}, "", false, "debug, info, warn or error"},
		{"port in use", []string{"run", "--data", filepath.Join(dir, "b"), "--addr", s.addr}, "", false, "choose another address with --addr"},
		{"second server", []string{"run", "--data", s.data, "--addr", "127.0.0.1:0"}, "", false, "Another server"},
		{"file", []string{"config", "--config", conf}, "", true, "3GiB"},
		{"environment over file", []string{"config", "--config", conf}, "SANDBOOK_MEMORY=4GiB", true, "4GiB"},
		{"flag over environment", []string{"config", "--config", conf, "--memory", "5GiB"}, "SANDBOOK_MEMORY=4GiB", true, "5GiB"},
		{"no such file", []string{"config", "--config", dir + "/nope"}, "", false, "does not exist"},
		{"doctor", []string{"doctor", "--data", dir}, "", true, "enforced  namespaces"},
		{"link", []string{"link", "--data", s.data, "--addr", s.addr}, "", true, s.link},
		{"link of nothing", []string{"link", "--data", dir + "/none"}, "", false, "no server data"},
		{"token without a name", []string{"token", "create", "--data", s.data, "--addr", s.addr}, "", false, "Give the agent a name"},
		{"token with review", []string{"token", "create", "--name", "x", "--scopes", "review", "--data", s.data, "--addr", s.addr}, "", false, "not \"review\""},
		{"token list", []string{"token", "list", "--data", s.data, "--addr", s.addr}, "", true, ""},
		{"token of no server", []string{"token", "list", "--data", s.data, "--addr", "127.0.0.1:1"}, "", false, "no server answers"},
	} {
		cmd := exec.Command(binary, tc.args...)
		cmd.Env = append(os.Environ(), "HOME="+dir, tc.env)
		out, err := cmd.CombinedOutput()
		if (err == nil) != tc.ok || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s: %v\n%s\nwant %q", tc.name, err, out, tc.want)
		}
	}
}
