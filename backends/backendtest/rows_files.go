package backendtest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sandbook/backends"
)

const mib = 1 << 20

func fileRows() []row {
	quota := []string{backends.CapWorkspace}
	return []row{
		{id: "F01", sev: HostLeak, title: "the host's secrets, homes and the server's folders cannot be read", run: (*T).secrets},
		{id: "F02", sev: Escape, title: "nothing outside the workspace can be written", run: (*T).readOnly},
		{id: "F03", sev: HostDoS, title: "/dev, /dev/shm, /run and /var/tmp cannot be filled beyond small bounds", needs: quota, run: (*T).fillOthers},
		{id: "F12", sev: Escape, title: "a set-user-id file gives nothing", run: (*T).setUserID},
		{id: "F16", sev: Escape, title: "no working folder or descriptor leads out (CVE-2024-21626)", run: (*T).strayFolders},
		{id: "F17", sev: HostLeak, title: "a crash leaves no core file", run: (*T).coreDump},
		{id: "D01", sev: HostDoS, title: "the workspace ends at its quota, and says so", needs: quota, run: (*T).fillWorkspace},
		{id: "D02", sev: HostDoS, title: "the workspace's files are counted", needs: quota, run: (*T).fillInodes},
		{id: "D03", sev: HostDoS, title: "a file without a name still counts", needs: quota, run: (*T).fillUnlinked},
		{id: "D04", sev: HostDoS, title: "a terabyte file is refused", needs: quota, run: (*T).sparse},
	}
}

func (t *T) secrets() {
	paths := []string{
		"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/root", "/root/.ssh", "/root/.netrc", "/home", "/srv", "/boot",
		"/var/lib", "/var/log", "/var/run/docker.sock", "/proc/1/root/root", "/proc/self/root/root", "/proc/kcore", "/dev/mem",
		"/dev/kmem", "/dev/port", "/dev/vda", "/dev/sda", "/dev/fuse", "/dev/kvm", "/dev/net/tun", "/etc/machine-id.host",
	}
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		paths = append(paths, home)
	}
	if wd, err := os.Getwd(); err == nil {
		paths = append(paths, wd)
	}
	for _, p := range t.opts.Secrets {
		paths = append(paths, p, filepath.Dir(p), "/proc/1/root"+p)
	}
	t.expect(try[map[string]int](t, t.a(), append([]string{"read"}, paths...)...), syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.ENOTDIR)
	if r := t.exec(t.a(), "/bin/cat", "/etc/passwd"); strings.Count(r.out, "\n") > 4 {
		t.Errorf("the host's accounts can be read: %s", clip(r.out))
	}
}

func (t *T) readOnly() {
	paths := []string{
		"/x", "/usr/x", "/usr/bin/x", "/usr/lib/x", "/usr/local/x", "/etc/x", "/etc/passwd", "/etc/ld.so.preload", "/etc/alternatives/x",
		"/lib/x", "/bin/sh", "/usr/bin/env", "/dev/x", "/dev/pts/x", "/run/x", "/run/sandbook/x", "/var/x", "/var/run/x", "/opt/x",
		filepath.Dir(probePath) + "/x", probePath, "/proc/x", "/proc/sys/kernel/hostname", "/sys/x", "/root/x", "/mnt/x", "/home/x",
	}
	t.expect(try[map[string]int](t, t.a(), append([]string{"create"}, paths...)...),
		syscall.EROFS, syscall.EACCES, syscall.ENOENT, syscall.EPERM, syscall.ENOTDIR, syscall.ETXTBSY)
	t.expect(try[map[string]int](t, t.a(), "create", "/work/ok", "/tmp/ok", "/dev/shm/ok", "/dev/null"), 0)
}

type filled struct{ Bytes, Files, Errno int64 }

func (t *T) fillOthers() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{Memory: 512 * mib, Tmp: 32 * mib, Workspace: 128 * mib}})
	for _, dir := range []string{"/dev", "/run", "/", "/var", "/etc", "/dev/pts"} {
		if f := try[filled](t, b, "fill", dir, "1000000000"); f.Bytes > 0 || f.Errno == 0 {
			t.Errorf("%s took %d bytes", dir, f.Bytes)
		}
	}
	for dir, bound := range map[string]int64{"/dev/shm": 64 * mib, "/var/tmp": 32 * mib, "/tmp": 32 * mib} {
		f := try[filled](t, b, "fill", dir, "1000000000")
		if f.Bytes > bound || f.Errno != int64(syscall.ENOSPC) {
			t.Errorf("%s took %d bytes and ended with %s", dir, f.Bytes, errnoText(int(f.Errno)))
		}
	}
	t.alive(b)
}

func (t *T) fillWorkspace() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{Memory: 256 * mib, Workspace: 24 * mib}})
	f := try[filled](t, b, "fill", "/work", "1000000000")
	if f.Bytes < 20*mib || f.Bytes > 24*mib || f.Errno != int64(syscall.ENOSPC) {
		t.Errorf("took %d bytes of 24 MiB and ended with %s", f.Bytes, errnoText(int(f.Errno)))
	}
	// M02: a full file system is an error to the code, not its death.
	if t.caps.Has(backends.CapMemory) {
		if u := t.usage(b); u.OOMKills != 0 {
			t.Errorf("%d processes were killed for memory", u.OOMKills)
		}
	}
	t.alive(b)
}

func (t *T) fillInodes() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{WorkspaceInodes: 1000}})
	for _, dir := range []string{"/work", "/tmp", "/dev/shm"} {
		f := try[filled](t, b, "inodes", dir, "100000")
		if f.Files > 1001 || f.Files < 900 || f.Errno != int64(syscall.ENOSPC) {
			t.Errorf("%s: %d files of 1000, then %s", dir, f.Files, errnoText(int(f.Errno)))
		}
	}
}

func (t *T) fillUnlinked() {
	b := t.open(t, backends.Spec{Limits: backends.Limits{Memory: 256 * mib, Workspace: 24 * mib}})
	f := try[filled](t, b, "unlinked", "/work", "1000000000")
	if f.Bytes > 24*mib || f.Errno == 0 {
		t.Errorf("took %d bytes of 24 MiB and ended with %s", f.Bytes, errnoText(int(f.Errno)))
	}
}

func (t *T) sparse() {
	e := try[int](t, t.a(), "grow", "/work/sparse", "1099511627776")
	if e != int(syscall.EFBIG) && e != int(syscall.ENOSPC) {
		t.Errorf("%s", errnoText(e))
	}
}

func (t *T) setUserID() {
	const nosuid = 2
	for path, s := range try[map[string]struct{ Flags int64 }](t, t.a(), "stat", "/work", "/tmp", "/usr", "/dev/shm", "/", filepath.Dir(probePath)) {
		if s.Flags&nosuid == 0 {
			t.Errorf("%s is mounted without nosuid", path)
		}
	}
	r := try[struct {
		Chown int
		Out   string
	}](t, t.a(), "setuid", "/work")
	if r.Chown == 0 || strings.Contains(r.Out, `"euid":0`) {
		t.Errorf("%+v", r)
	}
}

func (t *T) strayFolders() {
	id := try[struct{ Cwd string }](t, t.a(), "id")
	if id.Cwd != "/work" {
		t.Errorf("the working folder is %q", id.Cwd)
	}
	for path, to := range try[map[string]string](t, t.a(), "links") {
		fd := strings.Contains(path, "/fd/")
		switch {
		case strings.HasSuffix(path, "/root"):
			if to != "/" {
				t.Errorf("%s → %s", path, to)
			}
		case fd && strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "/dev/") && !strings.HasPrefix(to, "/proc") && !strings.HasPrefix(to, "/work"):
			t.Errorf("an open file of somewhere else: %s → %s", path, to)
		case strings.Contains(to, "(unreachable)"):
			t.Errorf("%s → %s", path, to)
		}
	}
	// Climbing from every folder that can be named ends at the same root.
	out := t.python(t.a(), `
import os, glob
root = os.stat("/")
for start in ["/", "/proc/self/cwd", "/proc/self/root", "/proc/1/cwd", "/proc/1/root"] + glob.glob("/proc/self/fd/*") + glob.glob("/proc/1/fd/*"):
    try:
        s = os.stat(start + "/" + "../" * 30)
    except OSError:
        continue
    if (s.st_dev, s.st_ino) != (root.st_dev, root.st_ino):
        print("out by", start)
`)
	if out != "" {
		t.Error(out)
	}
}

func (t *T) coreDump() {
	l := try[map[string][2]uint64](t, t.a(), "limits")
	if l["core"] != [2]uint64{} {
		t.Errorf("the limit of core files is %v", l["core"])
	}
	if r := t.exec(t.a(), "/bin/sh", "-c", "cd /work && kill -SEGV $$"); r.Signal != int(syscall.SIGSEGV) {
		t.Errorf("%+v", r)
	}
	if r := t.exec(t.a(), "/bin/sh", "-c", "ls -a /work /tmp | grep -c '^core'"); strings.TrimSpace(r.out) != "0" {
		t.Errorf("core files: %s", r.out)
	}
}
