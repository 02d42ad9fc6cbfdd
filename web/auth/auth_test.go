package auth

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandbook/kernel/notebook"
)

var t0 = time.Unix(1_800_000_000, 0)

func openKeys(t testing.TB) *Keys {
	t.Helper()
	k, err := OpenKeys(filepath.Join(t.TempDir(), "secrets"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func person() Claims {
	return Claims{
		Actor:    notebook.Actor{Author: notebook.Author{Kind: notebook.Person, ID: "ann", Name: "Ann Ä."}, Scopes: PersonScopes()},
		Audience: AudienceAPI, Notebook: "0190-n1",
	}
}

func agent(scopes ...notebook.Scope) Claims {
	return Claims{
		Actor:    notebook.Actor{Author: notebook.Author{Kind: notebook.Agent, ID: "agent:7", Name: "Helper"}, Scopes: scopes},
		Audience: AudienceAPI,
	}
}

func mint(t testing.TB, k *Keys, c Claims, ttl time.Duration) string {
	t.Helper()
	tok, err := k.Mint(c, ttl, t0)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestMintAndVerify(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	for name, c := range map[string]Claims{
		"person": person(), "agent": agent(notebook.ScopeRead, notebook.ScopeEdit, notebook.ScopeRun, ScopeExport),
	} {
		got, err := k.Verify(mint(t, k, c, time.Hour), AudienceAPI, t0.Add(59*time.Minute))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := c
		want.ID, want.Issued, want.Expires = got.ID, t0, t0.Add(time.Hour)
		if diff := cmp.Diff(want, got); diff != "" || len(got.ID) < 16 {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestMintRefusesWhatVerifyWould(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	change := func(f func(*Claims)) Claims { c := person(); f(&c); return c }
	for name, c := range map[string]Claims{
		"agent with review":  agent(notebook.ScopeRead, notebook.ScopeReview),
		"agent with admin":   agent(notebook.ScopeAdmin),
		"server":             change(func(c *Claims) { c.Actor.Kind = notebook.Server }),
		"no kind":            change(func(c *Claims) { c.Actor.Kind = "" }),
		"no scopes":          agent(),
		"unknown scope":      agent("everything"),
		"scope twice":        agent(notebook.ScopeRead, notebook.ScopeRead),
		"scope with a space": agent("read review"),
		"no subject":         change(func(c *Claims) { c.Actor.ID = "" }),
		"odd subject":        change(func(c *Claims) { c.Actor.ID = "a/../b" }),
		"control in name":    change(func(c *Claims) { c.Actor.Name = "a\nb" }),
		"bidi in name":       change(func(c *Claims) { c.Actor.Name = "a\u202eb" }),
		"long name":          change(func(c *Claims) { c.Actor.Name = strings.Repeat("a", 201) }),
		"odd notebook":       change(func(c *Claims) { c.Notebook = "../x" }),
		"no audience":        change(func(c *Claims) { c.Audience = "" }),
		"socket audience":    change(func(c *Claims) { c.Audience = AudienceWS }),
		"agent on the page":  func() Claims { c := agent(notebook.ScopeRead); c.Audience = AudiencePage; return c }(),
		"odd id":             change(func(c *Claims) { c.ID = "short" }),
	} {
		if _, err := k.Mint(c, time.Hour, t0); !errors.Is(err, ErrClaims) {
			t.Errorf("%s: got %v, want ErrClaims", name, err)
		}
	}
	for _, ttl := range []time.Duration{-time.Hour, 0, time.Millisecond, 367 * 24 * time.Hour} {
		if _, err := k.Mint(person(), ttl, t0); !errors.Is(err, ErrClaims) {
			t.Errorf("life of %v: got %v, want ErrClaims", ttl, err)
		}
	}
}

// sign makes a token with any header and payload, signed by the active key.
func (k *Keys) sign(header, payload string) string {
	input := b64(header) + "." + b64(payload)
	return input + "." + b64(string(ed25519.Sign(k.active.private, []byte(input))))
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func (k *Keys) goodHeader() string {
	return `{"alg":"EdDSA","kid":"` + k.active.id + `","typ":"sandbook+jwt"}`
}

func goodPayload() map[string]string {
	return map[string]string{
		"iss": `"sandbook"`, "aud": `"sandbook:api"`, "sub": `"ann"`, "kind": `"person"`, "scope": `"read run"`,
		"iat": "1800000000", "nbf": "1800000000", "exp": "1800003600", "jti": `"abcdefghijklmnop"`,
	}
}

func join(m map[string]string) string {
	var parts []string
	for k, v := range m {
		if v != "" {
			parts = append(parts, `"`+k+`":`+v)
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestHandMadeTokenIsGood(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	if _, err := k.Verify(k.sign(k.goodHeader(), join(goodPayload())), AudienceAPI, t0); err != nil {
		t.Fatalf("the vectors below would fail for a wrong reason: %v", err)
	}
}

// TestHeaders is rows W07 to W10 of the security matrix.
func TestHeaders(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	id := k.active.id
	jwk := `{"kty":"OKP","crv":"Ed25519","x":"` + b64(string(k.public[id].key)) + `"}`
	for name, h := range map[string]string{
		"alg none":       `{"alg":"none","kid":"` + id + `","typ":"sandbook+jwt"}`,
		"alg None":       `{"alg":"None","kid":"` + id + `","typ":"sandbook+jwt"}`,
		"alg eddsa":      `{"alg":"eddsa","kid":"` + id + `","typ":"sandbook+jwt"}`,
		"alg Ed25519":    `{"alg":"Ed25519","kid":"` + id + `","typ":"sandbook+jwt"}`,
		"alg HS256":      `{"alg":"HS256","kid":"` + id + `","typ":"sandbook+jwt"}`,
		"alg RS256":      `{"alg":"RS256","kid":"` + id + `","typ":"sandbook+jwt"}`,
		"alg ES256":      `{"alg":"ES256","kid":"` + id + `","typ":"sandbook+jwt"}`,
		"alg list":       `{"alg":["EdDSA"],"kid":"` + id + `","typ":"sandbook+jwt"}`,
		"alg twice":      `{"alg":"none","alg":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt"}`,
		"ALG":            `{"ALG":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt"}`,
		"no alg":         `{"kid":"` + id + `","typ":"sandbook+jwt"}`,
		"no kid":         `{"alg":"EdDSA","typ":"sandbook+jwt"}`,
		"kid path":       `{"alg":"EdDSA","kid":"../../dev/null","typ":"sandbook+jwt"}`,
		"kid SQL":        `{"alg":"EdDSA","kid":"x' OR '1'='1","typ":"sandbook+jwt"}`,
		"kid URL":        `{"alg":"EdDSA","kid":"https://evil.example/jwks","typ":"sandbook+jwt"}`,
		"kid long":       `{"alg":"EdDSA","kid":"` + strings.Repeat("a", 10<<10) + `","typ":"sandbook+jwt"}`,
		"kid empty":      `{"alg":"EdDSA","kid":"","typ":"sandbook+jwt"}`,
		"kid number":     `{"alg":"EdDSA","kid":1,"typ":"sandbook+jwt"}`,
		"kid null":       `{"alg":"EdDSA","kid":null,"typ":"sandbook+jwt"}`,
		"jku":            `{"alg":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt","jku":"http://127.0.0.1:1/"}`,
		"x5u":            `{"alg":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt","x5u":"http://127.0.0.1:1/"}`,
		"x5c":            `{"alg":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt","x5c":["MIIB"]}`,
		"jwk":            `{"alg":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt","jwk":` + jwk + `}`,
		"jwk for kid":    `{"alg":"EdDSA","jwk":` + jwk + `,"typ":"sandbook+jwt"}`,
		"crit":           `{"alg":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt","crit":["exp"]}`,
		"b64 false":      `{"alg":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt","b64":false,"crit":["b64"]}`,
		"zip":            `{"alg":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt","zip":"DEF"}`,
		"cty":            `{"alg":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt","cty":"JWT"}`,
		"nonce":          `{"alg":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt","nonce":"x"}`,
		"typ JWT":        `{"alg":"EdDSA","kid":"` + id + `","typ":"JWT"}`,
		"no typ":         `{"alg":"EdDSA","kid":"` + id + `"}`,
		"not JSON":       `alg=EdDSA`,
		"array":          `["EdDSA"]`,
		"trailing":       k.goodHeader() + `{}`,
		"trailing space": k.goodHeader() + ` `,
		"not UTF-8":      `{"alg":"EdDSA","kid":"` + id + `","typ":"sandbook+jwt","x":"` + "\xff" + `"}`,
		"deep":           strings.Repeat(`{"a":`, 90),
		"nothing":        ``,
		"null":           `null`,
	} {
		if _, err := k.Verify(k.sign(h, join(goodPayload())), AudienceAPI, t0); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestClaims is rows W11, W12 and W14.
func TestClaims(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	type edit = map[string]string
	for name, e := range map[string]edit{
		"no iss": {"iss": ""}, "wrong iss": {"iss": `"sandbook2"`}, "iss list": {"iss": `["sandbook"]`},
		"no aud": {"aud": ""}, "aud list": {"aud": `["sandbook:api"]`}, "aud page": {"aud": `"sandbook:page"`}, "aud ws": {"aud": `"sandbook:ws"`}, "aud case": {"aud": `"Sandbook:api"`},
		"no sub": {"sub": ""}, "empty sub": {"sub": `""`}, "sub number": {"sub": "1"}, "sub null": {"sub": "null"}, "odd sub": {"sub": `"a b"`},
		"no jti": {"jti": ""}, "short jti": {"jti": `"x"`}, "odd jti": {"jti": `"abcdefghijklmno/"`},
		"no kind": {"kind": ""}, "server": {"kind": `"server"`}, "kind case": {"kind": `"Person"`},
		"no scope": {"scope": ""}, "empty scope": {"scope": `""`}, "unknown scope": {"scope": `"read all"`}, "scope list": {"scope": `["read"]`},
		"scope twice": {"scope": `"read read"`}, "scope spaces": {"scope": `"read  run"`},
		"agent review": {"kind": `"agent"`, "scope": `"read review"`}, "agent admin": {"kind": `"agent"`, "scope": `"admin"`},
		"no exp": {"exp": ""}, "exp text": {"exp": `"1800003600"`}, "exp float": {"exp": "1800003600.5"}, "exp exponent": {"exp": "18e8"}, "exp 1e400": {"exp": "1e400"},
		"exp NaN": {"exp": "NaN"}, "exp negative": {"exp": "-1"}, "exp true": {"exp": "true"}, "exp null": {"exp": "null"}, "exp huge": {"exp": "99999999999999999999"},
		"exp past": {"exp": "1800000000"}, "exp before iat": {"exp": "1799999999"}, "exp too far": {"exp": "1831708800"}, "exp zeros": {"exp": "01800003600"},
		"no iat": {"iat": ""}, "iat future": {"iat": "1800000061", "nbf": "1800000061"}, "iat text": {"iat": `"1800000000"`},
		"no nbf": {"nbf": ""}, "nbf future": {"nbf": "1800000061"}, "nbf list": {"nbf": "[1800000000]"},
		"unknown claim": {"admin": `"true"`}, "object claim": {"x": `{"a":1}`}, "odd notebook": {"notebook": `"a/b"`}, "odd name": {"name": `"a\nb"`},
		"name lone surrogate": {"name": `"\ud800"`, "x": `"y"`}, "cnf": {"cnf": `{"jwk":{}}`},
	} {
		m := goodPayload()
		for key, v := range e {
			m[key] = v
		}
		if _, err := k.Verify(k.sign(k.goodHeader(), join(m)), AudienceAPI, t0); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	good := join(goodPayload())
	for name, p := range map[string]string{
		"exp twice":       strings.Replace(good, "{", `{"exp":1900000000,`, 1),
		"scope twice":     strings.Replace(good, "{", `{"scope":"admin",`, 1),
		"escaped twice":   strings.Replace(good, "{", `{"\u0065xp":1800003600,`, 1),
		"trailing":        good + `{}`,
		"trailing null":   good + "\x00",
		"array":           "[" + good + "]",
		"empty":           "",
		"not JSON":        "x",
		"comment":         good + "//",
		"deep":            strings.Repeat("[", 5000),
		"byte order mark": "\ufeff" + good,
	} {
		if _, err := k.Verify(k.sign(k.goodHeader(), p), AudienceAPI, t0); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestClockEdges(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	tok := mint(t, k, person(), time.Hour)
	for name, c := range map[string]struct {
		at   time.Time
		good bool
	}{
		"at once": {t0, true}, "last moment": {t0.Add(time.Hour - time.Nanosecond), true}, "expired": {t0.Add(time.Hour), false},
		"clock 60 s behind": {t0.Add(-60 * time.Second), true}, "clock 61 s behind": {t0.Add(-61 * time.Second), false},
	} {
		if _, err := k.Verify(tok, AudienceAPI, c.at); (err == nil) != c.good {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAudiencesDoNotMix(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	page := person()
	page.Audience = AudiencePage
	for _, tok := range []struct {
		text string
		aud  Audience
	}{{mint(t, k, page, time.Hour), AudiencePage}, {mint(t, k, person(), time.Hour), AudienceAPI}} {
		for _, want := range []Audience{AudiencePage, AudienceAPI, AudienceWS, ""} {
			if _, err := k.Verify(tok.text, want, t0); (err == nil) != (want == tok.aud) {
				t.Errorf("%s on %q: %v", tok.aud, want, err)
			}
		}
	}
}

// TestForms is rows W10 and W13: serialisations and signatures.
func TestForms(t *testing.T) {
	t.Parallel()
	k := openKeys(t)
	tok := mint(t, k, person(), time.Hour)
	parts := strings.Split(tok, ".")
	sig, _ := base64.RawURLEncoding.DecodeString(parts[2])
	with := func(sig []byte) string {
		return parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(sig)
	}
	flipped := append([]byte{}, sig...)
	flipped[10] ^= 1
	// s + L is the same number modulo the group order: accepted by a lax check.
	malleated := append([]byte{}, sig...)
	order := []byte{0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 31: 0x10}
	carry := 0
	for i := range 32 {
		n := int(malleated[32+i]) + int(order[i]) + carry
		malleated[32+i], carry = byte(n), n>>8
	}
	last := parts[2][:len(parts[2])-1] + string(nextBase64(parts[2][len(parts[2])-1]))
	for name, s := range map[string]string{
		"empty": "", "one part": parts[0], "two parts": parts[0] + "." + parts[1], "no signature": parts[0] + "." + parts[1] + ".",
		"no payload": parts[0] + ".." + parts[2], "four parts": tok + "." + parts[2], "JWE": tok + ".a.b", "many dots": strings.Repeat(".", 10000),
		"dots and text": strings.Repeat("a.", 4000), "too long": tok + strings.Repeat("a", maxToken), "space before": " " + tok, "newline after": tok + "\n",
		"inner newline": parts[0] + ".\n" + parts[1] + "." + parts[2], "padding": tok + "=", "standard base64": strings.ReplaceAll(strings.ReplaceAll(tok, "-", "+"), "_", "/") + "+",
		"JSON":          `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"JSON, general": `{"payload":"` + parts[1] + `","signatures":[{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"}]}`,
		"flipped":       with(flipped), "truncated": with(sig[:63]), "appended": with(append(append([]byte{}, sig...), 0)), "zero": with(make([]byte, 64)),
		"malleated": with(malleated), "other bits": parts[0] + "." + parts[1] + "." + last, "NUL": tok + "\x00", "bearer": "Bearer " + tok, "not ASCII": tok + "é",
		"payload of another": strings.Split(mint(t, k, agent(notebook.ScopeRead), time.Hour), ".")[0] + "." + b64(join(goodPayload())) + "." + parts[2],
	} {
		if _, err := k.Verify(s, AudienceAPI, t0); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// nextBase64 changes only the bits of the last character that decode to nothing.
func nextBase64(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)^1]
}

func TestOtherServersTokensAreRefused(t *testing.T) {
	t.Parallel()
	a, b := openKeys(t), openKeys(t)
	if _, err := b.Verify(mint(t, a, person(), time.Hour), AudienceAPI, t0); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("got %v", err)
	}
	// even under our own key's name
	forged := strings.Replace(a.goodHeader(), a.active.id, b.active.id, 1)
	if _, err := b.Verify(a.sign(forged, join(goodPayload())), AudienceAPI, t0); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("got %v", err)
	}
}

type revoked map[string]bool

func (r revoked) Revoked(id string) bool { return r[id] }

func TestRevocation(t *testing.T) {
	t.Parallel()
	rev := revoked{}
	k, err := OpenKeys(filepath.Join(t.TempDir(), "secrets"), rev)
	if err != nil {
		t.Fatal(err)
	}
	tok := mint(t, k, person(), time.Hour)
	c, err := k.Verify(tok, AudienceAPI, t0)
	if err != nil {
		t.Fatal(err)
	}
	rev[c.ID] = true
	if _, err := k.Verify(tok, AudienceAPI, t0); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a revoked token: %v", err)
	}
}

// TestRotation is row W16.
func TestRotation(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "secrets")
	k, err := OpenKeys(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	old := mint(t, k, person(), 10*time.Hour)
	if err := k.Rotate(t0, time.Hour); err != nil {
		t.Fatal(err)
	}
	fresh := mint(t, k, person(), 10*time.Hour)
	reopened, err := OpenKeys(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]*Keys{"same": k, "reopened": reopened} {
		if _, err := k.Verify(old, AudienceAPI, t0.Add(59*time.Minute)); err != nil {
			t.Errorf("%s: old key within the overlap: %v", name, err)
		}
		if _, err := k.Verify(old, AudienceAPI, t0.Add(time.Hour)); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: old key after the overlap: %v", name, err)
		}
		if _, err := k.Verify(fresh, AudienceAPI, t0.Add(2*time.Hour)); err != nil {
			t.Errorf("%s: new key: %v", name, err)
		}
	}
	if err := k.Rotate(t0.Add(2*time.Hour), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Verify(fresh, AudienceAPI, t0.Add(2*time.Hour)); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("rotation without overlap: %v", err)
	}
	jwks, err := k.PublicKeys(t0.Add(3 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(jwks, &set); err != nil || len(set.Keys) != 1 || set.Keys[0]["kid"] != k.active.id {
		t.Errorf("key set: %v %s", err, jwks)
	}
	if strings.Contains(string(jwks), `"d"`) {
		t.Error("the key set holds private parts")
	}
}

func TestSecretsAreKeptAndPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "secrets")
	k, err := OpenKeys(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenKeys(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if k.SignInSecret() != again.SignInSecret() || k.active.id != again.active.id || len(k.SignInSecret()) != 43 {
		t.Error("the secrets changed with the second start")
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 2 {
		t.Errorf("files left behind: %v", entries)
	}
	for _, e := range entries {
		if fi, _ := e.Info(); fi.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), fi.Mode())
		}
	}
	if fi, _ := os.Stat(dir); fi.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v", fi.Mode())
	}
}

func TestUnsafeSecretsAreRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(dir string) error{
		"folder for all":   func(d string) error { return os.Chmod(d, 0o755) },
		"folder for group": func(d string) error { return os.Chmod(d, 0o710) },
		"key for group":    func(d string) error { return os.Chmod(filepath.Join(d, signingFile), 0o640) },
		"secret for all":   func(d string) error { return os.Chmod(filepath.Join(d, signInFile), 0o604) },
		"secret is a link": func(d string) error {
			p := filepath.Join(d, signInFile)
			return errors.Join(os.Rename(p, p+"2"), os.Symlink(p+"2", p))
		},
		"key is a folder": func(d string) error {
			p := filepath.Join(d, signingFile)
			return errors.Join(os.Remove(p), os.Mkdir(p, 0o700))
		},
		"secret is short": func(d string) error { return os.WriteFile(filepath.Join(d, signInFile), []byte("abc\n"), 0o600) },
		"secret is empty": func(d string) error { return os.WriteFile(filepath.Join(d, signInFile), nil, 0o600) },
		"secret is huge": func(d string) error {
			return os.WriteFile(filepath.Join(d, signInFile), make([]byte, maxSecret+1), 0o600)
		},
		"key is no JSON": func(d string) error { return os.WriteFile(filepath.Join(d, signingFile), []byte("x"), 0o600) },
		"key is no key":  func(d string) error { return os.WriteFile(filepath.Join(d, signingFile), []byte("{}"), 0o600) },
		"key is symmetric": func(d string) error {
			return os.WriteFile(filepath.Join(d, signingFile), []byte(`{"active":{"kty":"oct","k":"AAAA"}}`), 0o600)
		},
	} {
		dir := filepath.Join(t.TempDir(), "secrets")
		k, err := OpenKeys(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		_, err = OpenKeys(dir, nil)
		if err == nil {
			t.Errorf("%s: opened", name)
			continue
		}
		if strings.Contains(err.Error(), k.SignInSecret()) {
			t.Errorf("%s: the error holds the secret", name)
		}
	}
}

func TestServersThatStartAtOnceAgree(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "secrets")
	var wg sync.WaitGroup
	keys := make([]*Keys, 8)
	for i := range keys {
		wg.Go(func() { keys[i], _ = OpenKeys(dir, nil) })
	}
	wg.Wait()
	for i, k := range keys {
		if k == nil || k.SignInSecret() != keys[0].SignInSecret() || k.active.id != keys[0].active.id {
			t.Fatalf("server %d has other secrets", i)
		}
	}
}

func FuzzVerify(f *testing.F) {
	k := openKeys(f)
	tok := mint(f, k, person(), time.Hour)
	f.Add(tok)
	f.Add(k.sign(k.goodHeader(), join(goodPayload())))
	f.Add(strings.Repeat(".", 100))
	f.Add("")
	good := map[string]bool{tok: true}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := k.Verify(s, AudienceAPI, t0)
		if err == nil && !good[s] && c.Actor.ID != "ann" {
			t.Fatalf("accepted %q", s)
		}
		if err != nil && !errors.Is(err, ErrUnauthenticated) {
			t.Fatalf("error of another kind: %v", err)
		}
	})
}

// FuzzClaims signs any payload: whatever is accepted must be within bounds.
func FuzzClaims(f *testing.F) {
	k := openKeys(f)
	f.Add(join(goodPayload()))
	f.Add(`{"exp":1e400}`)
	f.Fuzz(func(t *testing.T, body string) {
		if len(body) > 4000 {
			return
		}
		c, err := k.Verify(k.sign(k.goodHeader(), body), AudienceAPI, t0)
		if err != nil {
			return
		}
		if c.validate() != nil || !t0.Before(c.Expires) || c.Audience != AudienceAPI {
			t.Fatalf("accepted %q as %+v", body, c)
		}
	})
}
