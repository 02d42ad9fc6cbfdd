package live_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandbook/kernel"
	"sandbook/kernel/notebook"
)

// An answer comes under the id of its request, whatever the id is, and says
// which events the op made.
func TestAnswer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	c := s.dial(id, dialing{})
	seq := s.session(id).State().Seq
	for i, rid := range []string{`1`, `0`, `-1`, `1.5`, `18446744073709551616`, `"a"`, `""`, `"1"`, `"` + strings.Repeat("x", 98) + `"`, `"é\u0041"`} {
		c.send(`{"id":` + rid + `,"op":"cell.insert","args":{"source":"x"}}`)
		c.until("the answer", func() bool { return len(c.order) > i })
		got := result(t, c.answers[c.order[i]])
		if c.order[i] != rid || got.First != seq+int64(i)+1 || got.Last != got.First || len(got.IDs) != 1 {
			t.Errorf("request %s: answer %s is %+v, want event %d and a cell", rid, c.order[i], got, seq+int64(i)+1)
		}
	}
	c.reach(seq + 10)
	sameEvents(t, "the events", c.evs, s.events(id)[seq:])
	for _, e := range c.evs {
		if e.By != alice.Author {
			t.Errorf("event %d is by %+v, want Alice", e.Seq, e.By)
		}
	}
}

// After a conflict, the answer holds what the cell holds now.
func TestConflictHasThePresentText(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook("one")
	cell := s.session(id).State().Cells[0].ID
	c := s.dial(id, dialing{})
	result(t, c.op("cell.edit", map[string]any{"cell": cell, "base": 1, "source": "two"}, ""))
	a := c.op("cell.edit", map[string]any{"cell": cell, "base": 1, "source": "three"}, "")
	if a.Error == nil || a.Error.Code != "conflict" {
		t.Fatalf("got %+v, want a conflict", a)
	}
	var data struct {
		Version int
		Source  string
	}
	if err := json.Unmarshal(a.Error.Data, &data); err != nil || data.Version != 2 || data.Source != "two" {
		t.Errorf("the data is %s, want version 2 and its text", a.Error.Data)
	}
}

// A key makes an op happen once, over however many sockets it is sent.
func TestKeyOverManySockets(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	seq := s.session(id).State().Seq
	insert := map[string]any{"source": "once"}
	var mu sync.Mutex
	var got []kernel.Result
	together(10, func(int) {
		c := s.dial(id, dialing{})
		for range 3 {
			a, err := c.tryOp("cell.insert", insert, "k")
			if err != nil || a.Error != nil {
				t.Errorf("the op: %v %+v", err, a.Error)
				return
			}
			var r kernel.Result
			_ = json.Unmarshal(a.OK, &r)
			mu.Lock()
			got = append(got, r)
			mu.Unlock()
		}
	})
	for _, r := range got {
		if diff := cmp.Diff(got[0], r); diff != "" || r.First != seq+1 {
			t.Errorf("the answers differ: %+v and %+v", got[0], r)
		}
	}
	st := s.session(id).State()
	if len(got) != 30 || st.Seq != seq+1 || len(st.Cells) != 1 || string(st.Cells[0].ID) != got[0].IDs[0] {
		t.Errorf("%d answers, %d events and %d cells, want 30, 1 and 1", len(got), st.Seq-seq, len(st.Cells))
	}
	c := s.dial(id, dialing{})
	wantFault(t, "another op under the key", c.op("cell.insert", map[string]any{"source": "other"}, "k"), "conflict", "This idempotency key was used for another op.")
	other, _ := s.token(agent("other", allOf...), time.Hour)
	if r := result(t, s.dial(id, dialing{token: other}).op("cell.insert", insert, "k")); r.First != seq+2 {
		t.Errorf("the key of another actor is answered with event %d, want %d", r.First, seq+2)
	}
}

// A client that never saw the answer asks again with the same key, after a
// break or a restart, and the op has happened once.
func TestKeyAfterABreak(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	for i := range 30 {
		insert := map[string]any{"source": fmt.Sprint(i)}
		key := fmt.Sprint("key ", i)
		c := s.dial(id, dialing{})
		c.send(request(1, "cell.insert", insert, key))
		_ = c.ws.CloseNow()
		if i == 15 {
			s.shutdown()
			s.restart()
		}
		result(t, s.dial(id, dialing{}).op("cell.insert", insert, key))
	}
	var got []string
	for _, c := range s.session(id).State().Cells {
		got = append(got, c.Source)
	}
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprint(i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the cells are %v, want each once", got)
	}
}

// What a token does not hold is refused, in words, and changes nothing.
func TestScopes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook("print one")
	s.run(id, 0)
	lacks := func(verb string, scope notebook.Scope) string {
		return fmt.Sprintf("You may not %s: your link or token lacks the scope %q. Ask whoever runs this server for one that has it.", verb, scope)
	}
	const notAsked = "Your access does not allow this."
	person := func(scopes ...notebook.Scope) notebook.Actor {
		a := alice
		a.Scopes = scopes
		return a
	}
	read, edit, run := notebook.ScopeRead, notebook.ScopeEdit, notebook.ScopeRun
	for _, tc := range []struct {
		name           string
		actor          notebook.Actor
		op             string
		args           any
		code, sentence string // empty: allowed
	}{
		{"a reader edits", agent("reader", read), "cell.insert", map[string]any{"source": "x"}, "denied", lacks("add cells", edit)},
		{"a reader renames", agent("reader", read), "notebook.rename", map[string]any{"title": "x"}, "denied", lacks("rename it", edit)},
		{"a reader deletes", agent("reader", read), "notebook.delete", nil, "denied", lacks("delete it", edit)},
		{"a reader runs", agent("reader", read), "run", map[string]any{"scope": "all"}, "denied", lacks("run cells", run)},
		{"a reader stops", agent("reader", read), "kernel.stop", nil, "denied", lacks("stop the kernel", run)},
		{"a reader completes", agent("reader", read), "complete", map[string]any{"code": "x"}, "denied", notAsked},
		{"a reader looks at variables", agent("reader", read), "variables", nil, "denied", notAsked},
		{"a reader lists files", agent("reader", read), "files", nil, "", ""},
		{"a person who reads edits", person(read), "cell.insert", map[string]any{"source": "x"}, "denied", lacks("add cells", edit)},
		{"an editor runs", agent("editor", read, edit), "run", map[string]any{"scope": "all"}, "denied", lacks("run cells", run)},
		{"an editor inspects", agent("editor", read, edit), "inspect", map[string]any{"code": "x"}, "denied", notAsked},
		{"a runner edits", agent("runner", read, run), "cell.insert", map[string]any{"source": "x"}, "denied", lacks("add cells", edit)},
		{"a runner completes", agent("runner", read, run), "is_complete", map[string]any{"code": "x"}, "", ""},
	} {
		token, _ := s.token(tc.actor, time.Hour)
		c := s.dial(id, dialing{token: token})
		seq := s.session(id).State().Seq
		a := c.op(tc.op, tc.args, "key")
		if tc.code == "" {
			if a.Error != nil {
				t.Errorf("%s: refused with %+v", tc.name, a.Error)
			}
			continue
		}
		wantFault(t, tc.name, a, tc.code, tc.sentence)
		if got := s.session(id).State().Seq; got != seq {
			t.Errorf("%s: the notebook went from %d to %d", tc.name, seq, got)
		}
	}
	token, _ := s.token(agent("editor", read, edit), time.Hour)
	result(t, s.dial(id, dialing{token: token}).insert("allowed"))
	token, _ = s.token(agent("writer", edit), time.Hour)
	if _, err := s.tryDial(id, dialing{token: token}); err == nil || err.Error() != `403 denied: Your access does not allow this; it needs "read".` {
		t.Errorf("a token that may not read: %v", err)
	}
}

// Everybody sees the same events in the same order, whoever made them, and
// each of many ops sent at once happens exactly once.
func TestTwentyClientsAtOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook("count 10", "count 20", "count 30", "count 40")
	runs := s.session(id).State().Cells
	start := s.session(id).State().Seq
	const clients, each = 20, 15
	views := make([]*client, clients)
	for i := range views {
		token, _ := s.token(agent(fmt.Sprint("a", i), allOf...), time.Hour)
		views[i] = s.dial(id, dialing{token: token, query: fmt.Sprint("since=", start)})
	}
	together(clients, func(i int) {
		for j := range each {
			if j == each/2 && i%5 == 0 {
				if a, err := views[i].tryOp("run", map[string]any{"cells": []notebook.CellID{runs[i/5].ID}}, ""); err != nil || a.Error != nil {
					t.Errorf("client %d: run: %v %+v", i, err, a.Error)
				}
			}
			if a, err := views[i].tryOp("cell.insert", map[string]any{"source": fmt.Sprintf("%d/%d", i, j)}, fmt.Sprint("key", j)); err != nil || a.Error != nil {
				t.Errorf("client %d: insert %d: %v %+v", i, j, err, a.Error)
			}
		}
	})
	eventually(t, "the end of the runs", func() bool { st := s.session(id).State(); return !st.Busy() })
	log := s.events(id)
	seen := map[string]string{}
	for _, e := range log {
		if b, ok := e.Body.(notebook.CellInserted); ok && e.Seq > start {
			if seen[b.Source] != "" {
				t.Errorf("the cell %s was made twice", b.Source)
			}
			seen[b.Source] = e.By.ID
		}
	}
	for i := range clients {
		for j := range each {
			if got, want := seen[fmt.Sprintf("%d/%d", i, j)], fmt.Sprint("agent:a", i); got != want {
				t.Errorf("the cell %d/%d is by %q, want %s", i, j, got, want)
			}
		}
	}
	for i, c := range views {
		c.reach(int64(len(log)))
		sameEvents(t, fmt.Sprint("client ", i), c.evs, log[start:])
		for id, a := range c.answers {
			if a.times != 1 {
				t.Errorf("client %d: %d answers to request %s", i, a.times, id)
			}
		}
	}
}

// Ops that are sent without waiting are done one after the other, in the order
// they came, and each is answered.
func TestOpsWithoutWaiting(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	c := s.dial(id, dialing{})
	const n = 500
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range n {
			if i%10 == 9 {
				c.send(request(i, "cell.nope", nil, ""))
				continue
			}
			c.send(request(i, "cell.insert", map[string]any{"source": fmt.Sprint(i)}, ""))
		}
	})
	c.until("all answers", func() bool { return len(c.order) == n })
	var got []string
	for i := range n {
		if c.order[i] != fmt.Sprint(i) {
			t.Fatalf("answer %d is to request %s", i, c.order[i])
		}
		if a := c.answers[fmt.Sprint(i)]; (a.Error != nil) != (i%10 == 9) {
			t.Errorf("request %d: %s %+v", i, a.OK, a.Error)
		}
	}
	for _, cell := range s.session(id).State().Cells {
		got = append(got, cell.Source)
	}
	var want []string
	for i := range n {
		if i%10 != 9 {
			want = append(want, fmt.Sprint(i))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the cells are not in order:\n%s", diff)
	}
}

// A question does not hold up the ops behind it. At most eight wait at once;
// one more is refused.
func TestQuestions(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	s := newServer(t, func(s *server) { s.f.hold = hold })
	id := s.notebook("print one")
	s.run(id, 0)
	c := s.dial(id, dialing{})
	for i := range 8 {
		c.send(request(i, "complete", map[string]any{"code": fmt.Sprint("code ", i), "pos": i}, ""))
	}
	eventually(t, "eight questions", func() bool { return s.f.asked() == 8 })
	result(t, c.insert("meanwhile"))
	wantFault(t, "a ninth question", c.op("inspect", map[string]any{"code": "x"}, ""), "unavailable", "Too many questions at once: at most 8 wait for an answer.")
	result(t, c.insert("still"))
	close(hold)
	c.until("the answers", func() bool { return len(c.order) == 11 })
	for i := range 8 {
		if got, want := string(c.answers[fmt.Sprint(i)].OK), fmt.Sprintf(`{"code":"code %d","op":"complete","pos":%d}`, i, i); got != want {
			t.Errorf("question %d: %s, want %s", i, got, want)
		}
	}
	for _, q := range []string{"complete", "inspect", "is_complete", "variables", "files"} {
		if a := c.op(q, nil, ""); a.Error != nil || !strings.HasPrefix(string(a.OK), `{"code":"","op":"`) {
			t.Errorf("%s: %s %+v", q, a.OK, a.Error)
		}
	}
	if a := c.op("complete", map[string]any{"code": "nothing"}, ""); string(a.OK) != "{}" {
		t.Errorf("an empty answer is %s %+v, want {}", a.OK, a.Error)
	}
	wantFault(t, "a kernel's no", c.op("complete", map[string]any{"code": "refuse"}, ""), "unavailable", "The kernel is busy.")
	c.until("what the sandbox uses", func() bool { return c.usage != nil })
	var usage struct{ Memory, Pids int64 }
	if err := json.Unmarshal(c.usage, &usage); err != nil || usage.Memory != 7<<20 || usage.Pids != 3 {
		t.Errorf("usage is %s", c.usage)
	}
}
