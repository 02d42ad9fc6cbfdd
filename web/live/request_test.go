package live

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"sandbook/kernel/notebook"
)

// FuzzDecode feeds decode whatever a client may send. It must not fail in
// another way than with a sentence, and what it makes of a message must be an
// op with an id to answer under, a question, or a pong.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `null`, `[]`, `{"pong":1}`, `{"pong":1,"id":1}`, `{"id":null}`, `{"id":1}`, `{"id":"a","op":"kernel.start"}`,
		`{"id":1,"op":"cell.insert","args":{"source":"x","after":null},"key":"k"}`, `{"id":1,"op":"run","args":{"scope":"all","timeout_ms":1e3}}`,
		`{"id":1,"op":"complete","args":{"code":"x","pos":1}}`, `{"id":1,"op":"files","args":null}`, `{"ID":1,"Op":"kernel.stop"}`,
		`{"id":1,"id":{},"op":"kernel.stop"}`, `{"id":-,"op":"kernel.stop"}`, `{"op":7,"id":2}`, "{\"id\":\"\xff\"}", `{"id":1,"op":"report","args":{"Gen":1}}`,
		strings.Repeat(`{"args":`, 20000), ` {"id":1e999,"op":"kernel.interrupt"} `,
	} {
		f.Add(true, []byte(s))
	}
	for _, name := range notebook.OpNames() {
		f.Add(true, []byte(`{"id":1,"op":"`+name+`","args":{"cell":"c","base":1,"source":"","cells":["c"],"run":"r","title":"t"}}`))
	}
	f.Add(false, []byte(`{"id":1,"op":"kernel.start"}`))
	f.Fuzz(func(t *testing.T, text bool, b []byte) {
		r, err := decode(text, b)
		if r.id != nil && (!json.Valid(r.id) || len(r.id) > maxID || !isID(r.id)) {
			t.Fatalf("the id is %q", r.id)
		}
		if err != nil {
			msg := notebook.MessageOf(err)
			if notebook.CodeOf(err) != notebook.Invalid || !strings.HasSuffix(msg, ".") || !utf8.ValidString(msg) {
				t.Fatalf("%q is refused with %v", b, err)
			}
			if r.op != nil || r.ask != nil || r.key != "" {
				t.Fatalf("%q is refused and yet is %+v", b, r)
			}
			return
		}
		if !text || !json.Valid(b) || !utf8.Valid(b) {
			t.Fatalf("%q was taken for %+v", b, r)
		}
		pong := r.op == nil && r.ask == nil
		if r.op != nil && r.ask != nil || pong != (r.id == nil) || r.ask != nil && r.key != "" {
			t.Fatalf("%q is %+v", b, r)
		}
		if r.op == nil {
			return
		}
		switch r.op.(type) {
		case notebook.Report, notebook.Dispatch:
			t.Fatalf("%q is the server's own %s", b, r.op.Op())
		}
		args, err := json.Marshal(r.op)
		if err != nil {
			t.Fatal(err)
		}
		again, err := notebook.DecodeOp(r.op.Op(), args)
		if err != nil {
			t.Fatalf("%s %s cannot be decoded again: %v", r.op.Op(), args, err)
		}
		if b, _ := json.Marshal(again); string(b) != string(args) {
			t.Fatalf("%s %s became %s", r.op.Op(), args, b)
		}
	})
}
