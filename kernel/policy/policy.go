// Package policy says who may ask for which op. It is a pure table: it knows
// kinds of actor, scopes and ops, and nothing of how somebody signed in. It is
// not the judge of whether an op makes sense; that is notebook.Decide.
package policy

import "sandbook/kernel/notebook"

// Rule is what one op asks of whoever wants it.
type Rule struct {
	Scope  notebook.Scope // the credential must hold it
	Server bool           // only the server itself does this
	verb   string         // completes "You may not …"
}

// rules has a row for each op. An op without a row is denied to everybody.
var rules = map[string]Rule{
	notebook.Rename{}.Op():          {Scope: notebook.ScopeEdit, verb: "rename it"},
	notebook.DeleteNotebook{}.Op():  {Scope: notebook.ScopeEdit, verb: "delete it"},
	notebook.RestoreNotebook{}.Op(): {Scope: notebook.ScopeEdit, verb: "restore it"},
	notebook.InsertCell{}.Op():      {Scope: notebook.ScopeEdit, verb: "add cells"},
	notebook.EditCell{}.Op():        {Scope: notebook.ScopeEdit, verb: "edit cells"},
	notebook.MoveCell{}.Op():        {Scope: notebook.ScopeEdit, verb: "move cells"},
	notebook.DeleteCell{}.Op():      {Scope: notebook.ScopeEdit, verb: "delete cells"},
	notebook.RestoreCell{}.Op():     {Scope: notebook.ScopeEdit, verb: "bring cells back"},
	notebook.SetCellKind{}.Op():     {Scope: notebook.ScopeEdit, verb: "change what kind a cell is"},
	notebook.SplitCell{}.Op():       {Scope: notebook.ScopeEdit, verb: "split cells"},
	notebook.MergeCells{}.Op():      {Scope: notebook.ScopeEdit, verb: "merge cells"},
	notebook.ClearOutputs{}.Op():    {Scope: notebook.ScopeEdit, verb: "clear outputs"},
	notebook.RunCells{}.Op():        {Scope: notebook.ScopeRun, verb: "run cells"},
	notebook.CancelRun{}.Op():       {Scope: notebook.ScopeRun, verb: "cancel runs"},
	notebook.Interrupt{}.Op():       {Scope: notebook.ScopeRun, verb: "interrupt runs"},
	notebook.ReplyInput{}.Op():      {Scope: notebook.ScopeRun, verb: "answer what a run asks"},
	notebook.StartKernel{}.Op():     {Scope: notebook.ScopeRun, verb: "start the kernel"},
	notebook.StopKernel{}.Op():      {Scope: notebook.ScopeRun, verb: "stop the kernel"},
	notebook.RestartKernel{}.Op():   {Scope: notebook.ScopeRun, verb: "restart the kernel"},
	notebook.Report{}.Op():          {Server: true},
	notebook.Dispatch{}.Op():        {Server: true},
}

// Lookup returns the rule of an op, for documentation and for façades that
// list what a credential can do.
func Lookup(op string) (Rule, bool) {
	r, ok := rules[op]
	return r, ok
}

// Allow returns nil if a may ask for o on s, else a notebook.Error with code
// Denied. Rights that do not depend on the op's arguments are decided here;
// an unknown op, an unknown kind of actor and a missing scope are all denied.
// An agent never acts with the Review or Admin scope, whatever its credential
// says.
func Allow(_ notebook.State, a notebook.Actor, o notebook.Op) error {
	if o == nil {
		return notebook.Errorf(notebook.Denied, "There is no such op.")
	}
	r, ok := rules[o.Op()]
	if !ok {
		return notebook.Errorf(notebook.Denied, "Nobody may do %s: it has no rule.", o.Op())
	}
	switch a.Kind {
	case notebook.Server:
		return nil
	case notebook.Person, notebook.Agent:
	default:
		return notebook.Errorf(notebook.Denied, "Sign in first. Nobody knows who is asking.")
	}
	if r.Server {
		return notebook.Errorf(notebook.Denied, "Only the server itself does this.")
	}
	if !Holds(a, r.Scope) {
		return notebook.Errorf(notebook.Denied,
			"You may not %s: your link or token lacks the scope %q. Ask whoever runs this server for one that has it.", r.verb, r.Scope)
	}
	return nil
}

// Holds reports whether a has the scope in fact: what its credential says,
// less what its kind can never hold.
func Holds(a notebook.Actor, s notebook.Scope) bool {
	switch a.Kind {
	case notebook.Server:
		return true
	case notebook.Person:
		return a.May(s)
	case notebook.Agent:
		return a.May(s) && s != notebook.ScopeReview && s != notebook.ScopeAdmin
	}
	return false
}
