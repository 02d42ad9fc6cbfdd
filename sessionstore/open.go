package sessionstore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sandbook/kernel/notebook"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
)

const (
	minSQLite = "3.51.3" // earlier ones can damage a WAL database
	pageSize  = 4096

	walPages = 1000     // pages in the log before it is folded in
	walLimit = 64 << 20 // bytes the log's file may keep once folded in

	// A larger database is checked in the background, so that a restart after a
	// crash stays quick.
	checkAtOnce = 256 << 20
)

// prepareDir makes the data folder private and returns its absolute path.
func prepareDir(dir string) (string, error) {
	if dir == "" {
		return "", notebook.Errorf(notebook.Invalid, "Say which folder holds the data.")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	fi, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(dir, 0o700)
		if err != nil {
			return "", notebook.Errorf(notebook.Unavailable, "The data folder %s cannot be made: %v. Choose another one.", dir, cause(err))
		}
		return dir, nil
	case err != nil:
		return "", notebook.Errorf(notebook.Unavailable, "The data folder %s cannot be opened: %v. Check its permissions.", dir, cause(err))
	case !fi.IsDir():
		return "", notebook.Errorf(notebook.Invalid, "The data folder %s is a file. Choose a folder.", dir)
	case fi.Mode().Perm()&0o077 == 0:
		return dir, nil
	}
	// Others can look in. Tighten it only where nothing else can live there.
	if ours, err := oursOrEmpty(dir); err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	} else if !ours {
		return "", notebook.Errorf(notebook.Denied, "The data folder %s can be opened by other users and holds other files. Choose a folder of its own, or run: chmod 700 %s", dir, dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a folder needs its x bit
		return "", notebook.Errorf(notebook.Denied, "The data folder %s can be opened by other users, and that cannot be changed: %v. Make it yours, or choose another one.", dir, cause(err))
	}
	return dir, nil
}

func oursOrEmpty(dir string) (bool, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	if len(names) == 0 {
		return true, nil
	}
	for _, n := range names {
		if n.Name() == dbName || n.Name() == lockName {
			return true, nil
		}
	}
	return false, nil
}

// cause is the last error of the chain: without the path, which the sentence has.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// lockDir makes this the only server on the folder. The lock is not on the
// database file itself: closing any descriptor of that would drop SQLite's own
// locks.
func lockDir(ctx context.Context, dir string, log *slog.Logger) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, notebook.Errorf(notebook.Unavailable, "The data folder %s cannot be written: %v. Check its owner and permissions.", dir, cause(err))
	}
	if err := flock(ctx, f); err != nil {
		who := ""
		if b, rerr := io.ReadAll(io.LimitReader(f, 20)); rerr == nil && len(b) > 0 {
			if pid, aerr := strconv.Atoi(strings.TrimSpace(string(b))); aerr == nil {
				who = fmt.Sprintf(" (process %d)", pid)
			}
		}
		err = errors.Join(err, f.Close())
		return nil, fmt.Errorf("%w: %w", notebook.Errorf(notebook.Conflict, "Another server%s is using the data folder %s. Stop it, or start this one with another folder.", who, dir), err)
	}
	// The process number only helps people; a full disk must not keep us out.
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		if err != nil {
			log.LogAttrs(ctx, slog.LevelWarn, "lock file does not say who holds it", slog.Any("error", err))
		}
	}
	return f, nil
}

// lockWait is how long a lock may be held by what a killed server leaves for a
// moment: a process it was about to start has its descriptors until it has.
const lockWait = 2 * time.Second

func flock(ctx context.Context, f *os.File) error {
	end := time.Now().Add(lockWait)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// prepareFile makes a new database, complete before it gets its name, or looks
// at the files of an old one before SQLite does.
func (s *Store) prepareFile(ctx context.Context, path string) error {
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if wal, werr := os.Stat(path + "-wal"); werr == nil && wal.Size() > 0 {
			return s.damaged("The database %s is missing, but its journal %s is there.", path, path+"-wal")
		}
		return s.create(ctx, path)
	}
	if err != nil {
		return notebook.Errorf(notebook.Unavailable, "The database %s cannot be opened: %v. Check its owner and permissions.", path, cause(err))
	}
	if !fi.Mode().IsRegular() {
		return notebook.Errorf(notebook.Invalid, "The database %s is not a regular file. Choose another data folder.", path)
	}
	if fi.Mode().Perm() != 0o600 {
		if err := os.Chmod(path, 0o600); err != nil {
			return notebook.Errorf(notebook.Denied, "The database %s can be read by other users, and that cannot be changed: %v. Make it yours.", path, cause(err))
		}
	}
	head, err := readHead(path, 100)
	if err != nil {
		return notebook.Errorf(notebook.Unavailable, "The database %s cannot be read: %v. Check its owner and permissions.", path, cause(err))
	}
	if len(head) < 100 || string(head[:16]) != "SQLite format 3\x00" {
		return s.damaged("The database %s does not begin as a database does.", path)
	}
	return s.prepareWAL(path + "-wal")
}

// prepareWAL refuses a write-ahead log SQLite would silently throw away.
func (s *Store) prepareWAL(path string) error {
	head, err := readHead(path, 32)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(head) == 0 {
		return nil
	}
	if err != nil {
		return notebook.Errorf(notebook.Unavailable, "The journal %s cannot be read: %v. Check its owner and permissions.", path, cause(err))
	}
	if len(head) < 32 || binary.BigEndian.Uint32(head)&^1 != 0x377f0682 {
		return s.damaged("The journal %s is damaged, and may hold the newest changes.", path)
	}
	return nil
}

func readHead(path string, n int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	got, err := io.ReadFull(f, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return b[:got], errors.Join(err, f.Close())
}

// damaged says what is wrong, that nothing was touched, and what to do.
func (s *Store) damaged(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	help := "There is no backup in " + filepath.Join(s.dir, backupDir) + "; try: sqlite3 " + dbName + " .recover"
	if newest := newestBackup(filepath.Join(s.dir, backupDir)); newest != "" {
		help = "The newest backup is " + newest + "; move the damaged files away and copy it to " + filepath.Join(s.dir, dbName)
	}
	return notebook.Errorf(notebook.Unavailable, "%s Nothing was changed or deleted. %s.", what, help)
}

func newestBackup(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	var newest string
	var at time.Time
	for _, e := range entries {
		fi, err := e.Info()
		if err == nil && strings.HasSuffix(e.Name(), ".db") && fi.Mode().IsRegular() && fi.ModTime().After(at) {
			newest, at = filepath.Join(dir, e.Name()), fi.ModTime()
		}
	}
	return newest
}

// create makes the database under another name and renames it, so that a crash
// leaves no half of one. What an earlier crash left under that name held nothing.
func (s *Store) create(ctx context.Context, path string) error {
	tmp := path + ".new"
	for _, p := range []string{tmp, tmp + "-journal"} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove unfinished database: %w", err)
		}
	}
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return notebook.Errorf(notebook.Unavailable, "The database cannot be made in %s: %v. Check the folder's owner and permissions.", s.dir, cause(err))
	}
	defer f.Close() //nolint:errcheck // synced below
	pool, err := sql.Open("sqlite", dsn(tmp, "foreign_keys(1)", "synchronous(OFF)", "page_size("+strconv.Itoa(pageSize)+")"))
	if err != nil {
		return fmt.Errorf("open new database: %w", err)
	}
	pool.SetMaxOpenConns(1)
	err = migrate(ctx, pool, s.steps)
	if err = errors.Join(err, pool.Close()); err != nil {
		return fmt.Errorf("make database: %w", mapped(err))
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync new database: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("name new database: %w", err)
	}
	return syncDir(s.dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// dsn names the file and what each new connection sets first.
func dsn(path string, pragmas ...string) string {
	q := url.Values{}
	for _, p := range pragmas {
		q.Add("_pragma", p)
	}
	u := url.URL{Scheme: "file", Path: path}
	return u.String() + "?_txlock=immediate&" + q.Encode()
}

func openWriter(ctx context.Context, path string) (*sql.DB, *sql.Conn, error) {
	pool, err := sql.Open("sqlite", dsn(path,
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(NORMAL)", "foreign_keys(1)", "cell_size_check(1)",
		"wal_autocheckpoint("+strconv.Itoa(walPages)+")", "journal_size_limit("+strconv.Itoa(walLimit)+")"))
	if err != nil {
		return nil, nil, fmt.Errorf("open database: %w", err)
	}
	pool.SetMaxOpenConns(1)
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open database: %w", mapped(err)), pool.Close())
	}
	return pool, conn, nil
}

func openReaders(path string, n int) (*sql.DB, error) {
	pool, err := sql.Open("sqlite", strings.Replace(dsn(path,
		"busy_timeout(5000)", "synchronous(NORMAL)", "foreign_keys(1)", "cell_size_check(1)", "query_only(1)"), "_txlock=immediate", "_txlock=deferred", 1))
	if err != nil {
		return nil, fmt.Errorf("open database for reading: %w", err)
	}
	pool.SetMaxOpenConns(n)
	pool.SetMaxIdleConns(n)
	return pool, nil
}

// check asserts what durability rests on, looks for damage and brings the
// schema up to date.
func (s *Store) check(ctx context.Context, path string) error {
	var version, mode string
	var sync, keys, busy int
	for pragma, dst := range map[string]any{
		"SELECT sqlite_version()": &version, "PRAGMA journal_mode": &mode, "PRAGMA synchronous": &sync,
		"PRAGMA foreign_keys": &keys, "PRAGMA busy_timeout": &busy,
	} {
		if err := s.w.conn.QueryRowContext(ctx, pragma).Scan(dst); err != nil {
			return fmt.Errorf("%s: %w", pragma, mapped(err))
		}
	}
	if versionLess(version, minSQLite) {
		return fmt.Errorf("sqlite is %s, must be at least %s", version, minSQLite)
	}
	if mode != "wal" || sync != 1 || keys != 1 || busy != 5000 {
		return fmt.Errorf("sqlite settings did not take: journal_mode %s, synchronous %d, foreign_keys %d, busy_timeout %d", mode, sync, keys, busy)
	}
	if fi, err := os.Stat(path); err == nil && fi.Size() <= checkAtOnce {
		if err := s.integrity(ctx, s.w.conn, "quick_check(1)"); err != nil {
			return err
		}
	}
	return s.upgrade(ctx)
}

// querier is a connection or a pool.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *Store) integrity(ctx context.Context, c querier, pragma string) error {
	var found string
	err := c.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&found)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", pragma, mapped(err))
	case found != "ok":
		return s.damaged("The database %s is damaged (%s).", filepath.Join(s.dir, dbName), strings.Join(strings.Fields(found), " "))
	}
	return nil
}

func versionLess(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, errX := strconv.Atoi(as[i])
		y, errY := strconv.Atoi(bs[i])
		if errX != nil || errY != nil {
			return true
		}
		if x != y {
			return x < y
		}
	}
	return len(as) < len(bs)
}

// upgrade runs the steps that are missing, after a backup of what was there.
func (s *Store) upgrade(ctx context.Context) error {
	has, wants, err := schema(ctx, s.w.pool, s.w.conn, s.steps)
	switch {
	case err != nil:
		return err
	case has == wants:
		return nil
	case has > wants:
		return notebook.Errorf(notebook.Conflict, "The database has schema %d, made by a newer version; this one knows up to %d. Start the newer version, or choose another data folder.", has, wants)
	case has > 0:
		dst := filepath.Join(s.dir, backupDir, fmt.Sprintf("before-schema-%d-%s.db", wants, s.now().UTC().Format("20060102T150405.000")))
		if err := s.backup(ctx, s.w.conn, dst); err != nil {
			return fmt.Errorf("backup before upgrade: %w", err)
		}
	}
	// goose takes the one connection for itself.
	if err := s.w.conn.Close(); err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	err = migrate(ctx, s.w.pool, s.steps)
	conn, cerr := s.w.pool.Conn(ctx)
	if cerr != nil {
		return errors.Join(err, fmt.Errorf("upgrade: %w", mapped(cerr)))
	}
	s.w.conn = conn
	if err != nil {
		return fmt.Errorf("upgrade schema from %d to %d: %w", has, wants, mapped(err))
	}
	return nil
}

// schema says which version the database has and which the program wants.
func schema(ctx context.Context, pool *sql.DB, c querier, steps fs.FS) (has, wants int64, err error) {
	p, err := goose.NewProvider(goose.DialectSQLite3, pool, steps)
	if err != nil {
		return 0, 0, fmt.Errorf("migrations: %w", err)
	}
	for _, src := range p.ListSources() {
		wants = max(wants, src.Version)
	}
	var tables int
	if err := c.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'goose_db_version'").Scan(&tables); err != nil {
		return 0, 0, fmt.Errorf("read schema: %w", mapped(err))
	}
	if tables == 0 {
		var any int
		if err := c.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_schema").Scan(&any); err != nil {
			return 0, 0, fmt.Errorf("read schema: %w", mapped(err))
		}
		if any > 0 {
			return 0, 0, notebook.Errorf(notebook.Invalid, "The database belongs to another program. Choose another data folder.")
		}
		return 0, wants, nil
	}
	if err := c.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version").Scan(&has); err != nil {
		return 0, 0, fmt.Errorf("read schema version: %w", mapped(err))
	}
	return has, wants, nil
}

func migrate(ctx context.Context, pool *sql.DB, steps fs.FS) error {
	p, err := goose.NewProvider(goose.DialectSQLite3, pool, steps)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
