package backendtest

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"sandbook/backends"
	"sandbook/kernel/wire"
)

func networkRows() []row {
	none := []string{backends.CapNoNetwork}
	return []row{
		{id: "N01", sev: Exfil, title: "no IPv4 address answers, public or private", needs: none, run: (*T).noIPv4},
		{id: "N02", sev: Exfil, title: "no IPv6 address answers, mapped or not", needs: none, run: (*T).noIPv6},
		{id: "N03", sev: HostLeak, title: "no metadata service answers", needs: none, run: (*T).noMetadata},
		{id: "N04", sev: Exfil, title: "no name is looked up", needs: none, run: (*T).noNames},
		{id: "N05", sev: HostLeak, title: "the server's own ports cannot be reached", needs: none, run: (*T).noServer},
		{id: "N06", sev: HostLeak, title: "the host's abstract sockets cannot be reached", needs: none, run: (*T).noAbstract},
		{id: "N07", sev: Escape, title: "the host's sockets in the file system are absent", run: (*T).noPathSockets},
		{id: "N08", sev: Escape, title: "sockets of other families are refused (CVE-2026-31431)", needs: []string{backends.CapSeccomp}, run: (*T).families},
		{id: "N09", sev: Escape, title: "raw and ping sockets are refused", run: (*T).rawSockets},
		{id: "N13", sev: Lateral, title: "a port one sandbox listens on is reached by nobody else", needs: none, run: (*T).listening},
		{id: "N15", sev: HostLeak, title: "the only interface is loopback", needs: none, run: (*T).onlyLoopback},
	}
}

var unreachable = []syscall.Errno{syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ECONNREFUSED, syscall.EADDRNOTAVAIL, syscall.EINVAL}

func (t *T) noIPv4() {
	t.expect(try[map[string]int](t, t.a(), "dial",
		"tcp|1.1.1.1:443", "tcp|8.8.8.8:53", "udp|8.8.8.8:53", "tcp|10.0.0.1:80", "tcp|172.17.0.1:2375",
		"tcp|192.168.0.1:80", "tcp|100.64.0.1:80", "udp|224.0.0.1:1"), syscall.ENETUNREACH, syscall.EHOSTUNREACH)
}

func (t *T) noIPv6() {
	t.expect(try[map[string]int](t, t.a(), "dial",
		"tcp|[2606:4700:4700::1111]:443", "udp|[2001:4860:4860::8888]:53", "tcp|[fe80::1%lo]:80", "tcp|[fd00:ec2::254]:80",
		"tcp|[64:ff9b::a9fe:a9fe]:80", "tcp|[ff02::1%lo]:80"), unreachable...)
}

func (t *T) noMetadata() {
	t.expect(try[map[string]int](t, t.a(), "dial",
		"tcp|169.254.169.254:80", "tcp|169.254.170.2:80", "tcp|100.100.100.200:80", "tcp|10.96.0.1:443", "tcp|10.0.0.1:10250"),
		syscall.ENETUNREACH, syscall.EHOSTUNREACH)
}

func (t *T) noNames() {
	out := t.python(t.a(), `
import socket
for name in ["example.com", "localhost.localdomain", "host.docker.internal", "metadata.google.internal", "kubernetes.default"]:
    try:
        print(name, socket.getaddrinfo(name, 80)[0][4])
    except OSError:
        pass
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.5)
for addr in ["127.0.0.53", "127.0.0.1", "8.8.8.8"]:
    try:
        s.sendto(b"\0\1\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1", (addr, 53))
        print(addr, s.recv(512))
    except OSError:
        pass
`)
	if out != "" {
		t.Errorf("answers: %s", out)
	}
}

func (t *T) noServer() {
	var got atomic.Int64
	var addrs []string
	for _, a := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		l, err := net.Listen("tcp", a)
		if err != nil {
			t.Logf("%s: %v", a, err)
			continue
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				got.Add(1)
				_ = c.Close()
			}
		}()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		addrs = append(addrs, "tcp|127.0.0.1:"+port, "tcp|[::1]:"+port, "tcp|0.0.0.0:"+port, "tcp|[::ffff:127.0.0.1]:"+port)
		if ifs, err := net.InterfaceAddrs(); err == nil {
			for _, i := range ifs {
				if n, ok := i.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
					addrs = append(addrs, "tcp|"+n.IP.String()+":"+port)
				}
			}
		}
	}
	t.expect(try[map[string]int](t, t.a(), append([]string{"dial"}, addrs...)...), unreachable...)
	if n := got.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}

func (t *T) noAbstract() {
	name := "@sandbook-test-" + random()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.expect(try[map[string]int](t, t.a(), "dial", "unix|"+name), syscall.ECONNREFUSED)
}

func (t *T) noPathSockets() {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	if len(path) < 100 {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	paths := []string{
		path,
		"/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock",
		"/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/journal/socket", "/tmp/.X11-unix/X0", "/run/user/0/bus", "/run/snapd.socket",
	}
	args := []string{"dial"}
	for _, p := range paths {
		args = append(args, "unix|"+p)
	}
	t.expect(try[map[string]int](t, t.a(), args...), syscall.ENOENT, syscall.EACCES, syscall.ENOTDIR)
	// Not even the sandbox's own stream can be found as a file.
	out := t.exec(t.a(), "/bin/sh", "-c", "find / -xdev -type s 2>/dev/null; find /run /tmp /work /var -type s 2>/dev/null").out
	if strings.TrimSpace(out) != "" {
		t.Errorf("sockets: %s", out)
	}
}

func (t *T) families() {
	var calls []sysCall
	var names []string
	for f := range uint64(64) {
		if f == 1 || f == 2 || f == 10 {
			continue
		}
		for _, typ := range []uint64{1, 2, 3, 5} {
			calls = append(calls, named("socket", f, typ, 0), named("socket", f|1<<32, typ, 0))
			names = append(names, fmt.Sprintf("socket(%d, %d)", f, typ), fmt.Sprintf("socket(%d|1<<32, %d)", f, typ))
		}
	}
	t.expect(t.calls(t.a(), names, calls), syscall.EPERM)
	ok := t.calls(t.a(), []string{"unix", "ip4", "ip6"}, []sysCall{named("socket", 1, 1, 0), named("socket", 2, 1, 0), named("socket", 10, 2, 0)})
	t.expect(ok, 0)
}

func (t *T) rawSockets() {
	t.expect(t.calls(t.a(), []string{"raw4", "raw6", "ping4", "ping6", "packet-as-inet"}, []sysCall{
		named("socket", 2, 3, 1), named("socket", 10, 3, 58), named("socket", 2, 2, 1), named("socket", 10, 2, 58), named("socket", 2, 10, 3),
	}), syscall.EPERM, syscall.EACCES, syscall.EPROTONOSUPPORT, syscall.ESOCKTNOSUPPORT)
}

func (t *T) listening() {
	r, err := t.other().start(wire.Command{Argv: []string{probePath, "listen", "0.0.0.0:18999"}, TimeoutMS: 5000}, false)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.output(t.ctx); err != nil || !strings.HasPrefix(out, "listening") {
		t.Fatalf("%q %v", out, err)
	}
	t.expect(try[map[string]int](t, t.a(), "dial", "tcp|127.0.0.1:18999"), syscall.ECONNREFUSED)
	if c, err := net.DialTimeout("tcp", "127.0.0.1:18999", time.Second); err == nil {
		_ = c.Close()
		t.Error("the host reached it")
	}
	// Within the sandbox, loopback works.
	t.expect(try[map[string]int](t, t.other(), "dial", "tcp|127.0.0.1:18999"), 0)
}

func (t *T) onlyLoopback() {
	if got := try[[]string](t, t.a(), "interfaces"); !slices.Equal(got, []string{"lo"}) {
		t.Errorf("%v", got)
	}
}
