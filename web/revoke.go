package web

import (
	"sync"

	"sandbook/kernel/notebook"
)

// watches tells the open sockets of a credential that it was taken back. The
// zero value is ready.
type watches struct {
	mu   sync.Mutex
	open map[string]map[chan struct{}]struct{}
}

// maxSockets is how many sockets one credential may have open.
const maxSockets = 256

// add returns a channel that is closed when the token is revoked, and a function
// that ends the watch. It is Unavailable when the token has too many already.
func (w *watches) add(token string) (<-chan struct{}, func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open[token]) >= maxSockets {
		return nil, nil, notebook.Errorf(notebook.Unavailable, "This token or browser has %d sockets open. Close one first.", maxSockets)
	}
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
	}, nil
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
