// Package sessionstore keeps everything durable in one SQLite file: the event
// log of each notebook, snapshots, what lists and histories show, blobs,
// tokens and settings. It satisfies kernel.Log and the blob interface of
// artifacts. It is not where anything is decided: it stores what it is given,
// all of it or nothing, and the only order it enforces is that of event
// numbers.
//
// The data folder holds sandbook.db with its -wal and -shm files,
// sandbook.lock (held while a server runs), reserve (room given up when the
// disk is full) and backups/. Nothing in it is ever deleted because it could
// not be read.
package sessionstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sandbook/migrations"
	"sandbook/sessionstore/internal/db"

	sqlite3 "modernc.org/sqlite/lib"
)

// Options says where a store is and how it behaves. Only Dir is needed.
type Options struct {
	Dir     string           // data folder, made with mode 0700 if there is none
	Now     func() time.Time // the clock; nil is time.Now
	Reserve int64            // bytes kept free for a full disk; 0 is 8 MiB, negative none
	Readers int              // connections that read; 0 is 4
	Logger  *slog.Logger     // for what happens in the background; nil is slog.Default
	// NoMaintenance leaves out the hourly clean-up in the background; Maintain
	// can still be called.
	NoMaintenance bool

	steps fs.FS // the schema's steps; nil is migrations.FS
}

// Store is an open data folder. Its methods may be called concurrently. Errors
// that are a *notebook.Error anywhere in their chain are for people: Conflict,
// NotFound, TooLarge, and Unavailable when the disk is full, read-only or
// damaged; all others are for the log.
type Store struct {
	dir   string
	steps fs.FS
	now   func() time.Time
	log   *slog.Logger
	lock  *os.File
	w     *writer
	reads *sql.DB
	rq    *db.Queries

	summaries summaries
	blobBytes counter

	stop   context.CancelFunc
	wg     sync.WaitGroup
	closed sync.Once
	cerr   error
}

const (
	dbName      = "sandbook.db"
	lockName    = "sandbook.lock"
	ballastName = "reserve"
	backupDir   = "backups"
)

// Open opens the data folder, upgrades its schema and starts the writer. A
// folder another server uses, a damaged file and a newer schema are refused
// with a sentence.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Reserve == 0 {
		o.Reserve = 8 << 20
	}
	if o.Readers <= 0 {
		o.Readers = 4
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.steps == nil {
		o.steps = migrations.FS
	}
	dir, err := prepareDir(o.Dir)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(ctx, dir, o.Logger)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, steps: o.steps, now: o.Now, log: o.Logger, lock: lock}
	if err := s.open(ctx, o); err != nil {
		if code := codeOf(err) & 0xff; code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB {
			err = fmt.Errorf("%w: %w", s.damaged("The database %s is damaged.", filepath.Join(dir, dbName)), err)
		}
		return nil, errors.Join(err, s.release())
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.wg.Go(s.w.loop)
	if err := s.sweep(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if !o.NoMaintenance {
		s.wg.Go(func() { s.maintainLoop(background) })
	}
	return s, nil
}

func (s *Store) openWriter(ctx context.Context, path string, reserve int64) error {
	pool, conn, err := openWriter(ctx, path)
	if err != nil {
		return err
	}
	s.w = &writer{
		pool: pool, conn: conn, log: s.log,
		jobs: make(chan *job, maxGroup), quit: make(chan struct{}), stopped: make(chan struct{}),
		ballast: &ballast{path: filepath.Join(s.dir, ballastName), size: reserve},
	}
	return nil
}

func (s *Store) openReaders(ctx context.Context, path string, n int) error {
	var err error
	if s.reads, err = openReaders(path, n); err != nil {
		return err
	}
	if s.rq, err = db.Prepare(ctx, s.reads); err != nil {
		return fmt.Errorf("prepare statements: %w", mapped(err))
	}
	return nil
}

// open does what needs the lock but no goroutine.
func (s *Store) open(ctx context.Context, o Options) error {
	path := filepath.Join(s.dir, dbName)
	if err := s.prepareFile(ctx, path); err != nil {
		return err
	}
	if err := s.openWriter(ctx, path, o.Reserve); err != nil {
		return err
	}
	if err := s.check(ctx, path); err != nil {
		return err
	}
	var err error
	if s.w.q, err = db.Prepare(ctx, s.w.conn); err != nil {
		return fmt.Errorf("prepare statements: %w", mapped(err))
	}
	host, _ := os.Hostname() // only shown
	s.w.fence, err = s.w.q.TakeOver(ctx, db.TakeOverParams{Host: host, Pid: int64(os.Getpid()), Started: ms(s.now())})
	if err != nil {
		return fmt.Errorf("take over: %w", mapped(err))
	}
	if err := s.w.openLog(path); err != nil {
		return err
	}
	if err := s.openReaders(ctx, path, o.Readers); err != nil {
		return err
	}
	total, err := s.rq.BlobBytes(ctx)
	if err != nil {
		return fmt.Errorf("count blobs: %w", mapped(err))
	}
	s.blobBytes.n.Store(total)
	if err := s.w.ballast.restore(); err != nil {
		return fmt.Errorf("make reserve: %w", err)
	}
	return nil
}

// Close commits what waits, folds the write-ahead log into the file and gives
// the folder up. It may be called more than once.
func (s *Store) Close() error {
	s.closed.Do(func() {
		s.stop()
		close(s.w.quit)
		s.wg.Wait()
		s.cerr = s.release()
	})
	return s.cerr
}

// release closes whatever open opened.
func (s *Store) release() error {
	var errs []error
	if s.rq != nil {
		errs = append(errs, s.rq.Close())
	}
	if s.reads != nil {
		errs = append(errs, s.reads.Close())
	}
	if s.w != nil {
		if s.w.q != nil {
			errs = append(errs, s.w.q.Close())
		}
		errs = append(errs, s.w.conn.Close(), s.w.pool.Close())
		if s.w.wal != nil {
			errs = append(errs, s.w.wal.Close())
		}
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// tx is the one way to write what must be on the disk.
func (s *Store) tx(ctx context.Context, fn func(ctx context.Context, q *db.Queries) error) error {
	return s.w.tx(ctx, false, fn)
}

// readTime bounds every read, so that none keeps the write-ahead log from
// being folded in for long.
const readTime = 30 * time.Second

// view runs fn on one consistent state of the database.
func (s *Store) view(ctx context.Context, fn func(ctx context.Context, q *db.Queries) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	tx, err := s.reads.BeginTx(ctx, nil)
	if err != nil {
		return mapped(fmt.Errorf("begin read: %w", err))
	}
	err = fn(ctx, s.rq.WithTx(tx))
	if rerr := tx.Rollback(); rerr != nil && err == nil && !errors.Is(rerr, sql.ErrTxDone) {
		err = fmt.Errorf("end read: %w", rerr)
	}
	return mapped(err)
}

// ms is a time as the database has it.
func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// fromMS undoes ms.
func fromMS(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
