package web

import "sync"

// watches tells the open sockets of a credential that it was taken back. The
// zero value is ready.
type watches struct {
	mu   sync.Mutex
	open map[string]map[chan struct{}]struct{}
}

// add returns a channel that is closed when the token is revoked, and a function
// that ends the watch.
func (w *watches) add(token string) (<-chan struct{}, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[string]map[chan struct{}]struct{}{}
	}
	if w.open[token] == nil {
		w.open[token] = map[chan struct{}]struct{}{}
	}
	ch := make(chan struct{})
	w.open[token][ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.open[token], ch); len(w.open[token]) == 0 {
			delete(w.open, token)
		}
	}
}

// revoked closes the channels of a token.
func (w *watches) revoked(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.open[token] {
		close(ch)
	}
	delete(w.open, token)
}
