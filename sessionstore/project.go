package sessionstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"sandbook/kernel/notebook"
	"sandbook/sessionstore/internal/db"
)

// step is one statement of a write.
type step func(ctx context.Context, q *db.Queries) error

// eventSteps encodes an event and what follows from it for lists, histories
// and access to blobs. It runs in the caller, so that the writer only executes.
func eventSteps(id notebook.ID, e notebook.Event) ([]step, error) {
	if e.Body == nil {
		return nil, fmt.Errorf("event %d has no body", e.Seq)
	}
	body, err := json.Marshal(e.Body)
	if err != nil {
		return nil, fmt.Errorf("encode event %d: %w", e.Seq, err)
	}
	row := db.InsertEventParams{
		Notebook: string(id), Seq: e.Seq, At: e.At.UnixMilli(),
		ByKind: string(e.By.Kind), ByID: e.By.ID, ByName: e.By.Name,
		Type: e.Body.Event(), Run: printed(e.Body), Body: body,
	}
	steps := []step{func(ctx context.Context, q *db.Queries) error {
		if err := q.InsertEvent(ctx, row); err != nil {
			return fmt.Errorf("append seq %d: %w", e.Seq, err)
		}
		return nil
	}}
	steps = append(steps, projectCell(string(id), e)...)
	steps = append(steps, projectRun(string(id), e)...)
	return append(steps, projectBlobs(string(id), e)...), nil
}

// printed names the run whose printed text the event brings.
func printed(b notebook.Body) *string {
	var run notebook.RunID
	switch b := b.(type) {
	case notebook.StreamAppended:
		run = b.Run
	case notebook.StreamOmitted:
		run = b.Run
	default:
		return nil
	}
	s := string(run)
	return &s
}

func projectCell(id string, e notebook.Event) []step {
	one := func(s step) []step { return []step{s} }
	switch b := e.Body.(type) {
	case notebook.CellInserted:
		return one(func(ctx context.Context, q *db.Queries) error {
			return q.PutCell(ctx, db.PutCellParams{Notebook: id, Cell: string(b.Cell), Kind: string(b.Kind), Source: b.Source})
		})
	case notebook.CellEdited:
		return one(func(ctx context.Context, q *db.Queries) error {
			return q.EditCell(ctx, db.EditCellParams{Source: b.Source, Notebook: id, Cell: string(b.Cell)})
		})
	case notebook.CellKindSet:
		return one(func(ctx context.Context, q *db.Queries) error {
			return q.SetCellKind(ctx, db.SetCellKindParams{Kind: string(b.Kind), Notebook: id, Cell: string(b.Cell)})
		})
	case notebook.CellDeleted:
		return one(func(ctx context.Context, q *db.Queries) error {
			return q.SetCellDeleted(ctx, db.SetCellDeletedParams{Deleted: 1, Notebook: id, Cell: string(b.Cell)})
		})
	case notebook.CellRestored:
		return one(func(ctx context.Context, q *db.Queries) error {
			return q.SetCellDeleted(ctx, db.SetCellDeletedParams{Deleted: 0, Notebook: id, Cell: string(b.Cell)})
		})
	}
	return nil
}

func projectRun(id string, e notebook.Event) []step {
	one := func(s step) []step { return []step{s} }
	switch b := e.Body.(type) {
	case notebook.RunQueued:
		return one(func(ctx context.Context, q *db.Queries) error {
			return q.InsertRun(ctx, db.InsertRunParams{
				Notebook: id, Run: string(b.Run), Seq: e.Seq, Cell: string(b.Cell), Sha256: b.SHA256,
				Status: string(notebook.Queued), Queued: ms(e.At),
			})
		})
	case notebook.RunSent:
		return one(func(ctx context.Context, q *db.Queries) error {
			return q.RunSent(ctx, db.RunSentParams{
				Status: string(notebook.Running), Started: ms(e.At), Count: int64(b.Count), Gen: int64(b.Gen),
				Notebook: id, Run: string(b.Run),
			})
		})
	case notebook.RunEnded:
		return one(func(ctx context.Context, q *db.Queries) error {
			return q.RunEnded(ctx, db.RunEndedParams{
				Status: string(b.Status), Reason: b.Reason, Ename: b.EName, Evalue: b.EValue, Ended: ms(e.At),
				WallMs: b.WallMS, CpuMs: b.CPUMS, PeakMemory: b.PeakMemory, Notebook: id, Run: string(b.Run),
			})
		})
	case notebook.FilesChanged:
		steps := make([]step, 0, len(b.Files.Changed))
		for _, f := range b.Files.Changed {
			steps = append(steps, func(ctx context.Context, q *db.Queries) error {
				return q.PutArtifact(ctx, db.PutArtifactParams{
					Notebook: id, Run: string(b.Run), Path: f.Path, Blob: f.Blob, Size: f.Size, Mime: f.MIME,
					W: int64(f.Width), H: int64(f.Height), Why: f.Why, At: ms(e.At),
				})
			})
		}
		return steps
	}
	return nil
}

// projectBlobs notes which blobs the event names.
func projectBlobs(id string, e notebook.Event) []step {
	var steps []step
	ref := func(hash string) {
		if hash == "" {
			return
		}
		steps = append(steps, func(ctx context.Context, q *db.Queries) error {
			return q.RefBlob(ctx, db.RefBlobParams{Notebook: id, Hash: hash, Seq: e.Seq})
		})
	}
	switch b := e.Body.(type) {
	case notebook.OutputAdded:
		for _, v := range b.Output.Data {
			ref(v.Blob)
		}
	case notebook.OutputUpdated:
		for _, v := range b.Data {
			ref(v.Blob)
		}
	case notebook.FilesChanged:
		for _, f := range b.Files.Changed {
			ref(f.Blob)
		}
	}
	return steps
}

// describe is what the list shows of a state.
func describe(s notebook.State) db.DescribeParams {
	p := db.DescribeParams{
		ID: string(s.ID), Title: s.Title, Language: s.Language, Backend: s.Backend,
		Updated: ms(s.Updated), Deleted: ms(s.Deleted), Kernel: string(s.Kernel.Status), Sandbox: s.Kernel.Sandbox, Live: string(s.Live),
		Queued: int64(len(s.Queue)), Cells: int64(len(s.Cells)), Preview: preview(s.Cells),
	}
	if s.Input != nil {
		p.Asking = 1
	}
	return p
}

const previewRunes = 200

// preview is the first text of the document: up to three lines.
func preview(cells []*notebook.Cell) string {
	for _, c := range cells {
		src := strings.TrimSpace(c.Source[:min(len(c.Source), 4096)])
		if src == "" {
			continue
		}
		lines := strings.SplitN(src, "\n", 4)
		text := []rune(strings.ToValidUTF8(strings.Join(lines[:min(3, len(lines))], "\n"), ""))
		return string(text[:min(len(text), previewRunes)])
	}
	return ""
}

// summaries remembers what the list has of each notebook, so that an append
// that changes nothing of it need not write it again.
type summaries struct {
	mu   sync.Mutex
	last map[string]db.DescribeParams
}

const maxSummaries = 1024

func (s *summaries) same(p db.DescribeParams) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.last[p.ID]
	return ok && old == p
}

// put remembers what is now durable.
func (s *summaries) put(p db.DescribeParams) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || len(s.last) >= maxSummaries {
		s.last = map[string]db.DescribeParams{}
	}
	s.last[p.ID] = p
}
