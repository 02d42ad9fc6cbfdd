package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
	"unicode/utf8"

	"sandbook/backends"
	"sandbook/kernel/notebook"
	"sandbook/kernel/wire"
)

// run is the owner goroutine: it alone touches the session's state.
func (s *Session) run() {
	defer close(s.done)
	defer func() {
		why := ErrClosed
		for sub := range s.subs {
			s.unsubscribe(sub, why)
		}
		if s.guest != nil {
			s.guest.close(ErrClosed)
		}
	}()
	s.reattach() // first of all: whoever stops the kernel means this sandbox
	tick := time.NewTicker(usageEvery)
	defer tick.Stop()
	for {
		select {
		case fn := <-s.inbox:
			fn()
		case e, ok := <-s.events:
			if !ok {
				s.guestGone()
				continue
			}
			s.guest.took(e)
			s.take(e)
		case <-tick.C:
			s.sample()
			if s.idle() && s.m.unload(s) {
				return
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// idle reports whether nothing needs the session in memory.
func (s *Session) idle() bool {
	return len(s.subs) == 0 && s.guest == nil && s.sandbox == nil && !s.booting && s.state.Kernel.Sandbox == ""
}

// take makes the guest's event durable together with those already waiting,
// and then acknowledges them. Malformed events are dropped. If something cannot
// be stored, what came before it is, and the rest comes again.
func (s *Session) take(e wire.Event) {
	g, boot := s.guest, s.state.Kernel.Boot
	var evs []notebook.Event
	var failure error
	st, last, size := s.state, s.cursor.Seq, 0
	for n := 1; ; n++ {
		body, err := s.translate(s.ctx, e)
		if err != nil && !errors.Is(err, errMalformed) {
			failure = err
			break
		}
		if err != nil {
			s.m.logger.LogAttrs(s.ctx, slog.LevelWarn, "malformed event dropped", slog.String("notebook", string(s.id)), slog.Any("error", err))
		} else if body != nil {
			for _, b := range s.meter.take(body) {
				for _, b := range pieces(b) {
					evs, st = s.merge(evs, st, e.Gen, b)
				}
			}
		}
		last, size = e.Seq, size+len(e.Data)+len(e.Content)
		if n >= maxBatch || size >= maxBatchBytes {
			break
		}
		var more bool
		if e, more = s.nextEvent(e.Type); !more {
			break
		}
		g.took(e)
	}
	evs = s.follow(evs)
	// What caused no event is not acknowledged by itself, so that the guest
	// never forgets more than the cursor says.
	s.silent += size
	if len(evs) > 0 || last-s.cursor.Seq > maxUnacked || s.silent > maxSilent {
		s.silent = 0
		if err := s.commit(evs, notebook.Batch{Cursor: &notebook.Cursor{Boot: boot, Seq: last}, Relaxed: relaxed(evs)}); err != nil {
			s.retry(g, err)
			return
		}
		s.ackSoon()
		s.lost = 0
	}
	s.react(nil, evs)
	if failure != nil {
		s.retry(g, failure)
	}
}

// relaxed reports whether events may be sent on before the disk has them: all
// but the sending of a run, which must not be forgotten once the kernel has it.
func relaxed(evs []notebook.Event) bool {
	return !slices.ContainsFunc(evs, func(e notebook.Event) bool {
		_, sent := e.Body.(notebook.RunSent)
		return sent
	})
}

// ackSoon acknowledges what was taken from the guest, a little later and once
// it is on the disk: until then the guest keeps it, and a loss of power on this
// machine loses nothing of a sandbox on another.
func (s *Session) ackSoon() {
	if s.acking {
		return
	}
	s.acking = true
	s.m.after(s, ackAfter, func() {
		g, upTo := s.guest, s.cursor.Seq
		s.m.wg.Go(func() {
			err := s.m.log.Sync(s.ctx)
			s.post(func() {
				s.acking = false
				if err != nil {
					s.m.logger.LogAttrs(s.ctx, slog.LevelError, "put the log on the disk", slog.String("notebook", string(s.id)), slog.Any("error", err))
				} else if s.guest == g && g != nil {
					g.ack(upTo)
				}
				if s.guest != nil && (err != nil || s.cursor.Seq != upTo) {
					s.ackSoon()
				}
			})
		})
	})
}

// nextEvent is the guest's next event if there is one already. After a result
// the end of the run is about to come, and one commit for both is quicker than
// two.
func (s *Session) nextEvent(after wire.EventType) (wire.Event, bool) {
	if after == wire.EventResult {
		soon := time.NewTimer(endOfRun)
		defer soon.Stop()
		select {
		case e, more := <-s.events:
			return e, more
		case <-soon.C:
		}
	}
	select {
	case e, more := <-s.events:
		return e, more
	default:
		return wire.Event{}, false
	}
}

// retry drops the connection after the log refused a batch and connects again
// a little later: what was not acknowledged comes again, and nothing is lost.
func (s *Session) retry(g *guest, err error) {
	if s.ctx.Err() != nil {
		return
	}
	s.m.logger.LogAttrs(s.ctx, slog.LevelError, "store what the guest sent", slog.String("notebook", string(s.id)), slog.Any("error", err))
	if s.guest != g {
		return
	}
	s.dropGuest(err)
	if s.failed == nil { // else another server has the sandbox, or will
		s.m.after(s, time.Second, s.reattach)
	}
}

// pieces cuts a text to what one event may hold.
func pieces(body notebook.Body) []notebook.Body {
	b, ok := body.(notebook.StreamAppended)
	if !ok || len(b.Text) <= notebook.MaxText {
		return []notebook.Body{body}
	}
	var out []notebook.Body
	for text := b.Text; text != ""; {
		n := min(len(text), notebook.MaxText)
		for n < len(text) && n > notebook.MaxText-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		b.Text, text = text[:n], text[n:]
		out = append(out, b)
	}
	return out
}

// merge decides one report and adds its events, joining text to the text
// before it.
func (s *Session) merge(evs []notebook.Event, st notebook.State, gen int, body notebook.Body) ([]notebook.Event, notebook.State) {
	more, err := notebook.Decide(st, notebook.TheServer, notebook.Report{Gen: gen, Body: body}, s.m.now())
	if err != nil {
		return evs, st
	}
	for _, e := range more {
		if n := len(evs); n > 0 {
			if u, ok := e.Body.(notebook.OutputUpdated); ok { // of many updates only the last is seen
				if v, ok := evs[n-1].Body.(notebook.OutputUpdated); ok && u.DisplayID == v.DisplayID {
					evs[n-1].Body = u
					st = notebook.Apply(st, evs[n-1])
					continue
				}
			}
			a, okA := evs[n-1].Body.(notebook.StreamAppended)
			b, okB := e.Body.(notebook.StreamAppended)
			if okA && okB && a.Run == b.Run && a.Name == b.Name && a.Background == b.Background && len(a.Text)+len(b.Text) <= notebook.MaxText {
				a.Text += b.Text
				evs[n-1].Body = a
				continue
			}
		}
		st = notebook.Apply(st, e)
		evs = append(evs, e)
	}
	return evs, st
}

// react does what the events ask of the world outside the state.
func (s *Session) react(op notebook.Op, evs []notebook.Event) {
	for _, e := range evs {
		switch b := e.Body.(type) {
		case notebook.RunSent:
			s.sendRun(b.Run)
		case notebook.RunStage:
			if b.Stage == "asked" && s.guest != nil {
				s.guest.send(wire.Request{Op: wire.OpInterrupt, RunID: string(b.Run)})
			}
		case notebook.InputAnswered:
			if r, ok := op.(notebook.ReplyInput); ok && s.guest != nil {
				s.guest.send(wire.Request{Op: wire.OpInput, RunID: string(r.Run), Value: r.Value})
			}
		case notebook.KernelStopped:
			s.stopped(b)
		case notebook.KernelDied:
			if b.Gone {
				s.forget(fmt.Errorf("the sandbox is gone"))
			}
			s.bootIfAsked()
		case notebook.NotebookDeleted:
			s.endSandbox()
		case notebook.FilesChanged:
			if e.By.Kind == notebook.Server {
				s.collect(b)
			}
		}
	}
	switch op.(type) {
	case notebook.StartKernel, notebook.RestartKernel, notebook.RunCells:
		s.boot()
	}
}

// sendRun tells the guest to run what was made durable. Asking twice is safe:
// the guest runs an id once.
func (s *Session) sendRun(id notebook.RunID) {
	r := s.state.Runs[id]
	if r == nil || s.guest == nil {
		return
	}
	s.insist(wire.Request{Op: wire.OpRun, Gen: r.Gen, Run: &wire.Run{
		ID: string(r.ID), Code: r.Source, Name: fmt.Sprintf("In[%d]", r.Count), Count: r.Count,
		TimeoutMS: r.TimeoutMS, OutputLimit: outputLimit,
	}}, func(why string) {
		_ = s.report(r.Gen, notebook.RunEnded{Run: id, Status: notebook.Failed, Reason: "The kernel did not take the run. " + why})
	})
}

// insist makes a request whose refusal is a fact to record; without it the
// notebook would wait for ever.
func (s *Session) insist(req wire.Request, refused func(why string)) {
	g, c := s.guest, &call{}
	if err := g.start(req, c); err != nil {
		s.m.wg.Go(func() { s.post(func() { refused(notebook.MessageOf(err)) }) })
		return
	}
	s.m.wg.Go(func() {
		rep, err := g.answer(s.ctx, c)
		// A kernel that is not there has died, and the event that says so is
		// on its way.
		if err != nil || rep.Error == "" || req.Op == wire.OpRun && rep.Code == wire.CodeNoKernel {
			return
		}
		s.post(func() { refused(cut(rep.Error, 1000)) })
	})
}

// startKernel asks the guest for the kernel of a generation.
func (s *Session) startKernel(gen int) {
	req := wire.Request{Op: wire.OpStart, Gen: gen, Start: &wire.StartKernel{Language: s.state.Language}}
	s.insist(req, func(why string) {
		_ = s.report(gen, notebook.KernelDied{Gen: gen, Cause: "start_failed", Message: "The kernel could not be started. " + why})
	})
}

// sample publishes what the sandbox uses, while somebody watches.
func (s *Session) sample() {
	if s.sandbox == nil || len(s.subs) == 0 {
		return
	}
	if u, ok := s.usage(); ok {
		s.publish(Update{Usage: &u})
	}
}

func (s *Session) usage() (backends.Usage, bool) {
	us, ok := s.sandbox.(backends.Usager)
	if !ok {
		return backends.Usage{}, false
	}
	u, err := us.Usage()
	return u, err == nil
}

// forget drops the sandbox and its connection from the session.
func (s *Session) forget(err error) {
	s.dropGuest(err)
	s.sandbox = nil
	s.oomSeen = 0
}

func (s *Session) dropGuest(err error) {
	if s.guest == nil {
		return
	}
	g := s.guest
	s.guest, s.events = nil, nil
	s.link.Store(nil)
	g.close(err)
}

// guestGone handles a connection that ended while the sandbox may live on.
func (s *Session) guestGone() {
	err := s.guest.err
	s.dropGuest(err)
	if s.sandbox == nil {
		return
	}
	s.m.logger.LogAttrs(s.ctx, slog.LevelWarn, "connection to the sandbox ended", slog.String("notebook", string(s.id)), slog.Any("error", err))
	s.lost++
	switch {
	case s.failed != nil: // another server has the sandbox, or will
	case errors.Is(err, wire.ErrProtocol):
		s.giveUp("The sandbox broke the protocol, so it cannot be trusted and was ended.")
	case s.lost > maxLost:
		s.giveUp("The connection to the sandbox was lost again and again, so it was ended.")
	default:
		s.m.after(s, min(100*time.Millisecond<<min(s.lost-1, 10), 5*time.Second), s.reattach)
	}
}

// giveUp ends a sandbox that cannot be used.
func (s *Session) giveUp(why string) {
	s.endSandbox()
	gen := s.state.Kernel.Gen
	_ = s.report(gen, notebook.KernelDied{
		Gen: gen, Cause: string(backends.KilledByUs), Gone: true,
		Message: why + " Variables are gone; files that were kept come back with the next kernel.",
	})
}

// stopped ends the kernel somebody asked to end, and starts the next one if
// cells wait for it.
func (s *Session) stopped(b notebook.KernelStopped) {
	if b.Gone || s.guest == nil {
		s.endSandbox()
		return
	}
	s.guest.send(wire.Request{Op: wire.OpStop, Gen: b.Gen})
}

// endSandbox kills the sandbox in the background.
func (s *Session) endSandbox() {
	sb := s.sandbox
	s.forget(fmt.Errorf("the kernel was stopped"))
	if sb == nil {
		return
	}
	s.m.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 20*time.Second)
		defer cancel()
		if err := sb.Kill(ctx); err != nil {
			s.m.logger.LogAttrs(ctx, slog.LevelError, "kill sandbox", slog.String("sandbox", string(sb.ID())), slog.Any("error", err))
		}
	})
}
