package guest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandbook/kernel/wire"
)

// readFile reads a workspace file through the guest.
func (h *host) readFile(p string, off, limit int64) (string, wire.Reply) {
	h.t.Helper()
	number := h.stream()
	r := h.reply(h.post(wire.Request{Op: wire.OpRead, Path: p, Off: off, Limit: limit}, number))
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.streams[number]; b != nil {
		return b.String(), r
	}
	return "", r
}

// stream returns a stream number not used before.
func (h *host) stream() uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next += 2
	return uint32(h.next * 2)
}

func (h *host) writeFile(p string, data []byte, end wire.End) wire.Reply {
	h.t.Helper()
	number := h.stream()
	id := h.post(wire.Request{Op: wire.OpWrite, Path: p, File: &wire.FileInfo{Mode: 0o640, MTime: 1600000000000}}, number)
	h.sendData(number, data, end)
	return h.reply(id)
}

// sendData sends data within the first window, so it must be small.
func (h *host) sendData(number uint32, data []byte, end wire.End) {
	for len(data) > 0 {
		n := min(len(data), 60000)
		h.write(wire.AppendFrame(nil, wire.Frame{Kind: wire.KindData, Stream: number, Payload: data[:n]}))
		data = data[n:]
	}
	b, _ := wire.AppendJSON(nil, wire.KindEnd, number, end)
	h.write(b)
}

func TestFilesRoundTrip(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil)
	h := s.connect(0)
	text := strings.Repeat("0123456789", 40000) // within the first window
	if r := h.writeFile("dir/sub/a b é.txt", []byte(text), wire.End{}); r.Error != "" {
		t.Fatal(r)
	}
	fi, err := os.Stat(filepath.Join(s.dir, "dir/sub/a b é.txt"))
	if err != nil || fi.Mode().Perm() != 0o640 || fi.ModTime().UnixMilli() != 1600000000000 {
		t.Errorf("file %v %v", fi, err)
	}
	if got, r := h.readFile("dir/sub/a b é.txt", 0, 0); got != text || r.Error != "" {
		t.Errorf("read %d bytes, %+v", len(got), r)
	}
	if got, _ := h.readFile("dir/sub/a b é.txt", 5, 3); got != "567" {
		t.Errorf("a part: %q", got)
	}
	if r := h.writeFile("cut.txt", []byte("half"), wire.End{Error: "The upload was cut off."}); r.Error == "" {
		t.Error("a write that was cut off is said to be done")
	}
	if left := listDir(t, s.dir); left != "dir" {
		t.Errorf("after a write that was cut off: %s", left)
	}
	// More than the window: the guest must give it back for the rest to come.
	big := strings.Repeat("x", 3<<20)
	if err := os.WriteFile(filepath.Join(s.dir, "big"), []byte(big), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, r := h.readFile("big", 0, 0); sha256.Sum256([]byte(got)) != sha256.Sum256([]byte(big)) || r.Error != "" {
		t.Errorf("big file: %d bytes %+v", len(got), r)
	}
	var files []wire.FileInfo
	decodeResult(t, h.must(wire.Request{Op: wire.OpList}), &files)
	if len(files) != 4 || files[0].Path != "big" || files[0].Size != 3<<20 || files[3].Path != "dir/sub/a b é.txt" || files[1].Kind != "dir" {
		t.Errorf("list %+v", files)
	}
	decodeResult(t, h.must(wire.Request{Op: wire.OpList, Path: "dir"}), &files)
	if len(files) != 1 || files[0].Path != "dir/sub" {
		t.Errorf("list of a folder %+v", files)
	}
	h.must(wire.Request{Op: wire.OpRename, Path: "big", To: "new/place"})
	if r := h.call(wire.Request{Op: wire.OpRename, Path: "new/place", To: "dir"}); r.Code != wire.CodeInvalid {
		t.Errorf("rename over something: %+v", r)
	}
	h.must(wire.Request{Op: wire.OpMkdir, Path: "made/deep"})
	h.must(wire.Request{Op: wire.OpRemove, Path: "dir"})
	if left := listDir(t, s.dir); left != "made new" {
		t.Errorf("left %s", left)
	}
	for _, op := range []wire.Op{wire.OpRead, wire.OpRemove} {
		if r := h.reply(h.post(wire.Request{Op: op, Path: "nothing"}, h.stream())); r.Code != wire.CodeNotFound {
			t.Errorf("%s of nothing: %+v", op, r)
		}
	}
	if r := h.call(wire.Request{Op: wire.OpRead, Path: "new/place"}); r.Code != wire.CodeInvalid {
		t.Errorf("a read without a stream: %+v", r)
	}
}

func listDir(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	return strings.Join(names, " ")
}

func TestHostilePaths(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil)
	h := s.connect(0)
	for _, p := range []string{"../x", "/etc/passwd", "a/../../x", "a//b", "./a", "a/.", "a/..", "a\x00b", "a\nb", "a\\b", "C:\\x", "", "a/",
		strings.Repeat("n", 256), strings.Repeat("d/", 3000) + "x", "a\x1b[31m", "\xff\xfe", ".sandbook-upload-x", "\u007f"} {
		for _, op := range []wire.Op{wire.OpRead, wire.OpWrite, wire.OpRemove, wire.OpRename, wire.OpMkdir} {
			if p == "\xff\xfe" { // JSON makes it U+FFFD, a name like any other
				continue
			}
			number := h.stream()
			r := h.reply(h.post(wire.Request{Op: op, Path: p, To: "ok"}, number))
			if r.Code != wire.CodeInvalid || !strings.HasSuffix(r.Error, ".") && !strings.HasSuffix(r.Error, tempPrefix+" are taken.") {
				t.Errorf("%s %.40q: %+v", op, p, r)
			}
		}
	}
	if left := listDir(t, s.dir); left != "" {
		t.Errorf("left %q", left)
	}
}

func TestHostileFiles(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil)
	h := s.connect(0)
	in := func(name string) string { return filepath.Join(s.dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink("/etc/passwd", in("out")))
	must(os.Symlink("real", in("inside")))
	must(os.Symlink("loop", in("loop")))
	must(os.Symlink("/etc", in("etc")))
	must(os.Symlink("..", in("up")))
	must(os.WriteFile(in("real"), []byte("real"), 0o600))
	must(syscall.Mkfifo(in("fifo"), 0o600))
	must(os.Mkdir(in("dir"), 0o755))
	must(os.WriteFile(in("bad\xffname"), nil, 0o600))
	must(os.WriteFile(in("new\nline"), nil, 0o600))
	must(os.WriteFile(in("rtl\u202egnp.exe"), nil, 0o600))
	f, err := os.Create(in("sparse"))
	must(err)
	must(f.Truncate(1 << 40))
	must(f.Close())
	for _, p := range []string{"out", "inside", "loop", "etc/passwd", "up/work/real", "fifo", "dir"} {
		from := time.Now()
		got, r := h.readFile(p, 0, 0)
		if r.Error == "" || got != "" {
			t.Errorf("read %s: %q %+v", p, got, r)
		}
		if r.Code != wire.CodeInvalid && r.Code != wire.CodeNotFound {
			t.Errorf("read %s: %+v", p, r)
		}
		if took := time.Since(from); took > 2*time.Second {
			t.Errorf("read %s took %s", p, took)
		}
	}
	for _, p := range []string{"out", "fifo", "dir", "etc/new", "up/new"} {
		if r := h.writeFile(p, []byte("x"), wire.End{}); r.Error == "" {
			t.Errorf("write %s was done", p)
		}
	}
	if _, err := os.Lstat("/etc/new"); err == nil {
		t.Error("a file was made outside")
	}
	if got, r := h.readFile("sparse", 1<<39, 100); len(got) != 100 || r.Error != "" {
		t.Errorf("sparse: %d %+v", len(got), r)
	}
	var files []wire.FileInfo
	decodeResult(t, h.must(wire.Request{Op: wire.OpList}), &files)
	kinds := map[string]string{}
	for _, f := range files {
		kinds[f.Path] = f.Kind + " " + f.Link
	}
	for p, want := range map[string]string{"out": "link /etc/passwd", "fifo": "other ", "dir": "dir ", "real": "file ",
		`bad\xffname`: "file ", `new\nline`: "file ", `rtl\u202egnp.exe`: "file ", "etc": "link /etc", "loop": "link loop"} {
		if kinds[p] != want {
			t.Errorf("%s is listed as %q, want %q (%v)", p, kinds[p], want, kinds)
		}
	}
	h.must(wire.Request{Op: wire.OpRemove, Path: "etc"})
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Error("removing a link removed what it points to")
	}
}

func TestFullWorkspace(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can mount the small file system this needs")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,nr_inodes=20"); err != nil {
		t.Skipf("skipped: no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s := newSandbox(t, nil, "--workspace", dir)
	h := s.connect(0)
	if r := h.writeFile("a", make([]byte, 500000), wire.End{}); r.Error != "" {
		t.Fatal(r)
	}
	if r := h.writeFile("b", make([]byte, 500000), wire.End{}); r.Error != "" {
		t.Logf("second file: %+v", r)
	}
	if r := h.writeFile("c", make([]byte, 500000), wire.End{}); r.Code != wire.CodeFull {
		t.Errorf("a full workspace: %+v", r)
	}
	for i := range 25 {
		if r := h.call(wire.Request{Op: wire.OpMkdir, Path: fmt.Sprintf("d%d", i)}); r.Error != "" && r.Code != wire.CodeFull {
			t.Errorf("full of inodes: %+v", r)
		}
	}
	if left := listDir(t, dir); strings.Contains(left, tempPrefix) {
		t.Errorf("left %s", left)
	}
}

func TestRunsReportFiles(t *testing.T) {
	t.Parallel()
	s, h := testKernel(t, nil)
	if r := h.writeFile("given.csv", []byte("1"), wire.End{}); r.Error != "" {
		t.Fatal(r)
	}
	o := h.ok("import os\nos.mkdir('d')\nopen('d/new.txt', 'w').write('x')\nos.symlink('/etc/passwd', 'l')\nos.mkfifo('p')\nopen(b'b\\xffd', 'w').close()")
	got := map[string]string{}
	for _, f := range o.files.Changed {
		got[f.Path] = f.Kind
	}
	for p, kind := range map[string]string{"d": "dir", "d/new.txt": "file", "l": "link", "p": "other", `b\xffd`: "file"} {
		if got[p] != kind {
			t.Errorf("%s: %q, want %q", p, got[p], kind)
		}
	}
	if len(got) != 5 {
		t.Errorf("changed %v; what the host wrote is not the run's", got)
	}
	if o := h.ok("1"); len(o.files.Changed)+len(o.files.Removed) != 0 {
		t.Errorf("nothing changed, but %+v", o.files)
	}
	o = h.ok("open('d/new.txt', 'w').write('y')\nos.remove('given.csv')")
	if len(o.files.Changed) != 1 || o.files.Changed[0].Path != "d/new.txt" || len(o.files.Removed) != 1 || o.files.Removed[0] != "given.csv" {
		t.Errorf("changes %+v", o.files)
	}
	h.must(wire.Request{Op: wire.OpRemove, Path: "d"})
	if o := h.ok("2"); len(o.files.Removed) != 0 {
		t.Errorf("what the host removed is said to be the run's: %+v", o.files)
	}
	o = h.ok("for i in range(700): open(f'many{i}', 'w').close()")
	if len(o.files.Changed) != maxChanges || o.files.More != 700-maxChanges {
		t.Errorf("%d changed, %d more", len(o.files.Changed), o.files.More)
	}
	o = h.ok("p = 'deep'\nfor i in range(200):\n    os.mkdir(p); p += '/x'")
	if len(o.files.Changed) > maxDepth+1 {
		t.Errorf("%d levels are listed", len(o.files.Changed))
	}
	_ = s
}

func TestCommands(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil)
	h := s.connect(0)
	run := func(cmd wire.Command, input string) (wire.CommandResult, string, string, wire.Reply) {
		t.Helper()
		number := h.stream()
		id := h.post(wire.Request{Op: wire.OpCommand, Cmd: &cmd}, number)
		h.sendData(number, []byte(input), wire.End{})
		r := h.reply(id)
		var res wire.CommandResult
		if r.Error == "" {
			decodeResult(t, r, &res)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		var out [2]string
		for i := range out {
			if b := h.streams[number+uint32(i)]; b != nil {
				out[i] = b.String()
			}
			if _, ended := h.ends[number+uint32(i)]; !ended && r.Error == "" {
				t.Errorf("stream %d of %v did not end before the reply", i, cmd.Argv)
			}
		}
		return res, out[0], out[1], r
	}
	sh := func(script string) wire.Command { return wire.Command{Argv: []string{"sh", "-c", script}} }
	res, out, errs, _ := run(sh("cat; echo oops >&2; pwd; exit 3"), "given\n")
	if res.Code != 3 || out != "given\n"+s.dir+"\n" || errs != "oops\n" {
		t.Errorf("%+v %q %q", res, out, errs)
	}
	if res, _, _, _ := run(sh("kill -9 $$"), ""); res.Signal != 9 || res.Code != 137 {
		t.Errorf("killed: %+v", res)
	}
	from := time.Now()
	c := sh("sleep 100 & sleep 100")
	c.TimeoutMS = 100
	if res, _, _, _ := run(c, ""); !res.TimedOut || time.Since(from) > 5*time.Second {
		t.Errorf("timeout: %+v after %s", res, time.Since(from))
	}
	from = time.Now()
	if res, out, _, _ := run(sh("setsid sleep 5 & echo done"), ""); res.Code != 0 || out != "done\n" || time.Since(from) > 3*time.Second {
		t.Errorf("a daemon holds the output: %+v %q after %s", res, out, time.Since(from))
	}
	if _, out, _, _ := run(sh("yes | head -c 3000000"), ""); len(out) != 3000000 {
		t.Errorf("%d bytes", len(out))
	}
	if _, out, _, _ := run(wire.Command{Argv: []string{"env"}, Env: []string{"A=b"}}, ""); !strings.Contains(out, "A=b\n") || strings.Contains(out, asGuest) {
		t.Errorf("env %q", out)
	}
	for _, c := range []wire.Command{{}, {Argv: []string{"no-such-program"}}, {Argv: []string{"/etc/passwd"}}, {Argv: []string{"sh"}, Dir: "../.."},
		{Argv: []string{"a\x00b"}}, {Argv: []string{"sh", strings.Repeat("x", 2<<20)}}, {Argv: []string{"sh"}, Dir: "nowhere"}} {
		if _, _, _, r := run(c, ""); r.Code != wire.CodeInvalid {
			t.Errorf("%.60v: %+v", c.Argv, r)
		}
	}
	// A command outlives the kernel's end, but not its connection.
	h.start(1)
	number := h.stream()
	id := h.post(wire.Request{Op: wire.OpCommand, Cmd: &wire.Command{Argv: []string{"sh", "-c", "echo $$; read x; echo got $x"}}}, number)
	pid := 0
	h.until("pid", func() bool {
		b := h.streams[number]
		if b != nil {
			_, _ = fmt.Sscan(b.String(), &pid)
		}
		return pid > 0
	})
	h.must(wire.Request{Op: wire.OpStop})
	h.sendData(number, []byte("it\n"), wire.End{})
	if r := h.reply(id); r.Error != "" || !strings.HasSuffix(h.streams[number].String(), "got it\n") {
		t.Errorf("after the kernel's end: %+v", r)
	}
	number = h.stream()
	h.post(wire.Request{Op: wire.OpCommand, Cmd: &wire.Command{Argv: []string{"sh", "-c", "echo $$; sleep 1000"}}}, number)
	h.until("pid", func() bool {
		b := h.streams[number]
		if b != nil {
			_, _ = fmt.Sscan(b.String(), &pid)
		}
		return b != nil
	})
	var use wire.Usage
	decodeResult(t, h.must(wire.Request{Op: wire.OpUsage}), &use)
	if use.Procs < 1 || use.Memory < 100000 {
		t.Errorf("usage %+v", use)
	}
	h.close()
	for range 1000 {
		if _, ok := readStat(pid); !ok {
			return
		}
		pause(10 * time.Millisecond)
	}
	t.Errorf("process %d lives on without its host", pid)
}

func TestShown(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain.txt": "plain.txt", "é 😀": "é 😀", "a\nb": `a\nb`, "\xff": `\xff`, "a\u202eb": `a\u202eb`, "q\"q": `q"q`, `b\s`: `b\\s`, "\x1b[0m": `\x1b[0m`, "\u200b": `\u200b`,
	} {
		got := shown(in)
		if got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
		if got != in && checkPath(got) == nil {
			t.Errorf("%q is shown as %s, which is a valid path of something else", in, got)
		}
	}
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"a/b", "../x", "/", "a\x00", "\xff", "a/./b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if checkPath(p) != nil {
			return
		}
		if filepath.Clean(p) != p || filepath.IsAbs(p) || !filepath.IsLocal(p) || strings.ContainsAny(p, "\x00\n\\") {
			t.Errorf("%q passes", p)
		}
		if shown(p) != p && !strings.ContainsFunc(p, func(r rune) bool { return r > 126 || r < 32 }) {
			t.Errorf("%q is shown as %q", p, shown(p))
		}
	})
}

// What a thread writes when its run is long over is reported, as no run's.
func TestFilesChangedBetweenRuns(t *testing.T) {
	t.Parallel()
	_, h := testKernel(t, nil)
	h.ok("import threading\ndef late():\n    open('late.txt', 'w').write('x')\nthreading.Timer(0.3, late).start()")
	e := h.event("the file", func(e wire.Event) bool {
		return e.Type == wire.EventFiles && strings.Contains(string(e.Content), "late.txt")
	})
	if e.Run != "" {
		t.Errorf("it is said to be of run %s", e.Run)
	}
}
