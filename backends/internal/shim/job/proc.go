package job

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// StartTime reads when a process started, in clock ticks since boot.
func StartTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything, so count from its end.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0, fmt.Errorf("short stat of process %d", pid)
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// BootID identifies this boot of the host.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
