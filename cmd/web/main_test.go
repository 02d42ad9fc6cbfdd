package main

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sandbook-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := buildBinary(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Geteuid() != 0 { // an ordinary user may have no control groups
		_ = os.Setenv("SANDBOOK_ALLOW_UNLIMITED", "true")
	}
	return m.Run()
}
