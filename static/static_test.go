package static

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func gz(t *testing.T, s string) []byte {
	t.Helper()
	var b strings.Builder
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return []byte(b.String())
}

func sample(t *testing.T) *Assets {
	t.Helper()
	a, err := open(fstest.MapFS{
		"manifest.json":     {Data: []byte(`{"files":{"app.css":"app-AB.css"},"etags":{"app-AB.css":"tag","x-CD.js":"t2"}}`)},
		"app-AB.css":        {Data: []byte("body{}")},
		"app-AB.css.gz":     {Data: gz(t, "body{}")},
		"app-AB.css.br":     {Data: []byte("brotli")},
		"x-CD.js":           {Data: []byte("1")},
		"secret.txt":        {Data: []byte("no")},
		"frame/plotly.js":   {Data: []byte("p")},
		"frame/plotly.js.x": {Data: []byte("p")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestServe(t *testing.T) {
	t.Parallel()
	a := sample(t)
	for _, c := range []struct {
		method, path, accept, match string
		status                      int
		encoding, body              string
	}{
		{"GET", "/static/app-AB.css", "", "", 200, "", "body{}"},
		{"GET", "/static/app-AB.css", "gzip, br", "", 200, "br", "brotli"},
		{"GET", "/static/app-AB.css", "br;q=0, gzip", "", 200, "gzip", string(gz(t, "body{}"))},
		{"GET", "/static/app-AB.css", "br", `"tag"`, 304, "", ""},
		{"HEAD", "/static/app-AB.css", "", "", 200, "", ""},
		{"GET", "/static/x-CD.js", "br", "", 200, "", "1"},
		{"POST", "/static/x-CD.js", "", "", 404, "", "404 page not found\n"},
		{"GET", "/static/secret.txt", "", "", 404, "", "404 page not found\n"},
		{"GET", "/static/app-AB.css.gz", "", "", 404, "", "404 page not found\n"},
		{"GET", "/static/manifest.json", "", "", 404, "", "404 page not found\n"},
		{"GET", "/static/../static.go", "", "", 404, "", "404 page not found\n"},
		{"GET", "/static/", "", "", 404, "", "404 page not found\n"},
	} {
		r := httptest.NewRequest(c.method, "http://x"+c.path, nil)
		r.Header.Set("Accept-Encoding", c.accept)
		r.Header.Set("If-None-Match", c.match)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code != c.status || w.Header().Get("Content-Encoding") != c.encoding || w.Body.String() != c.body {
			t.Errorf("%s %s (%s): got %d %q %q", c.method, c.path, c.accept, w.Code, w.Header().Get("Content-Encoding"), w.Body)
		}
		if w.Code == http.StatusOK && !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s is not kept for good", c.path)
		}
	}
	if got := a.URL("app.css"); got != "/static/app-AB.css" {
		t.Errorf("URL: got %q", got)
	}
	if got := a.URL("nothing"); got != "" {
		t.Errorf("URL of nothing: got %q", got)
	}
	if f, err := a.Frame().Open("plotly.js"); err != nil {
		t.Errorf("the frame's library: %v", err)
	} else if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestNotBuilt(t *testing.T) {
	t.Parallel()
	if _, err := open(fstest.MapFS{".keep": {}}); !errors.Is(err, ErrNotBuilt) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v", err)
	}
}
