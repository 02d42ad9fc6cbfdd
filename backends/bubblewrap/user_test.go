package bubblewrap

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// anybody is a host user without an account.
const anybody = 65533

// TestConformanceAsUser runs the suite once more as an ordinary user, if this
// is root: most servers are not.
func TestConformanceAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: this is an ordinary user already, TestConformance is that test.")
	}
	if testing.Short() {
		t.Skip("NOT TESTED: it takes as long as TestConformance.")
	}
	out, home, err := asUser(t, "^TestConformance$")
	if i := strings.Index(out, "\n        row "); i >= 0 && err == nil {
		t.Log(out[i:])
	} else {
		t.Log(out)
	}
	if err != nil {
		t.Errorf("as an ordinary user: %v", err)
	}
	if to := os.Getenv("SANDBOOK_CONFORMANCE_OUT"); to != "" {
		copyFile(t, filepath.Join(home, Name+"-user.json"), filepath.Join(to, Name+"-user.json"))
	}
}

// TestFontListAsUser makes and shows the list of fonts as an ordinary user.
func TestFontListAsUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: this is an ordinary user already, TestFontListIsMadeOnce is that test.")
	}
	if hostFontPlaces.key() == "" {
		t.Skip(noMatplotlib)
	}
	out, _, err := asUser(t, "^TestFontList(IsMadeOnce|CannotBeChangedFromInside)$")
	if n := strings.Count(out, "--- PASS: "); err != nil || n != 2 {
		t.Errorf("as an ordinary user %d tests of 2 pass: %v\n%s", n, err, out)
	}
}

// asUser runs tests of this package once more, as somebody who is not root. It
// returns what they printed and the folder they ran in.
func asUser(t *testing.T, run string) (output, home string, err error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandbook-user-") //nolint:usetesting // t.TempDir is closed to the other user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, self, filepath.Join(dir, "test"))
	copyFile(t, builtGuest(t), filepath.Join(dir, "guest"))
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "probe"), "../backendtest/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the probe: %v\n%s", err, out)
	}
	home = filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, filepath.Join(dir, "probe"): 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(home, anybody, anybody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "test"), "-test.run", run, "-test.v")
	cmd.Dir = home
	cmd.Env = []string{
		"HOME=" + home, "TMPDIR=" + home, "PATH=/usr/bin:/bin", "SANDBOOK_GUEST=" + filepath.Join(dir, "guest"), "SANDBOOK_PROBE=" + dir,
		"SANDBOOK_CONFORMANCE_OUT=" + outFor(t, home),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: anybody, Gid: anybody}}
	out, err := cmd.CombinedOutput()
	return string(out), home, err
}

// outFor is where the user's report goes, if one is wanted.
func outFor(t *testing.T, home string) string {
	t.Helper()
	if os.Getenv("SANDBOOK_CONFORMANCE_OUT") == "" {
		return ""
	}
	return home
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
