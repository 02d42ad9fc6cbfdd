package sessionstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/sessionstore/internal/db"
)

// RunsQuery selects runs of a notebook, newest first.
type RunsQuery struct {
	Notebook notebook.ID
	Cell     notebook.CellID // empty: of every cell
	Before   int64           // only runs asked for before this event number; 0 is the newest
	Limit    int             // 0 is 50, at most 500
}

// RunRecord is one run of the history, without its outputs.
type RunRecord struct {
	notebook.Run
	Seq int64 `json:"seq"` // of the event that asked for it
}

// Runs returns the history of a notebook or a cell.
func (s *Store) Runs(ctx context.Context, rq RunsQuery) ([]RunRecord, error) {
	limit := rq.Limit
	if limit <= 0 {
		limit = 50
	}
	limit = min(limit, maxList)
	if rq.Before <= 0 {
		rq.Before = math.MaxInt64
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	var rows []db.RunRow
	if rq.Cell == "" {
		got, err := s.rq.RunsOfNotebook(ctx, db.RunsOfNotebookParams{Notebook: string(rq.Notebook), Seq: rq.Before, Limit: int64(limit)})
		if err != nil {
			return nil, mapped(fmt.Errorf("list runs: %w", err))
		}
		for _, r := range got {
			rows = append(rows, db.RunRow(r))
		}
	} else {
		got, err := s.rq.RunsOfCell(ctx, db.RunsOfCellParams{Notebook: string(rq.Notebook), Cell: string(rq.Cell), Seq: rq.Before, Limit: int64(limit)})
		if err != nil {
			return nil, mapped(fmt.Errorf("list runs: %w", err))
		}
		for _, r := range got {
			rows = append(rows, db.RunRow(r))
		}
	}
	recs := make([]RunRecord, len(rows))
	for i, r := range rows {
		var err error
		if recs[i], err = record(r); err != nil {
			return nil, err
		}
	}
	return recs, nil
}

// Run returns one run of the history.
func (s *Store) Run(ctx context.Context, id notebook.ID, run notebook.RunID) (RunRecord, error) {
	row, err := s.rq.Run(ctx, db.RunParams{Notebook: string(id), Run: string(run)})
	if errors.Is(err, sql.ErrNoRows) {
		return RunRecord{}, notebook.Errorf(notebook.NotFound, "There is no such run.")
	}
	if err != nil {
		return RunRecord{}, mapped(fmt.Errorf("read run: %w", err))
	}
	return record(row)
}

func record(r db.RunRow) (RunRecord, error) {
	var asked notebook.RunQueued
	if err := json.Unmarshal(r.Body, &asked); err != nil {
		return RunRecord{}, fmt.Errorf("decode event %d: %w", r.Seq, err)
	}
	return RunRecord{Seq: r.Seq, Run: notebook.Run{
		ID: notebook.RunID(r.Run), Cell: notebook.CellID(r.Cell), Source: asked.Source, SHA256: r.Sha256,
		By:    notebook.Author{Kind: notebook.ActorKind(r.ByKind), ID: r.ByID, Name: r.ByName},
		Batch: asked.Batch, KeepGoing: asked.KeepGoing, TimeoutMS: asked.TimeoutMS,
		Status: notebook.RunStatus(r.Status), Reason: r.Reason, EName: r.Ename, EValue: r.Evalue,
		Queued: fromMS(r.Queued), Started: fromMS(r.Started), Ended: fromMS(r.Ended),
		WallMS: r.WallMs, CPUMS: r.CpuMs, PeakMemory: r.PeakMemory, Count: int(r.Count), Gen: int(r.Gen),
	}}, nil
}

const printedPage = 32 // events read at a time; each holds at most notebook.MaxText

// RunOutput opens all the text a run printed to a stream, or to both if stream
// is empty, as it came: what pages show is cut and has the cursor movements
// carried out, this has not. Where text was never received, a sentence says
// how much. A run that does not exist is NotFound. The reader keeps little in
// memory and may be used by one goroutine, until ctx ends.
func (s *Store) RunOutput(ctx context.Context, id notebook.ID, run notebook.RunID, stream string) (io.ReadCloser, error) {
	if _, err := s.Run(ctx, id, run); err != nil {
		return nil, err
	}
	name := string(run)
	var since int64
	return &pages{next: func() (text []string, more bool, err error) {
		rows, err := s.printedAfter(ctx, db.PrintedAfterParams{Notebook: string(id), Run: &name, Since: since, N: printedPage})
		if err != nil {
			return nil, false, err
		}
		for _, r := range rows {
			since = r.Seq
			t, err := printedText(r, stream)
			if err != nil {
				return nil, false, err
			}
			text = append(text, t)
		}
		return text, len(rows) == printedPage, nil
	}}, nil
}

// pages reads texts that come some at a time.
type pages struct {
	next func() (text []string, more bool, err error)
	text []string
	done bool
}

func (p *pages) Read(b []byte) (int, error) {
	for {
		for len(p.text) > 0 {
			n := copy(b, p.text[0])
			if p.text[0] = p.text[0][n:]; p.text[0] == "" {
				p.text = p.text[1:]
			}
			if n > 0 || len(b) == 0 {
				return n, nil
			}
		}
		if p.done {
			return 0, io.EOF
		}
		text, more, err := p.next()
		if err != nil {
			return 0, err
		}
		p.text, p.done = text, !more
	}
}

func (p *pages) Close() error {
	p.text, p.done = nil, true
	return nil
}

func (s *Store) printedAfter(ctx context.Context, p db.PrintedAfterParams) ([]db.PrintedAfterRow, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	rows, err := s.rq.PrintedAfter(ctx, p)
	if err != nil {
		return nil, mapped(fmt.Errorf("read output: %w", err))
	}
	return rows, nil
}

func printedText(r db.PrintedAfterRow, stream string) (string, error) {
	body, err := notebook.DecodeBody(r.Type, r.Body)
	if err != nil {
		return "", fmt.Errorf("decode event %d: %w", r.Seq, err)
	}
	switch b := body.(type) {
	case notebook.StreamAppended:
		if stream == "" || b.Name == stream {
			return b.Text, nil
		}
	case notebook.StreamOmitted:
		if stream == "" || b.Name == stream {
			return fmt.Sprintf("\n… %d bytes in %d lines were printed here and not kept …\n%s", max(0, b.Bytes-int64(len(b.Tail))), b.Lines, b.Tail), nil
		}
	}
	return "", nil
}

// Artifact is a workspace file a run left.
type Artifact struct {
	Run notebook.RunID `json:"run"`
	notebook.File
	At time.Time `json:"at"`
}

// Artifacts lists the files a run left, by path.
func (s *Store) Artifacts(ctx context.Context, id notebook.ID, run notebook.RunID) ([]Artifact, error) {
	rows, err := s.rq.Artifacts(ctx, db.ArtifactsParams{Notebook: string(id), Run: string(run)})
	if err != nil {
		return nil, mapped(fmt.Errorf("list artifacts: %w", err))
	}
	list := make([]Artifact, len(rows))
	for i, r := range rows {
		list[i] = artifact(db.ArtifactRow(r))
	}
	return list, nil
}

// Artifact finds one file of a run.
func (s *Store) Artifact(ctx context.Context, id notebook.ID, run notebook.RunID, path string) (Artifact, error) {
	row, err := s.rq.Artifact(ctx, db.ArtifactParams{Notebook: string(id), Run: string(run), Path: path})
	if errors.Is(err, sql.ErrNoRows) {
		return Artifact{}, notebook.Errorf(notebook.NotFound, "The run left no such file.")
	}
	if err != nil {
		return Artifact{}, mapped(fmt.Errorf("read artifact: %w", err))
	}
	return artifact(row), nil
}

func artifact(r db.ArtifactRow) Artifact {
	return Artifact{Run: notebook.RunID(r.Run), At: fromMS(r.At), File: notebook.File{
		Path: r.Path, Size: r.Size, Blob: r.Blob, MIME: r.Mime, Width: int(r.W), Height: int(r.H), Why: r.Why,
	}}
}
