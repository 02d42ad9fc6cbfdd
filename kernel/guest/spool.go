package guest

import (
	"sync"

	"sandbook/kernel/wire"
)

// spool keeps events until the host has acknowledged them. Its size is bound:
// when it is full, whoever fills it from the kernel's output stops reading
// until there is room, so nothing is dropped and memory stays flat. Facts that
// must be reported whatever happens (a run's end, a death) are always taken.
type spool struct {
	max int64

	mu      sync.Mutex
	entries []entry // consecutive, oldest first
	size    int64
	last    uint64 // sequence number of the newest event ever
	notify  func() // called after an event was added
	room    func() // called after an ack made room
}

type entry struct {
	seq     uint64
	payload []byte
}

// overhead is what an entry costs besides its payload.
const overhead = 64

func newSpool(maxBytes int64) *spool { return &spool{max: maxBytes} }

// add numbers the event and keeps it.
func (s *spool) add(e wire.Event) {
	s.keep(e)
	s.mu.Lock()
	notify := s.notify
	s.mu.Unlock()
	if notify != nil {
		notify()
	}
}

// keep is add for an event that nobody waits for: it goes with the next one.
func (s *spool) keep(e wire.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	e.Seq = s.last
	p, err := wire.AppendEvent(nil, e)
	if err != nil || len(p) > wire.MaxMessage {
		p, _ = wire.AppendEvent(nil, leftOut(e))
	}
	s.entries = append(s.entries, entry{seq: e.Seq, payload: p})
	s.size += int64(len(p)) + overhead
}

// leftOut is what is sent in the place of an event that is too large or no JSON:
// the number must not be lost, and whoever looks must learn that there was more.
// Only what code shows can be so; in JSON a byte of it may be six.
func leftOut(e wire.Event) wire.Event {
	out := wire.Event{Seq: e.Seq, Type: e.Type, Gen: e.Gen, Run: e.Run, At: e.At, Background: e.Background}
	switch e.Type {
	case wire.EventDisplay, wire.EventResult, wire.EventUpdate, wire.EventClear, wire.EventError, wire.EventComm, wire.EventStream:
		out.Type, out.Name = wire.EventStream, "stderr"
		out.Data = []byte(tooLarge)
	case wire.EventInput:
		out.Content = encode(map[string]string{"prompt": ""})
	}
	return out
}

// tooLarge is said of an output that is not sent.
const tooLarge = "An output was left out because it is too large.\n"

// full reports whether output should wait.
func (s *spool) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size >= s.max
}

// ack drops every event up to seq.
func (s *spool) ack(seq uint64) {
	s.mu.Lock()
	n := 0
	for n < len(s.entries) && s.entries[n].seq <= seq {
		s.size -= int64(len(s.entries[n].payload)) + overhead
		s.entries[n] = entry{}
		n++
	}
	s.entries = s.entries[n:]
	if len(s.entries) == 0 {
		s.entries = nil
	}
	room := s.room
	s.mu.Unlock()
	if n > 0 && room != nil {
		room()
	}
}

// bounds returns the first and last sequence number held. With nothing held,
// first is last+1.
func (s *spool) bounds() (first, last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last + 1 - uint64(len(s.entries)), s.last
}

// after returns the payloads of events that follow seq, about limit bytes of
// them, and the number of the last one returned.
func (s *spool) after(seq uint64, limit int) ([][]byte, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) == 0 || seq >= s.last {
		return nil, seq
	}
	i := 0
	if first := s.entries[0].seq; seq >= first {
		i = int(seq - first + 1) //nolint:gosec // an index of entries
	}
	var out [][]byte
	for ; i < len(s.entries) && limit > 0; i++ {
		out = append(out, s.entries[i].payload)
		limit -= len(s.entries[i].payload)
		seq = s.entries[i].seq
	}
	return out, seq
}

// listen sets what is called when an event was added. It replaces the one
// before: there is one host.
func (s *spool) listen(f func()) {
	s.mu.Lock()
	s.notify = f
	s.mu.Unlock()
}

// onRoom sets what is called when an ack made room.
func (s *spool) onRoom(f func()) {
	s.mu.Lock()
	s.room = f
	s.mu.Unlock()
}
