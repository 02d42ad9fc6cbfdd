package guest

import (
	"encoding/json"
	"strings"
	"testing"

	"sandbook/kernel/wire"
)

// TestTooLargeIsSaid: an event that does not fit a message lost its content
// without a word. A "<" is six bytes in JSON.
func TestTooLargeIsSaid(t *testing.T) {
	t.Parallel()
	large := encode(map[string]any{"data": map[string]string{"text/html": strings.Repeat("<", wire.MaxMessage/6+1)}})
	for name, c := range map[string]struct {
		give wire.Event
		want wire.EventType
		text string
	}{
		"a display":       {wire.Event{Type: wire.EventDisplay, Content: large}, wire.EventStream, tooLarge},
		"a result":        {wire.Event{Type: wire.EventResult, Content: large}, wire.EventStream, tooLarge},
		"an error":        {wire.Event{Type: wire.EventError, Content: large}, wire.EventStream, tooLarge},
		"no JSON":         {wire.Event{Type: wire.EventUpdate, Content: json.RawMessage("{")}, wire.EventStream, tooLarge},
		"a question":      {wire.Event{Type: wire.EventInput, Content: large}, wire.EventInput, ""},
		"what fits":       {wire.Event{Type: wire.EventDisplay, Content: json.RawMessage(`{"data":{}}`)}, wire.EventDisplay, ""},
		"text that fits":  {wire.Event{Type: wire.EventStream, Name: "stdout", Data: []byte("a\n")}, wire.EventStream, "a\n"},
		"the end of one":  {wire.Event{Type: wire.EventRunEnd, Content: json.RawMessage("{")}, wire.EventRunEnd, ""},
		"too much stream": {wire.Event{Type: wire.EventStream, Name: "stdout", Data: make([]byte, wire.MaxMessage)}, wire.EventStream, tooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpool(1 << 20)
			s.add(wire.Event{Type: wire.EventRunStart, Run: "r"})
			c.give.Run, c.give.Gen, c.give.Background = "r", 3, true
			s.add(c.give)
			sent, _ := s.after(1, 1<<30)
			if len(sent) != 1 {
				t.Fatalf("%d events, want 1", len(sent))
			}
			got, err := wire.ParseEvent(sent[0])
			if err != nil {
				t.Fatal(err)
			}
			if got.Seq != 2 || got.Type != c.want || string(got.Data) != c.text || got.Run != "r" || got.Gen != 3 || !got.Background {
				t.Errorf("event %d %s of run %q, kernel %d, background %v: %q; want 2 %s %q", got.Seq, got.Type, got.Run, got.Gen, got.Background, cutText(string(got.Data), 100), c.want, c.text)
			}
		})
	}
}
