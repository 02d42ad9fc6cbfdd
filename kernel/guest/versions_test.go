package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandbook/kernel/wire"
)

// TestPythonVersions runs the driver on every CPython from 3.8 that this
// machine has.
func TestPythonVersions(t *testing.T) {
	t.Parallel()
	home, _ := os.UserHomeDir()
	found, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.*/bin/python3"))
	more, _ := filepath.Glob("/usr/bin/python3.[0-9]*")
	count := 0
	for _, python := range append(found, more...) {
		if strings.Contains(python, "config") || strings.Contains(python, "coverage") || strings.Contains(python, "/3.6.") || strings.Contains(python, "/3.7.") {
			continue
		}
		count++
		t.Run(strings.ReplaceAll(strings.TrimPrefix(python, home), "/", "_"), func(t *testing.T) {
			s := newSandbox(t, nil)
			h := s.connect(0)
			h.must(wire.Request{Op: wire.OpStart, Gen: 1, Start: &wire.StartKernel{Argv: []string{python}}})
			info := content[wire.KernelInfo](t, h.ofType(wire.EventReady))
			t.Log(info.Implementation)
			if got := h.ok("import asyncio, threading, subprocess, dataclasses, json\nawait asyncio.sleep(0)\nth = threading.Thread(target=print, args=('t',)); th.start(); th.join()\nsubprocess.run(['echo', 's'])\nprint({'a': 1})\n[1, {'b': 2}]"); got.result() != "[1, {'b': 2}]" || got.stdout != "t\ns\n{'a': 1}\n" {
				t.Errorf("%q %q", got.result(), got.stdout)
			}
			if tb := h.run("def f():\n    return 1/0\n\nf()").traceback(); !strings.Contains(tb, "line 4, in <module>") || !strings.Contains(tb, "line 2, in f\n    return 1/0") || strings.Contains(tb, "sandbook>") {
				t.Errorf("traceback\n%s", tb)
			}
			if o := h.run("x = ("); o.end.EName != "SyntaxError" {
				t.Errorf("%+v", o.end)
			}
			if got := h.ok("3;\n").result() + h.ok("(4) ; # c").result() + h.ok("(5)").result(); got != "5" {
				t.Errorf("semicolons: %q", got)
			}
			if got := h.ok("%timeit -n1 -r1 1\n!echo hi"); !strings.HasSuffix(got.stdout, "hi\n") {
				t.Errorf("magics: %q", got.stdout)
			}
			h.ok("from __future__ import annotations")
			if got := h.ok("def g(a: nope): pass\ng.__annotations__").result(); got != "{'a': 'nope'}" {
				t.Errorf("annotations %s", got)
			}
			h.must(wire.Request{Op: wire.OpVariables})
			h.must(wire.Request{Op: wire.OpComplete, Code: "pri", Pos: 3})
			h.must(wire.Request{Op: wire.OpInspect, Code: "print", Pos: 3})
			h.must(wire.Request{Op: wire.OpIsComplete, Code: "if x:"})
			r := newRun("while True: pass")
			h.begin(r)
			h.event("start", func(e wire.Event) bool { return e.Type == wire.EventRunStart && e.Run == r.ID })
			h.must(wire.Request{Op: wire.OpInterrupt, RunID: r.ID})
			if o := h.finish(r.ID); o.end.Status != wire.RunInterrupted {
				t.Errorf("%+v", o.end)
			}
		})
	}
	if count == 0 {
		t.Error("there is no Python here")
	}
}
