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
	"time"

	"sandbook/kernel/notebook"
	"sandbook/sessionstore/internal/db"
)

const (
	tidyEvery  = 30 * time.Second
	cleanEvery = time.Hour
	checkEvery = 24 * time.Hour

	tokenTTL = 30 * 24 * time.Hour // how long an expired token stays in the list
)

// maintainLoop looks after the database until ctx ends.
func (s *Store) maintainLoop(ctx context.Context) {
	tidy, clean, check := time.NewTicker(tidyEvery), time.NewTicker(cleanEvery), time.NewTicker(checkEvery)
	defer tidy.Stop()
	defer clean.Stop()
	defer check.Stop()
	warn := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			s.log.LogAttrs(ctx, slog.LevelError, "database maintenance", slog.String("step", what), slog.Any("error", err))
		}
	}
	if fi, err := os.Stat(filepath.Join(s.dir, dbName)); err == nil && fi.Size() > checkAtOnce {
		warn("quick check", s.integrity(ctx, s.reads, "quick_check(1)"))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tidy.C:
			warn("tidy", s.Tidy(ctx))
		case <-clean.C:
			warn("clean up", s.Maintain(ctx))
		case <-check.C:
			warn("integrity check", s.Check(ctx))
		}
	}
}

// Tidy folds in a write-ahead log that has grown and takes the reserve back
// when there is room again.
func (s *Store) Tidy(ctx context.Context) error {
	var errs []error
	if fi, err := os.Stat(filepath.Join(s.dir, dbName+"-wal")); err == nil && fi.Size() > walLimit {
		errs = append(errs, s.w.checkpoint(ctx))
	}
	if err := s.w.ballast.restore(); err != nil {
		errs = append(errs, fmt.Errorf("restore reserve: %w", err))
	}
	return errors.Join(errs...)
}

// Maintain removes what has outlived its time: receipts, expired tokens,
// notebooks long in the trash, and blobs nothing names.
func (s *Store) Maintain(ctx context.Context) error {
	now := s.now()
	var errs []error
	errs = append(errs, s.tx(ctx, func(ctx context.Context, q *db.Queries) error {
		if _, err := q.DropReceipts(ctx, ms(now.Add(-ReceiptTTL))); err != nil {
			return fmt.Errorf("drop receipts: %w", err)
		}
		if _, err := q.DropTokens(ctx, ms(now.Add(-tokenTTL))); err != nil {
			return fmt.Errorf("drop tokens: %w", err)
		}
		return nil
	}))
	_, err := s.Purge(ctx, now.Add(-TrashTTL))
	errs = append(errs, err)
	_, _, err = s.CollectBlobs(ctx)
	return errors.Join(append(errs, err)...)
}

// Check reads the whole database and reports any damage.
func (s *Store) Check(ctx context.Context) error {
	return s.integrity(ctx, s.reads, "integrity_check(1)")
}

// Backup writes a copy of the database, of one moment, to a new file. The
// server goes on meanwhile.
func (s *Store) Backup(ctx context.Context, path string) error {
	// A connection of its own: it reads for long, and readers may write nothing,
	// not even a copy.
	pool, err := sql.Open("sqlite", dsn(filepath.Join(s.dir, dbName), "busy_timeout(5000)"))
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return errors.Join(s.backup(ctx, pool, path), pool.Close())
}

// execer is a connection or a pool.
type execer interface {
	querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (s *Store) backup(ctx context.Context, c execer, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if _, err := os.Lstat(path); err == nil {
		return notebook.Errorf(notebook.Conflict, "The file %s exists already. Choose another name for the backup.", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return notebook.Errorf(notebook.Unavailable, "The folder of the backup cannot be made: %v. Check its permissions.", cause(err))
	}
	// A file that bears the backup's name is a whole one.
	tmp := path + ".part"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("backup: %w", err)
	}
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return notebook.Errorf(notebook.Unavailable, "The backup cannot be written to %s: %v. Check the folder's permissions.", path, cause(err))
	}
	_, err = c.ExecContext(ctx, "VACUUM INTO ?", tmp)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("backup: %w", mapped(err)), os.Remove(tmp))
	}
	return syncDir(filepath.Dir(path))
}

// Stats are figures about the database.
type Stats struct {
	Notebooks int64 `json:"notebooks"`
	Trash     int64 `json:"trash"`
	Events    int64 `json:"events"`
	Runs      int64 `json:"runs"`
	Blobs     int64 `json:"blobs"`
	BlobBytes int64 `json:"blob_bytes"`
	FileBytes int64 `json:"file_bytes"`
	WALBytes  int64 `json:"wal_bytes"`
	Commits   int64 `json:"commits"`   // since the server started
	DiskFull  bool  `json:"disk_full"` // the last write found no room
	Schema    int64 `json:"schema"`
}

// Stats counts what there is.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	st := Stats{Commits: s.w.commits.Load(), DiskFull: s.w.full.Load(), BlobBytes: s.blobBytes.n.Load()}
	err := s.view(ctx, func(ctx context.Context, q *db.Queries) error {
		for dst, count := range map[*int64]func(context.Context) (int64, error){
			&st.Notebooks: q.CountNotebooks, &st.Trash: q.CountTrash, &st.Events: q.CountEvents,
			&st.Runs: q.CountRuns, &st.Blobs: q.CountBlobs,
		} {
			var err error
			if *dst, err = count(ctx); err != nil {
				return fmt.Errorf("count: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return Stats{}, err
	}
	if st.Schema, _, err = schema(ctx, s.reads, s.reads, s.steps); err != nil {
		return Stats{}, err
	}
	for name, dst := range map[string]*int64{dbName: &st.FileBytes, dbName + "-wal": &st.WALBytes} {
		if fi, err := os.Stat(filepath.Join(s.dir, name)); err == nil {
			*dst = fi.Size()
		}
	}
	return st, nil
}
