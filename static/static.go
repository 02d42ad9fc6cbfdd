// Package static is the page's scripts and styles as the build left them in
// dist: hashed names, so that a browser may keep them for ever, each beside its
// compressed forms. It builds nothing (static/build does) and holds no page.
package static

import (
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed all:dist
var dist embed.FS

// ErrNotBuilt says that the server holds no scripts and styles.
var ErrNotBuilt = errors.New("This server was built without the page's scripts and styles. Run `make build`, then start bin/web.") //nolint:staticcheck,revive // a sentence for people

// Manifest is what the build writes beside the files.
type Manifest struct {
	// Files maps the name a page asks for to the hashed one.
	Files map[string]string `json:"files"`
	// ETags has each file's hash; its presence says that the file may be served.
	ETags map[string]string `json:"etags"`
}

// ManifestName is where the manifest lies in dist.
const ManifestName = "manifest.json"

// Assets serves the files of one build.
type Assets struct {
	files fs.FS
	m     Manifest
}

// Open reads the manifest. The error is ErrNotBuilt when there is none.
func Open() (*Assets, error) {
	sub, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, err
	}
	return open(sub)
}

func open(files fs.FS) (*Assets, error) {
	b, err := fs.ReadFile(files, ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotBuilt
	}
	if err != nil {
		return nil, err
	}
	a := &Assets{files: files}
	if err := json.Unmarshal(b, &a.m); err != nil {
		return nil, err
	}
	return a, nil
}

// URL is where the file of this name is served; empty if there is none.
func (a *Assets) URL(name string) string {
	if h := a.m.Files[name]; h != "" {
		return "/static/" + h
	}
	return ""
}

// Frame holds the libraries for the origin of active outputs, under their plain
// names, each with a .gz and a .br beside it.
func (a *Assets) Frame() fs.FS {
	sub, err := fs.Sub(a.files, "frame")
	if err != nil {
		return embed.FS{}
	}
	return sub
}

// ServeHTTP answers /static/NAME. The names carry a hash, so browsers may keep
// the answers for good.
func (a *Assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/static/")
	tag, ok := a.m.ETags[name]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentType(name))
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("ETag", `"`+tag+`"`)
	if r.Header.Get("If-None-Match") == `"`+tag+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	b, enc, err := a.best(name, r.Header.Get("Accept-Encoding"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	if enc != "" {
		h.Set("Content-Encoding", enc)
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(b)
	}
}

// best is the smallest form of a file that the client takes.
func (a *Assets) best(name, accept string) (b []byte, encoding string, err error) {
	for _, f := range []struct{ suffix, encoding string }{{".br", "br"}, {".gz", "gzip"}} {
		if accepts(accept, f.encoding) {
			if b, err := fs.ReadFile(a.files, name+f.suffix); err == nil {
				return b, f.encoding, nil
			}
		}
	}
	b, err = fs.ReadFile(a.files, name)
	return b, "", err
}

func accepts(header, encoding string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(name), encoding) {
			q := strings.ReplaceAll(params, " ", "")
			return q != "q=0" && !strings.HasPrefix(q, "q=0.0")
		}
	}
	return false
}

func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".woff2":
		return "font/woff2"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}
