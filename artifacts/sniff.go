package artifacts

import (
	"bytes"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"
)

// SniffLen is how much of a file Sniff and Dimensions look at.
const SniffLen = 64 << 10

// octets is the type of everything that is not known to be harmless.
const octets = "application/octet-stream"

// magics are the types told by content alone, in order.
var magics = []struct {
	at   int
	sig  string
	mime string
}{
	{0, "\x89PNG\r\n\x1a\n", "image/png"},
	{0, "\xff\xd8\xff", "image/jpeg"},
	{0, "GIF87a", "image/gif"},
	{0, "GIF89a", "image/gif"},
	{8, "WEBP", "image/webp"}, // and RIFF in front
	{0, "%PDF-", "application/pdf"},
	{0, "PAR1", "application/vnd.apache.parquet"},
	{0, "\x93NUMPY", "application/x-npy"},
	{0, "PK\x03\x04", "application/zip"},
	{0, "PK\x05\x06", "application/zip"},
	{0, "\x1f\x8b", "application/gzip"},
	{0, "SQLite format 3\x00", "application/vnd.sqlite3"},
	{0, "OggS", "audio/ogg"},
	{0, "fLaC", "audio/flac"},
	{0, "ID3", "audio/mpeg"},
	{8, "WAVE", "audio/wav"}, // and RIFF in front
	{4, "ftyp", "video/mp4"},
	{0, "\x1aE\xdf\xa3", "video/webm"},
	{0, "BM", "image/bmp"}, // two letters, so the rest must look right, too
	{0, "II*\x00", "image/tiff"},
	{0, "MM\x00*", "image/tiff"},
	{257, "ustar", "application/x-tar"},
	{0, "\x7fELF", "application/x-executable"},
}

// zips are formats that are ZIP files, by the file's name.
var zips = map[string]string{
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".npz":  "application/x-npz",
}

// texts are the types of text, by the file's name.
var texts = map[string]string{
	".csv": "text/csv", ".tsv": "text/tab-separated-values", ".json": "application/json",
	".jsonl": "application/x-ndjson", ".ndjson": "application/x-ndjson", ".geojson": "application/geo+json",
	".ipynb": "application/x-ipynb+json", ".md": "text/markdown", ".py": "text/x-python", ".r": "text/x-r",
	".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".html": "text/html", ".htm": "text/html",
	".xhtml": "application/xhtml+xml", ".xml": "application/xml", ".svg": "image/svg+xml",
	".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml", ".tex": "text/x-tex",
	".sql": "application/sql", ".sh": "application/x-sh", ".log": "text/plain", ".txt": "text/plain",
}

// Sniff tells the type of a file from its first bytes and, among texts and
// ZIP-based formats, its name. A name never turns bytes into a picture or
// text: what contradicts its name is application/octet-stream. The type says
// what the file is, not that a browser may show it: see Inline.
func Sniff(name string, head []byte) string {
	head = head[:min(len(head), SniffLen)]
	ext := strings.ToLower(path.Ext(name))
	if m := magic(head); m != "" {
		if z, ok := zips[ext]; ok && m == "application/zip" {
			return z
		}
		return m
	}
	if !isText(head) {
		return octets
	}
	m, named := texts[ext]
	switch {
	case m == "image/svg+xml":
		if !looksSVG(head) {
			return "text/plain"
		}
		return m
	case named:
		return m
	case len(head) == 0:
		return octets
	case looksSVG(head):
		return "image/svg+xml"
	case strings.HasPrefix(http.DetectContentType(head), "text/html"):
		return "text/html"
	}
	return "text/plain"
}

func magic(head []byte) string {
	for _, m := range magics {
		if len(head) < m.at+len(m.sig) || string(head[m.at:m.at+len(m.sig)]) != m.sig {
			continue
		}
		switch {
		case m.at == 8 && string(head[:4]) != "RIFF":
		case m.mime == "image/bmp" && (len(head) < 14 || head[6]|head[7]|head[8]|head[9] != 0):
		default:
			return m.mime
		}
	}
	return ""
}

// isText reports whether head is UTF-8 without control characters; a character
// cut off at the end is fine.
func isText(head []byte) bool {
	head = bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	for i := 0; i < len(head); {
		r, n := utf8.DecodeRune(head[i:])
		if r == utf8.RuneError && n == 1 {
			return len(head)-i < utf8.UTFMax && !utf8.FullRune(head[i:])
		}
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' && r != '\f' && r != 0x1b || r == 0x7f {
			return false
		}
		i += n
	}
	return true
}

// looksSVG reports whether the first element of a text is svg.
func looksSVG(head []byte) bool {
	_, ok := svgTag(head)
	return ok
}

// svgTag returns the start tag of the root element if that is svg, as far as
// it is there, after the prolog, comments and a document type.
func svgTag(head []byte) (tag []byte, ok bool) {
	s := bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	for range 64 {
		s = bytes.TrimLeft(s, " \t\r\n")
		var end []byte
		switch {
		case bytes.HasPrefix(s, []byte("<?")):
			end = []byte("?>")
		case bytes.HasPrefix(s, []byte("<!--")):
			end = []byte("-->")
		case bytes.HasPrefix(s, []byte("<!")):
			if i, j := bytes.IndexByte(s, '['), bytes.IndexByte(s, '>'); i >= 0 && i < j {
				end = []byte("]>")
			} else {
				end = []byte(">")
			}
		case bytes.HasPrefix(s, []byte("<svg")) && len(s) > 4 && strings.IndexByte(" \t\r\n>/", s[4]) >= 0:
			return s[4:closing(s)], true
		case bytes.HasPrefix(s, []byte("<svg:svg")) && len(s) > 8 && strings.IndexByte(" \t\r\n>/", s[8]) >= 0:
			return s[8:closing(s)], true
		default:
			return nil, false
		}
		i := bytes.Index(s, end)
		if i < 0 {
			return nil, false
		}
		s = s[i+len(end):]
	}
	return nil, false
}

// closing finds the end of a start tag, minding quotes.
func closing(s []byte) int {
	var quote byte
	for i, c := range s {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '>':
			return i
		}
	}
	return len(s)
}

// inline are the types a browser may show as they are from our own origin:
// none of them can run a script there.
var inline = map[string]bool{
	"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true,
	"audio/ogg": true, "audio/flac": true, "audio/mpeg": true, "audio/wav": true, "video/mp4": true, "video/webm": true,
	"text/plain": true,
}

// Inline reports whether a file of this type may be shown by the browser.
// Everything else is only ever downloaded.
func Inline(mime string) bool { return inline[mime] }

// Served is the Content-Type to send for a file of this type: its own if it
// may be shown, else application/octet-stream, which a browser only saves. It
// goes with nosniff always.
func Served(mime string) string {
	switch {
	case mime == "text/plain":
		return "text/plain; charset=utf-8"
	case Inline(mime):
		return mime
	}
	return octets
}
