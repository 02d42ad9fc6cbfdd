// Package guestbin carries the guest program built for this server's
// architecture and puts it on disk for a backend to start. It does not build
// it: `make build` does, before the server is compiled.
package guestbin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

//go:embed all:dist
var dist embed.FS

// ErrNotBuilt is returned by Path when the server was compiled without the
// guest in it.
var ErrNotBuilt = errors.New("The guest program for linux/" + runtime.GOARCH + " is not built into this server. Run `make build` and start the server again.") //nolint:revive,staticcheck // a sentence for people

// Path writes the guest program into dir, unless it is there already, and
// returns where it is. The name holds a hash of the content, so servers of
// different versions can share the folder. The file appears whole or not at all.
func Path(dir string) (string, error) {
	b, err := dist.ReadFile("dist/sandbook-guest-linux-" + runtime.GOARCH)
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNotBuilt
	}
	if err != nil {
		return "", fmt.Errorf("read embedded guest: %w", err)
	}
	return write(dir, b)
}

func write(dir string, b []byte) (string, error) {
	sum := sha256.Sum256(b)
	path := filepath.Join(dir, "sandbook-guest-"+hex.EncodeToString(sum[:8]))
	if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() && fi.Size() == int64(len(b)) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the sandbox's user must be able to read it
		return "", fmt.Errorf("make folder of the guest: %w", err)
	}
	f, err := os.CreateTemp(dir, ".guest-*")
	if err != nil {
		return "", fmt.Errorf("write guest: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone after the rename
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(0o555)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("write guest: %w", err)
	}
	return path, nil
}
