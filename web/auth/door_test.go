package auth

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sandbook/kernel/notebook"
)

func TestSignIn(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	d := NewDoor(k, 8888, false)
	c, err := d.SignIn("127.0.0.1:5000", k.SignInSecret(), t0)
	if err != nil {
		t.Fatal(err)
	}
	header := c.String()
	for _, part := range []string{"sandbook-8888=", "Path=/", "HttpOnly", "SameSite=Lax", "Max-Age=2592000"} {
		if !strings.Contains(header, part) {
			t.Errorf("the cookie lacks %s: %s", part, header)
		}
	}
	if strings.Contains(header, "Domain") || strings.Contains(header, "Secure") || strings.Contains(header, k.SignInSecret()) {
		t.Errorf("the cookie is %s", header)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.AddCookie(c)
	got, via, err := d.Who(r, t0.Add(time.Hour))
	if err != nil || via != ViaCookie || got.Actor.Kind != notebook.Person || !got.Actor.May(notebook.ScopeReview) {
		t.Errorf("got %+v via %d: %v", got, via, err)
	}
	https := NewDoor(k, 443, true)
	c, err = https.SignIn("127.0.0.1:5000", k.SignInSecret(), t0)
	if err != nil || !c.Secure || c.Name != "__Host-sandbook-443" {
		t.Errorf("over https the cookie is %v, %v", c, err)
	}
	if out := d.SignOut(); out.MaxAge >= 0 || out.Value != "" || out.Name != "sandbook-8888" {
		t.Errorf("signing out sets %v", out)
	}
}

func TestWrongSecretsAreLimited(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	d := NewDoor(k, 8888, false)
	for i, s := range []string{"", "x", k.SignInSecret() + "x", k.SignInSecret()[1:], strings.ToUpper(k.SignInSecret()), " " + k.SignInSecret(), "a", "b", "c", "d"} {
		if _, err := d.SignIn(fmt.Sprintf("192.0.2.1:%d", i), s, t0); !errors.Is(err, ErrUnauthenticated) {
			t.Fatalf("attempt %d: %v", i, err)
		}
	}
	_, err := d.SignIn("192.0.2.1:99", "e", t0)
	var many *TooManyError
	if !errors.As(err, &many) || !errors.Is(err, ErrTooMany) || many.RetryAfter <= 0 || many.RetryAfter > attemptEvery {
		t.Errorf("after ten failures: %v", err)
	}
	if _, err := d.SignIn("192.0.2.2:1", "e", t0); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("another address: %v", err)
	}
	if _, err := d.SignIn("192.0.2.1:99", "e", t0.Add(attemptEvery)); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("after waiting: %v", err)
	}
	if _, err := d.SignIn("192.0.2.1:99", k.SignInSecret(), t0); err != nil {
		t.Errorf("the right secret, after ten failures of others: %v", err)
	}
}

func TestLimiterIsBounded(t *testing.T) {
	t.Parallel()
	var l limiter
	for i := range 3 * maxAttemptees {
		l.failed(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), t0)
	}
	if len(l.counts) != maxAttemptees {
		t.Errorf("%d addresses, want %d", len(l.counts), maxAttemptees)
	}
	if l.wait("172.16.0.1:1", t0) == 0 {
		t.Error("addresses beyond the bound are not limited")
	}
	later := t0.Add(time.Minute)
	l.failed("172.16.0.1:1", later)
	if len(l.counts) != 1 {
		t.Errorf("%d addresses after a minute, want 1", len(l.counts))
	}
	for _, same := range [][2]string{{"[2001:db8::1]:1", "[2001:db8::2]:9"}, {"[::ffff:192.0.2.1]:1", "192.0.2.1:2"}, {"nonsense", "@"}} {
		if address(same[0]) != address(same[1]) {
			t.Errorf("%s and %s count apart", same[0], same[1])
		}
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	d := NewDoor(k, 8888, false)
	page := person()
	page.Audience = AudiencePage
	cookie, api := mint(t, k, page, time.Hour), mint(t, k, agent(notebook.ScopeRead), time.Hour)
	for name, c := range map[string]struct {
		cookies []string
		auth    []string
		query   string
		via     Via
	}{
		"cookie":             {cookies: []string{"sandbook-8888=" + cookie}, via: ViaCookie},
		"bearer":             {auth: []string{"Bearer " + api}, via: ViaBearer},
		"bearer, lower case": {auth: []string{"bearer " + api}, via: ViaBearer},
		"other cookie":       {cookies: []string{"sandbook-9999=" + cookie}},
		"two cookies":        {cookies: []string{"sandbook-8888=" + cookie, "sandbook-8888=" + cookie}},
		"both":               {cookies: []string{"sandbook-8888=" + cookie}, auth: []string{"Bearer " + api}},
		"both, one bad":      {cookies: []string{"sandbook-8888=x"}, auth: []string{"Bearer " + api}},
		"two bearers":        {auth: []string{"Bearer " + api, "Bearer " + api}},
		"bearer list":        {auth: []string{"Bearer " + api + ", Bearer " + api}},
		"API in cookie":      {cookies: []string{"sandbook-8888=" + api}},
		"cookie as bearer":   {auth: []string{"Bearer " + cookie}},
		"basic":              {auth: []string{"Basic " + api}},
		"token scheme":       {auth: []string{"token " + api}},
		"empty bearer":       {auth: []string{"Bearer "}},
		"bare":               {auth: []string{api}},
		"query":              {query: "?token=" + api + "&access_token=" + api},
		"nothing":            {},
		"secret as bearer":   {auth: []string{"Bearer " + k.SignInSecret()}},
	} {
		r := httptest.NewRequest("GET", "/"+c.query, nil)
		for _, v := range c.cookies {
			r.Header.Add("Cookie", v)
		}
		for _, v := range c.auth {
			r.Header.Add("Authorization", v)
		}
		_, via, err := d.Who(r, t0)
		if c.via != 0 && (err != nil || via != c.via) || c.via == 0 && !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: via %d, %v", name, via, err)
		}
	}
}

// TestTickets is row W17.
func TestTickets(t *testing.T) {
	t.Parallel()
	var ts Tickets
	c := person()
	c.Expires = t0.Add(time.Hour)
	issue := func() string {
		s, err := ts.Issue(c, "n1", "https://a.example", t0)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one := issue()
	var wg sync.WaitGroup
	var won atomic.Int32
	for range 10 {
		wg.Go(func() {
			if got, err := ts.Redeem(one, "n1", "https://a.example", t0); err == nil && got.Actor.ID == "ann" {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("redeemed %d times, want once", won.Load())
	}
	for name, f := range map[string]func(string) error{
		"late": func(s string) error {
			_, err := ts.Redeem(s, "n1", "https://a.example", t0.Add(ticketLife))
			return err
		},
		"other notebook": func(s string) error { _, err := ts.Redeem(s, "n2", "https://a.example", t0); return err },
		"other origin":   func(s string) error { _, err := ts.Redeem(s, "n1", "https://b.example", t0); return err },
		"no origin":      func(s string) error { _, err := ts.Redeem(s, "n1", "", t0); return err },
		"other text":     func(s string) error { _, err := ts.Redeem(s[1:]+"A", "n1", "https://a.example", t0); return err },
		"too long":       func(s string) error { _, err := ts.Redeem(s+"A", "n1", "https://a.example", t0); return err },
		"claims ran out": func(string) error { return redeemExpired(&ts) },
		"used by failing": func(s string) error {
			_, _ = ts.Redeem(s, "n2", "", t0)
			_, err := ts.Redeem(s, "n1", "https://a.example", t0)
			return err
		},
	} {
		if err := f(issue()); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func redeemExpired(ts *Tickets) error {
	c := person()
	c.Expires = t0.Add(time.Second)
	s, err := ts.Issue(c, "n1", "", t0)
	if err != nil {
		return err
	}
	_, err = ts.Redeem(s, "n1", "", t0.Add(time.Second))
	return err
}

func TestTicketsAreBounded(t *testing.T) {
	t.Parallel()
	var ts Tickets
	c := person()
	c.Expires = t0.Add(time.Hour)
	for range ticketsPerActor {
		if _, err := ts.Issue(c, "n1", "", t0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ts.Issue(c, "n1", "", t0); !errors.Is(err, ErrTooMany) {
		t.Errorf("one actor without bound: %v", err)
	}
	if _, err := ts.Issue(c, "n1", "", t0.Add(ticketLife)); err != nil {
		t.Errorf("after the old ones expired: %v", err)
	}
	for i := range maxTickets {
		c.Actor.ID = fmt.Sprint("p", i)
		_, _ = ts.Issue(c, "n1", "", t0.Add(ticketLife))
	}
	if n := len(ts.open); n > maxTickets {
		t.Errorf("%d tickets", n)
	}
}

func TestTicketOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines []string
		want  string
		bad   bool
	}{
		"none": {[]string{"sandbook.v1"}, "", false}, "one": {[]string{"sandbook.v1, sandbook.ticket.abc"}, "abc", false},
		"own line": {[]string{"sandbook.v1", "sandbook.ticket.abc"}, "abc", false}, "two": {[]string{"sandbook.ticket.a,sandbook.ticket.b"}, "", true},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		for _, l := range c.lines {
			r.Header.Add("Sec-WebSocket-Protocol", l)
		}
		got, has, err := TicketOf(r)
		if got != c.want || has != (c.want != "") || (err != nil) != c.bad {
			t.Errorf("%s: %q %v %v", name, got, has, err)
		}
	}
}

// TestOrigins is rows W18 to W20 and W48.
func TestOrigins(t *testing.T) {
	t.Parallel()
	site, err := NewSite([]string{"https://good.example", "http://lan.example:8080"}, true)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		host    string
		origin  []string
		fetch   string
		method  string
		via     Via
		socket  bool
		allowed bool
	}
	for name, c := range map[string]row{
		"same":                 {host: "good.example", origin: []string{"https://good.example"}, allowed: true},
		"default port":         {host: "good.example:443", origin: []string{"https://good.example"}, allowed: true},
		"loopback":             {host: "127.0.0.1:8888", origin: []string{"http://127.0.0.1:8888"}, allowed: true},
		"localhost":            {host: "localhost:9999", origin: []string{"http://localhost:9999"}, allowed: true},
		"IPv6":                 {host: "[::1]:8888", origin: []string{"http://[::1]:8888"}, allowed: true},
		"host in capitals":     {host: "GOOD.example", origin: []string{"https://good.example"}, allowed: true},
		"evil":                 {host: "good.example", origin: []string{"https://evil.example"}},
		"null":                 {host: "good.example", origin: []string{"null"}},
		"empty origin":         {host: "good.example", origin: []string{""}},
		"suffix":               {host: "good.example", origin: []string{"https://good.example.evil.com"}},
		"prefix":               {host: "good.example", origin: []string{"https://evilgood.example"}},
		"dot":                  {host: "good.example", origin: []string{"https://goodXexample"}},
		"other port":           {host: "good.example", origin: []string{"https://good.example:8443"}},
		"port spelled out":     {host: "good.example", origin: []string{"https://good.example:443"}},
		"other scheme":         {host: "good.example", origin: []string{"http://good.example"}},
		"capitals":             {host: "good.example", origin: []string{"https://Good.example"}},
		"userinfo":             {host: "good.example", origin: []string{"https://good.example@evil.example"}},
		"path":                 {host: "good.example", origin: []string{"https://good.example/"}},
		"two origins":          {host: "good.example", origin: []string{"https://good.example", "https://good.example"}},
		"list":                 {host: "good.example", origin: []string{"https://good.example https://evil.example"}},
		"other local port":     {host: "127.0.0.1:8888", origin: []string{"http://127.0.0.1:8889"}},
		"localhost, other":     {host: "localhost:8888", origin: []string{"http://127.0.0.1:8888"}},
		"https loopback":       {host: "127.0.0.1:8888", origin: []string{"https://127.0.0.1:8888"}},
		"rebinding":            {host: "evil.example:8888", origin: []string{"http://evil.example:8888"}},
		"rebinding, localhost": {host: "localhost.evil.example:8888", origin: []string{"http://localhost.evil.example:8888"}},
		"no host":              {host: "", origin: []string{"https://good.example"}},
		"host with path":       {host: "good.example/x", origin: []string{"https://good.example"}},
		"host with user":       {host: "x@good.example", origin: []string{"https://good.example"}},
		"odd port":             {host: "good.example:80a", origin: []string{"https://good.example"}},
		"wrong port":           {host: "good.example:8888", origin: []string{"https://good.example"}},
		"private address":      {host: "192.168.0.1:8888", origin: []string{"http://192.168.0.1:8888"}},
		"zero address":         {host: "0.0.0.0:8888", origin: []string{"http://0.0.0.0:8888"}},
		"decimal address":      {host: "2130706433:8888", origin: []string{"http://2130706433:8888"}},
		"cross-site":           {host: "good.example", origin: []string{"https://good.example"}, fetch: "cross-site"},
		"same-site":            {host: "good.example", origin: []string{"https://good.example"}, fetch: "same-site"},
		"same-origin":          {host: "good.example", fetch: "same-origin", allowed: true},
		"cookie, silent":       {host: "good.example"},
		"bearer, silent":       {host: "good.example", via: ViaBearer, allowed: true},
		"bearer, foreign":      {host: "good.example", via: ViaBearer, origin: []string{"https://evil.example"}},
		"bearer, cross-site":   {host: "good.example", via: ViaBearer, fetch: "cross-site"},
		"reading":              {host: "good.example", method: "GET", fetch: "cross-site", allowed: true},
		"reading, rebinding":   {host: "evil.example", method: "GET"},
		"odd method":           {host: "good.example", method: "get", fetch: "cross-site"},
		"delete":               {host: "good.example", method: "DELETE"},
		"socket":               {host: "good.example", socket: true, origin: []string{"https://good.example"}, allowed: true},
		"socket, silent":       {host: "good.example", socket: true},
		"socket, ticket":       {host: "good.example", socket: true, via: ViaTicket},
		"socket, bearer":       {host: "good.example", socket: true, via: ViaBearer, allowed: true},
		"socket, evil":         {host: "good.example", socket: true, via: ViaBearer, origin: []string{"https://evil.example"}},
		"socket, frame":        {host: "127.0.0.1:8888", socket: true, origin: []string{"null"}},
		"socket, rebinding":    {host: "evil.example", socket: true, via: ViaBearer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			method := c.method
			if method == "" {
				method = "POST"
			}
			via := c.via
			if via == 0 {
				via = ViaCookie
			}
			r := &http.Request{Method: method, Host: c.host, Header: http.Header{
				"X-Forwarded-Host": {"good.example"}, "X-Forwarded-Proto": {"https"}, "Forwarded": {"host=good.example"},
			}}
			for _, o := range c.origin {
				r.Header.Add("Origin", o)
			}
			if c.fetch != "" {
				r.Header.Set("Sec-Fetch-Site", c.fetch)
			}
			check := site.CheckMutation
			if c.socket {
				check = site.CheckSocket
			}
			err := check(r, via)
			if c.allowed && err != nil || !c.allowed && !errors.Is(err, ErrOrigin) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestWithoutLoopbackItsNamesAreForeign(t *testing.T) {
	t.Parallel()
	site, err := NewSite([]string{"https://good.example"}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost:8888", "127.0.0.1", "[::1]"} {
		if _, err := site.Addressed(&http.Request{Host: host}); !errors.Is(err, ErrOrigin) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if o, err := site.Addressed(&http.Request{Host: "good.example:443"}); err != nil || o != "https://good.example" {
		t.Errorf("got %s, %v", o, err)
	}
}

func TestPublicOriginsMustBeOrigins(t *testing.T) {
	t.Parallel()
	for _, o := range []string{"", "*", "good.example", "https://*", "https://*.example", "https://a.example/", "https://a.example;x", "ftp://a.example", "https://u@a.example", "https://a.example?x", "https://a.example\nb", "HTTPS://a.example"} {
		if _, err := NewSite([]string{o}, false); !errors.Is(err, ErrOrigin) {
			t.Errorf("%q: %v", o, err)
		}
	}
	if _, err := NewSite([]string{"https://a.example", "http://a.example"}, false); !errors.Is(err, ErrOrigin) {
		t.Errorf("both schemes: %v", err)
	}
}
