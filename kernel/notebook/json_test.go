package notebook

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// fill sets every field of v to something that is not zero.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("s" + v.Type().Name())
	case reflect.Int, reflect.Int64:
		v.SetInt(42)
	case reflect.Uint32:
		v.SetUint(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth)
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(k, depth)
		fill(e, depth)
		m.SetMapIndex(k, e)
		v.Set(m)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"k":[1]}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), depth)
		fill(v.Index(1), depth)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(day))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	default:
		panic("fill: " + v.Type().String())
	}
}

// TestEveryEventGoesThroughJSON fills each body's fields and reads it back.
func TestEveryEventGoesThroughJSON(t *testing.T) {
	t.Parallel()
	names := EventNames()
	if len(names) != len(bodies) || !slices.Contains(names, "run.sent") {
		t.Errorf("names of events: %v", names)
	}
	for name := range bodies {
		zero, err := DecodeBody(name, []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		v := reflect.New(reflect.TypeOf(zero)).Elem()
		fill(v, 0)
		want := Event{Seq: 9, At: day.Add(time.Millisecond), By: ada.Author, Body: v.Interface().(Body)}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got Event
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(b, &keys); err != nil || len(keys) != 5 || string(keys["event"]) != `"`+name+`"` {
			t.Errorf("%s: %v", b, err)
		}
		// It also folds into a state, whatever it holds.
		Apply(New("nb"), got)
	}
}

func TestStateGoesThroughJSON(t *testing.T) {
	t.Parallel()
	var want, got State
	fill(reflect.ValueOf(&want).Elem(), 0)
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	b, _ = json.Marshal(New("nb"))
	got = State{}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(New("nb"), got, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

type badBody struct{ F func() }

func (badBody) Event() string { return "bad" }

func TestEventJSONRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		``, `[]`, `{"seq":"x"}`, `{"seq":1,"event":"no.such","body":{}}`, `{"seq":1,"event":"run.sent","body":[]}`,
		`{"seq":1,"event":"run.sent","body":{"run":7}}`, `{"seq":1,"event":"run.sent"}`,
	} {
		var e Event
		if err := json.Unmarshal([]byte(in), &e); err == nil {
			t.Errorf("%s was taken as %+v", in, e)
		}
	}
	if _, err := json.Marshal(Event{Body: badBody{}}); err == nil {
		t.Error("a body that is not JSON was encoded")
	}
}

func TestDecodeOp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in string
		want     Op
	}{
		{"cell.insert", `{"source":"x","after":""}`, InsertCell{Source: "x", After: ptr(CellID(""))}},
		{"cell.insert", `{"source":"x"}`, InsertCell{Source: "x"}},
		{"run", `{"cells":["a"],"versions":[3]}`, RunCells{Cells: []CellID{"a"}, Versions: []int{3}}},
		{"kernel.interrupt", ``, Interrupt{}},
		{"kernel.interrupt", " \n", Interrupt{}},
		{"kernel.restart", `{"run_all":true}`, RestartKernel{RunAll: true}},
	} {
		got, err := DecodeOp(c.name, []byte(c.in))
		if err != nil {
			t.Errorf("%s %s: %v", c.name, c.in, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s %s: %s", c.name, c.in, d)
		}
	}
	for _, c := range []struct{ name, in, words string }{
		{"burn", `{}`, `no op "burn". The ops are notebook.rename`},
		{"report", `{}`, "no op"},
		{"dispatch", `{}`, "no op"},
		{strings.Repeat("x", 1000), `{}`, "xxx…"},
		{"run", `{"cell":["a"]}`, `unknown field "cell"`},
		{"run", `{"IDs":["a"]}`, "unknown field"},
		{"run", `[]`, "do not fit"},
		{"run", `{"cells":["a"]`, "do not fit"},
		{"run", `{"cells":["a"]} {"cells":["b"]}`, "do not fit"},
		{"run", `{} trailing`, "do not fit"},
	} {
		_, err := DecodeOp(c.name, []byte(c.in))
		if CodeOf(err) != Invalid || !strings.Contains(MessageOf(err), c.words) || !strings.HasSuffix(MessageOf(err), ".") {
			t.Errorf("%.20s %s: %v", c.name, c.in, err)
		}
	}
	names := OpNames()
	names[0] = "changed"
	if OpNames()[0] == "changed" || len(names) != len(decoders) {
		t.Error("OpNames is not a copy, or not complete")
	}
}

// FuzzDecodeOp: whatever a client sends, an op is decoded or refused with a
// sentence, and what is decoded can be decided.
func FuzzDecodeOp(f *testing.F) {
	for _, n := range OpNames() {
		f.Add(n, []byte(`{}`))
		f.Add(n, []byte(`{"cell":"a","base":1,"source":"x","at":1,"kind":"code","after":"b"}`))
	}
	f.Add("run", []byte(`{"scope":"all","cells":["a","b"],"versions":[1,1],"keep_going":true,"timeout_ms":1}`))
	f.Add("input.reply", []byte(`{"run":"id1","value":"x"}`))
	f.Fuzz(func(t *testing.T, name string, in []byte) {
		o, err := DecodeOp(name, in)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Code != Invalid {
				t.Fatalf("%v", err)
			}
			return
		}
		if o.Op() != name {
			t.Fatalf("%s was decoded as %s", name, o.Op())
		}
		st := tell(t, "1", "2", "# text")
		st.boot()
		st.start(RunCells{Scope: "all"})
		evs, err := st.try(ada, o)
		if err != nil && CodeOf(err) == Internal {
			t.Fatal(err)
		}
		for _, e := range evs {
			st.apply(e)
		}
		if msg := broken(st.s); msg != "" {
			t.Fatal(msg)
		}
	})
}

// FuzzEventJSON: what is read is written the same again, and folds.
func FuzzEventJSON(f *testing.F) {
	for name := range bodies {
		zero, _ := DecodeBody(name, []byte(`{}`))
		v := reflect.New(reflect.TypeOf(zero)).Elem()
		fill(v, 0)
		b, err := json.Marshal(Event{Seq: 1, At: day, By: ada.Author, Body: v.Interface().(Body)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var e, again Event
		if json.Unmarshal(in, &e) != nil {
			return
		}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		c, err := json.Marshal(again)
		if err != nil || string(b) != string(c) {
			t.Fatalf("written as\n%s\nand then as\n%s, %v", b, c, err)
		}
		st := tell(t, "1")
		Apply(st.s, e)
	})
}
