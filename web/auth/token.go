package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"

	"sandbook/kernel/notebook"
)

// Audience names the surface a token is for. A token for one is refused by all
// others.
type Audience string

// The audiences, and how long a token for each may live at most.
const (
	AudiencePage Audience = "sandbook:page" // the cookie of somebody signed in
	AudienceAPI  Audience = "sandbook:api"  // a bearer token, mostly an agent's
	AudienceWS   Audience = "sandbook:ws"   // tickets; they are not JWS, the name keeps tokens out
)

var longest = map[Audience]time.Duration{
	AudiencePage: 30 * 24 * time.Hour,
	AudienceAPI:  366 * 24 * time.Hour,
}

// ScopeExport allows taking a whole notebook away; the other scopes are
// notebook's.
const ScopeExport notebook.Scope = "export"

var allScopes = []notebook.Scope{
	notebook.ScopeRead, notebook.ScopeEdit, notebook.ScopeRun, notebook.ScopeReview, ScopeExport, notebook.ScopeAdmin,
}

// PersonScopes are what somebody who signed in to the server holds.
func PersonScopes() []notebook.Scope { return slices.Clone(allScopes) }

// Claims are what a token says.
type Claims struct {
	Actor    notebook.Actor
	Audience Audience
	Notebook string // the one notebook the token is for; empty for all

	ID      string    // of the token, for revocation; Mint makes one if empty
	Issued  time.Time // set by Mint
	Expires time.Time // set by Mint
}

// ErrUnauthenticated is wrapped by every refusal of a credential.
var ErrUnauthenticated = errors.New("not signed in")

func refuse(reason string) error { return fmt.Errorf("%w: %s", ErrUnauthenticated, reason) }

const (
	issuer    = "sandbook"
	tokenType = "sandbook+jwt" //nolint:gosec // the type of a token, not a token
	maxToken  = 8 << 10
	leeway    = 60 * time.Second // for clocks that step back; not for exp
)

var (
	subject   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:@\-]{0,127}$`)
	tokenID   = regexp.MustCompile(`^[A-Za-z0-9_\-]{16,64}$`)
	unixTime  = regexp.MustCompile(`^[1-9][0-9]{0,11}$`)
	tokenForm = regexp.MustCompile(`^[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+$`)
)

// ErrClaims is wrapped when Mint is asked for a token that would be refused.
var ErrClaims = errors.New("no such token")

// validate checks what a token says of its bearer. An agent's token can hold
// neither review nor admin: approval is a person's.
func (c Claims) validate() error {
	switch {
	case !subject.MatchString(c.Actor.ID):
		return errors.New("the subject is not an id")
	case c.Actor.Kind != notebook.Person && c.Actor.Kind != notebook.Agent:
		return errors.New("the bearer is neither a person nor an agent")
	case !validName(c.Actor.Name):
		return errors.New("the name is not a name")
	case c.Notebook != "" && !subject.MatchString(c.Notebook):
		return errors.New("the notebook is not an id")
	case len(c.Actor.Scopes) == 0:
		return errors.New("there are no scopes")
	case longest[c.Audience] == 0:
		return errors.New("the audience is unknown")
	case c.Audience == AudiencePage && c.Actor.Kind != notebook.Person:
		return errors.New("only a person signs in to the page")
	}
	for i, s := range c.Actor.Scopes {
		if !slices.Contains(allScopes, s) || slices.Contains(c.Actor.Scopes[:i], s) {
			return errors.New("a scope is unknown or twice")
		}
		if c.Actor.Kind == notebook.Agent && (s == notebook.ScopeReview || s == notebook.ScopeAdmin) {
			return errors.New("an agent holds a scope that is a person's alone")
		}
	}
	return nil
}

func validName(s string) bool {
	if len(s) > 200 || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// payload is the claims as they are signed.
type payload struct {
	Issuer    string   `json:"iss"`
	Audience  Audience `json:"aud"`
	Subject   string   `json:"sub"`
	Kind      string   `json:"kind"`
	Name      string   `json:"name,omitempty"`
	Scope     string   `json:"scope"`
	Notebook  string   `json:"notebook,omitempty"`
	Issued    int64    `json:"iat"`
	NotBefore int64    `json:"nbf"`
	Expires   int64    `json:"exp"`
	ID        string   `json:"jti"`
}

// Mint signs a token that lives for ttl, rounded to seconds.
func (k *Keys) Mint(c Claims, ttl time.Duration, now time.Time) (string, error) {
	if c.ID == "" {
		c.ID = randomText(18)
	}
	if err := c.validate(); err != nil {
		return "", fmt.Errorf("%w: %w", ErrClaims, err)
	}
	if !tokenID.MatchString(c.ID) || ttl < time.Second || ttl > longest[c.Audience] {
		return "", fmt.Errorf("%w: its id or its life is out of bounds", ErrClaims)
	}
	scopes := make([]string, len(c.Actor.Scopes))
	for i, s := range c.Actor.Scopes {
		scopes[i] = string(s)
	}
	body, err := json.Marshal(payload{
		Issuer: issuer, Audience: c.Audience, Subject: c.Actor.ID, Kind: string(c.Actor.Kind), Name: c.Actor.Name,
		Scope: strings.Join(scopes, " "), Notebook: c.Notebook, ID: c.ID,
		Issued: now.Unix(), NotBefore: now.Unix(), Expires: now.Unix() + int64(ttl/time.Second),
	})
	if err != nil {
		return "", fmt.Errorf("mint a token: %w", err)
	}
	k.mu.RLock()
	active := k.active
	k.mu.RUnlock()
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.EdDSA,
		Key:       jose.JSONWebKey{Key: active.private, KeyID: active.id},
	}, (&jose.SignerOptions{}).WithType(tokenType))
	if err != nil {
		return "", fmt.Errorf("mint a token: %w", err)
	}
	jws, err := signer.Sign(body)
	if err != nil {
		return "", fmt.Errorf("mint a token: %w", err)
	}
	return jws.CompactSerialize()
}

// Verify checks a token for one audience and returns what it says. The form,
// the header and the key are settled before any signature is computed, and the
// claims are read only after it was found good.
func (k *Keys) Verify(token string, want Audience, now time.Time) (Claims, error) {
	if len(token) > maxToken || !tokenForm.MatchString(token) {
		return Claims{}, refuse("it is not a compact token")
	}
	head, _, _ := strings.Cut(token, ".")
	public, err := k.keyFor(head, now)
	if err != nil {
		return Claims{}, err
	}
	for part := range strings.SplitSeq(token, ".") {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return Claims{}, refuse("a part is not canonical base64url")
		}
	}
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return Claims{}, refuse("it cannot be parsed")
	}
	body, err := jws.Verify(public.key)
	if err != nil {
		return Claims{}, refuse("its signature is wrong")
	}
	c, err := readClaims(body)
	if err != nil {
		return Claims{}, err
	}
	if err := c.current(want, now); err != nil {
		return Claims{}, err
	}
	if k.revoked != nil && k.revoked.Revoked(c.ID) {
		return Claims{}, refuse("it was revoked")
	}
	return c, nil
}

// keyFor reads the protected header, which holds exactly what Mint writes, and
// finds the key in memory. No header can name a file, an address or a key of
// its own.
func (k *Keys) keyFor(head string, now time.Time) (publicKey, error) {
	if len(head) > 512 {
		return publicKey{}, refuse("its header is too long")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(head)
	if err != nil {
		return publicKey{}, refuse("its header is not canonical base64url")
	}
	h, err := flatObject(raw)
	if err != nil {
		return publicKey{}, err
	}
	if len(h) != 3 || h["alg"] != `"EdDSA"` || h["typ"] != strconv.Quote(tokenType) {
		return publicKey{}, refuse("its header is not one of ours")
	}
	id, err := strconv.Unquote(h["kid"])
	if err != nil {
		return publicKey{}, refuse("its key id is not plain text")
	}
	k.mu.RLock()
	public, ok := k.public[id]
	k.mu.RUnlock()
	if !ok || !public.until.IsZero() && !now.Before(public.until) {
		return publicKey{}, refuse("its key is unknown or retired")
	}
	return public, nil
}

// flatObject reads a JSON object of strings and integers into their JSON texts.
// A name twice, a name that is no plain text, any other kind of value, and
// anything after the object are refused.
func flatObject(data []byte) (map[string]string, error) {
	if !utf8.Valid(data) {
		return nil, refuse("it is not UTF-8")
	}
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, refuse("it is not a JSON object")
	}
	m := map[string]string{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, refuse("it is not JSON")
		}
		n, _ := name.(string)
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, refuse("it is not JSON")
		}
		if _, twice := m[n]; twice || n == "" || len(m) >= 16 {
			return nil, refuse("it has a name twice, or too many")
		}
		if v := string(raw); v[0] != '"' && !unixTime.MatchString(v) {
			return nil, refuse("a value is neither text nor a time")
		}
		m[n] = string(raw)
	}
	if _, err := dec.Token(); err != nil {
		return nil, refuse("it is not JSON")
	}
	if dec.More() || dec.InputOffset() != int64(len(data)) {
		return nil, refuse("something follows it")
	}
	return m, nil
}

// readClaims reads a signed payload; every claim must be there once, with its
// type.
func readClaims(body []byte) (Claims, error) {
	m, err := flatObject(body)
	if err != nil {
		return Claims{}, err
	}
	bad := ""
	text := func(name string, required bool) string {
		raw, has := m[name]
		delete(m, name)
		var s string
		if !has && !required {
			return ""
		}
		if !has || json.Unmarshal([]byte(raw), &s) != nil || required && s == "" {
			bad = name
		}
		return s
	}
	unix := func(name string) time.Time {
		n, err := strconv.ParseInt(m[name], 10, 64)
		delete(m, name)
		if err != nil {
			bad = name
		}
		return time.Unix(n, 0)
	}
	if text("iss", true) != issuer {
		bad = "iss"
	}
	c := Claims{
		Actor: notebook.Actor{Author: notebook.Author{
			Kind: notebook.ActorKind(text("kind", true)), ID: text("sub", true), Name: text("name", false),
		}},
		Audience: Audience(text("aud", true)),
		Notebook: text("notebook", false),
		ID:       text("jti", true),
		Issued:   unix("iat"),
		Expires:  unix("exp"),
	}
	if !unix("nbf").Equal(c.Issued) {
		bad = "nbf"
	}
	for s := range strings.SplitSeq(text("scope", true), " ") {
		c.Actor.Scopes = append(c.Actor.Scopes, notebook.Scope(s))
	}
	if bad != "" || len(m) != 0 || !tokenID.MatchString(c.ID) {
		return Claims{}, refuse("a claim is missing, unknown or of the wrong kind: " + bad)
	}
	return c, nil
}

// current checks the claims against the audience and the clock.
func (c Claims) current(want Audience, now time.Time) error {
	if c.Audience != want {
		return refuse("it is for another audience")
	}
	if err := c.validate(); err != nil {
		return refuse(err.Error())
	}
	switch life := c.Expires.Sub(c.Issued); {
	case life <= 0 || life > longest[want]:
		return refuse("its life is out of bounds")
	case !now.Before(c.Expires):
		return refuse("it has expired")
	case c.Issued.After(now.Add(leeway)):
		return refuse("it is from the future")
	}
	return nil
}
