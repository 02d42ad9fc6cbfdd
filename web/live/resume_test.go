package live_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandbook/kernel/notebook"
)

// history fills a notebook with events of many kinds: of people, of the server,
// of a kernel.
func (w *sessions) history() notebook.ID {
	w.t.Helper()
	id := w.notebook("print one\nshow two\ncount 20", "raise three", "print four")
	w.run(id, 0)
	w.run(id, 1)
	first := w.session(id).State().Cells[0].ID
	w.do(id, notebook.EditCell{Cell: first, Base: 1, Source: "print ü \U0001F600 </script>"})
	w.run(id, 0)
	w.do(id, notebook.DeleteCell{Cell: w.session(id).State().Cells[1].ID})
	w.do(id, notebook.RestoreCell{})
	w.do(id, notebook.ClearOutputs{})
	w.do(id, notebook.Rename{Title: "Renamed"})
	return id
}

func asJSON(t *testing.T, v any) map[string]any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// Without since: hello, the state, then each event.
func TestFirstTheStateThenEvents(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook("print one")
	before := s.session(id).State()
	c := s.dial(id, dialing{})
	c.until("the state", func() bool { return c.start != nil })
	want := hello{Seq: before.Seq, Server: "test-build", Notebook: id}
	if *c.hello != want {
		t.Errorf("hello is %+v, want %+v", *c.hello, want)
	}
	if diff := cmp.Diff(asJSON(t, before), asJSON(t, *c.start)); diff != "" {
		t.Errorf("the state differs:\n%s", diff)
	}
	s.run(id, 0)
	c.reach(s.session(id).State().Seq)
	sameEvents(t, "after the state", c.evs, s.events(id)[before.Seq:])
	if diff := cmp.Diff(asJSON(t, s.session(id).State()), asJSON(t, notebook.Fold(*c.start, c.evs))); diff != "" {
		t.Errorf("the state that the client folds differs:\n%s", diff)
	}
}

// From wherever a client comes back, it gets the rest of the log: all of it,
// once, in order.
func TestResumeAtEverySeq(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.history()
	log := s.events(id)
	last := int64(len(log))
	kinds := map[string]bool{}
	for _, e := range log {
		kinds[e.Body.Event()] = true
	}
	if len(kinds) < 12 {
		t.Fatalf("the log has only these kinds of events: %v", kinds)
	}
	for since := range last + 1 {
		c := s.dial(id, dialing{query: fmt.Sprint("since=", since)})
		c.reach(last)
		if want := (hello{Seq: since, Server: "test-build", Resumed: true, Notebook: id}); *c.hello != want {
			t.Errorf("since %d: hello is %+v, want %+v", since, *c.hello, want)
		}
		if c.start != nil {
			t.Errorf("since %d: got the state, too", since)
		}
		sameEvents(t, fmt.Sprint("since ", since), c.evs, log[since:])
		if since == 0 {
			if diff := cmp.Diff(asJSON(t, s.session(id).State()), asJSON(t, notebook.Fold(notebook.New(id), c.evs))); diff != "" {
				t.Errorf("the state that the events make differs:\n%s", diff)
			}
		}
		_ = c.ws.CloseNow()
	}
}

// A client whose connection breaks after each event it gets, while events keep
// coming, has the whole log in the end.
func TestBrokenAfterEachEvent(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook("count 30\nshow end")
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range 15 {
			s.do(id, notebook.InsertCell{Source: fmt.Sprint("print ", i)})
			if i%5 == 0 {
				s.run(id, 0)
			}
		}
		s.do(id, notebook.Rename{Title: "The last"})
	})
	var got []notebook.Event
	for more := true; more; {
		c := s.dial(id, dialing{query: fmt.Sprint("since=", len(got))})
		c.until("the next event", func() bool { return len(c.evs) > 0 })
		_ = c.ws.CloseNow()
		got = append(got, c.evs...)
		r, ok := got[len(got)-1].Body.(notebook.Renamed)
		more = !ok || r.Title != "The last"
	}
	sameEvents(t, "the union", got, s.events(id))
}

// A seq the server cannot go on from gets the state, and hello says so.
func TestSinceThatCannotBeResumed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook("print one")
	seq := s.session(id).State().Seq
	for _, since := range []string{fmt.Sprint(seq + 1), fmt.Sprint(seq + 1000), fmt.Sprint(int64(math.MaxInt64)), ""} {
		c := s.dial(id, dialing{query: "since=" + since})
		c.until("the state", func() bool { return c.start != nil })
		if c.hello.Resumed || c.hello.Seq != seq || c.start.Seq != seq {
			t.Errorf("since %q: hello %+v and the state of %d, want one not resumed and %d", since, *c.hello, c.start.Seq, seq)
		}
		if got := result(t, c.insert("x")); got.First != seq+1 {
			t.Errorf("since %q: the op is event %d, want %d", since, got.First, seq+1)
		}
		seq++
		c.reach(seq)
	}
}

// What is asked of the address itself is refused before there is a socket.
func TestRefusedUpgrades(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook("print one")
	const whole = "The parameter since is a whole number, not negative."
	for _, tc := range []struct {
		name string
		id   notebook.ID
		d    dialing
		want refusal
	}{
		{"negative", id, dialing{query: "since=-1"}, refusal{400, "invalid", whole}},
		{"smallest", id, dialing{query: "since=-9223372036854775808"}, refusal{400, "invalid", whole}},
		{"a word", id, dialing{query: "since=last"}, refusal{400, "invalid", whole}},
		{"a fraction", id, dialing{query: "since=1.5"}, refusal{400, "invalid", whole}},
		{"an exponent", id, dialing{query: "since=1e3"}, refusal{400, "invalid", whole}},
		{"hexadecimal", id, dialing{query: "since=0x1"}, refusal{400, "invalid", whole}},
		{"a space", id, dialing{query: "since=%201"}, refusal{400, "invalid", whole}},
		{"NUL", id, dialing{query: "since=1%00"}, refusal{400, "invalid", whole}},
		{"other digits", id, dialing{query: "since=%D9%A1"}, refusal{400, "invalid", whole}},
		{"too large", id, dialing{query: "since=9223372036854775808"}, refusal{400, "invalid", whole}},
		{"far too large", id, dialing{query: "since=" + strings.Repeat("9", 4000)}, refusal{400, "invalid", whole}},
		{"unknown view", id, dialing{query: "view=cinema"}, refusal{400, "invalid", "The view is page, or none for events."}},
		{"unknown notebook", "nope", dialing{}, refusal{404, "not_found", "There is no such notebook."}},
		{"no credential", id, dialing{header: http.Header{}}, refusal{401, "unauthenticated", "Sign in first: open the link the server printed when it started."}},
		{"a broken token", id, dialing{token: "x.y.z"}, refusal{401, "unauthenticated", "Sign in first: open the link the server printed when it started."}},
	} {
		_, err := s.tryDial(tc.id, tc.d)
		var got *refusal
		if !errors.As(err, &got) || *got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, err, &tc.want)
		}
	}
}

// A client that is very far behind gets the state instead of the events: more
// than 20000 are not sent again.
func TestResumeFromFarBehind(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	st := notebook.Fold(notebook.New(id), s.events(id))
	var evs []notebook.Event
	for seq := st.Seq + 1; seq <= 20050; seq++ {
		evs = append(evs, notebook.Event{Seq: seq, At: time.Now(), By: alice.Author, Body: notebook.Renamed{Title: fmt.Sprint(seq)}})
	}
	st = notebook.Fold(st, evs)
	if err := s.st.Append(t.Context(), id, notebook.Batch{Events: evs, State: &st}); err != nil {
		t.Fatal(err)
	}
	seq := s.session(id).State().Seq
	c := s.dial(id, dialing{query: fmt.Sprint("since=", seq-20000)})
	c.reach(seq)
	if !c.hello.Resumed || len(c.evs) != 20000 {
		t.Errorf("20000 behind: hello %+v and %d events, want all of them", *c.hello, len(c.evs))
	}
	for i, e := range c.evs {
		if want := seq - 20000 + int64(i) + 1; e.Seq != want {
			t.Fatalf("event %d comes where %d belongs", e.Seq, want)
		}
	}
	c = s.dial(id, dialing{query: fmt.Sprint("since=", seq-20001)})
	c.until("the state", func() bool { return c.start != nil })
	if c.hello.Resumed || c.start.Seq != seq || len(c.evs) > 0 {
		t.Errorf("20001 behind: hello %+v, the state of %d and %d events, want the state of %d", *c.hello, c.start.Seq, len(c.evs), seq)
	}
}

// A server that restarts says so with 1012; clients go on where they were.
func TestResumeAfterRestart(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook("print one")
	var all []*client
	for range 10 {
		c := s.dial(id, dialing{query: "since=0"})
		c.reach(s.session(id).State().Seq)
		all = append(all, c)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); s.shutdown() }()
	for _, c := range all {
		c.wantClosed(1012, "the server restarts: nothing is lost")
	}
	<-ended
	if _, err := s.m.Open(t.Context(), id); err == nil {
		t.Error("a closed manager opens sessions")
	}
	s.restart()
	c := s.dial(id, dialing{query: fmt.Sprint("since=", all[0].seq())})
	if got := result(t, c.insert("x")).First; got != all[0].seq()+1 {
		t.Errorf("the first event after the restart is %d, want %d", got, all[0].seq()+1)
	}
	c.reach(all[0].seq() + 1)
	sameEvents(t, "over the restart", append(all[0].evs, c.evs...), s.events(id))
}
