package sessionstore

import (
	"flag"
	"os"
	"testing"

	"sandbook/internal/testkit"
)

var update = flag.Bool("update", false, "write golden files and missing fixtures")

func TestMain(m *testing.M) {
	if dir := os.Getenv("SANDBOOK_CRASH_DIR"); dir != "" {
		os.Exit(crashWriter(dir))
	}
	os.Exit(testkit.Run(m, "sandbook/sessionstore.", "database/sql.(*DB).connectionOpener"))
}
