// Package notebook is the pure model of a notebook: what its state is, which
// ops are allowed on it, and how events change it. It does no I/O, starts no
// goroutine, reads no clock and makes no ids: those come in as arguments.
//
// A change is two steps. Decide looks at the state and an op and returns the
// events the op causes, or an Error. Apply folds one event into the state and
// cannot fail, because an event is a fact. The owner of a notebook makes the
// events durable between the two.
//
// A State may be read by any number of goroutines once Apply returned it:
// Apply copies what it changes and shares the rest.
package notebook
