package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"sandbook/kernel/notebook"
	"sandbook/web/pages"
)

// Bounds of the rail.
const (
	maxRailFiles = 30
	maxHistory   = 6
)

func kernelWord(l pages.Lang, k notebook.KernelStatus, busy, waiting bool) (string, pages.Tone) {
	switch {
	case k == notebook.Starting:
		return l.T("starting"), pages.Busy
	case k == notebook.Dead, k == notebook.Dying:
		return l.T("died"), pages.Bad
	case k != notebook.Ready:
		return l.T("no kernel"), pages.Off
	case waiting:
		return l.T("waits for input"), pages.Wait
	case busy:
		return l.T("running"), pages.Busy
	}
	return l.T("idle"), pages.Good
}

func (v maker) kernel() pages.Kernel {
	k := v.s.Kernel
	word, tone := kernelWord(v.o.Lang, k.Status, v.s.Busy(), v.s.Input != nil)
	p := pages.Kernel{Lang: v.o.Lang, Tone: tone, Short: word, Alive: alive(k)}
	held := 0
	for _, c := range k.Posture {
		p.Checks = append(p.Checks, pages.Check{Name: c.Name, Detail: c.Detail, OK: c.OK})
		if c.OK {
			held++
		}
	}
	for _, c := range k.Missing {
		p.Checks = append(p.Checks, pages.Check{Name: c.Name, Detail: c.Detail})
	}
	label := []string{v.language(), word}
	if alive(k) {
		at := backendName(k.Backend)
		if n := len(k.Posture); n > 0 {
			at = v.t("%s, %d of %d checks", at, held, n)
		}
		if n := len(k.Missing); n > 0 {
			at += v.t(", %d limits missing", n)
		}
		label = append(label, at)
	} else {
		p.Checks = nil
	}
	p.Label = strings.Join(slices.DeleteFunc(label, func(s string) bool { return s == "" }), " · ")
	return p
}

func alive(k notebook.Kernel) bool {
	return k.Status == notebook.Ready || k.Status == notebook.Starting
}

func backendName(s string) string { return cmp.Or(s, "sandbox") }

// language is "Python 3.11".
func (v maker) language() string {
	lang := cmp.Or(v.s.Kernel.Info.Language, v.s.Language)
	r := []rune(lang)
	if len(r) > 0 {
		r[0] = unicode.ToUpper(r[0])
	}
	parts := strings.SplitN(v.s.Kernel.Info.Version, ".", 3)
	version := strings.Join(parts[:min(2, len(parts))], ".")
	return strings.TrimSpace(string(r) + " " + version)
}

func (v maker) actions() pages.Actions {
	a := pages.Actions{Lang: v.o.Lang, Busy: v.s.Busy(), Alive: alive(v.s.Kernel) || v.s.Kernel.Status == notebook.Dead, Trash: len(v.s.Trash)}
	if v.s.Input != nil {
		a.Waiting = true
		if r := v.s.Runs[v.s.Input.Run]; r != nil {
			a.WaitID = string(r.Cell)
		}
	}
	if r := v.s.Runs[v.s.Live]; r != nil {
		a.Stage = v.stage(r.Stage)
	}
	return a
}

// stage says how far an interrupt has gone.
func (v maker) stage(stage string) string {
	switch stage {
	case "":
		return ""
	case "asked", "sigint":
		return v.t("interrupting")
	case "sigint_group":
		return v.t("interrupting its processes, too")
	case "kill":
		return v.t("ending the kernel")
	}
	return stage
}

func (v maker) banner() *pages.Banner {
	k := v.s.Kernel
	b := &pages.Banner{Lang: v.o.Lang}
	switch {
	case !v.s.Deleted.IsZero():
		b.Tone, b.Message, b.Restore = pages.Wait, v.t("This notebook is in the trash."), !v.o.ReadOnly
	case k.Status == notebook.Dead:
		b.Tone, b.Restart = pages.Bad, !v.o.ReadOnly
		b.Message = v.t(cmp.Or(k.Message, "The kernel died."))
	case k.Status == notebook.Starting:
		b.Message = v.t(cmp.Or(k.Message, "The kernel is starting."))
	default:
		return nil
	}
	return b
}

func (v maker) railFiles() pages.RailFiles {
	r := pages.RailFiles{Lang: v.o.Lang}
	paths := slices.Sorted(maps.Keys(v.s.Files))
	for i, p := range paths {
		if i == maxRailFiles {
			r.More = len(paths) - i
			break
		}
		r.Files = append(r.Files, v.file(v.s.Files[p]))
	}
	return r
}

func (v maker) file(f notebook.File) pages.File {
	return pages.File{Path: f.Path, Href: v.fileURL(f.Path), Size: pages.Size(f.Size), Why: f.Why}
}

func (v maker) railKernel() pages.RailKernel {
	k := v.s.Kernel
	r := pages.RailKernel{Lang: v.o.Lang, Alive: alive(k), Backend: backendName(k.Backend), Limit: v.t("MiB, without a limit")}
	if k.Memory > 0 {
		r.Limit = v.t("of %s", pages.Memory(k.Memory))
	}
	if k.Status == notebook.Ready {
		r.Started = k.Started
	}
	switch {
	case k.Adopted == 1:
		r.Adopted = v.t(", server restarted once")
	case k.Adopted > 1:
		r.Adopted = v.t(", server restarted %d times", k.Adopted)
	}
	if k.Gen > 1 {
		r.Restarts = pages.Count(int64(k.Gen - 1))
	}
	return r
}

// railHistory is the last of what the state remembers: texts, runs, kernels.
func (v maker) railHistory() pages.RailHistory {
	var items []pages.HistoryItem
	add := func(at time.Time, text string) {
		if !at.IsZero() {
			items = append(items, pages.HistoryItem{At: at, Text: text})
		}
	}
	add(v.s.Created, v.t("The notebook was created"))
	add(v.s.Kernel.Started, v.t("A kernel started"))
	for i, c := range v.s.Cells {
		who := name(v.o.Lang, c.By)
		if c.Version > 1 {
			add(c.At, v.t("%s edited cell %d", who, i+1))
		} else {
			add(c.At, v.t("%s wrote cell %d", who, i+1))
		}
		if r := v.s.Runs[c.Run]; r != nil {
			add(r.Started, v.t("%s ran cell %d", name(v.o.Lang, r.By), i+1))
		}
	}
	slices.SortStableFunc(items, func(a, b pages.HistoryItem) int { return b.At.Compare(a.At) })
	return pages.RailHistory{Lang: v.o.Lang, Items: items[:min(len(items), maxHistory)]}
}
