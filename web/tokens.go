package web

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"sandbook/kernel/notebook"
	"sandbook/sessionstore"
	"sandbook/web/auth"
)

// signedOut takes a cookie's token back; it is recorded only now.
func (s *Server) signedOut(ctx context.Context, c auth.Claims) error {
	err := s.store.CreateToken(ctx, sessionstore.Token{
		ID: c.ID, Kind: c.Actor.Kind, Subject: c.Actor.ID, Name: c.Actor.Name, Audience: string(c.Audience),
		Scopes: scopeNames(c.Actor.Scopes), Created: c.Issued, Expires: c.Expires,
	})
	if err != nil && notebook.CodeOf(err) != notebook.Conflict {
		return err
	}
	return s.store.RevokeToken(ctx, c.ID)
}

func (s *Server) apiTokens(c echo.Context) error {
	list, err := s.store.Tokens(c.Request().Context())
	if err != nil {
		return err
	}
	out := []sessionstore.Token{}
	for _, t := range list {
		if t.Audience == string(auth.AudienceAPI) {
			out = append(out, t)
		}
	}
	return c.JSON(http.StatusOK, map[string]any{"tokens": out})
}

// apiTokenCreate makes a token for an agent. The text is shown once.
func (s *Server) apiTokenCreate(c echo.Context) error {
	var in struct {
		Name     string           `json:"name"`
		Scopes   []notebook.Scope `json:"scopes"`
		Notebook string           `json:"notebook"`
		Days     int              `json:"days"`
	}
	if err := decode(c, &in); err != nil {
		return err
	}
	in.Name = strings.TrimSpace(in.Name)
	if in.Name == "" || len(in.Name) > 60 || strings.ContainsFunc(in.Name, func(r rune) bool { return r < 0x20 }) {
		return notebook.Errorf(notebook.Invalid, "Give the agent a name of at most 60 characters.")
	}
	if in.Days == 0 {
		in.Days = 30
	}
	if in.Days < 1 || in.Days > 365 {
		return notebook.Errorf(notebook.Invalid, "A token lives for 1 to 365 days.")
	}
	if len(in.Scopes) == 0 {
		in.Scopes = []notebook.Scope{notebook.ScopeRead}
	}
	for _, sc := range in.Scopes {
		if sc != notebook.ScopeRead && sc != notebook.ScopeEdit && sc != notebook.ScopeRun {
			return notebook.Errorf(notebook.Invalid, "An agent can hold read, edit and run, not %q.", sc)
		}
	}
	now := time.Now()
	ttl := time.Duration(in.Days) * 24 * time.Hour
	claims := auth.Claims{
		Actor:    notebook.Actor{Author: notebook.Author{Kind: notebook.Agent, ID: "agent:" + in.Name, Name: in.Name}, Scopes: in.Scopes},
		Audience: auth.AudienceAPI, Notebook: in.Notebook, ID: uuid.NewString(),
	}
	text, err := s.keys.Mint(claims, ttl, now)
	if err != nil {
		return notebook.Errorf(notebook.Invalid, "This token cannot be made: %s.", err)
	}
	err = s.store.CreateToken(c.Request().Context(), sessionstore.Token{
		ID: claims.ID, Kind: notebook.Agent, Subject: claims.Actor.ID, Name: in.Name, Audience: string(auth.AudienceAPI),
		Notebook: notebook.ID(in.Notebook), Scopes: scopeNames(in.Scopes), Created: now, Expires: now.Add(ttl),
	})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, map[string]any{"id": claims.ID, "token": text, "expires": now.Add(ttl)})
}

func (s *Server) apiTokenRevoke(c echo.Context) error {
	if err := s.store.RevokeToken(c.Request().Context(), c.Param("token")); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func scopeNames(in []notebook.Scope) []string {
	out := make([]string, len(in))
	for i, sc := range in {
		out[i] = string(sc)
	}
	return out
}
