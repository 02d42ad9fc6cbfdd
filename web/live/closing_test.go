package live_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sandbook/kernel/notebook"
	"sandbook/sessionstore"
	"sandbook/web/auth"
	"sandbook/web/live"
)

// A reader that falls too far behind is closed with 4408. The others go on, and
// it has lost nothing when it comes back.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	s := newServer(t, narrow)
	id := s.notebook()
	slow, other := s.dial(id, dialing{narrow: true}), s.dial(id, dialing{})
	slow.until("the state", func() bool { return slow.start != nil })
	const n = 500
	for i := range n {
		if i%20 == 10 { // so slowly that it is not taken for dead
			slow.until("one more event", func() bool { return len(slow.evs) > i/20 })
		}
		result(t, other.insert(fmt.Sprint(i, strings.Repeat(" ", 200))))
	}
	_ = slow.conn.SetReadBuffer(1 << 20) // now it reads as fast as it can
	slow.wantClosed(live.StatusSlow, "too slow: resume from the last seq")
	if got := len(slow.evs); got >= n {
		t.Errorf("the slow reader got all %d events before it was closed", got)
	}
	result(t, other.insert("the others go on"))
	other.reach(s.session(id).State().Seq)
	back := s.dial(id, dialing{query: fmt.Sprint("since=", slow.seq())})
	back.reach(other.seq())
	if !back.hello.Resumed {
		t.Error("it was not resumed")
	}
	sameEvents(t, "taken in all", append(slow.evs, back.evs...), other.evs)
}

// A token that runs out closes its sockets, and opens none.
func TestExpiredToken(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	short, _ := s.token(agent("short", allOf...), 2*time.Second)
	c, other := s.dial(id, dialing{token: short}), s.dial(id, dialing{})
	c.wantClosed(live.StatusExpired, "sign in again")
	s.wantNoEntry(id, dialing{token: short})
	result(t, other.insert("the others go on"))
}

// wantNoEntry opens a socket with a credential that is not good any more.
func (s *server) wantNoEntry(id notebook.ID, d dialing) {
	s.t.Helper()
	_, err := s.tryDial(id, d)
	if r, ok := errors.AsType[*refusal](err); !ok || r.status != http.StatusUnauthorized || r.Code != "unauthenticated" {
		s.t.Errorf("a socket with the old credential: %v, want 401 unauthenticated", err)
	}
}

// request makes an HTTP request, wants its status and returns its cookies.
func (s *server) request(method, path string, header http.Header, want int) []*http.Cookie {
	s.t.Helper()
	req, err := http.NewRequest(method, s.http.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header = header
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = res.Body.Close()
	client.CloseIdleConnections()
	if res.StatusCode != want {
		s.t.Fatalf("%s %s: %s, want %d", method, path, res.Status, want)
	}
	return res.Cookies()
}

// A token that is taken back closes all of its sockets, on every notebook, and
// no other's.
func TestRevokedToken(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ids := []notebook.ID{s.notebook(), s.notebook()}
	admin, _ := s.token(alice, time.Hour)
	gone, jti := s.token(agent("gone", allOf...), time.Hour)
	kept, _ := s.token(agent("gone", allOf...), time.Hour) // of the same agent
	if err := s.st.CreateToken(t.Context(), sessionstore.Token{ID: jti, Kind: notebook.Agent, Subject: "agent:gone", Name: "gone", Audience: string(auth.AudienceAPI)}); err != nil {
		t.Fatal(err)
	}
	var closing []*client
	for i := range 6 {
		closing = append(closing, s.dial(ids[i%2], dialing{token: gone}))
	}
	other := s.dial(ids[0], dialing{token: kept})
	for _, c := range append(closing, other) {
		result(t, c.insert("before"))
	}
	s.request("DELETE", "/api/v1/tokens/"+jti, http.Header{"Authorization": {"Bearer " + admin}}, http.StatusNoContent)
	for _, c := range closing {
		c.wantClosed(live.StatusExpired, "signed out")
	}
	s.wantNoEntry(ids[0], dialing{token: gone})
	result(t, other.insert("the others go on"))
}

// Who signs out in one tab is signed out in all of them.
func TestSignOut(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	login := func() http.Header {
		c := s.request("GET", "/login?token="+s.keys.SignInSecret(), nil, http.StatusSeeOther)[0]
		return http.Header{"Cookie": {c.Name + "=" + c.Value}, "Origin": {s.http.URL}}
	}
	ann, bea := login(), login()
	tabs := []*client{s.dial(id, dialing{header: ann}), s.dial(id, dialing{header: ann, query: "view=page"})}
	other := s.dial(id, dialing{header: bea})
	s.request("POST", "/logout", ann, http.StatusSeeOther)
	for _, c := range tabs {
		c.wantClosed(live.StatusExpired, "signed out")
	}
	s.wantNoEntry(id, dialing{header: ann})
	result(t, other.insert("the others go on"))
}

// One credential has at most 256 sockets; a closed one makes room.
func TestTooManySockets(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	token, _ := s.token(alice, time.Hour)
	var open []*client
	for range 256 {
		open = append(open, s.dial(id, dialing{token: token}))
	}
	_, err := s.tryDial(id, dialing{token: token})
	if want := "503 unavailable: This token or browser has 256 sockets open. Close one first."; err == nil || err.Error() != want {
		t.Errorf("one more: %v, want %s", err, want)
	}
	other, _ := s.token(alice, time.Hour)
	result(t, s.dial(id, dialing{token: other}).insert("another token goes on"))
	_ = open[0].ws.CloseNow()
	eventually(t, "room for one more", func() bool {
		_, err := s.tryDial(id, dialing{token: token})
		return err == nil
	})
}

// A notebook that is deleted keeps its sockets: that is an event like others.
func TestDeletedNotebook(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.notebook()
	c := s.dial(id, dialing{})
	last := result(t, c.op("notebook.delete", nil, "")).Last
	c.reach(last)
	if _, ok := c.evs[len(c.evs)-1].Body.(notebook.NotebookDeleted); !ok {
		t.Errorf("the last event is %T", c.evs[len(c.evs)-1].Body)
	}
	result(t, c.op("notebook.restore", nil, ""))
	result(t, c.insert("back"))
}

// The page on the API lists every code a socket is closed with.
func TestCodesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^\| (\d{4}) \|`).FindAllSubmatch(page, -1) {
		got = append(got, string(m[1]))
	}
	var want []string
	for _, c := range []websocket.StatusCode{
		websocket.StatusProtocolError, websocket.StatusPolicyViolation, websocket.StatusMessageTooBig, websocket.StatusInternalError,
		websocket.StatusServiceRestart, live.StatusExpired, live.StatusSlow,
	} {
		want = append(want, strconv.Itoa(int(c)))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has the codes %v, want %v", got, want)
	}
}
