package guest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"sandbook/kernel/guest/drivers"
	"sandbook/kernel/wire"
)

// driver is a started driver process and its descriptors. See drivers/python.py
// for what goes over them.
type driver struct {
	pid   int
	ended <-chan exit

	requests int // socket to the driver
	up       int // records from the driver
	input    int // answers to input()

	out, err int // pipes of what is printed before the first run

	mu    sync.Mutex
	queue []downMessage
	busy  bool // write is sending one
	ready *sync.Cond
	done  bool

	send   sender
	failed func(error) // called once when requests cannot be sent any more
}

// sender sends some of the data, with the descriptors if there are any.
type sender func(fd int, data []byte, fds []int, flags int) (int, error)

// downMessage is a request to the driver; the descriptors are closed once sent.
type downMessage struct {
	data []byte
	fds  []int
}

// language names what a kernel can be; there is one driver so far.
const pythonLanguage = "python"

func startDriver(p *procs, spec wire.StartKernel, dir string) (*driver, error) {
	if spec.Language != "" && spec.Language != pythonLanguage {
		return nil, fmt.Errorf("This sandbox has no driver for the language %q; it has python.", spec.Language) //nolint:revive,staticcheck // a sentence for people
	}
	argv := spec.Argv
	if len(argv) == 0 {
		path, err := interpreter()
		if err != nil {
			return nil, err
		}
		argv = []string{path}
	}
	args, preamble := drivers.Python()
	argv = append(argv[:len(argv):len(argv)], args...)

	var f files
	defer f.closeTheirs()
	null, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/null: %w", err)
	}
	f.theirs = append(f.theirs, null)
	outR, outW, err := f.pipe()
	if err != nil {
		return nil, err
	}
	errR, errW, err := f.pipe()
	if err != nil {
		return nil, err
	}
	upR, upW, err := f.pipe()
	if err != nil {
		return nil, err
	}
	var in [2]int
	if err := syscall.Pipe2(in[:], syscall.O_CLOEXEC); err != nil {
		f.closeOurs()
		return nil, err
	}
	f.add(in[1], in[0])
	sock, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		f.closeOurs()
		return nil, err
	}
	f.add(sock[0], sock[1])
	growPipe(upW)

	attr := &syscall.ProcAttr{
		Dir:   dir,
		Env:   kernelEnv(spec.Env),
		Files: []uintptr{uintptr(null), uintptr(outW), uintptr(errW), uintptr(sock[1]), uintptr(upW), uintptr(in[0])}, //nolint:gosec // descriptors
	}
	pid, ended, err := p.start(argv, attr, false)
	if err != nil {
		f.closeOurs()
		return nil, fmt.Errorf("The interpreter %s could not be started: %w.", argv[0], err) //nolint:revive,staticcheck // a sentence for people
	}
	// The kernel is what the system should end when memory runs out, not us.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0)
	_ = syscall.SetNonblock(in[1], true)
	d := &driver{pid: pid, ended: ended, requests: sock[0], up: upR, input: in[1], out: outR, err: errR, send: sendSome}
	d.ready = sync.NewCond(&d.mu)
	d.queue = []downMessage{{data: preamble}}
	return d, nil
}

// kernelEnv is the environment of a kernel: the guest's, where libraries keep
// their caches outside the workspace, and what the host asks for. One variable
// of the guest's is left out: a place of its own for compiled Python files hides
// those that packages come with, and every import would compile.
func kernelEnv(asked []string) []string {
	tmp := os.TempDir()
	env := []string{
		"MPLCONFIGDIR=" + filepath.Join(tmp, "matplotlib"),
		"IPYTHONDIR=" + filepath.Join(tmp, "ipython"),
		"XDG_CACHE_HOME=" + filepath.Join(tmp, "cache"),
	}
	own := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "PYTHONPYCACHEPREFIX=") })
	// Of two variables of one name the last counts, so the guest's own
	// environment comes after these, and the host's wish after that.
	byName := map[string]int{}
	var out []string
	for _, e := range slices.Concat(env, own, asked) {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" || strings.ContainsRune(e, 0) {
			continue
		}
		if i, again := byName[name]; again {
			out[i] = e
			continue
		}
		byName[name] = len(out)
		out = append(out, e)
	}
	value := func(name string) string {
		if i, ok := byName[name]; ok {
			return strings.TrimPrefix(out[i], name+"=")
		}
		return ""
	}
	lendFontList(madeFontList, value("MPLCONFIGDIR"), value("HOME"))
	return out
}

// madeFontList is where a backend shows the list of fonts it has made for
// matplotlib, if it has.
const madeFontList = "/run/sandbook/cache/matplotlib"

// lendFontList copies a list of fonts to where matplotlib looks for its own, so
// that it need not make one. The copy is the user's, to change or remove. Who
// brings fonts of their own gets a list with them, made by matplotlib as ever,
// and a list that is there stays. All of it runs with the user's rights, so
// whatever they put in its way is theirs.
func lendFontList(from, to, home string) {
	lists, err := os.ReadDir(from)
	if err != nil || to == "" {
		return
	}
	for _, own := range []string{".fonts", ".local/share/fonts"} {
		if _, err := os.Stat(filepath.Join(home, own)); home != "" && err == nil {
			return
		}
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return
	}
	for _, l := range lists {
		text, err := os.ReadFile(filepath.Join(from, l.Name()))
		if err != nil {
			continue
		}
		f, err := os.OpenFile(filepath.Join(to, l.Name()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			continue
		}
		if _, err := f.Write(text); errors.Join(err, f.Close()) != nil {
			_ = os.Remove(f.Name())
		}
	}
}

// interpreter finds Python.
func interpreter() (string, error) {
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		return "/usr/bin/python3", nil
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		return "", errors.New("There is no python3 in this sandbox. Install Python where the sandbox's runtime comes from.") //nolint:revive,staticcheck // a sentence for people
	}
	return path, nil
}

// files are descriptors made for a process that may not start.
type files struct{ ours, theirs []int }

func (f *files) add(ours, theirs int) {
	f.ours = append(f.ours, ours)
	f.theirs = append(f.theirs, theirs)
}

func (f *files) pipe() (r, w int, err error) {
	r, w, err = pipe()
	if err != nil {
		f.closeOurs()
		return 0, 0, fmt.Errorf("make pipe: %w", err)
	}
	f.add(r, w)
	return r, w, nil
}

func (f *files) closeOurs() {
	for _, fd := range f.ours {
		_ = syscall.Close(fd)
	}
	f.ours = nil
}

func (f *files) closeTheirs() {
	for _, fd := range f.theirs {
		_ = syscall.Close(fd)
	}
}

// growPipe gives a busy pipe more room; it works without.
func growPipe(fd int) {
	const setPipeSize = 1031 // F_SETPIPE_SZ
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), setPipeSize, 256<<10)
}

// request sends a message to the driver, or queues it. It never blocks: user code may keep
// the driver from reading for as long as it likes.
func (d *driver) request(v any, fds ...int) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // requests are our own types
	}
	data = append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...) //nolint:gosec // at most MaxMessage
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		closeAll(fds)
		return
	}
	m := downMessage{data: data, fds: fds}
	if len(d.queue) == 0 && !d.busy {
		// The driver waits for us as a rule, and there is room.
		n, err := d.send(d.requests, m.data, m.fds, syscall.MSG_DONTWAIT)
		if n > 0 {
			closeAll(m.fds)
			m.data, m.fds = m.data[n:], nil
		}
		if err == nil && len(m.data) == 0 {
			return
		}
	}
	d.queue = append(d.queue, m)
	d.ready.Signal()
}

// write sends queued requests until the driver is closed or gone.
func (d *driver) write() {
	for {
		d.mu.Lock()
		for len(d.queue) == 0 && !d.done {
			d.ready.Wait()
		}
		if d.done {
			for _, m := range d.queue {
				closeAll(m.fds)
			}
			d.queue = nil
			d.mu.Unlock()
			return
		}
		m := d.queue[0]
		d.queue = d.queue[1:]
		d.busy = true
		d.mu.Unlock()
		err := d.sendAll(m.data, m.fds)
		closeAll(m.fds)
		d.mu.Lock()
		d.busy = false
		stopped := d.done
		d.done = d.done || err != nil
		d.mu.Unlock()
		if err != nil && !stopped {
			d.failed(err)
		}
	}
}

// stop makes write return, also when it is blocked.
func (d *driver) stop() {
	d.mu.Lock()
	d.done = true
	d.ready.Signal()
	d.mu.Unlock()
	_ = syscall.Shutdown(d.requests, syscall.SHUT_RDWR)
}

// close closes the descriptors; write must have returned.
func (d *driver) close() {
	closeAll([]int{d.requests, d.up, d.input})
}

// sendAll sends a request. The system refuses descriptors while the user has
// too many of them on the way to others, which code can do at will; then the
// request goes without.
func (d *driver) sendAll(data []byte, fds []int) error {
	for len(data) > 0 {
		n, err := d.send(d.requests, data, fds, 0)
		if errors.Is(err, syscall.ETOOMANYREFS) && len(fds) > 0 {
			fds = nil
			continue
		}
		if err != nil {
			return err
		}
		fds = nil
		data = data[n:]
	}
	return nil
}

// cannotSend ends a kernel that gets nothing any more, unless it has ended by
// itself and says so in a moment.
func (k *kernel) cannotSend(err error) {
	k.post(func() {
		k.cut = time.Now()
		k.cutWhy = fmt.Sprintf("Nothing can be handed to the kernel any more (%v), so it was ended.", cause(err))
	})
}

func sendSome(fd int, data []byte, fds []int, flags int) (int, error) {
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	for {
		n, err := syscall.SendmsgN(fd, data, rights, nil, flags|syscall.MSG_NOSIGNAL)
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = syscall.Close(fd)
	}
}

// Records of the driver.
const (
	recordHead    = 12
	recordMax     = 4096
	recordStdout  = 1
	recordStderr  = 2
	recordMessage = 3
	recordMore    = 1

	maxParts      = 64       // messages in pieces at one time
	maxPartsBytes = 64 << 20 // and their size together
	maxDriverText = 30 << 20 // one message
)

// record is one unit of what the driver says.
type record struct {
	kind, flags byte
	run, id     uint32
	payload     []byte
}

var errRecord = errors.New("malformed record")

// nextRecord takes a record off b. ok is false when b does not hold a whole one.
func nextRecord(b []byte) (r record, rest []byte, ok bool, err error) {
	if len(b) < recordHead {
		return r, b, false, nil
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if b[0] < recordStdout || b[0] > recordMessage || b[1] > recordMore || n > recordMax-recordHead {
		return r, b, false, errRecord
	}
	if len(b) < recordHead+n {
		return r, b, false, nil
	}
	r = record{
		kind: b[0], flags: b[1],
		run: binary.BigEndian.Uint32(b[4:]), id: binary.BigEndian.Uint32(b[8:]),
		payload: b[recordHead : recordHead+n],
	}
	return r, b[recordHead+n:], true, nil
}

// joiner puts messages together from records, within bounds.
type joiner struct {
	parts map[uint64][]byte
	size  int
}

// add returns a whole message, or nil while it is not complete. tooBig is set
// for a message that was dropped because it is over the bound.
func (j *joiner) add(r record) (message []byte, tooBig bool) {
	key := uint64(r.run)<<32 | uint64(r.id)
	have, started := j.parts[key]
	if !started && r.flags&recordMore == 0 {
		return r.payload, false
	}
	if !started {
		if j.parts == nil {
			j.parts = map[uint64][]byte{}
		}
		if len(j.parts) >= maxParts {
			j.reset()
		}
	}
	if have == nil && started { // dropped already
		if r.flags&recordMore == 0 {
			delete(j.parts, key)
			return nil, true
		}
		return nil, false
	}
	have = append(have, r.payload...)
	j.size += len(r.payload)
	if len(have) > maxDriverText || j.size > maxPartsBytes {
		j.size -= len(have)
		j.parts[key] = nil
		return nil, false
	}
	if r.flags&recordMore != 0 {
		j.parts[key] = have
		return nil, false
	}
	delete(j.parts, key)
	j.size -= len(have)
	return have, false
}

// reset forgets unfinished messages, such as those an interrupt cut off.
func (j *joiner) reset() {
	clear(j.parts)
	j.size = 0
}

// driverMessage is a JSON message of the driver.
type driverMessage struct {
	Type    string          `json:"t"`
	Content json.RawMessage `json:"content"`

	Status string `json:"status"` // run_end
	EName  string `json:"ename"`
	EValue string `json:"evalue"`

	Serial uint32 `json:"serial"` // input

	ID     uint64          `json:"id"` // reply
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`

	Language       string   `json:"language"` // ready
	Version        string   `json:"version"`
	Implementation string   `json:"implementation"`
	Features       []string `json:"features"`
}

// cutText bounds text of the driver.
func cutText(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
