package live_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"sandbook/kernel/notebook"
)

const (
	notText   = "Messages are JSON text in UTF-8."
	notObject = `A message is a JSON object like {"id":1,"op":"cell.edit","args":{…}}.`
	needsID   = "A request needs an id: a number or a string of at most 100 bytes."
)

// A message that cannot be read gets an error that says why, under its id if it
// has one. Nothing changes, and the socket stays open.
func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook("print one")
	cell := s.session(id).State().Cells[0].ID
	misfit := func(op, args string) string { // is tested where it is made
		_, err := notebook.DecodeOp(op, []byte(args))
		return notebook.MessageOf(err)
	}
	ops := "There is no op %q. The ops are " + strings.Join(notebook.OpNames(), ", ") + "."
	for _, tc := range []struct {
		name, text        string
		id, code, message string
	}{
		{"empty", "", "null", "invalid", notObject},
		{"only space", " \n", "null", "invalid", notObject},
		{"not JSON", "run", "null", "invalid", notObject},
		{"cut off", `{"id":1,"op":"run"`, "null", "invalid", notObject},
		{"two values", `{"id":1,"op":"kernel.start"}{}`, "null", "invalid", notObject},
		{"a comma too many", `{"id":1,"op":"kernel.start",}`, "null", "invalid", notObject},
		{"a list", `[{"id":1,"op":"kernel.start"}]`, "null", "invalid", notObject},
		{"a number", `7`, "null", "invalid", notObject},
		{"null", `null`, "null", "invalid", notObject},
		{"a string", `"kernel.start"`, "null", "invalid", notObject},
		{"NaN", `{"id":NaN,"op":"kernel.start"}`, "null", "invalid", notObject},
		{"deep lists", `{"id":1,"op":"cell.insert","args":{"source":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}}`, "null", "invalid", notObject},
		{"deep objects", strings.Repeat(`{"args":`, 100_000) + "1" + strings.Repeat("}", 100_000), "null", "invalid", notObject},
		{"not UTF-8", "{\"id\":1,\"op\":\"cell.insert\",\"args\":{\"source\":\"\xff\"}}", "null", "invalid", notText},
		{"an encoded surrogate", "{\"id\":1,\"op\":\"\xed\xa0\x80\"}", "null", "invalid", notText},
		{"a byte order mark", "\xef\xbb\xbf" + `{"id":1,"op":"kernel.start"}`, "null", "invalid", notObject},
		{"an empty object", `{}`, "null", "invalid", needsID},
		{"no id", `{"op":"kernel.start"}`, "null", "invalid", needsID},
		{"id null", `{"id":null,"op":"kernel.start"}`, "null", "invalid", needsID},
		{"id true", `{"id":true,"op":"kernel.start"}`, "null", "invalid", needsID},
		{"id a list", `{"id":[1],"op":"kernel.start"}`, "null", "invalid", needsID},
		{"id an object", `{"id":{},"op":"kernel.start"}`, "null", "invalid", needsID},
		{"a long id", `{"id":"` + strings.Repeat("x", 99) + `","op":"kernel.start"}`, "null", "invalid", needsID},
		{"no op", `{"id":1}`, "1", "invalid", fmt.Sprintf(ops, "")},
		{"unknown op", `{"id":"a","op":"launch"}`, `"a"`, "invalid", fmt.Sprintf(ops, "launch")},
		{"long unknown op", `{"id":1,"op":"` + strings.Repeat("é", 1000) + `"}`, "1", "invalid", fmt.Sprintf(ops, strings.Repeat("é", 40)+"…")},
		{"the server's op", `{"id":1,"op":"report"}`, "1", "invalid", fmt.Sprintf(ops, "report")},
		{"a question's answer to a ping", `{"id":1,"pong":1}`, "1", "invalid", fmt.Sprintf(ops, "")},
		{"op a number", `{"op":7,"id":2}`, "2", "invalid", "The message does not fit: op cannot be a JSON number."},
		{"key a number", `{"id":2,"op":"kernel.start","key":7}`, "2", "invalid", "The message does not fit: key cannot be a JSON number."},
		{"unknown field", `{"sauce":1,"id":2,"op":"kernel.start"}`, "2", "invalid", `The message does not fit: unknown field "sauce".`},
		{"a misspelt key", `{"id":2,"op":"kernel.start","keys":"k"}`, "2", "invalid", `The message does not fit: unknown field "keys".`},
		{"a long unknown field", `{"` + strings.Repeat("x", 1<<20) + `":1,"id":2,"op":"kernel.start"}`, "2", "invalid", `The message does not fit: unknown field "` + strings.Repeat("x", 185) + "…."},
		{"a pong that is no number", `{"pong":"x"}`, "null", "invalid", "The message does not fit: pong cannot be a JSON string."},
		{"args a list", `{"id":3,"op":"kernel.start","args":[]}`, "3", "invalid", misfit("kernel.start", `[]`)},
		{"unknown argument", `{"id":3,"op":"cell.insert","args":{"sauce":"x"}}`, "3", "invalid", misfit("cell.insert", `{"sauce":"x"}`)},
		{"wrong type", `{"id":3,"op":"cell.insert","args":{"source":7}}`, "3", "invalid", misfit("cell.insert", `{"source":7}`)},
		{"a fraction", `{"id":3,"op":"cell.edit","args":{"base":1.5}}`, "3", "invalid", misfit("cell.edit", `{"base":1.5}`)},
		{"NUL", `{"id":3,"op":"cell.insert","args":{"source":"a\u0000b"}}`, "3", "invalid", "The cell holds a NUL character."},
		{"a long source", `{"id":3,"op":"cell.insert","args":{"source":"` + strings.Repeat("x", 1<<20+1) + `"}}`, "3", "too_large", "The cell is 1048577 bytes long; the limit is 1048576."},
		{"a long key", `{"id":3,"op":"cell.insert","args":{"source":""},"key":"` + strings.Repeat("k", 129) + `"}`, "3", "invalid", "An idempotency key has at most 128 characters."},
		{"unknown cell", `{"id":3,"op":"run","args":{"cells":["nope"]}}`, "3", "not_found", `There is no cell "nope" in this notebook. It may have been deleted.`},
		{"stale version", fmt.Sprintf(`{"id":3,"op":"cell.edit","args":{"cell":%q,"base":9,"source":"x"}}`, cell), "3", "conflict", "Somebody changed this cell since you read it. Your change was not made."},
		{"a question's unknown argument", `{"id":4,"op":"complete","args":{"sauce":1}}`, "4", "invalid", `The arguments of complete do not fit: unknown field "sauce".`},
		{"a question's wrong type", `{"id":4,"op":"complete","args":{"pos":"x"}}`, "4", "invalid", "The arguments of complete do not fit: pos cannot be a JSON string."},
		{"a question's list", `{"id":4,"op":"complete","args":[]}`, "4", "invalid", "The arguments of complete do not fit: it cannot be a JSON array."},
		{"a question without a kernel", `{"id":4,"op":"complete"}`, "4", "unavailable", "There is no kernel running."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seq := s.session(id).State().Seq
			c := s.dial(id, dialing{})
			c.send(tc.text)
			c.until("the answer", func() bool { return len(c.order) > 0 })
			if c.order[0] != tc.id {
				t.Errorf("answered under %s, want %s", c.order[0], tc.id)
			}
			wantFault(t, "the answer", c.answers[c.order[0]], tc.code, tc.message)
			if got := s.session(id).State().Seq; got != seq {
				t.Errorf("the notebook went from %d to %d", seq, got)
			}
			result(t, c.insert("the socket still works"))
		})
	}
}

// Binary is not understood, whatever is in it.
func TestBinaryMessage(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	c := s.dial(id, dialing{})
	if err := c.ws.Write(t.Context(), websocket.MessageBinary, []byte(request(1, "cell.insert", map[string]any{"source": "x"}, ""))); err != nil {
		t.Fatal(err)
	}
	c.until("the answer", func() bool { return len(c.order) > 0 })
	wantFault(t, "a binary message", c.answers["null"], "invalid", notText)
	result(t, c.insert("text works"))
	if n := len(s.session(id).State().Cells); n != 1 {
		t.Errorf("%d cells, want 1", n)
	}
}

// A message of 8 MiB is read; one byte more closes the socket.
func TestLongMessage(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	c := s.dial(id, dialing{})
	pad := func(n int) string { return `{"id":1,"op":"` + strings.Repeat("a", n-16) + `"}` }
	c.send(pad(8 << 20))
	c.until("the answer", func() bool { return len(c.order) > 0 })
	if a := c.answers["1"]; a.Error == nil || a.Error.Code != "invalid" {
		t.Errorf("8 MiB: %+v, want an answer", a)
	}
	for _, n := range []int{8<<20 + 1, 9 << 20} {
		c := s.dial(id, dialing{})
		c.send(pad(n))
		c.wantClosed(websocket.StatusMessageTooBig, "read limited at 8388609 bytes")
	}
	if seq := s.session(id).State().Seq; seq != int64(len(s.events(id))) {
		t.Errorf("the notebook went to %d", seq)
	}
}

// raw is a client that does not keep to the rules of WebSocket.
type raw struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func (s *server) raw(id notebook.ID) *raw {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.http.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	token, _ := s.token(alice, patience)
	head := strings.Replace(handshake, "GET / HTTP/1.1\r\nHost: sandbook\r\n",
		"GET /api/v1/notebooks/"+string(id)+"/live HTTP/1.1\r\nHost: "+s.http.Listener.Addr().String()+"\r\nAuthorization: Bearer "+token+"\r\n", 1)
	return &raw{s.t, conn, upgrade(s.t, conn, head)}
}

// frame is one with a mask of zeros.
func frame(first byte, payload string) string {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0xfe), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0xff), uint64(n))
	}
	return string(b) + "\x00\x00\x00\x00" + payload
}

// code reads to the end: the code of the close frame, or -1 for a cut.
func (r *raw) code() int {
	for {
		var head [2]byte
		if _, err := io.ReadFull(r.r, head[:]); err != nil {
			return -1
		}
		n := int(head[1])
		switch n {
		case 126:
			var b [2]byte
			_, _ = io.ReadFull(r.r, b[:])
			n = int(binary.BigEndian.Uint16(b[:]))
		case 127:
			var b [8]byte
			_, _ = io.ReadFull(r.r, b[:])
			n = int(binary.BigEndian.Uint64(b[:]))
		}
		p := make([]byte, n)
		if _, err := io.ReadFull(r.r, p); err != nil {
			return -1
		}
		if head[0] == 0x88 {
			if len(p) < 2 {
				return 1005
			}
			return int(binary.BigEndian.Uint16(p))
		}
	}
}

// Whoever breaks the rules of WebSocket is closed with 1002, or cut off.
// Nothing changes, and nobody else notices.
func TestBrokenFrames(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook("print one")
	other := s.dial(id, dialing{})
	insert := request(1, "cell.insert", map[string]any{"source": "x"}, "")
	seq := s.session(id).State().Seq
	for _, tc := range []struct {
		name, bytes string
		want        int
	}{
		{"not masked", "\x81" + string(byte(len(insert))) + insert, -1},
		{"a reserved bit", frame(0xc1, insert), 1002},
		{"another reserved bit", frame(0x91, insert), 1002},
		{"an unknown kind", frame(0x83, insert), 1002},
		{"an unknown control", frame(0x8b, ""), 1002},
		{"a ping in pieces", frame(0x09, "x"), 1002},
		{"a long ping", frame(0x89, strings.Repeat("x", 126)), 1002},
		{"a piece of nothing", frame(0x80, insert), 1002},
		{"a message within another", frame(0x01, insert[:10]) + frame(0x81, insert), 1002},
		{"a close with half a code", frame(0x88, "\x03"), 1002},
		{"a close with a reserved code", frame(0x88, "\x03\xed"), 1002},
		{"a close", frame(0x88, "\x03\xe8bye"), 1000},
		{"a close without a code", frame(0x88, ""), 1005},
		{"a negative length", "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", -1},
		{"no frames at all", "GET / HTTP/1.1\r\n\r\n", 1002},
	} {
		r := s.raw(id)
		if _, err := io.WriteString(r.conn, tc.bytes); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := r.code(); got != tc.want {
			t.Errorf("%s: closed with %d, want %d", tc.name, got, tc.want)
		}
		_ = r.conn.Close()
	}
	if got := s.session(id).State().Seq; got != seq {
		t.Errorf("the notebook went from %d to %d", seq, got)
	}
	result(t, other.insert("x"))
}

// A message may come in pieces, cut within a character, with a ping between.
func TestMessageInPieces(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	r := s.raw(id)
	text := request(1, "cell.insert", map[string]any{"source": "é"}, "")
	cut := strings.Index(text, "é") + 1
	if _, err := io.WriteString(r.conn, frame(0x01, text[:3])+frame(0x89, "now")+frame(0x00, text[3:cut])+frame(0x00, "")+frame(0x80, text[cut:])+frame(0x88, "\x03\xe8")); err != nil {
		t.Fatal(err)
	}
	if got := r.code(); got != 1000 {
		t.Errorf("closed with %d, want 1000", got)
	}
	eventually(t, "the cell", func() bool { return len(s.session(id).State().Cells) == 1 })
	if got := s.session(id).State().Cells[0].Source; got != "é" {
		t.Errorf("the cell holds %q, want é", got)
	}
}

// Without the subprotocol there is no conversation.
func TestNoSubprotocol(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.dial(s.notebook(), dialing{bare: true})
	c.wantClosed(websocket.StatusPolicyViolation, "ask for the subprotocol sandbook.v1")
}

// The address answers nothing but an upgrade.
func TestNoUpgrade(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.http.URL+"/api/v1/notebooks/"+string(s.notebook())+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	token, _ := s.token(alice, patience)
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := s.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("%s, want 426", res.Status)
	}
}
