// Package testkit is what the tests of several packages share. Nothing else
// imports it.
package testkit

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Run runs a package's tests and returns the exit code. Goroutines they leave
// behind fail it: those whose stack holds one of the given strings.
func Run(m *testing.M, ours ...string) int {
	code := m.Run()
	if code == 0 {
		if left := leaked(5*time.Second, ours); left != "" {
			fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+left)
			code = 1
		}
	}
	return code
}

// leaked waits for our goroutines to end and returns the stacks of those that
// do not.
func leaked(within time.Duration, ours []string) string {
	deadline := time.Now().Add(within)
	for {
		var left []string
		for _, g := range strings.Split(Stacks(), "\n\n")[1:] {
			for _, s := range ours {
				if strings.Contains(g, s) {
					left = append(left, g)
					break
				}
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
		runtime.Gosched()
	}
}

// Stacks are those of all goroutines, the caller's first.
func Stacks() string {
	buf := make([]byte, 4<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// Eventually waits until cond holds, at most so long; then the test has failed.
func Eventually(t testing.TB, patience time.Duration, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// Log keeps what is written to it. It may be used by many goroutines.
type Log struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
