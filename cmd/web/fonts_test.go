package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandbook/kernel/notebook"
)

// TestFontsAreListedOnce: a new server has matplotlib's list of fonts made
// before any notebook needs it, no notebook makes its own, and what one does to
// it no other notebook and no later server sees.
func TestFontsAreListedOnce(t *testing.T) {
	t.Parallel()
	if err := exec.Command("/usr/bin/python3", "-c", "import matplotlib").Run(); err != nil {
		t.Skip("NOT TESTED: This host's Python has no matplotlib; install python3-matplotlib.")
	}
	s := startServer(t)
	made := s.fontList()
	const use = `import logging, io
log = io.StringIO()
logging.basicConfig(stream=log, level=logging.DEBUG)
import matplotlib.pyplot
'used' if 'Using fontManager instance' in log.getvalue() and 'generated new' not in log.getvalue() else log.getvalue()`
	c := s.withFontList("import os; mpl = os.environ['MPLCONFIGDIR']; name, = os.listdir(mpl); len(name)", use, `import glob
made, own = glob.glob('/run/sandbook/cache/matplotlib/*')[0], os.path.join(mpl, name)
with open(own, 'w') as f: f.write('evil')
try:
    with open(made, 'w') as f: f.write('evil')
except OSError as e:
    print(e.strerror)`)
	for i, want := range []string{"", "'used'", ""} {
		if r := c.run(i, time.Minute); r.Status != notebook.OK || want != "" && plain(r) != want {
			t.Fatalf("cell %d: %s %s %q, want %q", i, r.Status, r.EValue, plain(r), want)
		}
	}
	if got, want := text(c.state.Runs[c.state.Cells[2].Run], "stdout"), "Read-only file system\n"; got != want {
		t.Errorf("writing where the list is: %q, want %q", got, want)
	}
	read := `import os
d = os.environ['MPLCONFIGDIR']
open(os.path.join(d, os.listdir(d)[0])).read()[:40]`
	next := s.withFontList(read, use)
	if r := next.run(0, time.Minute); !strings.Contains(plain(r), "_version") {
		t.Errorf("the next notebook has the list %s", plain(r))
	}
	if r := next.run(1, time.Minute); plain(r) != "'used'" {
		t.Errorf("the next notebook: %s, want that it uses the list", plain(r))
	}
	s.kill(syscall.SIGKILL)
	s.start()
	c = s.withFontList(use)
	if r := c.run(0, time.Minute); plain(r) != "'used'" {
		t.Errorf("after a restart: %s, want that it uses the list", plain(r))
	}
	if now := s.fontList(); !os.SameFile(now, made) || !now.ModTime().Equal(made.ModTime()) || now.Mode() != 0o644 {
		t.Errorf("after a restart the file is %v of %v, want the same as %v of %v, mode 0644", now.Mode(), now.ModTime(), made.Mode(), made.ModTime())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(s.log.String(), "cache") {
		t.Errorf("the log speaks of the cache:\n%s", s.log)
	}
}

// fontList waits until the server has stored the list.
func (s *serverProc) fontList() os.FileInfo {
	s.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		files, err := filepath.Glob(filepath.Join(s.data, "cache", "*-fontlist-v*.json"))
		if err != nil {
			s.t.Fatal(err)
		}
		if len(files) == 1 {
			fi, err := os.Stat(files[0])
			if err != nil {
				s.t.Fatal(err)
			}
			return fi
		}
		if time.Now().After(deadline) {
			s.t.Fatal("no list of fonts within two minutes")
		}
		<-time.After(20 * time.Millisecond)
	}
}

// withFontList opens a notebook whose sandbox was made once the server had read
// the list.
func (s *serverProc) withFontList(cells ...string) *client {
	s.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		c := s.dial(s.notebook(append(cells, "import os; os.path.exists('/run/sandbook/cache')")...), -1)
		if plain(c.run(len(cells), time.Minute)) == "True" {
			return c
		}
		if time.Now().After(deadline) {
			s.t.Fatal("no sandbox shows the list of fonts within two minutes")
		}
	}
}
