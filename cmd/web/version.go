package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"sandbook/kernel/wire"
)

// versionString is the module version or the commit it was built from.
func versionString() string {
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	rev, dirty := "", ""
	for _, s := range bi.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	if bi.Main.Version != "" && bi.Main.Version != "(devel)" {
		return bi.Main.Version
	}
	if rev == "" {
		return "devel"
	}
	return rev + dirty
}

func version(out io.Writer) error {
	_, err := fmt.Fprintf(out, "sandbook %s\nguest protocol %d\n%s %s/%s\n", versionString(), wire.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
