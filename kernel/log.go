package kernel

import (
	"context"

	"sandbook/kernel/notebook"
)

// Log is the durable event log of notebooks. sessionstore.Store implements it.
// Methods may be called concurrently.
type Log interface {
	// Append makes a batch durable: all of it or nothing. Event numbers must
	// follow on from what is stored, else the error is a notebook.Conflict (a
	// second owner has written).
	Append(ctx context.Context, id notebook.ID, b Batch) error

	// Load returns the newest snapshot, if any, the events after it in order,
	// and the guest cursor. A notebook that does not exist is NotFound.
	Load(ctx context.Context, id notebook.ID) (Loaded, error)

	// Events returns up to limit events with seq greater than since.
	Events(ctx context.Context, id notebook.ID, since int64, limit int) ([]notebook.Event, error)

	// Save stores a snapshot, so that Load need not go through every event.
	Save(ctx context.Context, s notebook.State) error

	// Done looks up an op done earlier under an idempotency key.
	Done(ctx context.Context, id notebook.ID, actor, key string) (Receipt, bool, error)
}

// Batch is what one Append makes durable together.
type Batch struct {
	Events  []notebook.Event
	Cursor  *Cursor         // how far the guest's events have been taken; nil: unchanged
	Receipt *Receipt        // idempotency record of the op that caused the events, if it had a key
	State   *notebook.State // after the events; the store keeps title, times and status of it for the list
}

// Cursor says how far the events of a sandbox have been made durable.
type Cursor struct {
	Boot int
	Seq  uint64
}

// Receipt remembers what an op with an idempotency key did.
type Receipt struct {
	Actor string // author id; keys of different actors are different
	Key   string // at most 128 bytes
	Hash  string // sha256 of op name and arguments, hex; same key with another hash is a Conflict
	First int64  // seq of the first event, 0 if it caused none
	Last  int64
	IDs   []string // ids the op made, in order: runs or cells
}

// Loaded is a notebook as the log has it.
type Loaded struct {
	State  *notebook.State // snapshot; nil if there is none
	Events []notebook.Event
	Cursor Cursor
}
