// Package wire is the protocol between the server and the guest program inside
// a sandbox: versioned, length-prefixed frames over one byte stream. It holds
// the frame codec and the message types, and does no I/O of its own beyond the
// reader or writer it is given.
//
// The guest is hostile by assumption. A frame is data; nothing in it gives
// authority, and every length is checked before memory is taken.
//
// # Frame
//
//	uint32  length of what follows, big-endian, 6 … 6+MaxPayload
//	uint8   kind
//	uint8   flags (FlagMore: the message goes on in the next frame of this
//	        kind and stream)
//	uint32  stream: 0 for the control conversation, else the number of a file,
//	        command or terminal stream chosen by the host
//	…       payload
//
// # Conversation
//
// The host sends Hello; the guest answers Welcome and sends every spooled
// event after Hello.Since again. From then on the host sends requests (each
// answered by exactly one reply of the same id, in any order) and acks; the
// guest sends events. An event stays in the guest's spool until it is acked,
// so a host that comes back misses nothing. Events carry consecutive sequence
// numbers from 1 within one guest's life.
//
// A request that moves bytes (read_file, write_file, command) is sent with the
// frame's stream set to a number the host chose, an even one, never 0 and never
// used before on this connection; its data, windows and ends carry that number.
// A command's standard output and input are that stream, its standard error is
// the next odd one. Each direction of a stream starts with a window of
// InitialWindow bytes. The sender of a stream ends it with End; the reply to
// the request comes after the guest's last End.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Version of the protocol. A host refuses a guest of another version.
const Version = 1

// Bounds of the codec, in bytes.
const (
	MaxPayload = 1 << 20   // of one frame
	MaxMessage = 32 << 20  // of one message put together from frames
	MaxHeader  = 256 << 10 // of the JSON head of an Event that has Data
	headerSize = 6

	InitialWindow = 512 << 10 // of each direction of a stream
)

// Kind says what a frame's payload is.
type Kind uint8

// The kinds. A frame of any other kind is a protocol error.
const (
	KindHello   Kind = 1 // host: JSON Hello
	KindWelcome Kind = 2 // guest: JSON Welcome
	KindRequest Kind = 3 // host: JSON Request
	KindReply   Kind = 4 // guest: JSON Reply
	KindEvent   Kind = 5 // guest: spooled Event, see AppendEvent
	KindAck     Kind = 6 // host: uint64, every event up to it is safe
	KindData    Kind = 7 // both: bytes of a stream
	KindWindow  Kind = 8 // both: uint32, that many more bytes may be sent on the stream
	KindEnd     Kind = 9 // both: JSON End, no more data on this stream
	KindPing    Kind = 10
	KindPong    Kind = 11
	kindLast         = KindPong
)

// FlagMore marks a frame whose message goes on in the next one.
const FlagMore = 1

// Frame is one unit on the stream.
type Frame struct {
	Kind    Kind
	Flags   uint8
	Stream  uint32
	Payload []byte
}

// ErrProtocol is wrapped by every error that a malformed peer causes. The
// stream cannot be used after it.
var ErrProtocol = errors.New("protocol error")

func protocolErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// AppendFrame appends the encoded frame to b. The payload must not exceed
// MaxPayload; use Writer for longer messages.
func AppendFrame(b []byte, f Frame) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(headerSize+len(f.Payload))) //nolint:gosec // bounded by the caller's contract
	b = append(b, byte(f.Kind), f.Flags)
	b = binary.BigEndian.AppendUint32(b, f.Stream)
	return append(b, f.Payload...)
}

// Reader reads frames and puts messages together. Not for concurrent use.
type Reader struct {
	r    io.Reader
	head [4 + headerSize]byte
}

// NewReader reads from r, which should be buffered.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// ReadFrame returns the next frame. The payload is the caller's to keep.
// io.EOF is returned only between frames.
func (r *Reader) ReadFrame() (Frame, error) {
	if _, err := io.ReadFull(r.r, r.head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return Frame{}, fmt.Errorf("read frame head: %w", err)
		}
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(r.head[:4])
	if n < headerSize || n > headerSize+MaxPayload {
		return Frame{}, protocolErrorf("frame length %d", n)
	}
	f := Frame{
		Kind:   Kind(r.head[4]),
		Flags:  r.head[5],
		Stream: binary.BigEndian.Uint32(r.head[6:]),
	}
	if f.Kind == 0 || f.Kind > kindLast {
		return Frame{}, protocolErrorf("frame kind %d", f.Kind)
	}
	if f.Flags&^FlagMore != 0 {
		return Frame{}, protocolErrorf("frame flags %#x", f.Flags)
	}
	f.Payload = make([]byte, n-headerSize)
	if _, err := io.ReadFull(r.r, f.Payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, fmt.Errorf("read frame payload: %w", err)
	}
	return f, nil
}

// ReadMessage returns the next whole message: frames joined while FlagMore is
// set. Frames of one message may not be mixed with others.
func (r *Reader) ReadMessage() (Frame, error) {
	f, err := r.ReadFrame()
	if err != nil {
		return Frame{}, err
	}
	for f.Flags&FlagMore != 0 {
		next, err := r.ReadFrame()
		if err != nil {
			return Frame{}, err
		}
		if next.Kind != f.Kind || next.Stream != f.Stream {
			return Frame{}, protocolErrorf("kind %d stream %d inside a message of kind %d stream %d", next.Kind, next.Stream, f.Kind, f.Stream)
		}
		if len(f.Payload)+len(next.Payload) > MaxMessage {
			return Frame{}, protocolErrorf("message longer than %d bytes", MaxMessage)
		}
		f.Payload = append(f.Payload, next.Payload...)
		f.Flags = next.Flags
	}
	return f, nil
}

// AppendMessage appends a message as one or more frames. It fails only for a
// payload over MaxMessage.
func AppendMessage(b []byte, kind Kind, stream uint32, payload []byte) ([]byte, error) {
	if len(payload) > MaxMessage {
		return b, fmt.Errorf("message of %d bytes is over %d", len(payload), MaxMessage)
	}
	for len(payload) > MaxPayload {
		b = AppendFrame(b, Frame{Kind: kind, Flags: FlagMore, Stream: stream, Payload: payload[:MaxPayload]})
		payload = payload[MaxPayload:]
	}
	return AppendFrame(b, Frame{Kind: kind, Stream: stream, Payload: payload}), nil
}

// AppendJSON appends v as a JSON message of the given kind.
func AppendJSON(b []byte, kind Kind, stream uint32, v any) ([]byte, error) {
	p, err := json.Marshal(v)
	if err != nil {
		return b, err
	}
	return AppendMessage(b, kind, stream, p)
}

// AppendEvent encodes an event's payload: uint64 sequence number, uint32
// length of the JSON head, the head, then Data as raw bytes.
func AppendEvent(b []byte, e Event) ([]byte, error) {
	head, err := json.Marshal(e)
	if err != nil {
		return b, err
	}
	b = binary.BigEndian.AppendUint64(b, e.Seq)
	b = binary.BigEndian.AppendUint32(b, uint32(len(head))) //nolint:gosec // bounded by MaxMessage in the writer
	b = append(b, head...)
	return append(b, e.Data...), nil
}

// ParseEvent decodes what AppendEvent made. Data aliases p.
func ParseEvent(p []byte) (Event, error) {
	if len(p) < 12 {
		return Event{}, protocolErrorf("event of %d bytes", len(p))
	}
	n := binary.BigEndian.Uint32(p[8:])
	if uint64(n) > uint64(len(p)-12) { //nolint:gosec // at least 12, checked above
		return Event{}, protocolErrorf("event head of %d bytes in %d", n, len(p))
	}
	var e Event
	if err := json.Unmarshal(p[12:12+n], &e); err != nil {
		return Event{}, protocolErrorf("event head: %v", err)
	}
	e.Seq = binary.BigEndian.Uint64(p)
	if rest := p[12+n:]; len(rest) > 0 {
		e.Data = rest
	}
	return e, nil
}

// ParseAck decodes the payload of KindAck.
func ParseAck(p []byte) (uint64, error) {
	if len(p) != 8 {
		return 0, protocolErrorf("ack of %d bytes", len(p))
	}
	return binary.BigEndian.Uint64(p), nil
}

// ParseWindow decodes the payload of KindWindow.
func ParseWindow(p []byte) (uint32, error) {
	if len(p) != 4 {
		return 0, protocolErrorf("window of %d bytes", len(p))
	}
	return binary.BigEndian.Uint32(p), nil
}
