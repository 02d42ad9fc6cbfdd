package auth

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// ErrOrigin is wrapped when a request comes from, or is addressed to, a place
// that is not ours.
var ErrOrigin = errors.New("wrong origin")

func foreign(reason string) error { return fmt.Errorf("%w: %s", ErrOrigin, reason) }

// Site knows the addresses of this server. Other names that resolve to it are
// refused (DNS rebinding), and so are pages of other origins. Forwarding
// headers are never looked at: what a proxy makes of the address is configured.
type Site struct {
	origins  map[string]string // by host[:port]: scheme
	loopback bool
}

// NewSite makes a site from its public origins, such as
// "https://notebooks.example". With loopback, the names of this machine
// (localhost, 127.0.0.1, [::1]) are good with any port, by http: a forwarded
// port may differ from ours.
func NewSite(public []string, loopback bool) (*Site, error) {
	s := &Site{origins: map[string]string{}, loopback: loopback}
	for _, p := range public {
		u, err := url.Parse(p)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Hostname() == "" || u.User != nil ||
			u.Path != "" || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(u.Host, "*;, \"'") || p != u.Scheme+"://"+u.Host {
			return nil, fmt.Errorf("%w: %q is not of the form https://name or https://name:port", ErrOrigin, p)
		}
		host, err := normalHost(u.Host, u.Scheme)
		if err != nil {
			return nil, err
		}
		if have, ok := s.origins[host]; ok && have != u.Scheme {
			return nil, fmt.Errorf("%w: %s is given with http and with https", ErrOrigin, host)
		}
		s.origins[host] = u.Scheme
	}
	return s, nil
}

// normalHost lower-cases a host and drops the default port.
func normalHost(host, scheme string) (string, error) {
	host = strings.ToLower(host)
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		name, port = host[:i], host[i+1:]
	}
	if name == "" || strings.ContainsAny(name, "/\\@?#% \t") {
		return "", foreign("the host is malformed")
	}
	for _, c := range port {
		if c < '0' || c > '9' {
			return "", foreign("the port is malformed")
		}
	}
	if port == "" || scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		return name, nil
	}
	return name + ":" + port, nil
}

// Addressed returns the origin a request was sent to, or an error when that is
// not one of ours. Every request is checked so, before anything else.
func (s *Site) Addressed(r *http.Request) (string, error) {
	for _, scheme := range []string{"https", "http"} {
		host, err := normalHost(r.Host, scheme)
		if err != nil {
			return "", err
		}
		if s.origins[host] == scheme {
			return scheme + "://" + host, nil
		}
	}
	if s.loopback && loopbackName(r.Host) {
		host, err := normalHost(r.Host, "http")
		return "http://" + host, err
	}
	return "", foreign("the request is addressed to a name that is not ours")
}

func loopbackName(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Zone() == "" && ip.IsLoopback()
}

// From checks the Origin header against the origin the request was sent to and
// says whether there was one. The comparison is exact: scheme, host and port.
func (s *Site) From(r *http.Request) (present bool, err error) {
	own, err := s.Addressed(r)
	if err != nil {
		return false, err
	}
	values := r.Header.Values("Origin")
	switch {
	case len(values) == 0:
		return false, nil
	case len(values) > 1:
		return false, foreign("there are two Origin headers")
	}
	if values[0] == own {
		return true, nil
	}
	for host, scheme := range s.origins {
		if values[0] == scheme+"://"+host {
			return true, nil
		}
	}
	return false, foreign("the request comes from another site")
}

// CheckSocket judges a WebSocket handshake. A browser sends its origin with
// every one, and its cookies along, so whatever is not a bearer token needs an
// origin, and it must be ours.
func (s *Site) CheckSocket(r *http.Request, via Via) error {
	present, err := s.From(r)
	if err != nil {
		return err
	}
	if !present && via != ViaBearer {
		return foreign("the socket has no Origin")
	}
	return nil
}

// CheckMutation judges a request that may change something: every method but
// GET, HEAD and OPTIONS. With a cookie, the browser must have said that the
// request is from our own page.
func (s *Site) CheckMutation(r *http.Request, via Via) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		_, err := s.Addressed(r)
		return err
	}
	present, err := s.From(r)
	if err != nil {
		return err
	}
	if !present && r.Header.Get("Sec-Fetch-Site") == "" && via != ViaBearer {
		return foreign("the request does not say where it comes from")
	}
	return crossSite(r)
}

// crossSite refuses what the browser itself calls foreign. A sibling origin is
// foreign too: active outputs live there.
func crossSite(r *http.Request) error {
	for _, v := range r.Header.Values("Sec-Fetch-Site") {
		if v != "same-origin" && v != "none" {
			return foreign("the browser says the request is from another site")
		}
	}
	return nil
}
