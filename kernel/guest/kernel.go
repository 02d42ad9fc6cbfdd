package guest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sandbook/kernel/wire"
)

// Bounds of a kernel.
const (
	startWithin  = 30 * time.Second       // from start to ready
	answerWithin = 5 * time.Second        // a question to the kernel before it is interrupted
	eofGrace     = 300 * time.Millisecond // from a closed channel to the end of the process
	maxQuestions = 32
	burstAfter   = 8
	burstPause   = time.Millisecond

	closedChannel = 70         // exit code of a driver that cannot reach us
	maxPipes      = 128        // pairs of pipes of ended runs still held open by background processes
	stray         = ^uint32(0) // number that stands for every run not kept
	keepRuns      = 64         // ended runs whose late output is still attributed to them
	readSize      = 64 << 10
	// pipeRoom is how much an ordinary pipe holds: having read so much after a
	// moment means having read everything written before it.
	pipeRoom = 64 << 10
)

// kernel is one generation: a driver process and the loop that owns its state.
// Everything below mu's fields is touched only by the loop; others post.
type kernel struct {
	gen   int
	d     *driver
	poll  *poller
	spool *spool
	procs *procs
	grace time.Duration
	ended func()       // called when the generation is over, before its last event
	after func(string) // called when a run has ended

	mu     sync.Mutex
	posted []func()
	closed bool
	gone   chan struct{} // closed when the generation is over

	waiting atomic.Bool // for room in the spool

	isReady   bool
	ready     time.Time // deadline until ready
	number    uint32    // of the latest run
	runs      map[uint32]*output
	pipes     map[int]*printPipe
	run       *run // in progress, or waiting for the kernel to be ready
	questions map[uint64]*question
	up        []byte // records not parsed yet
	upEnded   time.Time
	cut       time.Time // since when requests cannot be sent, for cutWhy
	cutWhy    string
	join      joiner
	paused    bool
	dead      *exit
	reason    string // why we are ending it
	asked     bool
	over      bool
	buf       []byte
	burst     int    // looks in a row that found nothing but a little text
	startup   []byte // what was printed before the kernel was ready
}

// run is the execution in progress.
type run struct {
	wire.Run
	number   uint32
	started  bool
	from     time.Time
	cpu      time.Duration
	deadline time.Time // of the timeout
	timedOut bool

	interrupted bool
	stage       int
	next        time.Time // when the next stage is due

	serial uint32 // of a pending input, 0 for none
}

// printPipe is what a run's processes print to.
type printPipe struct {
	fd     int
	number uint32
	name   string
}

// question is a request the driver answers.
type question struct {
	reply    func(result json.RawMessage, err string)
	deadline time.Time
	tries    int
}

func newKernel(gen int, d *driver, s *spool, p *procs, grace time.Duration) (*kernel, error) {
	poll, err := newPoller()
	if err != nil {
		return nil, fmt.Errorf("make poller: %w", err)
	}
	k := &kernel{
		gen: gen, d: d, poll: poll, spool: s, procs: p, grace: grace,
		gone: make(chan struct{}), ready: time.Now().Add(startWithin),
		runs: map[uint32]*output{}, pipes: map[int]*printPipe{},
		questions: map[uint64]*question{}, buf: make([]byte, readSize),
	}
	d.failed = k.cannotSend
	k.watch(d.out, 0, "stdout")
	k.watch(d.err, 0, "stderr")
	if err := poll.add(d.up); err != nil {
		poll.close()
		return nil, fmt.Errorf("watch the driver: %w", err)
	}
	return k, nil
}

// post runs f in the loop. It reports false when the generation is over.
func (k *kernel) post(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	k.posted = append(k.posted, f)
	k.poll.wake()
	return true
}

// loop owns the kernel until it is over.
func (k *kernel) loop() {
	written := make(chan struct{})
	go func() { defer close(written); k.d.write() }()
	go func() {
		e := <-k.d.ended
		k.post(func() { k.dead = &e })
	}()
	k.spool.onRoom(func() {
		if k.waiting.Load() {
			k.post(func() {})
		}
	})
	var fds []int
	for !k.over {
		k.breathe()
		fds = k.poll.wait(k.deadline(), fds)
		k.takePosted()
		if len(fds) == 0 {
			k.burst = 0
		}
		now := time.Now()
		if k.dead == nil {
			k.throttle()
			if !k.paused {
				k.pump(fds, now)
			}
		}
		k.tick(now)
		if k.dead != nil {
			k.finish(now)
		}
	}
	k.d.stop()
	<-written
	k.mu.Lock()
	k.closed = true
	left := k.posted
	k.posted = nil
	k.poll.close()
	k.mu.Unlock()
	for _, f := range left {
		f()
	}
	k.d.close()
	close(k.gone)
}

// breathe waits a moment when small pieces of text come one after another. They
// are joined before they are sent anyway, and a kernel that prints does not
// have to wake us for each.
func (k *kernel) breathe() {
	if k.burst >= burstAfter {
		pause(burstPause)
	}
}

func (k *kernel) takePosted() {
	k.mu.Lock()
	fs := k.posted
	k.posted = nil
	k.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

// throttle stops reading while the spool is full, so that the kernel's own
// writes wait, and goes on when there is room.
func (k *kernel) throttle() {
	full := k.spool.full()
	if full == k.paused {
		return
	}
	k.waiting.Store(full)
	if full && !k.spool.full() { // room was made before waiting was seen
		k.waiting.Store(false)
		return
	}
	k.paused = full
	if full {
		k.poll.remove(k.d.up)
		for fd := range k.pipes {
			k.poll.remove(fd)
		}
		return
	}
	if k.upEnded.IsZero() {
		_ = k.poll.add(k.d.up)
	}
	for fd := range k.pipes {
		_ = k.poll.add(fd)
	}
}

// emit stamps an event and spools it.
func (k *kernel) emit(e wire.Event) {
	e.Gen, e.At = k.gen, time.Now().UnixMilli()
	k.spool.add(e)
}

func (k *kernel) watch(fd int, number uint32, name string) {
	k.pipes[fd] = &printPipe{fd: fd, number: number, name: name}
	if !k.paused {
		_ = k.poll.add(fd)
	}
}

// output returns where output of the numbered run goes. A run that is long
// past, or never was, has none of its own.
func (k *kernel) output(number uint32) *output {
	o := k.runs[number]
	if o == nil && !k.isReady {
		return nil
	}
	if o == nil {
		if o = k.runs[stray]; o == nil {
			o = newOutput("", 1<<20, k.emit)
			o.over = true
			k.runs[stray] = o
		}
	}
	return o
}

// pump moves what the kernel printed and said into events. What was printed
// through descriptors comes before a record that was written later, so the
// records are read first and looked at last.
func (k *kernel) pump(fds []int, now time.Time) {
	upReady := false
	for _, fd := range fds {
		upReady = upReady || fd == k.d.up
	}
	if upReady && k.upEnded.IsZero() {
		n, ended := read(k.d.up, k.buf)
		k.up = append(k.up, k.buf[:n]...)
		k.burst++
		if n == len(k.buf) {
			k.burst = 0
		}
		if ended {
			k.upEnded = now
			k.poll.remove(k.d.up)
		}
	}
	for _, fd := range fds {
		if p := k.pipes[fd]; p != nil {
			k.drain(p, now)
		}
	}
	if len(k.up) > 0 {
		for _, p := range k.pipes {
			if p.number == k.number {
				k.drain(p, now)
			}
		}
		k.records(now)
	}
}

// drain reads what is in a pipe now, at most what it can hold.
func (k *kernel) drain(p *printPipe, now time.Time) {
	for got := 0; got < pipeRoom; {
		n, ended := read(p.fd, k.buf)
		if n > 0 {
			k.print(p.number, p.name, k.buf[:n], now)
			got += n
		}
		if ended {
			k.unwatch(p)
		}
		if n == 0 || ended {
			return
		}
	}
}

func (k *kernel) unwatch(p *printPipe) {
	if !k.paused {
		k.poll.remove(p.fd)
	}
	_ = syscall.Close(p.fd)
	delete(k.pipes, p.fd)
}

func (k *kernel) print(number uint32, name string, text []byte, now time.Time) {
	o := k.output(number)
	if o == nil {
		k.startup = append(k.startup, text...)
		if len(k.startup) > 4096 {
			k.startup = k.startup[len(k.startup)-4096:]
		}
		return
	}
	o.write(name, text, now)
}

func (k *kernel) records(now time.Time) {
	b := k.up
	for {
		r, rest, ok, err := nextRecord(b)
		if err != nil {
			k.end("The code wrote into the notebook's own channel, so the kernel was ended.", true)
			b = nil
			break
		}
		if !ok {
			break
		}
		b = rest
		switch r.kind {
		case recordStdout:
			k.print(r.run, "stdout", r.payload, now)
		case recordStderr:
			k.print(r.run, "stderr", r.payload, now)
		default:
			message, tooBig := k.join.add(r)
			if tooBig {
				k.print(r.run, "stderr", []byte(tooLarge), now)
			}
			if message != nil {
				k.message(r.run, message, now)
			}
		}
	}
	k.up = append(k.up[:0], b...)
}

// outputEvents are the messages of a driver that become events as they are.
var outputEvents = map[string]wire.EventType{
	"display": wire.EventDisplay,
	"result":  wire.EventResult,
	"update":  wire.EventUpdate,
	"clear":   wire.EventClear,
	"error":   wire.EventError,
	"comm":    wire.EventComm,
}

func (k *kernel) message(number uint32, b []byte, now time.Time) {
	k.burst = 0
	var m driverMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return // what is no message is dropped
	}
	if t, ok := outputEvents[m.Type]; ok {
		o := k.output(number)
		if o == nil || len(m.Content) == 0 || m.Content[0] != '{' {
			return
		}
		o.finish(now)
		k.emit(wire.Event{Type: t, Run: o.run, Background: o.over, Content: m.Content})
		return
	}
	switch m.Type {
	case "ready":
		k.becomeReady(m)
	case "run_end":
		if k.run != nil && k.run.started && number == k.run.number {
			k.endRun(m, now)
		}
	case "input":
		k.askInput(number, m, now)
	case "reply":
		if q := k.questions[m.ID]; q != nil {
			delete(k.questions, m.ID)
			q.reply(m.Result, cutText(m.Error, 1000))
		}
	}
}

func (k *kernel) becomeReady(m driverMessage) {
	if k.isReady {
		return
	}
	k.isReady = true
	features := m.Features
	if len(features) > 32 {
		features = features[:32]
	}
	for i := range features {
		features[i] = cutText(features[i], 32)
	}
	k.emit(wire.Event{Type: wire.EventReady, Content: encode(wire.KernelInfo{
		Language: cutText(m.Language, 32), Version: cutText(m.Version, 64),
		Implementation: cutText(m.Implementation, 200), Pid: k.d.pid, Features: features,
	})})
	if k.run != nil {
		k.begin()
	}
}

func (k *kernel) askInput(number uint32, m driverMessage, now time.Time) {
	r := k.run
	if r == nil || !r.started || r.number != number || m.Serial == 0 || len(m.Content) == 0 || m.Content[0] != '{' {
		return
	}
	k.output(number).finish(now)
	r.serial = m.Serial
	k.emit(wire.Event{Type: wire.EventInput, Run: r.ID, Content: m.Content})
}

// deadline returns when the loop must wake by itself.
func (k *kernel) deadline() time.Time {
	var t time.Time
	soonest := func(at time.Time) {
		if !at.IsZero() && (t.IsZero() || at.Before(t)) {
			t = at
		}
	}
	for _, o := range k.runs {
		soonest(o.next())
	}
	if !k.isReady {
		soonest(k.ready)
	}
	if !k.upEnded.IsZero() {
		soonest(k.upEnded.Add(eofGrace))
	}
	if !k.cut.IsZero() {
		soonest(k.cut.Add(eofGrace))
	}
	if r := k.run; r != nil {
		if !r.timedOut {
			soonest(r.deadline)
		}
		soonest(r.next)
	}
	for _, q := range k.questions {
		soonest(q.deadline)
	}
	return t
}

// tick does what is due.
func (k *kernel) tick(now time.Time) {
	for _, o := range k.runs {
		o.tick(now)
	}
	if k.dead != nil {
		return
	}
	due := func(at time.Time) bool { return !at.IsZero() && !at.After(now) }
	if !k.isReady && due(k.ready) {
		k.ready = time.Time{}
		k.end("The interpreter did not become ready in time.", true)
	}
	if !k.upEnded.IsZero() && due(k.upEnded.Add(eofGrace)) {
		k.upEnded = now.Add(time.Hour)
		k.end("The code closed the channel to the notebook, or replaced the interpreter with another program, so the kernel was ended.", false)
	}
	if !k.cut.IsZero() && due(k.cut.Add(eofGrace)) {
		k.cut = now.Add(time.Hour) // a kernel that has ended by itself says so first
		k.end(k.cutWhy, false)
	}
	if r := k.run; r != nil {
		if !r.timedOut && due(r.deadline) {
			r.timedOut = true
			if r.stage == 0 {
				k.escalate(now)
			}
		}
		if due(r.next) {
			k.escalate(now)
		}
	}
	for id, q := range k.questions {
		if due(q.deadline) {
			k.hurry(id, q, now)
		}
	}
}

// hurry interrupts a question that takes too long, and then gives it up.
func (k *kernel) hurry(id uint64, q *question, now time.Time) {
	q.tries++
	if q.tries < 2 && k.run == nil {
		_ = syscall.Kill(k.d.pid, syscall.SIGINT)
		q.deadline = now.Add(k.grace)
		return
	}
	delete(k.questions, id)
	q.reply(nil, "The kernel did not answer in time.")
}

// end kills the kernel; its end is reported when the process is reaped.
func (k *kernel) end(reason string, asked bool) {
	if k.reason == "" {
		k.reason, k.asked = reason, asked
	}
	if k.dead == nil && !k.over {
		_ = syscall.Kill(k.d.pid, syscall.SIGKILL)
	}
}

// finish reports the end of the generation. The process is reaped.
func (k *kernel) finish(now time.Time) {
	k.procs.killKernel()
	for range 64 { // whatever is still in the channel
		n, _ := read(k.d.up, k.buf)
		if n == 0 {
			break
		}
		k.up = append(k.up, k.buf[:n]...)
	}
	for _, p := range k.pipes {
		k.drain(p, now)
	}
	k.records(now)
	for _, p := range k.pipes {
		k.unwatch(p)
	}
	died := wire.Died{Asked: k.asked, Reason: k.reason, Peak: k.dead.usage.Maxrss << 10}
	if st := k.dead.status; st.Signaled() {
		died.Signal = int(st.Signal())
		died.Code = 128 + died.Signal
	} else {
		died.Code = st.ExitStatus()
	}
	if died.Reason == "" {
		died.Reason = k.explain(died)
	}
	for _, o := range k.runs {
		o.finish(now)
	}
	if r := k.run; r != nil {
		k.killedRun(r, died, now)
	}
	for id, q := range k.questions {
		delete(k.questions, id)
		q.reply(nil, "The kernel ended.")
	}
	k.ended()
	k.emit(wire.Event{Type: wire.EventDied, Content: encode(died)})
	k.over = true
}

// explain finds a sentence for an end that nobody asked for.
func (k *kernel) explain(d wire.Died) string {
	switch {
	case !k.isReady:
		text := strings.TrimSpace(strings.ToValidUTF8(string(k.startup), "\uFFFD"))
		if i := strings.LastIndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
		if text != "" {
			return fmt.Sprintf("The interpreter ended before it was ready, with code %d. It said: %s.", d.Code, strings.TrimRight(cutText(text, 500), "."))
		}
		return fmt.Sprintf("The interpreter ended before it was ready, with code %d.", d.Code)
	case d.Signal == 0 && d.Code == closedChannel:
		return "The code closed the channel to the notebook, so the kernel ended."
	case d.Signal == int(syscall.SIGKILL):
		return "The kernel was killed (SIGKILL), as the system does when memory runs out or code asks for it."
	case d.Signal != 0:
		return fmt.Sprintf("The kernel crashed with signal %d (%s).", d.Signal, syscall.Signal(d.Signal))
	default:
		return fmt.Sprintf("The code ended the kernel process with exit code %d.", d.Code)
	}
}
