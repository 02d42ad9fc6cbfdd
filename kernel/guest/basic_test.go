package guest

import (
	"strings"
	"testing"

	"sandbook/kernel/wire"
)

func TestOnePlusOne(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil)
	h := s.connect(0)
	info := h.start(1)
	if info.Language != "python" || !strings.HasPrefix(info.Implementation, "CPython 3.") {
		t.Errorf("info %+v", info)
	}
	o := h.ok("1+1")
	if got := o.result(); got != "2" {
		t.Errorf("result %q, want 2", got)
	}
	var types []string
	for _, e := range o.events {
		types = append(types, string(e.Type))
	}
	if got, want := strings.Join(types, " "), "run_start result run_end files"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
	if o.end.Peak < 1<<20 {
		t.Errorf("peak memory %d", o.end.Peak)
	}
	o = h.ok("print('a'); import sys; print('b', file=sys.stderr); _ + 1")
	if o.stdout != "a\n" || o.stderr != "b\n" || o.result() != "3" {
		t.Errorf("stdout %q stderr %q result %q", o.stdout, o.stderr, o.result())
	}
	o = h.run("x = 1\ndef f():\n    return x/0\nf()")
	if o.end.Status != wire.RunError || o.end.EName != "ZeroDivisionError" {
		t.Errorf("end %+v", o.end)
	}
	if tb := o.traceback(); !strings.Contains(tb, ", line 4, in <module>") || !strings.Contains(tb, "line 3, in f\n    return x/0") || strings.Contains(tb, "sandbook>") {
		t.Errorf("traceback\n%s", tb)
	}
}
