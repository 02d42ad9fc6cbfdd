package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestFramesRoundTrip(t *testing.T) {
	t.Parallel()
	frames := []Frame{
		{Kind: KindHello, Payload: []byte(`{"version":1}`)},
		{Kind: KindPing, Payload: []byte{}},
		{Kind: KindData, Stream: 1<<32 - 1, Payload: bytes.Repeat([]byte{7}, MaxPayload)},
		{Kind: KindData, Flags: FlagMore, Stream: 2, Payload: []byte("a")},
		{Kind: KindData, Stream: 2, Payload: []byte("b")},
	}
	var b []byte
	for _, f := range frames {
		b = AppendFrame(b, f)
	}
	r := NewReader(iotest.OneByteReader(bytes.NewReader(b)))
	for i, want := range frames {
		got, err := r.ReadFrame()
		if err != nil || !cmp.Equal(got, want) {
			t.Fatalf("frame %d: %v %v", i, err, cmp.Diff(want, got))
		}
	}
	if _, err := r.ReadFrame(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v, want EOF", err)
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, MaxPayload - 1, MaxPayload, MaxPayload + 1, 3 * MaxPayload, MaxMessage} {
		payload := bytes.Repeat([]byte("x"), n)
		b, err := AppendMessage(nil, KindEvent, 3, payload)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReader(bytes.NewReader(b))
		f, err := r.ReadMessage()
		if err != nil || f.Kind != KindEvent || f.Stream != 3 || f.Flags != 0 || !bytes.Equal(f.Payload, payload) {
			t.Errorf("message of %d bytes: %v, %d bytes", n, err, len(f.Payload))
		}
		if _, err := r.ReadMessage(); !errors.Is(err, io.EOF) {
			t.Errorf("message of %d bytes leaves something: %v", n, err)
		}
	}
	if _, err := AppendMessage(nil, KindEvent, 0, make([]byte, MaxMessage+1)); err == nil {
		t.Error("a message over the bound was encoded")
	}
}

func TestReaderRefuses(t *testing.T) {
	t.Parallel()
	frame := func(length uint32, kind, flags byte, rest ...byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, length)
		return append(append(b, kind, flags, 0, 0, 0, 0), rest...)
	}
	tooLong := []byte{}
	for range MaxMessage/MaxPayload + 1 {
		tooLong = AppendFrame(tooLong, Frame{Kind: KindData, Flags: FlagMore, Payload: make([]byte, MaxPayload)})
	}
	mixed := AppendFrame(AppendFrame(nil, Frame{Kind: KindData, Flags: FlagMore, Stream: 1}), Frame{Kind: KindData, Stream: 2})
	for name, c := range map[string]struct {
		b        []byte
		protocol bool
	}{
		"length zero":        {frame(0, 1, 0), true},
		"length of a header": {frame(5, 1, 0), true},
		"length 4 GiB":       {frame(1<<32-1, 1, 0), true},
		"length just over":   {frame(headerSize+MaxPayload+1, 1, 0), true},
		"kind 0":             {frame(6, 0, 0), true},
		"kind unknown":       {frame(6, 99, 0), true},
		"flags unknown":      {frame(6, 1, 2), true},
		"cut in the head":    {frame(6, 1, 0)[:7], false},
		"cut in the payload": {frame(10, 1, 0, 1, 2), false},
		"mixed streams":      {mixed, true},
		"cut message":        {AppendFrame(nil, Frame{Kind: KindData, Flags: FlagMore}), false},
		"endless message":    {tooLong, true},
	} {
		_, err := NewReader(bytes.NewReader(c.b)).ReadMessage()
		if err == nil || errors.Is(err, ErrProtocol) != c.protocol {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("broken")
	if _, err := NewReader(iotest.ErrReader(broken)).ReadMessage(); !errors.Is(err, broken) {
		t.Errorf("a failing reader: %v", err)
	}
}

func TestEventsRoundTrip(t *testing.T) {
	t.Parallel()
	for _, e := range []Event{
		{Seq: 1, Type: EventReady, Gen: 2, Content: json.RawMessage(`{"a":1}`)},
		{Seq: 1<<64 - 1, Type: EventStream, Run: "r", Name: "stdout", Background: true, At: 5, Data: []byte("é\x00\xff")},
	} {
		p, err := AppendEvent([]byte("before")[:0], e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseEvent(p)
		if err != nil || !cmp.Equal(got, e) {
			t.Errorf("%v %s", err, cmp.Diff(e, got))
		}
	}
	if _, err := AppendEvent(nil, Event{Content: json.RawMessage("{")}); err == nil {
		t.Error("content that is no JSON was encoded")
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	long := binary.BigEndian.AppendUint32(make([]byte, 8), 1<<31)
	for name, p := range map[string][]byte{
		"empty": nil, "short": make([]byte, 11), "head too long": long, "head no JSON": append(binary.BigEndian.AppendUint32(make([]byte, 8), 2), "{]"...),
		"head of another type": append(binary.BigEndian.AppendUint32(make([]byte, 8), 2), "[]"...),
	} {
		if _, err := ParseEvent(p); !errors.Is(err, ErrProtocol) {
			t.Errorf("event %s: %v", name, err)
		}
	}
	for _, n := range []int{0, 3, 5, 7, 9} {
		if _, err := ParseAck(make([]byte, n)); !errors.Is(err, ErrProtocol) {
			t.Errorf("ack of %d bytes: %v", n, err)
		}
		if _, err := ParseWindow(make([]byte, n)); !errors.Is(err, ErrProtocol) {
			t.Errorf("window of %d bytes: %v", n, err)
		}
	}
	if seq, err := ParseAck(binary.BigEndian.AppendUint64(nil, 77)); seq != 77 || err != nil {
		t.Errorf("ack: %d %v", seq, err)
	}
	if n, err := ParseWindow(binary.BigEndian.AppendUint32(nil, 77)); n != 77 || err != nil {
		t.Errorf("window: %d %v", n, err)
	}
}

func TestAppendJSON(t *testing.T) {
	t.Parallel()
	b, err := AppendJSON(nil, KindRequest, 4, Request{ID: 9, Op: OpRun, Run: &Run{ID: "r", Code: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewReader(bytes.NewReader(b)).ReadMessage()
	var req Request
	if err != nil || f.Stream != 4 || json.Unmarshal(f.Payload, &req) != nil || req.ID != 9 || req.Run.Code != "1" {
		t.Errorf("%v %+v", err, req)
	}
	if _, err := AppendJSON(nil, KindRequest, 0, func() {}); err == nil {
		t.Error("what is no JSON was encoded")
	}
}

// FuzzReader feeds any bytes to the reader: no panic, no more memory than the
// bounds, and what was read encodes to what was given.
func FuzzReader(f *testing.F) {
	f.Add(AppendFrame(nil, Frame{Kind: KindHello, Payload: []byte("{}")}))
	f.Add(AppendFrame(AppendFrame(nil, Frame{Kind: KindData, Flags: FlagMore, Payload: []byte("a")}), Frame{Kind: KindData}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		var again []byte
		for {
			fr, err := r.ReadFrame()
			if err != nil {
				break
			}
			again = AppendFrame(again, fr)
		}
		if !bytes.HasPrefix(b, again) {
			t.Errorf("read and written again: %x of %x", again, b)
		}
		m := NewReader(bytes.NewReader(b))
		for {
			msg, err := m.ReadMessage()
			if err != nil {
				if !errors.Is(err, ErrProtocol) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("an error of another kind: %v", err)
				}
				return
			}
			if len(msg.Payload) > MaxMessage || msg.Flags != 0 {
				t.Errorf("message of %d bytes, flags %d", len(msg.Payload), msg.Flags)
			}
		}
	})
}

// FuzzParseEvent feeds any bytes as an event: no panic, and what is accepted
// survives a second trip.
func FuzzParseEvent(f *testing.F) {
	for _, e := range []Event{{Seq: 3, Type: EventStream, Data: []byte("x")}, {Type: EventError, Content: json.RawMessage(`{"ename":"E"}`)}} {
		b, _ := AppendEvent(nil, e)
		f.Add(b)
	}
	f.Add([]byte(strings.Repeat("\x00", 12)))
	deep := strings.Repeat("[", 20000)
	f.Add(append(binary.BigEndian.AppendUint32(make([]byte, 8), uint32(len(deep))), deep...))
	f.Fuzz(func(t *testing.T, p []byte) {
		e, err := ParseEvent(p)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		b, err := AppendEvent(nil, e)
		if err != nil {
			t.Fatalf("what was parsed cannot be encoded: %v", err)
		}
		again, err := ParseEvent(b)
		if err != nil || again.Seq != e.Seq || again.Type != e.Type || again.Run != e.Run || !bytes.Equal(again.Data, e.Data) {
			t.Errorf("second trip: %v\n%+v\n%+v", err, e, again)
		}
	})
}

func TestRandomSplits(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	var b []byte
	var want [][]byte
	for range 50 {
		p := make([]byte, rnd.IntN(3*MaxPayload/2))
		want = append(want, p)
		b, _ = AppendMessage(b, KindEvent, 0, p)
	}
	r := NewReader(iotest.HalfReader(bytes.NewReader(b)))
	for i, p := range want {
		f, err := r.ReadMessage()
		if err != nil || len(f.Payload) != len(p) {
			t.Fatalf("message %d: %v, %d bytes, want %d", i, err, len(f.Payload), len(p))
		}
	}
}
