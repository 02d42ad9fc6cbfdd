package bubblewrap

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"sandbook/backends"
	"sandbook/backends/internal/shim/job"
)

// guestPath is where the guest program is inside a sandbox.
const guestPath = "/run/sandbook/guest"

// The user inside a sandbox. Outside it is another one.
const insideID = 1000

// shmSize bounds /dev/shm, in bytes.
const shmSize = 64 << 20

// etc lists what runtimes read from /etc. Everything else there stays out.
var etc = []string{
	"alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "fonts", "ImageMagick-6",
	"inputrc", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "ld.so.cache", "ld.so.conf",
	"ld.so.conf.d", "localtime", "magic", "magic.mime", "matplotlibrc", "mime.types", "perl", "pki",
	"protocols", "python3", "python3.11", "python3.12", "python3.13", "python3.14", "R", "services",
	"ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "xml",
}

// masked lists the files of /proc that tell about the host.
var masked = []string{
	"cmdline", "config.gz", "diskstats", "interrupts", "kallsyms", "kcore", "key-users", "keys", "kmsg",
	"kpagecgroup", "kpagecount", "kpageflags", "latency_stats", "modules", "mtrr", "pagetypeinfo",
	"partitions", "sched_debug", "schedstat", "slabinfo", "softirqs", "swaps", "sysrq-trigger",
	"timer_list", "timer_stats", "vmallocinfo", "zoneinfo",
}

// maskedDirs lists the folders of /proc that tell about the host.
var maskedDirs = []string{"acpi", "asound", "bus", "dynamic_debug", "scsi", "pressure"}

// environment a guest finds where the spec sets nothing else.
var defaultEnv = []string{
	"PATH=/usr/local/bin:/usr/bin:/bin",
	"HOME=/work",
	"LANG=C.UTF-8",
	"USER=user",
	"LOGNAME=user",
	"SHELL=/bin/sh",
	"TMPDIR=/tmp",
}

// files that are written into every sandbox.
var files = []struct{ path, content string }{
	{"/etc/passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\nuser:x:1000:1000:user:/work:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"},
	{"/etc/group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"},
	{"/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n127.0.0.1 sandbox\n"},
	{"/etc/hostname", "sandbox\n"},
	{"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
	{"/etc/resolv.conf", ""},
	{"/etc/machine-id", "00000000000000000000000000000000\n"},
}

// hostRuntime is what of the host every sandbox shows. It is found out once.
type hostRuntime struct {
	links    [][2]string // symbolic links at the root: target, path
	binds    []string    // host paths shown at the same place
	masks    []string
	maskDirs []string
}

// findRuntime looks at the host's file system.
func findRuntime() hostRuntime {
	rt := hostRuntime{binds: []string{"/usr"}}
	for _, p := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		fi, err := os.Lstat(p)
		switch {
		case err != nil:
		case fi.Mode()&os.ModeSymlink != 0:
			if target, err := os.Readlink(p); err == nil {
				rt.links = append(rt.links, [2]string{target, p})
			}
		default:
			rt.binds = append(rt.binds, p)
		}
	}
	for _, name := range etc {
		if _, err := os.Stat("/etc/" + name); err == nil {
			rt.binds = append(rt.binds, "/etc/"+name)
		}
	}
	// What others may not read on the host, nobody can read inside.
	for _, name := range masked {
		if fi, err := os.Stat("/proc/" + name); err == nil && fi.Mode().Perm()&0o004 != 0 {
			rt.masks = append(rt.masks, "/proc/"+name)
		}
	}
	for _, name := range maskedDirs {
		if fi, err := os.Stat("/proc/" + name); err == nil && fi.IsDir() {
			rt.maskDirs = append(rt.maskDirs, "/proc/"+name)
		}
	}
	return rt
}

// tree is what the root folder of a sandbox shows.
func tree(rt hostRuntime, spec backends.Spec) []job.Node {
	var out []job.Node
	for _, d := range []string{"/proc", "/dev", "/work", "/tmp", "/etc/ssl", "/run/sandbook", "/var"} {
		out = append(out, job.Node{Kind: job.Dir, Path: d})
	}
	for _, b := range rt.binds {
		out = append(out, job.Node{Kind: job.Bind, Path: b, Source: b})
	}
	for _, l := range rt.links {
		out = append(out, job.Node{Kind: job.Link, Path: l[1], Text: l[0]})
	}
	for _, f := range files {
		out = append(out, job.Node{Kind: job.File, Path: f.path, Text: f.content})
	}
	out = append(out,
		job.Node{Kind: job.Link, Path: "/var/tmp", Text: "../tmp"},
		job.Node{Kind: job.Copy, Path: guestPath, Source: spec.Guest})
	for _, m := range spec.Mounts {
		out = append(out, job.Node{Kind: job.Bind, Path: m.Target, Source: m.Source})
	}
	return out
}

// options builds bubblewrap's options. The root folder with everything in it
// was prepared by the shim and is bound as one, read-only.
func options(rt hostRuntime, spec backends.Spec) (args []string) {
	add := func(a ...string) { args = append(args, a...) }
	add("--unshare-all", "--unshare-user", "--disable-userns",
		"--die-with-parent", "--new-session", "--as-pid-1",
		"--cap-drop", "ALL",
		"--uid", strconv.Itoa(insideID), "--gid", strconv.Itoa(insideID),
		"--hostname", "sandbox", "--clearenv")
	for _, kv := range environment(spec.Env) {
		k, v, _ := strings.Cut(kv, "=")
		add("--setenv", k, v)
	}
	add("--ro-bind", job.Root, "/", "--proc", "/proc")
	for _, m := range rt.masks {
		add("--ro-bind", "/dev/null", m)
	}
	for _, m := range rt.maskDirs {
		add("--perms", "0555", "--size", "4096", "--tmpfs", m, "--remount-ro", m)
	}
	add("--dev", "/dev", "--bind", job.Shm, "/dev/shm", "--remount-ro", "/dev")
	add("--bind", job.Workspace, "/work", "--bind", job.Tmp, "/tmp", "--chdir", "/work")
	add("--seccomp", strconv.Itoa(job.FDSeccomp), "--block-fd", strconv.Itoa(job.FDBlock))
	return args
}

// environment adds the defaults for what env does not set.
func environment(env []string) []string {
	out := slices.Clone(env)
	for _, d := range defaultEnv {
		name, _, _ := strings.Cut(d, "=")
		if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
			out = append(out, d)
		}
	}
	return out
}

// guestRoom is what a sandbox keeps of its processes for what is not the code:
// the guest's threads, programs on their way to be started, and bubblewrap.
const guestRoom = 32

// argv is the guest's argument vector. The number of processes is limited by
// the guest where the system counts them by sandbox.
func argv(spec backends.Spec, countsProcesses bool) []string {
	out := append([]string{guestPath}, spec.Args...)
	if countsProcesses {
		out = append(out, "--processes", strconv.FormatInt(max(guestRoom/2, spec.Limits.Pids-guestRoom), 10))
	}
	return append(out,
		"--listen-fd", strconv.Itoa(job.FDListen),
		"--workspace", "/work",
		"--orphan", spec.Limits.Orphan.String(),
		"--files", strconv.FormatInt(spec.Limits.OpenFiles, 10))
}

// reserved are the places in a sandbox that a mount may not cover.
var reserved = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sys", "/dev", "/etc", "/work", "/tmp", "/run/sandbook"}

// validate checks what the caller chose. Its errors are sentences for people.
func validate(spec backends.Spec, install string) error {
	if !validName(string(spec.ID)) {
		return fmt.Errorf("The sandbox id %q is not made of at most 64 lower-case letters, digits and dashes.", spec.ID) //nolint:revive,staticcheck // for people
	}
	if spec.Labels.Install != install {
		return fmt.Errorf("The sandbox belongs to install %q, but this backend works for %q.", spec.Labels.Install, install) //nolint:revive,staticcheck // for people
	}
	for _, kv := range spec.Env {
		k, _, ok := strings.Cut(kv, "=")
		if !ok || k == "" || strings.ContainsRune(kv, 0) {
			return fmt.Errorf("The environment entry %q is not NAME=VALUE.", k) //nolint:revive,staticcheck // for people
		}
	}
	for _, a := range spec.Args {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("The guest argument %q holds a zero byte.", a) //nolint:revive,staticcheck // for people
		}
	}
	for _, m := range spec.Mounts {
		if err := validateMount(m); err != nil {
			return err
		}
	}
	if !path.IsAbs(spec.Guest) {
		return fmt.Errorf("The guest program %q is not given by an absolute path.", spec.Guest) //nolint:revive,staticcheck // for people
	}
	fi, err := os.Stat(spec.Guest)
	if err != nil {
		return fmt.Errorf("The guest program is missing: %w.", err) //nolint:revive,staticcheck // for people
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("The guest program %s is not a file.", spec.Guest) //nolint:revive,staticcheck // for people
	}
	return nil
}

func validateMount(m backends.Mount) error {
	if !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || m.Target == "/" || strings.ContainsRune(m.Target, 0) {
		return fmt.Errorf("The mount target %q is not a clean absolute path.", m.Target) //nolint:revive,staticcheck // for people
	}
	for _, r := range reserved {
		if m.Target == r || strings.HasPrefix(m.Target, r+"/") {
			return fmt.Errorf("The mount target %s is within %s, which belongs to the sandbox itself.", m.Target, r) //nolint:revive,staticcheck // for people
		}
	}
	if !path.IsAbs(m.Source) || strings.ContainsRune(m.Source, 0) {
		return fmt.Errorf("The mount source %q is not an absolute path.", m.Source) //nolint:revive,staticcheck // for people
	}
	if _, err := os.Stat(m.Source); err != nil {
		return fmt.Errorf("The mount source is missing: %w.", err) //nolint:revive,staticcheck // for people
	}
	return nil
}

// validName reports whether s is safe as a file name and a group name.
func validName(s string) bool {
	if s == "" || len(s) > 64 || s[0] == '-' {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return false
		}
	}
	return true
}
