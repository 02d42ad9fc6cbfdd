package guest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"sandbook/kernel/wire"
)

// Bounds of file requests.
const (
	maxPath    = 1024
	maxName    = 255
	maxListed  = 20000
	maxDepth   = 32
	copyChunk  = 64 << 10
	tempPrefix = ".sandbook-upload-"
)

// Errors of file requests; explain gives them a code and a sentence.
var (
	errAborted = errors.New("the transfer was cut off")
	errPath    = errors.New("path")
	errKind    = errors.New("kind")
)

// workspace is the folder the host may look into. Every access goes through
// os.Root, so no link leads out of it, and only regular files are opened.
type workspace struct {
	root *os.Root
	dir  string

	mu   sync.Mutex
	last map[string]print // what the last scan saw
	more int              // entries it did not look at
}

func openWorkspace(dir string) (*workspace, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	return &workspace{root: root, dir: dir}, nil
}

// checkPath refuses what is no plain relative path. The empty path is the
// workspace itself where that makes sense.
func checkPath(p string) error {
	bad := func(why string) error { return fmt.Errorf("%w: %s", errPath, why) }
	switch {
	case p == "":
		return bad("The path is empty.")
	case len(p) > maxPath:
		return bad(fmt.Sprintf("The path is longer than %d bytes.", maxPath))
	case !utf8.ValidString(p):
		return bad("The path is not valid UTF-8.")
	case strings.HasPrefix(p, "/") || strings.Contains(p, "\\"):
		return bad("The path must be relative to the workspace, with / between names.")
	}
	for _, r := range p {
		if unicode.IsControl(r) {
			return bad("The path holds a control character.")
		}
	}
	for name := range strings.SplitSeq(p, "/") {
		switch {
		case name == "" || name == "." || name == "..":
			return bad("The path must not hold empty names, . or ..")
		case len(name) > maxName:
			return bad(fmt.Sprintf("A name in the path is longer than %d bytes.", maxName))
		case strings.HasPrefix(name, tempPrefix):
			return bad("Names that start with " + tempPrefix + " are taken.")
		}
	}
	return nil
}

// explain finds the code and the sentence for an error of a request.
func explain(err error) (wire.ErrorCode, string) {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.Is(err, errPath) || errors.Is(err, errKind):
		_, s, _ := strings.Cut(err.Error(), ": ")
		return wire.CodeInvalid, s
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG):
		return wire.CodeFull, "The workspace is full. Remove files you do not need."
	case errors.Is(err, fs.ErrNotExist):
		return wire.CodeNotFound, "There is no such file."
	case errors.Is(err, fs.ErrExist):
		return wire.CodeInvalid, "There is something of that name already."
	case errors.Is(err, syscall.ELOOP):
		return wire.CodeInvalid, "There are too many links in this path."
	case errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTEMPTY) ||
		errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.EINVAL):
		return wire.CodeInvalid, "This cannot be done with what is at that path: " + cause(err) + "."
	case errors.As(err, &pathErr) && strings.Contains(pathErr.Err.Error(), "escapes"):
		return wire.CodeInvalid, "The path leads out of the workspace."
	case errors.As(err, &linkErr) && strings.Contains(linkErr.Err.Error(), "escapes"):
		return wire.CodeInvalid, "The path leads out of the workspace."
	case errors.Is(err, errAborted):
		return wire.CodeFailed, "The transfer was cut off."
	default:
		return wire.CodeFailed, "The sandbox could not do this: " + cause(err) + "."
	}
}

// cause is the innermost error, without paths in it.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return strings.TrimRight(cutText(err.Error(), 200), ".")
		}
		err = inner
	}
}

// describe makes the information about one entry.
func describe(p string, fi fs.FileInfo) wire.FileInfo {
	f := wire.FileInfo{Path: p, Size: fi.Size(), Mode: uint32(fi.Mode().Perm()), MTime: fi.ModTime().UnixMilli()}
	switch t := fi.Mode().Type(); {
	case t == 0:
		f.Kind = "file"
	case t == fs.ModeDir:
		f.Kind, f.Size = "dir", 0
	case t == fs.ModeSymlink:
		f.Kind, f.Size = "link", 0
	default:
		f.Kind, f.Size = "other", 0
	}
	return f
}

// shown returns a name fit for people and JSON: what is no UTF-8, or controls
// a terminal or the direction of text, is escaped, and then is no valid path.
func shown(name string) string {
	ok := utf8.ValidString(name)
	for _, r := range name {
		ok = ok && unicode.IsPrint(r)
	}
	if ok && !strings.Contains(name, "\\") {
		return name
	}
	q := strconv.QuoteToGraphic(name)
	q = q[1 : len(q)-1]
	var b strings.Builder
	for _, r := range q {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return strings.ReplaceAll(b.String(), `\"`, `"`)
}

// list returns what is in a folder, or everything in the workspace.
func (w *workspace) list(dir string, limit int64) ([]wire.FileInfo, error) {
	if limit <= 0 || limit > maxListed {
		limit = maxListed
	}
	if dir != "" {
		if err := checkPath(dir); err != nil {
			return nil, err
		}
		return w.listOne(dir, int(limit))
	}
	out := []wire.FileInfo{}
	w.walk(int(limit), time.Now().Add(2*time.Second), nil, func(p string, fi fs.FileInfo) {
		out = append(out, w.described(p, fi))
	})
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out, nil
}

func (w *workspace) listOne(dir string, limit int) ([]wire.FileInfo, error) {
	if err := w.noLink(dir); err != nil {
		return nil, err
	}
	d, err := w.root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close() //nolint:errcheck // only read
	out := []wire.FileInfo{}
	names, err := d.Readdirnames(limit)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	sort.Strings(names)
	for _, name := range names {
		if strings.HasPrefix(name, tempPrefix) {
			continue
		}
		if fi, err := w.root.Lstat(path.Join(dir, name)); err == nil {
			out = append(out, w.described(path.Join(dir, name), fi))
		}
	}
	return out, nil
}

// described adds where a link points to, and makes the names fit to show.
func (w *workspace) described(p string, fi fs.FileInfo) wire.FileInfo {
	f := describe(shown(p), fi)
	if f.Kind == "link" {
		if to, err := w.root.Readlink(p); err == nil {
			f.Link = shown(cutText(to, maxPath))
		}
	}
	return f
}

// walk visits entries below the workspace, not following links, until the
// limit or the deadline, without those that skip names. It returns how many it
// knows it left out.
func (w *workspace) walk(limit int, deadline time.Time, skip func(p string) bool, visit func(p string, fi fs.FileInfo)) (more int) {
	type level struct {
		path  string
		depth int
	}
	queue := []level{{path: "."}}
	seen := 0
	for len(queue) > 0 {
		l := queue[0]
		queue = queue[1:]
		d, err := w.root.OpenFile(l.path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		for {
			// ReadDir with Info would follow renames; Lstat through the open
			// directory is what os.File does here.
			entries, err := d.ReadDir(256)
			for _, e := range entries {
				p := e.Name()
				if l.path != "." {
					p = l.path + "/" + p
				}
				if strings.HasPrefix(e.Name(), tempPrefix) || (skip != nil && skip(p)) {
					continue
				}
				if seen >= limit || time.Now().After(deadline) {
					more++
					continue
				}
				fi, err := w.root.Lstat(p)
				if err != nil {
					continue
				}
				seen++
				visit(p, fi)
				if fi.IsDir() {
					if l.depth+1 < maxDepth {
						queue = append(queue, level{path: p, depth: l.depth + 1})
					} else {
						more++
					}
				}
			}
			if err != nil {
				break
			}
			if more > 10*maxListed {
				break
			}
		}
		_ = d.Close()
	}
	return more
}

// noLink refuses a path whose last name is a link: os.Root would follow it
// inside the workspace. Swapping the name afterwards gains nothing, since no
// link leads out of an os.Root.
func (w *workspace) noLink(p string) error {
	fi, err := w.root.Lstat(p)
	if err != nil {
		return err
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%w: This is a link, and links are not followed.", errKind) //nolint:revive,staticcheck // a sentence for people
	}
	return nil
}

// open opens a regular file for reading. A pipe or a device is refused at once
// and nothing waits for it.
func (w *workspace) open(p string) (*os.File, fs.FileInfo, error) {
	if err := checkPath(p); err != nil {
		return nil, nil, err
	}
	if err := w.noLink(p); err != nil {
		return nil, nil, err
	}
	f, err := w.root.OpenFile(p, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%w: This is not a file that can be read.", errKind) //nolint:revive,staticcheck // a sentence for people
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// read sends a file, or a part of it, on the stream.
func (w *workspace) read(p string, off, limit int64, s *stream) error {
	f, fi, err := w.open(p)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if off < 0 || limit < 0 {
		return fmt.Errorf("%w: Offsets and limits are not negative.", errPath) //nolint:revive,staticcheck // a sentence for people
	}
	// A file that grows while it is read is sent as long as it was.
	n := max(0, fi.Size()-off)
	if limit > 0 {
		n = min(n, limit)
	}
	_, err = io.CopyBuffer(s, struct{ io.Reader }{io.NewSectionReader(f, off, n)}, make([]byte, copyChunk))
	s.end(err)
	return err
}

// write makes a file of what comes on the stream, whole or not at all.
func (w *workspace) write(p string, info *wire.FileInfo, s *stream) (err error) {
	if err := checkPath(p); err != nil {
		return err
	}
	if fi, err := w.root.Lstat(p); err == nil && !fi.Mode().IsRegular() {
		return fmt.Errorf("%w: There is something at that path that is not a file.", errKind) //nolint:revive,staticcheck // a sentence for people
	}
	dir := path.Dir(p)
	if dir != "." {
		if err := w.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	temp := path.Join(dir, tempPrefix+strconv.FormatInt(time.Now().UnixNano(), 36)+"-"+strconv.FormatUint(uint64(s.number), 36))
	mode := fs.FileMode(0o644)
	if info != nil && info.Mode != 0 {
		mode = fs.FileMode(info.Mode) & 0o777
	}
	f, err := w.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = w.root.Remove(temp)
		}
	}()
	for {
		b, err := s.next()
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if info != nil && info.MTime > 0 {
		t := time.UnixMilli(info.MTime)
		_ = w.root.Chtimes(temp, t, t)
	}
	if err := w.root.Rename(temp, p); err != nil {
		return err
	}
	w.note(p)
	return nil
}

func (w *workspace) remove(p string) error {
	if err := checkPath(p); err != nil {
		return err
	}
	if _, err := w.root.Lstat(p); err != nil {
		return err
	}
	if err := w.root.RemoveAll(p); err != nil {
		return err
	}
	w.note(p)
	return nil
}

// rename moves an entry; what is at the new path is not replaced.
func (w *workspace) rename(from, to string) error {
	if err := checkPath(from); err != nil {
		return err
	}
	if err := checkPath(to); err != nil {
		return err
	}
	if _, err := w.root.Lstat(to); err == nil {
		return fs.ErrExist
	}
	if dir := path.Dir(to); dir != "." {
		if err := w.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := w.root.Rename(from, to); err != nil {
		return err
	}
	w.note(from)
	w.note(to)
	return nil
}

func (w *workspace) mkdir(p string) error {
	if err := checkPath(p); err != nil {
		return err
	}
	if fi, err := w.root.Lstat(p); err == nil && !fi.IsDir() {
		return fs.ErrExist
	}
	if err := w.root.MkdirAll(p, 0o755); err != nil {
		return err
	}
	w.note(p)
	return nil
}
