package sessionstore

import (
	"bytes"
	"compress/flate"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/sessionstore/internal/db"
)

const (
	maxKey = 128 // bytes of an idempotency key

	// ReceiptTTL is how long an idempotency key is remembered.
	ReceiptTTL = 30 * 24 * time.Hour

	// snapshotFormat changes when Apply or the state's JSON changes so that an
	// old snapshot would be wrong; such snapshots are ignored and the events
	// folded again.
	snapshotFormat = 1

	deflateAbove = 32 << 10
	maxSnapshot  = 1 << 30
)

// Create stores the first events of a new notebook; the first must be Created.
// An id that is taken is a Conflict.
func (s *Store) Create(ctx context.Context, id notebook.ID, events []notebook.Event) error {
	state := notebook.New(id)
	for _, e := range events {
		state = notebook.Apply(state, e)
	}
	if len(events) == 0 {
		return notebook.Errorf(notebook.Invalid, "A notebook begins with an event.")
	}
	return s.Append(ctx, id, notebook.Batch{Events: events, State: &state})
}

// Append makes a batch durable, see kernel.Log. Events from number 1 on make
// the notebook. A batch whose receipt is stored already is a Conflict.
func (s *Store) Append(ctx context.Context, id notebook.ID, b notebook.Batch) error {
	steps, err := s.plan(id, b)
	if err != nil {
		return err
	}
	var d *db.DescribeParams
	if b.State != nil {
		p := describe(*b.State)
		p.ID = string(id)
		if !s.summaries.same(p) {
			d = &p
		}
	}
	err = s.w.tx(ctx, b.Relaxed, func(ctx context.Context, q *db.Queries) error {
		for _, step := range steps {
			if err := step(ctx, q); err != nil {
				return err
			}
		}
		if d != nil {
			return q.Describe(ctx, *d)
		}
		return nil
	})
	if err == nil && d != nil {
		s.summaries.put(*d)
	}
	return err
}

// Sync returns when every relaxed batch appended before is on the disk, see
// kernel.Log.
func (s *Store) Sync(context.Context) error { return s.w.sync() }

// plan checks a batch and encodes it.
func (s *Store) plan(id notebook.ID, b notebook.Batch) ([]step, error) {
	if id == "" {
		return nil, notebook.Errorf(notebook.Invalid, "The notebook has no id.")
	}
	for i, e := range b.Events {
		if e.Seq < 1 || e.Seq != b.Events[0].Seq+int64(i) {
			return nil, notebook.Errorf(notebook.Conflict, "The events are not numbered one after the other.")
		}
	}
	if b.Cursor != nil && b.Cursor.Seq > math.MaxInt64 {
		return nil, notebook.Errorf(notebook.Invalid, "The guest's event number is out of range.")
	}
	var steps []step
	switch {
	case len(b.Events) > 0 && b.Events[0].Seq == 1:
		first, err := birth(id, b)
		if err != nil {
			return nil, err
		}
		steps = append(steps, first)
	default:
		steps = append(steps, advance(id, b))
	}
	for _, e := range b.Events {
		more, err := eventSteps(id, e)
		if err != nil {
			return nil, err
		}
		steps = append(steps, more...)
	}
	if b.Receipt != nil {
		r, err := s.receipt(id, *b.Receipt)
		if err != nil {
			return nil, err
		}
		steps = append(steps, r)
	}
	return steps, nil
}

// birth inserts the notebook itself.
func birth(id notebook.ID, b notebook.Batch) (step, error) {
	created, ok := b.Events[0].Body.(notebook.Created)
	if !ok {
		return nil, notebook.Errorf(notebook.Conflict, "The first event of a notebook must create it.")
	}
	at := ms(b.Events[0].At)
	p := db.InsertNotebookParams{
		ID: string(id), Seq: b.Events[len(b.Events)-1].Seq, Title: created.Title, Language: created.Language,
		Backend: created.Backend, Created: at, Updated: at, Kernel: string(notebook.NoKernel),
	}
	if b.Cursor != nil {
		p.Boot, p.Taken = int64(b.Cursor.Boot), int64(b.Cursor.Seq) //nolint:gosec // bounded by plan
	}
	return func(ctx context.Context, q *db.Queries) error {
		n, err := q.InsertNotebook(ctx, p)
		if err != nil {
			return fmt.Errorf("insert notebook: %w", err)
		}
		if n == 0 {
			return notebook.Errorf(notebook.Conflict, "There is a notebook with this id already.")
		}
		return nil
	}, nil
}

// advance moves the notebook's number and cursor on, if they stand where the
// batch thinks they do.
func advance(id notebook.ID, b notebook.Batch) step {
	return func(ctx context.Context, q *db.Queries) error {
		var n int64
		var err error
		switch {
		case len(b.Events) > 0 && b.Cursor != nil:
			n, err = q.AdvanceCursor(ctx, db.AdvanceCursorParams{
				Last: b.Events[len(b.Events)-1].Seq, Before: b.Events[0].Seq - 1, ID: string(id),
				Boot: int64(b.Cursor.Boot), Taken: int64(b.Cursor.Seq), //nolint:gosec // bounded by plan
			})
		case len(b.Events) > 0:
			n, err = q.Advance(ctx, db.AdvanceParams{
				Last: b.Events[len(b.Events)-1].Seq, Before: b.Events[0].Seq - 1, ID: string(id),
			})
		case b.Cursor != nil:
			n, err = q.SetCursor(ctx, db.SetCursorParams{Boot: int64(b.Cursor.Boot), Taken: int64(b.Cursor.Seq), ID: string(id)}) //nolint:gosec // bounded by plan
		default:
			_, err = q.Position(ctx, string(id))
			if errors.Is(err, sql.ErrNoRows) {
				return notFound()
			}
			n = 1
		}
		if err != nil {
			return fmt.Errorf("advance: %w", err)
		}
		if n == 1 {
			return nil
		}
		at, err := q.Position(ctx, string(id))
		if errors.Is(err, sql.ErrNoRows) {
			return notFound()
		}
		if err != nil {
			return fmt.Errorf("read position: %w", err)
		}
		return fmt.Errorf("append seq %d after %d: %w", b.Events[0].Seq, at.Seq, notebook.Errorf(notebook.Conflict, "The notebook has moved on; somebody else has written to it. Load it again."))
	}
}

func notFound() error {
	return notebook.Errorf(notebook.NotFound, "There is no such notebook.")
}

func (s *Store) receipt(id notebook.ID, r notebook.Receipt) (step, error) {
	if r.Key == "" || len(r.Key) > maxKey {
		return nil, notebook.Errorf(notebook.Invalid, "An idempotency key has 1 to %d bytes.", maxKey)
	}
	if r.IDs == nil {
		r.IDs = []string{}
	}
	ids, err := json.Marshal(r.IDs)
	if err != nil {
		return nil, fmt.Errorf("encode receipt: %w", err)
	}
	p := db.InsertReceiptParams{
		Notebook: string(id), Actor: r.Actor, Key: r.Key, Hash: r.Hash, First: r.First, Last: r.Last,
		Ids: string(ids), At: ms(s.now()),
	}
	return func(ctx context.Context, q *db.Queries) error {
		n, err := q.InsertReceipt(ctx, p)
		if err != nil {
			return fmt.Errorf("insert receipt: %w", err)
		}
		if n == 0 {
			return notebook.Errorf(notebook.Conflict, "An op with this idempotency key has been done already.")
		}
		return nil
	}, nil
}

// Done looks up a receipt, see kernel.Log. Receipts are kept for ReceiptTTL.
func (s *Store) Done(ctx context.Context, id notebook.ID, actor, key string) (notebook.Receipt, bool, error) {
	r := notebook.Receipt{Actor: actor, Key: key}
	row, err := s.rq.Receipt(ctx, db.ReceiptParams{Notebook: string(id), Actor: actor, Key: key})
	if errors.Is(err, sql.ErrNoRows) {
		return notebook.Receipt{}, false, nil
	}
	if err != nil {
		return notebook.Receipt{}, false, mapped(fmt.Errorf("read receipt: %w", err))
	}
	r.Hash, r.First, r.Last = row.Hash, row.First, row.Last
	if err := json.Unmarshal([]byte(row.Ids), &r.IDs); err != nil {
		return notebook.Receipt{}, false, fmt.Errorf("decode receipt: %w", err)
	}
	return r, true, nil
}

// Load returns the newest usable snapshot, the events after it and the guest
// cursor, all of one moment.
func (s *Store) Load(ctx context.Context, id notebook.ID) (notebook.Loaded, error) {
	var l notebook.Loaded
	err := s.view(ctx, func(ctx context.Context, q *db.Queries) error {
		at, err := q.Position(ctx, string(id))
		if errors.Is(err, sql.ErrNoRows) {
			return notFound()
		}
		if err != nil {
			return fmt.Errorf("read position: %w", err)
		}
		l.Cursor = notebook.Cursor{Boot: int(at.Boot), Seq: uint64(at.Taken)} //nolint:gosec // written by plan
		var since int64
		snap, err := q.Snapshot(ctx, string(id))
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("read snapshot: %w", err)
		}
		if err == nil && snap.Format == snapshotFormat {
			state, derr := decodeSnapshot(snap.Codec, snap.Body)
			if derr == nil && state.ID == id && state.Seq == snap.Seq && snap.Seq <= at.Seq {
				l.State, since = &state, snap.Seq
			} else {
				// The events are the truth; a snapshot only saves time.
				s.log.LogAttrs(ctx, slog.LevelWarn, "snapshot is not usable", slog.String("notebook", string(id)), slog.Int64("seq", snap.Seq), slog.Any("error", derr))
			}
		}
		l.Events, err = events(ctx, q, id, since, math.MaxInt64)
		if err != nil {
			return err
		}
		if l.Bytes, err = q.LogBytes(ctx, string(id)); err != nil {
			return fmt.Errorf("measure log: %w", err)
		}
		if since+int64(len(l.Events)) != at.Seq {
			err = fmt.Errorf("notebook %s is at seq %d but has %d events after %d", id, at.Seq, len(l.Events), since)
		}
		return err
	})
	if err != nil {
		return notebook.Loaded{}, fmt.Errorf("load: %w", err)
	}
	return l, nil
}

// Events returns up to limit events after since, in order.
func (s *Store) Events(ctx context.Context, id notebook.ID, since int64, limit int) ([]notebook.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	evs, err := events(ctx, s.rq, id, since, int64(max(0, limit)))
	if err != nil {
		return nil, mapped(err)
	}
	return evs, nil
}

func events(ctx context.Context, q *db.Queries, id notebook.ID, since, limit int64) ([]notebook.Event, error) {
	rows, err := q.EventsAfter(ctx, db.EventsAfterParams{Notebook: string(id), Seq: since, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	evs := make([]notebook.Event, len(rows))
	for i, r := range rows {
		body, err := notebook.DecodeBody(r.Type, r.Body)
		if err != nil {
			return nil, fmt.Errorf("decode event %d: %w", r.Seq, err)
		}
		evs[i] = notebook.Event{
			Seq: r.Seq, At: time.UnixMilli(r.At).UTC(),
			By: notebook.Author{Kind: notebook.ActorKind(r.ByKind), ID: r.ByID, Name: r.ByName}, Body: body,
		}
	}
	return evs, nil
}

// Save stores a snapshot in place of an older one. A state newer than the log
// is a Conflict.
func (s *Store) Save(ctx context.Context, st notebook.State) error {
	codec, body, err := encodeSnapshot(st)
	if err != nil {
		return err
	}
	p := db.PutSnapshotParams{
		Notebook: string(st.ID), Seq: st.Seq, At: ms(s.now()), Format: snapshotFormat, Codec: codec, Body: body,
	}
	return s.tx(ctx, func(ctx context.Context, q *db.Queries) error {
		at, err := q.Position(ctx, string(st.ID))
		if errors.Is(err, sql.ErrNoRows) {
			return notFound()
		}
		if err != nil {
			return fmt.Errorf("read position: %w", err)
		}
		if st.Seq > at.Seq {
			return notebook.Errorf(notebook.Conflict, "The snapshot is of seq %d, but the log ends at %d.", st.Seq, at.Seq)
		}
		return q.PutSnapshot(ctx, p)
	})
}

func encodeSnapshot(st notebook.State) (codec string, body []byte, err error) {
	body, err = json.Marshal(st)
	if err != nil {
		return "", nil, fmt.Errorf("encode snapshot: %w", err)
	}
	if len(body) <= deflateAbove {
		return "json", body, nil
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return "", nil, fmt.Errorf("compress snapshot: %w", err)
	}
	if _, err := w.Write(body); err != nil {
		return "", nil, fmt.Errorf("compress snapshot: %w", err)
	}
	if err := w.Close(); err != nil {
		return "", nil, fmt.Errorf("compress snapshot: %w", err)
	}
	return "deflate", b.Bytes(), nil
}

func decodeSnapshot(codec string, body []byte) (notebook.State, error) {
	if codec == "deflate" {
		r := flate.NewReader(bytes.NewReader(body))
		var err error
		if body, err = io.ReadAll(io.LimitReader(r, maxSnapshot)); err != nil {
			return notebook.State{}, fmt.Errorf("expand snapshot: %w", err)
		}
	}
	var st notebook.State
	if err := json.Unmarshal(body, &st); err != nil {
		return notebook.State{}, fmt.Errorf("decode snapshot: %w", err)
	}
	if st.Runs == nil {
		st.Runs = map[notebook.RunID]*notebook.Run{}
	}
	return st, nil
}
