package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	ticketLife      = 30 * time.Second
	maxTickets      = 10000
	ticketsPerActor = 64

	// TicketProtocol begins the WebSocket subprotocol that carries a ticket. It
	// is never echoed.
	TicketProtocol = "sandbook.ticket."
)

// Tickets lets a client that cannot send headers open one socket: a random
// number, good once, for half a minute, for one notebook and one origin. They
// live in memory, hashed; a restart forgets them. The zero value is ready and
// safe for concurrent use.
type Tickets struct {
	mu      sync.Mutex
	open    map[[sha256.Size]byte]ticket
	byActor map[string]int
}

type ticket struct {
	claims   Claims
	notebook string
	origin   string
	until    time.Time
}

// Issue makes a ticket for the holder of claims. origin is the page that may
// use it, empty for a client without one. It fails with ErrTooMany when too
// many wait to be used.
func (t *Tickets) Issue(c Claims, notebook, origin string, now time.Time) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	who := c.Actor.ID
	if len(t.open) >= maxTickets || t.byActor[who] >= ticketsPerActor {
		t.purge(now)
	}
	if len(t.open) >= maxTickets || t.byActor[who] >= ticketsPerActor {
		return "", &TooManyError{RetryAfter: ticketLife}
	}
	if t.open == nil {
		t.open, t.byActor = map[[sha256.Size]byte]ticket{}, map[string]int{}
	}
	text := randomText(32)
	t.open[sha256.Sum256([]byte(text))] = ticket{claims: c, notebook: notebook, origin: origin, until: now.Add(ticketLife)}
	t.byActor[who]++
	return text, nil
}

// Redeem uses a ticket up. Whatever does not fit, the ticket is gone.
func (t *Tickets) Redeem(text, notebook, origin string, now time.Time) (Claims, error) {
	if len(text) != base64.RawURLEncoding.EncodedLen(32) {
		return Claims{}, refuse("it is no ticket")
	}
	sum := sha256.Sum256([]byte(text))
	t.mu.Lock()
	k, ok := t.open[sum]
	if ok {
		t.remove(sum, k)
	}
	t.mu.Unlock()
	switch {
	case !ok:
		return Claims{}, refuse("the ticket is unknown or was used")
	case !now.Before(k.until) || !now.Before(k.claims.Expires):
		return Claims{}, refuse("the ticket has expired")
	case k.notebook != notebook || k.origin != origin:
		return Claims{}, refuse("the ticket is for another notebook or origin")
	}
	return k.claims, nil
}

func (t *Tickets) remove(sum [sha256.Size]byte, k ticket) {
	delete(t.open, sum)
	if t.byActor[k.claims.Actor.ID]--; t.byActor[k.claims.Actor.ID] <= 0 {
		delete(t.byActor, k.claims.Actor.ID)
	}
}

func (t *Tickets) purge(now time.Time) {
	for sum, k := range t.open {
		if !now.Before(k.until) {
			t.remove(sum, k)
		}
	}
}

// TicketOf finds the ticket in the subprotocols a socket offers.
func TicketOf(r *http.Request) (text string, has bool, err error) {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			t, ok := strings.CutPrefix(strings.TrimSpace(p), TicketProtocol)
			if !ok {
				continue
			}
			if has {
				return "", false, refuse("there are two tickets")
			}
			text, has = t, true
		}
	}
	return text, has, nil
}
