package auth

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sandbook/kernel/notebook"
)

const cookieLife = 30 * 24 * time.Hour

// Door lets people in: it exchanges the sign-in secret for a cookie and reads
// the credential of every later request. It is safe for concurrent use.
type Door struct {
	keys   *Keys
	cookie string
	secure bool
	limit  limiter
}

// NewDoor makes the door of a server that people reach on port; secure says
// that they reach it by https. The cookie's name holds the port, since cookies
// do not tell the ports of one host apart.
func NewDoor(keys *Keys, port int, secure bool) *Door {
	name := "sandbook-" + strconv.Itoa(port)
	if secure {
		name = "__Host-" + name
	}
	return &Door{keys: keys, cookie: name, secure: secure}
}

// SignIn exchanges the secret for a cookie. It refuses with ErrTooMany after
// many wrong ones from one address, and with ErrUnauthenticated after one. The
// right one, which nobody can guess, is never refused: wrong ones may come from
// somebody else behind the same address.
func (d *Door) SignIn(remote, secret string, now time.Time) (*http.Cookie, error) {
	if !d.keys.signInMatches(secret) {
		if wait := d.limit.wait(remote, now); wait > 0 {
			return nil, &TooManyError{RetryAfter: wait}
		}
		d.limit.failed(remote, now)
		return nil, refuse("the sign-in secret is wrong")
	}
	owner := notebook.Actor{
		Author: notebook.Author{Kind: notebook.Person, ID: "owner", Name: "You"},
		Scopes: PersonScopes(),
	}
	token, err := d.keys.Mint(Claims{Actor: owner, Audience: AudiencePage}, cookieLife, now)
	if err != nil {
		return nil, err
	}
	return d.make(token, int(cookieLife/time.Second)), nil
}

// SignOut is the cookie that removes the cookie. Revoking the token as well is
// the caller's part.
func (d *Door) SignOut() *http.Cookie { return d.make("", -1) }

func (d *Door) make(value string, age int) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure is set where the site is reached by https
		Name: d.cookie, Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: d.secure, SameSite: http.SameSiteLaxMode,
	}
}

// TooManyError says when to try again.
type TooManyError struct{ RetryAfter time.Duration }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("%v: wait %d seconds", ErrTooMany, int(e.RetryAfter.Seconds())+1)
}

// Is makes the error an ErrTooMany.
func (e *TooManyError) Is(target error) bool { return target == ErrTooMany }

// Via says how a credential came.
type Via int

// The ways. Only a cookie is sent by a browser without being asked, so only it
// needs protection against other sites.
const (
	ViaCookie Via = iota + 1
	ViaBearer
	ViaTicket
)

// Who reads the credential of a request: the cookie of a person or the bearer
// token of an API client. Two credentials at once are refused, for it would be
// unclear which one counts. Tokens in the query are never looked at.
func (d *Door) Who(r *http.Request, now time.Time) (Claims, Via, error) {
	bearer, hasBearer, err := bearerToken(r)
	if err != nil {
		return Claims{}, 0, err
	}
	cookie, hasCookie := "", false
	for _, c := range r.Cookies() {
		if c.Name != d.cookie {
			continue
		}
		if hasCookie {
			return Claims{}, 0, refuse("there are two cookies")
		}
		cookie, hasCookie = c.Value, true
	}
	switch {
	case hasBearer && hasCookie:
		return Claims{}, 0, refuse("there are two credentials")
	case hasBearer:
		c, err := d.keys.Verify(bearer, AudienceAPI, now)
		return c, ViaBearer, err
	case hasCookie:
		c, err := d.keys.Verify(cookie, AudiencePage, now)
		return c, ViaCookie, err
	}
	return Claims{}, 0, refuse("there is no credential")
}

func bearerToken(r *http.Request) (token string, has bool, err error) {
	values := r.Header.Values("Authorization")
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
	default:
		return "", false, refuse("there are two Authorization headers")
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || strings.ContainsAny(token, " ,") {
		return "", false, refuse("the Authorization header is no bearer token")
	}
	return token, true, nil
}
