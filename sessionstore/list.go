package sessionstore

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/sessionstore/internal/db"
)

// TrashTTL is how long a deleted notebook can be restored.
const TrashTTL = 30 * 24 * time.Hour

const (
	maxList   = 500
	maxSearch = 200 // bytes looked for
)

// ListQuery selects notebooks. The zero value is the first hundred, newest
// change first.
type ListQuery struct {
	Search  string // in titles and the text of cells, ASCII letters in either case
	Deleted bool   // the trash instead
	Limit   int    // 0 is 100, at most 500
	Cursor  string // Next of the page before
}

// Page is one page of a list.
type Page struct {
	Notebooks []Summary `json:"notebooks"`
	Next      string    `json:"next,omitempty"` // cursor of the next page; empty: there is none
}

// Summary is what a list shows of a notebook.
type Summary struct {
	ID       notebook.ID           `json:"id"`
	Title    string                `json:"title"`
	Language string                `json:"language"`
	Backend  string                `json:"backend,omitempty"`
	Seq      int64                 `json:"seq"`
	Created  time.Time             `json:"created"`
	Updated  time.Time             `json:"updated"`
	Deleted  time.Time             `json:"deleted,omitzero"`
	Kernel   notebook.KernelStatus `json:"kernel"`
	Live     notebook.RunID        `json:"live,omitempty"` // run the kernel has
	Queued   int                   `json:"queued"`         // runs that wait
	Asking   bool                  `json:"asking"`         // the live run waits for input
	Cells    int                   `json:"cells"`
	Preview  string                `json:"preview,omitempty"` // first lines of the document
}

// List returns one page of notebooks.
func (s *Store) List(ctx context.Context, lq ListQuery) (Page, error) {
	if len(lq.Search) > maxSearch {
		return Page{}, notebook.Errorf(notebook.TooLarge, "A search has at most %d bytes.", maxSearch)
	}
	limit := lq.Limit
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, maxList)
	p := db.ListNotebooksParams{Needle: strings.TrimSpace(lq.Search), N: int64(limit) + 1, Before: math.MaxInt64}
	if lq.Deleted {
		p.Trash = 1
	}
	if lq.Cursor != "" {
		var err error
		if p.Before, p.BeforeID, err = parseCursor(lq.Cursor); err != nil {
			return Page{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	rows, err := s.rq.ListNotebooks(ctx, p)
	if err != nil {
		return Page{}, mapped(fmt.Errorf("list notebooks: %w", err))
	}
	var page Page
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		page.Next = base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(last.Updated, 10) + " " + last.ID))
	}
	page.Notebooks = make([]Summary, len(rows))
	for i, r := range rows {
		page.Notebooks[i] = summary(db.SummaryRow(r))
	}
	return page, nil
}

func parseCursor(c string) (at int64, id string, err error) {
	bad := notebook.Errorf(notebook.Invalid, "The list cursor is not one this server gave out. Start from the first page.")
	b, derr := base64.RawURLEncoding.DecodeString(c)
	if derr != nil {
		return 0, "", bad
	}
	when, id, ok := strings.Cut(string(b), " ")
	at, perr := strconv.ParseInt(when, 10, 64)
	if !ok || perr != nil {
		return 0, "", bad
	}
	return at, id, nil
}

// Summary returns one notebook's line of the list.
func (s *Store) Summary(ctx context.Context, id notebook.ID) (Summary, error) {
	row, err := s.rq.Summary(ctx, string(id))
	if errors.Is(err, sql.ErrNoRows) {
		return Summary{}, notFound()
	}
	if err != nil {
		return Summary{}, mapped(fmt.Errorf("read summary: %w", err))
	}
	return summary(row), nil
}

func summary(r db.SummaryRow) Summary {
	return Summary{
		ID: notebook.ID(r.ID), Title: r.Title, Language: r.Language, Backend: r.Backend, Seq: r.Seq,
		Created: fromMS(r.Created), Updated: fromMS(r.Updated), Deleted: fromMS(r.Deleted),
		Kernel: notebook.KernelStatus(r.Kernel), Live: notebook.RunID(r.Live), Queued: int(r.Queued),
		Asking: r.Asking == 1, Cells: int(r.Cells), Preview: r.Preview,
	}
}

// WithSandbox lists the notebooks a restarted server must look after: they had
// a sandbox, a kernel, a live run or runs that waited when the last one ended.
func (s *Store) WithSandbox(ctx context.Context) ([]notebook.ID, error) {
	rows, err := s.rq.WithSandbox(ctx)
	if err != nil {
		return nil, mapped(fmt.Errorf("list notebooks with a sandbox: %w", err))
	}
	ids := make([]notebook.ID, len(rows))
	for i, r := range rows {
		ids[i] = notebook.ID(r)
	}
	return ids, nil
}

const purgeEvents = 5000 // events deleted in one transaction

// Purge removes for good what has been in the trash since before, and returns
// how many notebooks that were.
func (s *Store) Purge(ctx context.Context, before time.Time) (int, error) {
	// From here on nobody can load or restore them, so that they can go in
	// steps a running server does not feel, and a crash between is no harm.
	err := s.tx(ctx, func(ctx context.Context, q *db.Queries) error {
		_, err := q.MarkPurged(ctx, ms(before))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("mark trash: %w", err)
	}
	for n := 0; ; {
		rows, err := s.rq.PurgeList(ctx, 50)
		if err != nil {
			return n, mapped(fmt.Errorf("list trash: %w", err))
		}
		if len(rows) == 0 {
			return n, nil
		}
		for _, r := range rows {
			if err := s.purge(ctx, r.ID, r.Seq); err != nil {
				return n, fmt.Errorf("purge: %w", err)
			}
			n++
		}
	}
}

func (s *Store) purge(ctx context.Context, id string, last int64) error {
	for seq := int64(purgeEvents); ; seq += purgeEvents {
		err := s.tx(ctx, func(ctx context.Context, q *db.Queries) error {
			if _, err := q.PurgeEvents(ctx, db.PurgeEventsParams{Notebook: id, Seq: seq}); err != nil {
				return err
			}
			if seq < last {
				return nil
			}
			_, err := q.PurgeNotebook(ctx, id)
			return err
		})
		if err != nil || seq >= last {
			return err
		}
	}
}
