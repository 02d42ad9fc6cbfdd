package kernel

import (
	"context"
	"io"

	"sandbook/kernel/notebook"
)

// Log is the durable event log of notebooks. sessionstore.Store implements it.
// Methods may be called concurrently.
type Log interface {
	// Append makes a batch durable: all of it or nothing. Event numbers must
	// follow on from what is stored, else the error is a notebook.Conflict (a
	// second owner has written).
	Append(ctx context.Context, id notebook.ID, b notebook.Batch) error

	// Sync returns when every relaxed batch appended before is on the disk, too.
	Sync(ctx context.Context) error

	// Load returns the newest snapshot, if any, the events after it in order,
	// and the guest cursor. A notebook that does not exist is NotFound.
	Load(ctx context.Context, id notebook.ID) (notebook.Loaded, error)

	// Events returns up to limit events with seq greater than since.
	Events(ctx context.Context, id notebook.ID, since int64, limit int) ([]notebook.Event, error)

	// Save stores a snapshot, so that Load need not go through every event.
	Save(ctx context.Context, s notebook.State) error

	// Done looks up an op done earlier under an idempotency key.
	Done(ctx context.Context, id notebook.ID, actor, key string) (notebook.Receipt, bool, error)
}

// Blobs keeps bytes by their sha256. Methods may be called concurrently.
type Blobs interface {
	// PutFor stores at most limit bytes of r for a notebook; more, or more than
	// its quota, is a notebook.TooLarge error and stores nothing.
	PutFor(ctx context.Context, id notebook.ID, r io.Reader, limit int64) (hash string, size int64, err error)

	// Open reads a blob; NotFound if there is none.
	Open(ctx context.Context, hash string) (io.ReadCloser, error)
}
