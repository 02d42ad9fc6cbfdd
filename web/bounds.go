package web

import (
	"context"
	"sync"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/web/render"
)

const (
	maxWhole    = 8                // answers with a whole notebook in them being made at one time
	maxWholeOne = 4                // of which for one credential
	smallAnswer = 1 << 20          // bytes; a smaller one gives its place back before it is sent
	maxExports  = 2                // at one time
	maxRendered = 64 << 20         // bytes of formatted texts that are kept
	turnTime    = 10 * time.Second // for a place to become free
)

// bounds are what the requests of a server share.
type bounds struct {
	whole    *places
	exports  chan struct{}
	rendered *render.Cache
}

func newBounds() bounds {
	return bounds{whole: newPlaces(maxWhole, maxWholeOne), exports: make(chan struct{}, maxExports), rendered: render.NewCache(maxRendered)}
}

// places let so many requests do at one time what takes much memory, and fewer
// of one credential, so that who reads slowly keeps nobody else waiting.
type places struct {
	free chan struct{}
	each int

	mu    sync.Mutex
	byWho map[string]*share
}

type share struct {
	free  chan struct{}
	users int // holding or waiting
}

func newPlaces(all, each int) *places {
	return &places{free: make(chan struct{}, all), each: each, byWho: map[string]*share{}}
}

// take waits for a place, until the context ends. Call release once or more.
func (p *places) take(ctx context.Context, who string) (release func(), err error) {
	own := p.join(who)
	if err := enter(ctx, own.free); err != nil {
		p.leave(who)
		return nil, err
	}
	if err := enter(ctx, p.free); err != nil {
		<-own.free
		p.leave(who)
		return nil, err
	}
	return sync.OnceFunc(func() {
		<-p.free
		<-own.free
		p.leave(who)
	}), nil
}

func enter(ctx context.Context, free chan<- struct{}) error {
	select {
	case free <- struct{}{}:
		return nil
	default:
	}
	select {
	case free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *places) join(who string) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.byWho[who]
	if s == nil {
		s = &share{free: make(chan struct{}, p.each)}
		p.byWho[who] = s
	}
	s.users++
	return s
}

func (p *places) leave(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.byWho[who]; s.users > 1 {
		s.users--
	} else {
		delete(p.byWho, who)
	}
}

// turn waits for a place to answer with a whole notebook. Whoever waits too long
// is told to come back.
func (s *Server) turn(ctx context.Context, who string) (done func(), err error) {
	wait, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	done, err = s.bounds.whole.take(wait, who)
	if err != nil && ctx.Err() == nil {
		return nil, notebook.Errorf(notebook.Unavailable, "The server is busy with other large notebooks. Try again in a moment.")
	}
	return done, err
}

// exporting takes a place to export, or says that there is none.
func (s *Server) exporting() (done func(), err error) {
	select {
	case s.bounds.exports <- struct{}{}:
		return func() { <-s.bounds.exports }, nil
	default:
		return nil, notebook.Errorf(notebook.Unavailable, "The server is writing %d other notebooks to files. Try again when they are done.", maxExports)
	}
}
