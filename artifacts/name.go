package artifacts

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxName = 200 // bytes of a file name in a header

// Name makes a file name that is safe to show and to save: the last part of
// the path, without control characters, marks that turn the direction of text,
// and what file systems treat as special. It is never empty.
func Name(path string) string {
	path = strings.TrimRight(path, `/\`)
	if i := strings.LastIndexAny(path, `/\`); i >= 0 {
		path = path[i+1:]
	}
	var b strings.Builder
	for _, r := range path {
		switch {
		case r == utf8.RuneError, unicode.In(r, unicode.Cf, unicode.Cc, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp):
			continue
		case strings.ContainsRune(`<>:"|?*`, r):
			r = '_'
		case unicode.IsSpace(r):
			r = ' '
		}
		if b.WriteRune(r); b.Len() > 2*maxName {
			break
		}
	}
	// Windows drops dots and spaces at the end, and dots in front hide a file.
	name := strings.Trim(b.String(), ". ")
	if stem, _, _ := strings.Cut(strings.ToUpper(name), "."); reserved[strings.TrimSpace(stem)] {
		name = "_" + name
	}
	if name == "" {
		return "file"
	}
	return strings.TrimRight(cut(name, maxName), ". ")
}

// cut shortens s to at most n bytes and leaves no half of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// reserved are names Windows takes for devices.
var reserved = map[string]bool{
	"CON": true, "PRN": true, "AUX": true, "NUL": true,
	"COM1": true, "COM2": true, "COM3": true, "COM4": true, "COM5": true, "COM6": true, "COM7": true, "COM8": true, "COM9": true,
	"LPT1": true, "LPT2": true, "LPT3": true, "LPT4": true, "LPT5": true, "LPT6": true, "LPT7": true, "LPT8": true, "LPT9": true,
}

// Attachment is the Content-Disposition that makes a browser save the file
// under a safe form of its name (RFC 6266, RFC 8187).
func Attachment(path string) string { return disposition("attachment", path) }

// Disposition is inline for what a browser may show, else Attachment.
func Disposition(mime, path string) string {
	if Inline(mime) {
		return disposition("inline", path)
	}
	return Attachment(path)
}

func disposition(kind, path string) string {
	name := Name(path)
	var plain, full strings.Builder
	ascii := true
	for i := range len(name) {
		c := name[i]
		switch {
		case c < 0x20 || c >= 0x7f:
			ascii = false
			if utf8.RuneStart(c) {
				plain.WriteByte('_')
			}
		case c == '"' || c == '\\' || c == '%': // some browsers decode %xx here
			ascii = ascii && c != '%'
			plain.WriteByte('_')
		default:
			plain.WriteByte(c)
		}
		if isAttrChar(c) {
			full.WriteByte(c)
		} else {
			const hex = "0123456789ABCDEF"
			full.WriteString("%" + string(hex[c>>4]) + string(hex[c&15]))
		}
	}
	if ascii {
		return kind + `; filename="` + plain.String() + `"`
	}
	return kind + `; filename="` + plain.String() + `"; filename*=UTF-8''` + full.String()
}

// isAttrChar is attr-char of RFC 8187.
func isAttrChar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("!#$&+-.^_`|~", c) >= 0
}
