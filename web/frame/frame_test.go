package frame

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
)

func addressed(r *http.Request) (string, error) {
	if r.Host != "127.0.0.1:8889" {
		return "", errors.New("foreign")
	}
	return "http://127.0.0.1:8889", nil
}

func newFrame(t *testing.T) http.Handler {
	t.Helper()
	h, err := New(Options{
		AppOrigins: []string{"http://127.0.0.1:8888", "http://localhost:8888"},
		Addressed:  addressed,
		Assets:     fstest.MapFS{"plotly.min.js": {Data: []byte("plot()")}, "secret.js": {Data: []byte("x")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func get(h http.Handler, method, host, target string, head map[string]string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://x/", nil)
	r.URL.Path, r.Host = target, host
	for k, v := range head {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHeadersOnEveryStatus(t *testing.T) {
	t.Parallel()
	h := newFrame(t)
	const ours = "127.0.0.1:8889"
	for name, c := range map[string]struct {
		method, host, path string
		head               map[string]string
		status             int
	}{
		"page":             {"GET", ours, "/v1", nil, 200},
		"page, head":       {"HEAD", ours, "/v1", nil, 200},
		"page, range":      {"GET", ours, "/v1", map[string]string{"Range": "bytes=0-3"}, 206},
		"page, bad range":  {"GET", ours, "/v1", map[string]string{"Range": "bytes=999999-"}, 416},
		"asset":            {"GET", ours, "/v1/assets/plotly.min.js", nil, 200},
		"asset missing":    {"GET", ours, "/v1/assets/vega.min.js", nil, 404},
		"asset not listed": {"GET", ours, "/v1/assets/secret.js", nil, 404},
		"asset folder":     {"GET", ours, "/v1/assets/", nil, 404},
		"asset up":         {"GET", ours, "/v1/assets/../assets/plotly.min.js", nil, 404},
		"asset, backslash": {"GET", ours, `/v1/assets/..\plotly.min.js`, nil, 404},
		"root":             {"GET", ours, "/", nil, 404},
		"slash":            {"GET", ours, "/v1/", nil, 404},
		"application":      {"GET", ours, "/api/v1/notebooks", nil, 404},
		"metrics":          {"GET", ours, "/metrics", nil, 404},
		"worker":           {"GET", ours, "/sw.js", map[string]string{"Service-Worker": "script"}, 404},
		"post":             {"POST", ours, "/v1", nil, 405},
		"options":          {"OPTIONS", ours, "/v1", nil, 405},
		"foreign host":     {"GET", "evil.example:8889", "/v1", nil, 421},
		"no host":          {"GET", "", "/v1", nil, 421},
		"foreign post":     {"POST", "evil.example", "/v1", nil, 421},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := get(h, c.method, c.host, c.path, c.head)
			if w.Code != c.status {
				t.Fatalf("status %d, want %d", w.Code, c.status)
			}
			head := w.Result().Header
			csp := head.Get("Content-Security-Policy")
			for _, want := range []string{"sandbox", "default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors http://127.0.0.1:8888 http://localhost:8888"} {
				if !strings.Contains(csp, want) {
					t.Errorf("the policy lacks %s: %s", want, csp)
				}
			}
			if strings.Contains(csp, "allow-same-origin") || strings.Contains(csp, "allow-top-navigation") || strings.Contains(csp, "*") {
				t.Errorf("the policy gives too much: %s", csp)
			}
			for k, v := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Dns-Prefetch-Control": "off"} {
				if head.Get(k) != v {
					t.Errorf("%s is %q", k, head.Get(k))
				}
			}
			if head.Get("Content-Type") == "" || head.Get("Permissions-Policy") == "" {
				t.Error("no content type or permissions")
			}
			for _, never := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Service-Worker-Allowed", "X-Frame-Options"} {
				if head.Get(never) != "" {
					t.Errorf("%s is set", never)
				}
			}
		})
	}
}

func TestPagePolicy(t *testing.T) {
	t.Parallel()
	w := get(newFrame(t), "GET", "127.0.0.1:8889", "/v1", nil)
	want := "sandbox allow-scripts allow-downloads; default-src 'none'; " +
		"script-src 'unsafe-inline' 'unsafe-eval' http://127.0.0.1:8889/v1/assets/; style-src 'unsafe-inline'; img-src data: blob:; " +
		"media-src data: blob:; font-src data:; connect-src 'none'; frame-src 'none'; worker-src 'none'; webrtc 'block'; require-trusted-types-for 'script'; trusted-types default frame; form-action 'none'; base-uri 'none'; " +
		"frame-ancestors http://127.0.0.1:8888 http://localhost:8888"
	if got := w.Header().Get("Content-Security-Policy"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	body := w.Body.String()
	for _, want := range []string{`"origins":["http://127.0.0.1:8888","http://localhost:8888"]`, `"assets":["plotly.min.js"]`, "e.source !== parent", "config.origins.includes(e.origin)"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(body, "%CONFIG%") || strings.Contains(body, "%SCRIPT%") || strings.Count(body, "</script>") != 2 {
		t.Error("the page is put together wrongly")
	}
	if strings.Contains(strings.ToLower(body), "document.cookie") || strings.Contains(body, "localStorage") {
		t.Error("the page looks at storage")
	}
}

func TestNothingOfARequestIsRepeated(t *testing.T) {
	t.Parallel()
	h := newFrame(t)
	for _, path := range []string{"/canary-1234", "/v1/assets/canary-1234"} {
		w := get(h, "GET", "127.0.0.1:8889", path, map[string]string{"Cookie": "a=canary-1234", "Referer": "http://canary-1234/"})
		if strings.Contains(w.Body.String(), "canary-1234") {
			t.Errorf("%s is repeated", path)
		}
	}
	a := get(h, "GET", "127.0.0.1:8889", "/v1", nil).Body.String()
	b := get(h, "GET", "127.0.0.1:8889", "/v1", map[string]string{"Cookie": "a=b", "Origin": "https://evil.example"}).Body.String()
	if a != b {
		t.Error("the page depends on the request")
	}
}

func TestAssetsAreCached(t *testing.T) {
	t.Parallel()
	h := newFrame(t)
	w := get(h, "GET", "127.0.0.1:8889", "/v1/assets/plotly.min.js", nil)
	if w.Body.String() != "plot()" || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/javascript") {
		t.Errorf("got %q as %s", w.Body, w.Header().Get("Content-Type"))
	}
	again := get(h, "GET", "127.0.0.1:8889", "/v1/assets/plotly.min.js", map[string]string{"If-None-Match": w.Header().Get("ETag")})
	if again.Code != http.StatusNotModified || again.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got %d", again.Code)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	good := []string{"https://a.example"}
	for name, o := range map[string]Options{
		"no host check": {AppOrigins: good}, "no origin": {Addressed: addressed},
		"star": {Addressed: addressed, AppOrigins: []string{"*"}}, "wildcard": {Addressed: addressed, AppOrigins: []string{"https://*.example"}},
		"semicolon": {Addressed: addressed, AppOrigins: []string{"https://a.example; script-src *"}}, "path": {Addressed: addressed, AppOrigins: []string{"https://a.example/x"}},
		"newline": {Addressed: addressed, AppOrigins: []string{"https://a.example\n"}}, "none": {Addressed: addressed, AppOrigins: []string{"'none'"}},
		"asset folder": {Addressed: addressed, AppOrigins: good, Assets: fstest.MapFS{"vega.min.js/x": {}}},
	} {
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Options{Addressed: addressed, AppOrigins: good}); err != nil {
		t.Errorf("without assets: %v", err)
	}
}

func TestScriptParses(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed, so the script is not parsed here; the browser journeys run it")
	}
	if out, err := exec.CommandContext(t.Context(), node, "--check", "frame.js").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(pageJS, "</script") || strings.Contains(pageJS, "<!--") {
		t.Error("the script cannot stand in a page")
	}
}
