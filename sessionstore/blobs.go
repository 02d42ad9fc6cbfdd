package sessionstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/sessionstore/internal/db"
)

const (
	chunkSize = 256 << 10

	// blobGrace is how long a blob may be named by no event: it is put first
	// and named afterwards.
	blobGrace = time.Hour
)

// counter is a number kept beside the database.
type counter struct{ n atomic.Int64 }

// PutBlob stores what r brings, at most limit bytes, and returns its sha256 in
// hex. The same bytes are stored once. More than limit is TooLarge. Whatever
// fails, no part of it can be opened. Memory stays flat.
func (s *Store) PutBlob(ctx context.Context, r io.Reader, limit int64) (hash string, size int64, err error) {
	buf := make([]byte, chunkSize)
	n, err := io.ReadFull(r, buf)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		if int64(n) > limit {
			return "", 0, tooLarge(limit)
		}
		return s.putSmall(ctx, buf[:n])
	case err != nil:
		return "", 0, fmt.Errorf("read blob: %w", err)
	}
	return s.putLarge(ctx, io.MultiReader(bytes.NewReader(bytes.Clone(buf)), r), limit, buf)
}

func tooLarge(limit int64) error {
	return notebook.Errorf(notebook.TooLarge, "The file has more than %d bytes, which is the limit.", limit)
}

// putSmall stores a blob of one chunk in one transaction.
func (s *Store) putSmall(ctx context.Context, p []byte) (string, int64, error) {
	sum := sha256.Sum256(p)
	hash := hex.EncodeToString(sum[:])
	size := int64(len(p))
	var added bool
	err := s.tx(ctx, func(ctx context.Context, q *db.Queries) error {
		added = false
		at := ms(s.now())
		if n, err := q.TouchBlob(ctx, db.TouchBlobParams{At: at, Hash: &hash}); err != nil || n > 0 {
			return err
		}
		id, err := q.StartBlob(ctx, at)
		if err != nil {
			return err
		}
		if size > 0 {
			if err := q.PutChunk(ctx, db.PutChunkParams{Blob: id, N: 0, Data: p}); err != nil {
				return err
			}
		}
		added = true
		return q.FinishBlob(ctx, db.FinishBlobParams{Hash: &hash, Size: size, At: at, ID: id})
	})
	if err != nil {
		return "", 0, fmt.Errorf("put blob: %w", err)
	}
	if added {
		s.blobBytes.n.Add(size)
	}
	return hash, size, nil
}

// putLarge stores chunk by chunk under no name, and names the blob at the end.
// What a crash leaves without a name is removed at the next start.
func (s *Store) putLarge(ctx context.Context, r io.Reader, limit int64, buf []byte) (hash string, size int64, err error) {
	var id int64
	err = s.tx(ctx, func(ctx context.Context, q *db.Queries) (err error) {
		id, err = q.StartBlob(ctx, ms(s.now()))
		return err
	})
	if err != nil {
		return "", 0, fmt.Errorf("put blob: %w", err)
	}
	chunks, size, sum, err := s.putChunks(ctx, id, r, limit, buf)
	added := false
	if err == nil {
		hash = sum
		added, err = s.nameBlob(ctx, id, hash, size)
	}
	if added {
		s.blobBytes.n.Add(size)
		return hash, size, nil
	}
	// A duplicate, or a failure; the outcome is known, so only tidy up.
	if derr := s.dropBlob(context.WithoutCancel(ctx), id, chunks); derr != nil && err == nil {
		err = derr
	}
	if err != nil {
		return "", 0, fmt.Errorf("put blob: %w", err)
	}
	return hash, size, nil
}

func (s *Store) putChunks(ctx context.Context, id int64, r io.Reader, limit int64, buf []byte) (chunks, size int64, hash string, err error) {
	sum := sha256.New()
	for {
		n, err := io.ReadFull(r, buf)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return chunks, size, "", fmt.Errorf("read blob: %w", err)
		}
		if size += int64(n); size > limit {
			return chunks, size, "", tooLarge(limit)
		}
		if n > 0 {
			sum.Write(buf[:n])
			chunk := db.PutChunkParams{Blob: id, N: chunks, Data: buf[:n]}
			err := s.tx(ctx, func(ctx context.Context, q *db.Queries) error { return q.PutChunk(ctx, chunk) })
			if err != nil {
				return chunks, size, "", err
			}
			chunks++
		}
		if end {
			return chunks, size, hex.EncodeToString(sum.Sum(nil)), nil
		}
	}
}

// nameBlob gives a blob its hash, unless another one has it.
func (s *Store) nameBlob(ctx context.Context, id int64, hash string, size int64) (added bool, err error) {
	err = s.tx(ctx, func(ctx context.Context, q *db.Queries) error {
		added = false
		at := ms(s.now())
		if n, err := q.TouchBlob(ctx, db.TouchBlobParams{At: at, Hash: &hash}); err != nil || n > 0 {
			return err
		}
		added = true
		return q.FinishBlob(ctx, db.FinishBlobParams{Hash: &hash, Size: size, At: at, ID: id})
	})
	return added && err == nil, err
}

// dropBlob removes a blob without a name, some chunks at a time.
func (s *Store) dropBlob(ctx context.Context, id, chunks int64) error {
	const step = 32
	for n := int64(0); ; n += step {
		err := s.tx(ctx, func(ctx context.Context, q *db.Queries) error {
			if _, err := q.DropChunks(ctx, db.DropChunksParams{Blob: id, First: n, Last: n + step}); err != nil {
				return err
			}
			if n+step < chunks {
				return nil
			}
			return q.DropBlob(ctx, id)
		})
		if err != nil || n+step >= chunks {
			return err
		}
	}
}

// HasBlob reports whether there is a blob with this hash.
func (s *Store) HasBlob(ctx context.Context, hash string) (bool, error) {
	_, err := s.rq.BlobByHash(ctx, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, mapped(fmt.Errorf("look up blob: %w", err))
	}
	return true, nil
}

// Names reports whether an event of the notebook names the blob: whoever may
// read the notebook may read it then.
func (s *Store) Names(ctx context.Context, id notebook.ID, hash string) (bool, error) {
	ok, err := s.rq.HasRef(ctx, db.HasRefParams{Notebook: string(id), Hash: hash})
	if err != nil {
		return false, mapped(fmt.Errorf("look up blob: %w", err))
	}
	return ok, nil
}

// OpenBlob opens a blob and says how long it is. It is NotFound if there is
// none. The reader may be used by one goroutine, until ctx ends.
func (s *Store) OpenBlob(ctx context.Context, hash string) (io.ReadSeekCloser, int64, error) {
	row, err := s.rq.BlobByHash(ctx, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, notebook.Errorf(notebook.NotFound, "There is no such file.")
	}
	if err != nil {
		return nil, 0, mapped(fmt.Errorf("open blob: %w", err))
	}
	read := func(n int64) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		p, err := s.rq.Chunk(ctx, db.ChunkParams{Blob: row.ID, N: n})
		if errors.Is(err, sql.ErrNoRows) {
			return nil, notebook.Errorf(notebook.NotFound, "The file has been removed.")
		}
		if err != nil {
			return nil, mapped(fmt.Errorf("read blob: %w", err))
		}
		return p, nil
	}
	return &blobReader{read: read, size: row.Size, have: -1}, row.Size, nil
}

// blobReader reads a blob and keeps one chunk of it.
type blobReader struct {
	read  func(n int64) ([]byte, error)
	size  int64
	at    int64
	have  int64 // number of chunk, -1: none
	chunk []byte
	mu    sync.Mutex // guards closed: http.ServeContent may close from elsewhere
	shut  bool
}

func (b *blobReader) Read(p []byte) (int, error) {
	b.mu.Lock()
	shut := b.shut
	b.mu.Unlock()
	if shut {
		return 0, fs.ErrClosed
	}
	if b.at >= b.size {
		return 0, io.EOF
	}
	if n := b.at / chunkSize; n != b.have {
		chunk, err := b.read(n)
		if err != nil {
			return 0, err
		}
		b.chunk, b.have = chunk, n
	}
	off := b.at - b.have*chunkSize
	if off >= int64(len(b.chunk)) {
		return 0, fmt.Errorf("read blob: chunk %d has %d bytes: %w", b.have, len(b.chunk), io.ErrUnexpectedEOF)
	}
	n := copy(p, b.chunk[off:])
	b.at += int64(n)
	return n, nil
}

func (b *blobReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start of the blob")
	}
	b.at = offset
	return offset, nil
}

func (b *blobReader) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = true
	return nil
}

// BlobBytes is what all blobs take up, duplicates counted once.
func (s *Store) BlobBytes(context.Context) (int64, error) { return s.blobBytes.n.Load(), nil }

// NotebookBlobBytes is what the blobs take up that a notebook's events name.
func (s *Store) NotebookBlobBytes(ctx context.Context, id notebook.ID) (int64, error) {
	n, err := s.rq.NotebookBlobBytes(ctx, string(id))
	if err != nil {
		return 0, mapped(fmt.Errorf("count blobs: %w", err))
	}
	return n, nil
}

// CollectBlobs removes the blobs no event names and nobody has put for an
// hour, and returns how many and how large they were.
func (s *Store) CollectBlobs(ctx context.Context) (n int, freed int64, err error) {
	before := ms(s.now().Add(-blobGrace))
	for {
		rows, err := s.rq.UnnamedBlobs(ctx, db.UnnamedBlobsParams{At: before, Limit: 100})
		if err != nil {
			return n, freed, mapped(fmt.Errorf("list unused blobs: %w", err))
		}
		for _, r := range rows {
			var gone int64
			err := s.tx(ctx, func(ctx context.Context, q *db.Queries) (err error) {
				gone, err = q.ForgetUnnamedBlob(ctx, db.ForgetUnnamedBlobParams{ID: r.ID, Before: before})
				return err
			})
			if err != nil {
				return n, freed, fmt.Errorf("forget blob: %w", err)
			}
			if gone == 0 {
				continue
			}
			s.blobBytes.n.Add(-r.Size)
			if err := s.dropBlob(ctx, r.ID, (r.Size+chunkSize-1)/chunkSize); err != nil {
				return n, freed, fmt.Errorf("drop blob: %w", err)
			}
			n++
			freed += r.Size
		}
		if len(rows) < 100 {
			return n, freed, nil
		}
	}
}

// sweep removes what a crash left without a name. Only Open calls it, when
// nobody can be writing one.
func (s *Store) sweep(ctx context.Context) error {
	for {
		rows, err := s.rq.UnfinishedBlobs(ctx, 100)
		if err != nil {
			return mapped(fmt.Errorf("list unfinished blobs: %w", err))
		}
		for _, r := range rows {
			if err := s.dropBlob(ctx, r.ID, r.Chunks); err != nil {
				if notebook.CodeOf(err) == notebook.Unavailable {
					return nil // a full disk must not keep the server from starting
				}
				return fmt.Errorf("drop unfinished blob: %w", err)
			}
		}
		if len(rows) == 0 {
			return nil
		}
	}
}
