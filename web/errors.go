package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"sandbook/kernel/notebook"
)

// statusOf is the one map from error codes to HTTP.
var statusOf = map[notebook.Code]int{
	notebook.Invalid:     http.StatusBadRequest,
	notebook.Denied:      http.StatusForbidden,
	notebook.NotFound:    http.StatusNotFound,
	notebook.Conflict:    http.StatusConflict,
	notebook.Unavailable: http.StatusServiceUnavailable,
	notebook.TooLarge:    http.StatusRequestEntityTooLarge,
	notebook.Internal:    http.StatusInternalServerError,
}

// errSignIn asks for a credential.
var errSignIn = errors.New("sign in")

// problem is an error as a client sees it.
type problem struct {
	Status  int           `json:"-"`
	Code    notebook.Code `json:"code"`
	Message string        `json:"message"`
	Data    any           `json:"data,omitempty"`
	Request string        `json:"request_id,omitempty"`
}

// problemOf says what of an error may be shown.
func problemOf(err error) problem {
	if errors.Is(err, errSignIn) {
		return problem{Status: http.StatusUnauthorized, Code: "unauthenticated", Message: "Sign in first: open the link the server printed when it started."}
	}
	if he, ok := errors.AsType[*echo.HTTPError](err); ok {
		return fromEcho(he)
	}
	if mb, ok := errors.AsType[*http.MaxBytesError](err); ok {
		_ = mb
		return problem{Status: http.StatusRequestEntityTooLarge, Code: notebook.TooLarge, Message: "The request is too large."}
	}
	if errors.Is(err, context.Canceled) { // whoever asked has gone away
		return problem{Status: http.StatusServiceUnavailable, Code: notebook.Unavailable, Message: "The request was given up."}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return problem{Status: http.StatusServiceUnavailable, Code: notebook.Unavailable, Message: "It took too long. Try again."}
	}
	p := problem{Code: notebook.CodeOf(err), Message: notebook.MessageOf(err)}
	p.Status = statusOf[p.Code]
	if e, ok := errors.AsType[*notebook.Error](err); ok {
		p.Data = e.Data
	}
	return p
}

func fromEcho(he *echo.HTTPError) problem {
	p := problem{Status: he.Code, Code: notebook.Invalid, Message: "The request does not fit."}
	switch he.Code {
	case http.StatusNotFound:
		p.Code, p.Message = notebook.NotFound, "There is nothing at this address."
	case http.StatusMethodNotAllowed:
		p.Message = "This address does not take that method."
	case http.StatusRequestEntityTooLarge:
		p.Code, p.Message = notebook.TooLarge, "The request is too large."
	case http.StatusTooManyRequests:
		p.Code, p.Message = notebook.Unavailable, "That was tried too often. Wait a minute and try again."
	case http.StatusUpgradeRequired:
		p.Message = "This address is a WebSocket. Open it as one."
	case http.StatusMisdirectedRequest:
		p.Code, p.Message = notebook.Denied, "This server does not answer under that name. Use the address it printed when it started, or set --url."
	case http.StatusForbidden:
		p.Code, p.Message = notebook.Denied, "This request came from another site and was refused."
	}
	return p
}

// handleError answers a failed request, in JSON to programs and as a page to
// people. What is not meant for them is in the log under the request id.
func (s *Server) handleError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	p := problemOf(err)
	p.Request = c.Response().Header().Get(echo.HeaderXRequestID)
	if p.Status >= 500 && p.Code == notebook.Internal {
		s.logger.LogAttrs(c.Request().Context(), slog.LevelError, "request failed", slog.String("request_id", p.Request),
			slog.String("path", c.Path()), slog.Any("error", err))
	}
	if p.Status == http.StatusUnauthorized && wantsPage(c.Request()) {
		next := "/" // what was posted is lost, and its address cannot be fetched
		if c.Request().Method == http.MethodGet {
			next = safeNext(c.Request().URL.EscapedPath()) // without the query, which may hold anything
		}
		_ = c.Redirect(http.StatusSeeOther, "/login?next="+url.QueryEscape(next))
		return
	}
	if p.Status == http.StatusUnauthorized {
		c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
	}
	if wantsPage(c.Request()) {
		_ = s.errorPage(c, p)
		return
	}
	_ = c.JSON(p.Status, map[string]problem{"error": p})
}

// wantsPage reports whether a browser asks for something to look at.
func wantsPage(r *http.Request) bool {
	return !strings.HasPrefix(r.URL.Path, "/api/") && strings.Contains(r.Header.Get("Accept"), "text/html")
}
