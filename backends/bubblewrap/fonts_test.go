package bubblewrap

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sandbook/backends"
)

const noMatplotlib = "NOT TESTED: This host's Python has no matplotlib; install python3-matplotlib."

// fontBackend is a backend with a cache folder, on a host with matplotlib.
func fontBackend(t *testing.T) (*Backend, backends.Spec) {
	t.Helper()
	if hostFontPlaces.key() == "" {
		t.Skip(noMatplotlib)
	}
	b, sp := backend(t, t.TempDir())
	b.opts.CacheDir = filepath.Join(t.TempDir(), "cache")
	return b, sp
}

// next is the backend of the next server on the same data.
func next(t *testing.T, b *Backend) *Backend {
	t.Helper()
	n, err := New(b.opts)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// keep looks at the fonts once and returns what new sandboxes get.
func keep(t *testing.T, b *Backend) *fontList {
	t.Helper()
	if err := b.keepFontList(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b.fonts.now.Load()
}

// code runs a Python program in a new sandbox and returns what it gives to say.
func code(t *testing.T, b *Backend, sp backends.Spec, program string) string {
	t.Helper()
	const say = `
import os, sys, socket
def say(text):
    s = socket.socket(fileno=int(sys.argv[sys.argv.index('--listen-fd') + 1]))
    s.accept()[0].sendall(text.encode())
`
	sp.Guest, sp.Args = "/bin/sh", []string{"-c", `exec "$0" -c "$@"`, hostFontPlaces.python(), say + program}
	sp.Env = []string{"MPLCONFIGDIR=/tmp/matplotlib"}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := b.Start(ctx, sp)
	if err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Conn().Close() })
	defer stop()
	text, err := io.ReadAll(s.Conn())
	exit, waitErr := s.Wait(ctx)
	if err := errors.Join(err, waitErr, s.Kill(context.WithoutCancel(ctx))); err != nil || exit.Code != 0 {
		t.Fatalf("the program ended with %+v: %v", exit, err)
	}
	return string(text)
}

// TestFontListIsMadeOnce: the first server makes it, the next one finds it, and
// a sandbox in which it lies where matplotlib looks makes none.
func TestFontListIsMadeOnce(t *testing.T) {
	t.Parallel()
	b, sp := fontBackend(t)
	if got := code(t, b, sp, `say(str(os.path.exists('/run/sandbook/cache')))`); got != "False" {
		t.Errorf("before it is made, a sandbox shows it: %s, want False", got)
	}
	f := keep(t, b)
	if f == nil {
		t.Fatal("no list was made")
	}
	if got := f.info.Mode(); got != 0o644 {
		t.Errorf("mode %v, want 0644", got)
	}
	if left, want := left(b.opts.RunDir, b.opts.Install), 0; len(left) != want {
		t.Errorf("left of the sandbox it was made in: %q", left)
	}
	again := next(t, b)
	g := keep(t, again)
	if g == nil || !os.SameFile(f.info, g.info) {
		t.Fatalf("the next server has %+v, want the same file as %+v", g, f)
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	got := code(t, again, sp, `
import logging, io, shutil
shutil.copytree('/run/sandbook/cache/matplotlib', '/tmp/matplotlib', copy_function=shutil.copyfile)
(name,) = os.listdir('/tmp/matplotlib')
before = open('/tmp/matplotlib/' + name).read(), os.stat('/tmp/matplotlib/' + name)
log = io.StringIO()
logging.basicConfig(stream=log, level=logging.DEBUG)
import matplotlib.font_manager as fm, json
after = os.stat('/tmp/matplotlib/' + name)
same = (after.st_ino, after.st_mtime_ns) == (before[1].st_ino, before[1].st_mtime_ns)
say(json.dumps({'text': before[0], 'same': same, 'made': 'generated new fontManager' in log.getvalue(),
                'used': 'Using fontManager instance' in log.getvalue(), 'fonts': len(fm.fontManager.ttflist)}))`)
	var seen struct {
		Text             string
		Same, Made, Used bool
		Fonts            int
	}
	if err := json.Unmarshal([]byte(got), &seen); err != nil {
		t.Fatal(err)
	}
	if seen.Text != string(text) {
		t.Errorf("the sandbox shows %d bytes, not the %d that were made", len(seen.Text), len(text))
	}
	if !seen.Same || seen.Made || !seen.Used || seen.Fonts == 0 {
		t.Errorf("file kept %v, made anew %v, used %v, %d fonts; want the made one to be used", seen.Same, seen.Made, seen.Used, seen.Fonts)
	}
}

// TestFontListCannotBeChangedFromInside: whatever code does to the list it was
// shown, neither the file of the server nor the next sandbox notices.
func TestFontListCannotBeChangedFromInside(t *testing.T) {
	t.Parallel()
	b, sp := fontBackend(t)
	f := keep(t, b)
	if f == nil {
		t.Fatal("no list was made")
	}
	before, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	got := code(t, b, sp, `
d = '/run/sandbook/cache/matplotlib'
p = d + '/' + os.listdir(d)[0]
done = []
def attempt(name, f):
    try:
        f()
        done.append(name)
    except OSError:
        pass
attempt('write', lambda: open(p, 'w').write('evil'))
attempt('append', lambda: open(p, 'a').write('evil'))
attempt('truncate', lambda: os.truncate(p, 0))
attempt('chmod', lambda: os.chmod(p, 0o777))
attempt('utime', lambda: os.utime(p))
attempt('unlink', lambda: os.unlink(p))
attempt('rename', lambda: os.rename(p, p + 'x'))
attempt('replace', lambda: os.rename(__file__, p) if '__file__' in globals() else (open('/tmp/e', 'w').write('evil'), os.rename('/tmp/e', p)))
attempt('new file', lambda: open(d + '/fontlist-v999.json', 'w').write('evil'))
attempt('link in', lambda: os.symlink('/tmp/e', d + '/link'))
attempt('setxattr', lambda: os.setxattr(p, 'user.evil', b'1'))
def through_proc():
    fd = os.open(p, os.O_RDONLY)
    open('/proc/self/fd/%d' % fd, 'r+').write('evil')
attempt('write by descriptor', through_proc)
def mapped():
    import mmap
    fd = os.open(p, os.O_RDONLY)
    m = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    m[0:4] = b'evil'
attempt('mapping', mapped)
say(' '.join(done) + '|' + ''.join(l for l in open('/proc/self/mountinfo') if '/run/sandbook' in l or 'fontlist' in l))`)
	if got != "|" {
		t.Errorf("done from inside, and mounts that name the list: %q, want none", got)
	}
	after, err := os.ReadFile(f.path)
	if err != nil || string(after) != string(before) {
		t.Errorf("the server's file has changed (%v)", err)
	}
	sp.ID += "-2"
	if got := code(t, b, sp, `d = '/run/sandbook/cache/matplotlib'
say(open(d + '/' + os.listdir(d)[0]).read())`); got != string(before) {
		t.Errorf("the next sandbox is shown %.100q, want what was made", got)
	}
}

// older makes a folder look older than it is, so that its next change is one
// whatever the clock of the file system counts in.
func older(err error, path ...string) error {
	old := time.Now().Add(-time.Hour)
	return errors.Join(err, os.Chtimes(filepath.Join(path...), old, old))
}

// TestFontListFollowsTheHost: a change of what it depends on makes a new list,
// and one that is not the host's any more is not shown. TestFontKey says what
// such a change is.
func TestFontListFollowsTheHost(t *testing.T) {
	t.Parallel()
	b, _ := fontBackend(t)
	dir := t.TempDir()
	fonts, packages := filepath.Join(dir, "fonts"), filepath.Join(dir, "python3/dist-packages")
	for _, d := range []string{filepath.Join(fonts, "a"), filepath.Join(packages, "matplotlib")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.fonts.places.fonts = append([]string{fonts}, hostFontPlaces.fonts...)
	b.fonts.places.packages = []string{filepath.Join(dir, "python3*/*-packages")}
	var last *fontList
	for _, c := range []struct {
		what   string
		change func() error
	}{
		{"a new font", func() error { return os.WriteFile(filepath.Join(fonts, "a/new.ttf"), nil, 0o600) }},
		{"the file is gone", func() error { return os.Remove(last.path) }},
	} {
		if err := older(nil, fonts, "a"); err != nil {
			t.Fatal(err)
		}
		last = keep(t, b)
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		now := keep(t, b)
		if now == nil || now == last {
			t.Errorf("%s: the list is %+v, want another than before", c.what, now)
			continue
		}
		if same := keep(t, b); same != now {
			t.Errorf("%s: without another change there is another list", c.what)
		}
		if files, err := os.ReadDir(b.opts.CacheDir); err != nil || len(files) != 1 {
			t.Errorf("%s: the folder holds %v (%v), want the new list alone", c.what, files, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "python3")); err != nil {
		t.Fatal(err)
	}
	if f := keep(t, b); f != nil || len(b.fonts.nodes()) > 0 {
		t.Errorf("without matplotlib sandboxes get %+v, want nothing", f)
	}
}

// TestSpoiltFontList: a file that is not what was made is not shown, and is made
// again.
func TestSpoiltFontList(t *testing.T) {
	t.Parallel()
	b, sp := fontBackend(t)
	good := keep(t, b)
	if good == nil {
		t.Fatal("no list was made")
	}
	text, err := os.ReadFile(good.path)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty": "", "cut": string(text[:len(text)/2]), "no JSON": "evil", "another class": `{"__class__":"Evil","ttflist":[1]}`,
		"no fonts": `{"__class__":"FontManager","ttflist":[]}`, "a list": "[]",
	} {
		if err := os.WriteFile(good.path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		// While the server runs: it is not the file that was checked.
		if nodes := b.fonts.nodes(); len(nodes) > 0 {
			t.Errorf("%s: new sandboxes get %+v", name, nodes)
		}
		// At the next start: it is no list.
		if _, err := next(t, b).storedFontList(good.key); err == nil {
			t.Errorf("%s: taken for a list", name)
		}
	}
	if err := os.Truncate(good.path, maxFontList+1); err != nil {
		t.Fatal(err)
	}
	if _, err := b.storedFontList(good.key); err == nil {
		t.Error("a list of more than its bound is taken")
	}
	again := next(t, b)
	f := keep(t, again)
	if f == nil {
		t.Fatal("no list was made again")
	}
	if now, err := os.ReadFile(f.path); err != nil || checkFontList(f.name, now) != nil {
		t.Errorf("made again it is %.100q (%v), want a list of fonts", now, err)
	}
	// A sandbox starts all the same where the file went away meanwhile.
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	if got := code(t, again, sp, `say(str(os.path.exists('/run/sandbook/cache')))`); got != "False" {
		t.Errorf("a list without a file is shown: %s", got)
	}
}

// TestFontListThatCannotBeMade: it is said once, and sandboxes start without.
func TestFontListThatCannotBeMade(t *testing.T) {
	t.Parallel()
	b, sp := fontBackend(t)
	if err := os.WriteFile(b.opts.CacheDir, nil, 0o600); err != nil { // where the folder should be
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := make(chan error, 8)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.KeepCaches(ctx, func(err error) { said <- err })
	}()
	select {
	case err := <-said:
		if !strings.Contains(err.Error(), "store the list") {
			t.Errorf("it is said that %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing was said within two minutes")
	}
	cancel()
	<-done
	if err := b.keepFontList(t.Context()); err != nil {
		t.Errorf("it is said again: %v", err)
	}
	if got := code(t, b, sp, `say(str(os.path.exists('/run/sandbook/cache')))`); got != "False" {
		t.Errorf("a sandbox shows a list: %s", got)
	}
}

// TestFontListOfAnotherPython: where matplotlib is not for the Python of kernels
// nothing is made, nothing is said and nobody tries again.
func TestFontListOfAnotherPython(t *testing.T) {
	t.Parallel()
	b, _ := fontBackend(t)
	if got, err := b.inside(t.Context(), "import sys\nsys.path[:] = [p for p in sys.path if 'packages' not in p]\nsys.modules.pop('matplotlib', 0)\n"+fontListScript); err != nil || string(got) != "{}" {
		t.Errorf("without matplotlib the program says %q (%v), want {}", got, err)
	}
	if _, err := b.inside(t.Context(), "raise ValueError('reason')"); err == nil || !strings.Contains(err.Error(), "ValueError: reason") {
		t.Errorf("the end of the program is told as %v, want the reason", err)
	}
	if _, err := b.inside(t.Context(), "import matplotlib.nothing"); err == nil || !strings.Contains(err.Error(), "ModuleNotFoundError") {
		t.Errorf("a broken matplotlib is told as %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if text, err := b.inside(ctx, "while True: pass"); err == nil {
		t.Errorf("a program without end gave %q", text)
	}
	if left := left(b.opts.RunDir, b.opts.Install); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestFontKey: a host without matplotlib or without Python has none.
func TestFontKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	python, packages := filepath.Join(dir, "python3"), filepath.Join(dir, "lib/python3/dist-packages")
	p := fontPlaces{pythons: []string{python}, packages: []string{filepath.Join(dir, "lib/python3*/*-packages")}, fonts: []string{filepath.Join(dir, "fonts")}}
	steps := []struct {
		what string
		do   func() error
		none bool
	}{
		{"nothing", func() error { return nil }, true},
		{"python", func() error { return os.WriteFile(python, []byte("1"), 0o600) }, true},
		{"packages", func() error { return os.MkdirAll(packages, 0o755) }, true},
		{"matplotlib", func() error {
			return older(os.Mkdir(filepath.Join(packages, "matplotlib"), 0o755), packages, "matplotlib")
		}, false},
		{"another python", func() error { return os.WriteFile(python, []byte("22"), 0o600) }, false},
		{"a version", func() error { return os.Mkdir(filepath.Join(packages, "matplotlib-3.6.3.dist-info"), 0o755) }, false},
		{"a second matplotlib", func() error { return os.MkdirAll(filepath.Join(dir, "lib/python3.99/site-packages/matplotlib"), 0o755) }, false},
		{"fonts", func() error { return older(os.MkdirAll(filepath.Join(dir, "fonts/a"), 0o755), dir, "fonts/a") }, false},
		{"a font", func() error {
			return os.WriteFile(filepath.Join(dir, "fonts/a/new.ttf"), nil, 0o600)
		}, false},
		{"a newer matplotlib", func() error {
			return os.WriteFile(filepath.Join(packages, "matplotlib/new.py"), nil, 0o600)
		}, false},
	}
	var seen []string
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatal(err)
		}
		key := p.key()
		if (key == "") != s.none {
			t.Errorf("%s: key %q, want one: %v", s.what, key, !s.none)
		}
		if key != "" && slices.Contains(seen, key) {
			t.Errorf("%s: the key has not changed", s.what)
		}
		if again := p.key(); again != key {
			t.Errorf("%s: key %q, then %q", s.what, key, again)
		}
		seen = append(seen, key)
	}
}
