package sessionstore

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write golden files and missing fixtures")

func TestMain(m *testing.M) {
	if dir := os.Getenv("SANDBOOK_CRASH_DIR"); dir != "" {
		os.Exit(crashWriter(dir))
	}
	code := m.Run()
	if code == 0 {
		if left := leaked(5 * time.Second); left != "" {
			fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+left)
			code = 1
		}
	}
	os.Exit(code)
}

// leaked waits for our goroutines to end and returns the stacks of those that
// do not.
func leaked(within time.Duration) string {
	deadline := time.Now().Add(within)
	for {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		var ours []string
		for _, g := range strings.Split(string(buf), "\n\n")[1:] {
			if strings.Contains(g, "sandbook/sessionstore.") || strings.Contains(g, "database/sql.(*DB).connectionOpener") {
				ours = append(ours, g)
			}
		}
		if len(ours) == 0 || time.Now().After(deadline) {
			return strings.Join(ours, "\n\n")
		}
		runtime.Gosched()
	}
}
