package guest

import (
	"io/fs"
	"path"
	"sort"
	"strings"
	"syscall"
	"time"

	"sandbook/kernel/wire"
)

// Bounds of a scan after a run.
const (
	scanWithin = 500 * time.Millisecond
	maxChanges = 500
)

// unreported tells folders that libraries and installers fill, and that no
// person wants to hear about after each run.
func unreported(p string) bool {
	switch p {
	case ".cache", ".config", ".ipython", ".local", ".npm":
		return true
	}
	base := path.Base(p)
	return base == "__pycache__" || base == ".ipynb_checkpoints"
}

// print tells whether an entry changed.
type print struct {
	size         int64
	mtime, ctime int64
	inode        uint64
	dir          bool
}

func printOf(fi fs.FileInfo) print {
	p := print{size: fi.Size(), mtime: fi.ModTime().UnixNano(), dir: fi.IsDir()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		p.inode, p.ctime = st.Ino, st.Ctim.Nano()
	}
	if p.dir { // a folder changes with every file in it, which is listed itself
		p.size, p.mtime, p.ctime = 0, 0, 0
	}
	return p
}

// baseline remembers the workspace as it is, so that the next report does not
// name what was there before.
func (w *workspace) baseline() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last, w.more, _ = w.scan()
	}
}

// scan looks at the workspace, within bounds.
func (w *workspace) scan() (map[string]print, int, map[string]fs.FileInfo) {
	now := map[string]print{}
	infos := map[string]fs.FileInfo{}
	more := w.walk(maxListed, time.Now().Add(scanWithin), unreported, func(p string, fi fs.FileInfo) {
		pr := printOf(fi)
		now[p] = pr
		if w.last != nil && w.last[p] != pr {
			infos[p] = fi
		}
	})
	return now, more, infos
}

// changes returns what changed since the last look.
func (w *workspace) changes() wire.Files {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[string]print{}
	}
	now, more, infos := w.scan()
	var out wire.Files
	for p, fi := range infos {
		out.Changed = append(out.Changed, w.described(p, fi))
	}
	// What a scan did not reach is not known to be gone.
	if more == 0 && w.more == 0 {
		for p := range w.last {
			if _, ok := now[p]; !ok {
				out.Removed = append(out.Removed, shown(p))
			}
		}
	} else {
		out.More = more
	}
	w.last, w.more = now, more
	sort.Slice(out.Changed, func(i, j int) bool { return out.Changed[i].Path < out.Changed[j].Path })
	sort.Strings(out.Removed)
	if n := len(out.Changed); n > maxChanges {
		out.Changed, out.More = out.Changed[:maxChanges], out.More+n-maxChanges
	}
	if n := len(out.Removed); n > maxChanges {
		out.Removed, out.More = out.Removed[:maxChanges], out.More+n-maxChanges
	}
	return out
}

// note brings what is remembered of p and below it up to date after the host
// changed it, so that no run is said to have done so.
func (w *workspace) note(p string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		return
	}
	for q := range w.last {
		if q == p || strings.HasPrefix(q, p+"/") {
			delete(w.last, q)
		}
	}
	for q := p; q != "."; q = path.Dir(q) {
		if unreported(q) {
			return
		}
	}
	fi, err := w.root.Lstat(p)
	if err != nil {
		return
	}
	w.last[p] = printOf(fi)
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if fi, err := w.root.Lstat(dir); err == nil {
			w.last[dir] = printOf(fi)
		}
	}
	if fi.IsDir() {
		w.noteBelow(p, 0)
	}
}

func (w *workspace) noteBelow(dir string, depth int) {
	if depth > maxDepth || len(w.last) > maxListed {
		return
	}
	entries, err := fs.ReadDir(w.root.FS(), dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		p := dir + "/" + e.Name()
		fi, err := w.root.Lstat(p)
		if err != nil || unreported(p) {
			continue
		}
		w.last[p] = printOf(fi)
		if fi.IsDir() {
			w.noteBelow(p, depth+1)
		}
	}
}
