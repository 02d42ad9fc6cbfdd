package sessionstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"sandbook/kernel/notebook"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Sentences for what the database itself reports.
const (
	msgFull     = "The disk is full, so nothing can be saved. Free some space; the server then goes on by itself."
	msgDamaged  = "The database is damaged. Stop the server and put back the newest backup; the damaged file is left as it is."
	msgReadOnly = "The data folder cannot be written. Check its owner, its permissions and whether the disk is mounted read-only."
	msgBusy     = "The database is busy. Try again in a moment."
	msgIO       = "The disk reported an error, so this could not be saved. Check the disk and the server's log."
	msgClosed   = "The server is shutting down. Try again in a moment."
	msgFenced   = "Another server has taken over this data folder, so this one may not write any more. Stop this server."
)

// codeOf is the SQLite result code of err, 0 if it has none.
func codeOf(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

// mapped adds to a driver's error what a person can make of it. Errors that
// are notebook errors already, or of a context, stay as they are.
func mapped(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if _, ok := errors.AsType[*notebook.Error](err); ok {
		return err
	}
	if errors.Is(err, sql.ErrConnDone) {
		return fmt.Errorf("%w: %w", notebook.Errorf(notebook.Unavailable, msgClosed), err)
	}
	code := codeOf(err)
	if isFull(err) {
		return fmt.Errorf("%w: %w", notebook.Errorf(notebook.Unavailable, msgFull), err)
	}
	var msg string
	kind := notebook.Unavailable
	switch code & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		msg = msgDamaged
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		msg = msgReadOnly
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		msg = msgBusy
	case sqlite3.SQLITE_IOERR:
		msg = msgIO
	case sqlite3.SQLITE_TOOBIG:
		kind, msg = notebook.TooLarge, "This is too large to be saved."
	default:
		return err
	}
	return fmt.Errorf("%w: %w", notebook.Errorf(kind, "%s", msg), err)
}

// isFull reports whether the disk had no room. A full disk shows as an I/O
// error where SQLite wanted to grow the shared-memory file.
func isFull(err error) bool {
	switch code := codeOf(err); code {
	case sqlite3.SQLITE_IOERR_SHMSIZE:
		return true
	default:
		return code&0xff == sqlite3.SQLITE_FULL
	}
}
