package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/web/live"
)

// The link the server printed signs in, once opened and as often as it is
// opened, and the token or the whole link may be pasted instead.
func TestSignIn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	secret := r.keys.SignInSecret()
	for name, c := range map[string]call{
		"link":                     {method: "GET", path: "/login?token=" + secret},
		"link, opened in a window": {method: "GET", path: "/login?token=" + secret, head: map[string]string{"Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "cross-site"}},
		"link, already signed in":  {method: "GET", path: "/login?token=" + secret, as: r.owner()},
		"token":                    {method: "POST", path: "/login", body: "token=" + secret, head: form},
		"token with spaces":        {method: "POST", path: "/login", body: "token=%20" + secret + "%0D%0A", head: form},
		"pasted link":              {method: "POST", path: "/login", body: "token=" + url.QueryEscape(r.base+"/login?token="+secret), head: form},
		"multipart form":           {method: "POST", path: "/login", body: "--x\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n" + secret + "\r\n--x--\r\n", head: map[string]string{"Content-Type": "multipart/form-data; boundary=x"}},
		"without an origin":        {method: "POST", path: "/login", body: "token=" + secret, head: merged(form, map[string]string{"Origin": ""})},
	} {
		a := r.do(c)
		if a.status != http.StatusSeeOther || a.head.Get("Location") != "/" || len(a.head.Values("Set-Cookie")) != 1 {
			t.Errorf("%s: got %s to %q with cookies %q, want 303 to / with one", name, a, a.head.Get("Location"), a.head.Values("Set-Cookie"))
			continue
		}
		ck := cookieOf(t, a)
		got := r.do(call{method: "GET", path: "/api/v1/tokens", as: r.withCookie(ck.Value)})
		if got.status != http.StatusOK {
			t.Errorf("%s: the cookie gets %s, want 200", name, got)
		}
		if strings.Contains(strings.Join(a.head.Values("Set-Cookie"), ""), secret) || strings.Contains(a.body, secret) {
			t.Errorf("%s: the answer holds the token", name)
		}
	}
}

func cookieOf(t *testing.T, a answer) *http.Cookie {
	t.Helper()
	for _, c := range (&http.Response{Header: a.head}).Cookies() {
		if strings.Contains(c.Name, "sandbook-") {
			return c
		}
	}
	t.Fatalf("got %s with cookies %q, want one of ours", a, a.head.Values("Set-Cookie"))
	return nil
}

// The cookie cannot be read by scripts, goes with no form of another site, and
// over https is bound to the host.
func TestCookieAttributes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		public []string
		name   string
		secure bool
	}{{nil, "sandbook-", false}, {[]string{"https://notebooks.example"}, "__Host-sandbook-", true}} {
		r := newRig(t, tc.public...)
		a := r.do(call{method: "GET", path: "/login?token=" + r.keys.SignInSecret()})
		c := cookieOf(t, a)
		want := http.Cookie{Name: tc.name + strconv.Itoa(r.port), Path: "/", MaxAge: 30 * 24 * 3600, HttpOnly: true, Secure: tc.secure, SameSite: http.SameSiteLaxMode}
		got := *c
		got.Value, got.Raw = "", ""
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("the cookie is %+v, want %+v", got, want)
		}
		if claims, err := r.keys.Verify(c.Value, "sandbook:page", time.Now()); err != nil || claims.Actor.Kind != notebook.Person {
			t.Errorf("the cookie says %+v (%v), want a person", claims, err)
		}
		out := r.do(call{method: "POST", path: "/logout", as: func(q *http.Request) { q.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value}) }})
		gone := cookieOf(t, out)
		if gone.Name != c.Name || gone.Value != "" || gone.MaxAge >= 0 || gone.Path != "/" || gone.Secure != tc.secure || !gone.HttpOnly {
			t.Errorf("signing out sets %+v, want the cookie taken away", gone)
		}
	}
}

// A wrong token gets a page that says so, and no cookie.
func TestWrongTokens(t *testing.T) {
	t.Parallel()
	secret := ""
	for name, make := range map[string]func() call{
		"wrong link":  func() call { return call{method: "GET", path: "/login?token=wrong"} },
		"empty token": func() call { return call{method: "POST", path: "/login", body: "token=", head: form} },
		"no token":    func() call { return call{method: "POST", path: "/login", body: "next=/", head: form} },
		"no body":     func() call { return call{method: "POST", path: "/login"} },
		"wrong token": func() call { return call{method: "POST", path: "/login", body: "token=wrong", head: form} },
		"almost":      func() call { return call{method: "POST", path: "/login", body: "token=" + secret[1:], head: form} },
		"and more":    func() call { return call{method: "POST", path: "/login", body: "token=" + secret + "x", head: form} },
		"two":         func() call { return call{method: "POST", path: "/login", body: "token=x&token=" + secret, head: form} },
		"as JSON": func() call {
			return call{method: "POST", path: "/login", body: `{"token":"` + secret + `"}`, head: map[string]string{"Content-Type": "application/json"}}
		},
		"in the address": func() call { return call{method: "POST", path: "/login?token=" + secret} },
		"wrong in link": func() call {
			return call{method: "POST", path: "/login", body: "token=" + url.QueryEscape("http://x/login?token=wrong"), head: form}
		},
	} {
		r := newRig(t)
		secret = r.keys.SignInSecret()
		c := make()
		a := r.do(c)
		wantPage(t, name, a, 401)
		if len(a.head.Values("Set-Cookie")) > 0 || strings.Contains(a.body, secret) {
			t.Errorf("%s: got cookies %q, want none, and no token in the page", name, a.head.Values("Set-Cookie"))
		}
	}
}

// A form that cannot be read is not a wrong token: it is said what it is, and
// no attempt is used up.
func TestSignInFormsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 20 {
		a := r.do(call{method: "POST", path: "/login", body: "token=" + strings.Repeat("a", maxForm), head: merged(form, asPage())})
		wantPage(t, "huge", a, 413)
		a = r.do(call{method: "POST", path: "/login", body: "token=%zz", head: merged(form, asPage())})
		wantPage(t, "malformed", a, 400)
		a = r.do(call{method: "POST", path: "/login", body: "--x\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\ncut off", head: merged(asPage(), map[string]string{"Content-Type": "multipart/form-data; boundary=x"})})
		wantPage(t, "malformed multipart", a, 400)
	}
	if a := r.do(call{method: "POST", path: "/login", body: "token=" + r.keys.SignInSecret(), head: form}); a.status != http.StatusSeeOther {
		t.Errorf("got %s, want 303", a)
	}
}

// After signing in one goes on where one wanted to go, and never to another
// site, however that is written.
func TestNextStaysHere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for next, want := range map[string]string{
		"":                         "/",
		"/":                        "/",
		"/n/abc":                   "/n/abc",
		"/n/abc?x=1#y":             "/n/abc?x=1#y",
		"/docs/api":                "/docs/api",
		"/n/a%2Fb":                 "/n/a%2Fb",
		"n/abc":                    "/",
		"//evil.example":           "/",
		"///evil.example":          "/",
		`/\evil.example`:           "/",
		`\\evil.example`:           "/",
		`\/evil.example`:           "/",
		"/\t/evil.example":         "/",
		"/\n/evil.example":         "/",
		"\t//evil.example":         "/",
		" //evil.example":          "/",
		"https:evil.example":       "/",
		"https://evil.example":     "/",
		"https:/evil.example":      "/",
		"HTTPS://evil.example/":    "/",
		"http:///evil.example":     "/",
		"javascript:alert(1)":      "/",
		"JaVaScRiPt:alert(1)":      "/",
		"data:text/html,x":         "/",
		"//evil.example/%2f..":     "/",
		"/%zz":                     "/",
		"/\r\nSet-Cookie: a=b":     "/",
		"/\x00":                    "/",
		"/\u2028x\x7f":             "/",
		"@evil.example":            "/",
		":80":                      "/",
		"?next=//evil.example":     "/",
		"//user@evil.example":      "/",
		"//[::1]":                  "/",
		"/login":                   "/", // or it would go round in circles
		"/login?token=x":           "/",
		"%2F%2Fevil.example":       "/",
		"%5Cevil.example":          "/",
		"/%2Fevil.example":         "/%2Fevil.example", // a path of ours that is none
		"/%5Cevil.example":         "/%5Cevil.example",
		"/..//evil.example":        "/..//evil.example", // dots never leave the host
		"/.//evil.example":         "/.//evil.example",
		"/x//evil.example":         "/x//evil.example",
		strings.Repeat("/a", 2000): "/",
	} {
		q := url.QueryEscape(next)
		ways := map[string]call{
			"link":      {method: "GET", path: "/login?token=" + r.keys.SignInSecret() + "&next=" + q},
			"form":      {method: "POST", path: "/login", body: "token=" + r.keys.SignInSecret() + "&next=" + q, head: form},
			"signed in": {method: "GET", path: "/login?next=" + q, as: r.owner()},
		}
		for way, c := range ways {
			a := r.do(c)
			if got := a.head.Get("Location"); a.status != http.StatusSeeOther || got != want {
				t.Errorf("%s to %q: got %d to %q, want 303 to %q", way, cutRunes(next, 50), a.status, cutRunes(got, 50), want)
				continue
			}
			// What a browser makes of it: its host must be ours.
			here, _ := url.Parse(r.origin + "/login")
			to, err := here.Parse(browserForm(a.head.Get("Location")))
			if err != nil || to.Host != here.Host || to.Scheme != here.Scheme {
				t.Errorf("%s to %q leads to %v (%v), want %s", way, next, to, err, here.Host)
			}
		}
		page := r.do(call{method: "GET", path: "/login?next=" + q})
		if m := nextField.FindStringSubmatch(page.body); m == nil || (want == "/" && m[1] != "/") {
			t.Errorf("the form for %q has %q, want %q", cutRunes(next, 50), m, want)
		}
	}
}

var nextField = regexp.MustCompile(`name="next" value="([^"]*)"`)

// browserForm does to a redirect what browsers do before they parse it.
func browserForm(s string) string {
	s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
	s = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, s)
	return strings.ReplaceAll(s, `\`, "/")
}

// Many wrong tokens from one address have to wait, and are told how long; the
// right one has to wait as well, or guessing would go on.
func TestManyWrongTokensHaveToWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	wrong := 0
	var last answer
	for range 50 {
		last = r.do(call{method: "POST", path: "/login", body: "token=guess", head: form})
		if last.status != http.StatusUnauthorized {
			break
		}
		wrong++
	}
	wantPage(t, "after many", last, 429)
	if wrong < 3 || wrong > 20 {
		t.Errorf("%d guesses were answered, want some and not many", wrong)
	}
	seconds, err := strconv.Atoi(last.head.Get("Retry-After"))
	if err != nil || seconds < 1 || seconds > 3600 {
		t.Errorf("Retry-After is %q, want the seconds to wait", last.head.Get("Retry-After"))
	}
	if !strings.Contains(last.body, "Wait a minute and try again.") {
		t.Errorf("the page does not say when to try again: %s", last)
	}
	// The wrong ones may be somebody else's behind the same address.
	for name, c := range map[string]call{
		"form":                      {method: "POST", path: "/login", body: "token=" + r.keys.SignInSecret(), head: form},
		"link":                      {method: "GET", path: "/login?token=" + r.keys.SignInSecret()},
		"said to be from elsewhere": {method: "GET", path: "/login?token=" + r.keys.SignInSecret(), head: map[string]string{"X-Forwarded-For": "10.1.1.1", "X-Real-Ip": "10.1.1.1", "Forwarded": "for=10.1.1.1"}},
	} {
		a := r.do(c)
		if a.status != http.StatusSeeOther || len(a.head.Values("Set-Cookie")) != 1 {
			t.Errorf("%s: got %s, want the right secret to be let in", name, a)
		}
	}
	if a := r.do(call{method: "GET", path: "/api/v1/status", as: r.owner()}); a.status != http.StatusOK {
		t.Errorf("whoever is in gets %s, want 200", a)
	}
}

// A page that loads the sign-in address as a picture or a frame does not use up
// the attempts, so no site can keep people out.
func TestOtherSitesCannotUseUpTheAttempts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, dest := range []string{"image", "iframe", "frame", "script", "empty", "object", "style"} {
		for range 5 {
			a := r.do(call{method: "GET", path: "/login?token=guess", head: map[string]string{"Sec-Fetch-Dest": dest, "Sec-Fetch-Site": "cross-site"}})
			if a.status != http.StatusOK || len(a.head.Values("Set-Cookie")) > 0 {
				t.Errorf("as %s: got %s, want the page that asks for the token", dest, a)
			}
		}
		a := r.do(call{method: "POST", path: "/login", body: "token=guess", head: merged(form, map[string]string{"Origin": "https://evil.example"})})
		if a.status != http.StatusForbidden {
			t.Errorf("a form of another site: got %s, want 403", a)
		}
	}
	if a := r.do(call{method: "GET", path: "/login?token=" + r.keys.SignInSecret()}); a.status != http.StatusSeeOther {
		t.Errorf("got %s, want 303", a)
	}
}

// Signing out makes the cookie worthless wherever it was copied to, closes its
// sockets, and leaves other cookies alone.
func TestSigningOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N")
	signIn := func() credential {
		return r.withCookie(cookieOf(t, r.do(call{method: "GET", path: "/login?token=" + r.keys.SignInSecret()})).Value)
	}
	mine, other := signIn(), signIn()
	ws, err := r.dial(id, mine)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := r.dial(id, other)
	if err != nil {
		t.Fatal(err)
	}
	a := r.do(call{method: "POST", path: "/logout", as: mine})
	if a.status != http.StatusSeeOther || a.head.Get("Location") != "/login" {
		t.Errorf("got %s to %q, want 303 to /login", a, a.head.Get("Location"))
	}
	if code := r.closed(ws); code != live.StatusExpired {
		t.Errorf("the socket was closed with %d, want %d", code, live.StatusExpired)
	}
	wantProblem(t, "the cookie after", r.do(call{method: "GET", path: "/api/v1/status", as: mine}), 401, "unauthenticated")
	wantProblem(t, "a socket after", r.do(call{method: "GET", path: "/api/v1/notebooks/" + string(id) + "/live", as: mine, head: upgrade(r.origin)}), 401, "unauthenticated")
	if a := r.do(call{method: "GET", path: "/login", as: mine}); a.status != http.StatusOK {
		t.Errorf("the sign-in page after: got %s, want 200", a)
	}
	if a := r.do(call{method: "POST", path: "/logout", as: mine}); a.status != http.StatusSeeOther {
		t.Errorf("signing out again: got %s, want 303", a)
	}
	if a := r.do(call{method: "GET", path: "/api/v1/status", as: other}); a.status != http.StatusOK {
		t.Errorf("the other cookie: got %s, want 200", a)
	}
	if err := r.alive(kept); err != nil {
		t.Errorf("the other socket: %v, want it open", err)
	}
}

// Another site cannot sign anybody out: neither with the cookie, which browsers
// send along from a page of the same host, nor without, for the answer alone
// would take it away.
func TestOtherSitesSignNobodyOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for from, o := range r.origins() {
		if o.good {
			continue
		}
		owner := r.owner()
		for kind, as := range map[string]credential{"with the cookie": owner, "without": nil} {
			a := r.do(call{method: "POST", path: "/logout", as: as, head: o.head})
			if a.status != http.StatusForbidden || len(a.head.Values("Set-Cookie")) > 0 {
				t.Errorf("%s, %s: got %s with cookies %q, want 403 and none", from, kind, a, a.head.Values("Set-Cookie"))
			}
		}
		if a := r.do(call{method: "GET", path: "/api/v1/status", as: owner}); a.status != http.StatusOK {
			t.Errorf("%s: the cookie afterwards gets %s, want 200", from, a)
		}
	}
}

// A token that is revoked is worthless at once, and its sockets are closed.
func TestRevokingAToken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("N")
	var made struct{ ID, Token string }
	a := r.do(call{method: "POST", path: "/api/v1/tokens", body: `{"name":"bot","scopes":["read"],"notebook":"` + string(id) + `"}`, as: r.owner()})
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || a.status != http.StatusCreated {
		t.Fatalf("got %s, want a token", a)
	}
	bot := withBearer(made.Token)
	ws, err := r.dial(id, bot)
	if err != nil {
		t.Fatal(err)
	}
	if a := r.do(call{method: "DELETE", path: "/api/v1/tokens/" + made.ID, as: r.owner()}); a.status != http.StatusNoContent {
		t.Errorf("got %s, want 204", a)
	}
	if code := r.closed(ws); code != live.StatusExpired {
		t.Errorf("the socket was closed with %d, want %d", code, live.StatusExpired)
	}
	wantProblem(t, "afterwards", r.do(call{method: "GET", path: "/api/v1/notebooks/" + string(id), as: bot}), 401, "unauthenticated")
	if a := r.do(call{method: "DELETE", path: "/api/v1/tokens/" + made.ID, as: r.owner()}); a.status != http.StatusNoContent {
		t.Errorf("revoking again: got %s, want 204", a)
	}
}

// A socket does not outlive its credential.
func TestASocketEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ws, err := r.dial(r.notebook("N"), withBearer(mint(t, r.keys, agentClaims(notebook.ScopeRead), 2*time.Second, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if code := r.closed(ws); code != live.StatusExpired {
		t.Errorf("the socket was closed with %d, want %d", code, live.StatusExpired)
	}
}
