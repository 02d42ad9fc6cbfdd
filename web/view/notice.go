package view

import (
	"strings"
	"time"

	"sandbook/kernel/notebook"
)

// Notice is what a screen reader says about the events, in the order they
// came: how runs ended, what waits, what the kernel does. It is never about
// output. Empty most of the time.
func Notice(after notebook.State, evs []notebook.Event, o Options) string {
	v := maker{after, o}
	var said []string
	for _, e := range evs {
		if s := v.say(e.Body); s != "" {
			said = append(said, s)
		}
	}
	if len(said) > 3 {
		said = said[len(said)-3:]
	}
	return strings.Join(said, " ")
}

func (v maker) say(b notebook.Body) string {
	switch b := b.(type) {
	case notebook.RunEnded:
		return v.ended(b)
	case notebook.InputRequested:
		return v.t("Cell %d waits for input: %s", v.number(b.Run), b.Prompt)
	case notebook.KernelReady:
		return v.t("The kernel is ready.")
	case notebook.KernelStarting:
		return v.t("The kernel is starting.")
	case notebook.KernelDied:
		return v.t(b.Message)
	case notebook.KernelStopped:
		return v.t("The kernel has stopped.")
	}
	return ""
}

// number is the place of a run's cell; 0 if it is gone.
func (v maker) number(id notebook.RunID) int {
	r := v.s.Runs[id]
	if r == nil {
		return 0
	}
	_, i := v.s.Cell(r.Cell)
	return i + 1
}

func (v maker) ended(b notebook.RunEnded) string {
	n := v.number(b.Run)
	switch {
	case n == 0:
		return ""
	case b.Status == notebook.OK:
		return v.t("Cell %d finished in %s.", n, v.o.Lang.Duration(time.Duration(b.WallMS)*time.Millisecond))
	case b.Status == notebook.Failed && b.EName != "":
		return v.t("Cell %d failed: %s.", n, b.EName)
	case b.Status == notebook.Skipped, b.Status == notebook.Cancelled:
		return ""
	}
	return v.t("Cell %d ended: %s", n, v.t(b.Reason))
}
