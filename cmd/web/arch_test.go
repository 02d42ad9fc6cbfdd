package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// layers says, for each package pattern, which of our own packages and which
// third-party modules (with a +) it may import. It is the architecture, as a
// test: a new package needs a row, and a new arrow a reason. The first row
// that matches counts. "x/..." is x and all below it.
var layers = []struct{ pkg, may string }{
	// The pure core: the standard library alone.
	{"kernel/notebook", ""},
	{"kernel/policy", "kernel/notebook"},
	{"kernel/ipynb", "kernel/notebook"},
	{"kernel/wire", ""},

	// The guest is small and runs where nothing can be trusted.
	{"kernel/guest/drivers", ""},
	{"kernel/guest", "kernel/wire kernel/guest/drivers"},
	{"kernel/guest/sandbook-guest", "kernel/guest kernel/wire"},
	{"kernel/guestbin", ""},

	// The kernel owns sessions. It never sees SQL, HTTP or a concrete backend.
	{"kernel", "kernel/notebook kernel/policy kernel/wire backends artifacts"},

	// Backends make sandboxes and know nothing of cells.
	{"backends", ""},
	{"backends/internal/...", "backends backends/internal/... +golang.org/x/..."},
	{"backends/backendtest", "backends kernel/wire kernel/guestbin"},
	{"backends/backendtest/...", "+golang.org/x/..."},
	{"backends/pool", "backends"},
	{"backends/*", "backends backends/internal/... kernel/guestbin +..."},

	// Storage.
	{"artifacts", "kernel/wire kernel/notebook"},
	{"migrations", ""},
	{"sessionstore/internal/...", ""},
	{"sessionstore", "sessionstore/internal/... migrations kernel kernel/notebook artifacts +modernc.org/... +github.com/pressly/goose/... +golang.org/x/sys/..."},

	// The page's files, and the program that builds them.
	{"static", ""},
	{"static/build", "static web/render +github.com/evanw/esbuild/... +github.com/andybalholm/brotli"},

	// The web: façades translate, pages print values. What a client asks of a
	// kernel beside ops (completion, files) has the names of kernel/wire.
	{"web/render", "+github.com/yuin/goldmark/... +github.com/alecthomas/chroma/... +github.com/microcosm-cc/bluemonday +golang.org/x/net/..."},
	{"web/pages", "web/render +github.com/a-h/templ/..."},
	{"web/view", "kernel/notebook web/pages web/render +github.com/a-h/templ/..."},
	{"web/auth", "kernel/notebook +github.com/go-jose/go-jose/..."},
	{"web/live", "kernel kernel/notebook kernel/wire web/pages web/view web/auth +github.com/coder/websocket/..."},
	{"web/*", "kernel kernel/notebook kernel/policy artifacts sessionstore static web/pages web/view web/render web/auth +..."},
	{"web", "kernel kernel/notebook kernel/policy kernel/wire kernel/ipynb backends artifacts sessionstore static web/* +..."},

	{"cmd/...", "... +..."},

	// What tests of several packages share; no program does.
	{"internal/testkit", ""},
}

func TestLayers(t *testing.T) {
	t.Parallel()
	for _, p := range goList(t) {
		if p.Doc == "" && !strings.Contains(p.name, "/internal/db") {
			t.Errorf("%s has no package comment", p.name)
		}
		may, ok := rule(p.name)
		if !ok {
			t.Errorf("%s has no layer rule; add one to layers", p.name)
			continue
		}
		for _, imp := range p.Imports {
			own, ours := strings.CutPrefix(imp, module)
			first, _, _ := strings.Cut(imp, "/")
			switch {
			case ours && !match(may, own):
				t.Errorf("%s must not import %s", p.name, own)
			case !ours && strings.Contains(first, ".") && !match(may, "+"+imp):
				t.Errorf("%s must not import the third-party %s", p.name, imp)
			case imp == "testing" && !strings.Contains(p.name, "test"):
				t.Errorf("%s must not import testing", p.name)
			}
		}
	}
}

// TestLayersRules proves that a wrong arrow would be found.
func TestLayersRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pkg, imp string
		want     bool
	}{
		{"kernel/notebook", "kernel/wire", false},
		{"kernel/notebook", "+golang.org/x/text", false},
		{"kernel/guest", "kernel/notebook", false},
		{"kernel", "sessionstore", false},
		{"kernel", "backends/bubblewrap", false},
		{"kernel", "+github.com/labstack/echo/v4", false},
		{"web", "backends/bubblewrap", false},
		{"web/live", "web", false},
		{"web/pages", "kernel", false},
		{"backends/bubblewrap", "kernel", false},
		{"backends/bubblewrap", "backends/internal/seccomp", true},
		{"backends/internal/seccomp", "+golang.org/x/net/bpf", true},
		{"web/live", "+github.com/coder/websocket", true},
		{"sessionstore", "+modernc.org/sqlite", true},
		{"cmd/web", "backends/bubblewrap", true},
	} {
		may, ok := rule(c.pkg)
		if !ok || match(may, c.imp) != c.want {
			t.Errorf("%s importing %s: allowed %t, want %t", c.pkg, c.imp, !c.want, c.want)
		}
	}
}

const module = "sandbook/"

type listed struct {
	name, ImportPath, Doc string
	Imports               []string
}

func goList(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,Doc", module+"...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		p.name = strings.TrimPrefix(p.ImportPath, module)
		all = append(all, p)
	}
	if len(all) < 5 {
		t.Fatalf("go list found %d packages only", len(all))
	}
	return all
}

func rule(name string) (string, bool) {
	for _, l := range layers {
		if match(l.pkg, name) {
			return l.may, true
		}
	}
	return "", false
}

func match(pats, name string) bool {
	for _, pat := range strings.Fields(pats) {
		if base, ok := strings.CutSuffix(pat, "..."); ok {
			third := strings.HasPrefix(name, "+")
			if base == "" && !third || strings.TrimSuffix(base, "/") == name || base != "" && strings.HasPrefix(name, base) {
				return true
			}
		}
		if ok, _ := path.Match(pat, name); ok {
			return true
		}
	}
	return false
}

// maxLines is how long a source file may be, and maxTestLines how long a file
// of tests. Tables and generated code may be longer: they are looked things up
// in, not read.
const (
	maxLines     = 600
	maxTestLines = 800
)

var long = regexp.MustCompile(`_templ\.go$|/internal/db/|table[^/]*\.go$|_table_test\.go$|^kernel/guest/drivers/`)

// foreign is what belongs to somebody's machine or network and not into the
// repository. The parts are joined here so that this file does not hold them.
var foreign = regexp.MustCompile(strings.Join([]string{
	`/work` + `/(main|shared)`, `/tmp` + `/sb/`, `/bash` + `_jobs`,
	`proxy\.` + `golang\.org`, `sum\.` + `golang\.org`, `registry\.` + `npmjs`, `registry\.` + `yarnpkg`,
	`pypi\.` + `org/simple`, `files\.` + `pythonhosted`, `deb\.` + `debian\.org`,
	`GO` + `NOSUMDB=`, `_auth` + `Token`,
}, "|"))

// TestTree checks the files themselves: their length, and that they hold
// nothing that is true on one machine only.
func TestTree(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	source := map[string]bool{".go": true, ".ts": true, ".templ": true, ".py": true, ".css": true, ".sql": true}
	n := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(p, root+string(filepath.Separator)))
		if d.IsDir() {
			switch d.Name() {
			case ".git", "node_modules", "bin", "dist", "test-results":
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		if info.Size() > 1<<20 {
			t.Errorf("%s is larger than 1 MiB", rel)
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		n++
		if hit := foreign.Find(b); hit != nil {
			t.Errorf("%s mentions %q, which means nothing elsewhere", rel, hit)
		}
		generated := bytes.Contains(b[:min(len(b), 500)], []byte("DO NOT EDIT"))
		limit := maxLines
		if strings.HasSuffix(rel, "_test.go") {
			limit = maxTestLines
		}
		if lines := bytes.Count(b, []byte("\n")); source[path.Ext(rel)] && lines > limit && !generated && !long.MatchString(rel) {
			t.Errorf("%s has %d lines; split it before it has more than %d", rel, lines, limit)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 20 {
		t.Fatalf("only %d files looked at", n)
	}
}
