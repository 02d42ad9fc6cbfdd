package sessionstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sandbook/kernel/notebook"
	"sandbook/sessionstore/internal/db"
)

// maxGroup bounds how many writes share one transaction.
const maxGroup = 256

// job is one write that waits for the writer. Its function may be called more
// than once, each time in a new transaction, so it must only touch q.
type job struct {
	fn      func(ctx context.Context, q *db.Queries) error
	relaxed bool         // may reach the disk later
	fold    bool         // not a write: fold in the write-ahead log
	state   atomic.Int32 // waiting, taken or dropped
	err     error        // valid once done is closed
	done    chan struct{}
}

const (
	waiting int32 = iota
	taken
	dropped
)

// writer owns the only connection that writes. Writes that arrive while a
// commit runs share the next one; an idle writer commits at once.
type writer struct {
	log     *slog.Logger
	pool    *sql.DB
	conn    *sql.Conn
	q       *db.Queries
	fence   int64
	jobs    chan *job
	quit    chan struct{} // closed by Close: take what waits, then stop
	stopped chan struct{} // closed by loop when it has ended
	ballast *ballast
	full    atomic.Bool // the last commit found the disk full
	fenced  atomic.Bool
	commits atomic.Int64

	wal    *os.File     // the write-ahead log, to be synced
	synced atomic.Int64 // so many of them are on the disk
}

// tx runs fn in a transaction and returns when it is durable, or, if relaxed,
// when it is committed. If ctx ends
// before the writer took it up, nothing is written; afterwards the outcome is
// awaited, because it is decided within milliseconds.
func (w *writer) tx(ctx context.Context, relaxed bool, fn func(ctx context.Context, q *db.Queries) error) error {
	return w.do(ctx, &job{fn: fn, relaxed: relaxed, done: make(chan struct{})})
}

func (w *writer) do(ctx context.Context, j *job) error {
	select {
	case <-w.quit:
		return notebook.Errorf(notebook.Unavailable, msgClosed)
	default:
	}
	select {
	case w.jobs <- j:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.quit:
		return notebook.Errorf(notebook.Unavailable, msgClosed)
	}
	select {
	case <-j.done:
		return mapped(j.err)
	case <-w.stopped:
	case <-ctx.Done():
		if j.state.CompareAndSwap(waiting, dropped) {
			return ctx.Err()
		}
	}
	select {
	case <-j.done:
		return mapped(j.err)
	case <-w.stopped:
	}
	select {
	case <-j.done:
		return mapped(j.err)
	default: // came too late to be taken up
		return notebook.Errorf(notebook.Unavailable, msgClosed)
	}
}

// checkpoint folds the write-ahead log in and cuts its file. It waits for
// readers a moment only, since writes wait meanwhile.
func (w *writer) checkpoint(ctx context.Context) error {
	j := &job{fold: true, done: make(chan struct{})}
	return w.do(ctx, j)
}

func (w *writer) fold() error {
	ctx := context.Background()
	if _, err := w.conn.ExecContext(ctx, "PRAGMA busy_timeout = 200"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	var busy, log, done int
	err := w.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &done)
	if _, rerr := w.conn.ExecContext(ctx, "PRAGMA busy_timeout = 5000"); err == nil {
		err = rerr
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil // busy: the next tidying up tries again
}

// loop commits groups of jobs until quit is closed and no job waits.
func (w *writer) loop() {
	defer close(w.stopped)
	group := make([]*job, 0, maxGroup)
	for {
		var first *job
		select {
		case first = <-w.jobs:
		case <-w.quit:
			select {
			case first = <-w.jobs:
			default:
				return
			}
		}
		group = w.gather(group[:0], first)
		if len(group) > 0 {
			w.commit(group)
		}
	}
}

func (w *writer) gather(group []*job, next *job) []*job {
	for {
		if next.state.CompareAndSwap(waiting, taken) {
			if next.fold {
				next.err = w.fold()
				close(next.done)
			} else {
				group = append(group, next)
			}
		}
		if len(group) == maxGroup {
			return group
		}
		select {
		case next = <-w.jobs:
		default:
			return group
		}
	}
}

// commit makes a group durable. When one job of several fails, the others must
// not suffer: each is then done in a transaction of its own.
func (w *writer) commit(group []*job) {
	err := w.once(group)
	if err != nil && isFull(err) && w.ballast.release() {
		w.log.LogAttrs(context.Background(), slog.LevelWarn, "disk full, reserve given up", slog.Int64("reserve_bytes", w.ballast.size))
		err = w.once(group)
	}
	w.full.Store(err != nil && isFull(err))
	if err == nil || len(group) == 1 {
		for _, j := range group {
			j.err = err
			close(j.done)
		}
		return
	}
	for _, j := range group {
		j.err = w.once([]*job{j})
		w.full.Store(j.err != nil && isFull(j.err))
		close(j.done)
	}
}

// once runs the jobs in one transaction.
func (w *writer) once(group []*job) error {
	ctx := context.Background() // a commit is never cut short
	if w.fenced.Load() {
		return notebook.Errorf(notebook.Unavailable, msgFenced)
	}
	lax := true
	for _, j := range group {
		lax = lax && j.relaxed
	}
	if _, err := w.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	err := w.all(ctx, group)
	if err == nil {
		if _, err = w.conn.ExecContext(ctx, "COMMIT"); err == nil {
			w.commits.Add(1)
			if !lax {
				return w.sync()
			}
			return nil
		}
		err = fmt.Errorf("commit: %w", err)
	}
	// After some errors, a full disk among them, SQLite has rolled back by
	// itself; then this fails, and that is fine.
	if _, rerr := w.conn.ExecContext(ctx, "ROLLBACK"); rerr != nil && codeOf(rerr) != 1 {
		err = errors.Join(err, fmt.Errorf("roll back: %w", rerr))
	}
	return err
}

func (w *writer) all(ctx context.Context, group []*job) error {
	fence, err := w.q.Fence(ctx)
	if err != nil {
		return fmt.Errorf("read fence: %w", err)
	}
	if fence != w.fence {
		w.fenced.Store(true)
		return notebook.Errorf(notebook.Unavailable, msgFenced)
	}
	for _, j := range group {
		if err := j.fn(ctx, w.q); err != nil {
			return err
		}
	}
	return nil
}

// sync returns when every commit before is on the disk. SQLite leaves that to us
// (synchronous=NORMAL): its log is never torn either way, the end of the server
// loses nothing, and most of what a kernel prints need not wait for the disk.
func (w *writer) sync() error {
	want := w.commits.Load()
	for w.synced.Load() < want {
		n := w.commits.Load()
		err := unix.Fdatasync(int(w.wal.Fd())) //nolint:gosec // a descriptor
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		for old := w.synced.Load(); old < n && !w.synced.CompareAndSwap(old, n); old = w.synced.Load() {
		}
	}
	return nil
}

// openLog opens the write-ahead log for sync. The file stays the same as long
// as the connection does. SQLite's locks are on other files, so that closing
// this one gives none of them up.
func (w *writer) openLog(path string) error {
	f, err := os.Open(path + "-wal")
	if err != nil {
		return fmt.Errorf("open write-ahead log: %w", err)
	}
	w.wal = f
	w.commits.Add(1) // what opening wrote
	return w.sync()
}
