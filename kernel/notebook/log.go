package notebook

// Batch is what one Append of a log makes durable together.
type Batch struct {
	Events  []Event
	Cursor  *Cursor  // how far the guest's events have been taken; nil: unchanged
	Receipt *Receipt // idempotency record of the op that caused the events, if it had a key
	State   *State   // after the events; the store keeps title, times and status of it for the list

	// Relaxed says that the batch is safe from the end of the server as soon as
	// it is appended, but may reach the disk only with a later batch or Sync.
	// It is for what the guest sends again as long as it is not acknowledged.
	Relaxed bool
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
	State  *State // snapshot; nil if there is none
	Events []Event
	Cursor Cursor
	Bytes  int64 // what the bodies of all its events take
}
