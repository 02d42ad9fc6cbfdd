package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"slices"
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
	return s.revoke(ctx, c.ID)
}

// revoke makes a token worthless and closes its sockets.
func (s *Server) revoke(ctx context.Context, id string) error {
	if err := s.store.RevokeToken(ctx, id); err != nil {
		return err
	}
	s.watches.revoked(id)
	return nil
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
	slices.Sort(in.Scopes)
	in.Scopes = slices.Compact(in.Scopes)
	if in.Notebook != "" {
		if _, err := s.manager.Open(c.Request().Context(), notebook.ID(in.Notebook)); err != nil {
			return err
		}
	}
	now := time.Now()
	ttl := time.Duration(in.Days) * 24 * time.Hour
	claims := auth.Claims{
		Actor:    notebook.Actor{Author: notebook.Author{Kind: notebook.Agent, ID: agentID(in.Name), Name: in.Name}, Scopes: in.Scopes},
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
	if err := s.revoke(c.Request().Context(), c.Param("token")); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// agentID is the same for every token of one agent. Names that no id can hold
// are hashed.
func agentID(name string) string {
	if plainName.MatchString(name) {
		return "agent:" + name
	}
	sum := sha256.Sum256([]byte(name))
	return "agent:" + hex.EncodeToString(sum[:8])
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_.@\-]{1,60}$`)

func scopeNames(in []notebook.Scope) []string {
	out := make([]string, len(in))
	for i, sc := range in {
		out[i] = string(sc)
	}
	return out
}
