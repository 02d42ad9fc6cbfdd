package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

func TestFolderThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	private := filepath.Join(dir, "private")
	if err := errors.Join(os.Mkdir(private, 0o700), os.Symlink(private, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below"), filepath.Join(dir, "link")} {
		if _, err := OpenKeys(path, nil); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
}

// TestKeysOfOtherKinds: only Ed25519 keys are ever used, active or retiring.
func TestKeysOfOtherKinds(t *testing.T) {
	t.Parallel()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]signingKeys{
		"active is ECDSA":    {Active: jose.JSONWebKey{Key: ec}},
		"active is public":   {Active: good.Public()},
		"active is short":    {Active: jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef")}},
		"retiring is ECDSA":  {Active: good, Retiring: []retiringKey{{Key: jose.JSONWebKey{Key: ec.Public()}, Until: 1 << 40}}},
		"retiring is secret": {Active: good, Retiring: []retiringKey{{Key: good, Until: 1 << 40}}},
	} {
		dir := filepath.Join(t.TempDir(), "secrets")
		if _, err := OpenKeys(dir, nil); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, signingFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKeys(dir, nil); !errors.Is(err, errNoSigningKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRotationThatFails leaves the keys as they were.
func TestRotationThatFails(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(file string) error{
		"file is gone":   os.Remove,
		"file is open":   func(f string) error { return os.Chmod(f, 0o644) },
		"file is broken": func(f string) error { return os.WriteFile(f, []byte("["), 0o600) },
	} {
		dir := filepath.Join(t.TempDir(), "secrets")
		k, err := OpenKeys(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := spoil(filepath.Join(dir, signingFile)); err != nil {
			t.Fatal(err)
		}
		before := k.active.id
		if err := k.Rotate(t0, time.Hour); err == nil {
			t.Errorf("%s: rotated", name)
		}
		if _, err := k.Verify(mint(t, k, person(), time.Hour), AudienceAPI, t0); err != nil || k.active.id != before {
			t.Errorf("%s: the keys in memory changed: %v", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) != 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

func TestRetiredKeysAreForgotten(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	for i := range 5 {
		if err := k.Rotate(t0.Add(time.Duration(i)*time.Hour), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if len(k.public) != 2 {
		t.Errorf("%d keys are kept, want the active one and the one that retires", len(k.public))
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	if got := (&TooManyError{RetryAfter: 5500 * time.Millisecond}).Error(); got != "too many attempts: wait 6 seconds" {
		t.Error(got)
	}
	dir := filepath.Join(t.TempDir(), "secrets")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKeys(dir, nil); err == nil || !strings.Contains(err.Error(), "chmod 700 "+dir) {
		t.Error(err)
	}
}
