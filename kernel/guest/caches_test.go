package guest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
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

// TestFontListIsLent: a kernel gets a copy of the list that was made for its
// sandbox, and what the user has in that place stays theirs.
func TestFontListIsLent(t *testing.T) {
	t.Parallel()
	const name, made = "fontlist-v1.json", `{"made":"once"}`
	for _, c := range []struct {
		what  string
		given func(to, home, other string) error // before the kernel starts
		want  string                             // then, empty: no file
	}{
		{"nothing there", func(_, _, _ string) error { return nil }, made},
		{"an empty folder", func(to, _, _ string) error { return os.Mkdir(to, 0o755) }, made},
		{"a list of the user", func(to, _, _ string) error {
			return errors.Join(os.Mkdir(to, 0o755), os.WriteFile(filepath.Join(to, name), []byte("mine"), 0o600))
		}, "mine"},
		{"fonts of the user", func(_, home, _ string) error { return os.Mkdir(filepath.Join(home, ".fonts"), 0o755) }, ""},
		{"fonts in the other place", func(_, home, _ string) error { return os.MkdirAll(filepath.Join(home, ".local/share/fonts"), 0o755) }, ""},
		{"a file for a folder", func(to, _, _ string) error { return os.WriteFile(to, nil, 0o600) }, ""},
		{"a link to another file", func(to, _, other string) error {
			return errors.Join(os.Mkdir(to, 0o755), os.Symlink(other, filepath.Join(to, name)))
		}, "other"},
		{"a pipe", func(to, _, _ string) error {
			return errors.Join(os.Mkdir(to, 0o755), syscall.Mkfifo(filepath.Join(to, name), 0o600))
		}, "pipe"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			from, to, home, other := filepath.Join(dir, "from"), filepath.Join(dir, "to"), filepath.Join(dir, "home"), filepath.Join(dir, "other")
			if err := errors.Join(os.Mkdir(from, 0o755), os.Mkdir(home, 0o755), os.WriteFile(filepath.Join(from, name), []byte(made), 0o444),
				os.WriteFile(other, []byte("other"), 0o600), c.given(to, home, other)); err != nil {
				t.Fatal(err)
			}
			lendFontList(from, to, home)
			got := ""
			if fi, err := os.Stat(filepath.Join(to, name)); err == nil && fi.Mode().IsRegular() {
				text, err := os.ReadFile(filepath.Join(to, name))
				if err != nil {
					t.Fatal(err)
				}
				got = string(text)
			} else if err == nil {
				got = "pipe"
			}
			if got != c.want {
				t.Errorf("list %q, want %q", got, c.want)
			}
			if text, err := os.ReadFile(other); err != nil || string(text) != "other" {
				t.Errorf("the other file holds %q (%v)", text, err)
			}
			if got == made {
				if err := os.WriteFile(filepath.Join(to, name), []byte("changed"), 0o600); err != nil {
					t.Errorf("the copy cannot be changed: %v", err)
				}
			}
		})
	}
	t.Run("none was made", func(t *testing.T) {
		t.Parallel()
		to := filepath.Join(t.TempDir(), "to")
		lendFontList(filepath.Join(t.TempDir(), "missing"), to, "")
		if _, err := os.Stat(to); err == nil {
			t.Error("a folder was made for nothing")
		}
	})
}

// BenchmarkLendFontList is what the list costs a kernel that never asks for it.
func BenchmarkLendFontList(b *testing.B) {
	from := b.TempDir()
	if err := os.WriteFile(filepath.Join(from, "fontlist-v1.json"), make([]byte, 50<<10), 0o444); err != nil {
		b.Fatal(err)
	}
	to := filepath.Join(b.TempDir(), "to")
	for b.Loop() {
		lendFontList(from, to, "/nowhere")
		b.StopTimer()
		if err := os.RemoveAll(to); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
