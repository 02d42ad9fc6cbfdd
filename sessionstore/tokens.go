package sessionstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sandbook/kernel/notebook"
	"sandbook/sessionstore/internal/db"
)

// Token is the record of a credential the server gave out; the credential
// itself is not kept.
type Token struct {
	ID       string             `json:"id"` // jti
	Kind     notebook.ActorKind `json:"kind"`
	Subject  string             `json:"subject"` // author id of whoever holds it
	Name     string             `json:"name"`
	Audience string             `json:"audience,omitempty"`
	Notebook notebook.ID        `json:"notebook,omitempty"` // empty: every notebook
	Scopes   []string           `json:"scopes"`
	Created  time.Time          `json:"created"`
	Expires  time.Time          `json:"expires,omitzero"` // zero: never
	Revoked  bool               `json:"revoked,omitempty"`
}

const maxTokens = 1000

// CreateToken records a token. An id that is taken is a Conflict.
func (s *Store) CreateToken(ctx context.Context, t Token) error {
	if t.ID == "" {
		return notebook.Errorf(notebook.Invalid, "The token has no id.")
	}
	if t.Scopes == nil {
		t.Scopes = []string{}
	}
	scopes, err := json.Marshal(t.Scopes)
	if err != nil {
		return fmt.Errorf("encode token: %w", err)
	}
	if t.Created.IsZero() {
		t.Created = s.now()
	}
	p := db.InsertTokenParams{
		Jti: t.ID, Kind: string(t.Kind), Subject: t.Subject, Name: t.Name, Audience: t.Audience,
		Notebook: string(t.Notebook), Scopes: string(scopes), Created: ms(t.Created), Expires: ms(t.Expires),
	}
	return s.tx(ctx, func(ctx context.Context, q *db.Queries) error {
		n, err := q.InsertToken(ctx, p)
		if err == nil && n == 0 {
			return notebook.Errorf(notebook.Conflict, "There is a token with this id already.")
		}
		return err
	})
}

// Tokens lists the newest thousand tokens, revoked and expired ones included.
func (s *Store) Tokens(ctx context.Context) ([]Token, error) {
	rows, err := s.rq.Tokens(ctx, maxTokens)
	if err != nil {
		return nil, mapped(fmt.Errorf("list tokens: %w", err))
	}
	list := make([]Token, len(rows))
	for i, r := range rows {
		if list[i], err = token(r); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Token finds one token's record; it is NotFound if there is none.
func (s *Store) Token(ctx context.Context, id string) (Token, error) {
	row, err := s.rq.Token(ctx, id)
	if errors.Is(err, sql.ErrNoRows) {
		return Token{}, notebook.Errorf(notebook.NotFound, "There is no such token.")
	}
	if err != nil {
		return Token{}, mapped(fmt.Errorf("read token: %w", err))
	}
	return token(row)
}

func token(r db.Token) (Token, error) {
	t := Token{
		ID: r.Jti, Kind: notebook.ActorKind(r.Kind), Subject: r.Subject, Name: r.Name, Audience: r.Audience,
		Notebook: notebook.ID(r.Notebook), Created: fromMS(r.Created), Expires: fromMS(r.Expires), Revoked: r.Revoked > 0,
	}
	if err := json.Unmarshal([]byte(r.Scopes), &t.Scopes); err != nil {
		return Token{}, fmt.Errorf("decode token: %w", err)
	}
	return t, nil
}

// RevokeToken makes a token worthless from now on. Doing so again changes
// nothing; a token that was never recorded is NotFound.
func (s *Store) RevokeToken(ctx context.Context, id string) error {
	return s.tx(ctx, func(ctx context.Context, q *db.Queries) error {
		n, err := q.RevokeToken(ctx, db.RevokeTokenParams{At: ms(s.now()), Jti: id})
		if err != nil || n == 1 {
			return err
		}
		if _, err = q.Token(ctx, id); errors.Is(err, sql.ErrNoRows) {
			return notebook.Errorf(notebook.NotFound, "There is no such token.")
		}
		return err
	})
}

// Revoked reports whether a token was revoked. A token there is no record of
// was not. If the database cannot tell, the answer is yes.
func (s *Store) Revoked(id string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	revoked, err := s.rq.Revoked(ctx, id)
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelError, "look up revoked token", slog.Any("error", mapped(err)))
		return true
	}
	return revoked
}

// Setting returns a setting; ok is false if it was never made.
func (s *Store) Setting(ctx context.Context, name string) (value string, ok bool, err error) {
	value, err = s.rq.Setting(ctx, name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, mapped(fmt.Errorf("read setting: %w", err))
	}
	return value, true, nil
}

// PutSetting makes or changes a setting.
func (s *Store) PutSetting(ctx context.Context, name, value string) error {
	return s.tx(ctx, func(ctx context.Context, q *db.Queries) error {
		return q.PutSetting(ctx, db.PutSettingParams{Name: name, Value: value})
	})
}

const installSetting = "install_id"

// InstallID names this installation. It is random, made when first asked for,
// and marks the resources that backends make.
func (s *Store) InstallID(ctx context.Context) (string, error) {
	if id, ok, err := s.Setting(ctx, installSetting); err != nil || ok {
		return id, err
	}
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck,gosec // never fails
	fresh := hex.EncodeToString(b[:])
	err := s.tx(ctx, func(ctx context.Context, q *db.Queries) error {
		return q.PutSettingOnce(ctx, db.PutSettingOnceParams{Name: installSetting, Value: fresh})
	})
	if err != nil {
		return "", err
	}
	id, _, err := s.Setting(ctx, installSetting)
	return id, err
}
