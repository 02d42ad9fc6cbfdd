// Package frame serves the separate origin that shows active outputs: markup
// with scripts, Plotly, Vega. It is one static page, which draws whatever its
// parent hands it over a message port, and the libraries that page may load.
//
// It is no part of the application: there are no routes of it here, no cookie
// is read or set, nothing is stored, and nothing a request says is repeated.
// The response itself sandboxes the page, so it has no origin even when it is
// opened directly. What is drawn in it may do what it likes to the page; the
// parent must treat every message from the port as hostile, and must allow no
// other address than this one in its frame-src, so that an output cannot leave
// by navigating.
package frame

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page and its script
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Path is where the page is.
const Path = "/v1"

// Assets are the libraries the page may load, by their names in Options.Assets.
var Assets = []string{"plotly.min.js", "vega.min.js", "vega-lite.min.js", "vega-embed.min.js"}

const (
	assetPath = Path + "/assets/"
	maxAsset  = 32 << 20
)

// Options say who may use the frames.
type Options struct {
	// AppOrigins are the exact origins of the application, such as
	// "http://127.0.0.1:8888". Browsers know no IPv6 literals in this place.
	AppOrigins []string

	// Addressed returns the origin of this server that a request was sent to,
	// or an error when the Host is not one of ours.
	Addressed func(*http.Request) (string, error)

	// Assets holds the libraries. One that is missing is said to be missing
	// where it is needed.
	Assets fs.FS
}

//go:embed frame.html
var pageHTML string

//go:embed frame.js
var pageJS string

type handler struct {
	addressed func(*http.Request) (string, error)
	page      []byte
	ancestors string
	assets    map[string]asset
}

type asset struct {
	body []byte
	tag  string
}

// ErrOptions is wrapped when the options cannot be used.
var ErrOptions = errors.New("frame origin")

// New makes the handler. It reads the assets once.
func New(o Options) (http.Handler, error) {
	if o.Addressed == nil {
		return nil, fmt.Errorf("%w: nothing checks the host", ErrOptions)
	}
	if len(o.AppOrigins) == 0 {
		return nil, fmt.Errorf("%w: there is no application origin", ErrOptions)
	}
	for _, origin := range o.AppOrigins {
		if !isOrigin(origin) {
			return nil, fmt.Errorf("%w: %q is not of the form https://name or https://name:port", ErrOptions, origin)
		}
	}
	h := &handler{addressed: o.Addressed, ancestors: strings.Join(o.AppOrigins, " "), assets: map[string]asset{}}
	var have []string
	for _, name := range Assets {
		a, err := readAsset(o.Assets, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrOptions, name, err)
		}
		h.assets[name] = a
		have = append(have, name)
	}
	config, err := json.Marshal(map[string]any{
		"origins": o.AppOrigins, "assets": slices.Concat([]string{}, have), "assetPath": assetPath,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	h.page = []byte(strings.NewReplacer("%CONFIG%", string(config), "%SCRIPT%", pageJS).Replace(pageHTML))
	return h, nil
}

func isOrigin(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil &&
		s == u.Scheme+"://"+u.Host && !strings.ContainsAny(u.Host, "*;,'\" \t\r\n[]")
}

func readAsset(from fs.FS, name string) (asset, error) {
	if from == nil {
		return asset{}, fs.ErrNotExist
	}
	fi, err := fs.Stat(from, name)
	if err != nil {
		return asset{}, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxAsset {
		return asset{}, errors.New("it is not a file of usual size")
	}
	body, err := fs.ReadFile(from, name)
	sum := sha256.Sum256(body)
	return asset{body: body, tag: `"` + hex.EncodeToString(sum[:16]) + `"`}, err
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.common(w.Header())
	own, err := h.addressed(r)
	if err != nil {
		h.refuse(w, http.StatusMisdirectedRequest, "This server does not answer to that name.")
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		h.refuse(w, http.StatusMethodNotAllowed, "Only GET and HEAD are answered here.")
		return
	}
	name, isAsset := strings.CutPrefix(r.URL.Path, assetPath)
	a, known := h.assets[name]
	switch {
	case r.URL.Path == Path:
		h.servePage(w, r, own)
	case isAsset && known:
		h.serveAsset(w, r, name, a)
	default:
		h.refuse(w, http.StatusNotFound, "There is nothing here.")
	}
}

// common sets what every answer carries, whatever its status.
func (h *handler) common(head http.Header) {
	head.Set("Content-Security-Policy", "sandbox; default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors "+h.ancestors)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("X-DNS-Prefetch-Control", "off")
	head.Set("Origin-Agent-Cluster", "?1")
	head.Set("Cross-Origin-Resource-Policy", "cross-origin") // the page has no origin, so its own assets are foreign to it
	head.Set("Permissions-Policy", permissions)
	head.Set("Cache-Control", "no-store")
}

const permissions = "accelerometer=(), ambient-light-sensor=(), autoplay=(), bluetooth=(), camera=(), clipboard-read=(), " +
	"clipboard-write=(), display-capture=(), encrypted-media=(), geolocation=(), gyroscope=(), hid=(), idle-detection=(), " +
	"local-fonts=(), magnetometer=(), microphone=(), midi=(), payment=(), publickey-credentials-get=(), " +
	"screen-wake-lock=(), serial=(), storage-access=(), usb=(), window-management=(), xr-spatial-tracking=()"

func (h *handler) servePage(w http.ResponseWriter, r *http.Request, own string) {
	head := w.Header()
	head.Set("Content-Security-Policy", strings.Join([]string{
		"sandbox allow-scripts allow-downloads",
		"default-src 'none'",
		"script-src 'unsafe-inline' 'unsafe-eval' " + own + assetPath,
		"style-src 'unsafe-inline'",
		"img-src data: blob:",
		"media-src data: blob:",
		"font-src data:",
		"connect-src 'none'",
		"frame-src 'none'",
		"worker-src 'none'",
		"webrtc 'block'",
		"require-trusted-types-for 'script'",
		"trusted-types default frame",
		"form-action 'none'",
		"base-uri 'none'",
		"frame-ancestors " + h.ancestors,
	}, "; "))
	head.Set("Connection-Allowlist", "(response-origin)") // an experiment of browsers, which covers WebRTC and name look-ups
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Cache-Control", "private, max-age=600")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(h.page))
}

func (h *handler) serveAsset(w http.ResponseWriter, r *http.Request, name string, a asset) {
	head := w.Header()
	head.Set("Content-Type", "text/javascript; charset=utf-8")
	head.Set("Cache-Control", "public, max-age=3600")
	head.Set("ETag", a.tag)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.body))
}

func (h *handler) refuse(w http.ResponseWriter, status int, sentence string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(sentence + "\n"))
}
