package render

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

// Options say where links and blobs of one notebook live.
type Options struct {
	// FilesBase is the path below which the notebook's files are served; it
	// begins and ends with a slash. Relative links and images lead below it;
	// when it is empty they lead nowhere.
	FilesBase string

	// BlobURL gives the path of a stored value, served with its type, nosniff
	// and a sandboxing policy. When nil, stored values are only named.
	BlobURL func(hash, mime string) string

	// Scope keeps footnotes of several Markdown cells on one page apart;
	// letters, digits and dashes. The cell's id is a good one.
	Scope string

	// Say puts a sentence of this package into the reader's language; nil:
	// English.
	Say func(en string) string

	// Work bounds what a page takes to format, and Cache saves doing it again.
	// Both may be nil.
	Work  *Work
	Cache *Cache
}

var (
	mailto    = regexp.MustCompile(`^mailto:[A-Za-z0-9._%+\-]{1,64}@[A-Za-z0-9.\-]{1,253}$`)
	dataImage = regexp.MustCompile(`^data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+={0,2})$`)
	footnote  = regexp.MustCompile(`^doc-[A-Za-z0-9\-]*fn(ref)?[0-9]*:[0-9]+$`)
)

// maxDataURL bounds an image carried inside a text.
const maxDataURL = 8 << 20

// link judges where a link may lead. host is set when it leaves the site.
func (o Options) link(raw string, from flavour) (href, host string, ok bool) {
	raw = strings.Trim(raw, " \t\r\n\f")
	if frag, isFrag := strings.CutPrefix(raw, "#"); isFrag {
		if from != fromMarkdown {
			return "", "", false
		}
		if footnote.MatchString(frag) {
			return raw, "", true
		}
		if plain, err := url.PathUnescape(frag); err == nil {
			frag = plain
		}
		href = "#doc-" + slug(strings.TrimPrefix(frag, "doc-"))
		return href, "", docRef.MatchString(href)
	}
	if mailto.MatchString(raw) {
		return raw, "", true
	}
	if href, host, ok = webURL(raw); ok {
		return href, host, true
	}
	href, ok = o.file(raw)
	return href, "", ok
}

// image judges where an image may come from.
func (o Options) image(raw string) (string, bool) {
	raw = strings.Trim(raw, " \t\r\n\f")
	if len(raw) >= 5 && strings.EqualFold(raw[:5], "data:") {
		return raw, validDataImage(raw)
	}
	return o.file(raw)
}

func validDataImage(raw string) bool {
	if len(raw) > maxDataURL {
		return false
	}
	m := dataImage.FindStringSubmatch(raw)
	return m != nil && len(m[2])%4 == 0
}

// allowDataURL is the same judgement for the last gate, which has parsed the
// URL already.
func allowDataURL(u *url.URL) bool {
	return u.Fragment == "" && u.RawQuery == "" && validDataImage("data:"+u.Opaque)
}

// file resolves a relative path below FilesBase; nothing leads out of it.
func (o Options) file(raw string) (string, bool) {
	if !strings.HasPrefix(o.FilesBase, "/") || strings.HasPrefix(o.FilesBase, "//") || !strings.HasSuffix(o.FilesBase, "/") {
		return "", false
	}
	raw, _, _ = strings.Cut(raw, "#")
	raw, _, _ = strings.Cut(raw, "?")
	if raw == "" || len(raw) > maxURL || raw[0] == '/' {
		return "", false
	}
	plain, err := url.PathUnescape(raw)
	if err != nil {
		return "", false
	}
	var out []string
	for i, seg := range strings.Split(plain, "/") {
		switch {
		case seg == "..":
			return "", false
		case seg == "" || seg == ".":
			continue
		case i == 0 && strings.Contains(seg, ":"): // a scheme, or what a browser may take for one
			return "", false
		}
		for _, r := range seg {
			if r == '\\' || unicode.IsControl(r) || hidden(0, r, 0, exact) {
				return "", false
			}
		}
		out = append(out, url.PathEscape(seg))
	}
	if len(out) == 0 {
		return "", false
	}
	return o.FilesBase + strings.Join(out, "/"), true
}

// slug makes the part of a heading's id that follows "doc-": what Jupyter and
// other hosts of Markdown make, folded to lower case, so that links written
// for either arrive.
func slug(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.ToLower(strings.TrimSpace(s)) {
		if n == 80 {
			break
		}
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '.' || r == '-':
			b.WriteRune(r)
		case unicode.IsSpace(r):
			b.WriteByte('-')
		default:
			continue
		}
		n++
	}
	if b.Len() == 0 {
		return "section"
	}
	return b.String()
}

// cleanBase64 removes the line breaks Jupyter puts into binary values and
// checks the rest.
func cleanBase64(s string) (string, bool) {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == ' ' || r == '\t' {
			return -1
		}
		return r
	}, s)
	if s == "" || len(s)%4 != 0 {
		return "", false
	}
	if _, err := base64.StdEncoding.DecodeString(s); err != nil {
		return "", false
	}
	return s, true
}
