// Package web is the HTTP side of the server: one table of routes with the
// access each needs, one map of errors, and the middleware every request passes.
// It translates between HTTP and sessions; it decides nothing about notebooks.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"sandbook/artifacts"
	"sandbook/backends"
	"sandbook/kernel"
	"sandbook/kernel/notebook"
	"sandbook/kernel/policy"
	"sandbook/sessionstore"
	"sandbook/static"
	"sandbook/web/auth"
)

// Options of a Server. All fields are required.
type Options struct {
	Manager     *kernel.Manager
	Store       *sessionstore.Store
	Blobs       *artifacts.Store
	Keys        *auth.Keys
	Door        *auth.Door
	Site        *auth.Site
	Assets      *static.Assets
	FrameOrigin string // origin that shows active outputs
	Caps        []backends.Caps
	Backends    *backends.Registry
	Build       string
	Logger      *slog.Logger
}

// Server answers HTTP requests.
type Server struct {
	manager     *kernel.Manager
	store       *sessionstore.Store
	blobs       *artifacts.Store
	keys        *auth.Keys
	door        *auth.Door
	site        *auth.Site
	assets      *static.Assets
	frameOrigin string
	caps        []backends.Caps
	build       string
	logger      *slog.Logger
	tickets     auth.Tickets
	sockets     sync.WaitGroup
	watches     watches
	bounds      bounds
	echo        *echo.Echo
}

// New makes a server.
func New(o Options) *Server {
	s := &Server{
		manager: o.Manager, store: o.Store, blobs: o.Blobs, keys: o.Keys, door: o.Door, site: o.Site, assets: o.Assets,
		frameOrigin: o.FrameOrigin, caps: o.Caps, build: o.Build, logger: o.Logger, bounds: newBounds(),
	}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = s.handleError
	e.Pre(s.outer)
	for _, r := range s.routes() {
		e.Add(r.method, r.path, s.guard(r))
	}
	s.echo = e
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.echo.ServeHTTP(w, r) }

// Drain waits until every socket has been closed, after the manager was.
func (s *Server) Drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() { s.sockets.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outer is what every request passes, known path or not: an id, the headers,
// the check of the address it was sent to, and a net for panics.
func (s *Server) outer(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		start := time.Now()
		h := c.Response().Header()
		h.Set(echo.HeaderXRequestID, uuid.NewString())
		s.secureHeaders(h, c)
		defer func() {
			if p := recover(); p != nil {
				if e, ok := p.(error); ok && errors.Is(e, http.ErrAbortHandler) {
					panic(p)
				}
				s.logger.LogAttrs(c.Request().Context(), slog.LevelError, "panic", slog.Any("panic", p), slog.String("stack", string(debug.Stack())),
					slog.String("request_id", h.Get(echo.HeaderXRequestID)))
				err = errors.New("panic in a handler")
				s.handleError(err, c)
			}
			s.logger.LogAttrs(c.Request().Context(), slog.LevelDebug, "request", slog.String("method", c.Request().Method), slog.String("path", loggedPath(c)),
				slog.Int("status", c.Response().Status), slog.Duration("took", time.Since(start)), slog.String("request_id", h.Get(echo.HeaderXRequestID)))
		}()
		if _, err := s.site.Addressed(c.Request()); err != nil {
			s.logger.LogAttrs(c.Request().Context(), slog.LevelWarn, "wrong host refused", slog.Any("error", err))
			s.handleError(echo.NewHTTPError(http.StatusMisdirectedRequest), c)
			return nil
		}
		defer pace(c)()
		if err := next(c); err != nil {
			s.handleError(err, c)
		}
		return nil
	}
}

// loggedPath is the path of a request without what may be a token: some people
// put the token where its id belongs.
func loggedPath(c echo.Context) string {
	if c.Param("token") != "" {
		return c.Path()
	}
	return c.Request().URL.Path
}

func (s *Server) secureHeaders(h http.Header, c echo.Context) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; "+
		"frame-src "+s.frameOriginFor(c)+"; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send forms with "Origin: null"
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=()")
	h.Set("Cache-Control", "no-store")
}

// who is kept with a request once it is known.
type who struct {
	claims auth.Claims
	via    auth.Via
}

const whoKey = "sandbook.who"

// guard puts a route's declared access in front of its handler.
func (s *Server) guard(r route) echo.HandlerFunc {
	return func(c echo.Context) error {
		req := c.Request()
		if r.access.public {
			return r.handler(c)
		}
		claims, via, err := s.identify(c, r)
		if err != nil {
			return err
		}
		if r.access.socket {
			if err := s.site.CheckSocket(req, via); err != nil {
				return s.refuse(c, err)
			}
		} else if err := s.site.CheckMutation(req, via); err != nil {
			return s.refuse(c, err)
		}
		if id := c.Param("id"); claims.Notebook != "" && claims.Notebook != id {
			return notebook.Errorf(notebook.NotFound, "There is no such notebook.")
		}
		if !policy.Holds(claims.Actor, r.access.scope) {
			return notebook.Errorf(notebook.Denied, "Your access does not allow this; it needs %q.", r.access.scope)
		}
		c.Set(whoKey, who{claims, via})
		return r.handler(c)
	}
}

// identify finds out who asks: by cookie or bearer token, or, for a socket, by
// a ticket.
func (s *Server) identify(c echo.Context, r route) (auth.Claims, auth.Via, error) {
	req := c.Request()
	if r.access.socket {
		text, has, err := auth.TicketOf(req)
		if err != nil {
			return auth.Claims{}, 0, errSignIn
		}
		if has {
			claims, err := s.tickets.Redeem(text, c.Param("id"), req.Header.Get("Origin"), time.Now())
			if err != nil {
				return auth.Claims{}, 0, errSignIn
			}
			return claims, auth.ViaTicket, nil
		}
	}
	claims, via, err := s.door.Who(req, time.Now())
	if err != nil {
		if !errors.Is(err, auth.ErrUnauthenticated) {
			return claims, via, s.refuse(c, err)
		}
		return claims, via, errSignIn
	}
	return claims, via, nil
}

// refuse turns an auth error into one for people.
func (s *Server) refuse(c echo.Context, err error) error {
	s.logger.LogAttrs(c.Request().Context(), slog.LevelWarn, "request refused", slog.String("path", c.Path()), slog.Any("error", err))
	switch {
	case errors.Is(err, auth.ErrTooMany):
		return echo.NewHTTPError(http.StatusTooManyRequests)
	case errors.Is(err, auth.ErrOrigin):
		return notebook.Errorf(notebook.Denied, "This request came from another site and was refused.")
	}
	return errSignIn
}

func actor(c echo.Context) notebook.Actor {
	return claimsOf(c).Actor
}

func claimsOf(c echo.Context) auth.Claims {
	w, _ := c.Get(whoKey).(who)
	return w.claims
}

// health says that the process lives.
func (s *Server) health(c echo.Context) error { return c.String(http.StatusOK, "ok\n") }

// ready says that notebooks can be read and written.
func (s *Server) ready(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), 2*time.Second)
	defer cancel()
	if _, err := s.store.List(ctx, sessionstore.ListQuery{Limit: 1}); err != nil {
		return notebook.Errorf(notebook.Unavailable, "The database does not answer.")
	}
	return c.String(http.StatusOK, "ready\n")
}
