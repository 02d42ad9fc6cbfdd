package auth

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// ErrTooMany is wrapped when somebody tries too often.
var ErrTooMany = errors.New("too many attempts")

const (
	attemptBurst  = 10
	attemptEvery  = 6 * time.Second // one more attempt
	maxAttemptees = 4096
)

// limiter counts failed attempts by remote address. When it knows too many
// addresses, those it does not know share one count: memory stays bounded and
// an attacker with many addresses gains nothing.
type limiter struct {
	mu     sync.Mutex
	counts map[string]*attempts
	others attempts
}

type attempts struct {
	used float64
	at   time.Time
}

// decay forgets what has been waited for.
func (a *attempts) decay(now time.Time) {
	if d := now.Sub(a.at); d > 0 {
		a.used = max(0, a.used-d.Seconds()/attemptEvery.Seconds())
	}
	a.at = now
}

func (l *limiter) entry(remote string, now time.Time, add bool) *attempts {
	who := address(remote)
	if a := l.counts[who]; a != nil {
		a.decay(now)
		return a
	}
	if add && len(l.counts) >= maxAttemptees {
		for k, a := range l.counts {
			if a.decay(now); a.used == 0 {
				delete(l.counts, k)
			}
		}
	}
	if add && len(l.counts) < maxAttemptees {
		if l.counts == nil {
			l.counts = map[string]*attempts{}
		}
		a := &attempts{at: now}
		l.counts[who] = a
		return a
	}
	if len(l.counts) >= maxAttemptees {
		l.others.decay(now)
		return &l.others
	}
	return &attempts{at: now}
}

// wait says how long remote has to wait for its next attempt.
func (l *limiter) wait(remote string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	over := l.entry(remote, now, false).used - (attemptBurst - 1)
	if over <= 0 {
		return 0
	}
	return time.Duration(over * float64(attemptEvery))
}

func (l *limiter) failed(remote string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(remote, now, true).used++
}

// address is what counts as one party: an IPv4 address, or the network of an
// IPv6 address.
func address(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return "?"
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		p, _ := ip.Prefix(64)
		return p.String()
	}
	return ip.String()
}
