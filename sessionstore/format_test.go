package sessionstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"sandbook/kernel/notebook"
)

// The golden file holds an event of each type with every field set, in the
// stored format. Its lines are never changed, only added to: a line that can
// no longer be read means that existing notebooks cannot be read either.
func TestStoredEventsStayReadable(t *testing.T) {
	t.Parallel()
	golden := filepath.Join("testdata", "events.golden")
	old, err := os.ReadFile(golden)
	if err != nil && !*update {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for line := range bytes.Lines(old) {
		line = bytes.TrimSpace(line)
		have[string(line)] = true
		var e notebook.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Errorf("a stored event can no longer be read: %v\n%s", err, line)
			continue
		}
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if lost := missing(t, "", decode(t, line), decode(t, again)); lost != "" {
			t.Errorf("a stored event loses %s when read\n%s", lost, line)
		}
	}
	var add []byte
	for i, name := range notebook.EventNames() {
		zero, err := notebook.DecodeBody(name, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		full := reflect.New(reflect.TypeOf(zero)).Elem()
		fill(t, full, name, 0)
		body, ok := full.Interface().(notebook.Body)
		if !ok {
			t.Fatalf("%s is no body", name)
		}
		line, err := json.Marshal(notebook.Event{Seq: int64(i + 1), At: t0, By: ann, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		if !containsBody(have, line) {
			add = append(append(add, line...), '\n')
		}
	}
	if len(add) == 0 {
		return
	}
	if !*update {
		t.Fatalf("the format of these events is not in %s; if they only gained fields, run with -update:\n%s", golden, add)
	}
	if err := os.WriteFile(golden, append(old, add...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// containsBody ignores the number, which depends on the other events.
func containsBody(have map[string]bool, line []byte) bool {
	_, body, _ := strings.Cut(string(line), `"at"`)
	for h := range have {
		if strings.HasSuffix(h, body) {
			return true
		}
	}
	return false
}

func decode(t *testing.T, p []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(p))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// missing names the first value of a that b has not.
func missing(t *testing.T, at string, a, b any) string {
	t.Helper()
	switch a := a.(type) {
	case map[string]any:
		bm, ok := b.(map[string]any)
		if !ok {
			return at
		}
		for k, v := range a {
			w, ok := bm[k]
			if !ok {
				return at + "." + k
			}
			if m := missing(t, at+"."+k, v, w); m != "" {
				return m
			}
		}
	case []any:
		bl, ok := b.([]any)
		if !ok || len(bl) != len(a) {
			return at
		}
		for i := range a {
			if m := missing(t, fmt.Sprintf("%s[%d]", at, i), a[i], bl[i]); m != "" {
				return m
			}
		}
	default:
		if !reflect.DeepEqual(a, b) {
			return at
		}
	}
	return ""
}

// fill sets every field to something that tells where it belongs.
func fill(t *testing.T, v reflect.Value, name string, depth int) {
	t.Helper()
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(t0))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`{"raw":1}`))
		return
	}
	if depth > 8 {
		t.Fatalf("%s is too deep", name)
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("the " + strings.ToLower(name) + " <ü>\n")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(int64(len(name)) + 1)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(len(name)) + 1)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), name, depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), name, depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		fill(t, e, name, depth+1)
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), e)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fill(t, v.Field(i), f.Name, depth+1)
			}
		}
	default:
		t.Fatalf("%s has a %s, which this test cannot fill", name, v.Kind())
	}
}
