package guest

import (
	"path/filepath"
	"testing"
)

// TestCompiledFilesOfPackagesAreUsed: with a folder of its own for compiled
// files, Python would not look at those beside the sources, and importing the
// usual libraries would take three times as long.
func TestCompiledFilesOfPackagesAreUsed(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, []string{"PYTHONPYCACHEPREFIX=/nowhere"})
	h := s.connect(0)
	h.start(1)
	if got := h.ok("import sys, colorsys; colorsys.__cached__.rpartition('/')[0] == colorsys.__file__.rpartition('/')[0] + '/__pycache__'").result(); got != "True" {
		t.Errorf("compiled file beside the source: %s, want True", got)
	}
	if got, want := h.ok("import subprocess; subprocess.check_output([sys.executable, '-c', 'import sys; print(sys.pycache_prefix)'], text=True).strip()").result(), "'None'"; got != want {
		t.Errorf("prefix in a program the kernel starts: %s, want %s", got, want)
	}
	// What the user's own modules compile to is not taken for files of the run.
	h.ok("open('mine.py', 'w').write('x = 1')")
	o := h.ok("import mine; mine.__cached__")
	if want := "'" + filepath.Join(s.dir, "__pycache__"); len(o.result()) < len(want) || o.result()[:len(want)] != want {
		t.Errorf("compiled file of the workspace: %s, want one in %s'", o.result(), want)
	}
	if len(o.files.Changed) > 0 {
		t.Errorf("changed files: %+v, want none", o.files.Changed)
	}
}
