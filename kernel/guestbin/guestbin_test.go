package guestbin

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestWriteOnceAndWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, err := write(dir, []byte("#!/bin/sh\n"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if first.Mode().Perm() != 0o555 {
		t.Errorf("mode %v, want 0555", first.Mode())
	}
	again, err := write(dir, []byte("#!/bin/sh\n"))
	if err != nil || again != path {
		t.Fatalf("second write: %q, %v, want %q", again, err, path)
	}
	if second, _ := os.Stat(path); !os.SameFile(first, second) {
		t.Error("the file was written again")
	}
	other, err := write(dir, []byte("#!/bin/sh\ntrue\n"))
	if err != nil || other == path {
		t.Errorf("other content: %q, %v", other, err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 2 {
		t.Errorf("%d files, want the 2 guests and nothing temporary", len(entries))
	}
}

func TestPath(t *testing.T) {
	t.Parallel()
	path, err := Path(t.TempDir())
	if errors.Is(err, ErrNotBuilt) {
		if !strings.Contains(err.Error(), "make build") {
			t.Errorf("the error does not say how to mend it: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Size() < 1<<20 {
		t.Errorf("guest at %s: %v, %v", path, fi, err)
	}
}
