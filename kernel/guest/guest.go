// Package guest is the program inside a sandbox, as a library: it supervises
// the kernel, the commands and the files there, and reports what happens to
// whichever host is connected, over kernel/wire.
//
// It is not a security boundary. It runs in the same sandbox as the code it
// supervises, so a host treats all it says as data; the walls are made by the
// backend, outside.
package guest

import (
	"encoding/json"
	"errors"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"sandbook/kernel/wire"
)

// Options configure a guest.
type Options struct {
	// Listener accepts the host. The newest connection that says Hello
	// replaces the one before.
	Listener net.Listener
	// Workspace is the folder that files and kernels live in.
	Workspace string
	// Orphan ends the guest when no host was connected for so long. 0: never.
	Orphan time.Duration
	// Spool bounds the events kept for the host, in bytes. 0: 64 MiB.
	Spool int64
	// Grace is the time between two stages of an interrupt. 0: 2 s.
	Grace time.Duration
	// Processes bounds what kernels and commands may start, threads included,
	// so that the guest keeps room for its own. 0: not bounded here.
	Processes uint64
	// Files bounds the descriptors of each process of theirs. Those in flight
	// between processes count against it too, all of the user's together, so
	// the guest should have a larger limit. 0: not bounded here.
	Files uint64
	// Posture is what the self-check found; it is passed on as it stands.
	Posture []wire.Check
}

// Exit codes of the guest.
const (
	ExitShutdown = 0
	ExitOrphan   = 75
)

// guest is the whole state. mu guards what several connections and the
// kernel's loop share; it is never held across I/O.
type guest struct {
	opts  Options
	spool *spool
	procs *procs
	ws    *workspace
	ask   uint64 // under mu: number of the last question

	mu      sync.Mutex
	kernel  *kernel
	lastGen int
	seen    map[string]struct{} // ids of every run ever taken
	conn    *conn
	quiet   time.Time // since when no host is connected
	exit    chan int

	starting sync.Mutex // one start or stop at a time
	scanning sync.Mutex
}

// Run serves until the host asks for shutdown or nobody comes for too long,
// and returns the exit code. Every process the guest started is ended then.
func Run(opts Options) (int, error) {
	if opts.Spool <= 0 {
		opts.Spool = 64 << 20
	}
	if opts.Grace <= 0 {
		opts.Grace = 2 * time.Second
	}
	ws, err := openWorkspace(opts.Workspace)
	if err != nil {
		return 1, err
	}
	g := &guest{
		opts: opts, spool: newSpool(opts.Spool), procs: newProcs(bounds{processes: opts.Processes, files: opts.Files}), ws: ws,
		seen: map[string]struct{}{}, quiet: time.Now(), exit: make(chan int, 1),
	}
	go g.accept()
	go g.watch()
	code := g.wait()
	_ = opts.Listener.Close()
	g.mu.Lock()
	c, k := g.conn, g.kernel
	g.mu.Unlock()
	if k != nil {
		k.post(func() { k.end("The sandbox was shut down.", true) })
		select {
		case <-k.gone:
		case <-time.After(2 * time.Second):
		}
	}
	g.procs.killKernel()
	if c != nil {
		c.close()
	}
	return code, nil
}

// wait returns the exit code when it is time to go.
func (g *guest) wait() int {
	var tick <-chan time.Time
	if g.opts.Orphan > 0 {
		t := time.NewTicker(max(g.opts.Orphan/20, 10*time.Millisecond))
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case code := <-g.exit:
			return code
		case now := <-tick:
			g.mu.Lock()
			orphan := g.conn == nil && now.Sub(g.quiet) > g.opts.Orphan
			g.mu.Unlock()
			if orphan {
				return ExitOrphan
			}
		}
	}
}

func (g *guest) accept() {
	for {
		c, err := g.opts.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			pause(10 * time.Millisecond) // such as too many open files
			continue
		}
		go g.serve(c)
	}
}

// adopt makes c the connection of the guest.
func (g *guest) adopt(c *conn) {
	g.mu.Lock()
	old := g.conn
	g.conn = c
	g.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// release forgets c when its connection has ended.
func (g *guest) release(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn == c {
		g.conn = nil
		g.quiet = time.Now()
		g.spool.listen(nil)
	}
}

// listen lets c know of new events, unless another connection has taken over.
func (g *guest) listen(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn != c {
		return
	}
	g.spool.listen(c.nudge)
}

// welcome describes the guest to a host that has everything up to since.
func (g *guest) welcome(since uint64) wire.Welcome {
	g.spool.ack(since)
	first, last := g.spool.bounds()
	w := wire.Welcome{Version: wire.Version, First: first, Last: last, Posture: g.opts.Posture}
	g.mu.Lock()
	k := g.kernel
	g.mu.Unlock()
	if k == nil {
		return w
	}
	w.Gen = k.gen
	got := make(chan string, 1)
	if k.post(func() {
		id := ""
		if k.run != nil {
			id = k.run.ID
		}
		got <- id
	}) {
		select {
		case w.Run = <-got:
		case <-k.gone:
		}
	}
	return w
}

// startKernel starts generation gen unless it is live or past.
func (g *guest) startKernel(gen int, spec wire.StartKernel) (wire.ErrorCode, string) {
	if gen <= 0 {
		return wire.CodeInvalid, "A kernel's generation counts from 1."
	}
	g.starting.Lock()
	defer g.starting.Unlock()
	g.mu.Lock()
	last := g.lastGen
	g.mu.Unlock()
	if gen <= last {
		return "", ""
	}
	g.stopKernel("The kernel was replaced by a new one.")
	g.ws.baseline()
	d, err := startDriver(g.procs, spec, g.opts.Workspace)
	if err != nil {
		return wire.CodeFailed, sentence(err)
	}
	k, err := newKernel(gen, d, g.spool, g.procs, g.opts.Grace)
	if err != nil {
		_ = syscall.Kill(d.pid, syscall.SIGKILL)
		return wire.CodeFailed, sentence(err)
	}
	k.ended = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.kernel == k {
			g.kernel = nil
		}
	}
	k.after = func(run string) {
		go func() {
			runtime.Gosched() // the end of the run goes out first
			g.reportFiles(gen, run)
		}()
	}
	g.mu.Lock()
	g.kernel, g.lastGen = k, gen
	g.mu.Unlock()
	go k.loop()
	return "", ""
}

// stopKernel ends the live kernel, if any, and waits until it is gone. The
// caller holds starting.
func (g *guest) stopKernel(reason string) {
	g.mu.Lock()
	k := g.kernel
	g.mu.Unlock()
	if k == nil {
		return
	}
	k.post(func() { k.end(reason, true) })
	<-k.gone
}

// live returns the kernel of the generation; 0 means whichever lives.
func (g *guest) live(gen int) *kernel {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.kernel == nil || (gen != 0 && g.kernel.gen != gen) {
		return nil
	}
	return g.kernel
}

// startRun takes a run at most once in the guest's life.
func (g *guest) startRun(k *kernel, r wire.Run) (wire.ErrorCode, string) {
	g.mu.Lock()
	_, known := g.seen[r.ID]
	g.mu.Unlock()
	if known {
		return "", ""
	}
	code, sentence := k.start(r)
	if code == "" {
		g.mu.Lock()
		g.seen[r.ID] = struct{}{}
		g.mu.Unlock()
	}
	return code, sentence
}

// reportFiles sends what changed in the workspace since the last report. After a
// run it is sent also when nothing did; between runs, without one, it is not.
func (g *guest) reportFiles(gen int, run string) {
	g.scanning.Lock()
	defer g.scanning.Unlock()
	files := g.ws.changes()
	if run == "" && len(files.Changed)+len(files.Removed)+files.More == 0 {
		return
	}
	g.spool.add(wire.Event{Type: wire.EventFiles, Gen: gen, Run: run, At: time.Now().UnixMilli(), Content: encode(files)})
}

// watchEvery is how often the workspace is looked at between runs.
const watchEvery = 2 * time.Second

// watch reports what changes in the workspace while no run is in progress, such
// as by a thread or a program that a run left behind. Where nothing has used
// the processor nothing has changed, so an idle sandbox is only looked at.
func (g *guest) watch() {
	var last int64
	for range time.Tick(watchEvery) { // ends with the program
		k := g.live(0)
		idle := make(chan bool, 1)
		if k == nil || !k.post(func() { idle <- k.run == nil }) || !<-idle {
			continue
		}
		used := int64(cpuTime(k.d.pid)) // to the nanosecond; others are counted in ticks
		for _, st := range children() {
			used += st.utime + st.stime + int64(st.pid)<<32
		}
		if used == last {
			continue
		}
		last = used
		g.reportFiles(k.gen, "")
	}
}

// question numbers a request to a driver.
func (g *guest) question() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ask++
	return g.ask
}

// sentence makes an error fit for people.
func sentence(err error) string {
	s := err.Error()
	if s == "" {
		return "Something failed."
	}
	if c := s[0]; c >= 'a' && c <= 'z' {
		s = string(c-'a'+'A') + s[1:]
	}
	if last := s[len(s)-1]; last != '.' && last != '!' && last != '?' {
		s += "."
	}
	return cutText(s, 1000)
}

func result(v any) json.RawMessage { return encode(v) }
