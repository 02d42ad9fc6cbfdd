// Package artifacts says what files and plots of runs are: which type they
// have, how large their pictures are, under which name they may be downloaded,
// and how much of them may be kept. It is not where the bytes lie: that is the
// Blobs it is given, one copy for each content.
//
// Everything it looks at was made by code nobody trusts. It looks at the first
// bytes only, decodes no picture, and never lets a name or a type through that
// a browser would act on.
package artifacts

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"

	"sandbook/kernel/notebook"
)

// Blobs keeps bytes by their sha256; sessionstore does it.
type Blobs interface {
	// PutBlob stores at most limit bytes of r; more is a notebook.TooLarge
	// error and stores nothing.
	PutBlob(ctx context.Context, r io.Reader, limit int64) (hash string, size int64, err error)
	// OpenBlob opens a blob and says how long it is; NotFound if there is none.
	OpenBlob(ctx context.Context, hash string) (io.ReadSeekCloser, int64, error)
	// HasBlob reports whether there is a blob.
	HasBlob(ctx context.Context, hash string) (bool, error)
	// BlobBytes is what all blobs take up.
	BlobBytes(ctx context.Context) (int64, error)
	// NotebookBlobBytes is what those take up that a notebook's events name.
	NotebookBlobBytes(ctx context.Context, id notebook.ID) (int64, error)
}

// Quota bounds what is kept. A zero field is the default, a negative one no
// bound.
type Quota struct {
	File     int64 // bytes of one file; 256 MiB
	Notebook int64 // bytes a notebook's events name; 2 GiB
	Install  int64 // bytes of all blobs; 20 GiB
}

// Defaults of a Quota.
const (
	DefaultFile     = 256 << 20
	DefaultNotebook = 2 << 30
	DefaultInstall  = 20 << 30
)

const unbounded = 1 << 62

func (q Quota) withDefaults() Quota {
	for _, f := range []struct {
		v   *int64
		def int64
	}{{&q.File, DefaultFile}, {&q.Notebook, DefaultNotebook}, {&q.Install, DefaultInstall}} {
		if *f.v == 0 {
			*f.v = f.def
		} else if *f.v < 0 {
			*f.v = unbounded
		}
	}
	return q
}

// Store keeps artifacts within a quota. Its methods may be called
// concurrently; puts that run at the same time may together go over a quota by
// what they bring, never by more than the file bound each.
type Store struct {
	blobs Blobs
	quota Quota
}

// New makes a Store over blobs.
func New(b Blobs, q Quota) *Store { return &Store{blobs: b, quota: q.withDefaults()} }

// Put stores at most limit bytes of r and returns their sha256 in hex. More
// than that, or than one file or the quota has room for, is TooLarge.
// Either way nothing is kept.
func (s *Store) Put(ctx context.Context, r io.Reader, limit int64) (hash string, size int64, err error) {
	used, err := s.blobs.BlobBytes(ctx)
	if err != nil {
		return "", 0, err
	}
	return s.put(ctx, r, min(limit, s.quota.File), s.quota.Install-used,
		"The server keeps %s of files at most, and that is used up. Delete notebooks or files that are not needed.", s.quota.Install)
}

// PutFor is Put for a file of a notebook, whose own quota counts, too.
func (s *Store) PutFor(ctx context.Context, id notebook.ID, r io.Reader, limit int64) (hash string, size int64, err error) {
	used, err := s.blobs.NotebookBlobBytes(ctx, id)
	if err != nil {
		return "", 0, err
	}
	all, err := s.blobs.BlobBytes(ctx)
	if err != nil {
		return "", 0, err
	}
	limit = min(limit, s.quota.File)
	if s.quota.Install-all < s.quota.Notebook-used {
		return s.put(ctx, r, limit, s.quota.Install-all,
			"The server keeps %s of files at most, and that is used up. Delete notebooks or files that are not needed.", s.quota.Install)
	}
	return s.put(ctx, r, limit, s.quota.Notebook-used,
		"A notebook keeps %s of files at most, and that is used up. Start a new notebook, or write less.", s.quota.Notebook)
}

// put stores within limit and room; what ends it says which of them it was.
func (s *Store) put(ctx context.Context, r io.Reader, limit, room int64, full string, quota int64) (string, int64, error) {
	noRoom := notebook.Errorf(notebook.TooLarge, full, Size(quota))
	if room <= 0 {
		return "", 0, noRoom
	}
	hash, size, err := s.blobs.PutBlob(ctx, r, min(limit, room))
	if notebook.CodeOf(err) == notebook.TooLarge {
		if room < limit {
			return "", 0, noRoom
		}
		return "", 0, notebook.Errorf(notebook.TooLarge, "The file is larger than %s, which is the most that is kept of one.", Size(limit))
	}
	if err != nil {
		return "", 0, err
	}
	return hash, size, nil
}

// Open opens a blob; NotFound if there is none. The reader also is an
// io.Seeker.
func (s *Store) Open(ctx context.Context, hash string) (io.ReadCloser, error) {
	r, _, err := s.OpenSized(ctx, hash)
	if err != nil {
		return nil, err // not r: a nil reader in an interface is not nil
	}
	return r, nil
}

// OpenSized opens a blob for serving ranges of it.
func (s *Store) OpenSized(ctx context.Context, hash string) (io.ReadSeekCloser, int64, error) {
	if !IsHash(hash) {
		return nil, 0, notebook.Errorf(notebook.NotFound, "There is no such file.")
	}
	return s.blobs.OpenBlob(ctx, hash)
}

// Has reports whether there is a blob.
func (s *Store) Has(ctx context.Context, hash string) (bool, error) {
	if !IsHash(hash) {
		return false, nil
	}
	return s.blobs.HasBlob(ctx, hash)
}

// IsHash reports whether s is a sha256 in lower-case hex, as blobs are named.
func IsHash(s string) bool {
	if len(s) != 64 {
		return false
	}
	for _, c := range s {
		if c >= 'A' && c <= 'F' {
			return false
		}
	}
	_, err := hex.DecodeString(s)
	return err == nil
}

// Size is a number of bytes for people: "64 MiB".
func Size(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	if n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	v, u := float64(n)/1024, 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if v == float64(int64(v)) {
		return fmt.Sprintf("%d %s", int64(v), units[u])
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}
