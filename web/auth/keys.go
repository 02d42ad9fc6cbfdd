// Package auth answers who is asking: it makes and checks the tokens of people
// and agents, the sign-in secret, one-time tickets for sockets, and the origin
// of requests. What somebody may do is not decided here but in kernel/policy.
//
// Every check refuses unless it can say yes. Errors wrap ErrUnauthenticated,
// ErrOrigin or ErrTooMany; their text is for the log, the page says less. No
// error, and nothing else of this package but the functions that return one,
// holds a secret.
package auth

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	signingFile = "signing.json"
	signInFile  = "sign-in"
	maxSecret   = 64 << 10
)

// Keys holds the server's secrets. It is safe for concurrent use.
type Keys struct {
	dir    string
	signIn [sha256.Size]byte // hash, for comparison
	secret string

	mu      sync.RWMutex
	active  key
	public  map[string]publicKey // by thumbprint: the active key and those that retire
	revoked Revocations
}

type key struct {
	id      string
	private ed25519.PrivateKey
}

type publicKey struct {
	key   ed25519.PublicKey
	until time.Time // zero for the active key
}

// Revocations says which tokens were taken back before they expired. It must
// be quick and safe for concurrent use.
type Revocations interface {
	Revoked(tokenID string) bool
}

// signingKeys is the file of the signing keys.
type signingKeys struct {
	Active   jose.JSONWebKey `json:"active"`
	Retiring []retiringKey   `json:"retiring,omitempty"`
}

type retiringKey struct {
	Key   jose.JSONWebKey `json:"key"`
	Until int64           `json:"until"` // unix seconds
}

// OpenKeys reads the secrets of a folder and makes those that are not there yet.
// It refuses a folder or a file that other users of the machine can read. rev
// may be nil.
func OpenKeys(dir string, rev Revocations) (*Keys, error) {
	if err := privateFolder(dir); err != nil {
		return nil, err
	}
	k := &Keys{dir: dir, revoked: rev}
	secret, err := readOrCreate(filepath.Join(dir, signInFile), func() ([]byte, error) {
		return []byte(randomText(32) + "\n"), nil
	})
	if err != nil {
		return nil, err
	}
	k.secret = trimNewline(string(secret))
	if raw, err := base64.RawURLEncoding.DecodeString(k.secret); err != nil || len(raw) < 32 {
		return nil, fmt.Errorf("%w: %s is not a sign-in secret. Delete it, and a new one is made at the next start", errNotPrivate, filepath.Join(dir, signInFile))
	}
	k.signIn = sha256.Sum256([]byte(k.secret))
	signing, err := readOrCreate(filepath.Join(dir, signingFile), newSigningFile)
	if err != nil {
		return nil, err
	}
	if err := k.load(signing); err != nil {
		return nil, err
	}
	return k, nil
}

func trimNewline(s string) string {
	for len(s) > 0 && (s[len(s)-1] == '\n' || s[len(s)-1] == '\r') {
		s = s[:len(s)-1]
	}
	return s
}

// SignInSecret is what the sign-in link carries. It is shown to whoever starts
// the server, and nowhere else.
func (k *Keys) SignInSecret() string { return k.secret }

// signInMatches compares in constant time.
func (k *Keys) signInMatches(secret string) bool {
	sum := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(sum[:], k.signIn[:]) == 1
}

// randomText returns n random bytes in base64url.
func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

func newKey() (jose.JSONWebKey, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return jose.JSONWebKey{}, fmt.Errorf("make a signing key: %w", err)
	}
	return jose.JSONWebKey{Key: private, Algorithm: string(jose.EdDSA), Use: "sig"}, nil
}

func newSigningFile() ([]byte, error) {
	jwk, err := newKey()
	if err != nil {
		return nil, err
	}
	return json.Marshal(signingKeys{Active: jwk})
}

var errNoSigningKey = errors.New("the file of signing keys cannot be used")

// load replaces the keys in memory by those of a file.
func (k *Keys) load(data []byte) error {
	var f signingKeys
	if err := json.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("%w: %s: not JSON of the expected form", errNoSigningKey, filepath.Join(k.dir, signingFile))
	}
	private, ok := f.Active.Key.(ed25519.PrivateKey)
	if !ok || len(private) != ed25519.PrivateKeySize {
		return fmt.Errorf("%w: %s: the active key is no private Ed25519 key", errNoSigningKey, filepath.Join(k.dir, signingFile))
	}
	id, public, err := thumbprint(f.Active.Public())
	if err != nil {
		return err
	}
	keys := map[string]publicKey{id: {key: public}}
	for _, r := range f.Retiring {
		rid, pub, err := thumbprint(r.Key)
		if err != nil {
			return err
		}
		if rid != id {
			keys[rid] = publicKey{key: pub, until: time.Unix(r.Until, 0)}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.active, k.public = key{id: id, private: private}, keys
	return nil
}

// thumbprint is a key's id, RFC 7638.
func thumbprint(jwk jose.JSONWebKey) (string, ed25519.PublicKey, error) {
	public, ok := jwk.Key.(ed25519.PublicKey)
	if !ok || len(public) != ed25519.PublicKeySize {
		return "", nil, fmt.Errorf("%w: a key is no public Ed25519 key", errNoSigningKey)
	}
	sum, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errNoSigningKey, err)
	}
	return base64.RawURLEncoding.EncodeToString(sum), public, nil
}

// Rotate makes a new signing key. Tokens of the old one stay valid for overlap.
// Signing out everybody at once is Rotate with no overlap.
func (k *Keys) Rotate(now time.Time, overlap time.Duration) error {
	data, err := readPrivate(filepath.Join(k.dir, signingFile))
	if err != nil {
		return err
	}
	var f signingKeys
	if err := json.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("%w: not JSON of the expected form", errNoSigningKey)
	}
	next := signingKeys{}
	for _, r := range f.Retiring {
		if time.Unix(r.Until, 0).After(now) {
			next.Retiring = append(next.Retiring, r)
		}
	}
	if overlap > 0 {
		next.Retiring = append(next.Retiring, retiringKey{Key: f.Active.Public(), Until: now.Add(overlap).Unix()})
	}
	if next.Active, err = newKey(); err != nil {
		return err
	}
	if data, err = json.Marshal(next); err != nil {
		return fmt.Errorf("write signing keys: %w", err)
	}
	if err := replace(filepath.Join(k.dir, signingFile), data); err != nil {
		return err
	}
	return k.load(data)
}

// PublicKeys returns the public parts as a JWK set, for whoever checks tokens
// of this server.
func (k *Keys) PublicKeys(now time.Time) ([]byte, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for id, p := range k.public {
		if p.until.IsZero() || now.Before(p.until) {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: p.key, KeyID: id, Algorithm: string(jose.EdDSA), Use: "sig"})
		}
	}
	return json.Marshal(set)
}

// privateFolder makes the folder of the secrets, or checks the one there is.
func privateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of secrets: %w", err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at the folder of secrets: %w", err)
	}
	if !fi.IsDir() {
		return fmt.Errorf("%w: %s is not a folder", errNotPrivate, dir)
	}
	return onlyOurs(fi, dir, "700")
}

var errNotPrivate = errors.New("secrets are not private")

func onlyOurs(fi fs.FileInfo, path, mode string) error {
	if fi.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s can be opened by other users of this machine. Run “chmod %s %s”, and if others may have read it, delete it to get a new one", errNotPrivate, path, mode, path)
}

// readPrivate reads a file that is a file, ours alone, and not large.
func readPrivate(path string) ([]byte, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", errNotPrivate, path)
	}
	if err := onlyOurs(before, path, "600"); err != nil {
		return nil, err
	}
	if before.Size() > maxSecret {
		return nil, fmt.Errorf("%w: %s is too large", errNotPrivate, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	after, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(before, after) {
		return nil, fmt.Errorf("%w: %s changed while it was opened", errNotPrivate, path)
	}
	data := make([]byte, after.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

// readOrCreate reads a secret, or makes it if there is none. When two servers
// start at once, one makes it and both read it.
func readOrCreate(path string, create func() ([]byte, error)) ([]byte, error) {
	data, err := readPrivate(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	fresh, err := create()
	if err != nil {
		return nil, err
	}
	temp, err := writeBeside(path, fresh)
	if err != nil {
		return nil, err
	}
	defer os.Remove(temp)
	if err := os.Link(temp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	syncFolder(filepath.Dir(path))
	return readPrivate(path)
}

// replace exchanges a secret in one step.
func replace(path string, data []byte) error {
	temp, err := writeBeside(path, data)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("replace %s: %w", path, err)
	}
	syncFolder(filepath.Dir(path))
	return nil
}

func writeBeside(path string, data []byte) (string, error) {
	temp := path + "." + randomText(9) + ".tmp"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("write a secret: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		_ = os.Remove(temp)
		return "", fmt.Errorf("write a secret: %w", err)
	}
	return temp, nil
}

// syncFolder makes a new name last; a file system that cannot is no reason to stop.
func syncFolder(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
