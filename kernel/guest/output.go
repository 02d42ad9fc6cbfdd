package guest

import (
	"bytes"
	"time"
	"unicode/utf8"

	"sandbook/kernel/wire"
)

// Bounds of text output.
const (
	flushAfter   = 15 * time.Millisecond // text waits at most so long for more
	flushSize    = 32 << 10              // or until there is so much
	tailSize     = 32 << 10              // what is kept of text beyond a run's limit
	omittedEvery = time.Second
)

// output turns the text of one run into events. It joins small writes, mends
// UTF-8 that was cut, and beyond the run's limit keeps only a rolling tail and
// exact counts. It belongs to the kernel's loop.
type output struct {
	run   string
	limit int64 // bytes sent whole; 0: all
	sent  int64
	over  bool // the run has ended; what comes now is background
	emit  func(wire.Event)

	name    string // of the stream that pending belongs to
	pending []byte
	due     time.Time // when pending must go
	split   map[string][]byte
	omitted map[string]*omitted
}

// omitted is what one stream has had left out since the last event about it.
type omitted struct {
	bytes, lines int64
	tail         ring
	due          time.Time
}

func newOutput(run string, limit int64, emit func(wire.Event)) *output {
	return &output{run: run, limit: limit, emit: emit}
}

// write takes text of a stream.
func (o *output) write(name string, p []byte, now time.Time) {
	if len(p) == 0 {
		return
	}
	if cut := o.split[name]; len(cut) > 0 {
		p = append(cut, p...)
		delete(o.split, name)
	}
	if n := incomplete(p); n > 0 {
		if o.split == nil {
			o.split = map[string][]byte{}
		}
		o.split[name] = bytes.Clone(p[len(p)-n:])
		p = p[:len(p)-n]
	}
	o.text(name, p, now)
}

// text takes whole characters, or what will never become one.
func (o *output) text(name string, p []byte, now time.Time) {
	if len(p) == 0 {
		return
	}
	if o.limit > 0 && o.sent+int64(len(p)) > o.limit {
		keep := int(max(0, o.limit-o.sent))
		for keep > 0 && keep < len(p) && !utf8.RuneStart(p[keep]) {
			keep--
		}
		o.pend(name, p[:keep], now)
		o.sent = o.limit
		o.omit(name, p[keep:], now)
		return
	}
	o.pend(name, p, now)
}

func (o *output) pend(name string, p []byte, now time.Time) {
	if len(p) == 0 {
		return
	}
	o.sent += int64(len(p))
	if o.name != name {
		o.flush()
		o.name = name
	}
	if len(o.pending) == 0 {
		o.due = now.Add(flushAfter)
	}
	for len(o.pending)+len(p) >= flushSize {
		n := min(len(p), flushSize-len(o.pending))
		for n > 0 && n < len(p) && !utf8.RuneStart(p[n]) {
			n--
		}
		if n == 0 && len(o.pending) == 0 { // no character starts here: it is not text
			n = min(len(p), flushSize)
		}
		o.pending = append(o.pending, p[:n]...)
		p = p[n:]
		o.flush()
		o.due = now.Add(flushAfter)
	}
	o.pending = append(o.pending, p...)
}

func (o *output) omit(name string, p []byte, now time.Time) {
	if len(p) == 0 {
		return
	}
	if o.omitted == nil {
		o.omitted = map[string]*omitted{}
	}
	om := o.omitted[name]
	if om == nil {
		om = &omitted{due: now.Add(omittedEvery / 10)}
		o.omitted[name] = om
	}
	if om.bytes == 0 && om.due.Before(now) {
		om.due = now.Add(omittedEvery)
	}
	om.bytes += int64(len(p))
	om.lines += int64(bytes.Count(p, []byte{'\n'}))
	om.tail.write(p)
}

// flush sends the text that waits.
func (o *output) flush() {
	if len(o.pending) == 0 {
		return
	}
	o.emit(wire.Event{Type: wire.EventStream, Run: o.run, Name: o.name, Background: o.over, Data: valid(o.pending)})
	o.pending = o.pending[:0]
}

// next returns when tick wants to be called, zero for never.
func (o *output) next() time.Time {
	var t time.Time
	if len(o.pending) > 0 {
		t = o.due
	}
	for _, om := range o.omitted {
		if om.bytes > 0 && (t.IsZero() || om.due.Before(t)) {
			t = om.due
		}
	}
	return t
}

// tick sends what is due.
func (o *output) tick(now time.Time) {
	if len(o.pending) > 0 && !o.due.After(now) {
		o.flush()
	}
	for _, name := range []string{"stdout", "stderr"} {
		if om := o.omitted[name]; om != nil && om.bytes > 0 && !om.due.After(now) {
			o.report(name, om)
			om.due = now.Add(omittedEvery)
		}
	}
}

func (o *output) report(name string, om *omitted) {
	o.flush()
	tail := om.tail.bytes()
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	o.emit(wire.Event{
		Type: wire.EventOmitted, Run: o.run, Name: name, Background: o.over, Data: valid(tail),
		Content: encode(wire.Omitted{Name: name, Bytes: om.bytes, Lines: om.lines}),
	})
	om.bytes, om.lines = 0, 0
}

// finish sends everything: the run is over, or something else comes next that
// must not overtake it.
func (o *output) finish(now time.Time) {
	for name, cut := range o.split {
		delete(o.split, name)
		o.text(name, cut, now)
	}
	o.flush()
	for _, name := range []string{"stdout", "stderr"} {
		if om := o.omitted[name]; om != nil && om.bytes > 0 {
			o.report(name, om)
			om.due = now.Add(omittedEvery)
		}
	}
}

// incomplete returns how many bytes at the end of p begin a character that is
// not finished.
func incomplete(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		c := p[len(p)-n]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// valid returns a copy of p as UTF-8, what is not text replaced.
func valid(p []byte) []byte {
	if utf8.Valid(p) {
		return bytes.Clone(p)
	}
	return bytes.ToValidUTF8(p, []byte("\uFFFD"))
}

// ring keeps the last tailSize bytes written to it.
type ring struct {
	buf  []byte
	next int
	full bool
}

func (r *ring) write(p []byte) {
	if r.buf == nil {
		r.buf = make([]byte, tailSize)
	}
	if len(p) >= tailSize {
		copy(r.buf, p[len(p)-tailSize:])
		r.next, r.full = 0, true
		return
	}
	n := copy(r.buf[r.next:], p)
	if n < len(p) {
		copy(r.buf, p[n:])
		r.full = true
	}
	r.next += len(p)
	if r.next >= tailSize {
		r.next -= tailSize
		r.full = true
	}
}

func (r *ring) bytes() []byte {
	if !r.full {
		return bytes.Clone(r.buf[:r.next])
	}
	return append(bytes.Clone(r.buf[r.next:]), r.buf[:r.next]...)
}
