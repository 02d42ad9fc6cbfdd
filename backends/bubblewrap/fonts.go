package bubblewrap

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"sandbook/backends"
	"sandbook/backends/internal/shim/job"
)

// Matplotlib makes a list of all fonts when it is first imported, which takes
// from a tenth of a second to a minute. Every sandbox would do that anew, so it
// is done once for all that show the same runtime: in a sandbox of its own, by a
// program of ours, before any notebook's code can have a say. Each sandbox gets
// a copy of what came out, in its read-only root folder, from where the guest
// copies it to the place where matplotlib looks.

// fontListDir is where a sandbox finds the list. The guest knows it too.
const fontListDir = "/run/sandbook/cache/matplotlib"

// Bounds of making a list.
const (
	maxFontList    = 8 << 20 // bytes
	fontListWithin = 3 * time.Minute
	fontsLookAgain = time.Minute
	maxFontFolders = 20_000
)

//go:embed fontlist.py
var fontListScript string

var fontListName = regexp.MustCompile(`^fontlist-v[0-9A-Za-z.]{1,32}\.json$`)

// fontPlaces says where on the host what a list depends on may be.
type fontPlaces struct {
	pythons  []string // the first that is there is a kernel's
	packages []string // patterns of folders that may hold matplotlib
	fonts    []string // folders of fonts and of what says where fonts are
}

var hostFontPlaces = fontPlaces{
	pythons: []string{"/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3"},
	packages: []string{
		"/usr/lib/python3*/*-packages", "/usr/local/lib/python3*/*-packages",
		"/usr/lib64/python3*/*-packages", "/usr/local/lib64/python3*/*-packages",
	},
	fonts: []string{
		"/etc/fonts", "/usr/share/fonts", "/usr/local/share/fonts", "/usr/X11R6/lib/X11/fonts",
		"/usr/lib/openoffice/share/fonts", "/usr/share/texmf/fonts", "/usr/share/texlive/texmf-dist/fonts",
	},
}

// python is the interpreter of kernels on this host, or empty.
func (p fontPlaces) python() string {
	for _, path := range p.pythons {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// key is a hash of all a list depends on: the interpreter, matplotlib with its
// version, and the folders of fonts with the times of their last change. It is
// empty on a host without matplotlib.
func (p fontPlaces) key() string {
	h := sha256.New()
	add := func(path string) bool {
		fi, err := os.Stat(path)
		if err != nil {
			return false
		}
		size := fi.Size()
		if fi.IsDir() {
			size = 0
		}
		fmt.Fprintf(h, "%q %d %d\n", path, size, fi.ModTime().UnixNano())
		return true
	}
	python, err := filepath.EvalSymlinks(p.python())
	if err != nil || !add(python) {
		return ""
	}
	found := false
	for _, pattern := range p.packages {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			found = add(filepath.Join(dir, "matplotlib")) || found
			versions, _ := filepath.Glob(filepath.Join(dir, "matplotlib-*-info"))
			for _, v := range versions {
				add(v)
			}
		}
	}
	if !found {
		return ""
	}
	n := 0
	for _, root := range p.fonts {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil //nolint:nilerr // what cannot be read is in no list either
			}
			add(path)
			if n++; n > maxFontFolders {
				return fs.SkipAll
			}
			return nil
		})
	}
	h.Write([]byte(fontListScript))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// fontList is a list that was checked, and the file it is in.
type fontList struct {
	key  string
	path string // <CacheDir>/<key>-<name>
	name string // what matplotlib calls it
	info os.FileInfo
}

// node shows the list in a sandbox. It is copied, so that no mount of the
// sandbox names a folder of the server.
func (f *fontList) node() job.Node {
	return job.Node{Kind: job.Copy, Path: fontListDir + "/" + f.name, Source: f.path}
}

// intact reports whether the file is still the one that was checked.
func (f *fontList) intact() bool {
	fi, err := os.Lstat(f.path)
	return err == nil && os.SameFile(fi, f.info) && fi.Size() == f.info.Size() && fi.ModTime().Equal(f.info.ModTime())
}

// fontLists keeps the list of a backend.
type fontLists struct {
	places  fontPlaces
	now     atomic.Pointer[fontList] // what new sandboxes get, or nil
	refused string                   // key of what could not be made; of KeepCaches alone
}

// nodes is what a new sandbox shows of it.
func (l *fontLists) nodes() []job.Node {
	if f := l.now.Load(); f != nil && f.intact() {
		return []job.Node{f.node()}
	}
	return nil
}

// KeepCaches makes once what every sandbox would otherwise make anew, and keeps
// it true to the host's runtime until ctx ends. So far that is matplotlib's list
// of fonts; a host without matplotlib needs nothing. Where something cannot be
// made, failed is called once for that state of the host, and sandboxes do
// without. It must not be called twice at a time.
func (b *Backend) KeepCaches(ctx context.Context, failed func(error)) {
	if b.opts.CacheDir == "" {
		return
	}
	look := time.NewTicker(fontsLookAgain)
	defer look.Stop()
	for {
		if err := b.keepFontList(ctx); err != nil && ctx.Err() == nil {
			failed(fmt.Errorf("make matplotlib's list of fonts: %w", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// keepFontList sees to it that new sandboxes get the list of the host as it is
// now, or none.
func (b *Backend) keepFontList(ctx context.Context) error {
	l := &b.fonts
	key := l.places.key()
	if f := l.now.Load(); f != nil && f.key == key && f.intact() {
		return nil
	}
	l.now.Store(nil)
	if key == "" || key == l.refused {
		return nil
	}
	f, err := b.storedFontList(key)
	if err != nil {
		l.refused = key
		if f, err = b.makeFontList(ctx, key); f == nil || err != nil {
			return err
		}
		l.refused = ""
	}
	l.now.Store(f)
	return nil
}

// storedFontList reads and checks the list an earlier server made.
func (b *Backend) storedFontList(key string) (*fontList, error) {
	paths, err := filepath.Glob(filepath.Join(b.opts.CacheDir, key+"-*"))
	if err != nil || len(paths) != 1 {
		return nil, errors.New("there is none")
	}
	f := &fontList{key: key, path: paths[0], name: strings.TrimPrefix(filepath.Base(paths[0]), key+"-")}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if f.info, err = file.Stat(); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFontList+1))
	if err != nil {
		return nil, err
	}
	return f, checkFontList(f.name, text)
}

// checkFontList refuses what matplotlib would not take for its list.
func checkFontList(name string, text []byte) error {
	if !fontListName.MatchString(name) {
		return fmt.Errorf("a list cannot be called %.100q", name)
	}
	if len(text) > maxFontList {
		return fmt.Errorf("the list has more than %d bytes", maxFontList)
	}
	var list struct {
		Class string            `json:"__class__"`
		Fonts []json.RawMessage `json:"ttflist"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("the list cannot be read: %w", err)
	}
	if list.Class != "FontManager" || len(list.Fonts) == 0 {
		return fmt.Errorf("this is not a list of fonts: class %.100q, %d fonts", list.Class, len(list.Fonts))
	}
	return nil
}

// makeFontList has matplotlib make the list in a sandbox and stores it. It
// returns nil if kernels have no matplotlib after all.
func (b *Backend) makeFontList(ctx context.Context, key string) (*fontList, error) {
	text, err := b.inside(ctx, fontListScript)
	if err != nil {
		return nil, err
	}
	var said struct {
		Name string          `json:"name"`
		List json.RawMessage `json:"list"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	if said.Name == "" && len(said.List) == 0 {
		return nil, nil //nolint:nilnil // promised above
	}
	if err := checkFontList(said.Name, said.List); err != nil {
		return nil, err
	}
	if err := b.storeCache(key+"-"+said.Name, said.List); err != nil {
		return nil, fmt.Errorf("store the list: %w", err)
	}
	return b.storedFontList(key)
}

// storeCache writes a file of the cache folder, whole or not at all, and removes
// all others.
func (b *Backend) storeCache(name string, text []byte) error {
	dir := b.opts.CacheDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // unless it got its name
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	// Nobody asks for the others any more, so it does no harm if one stays.
	old, _ := os.ReadDir(dir)
	for _, e := range old {
		if e.Name() != name {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// inside runs a Python program of ours in a sandbox that nothing else is in,
// and returns what it sends to the connection it takes.
func (b *Backend) inside(ctx context.Context, script string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fontListWithin)
	defer cancel()
	sb, err := b.Start(ctx, backends.Spec{
		ID:     backends.ID(fmt.Sprintf("fonts-%d-%d", os.Getpid(), time.Now().UnixNano())),
		Labels: backends.Labels{Install: b.opts.Install},
		// A guest is copied to another place, so it is not the interpreter
		// itself but a shell that becomes it.
		Guest: "/bin/sh",
		Args:  []string{"-c", `exec "$0" -I -c "$@"`, b.fonts.places.python(), script},
		Env:   []string{"MPLCONFIGDIR=/tmp/matplotlib"},
		Limits: backends.Limits{
			Memory: 1 << 30, CPU: 1000, Pids: 64, Workspace: 16 << 20, WorkspaceInodes: 1024, Tmp: 64 << 20,
		},
	})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = sb.Conn().Close() })
	defer stop()
	text, err := io.ReadAll(io.LimitReader(sb.Conn(), maxFontList+1<<10))
	if err == nil && len(text) > 0 {
		return text, sb.Kill(context.WithoutCancel(ctx))
	}
	exit, waitErr := sb.Wait(ctx)
	if waitErr != nil {
		err = errors.Join(waitErr, sb.Kill(context.WithoutCancel(ctx)))
		return nil, fmt.Errorf("it was not done in time: %w", err)
	}
	return nil, fmt.Errorf("the program ended (%s, code %d, signal %d): %s", exit.Cause, exit.Code, exit.Signal, lastLine(exit.Detail))
}

// lastLine is where Python says what was wrong.
func lastLine(detail string) string {
	detail = strings.TrimSpace(detail)
	line := detail[strings.LastIndexByte(detail, '\n')+1:]
	return strings.ToValidUTF8(line[:min(len(line), 300)], "?")
}
