package live_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandbook/kernel"
	"sandbook/kernel/notebook"
	"sandbook/web/live"
)

// In these tests time passes only when everybody waits for it.
func inBubble(t *testing.T, change func(*live.Options), story func(p *pipe)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSessions(t)
		p := newPipe(w, w.notebook("print one"), change)
		defer p.end()
		story(p)
	})
}

// The server asks for a sign of life now and then. The answer has no answer,
// and a client that gives none is let be. Pings of WebSocket itself work, too.
func TestPing(t *testing.T) {
	inBubble(t, nil, func(p *pipe) {
		c := p.dial("")
		defer func() { _ = c.ws.CloseNow() }()
		c.until("a ping", func() bool { return c.pings == 1 })
		c.send(`{"pong":946684820000}`)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := c.ws.Ping(context.Background()); err != nil {
				t.Errorf("a ping of the client: %v", err)
			}
		})
		c.until("more pings", func() bool { return c.pings == 4 })
		wg.Wait()
		if len(c.answers) > 0 {
			t.Errorf("a pong was answered: %v", c.answers)
		}
		result(t, c.insert("still here"))
	})
}

// A socket ends when its credential does.
func TestExpiredCredential(t *testing.T) {
	inBubble(t, func(o *live.Options) { o.Expires = time.Now().Add(time.Minute) }, func(p *pipe) {
		c := p.dial("")
		result(t, c.insert("before"))
		c.until("pings", func() bool { return c.pings == 2 })
		c.wantClosed(live.StatusExpired, "sign in again")
	})
}

// Whoever reads slowly gains nothing by it: once the credential is no longer
// good, nothing more is sent and no op is done.
func TestCredentialEndsWhileTheClientReadsSlowly(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		change func(*live.Options)
		over   func(revoke func())
	}{
		{"signed out", func(*live.Options) {}, func(revoke func()) { revoke() }},
		{"sign in again", func(o *live.Options) { o.Expires = time.Now().Add(5 * time.Second) }, func(func()) { <-time.After(6 * time.Second) }},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			revoked := make(chan struct{})
			inBubble(t, func(o *live.Options) { o.Revoked = revoked; tc.change(o) }, func(p *pipe) {
				for i := range 50 {
					p.do(p.id, notebook.InsertCell{Source: fmt.Sprint(i)})
				}
				seq := p.session(p.id).State().Seq
				c := p.dial("since=0")
				c.until("hello", func() bool { return c.hello != nil })
				synctest.Wait() // the first event is on its way, and not taken
				tc.over(func() { close(revoked) })
				c.send(request(1, "cell.insert", map[string]any{"source": "too late"}, ""))
				c.wantClosed(live.StatusExpired, tc.reason)
				if len(c.evs) > 1 || len(c.answers) > 0 {
					t.Errorf("after the end %d events were sent and these answers: %v", len(c.evs)-1, c.answers)
				}
				synctest.Wait()
				if got := p.session(p.id).State().Seq; got != seq {
					t.Errorf("the op was done: the notebook went from %d to %d", seq, got)
				}
			})
		})
	}
}

// A client that takes nothing at all is cut off: it would not take a code,
// either. The others do not notice, and it can come back.
func TestClientThatTakesNothing(t *testing.T) {
	inBubble(t, nil, func(p *pipe) {
		stuck, other := p.dial(""), p.dial("")
		stuck.until("the state", func() bool { return stuck.start != nil })
		for i := range 20 {
			result(t, other.insert(fmt.Sprint(i)))
		}
		other.until("a ping", func() bool { return other.pings == 1 })
		synctest.Wait()
		if n := p.open.Load(); n != 1 {
			t.Errorf("%d sockets are open, want that of the one who reads", n)
		}
		if code, err := stuck.closed(); code != -1 {
			t.Errorf("closed with %d %s, want a cut", code, err)
		}
		back := p.dial(fmt.Sprint("since=", stuck.seq()))
		back.reach(other.seq())
		sameEvents(t, "taken in all", append(stuck.evs, back.evs...), other.evs)
		_, _ = other.ws.CloseNow(), back.ws.CloseNow()
	})
}

// slowLine is a connection that brings 80 KiB a second.
type slowLine struct{ net.Conn }

func (l slowLine) Read(p []byte) (int, error) {
	<-time.After(100 * time.Millisecond)
	return l.Conn.Read(p[:min(len(p), 8<<10)])
}

// A large notebook comes over a slow line, too.
func TestLargeStateOverASlowLine(t *testing.T) {
	inBubble(t, nil, func(p *pipe) {
		for range 3 {
			p.do(p.id, notebook.InsertCell{Source: strings.Repeat("x", notebook.MaxSource)})
		}
		c := p.dialOver(slowLine{p.conn()}, "")
		result(t, c.insert("small"))
		if c.start == nil || len(c.start.Cells) != 4 {
			t.Errorf("the state is %+v", c.start)
		}
		_ = c.ws.CloseNow()
	})
}

// A client that stops in the middle of a message does not hold the server up.
func TestHalfAMessageAtTheEnd(t *testing.T) {
	inBubble(t, nil, func(p *pipe) {
		conn := p.conn()
		r := upgrade(t, conn, handshake)
		frame := binary.BigEndian.AppendUint64([]byte{0x81, 0xff}, 1<<40)
		if _, err := conn.Write(append(frame, make([]byte, 4+2000)...)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(io.Discard, r) })
		wg.Go(p.close)
		synctest.Wait() // the server waits for an answer to its code
		if _, err := conn.Write(make([]byte, 2000)); err != nil {
			t.Fatal(err)
		}
		p.serving.Wait()
		_ = conn.Close()
		wg.Wait()
	})
}

// upgrade asks for a socket by hand.
func upgrade(t *testing.T, conn net.Conn, head string) *bufio.Reader {
	t.Helper()
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // there is none
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade: %s", res.Status)
	}
	return r
}

const handshake = "GET / HTTP/1.1\r\nHost: sandbook\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: sandbook.v1\r\n\r\n"

// A kernel that does not answer is not waited for without end; a client that
// leaves is not waited for at all.
func TestQuestionWithoutAnswer(t *testing.T) {
	inBubble(t, nil, func(p *pipe) {
		p.f.hold = make(chan struct{})
		p.run(p.id, 0)
		c := p.dial("")
		a := c.op("complete", map[string]any{"code": "x"}, "")
		wantFault(t, "the question", a, "unavailable", "The kernel is busy and did not answer.")
		c.send(request(99, "complete", map[string]any{"code": "x"}, ""))
		eventually(t, "the question", func() bool { return p.f.asked() == 2 })
		_ = c.ws.CloseNow()
		synctest.Wait()
		if n := p.open.Load(); n != 0 {
			t.Errorf("%d sockets are open after the client left", n)
		}
	})
}

// patches is a Patcher that says which events it was shown.
func patches(before, after notebook.State, evs []notebook.Event) (any, string) {
	seqs := []int64{}
	for _, e := range evs {
		seqs = append(seqs, e.Seq)
	}
	return map[string]any{"from": before.Seq, "to": after.Seq, "seqs": seqs}, fmt.Sprintf("%d events", len(evs))
}

// A page gets patches instead of events: the whole page first, unless it shows
// the present already, then every event once, many in one patch when they come
// quickly.
func TestPageGetsPatches(t *testing.T) {
	inBubble(t, func(o *live.Options) { o.Patch = patches }, func(p *pipe) {
		seq := p.session(p.id).State().Seq
		fresh, current, stale := p.dial(""), p.dial(fmt.Sprint("since=", seq)), p.dial("since=1")
		pages := []*client{fresh, current, stale}
		for _, c := range pages {
			c.until("hello", func() bool { return c.hello != nil })
		}
		last := seq + 300
		var wg sync.WaitGroup
		for i, c := range pages {
			wg.Go(func() {
				err := c.try(func() bool { return len(c.patches) > 0 && c.patches[len(c.patches)-1].Seq == last })
				if err != nil {
					t.Errorf("page %d: waiting for the last patch: %v", i, err)
				}
			})
		}
		for i := range 300 {
			p.do(p.id, notebook.InsertCell{Source: fmt.Sprint(i)})
			if i%100 == 99 {
				<-time.After(time.Second)
			}
		}
		wg.Wait()
		for i, c := range pages {
			at := int64(0)
			if c == current {
				at = seq
			}
			if want := (hello{Seq: seq, Server: "test-build", Resumed: c == current, Notebook: p.id}); *c.hello != want {
				t.Errorf("page %d: hello is %+v, want %+v", i, *c.hello, want)
			}
			for _, m := range c.patches {
				at = wantStep(t, fmt.Sprint("page ", i), at, m)
			}
			if at != last || len(c.patches) > 100 {
				t.Errorf("page %d: %d patches to %d, want few to %d", i, len(c.patches), at, last)
			}
			_ = c.ws.CloseNow()
		}
	})
}

// wantStep checks that a patch goes on from at with every event once, and
// returns how far it goes. The first patch from zero is the whole page.
func wantStep(t *testing.T, page string, at int64, m patchMessage) int64 {
	t.Helper()
	var got struct {
		From, To int64
		Seqs     []int64
	}
	if err := json.Unmarshal(m.Patch, &got); err != nil {
		t.Fatal(err)
	}
	want := []int64{}
	for s := at + 1; at > 0 && s <= m.Seq; s++ {
		want = append(want, s)
	}
	if got.From != at || got.To != m.Seq || !slices.Equal(got.Seqs, want) {
		t.Errorf("%s at %d: the patch called %d is %s, want the events %v", page, at, m.Seq, m.Patch, want)
	}
	return m.Seq
}

// broken is a log that cannot be read.
type broken struct {
	kernel.Log
	err error
}

func (l broken) Events(context.Context, notebook.ID, int64, int) ([]notebook.Event, error) {
	return nil, l.err
}

// What goes wrong inside is told in general words; the log has the details.
func TestServerFaults(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"an error": errors.New("sector 17 is bad"), "a gap": nil} {
		t.Run("the log has "+name, func(t *testing.T) {
			inBubble(t, func(o *live.Options) { o.Log = broken{o.Log, err} }, func(p *pipe) {
				c := p.dial("since=0")
				c.wantClosed(1011, "the notebook could not be read")
				want := "the log has a gap"
				if err != nil {
					want = err.Error()
				}
				if got := p.logged.String(); !strings.Contains(got, want) || !strings.Contains(got, string(p.id)) {
					t.Errorf("logged %q, want %q and the notebook", got, want)
				}
			})
		})
	}
	t.Run("an op fails", func(t *testing.T) {
		inBubble(t, nil, func(p *pipe) {
			c := p.dial("")
			err := errors.New("sector 18 is bad")
			p.fault.Store(&err)
			wantFault(t, "the op", c.insert("x"), "internal", "Something went wrong on the server. The log has the details.")
			if got := p.logged.String(); !strings.Contains(got, err.Error()) || !strings.Contains(got, string(p.id)) {
				t.Errorf("logged %q, want the error and the notebook", got)
			}
			p.fault.Store(nil)
			result(t, c.insert("x"))
			_ = c.ws.CloseNow()
		})
	})
}

// during is a log in which something happens just before it is read.
type during struct {
	kernel.Log
	happens func()
}

func (l during) Events(ctx context.Context, id notebook.ID, since int64, limit int) ([]notebook.Event, error) {
	l.happens()
	return l.Log.Events(ctx, id, since, limit)
}

// What happens while a client is told what it missed comes after it, once.
func TestEventsThatComeWhileResuming(t *testing.T) {
	var add func()
	inBubble(t, func(o *live.Options) { o.Log = during{o.Log, add} }, func(p *pipe) {
		add = func() { p.do(p.id, notebook.InsertCell{Source: "meanwhile"}) }
		for since := range int64(3) {
			c := p.dial(fmt.Sprint("since=", since))
			c.reach(p.session(p.id).State().Seq + 1)
			add()
			last := p.session(p.id).State().Seq
			c.reach(last)
			sameEvents(t, fmt.Sprint("since ", since), c.evs, p.events(p.id)[since:])
			_ = c.ws.CloseNow()
		}
	})
}

// The server's end reaches a client that is still being told what it missed.
func TestShutdownWhileResuming(t *testing.T) {
	inBubble(t, nil, func(p *pipe) {
		for i := range 50 {
			p.do(p.id, notebook.InsertCell{Source: fmt.Sprint(i)})
		}
		c := p.dial("since=0")
		c.until("some events", func() bool { return len(c.evs) == 5 })
		p.close()
		c.wantClosed(1012, "the server restarts: nothing is lost")
		sameEvents(t, "the events sent", c.evs, p.events(p.id)[:len(c.evs)])
	})
}
