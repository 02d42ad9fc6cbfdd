package policy

import (
	"slices"
	"strings"
	"testing"

	"sandbook/kernel/notebook"
)

const (
	edit   = notebook.ScopeEdit
	run    = notebook.ScopeRun
	server = notebook.Scope("server only")
)

// needs repeats by hand what each op asks for, so that a slip in the table of
// the package is found. A new op has to be added here, too.
var needs = []struct {
	op    notebook.Op
	scope notebook.Scope
}{
	{notebook.Rename{}, edit},
	{notebook.DeleteNotebook{}, edit},
	{notebook.RestoreNotebook{}, edit},
	{notebook.InsertCell{}, edit},
	{notebook.EditCell{}, edit},
	{notebook.MoveCell{}, edit},
	{notebook.DeleteCell{}, edit},
	{notebook.RestoreCell{}, edit},
	{notebook.SetCellKind{}, edit},
	{notebook.SplitCell{}, edit},
	{notebook.MergeCells{}, edit},
	{notebook.ClearOutputs{}, edit},
	{notebook.RunCells{}, run},
	{notebook.CancelRun{}, run},
	{notebook.Interrupt{}, run},
	{notebook.ReplyInput{}, run},
	{notebook.StartKernel{}, run},
	{notebook.StopKernel{}, run},
	{notebook.RestartKernel{}, run},
	{notebook.Report{}, server},
	{notebook.Dispatch{}, server},
}

var scopes = []notebook.Scope{notebook.ScopeRead, notebook.ScopeEdit, notebook.ScopeRun, notebook.ScopeReview, notebook.ScopeAdmin}

// TestAllow walks every op, every kind of actor and every set of scopes.
func TestAllow(t *testing.T) {
	t.Parallel()
	for _, n := range needs {
		for _, kind := range []notebook.ActorKind{notebook.Person, notebook.Agent, notebook.Server, "", "admin", "PERSON"} {
			for set := range 1 << len(scopes) {
				a := notebook.Actor{Author: notebook.Author{Kind: kind, ID: "a"}}
				for i, s := range scopes {
					if set&(1<<i) != 0 {
						a.Scopes = append(a.Scopes, s)
					}
				}
				want := kind == notebook.Server ||
					(kind == notebook.Person || kind == notebook.Agent) && slices.Contains(a.Scopes, n.scope)
				err := Allow(notebook.State{}, a, n.op)
				if (err == nil) != want {
					t.Errorf("%s by %q with %v: %v, want allowed %t", n.op.Op(), kind, a.Scopes, err, want)
				}
				if err == nil {
					continue
				}
				if got := notebook.CodeOf(err); got != notebook.Denied {
					t.Errorf("%s by %q: code %s, want denied", n.op.Op(), kind, got)
				}
				if m := notebook.MessageOf(err); !strings.HasSuffix(m, ".") || strings.ToUpper(m[:1]) != m[:1] || strings.Contains(m, "not :") {
					t.Errorf("%s by %q: not a sentence: %q", n.op.Op(), kind, m)
				}
			}
		}
	}
}

// TestEveryOpHasARow fails when an op is added and nobody says who may do it.
func TestEveryOpHasARow(t *testing.T) {
	t.Parallel()
	var here []string
	for _, n := range needs {
		here = append(here, n.op.Op())
	}
	for _, name := range notebook.OpNames() {
		if _, ok := Lookup(name); !ok {
			t.Errorf("op %s has no rule in package policy", name)
		}
		if !slices.Contains(here, name) {
			t.Errorf("op %s has no row in this test", name)
		}
	}
	for name := range rules {
		if !slices.Contains(here, name) {
			t.Errorf("the rule of %s is not tested", name)
		}
	}
	if len(here) != len(rules) {
		t.Errorf("%d ops tested, %d rules", len(here), len(rules))
	}
}

type strange struct{}

func (strange) Op() string { return "notebook.burn" }

// TestUnknownOpIsDeniedToAll: even the server does not do what has no rule.
func TestUnknownOpIsDeniedToAll(t *testing.T) {
	t.Parallel()
	for _, a := range []notebook.Actor{
		notebook.TheServer,
		{Author: notebook.Author{Kind: notebook.Person}, Scopes: scopes},
		{Author: notebook.Author{Kind: notebook.Agent}, Scopes: scopes},
		{},
	} {
		for _, o := range []notebook.Op{strange{}, nil} {
			if got := notebook.CodeOf(Allow(notebook.State{}, a, o)); got != notebook.Denied {
				t.Errorf("%v by %q: %q, want denied", o, a.Kind, got)
			}
		}
	}
}

// TestAgentNeverReviews: a credential that says otherwise does not help.
func TestAgentNeverReviews(t *testing.T) {
	t.Parallel()
	agent := notebook.Actor{Author: notebook.Author{Kind: notebook.Agent}, Scopes: scopes}
	person := notebook.Actor{Author: notebook.Author{Kind: notebook.Person}, Scopes: scopes}
	nobody := notebook.Actor{Scopes: scopes}
	for _, s := range scopes {
		never := s == notebook.ScopeReview || s == notebook.ScopeAdmin
		if Holds(agent, s) == never {
			t.Errorf("agent holds %s: %t", s, !never)
		}
		if !Holds(person, s) || !Holds(notebook.TheServer, s) || Holds(nobody, s) {
			t.Errorf("scope %s: person %t, server %t, nobody %t", s, Holds(person, s), Holds(notebook.TheServer, s), Holds(nobody, s))
		}
	}
	if Holds(notebook.Actor{Author: notebook.Author{Kind: notebook.Person}}, notebook.ScopeRead) {
		t.Error("a person without scopes reads")
	}
}
