package artifacts

import (
	"bytes"
	"encoding/binary"
	"image"
	_ "image/gif"  // registers the header reader
	_ "image/jpeg" // registers the header reader
	_ "image/png"  // registers the header reader
	"math"
	"strconv"
	"strings"
)

// maxSide bounds a picture's side; what claims more has no dimensions.
const maxSide = 1 << 24

// Dimensions reads a picture's size in pixels from its first bytes, without
// decoding it. It is 0 by 0 for what is no picture or does not say; a PDF's is
// its first page's in points.
func Dimensions(mime string, head []byte) (width, height int) {
	head = head[:min(len(head), SniffLen)]
	var w, h float64
	switch mime {
	case "image/png", "image/jpeg", "image/gif":
		c, _, err := image.DecodeConfig(bytes.NewReader(head))
		if err != nil {
			return 0, 0
		}
		w, h = float64(c.Width), float64(c.Height)
	case "image/webp":
		w, h = webp(head)
	case "image/svg+xml":
		w, h = svg(head)
	case "application/pdf":
		w, h = pdf(head)
	}
	w, h = math.Round(w), math.Round(h)
	if !(w >= 1 && h >= 1 && w <= maxSide && h <= maxSide) { // not true of NaN either
		return 0, 0
	}
	return int(w), int(h)
}

// webp reads the first chunk: lossy, lossless or extended.
func webp(p []byte) (w, h float64) {
	if len(p) < 30 || string(p[:4]) != "RIFF" || string(p[8:12]) != "WEBP" {
		return 0, 0
	}
	b := p[20:]
	switch string(p[12:16]) {
	case "VP8 ":
		if b[3] != 0x9d || b[4] != 0x01 || b[5] != 0x2a {
			return 0, 0
		}
		return float64(binary.LittleEndian.Uint16(b[6:]) & 0x3fff), float64(binary.LittleEndian.Uint16(b[8:]) & 0x3fff)
	case "VP8L":
		if b[0] != 0x2f {
			return 0, 0
		}
		n := binary.LittleEndian.Uint32(b[1:])
		return float64(n&0x3fff + 1), float64(n>>14&0x3fff + 1)
	case "VP8X":
		return float64(uint24(b[4:]) + 1), float64(uint24(b[7:]) + 1)
	}
	return 0, 0
}

func uint24(b []byte) uint32 { return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 }

// svg reads width and height, or the viewBox for what they leave open.
func svg(p []byte) (w, h float64) {
	tag, ok := svgTag(p)
	if !ok {
		return 0, 0
	}
	w, h = length(attr(tag, "width")), length(attr(tag, "height"))
	box := strings.FieldsFunc(attr(tag, "viewBox"), func(r rune) bool { return r == ' ' || r == ',' || r == '\n' || r == '\t' })
	if len(box) == 4 {
		bw, bh := number(box[2]), number(box[3])
		switch {
		case bw <= 0 || bh <= 0:
		case w == 0 && h == 0:
			w, h = bw, bh
		case w == 0:
			w = h * bw / bh
		case h == 0:
			h = w * bh / bw
		}
	}
	return w, h
}

// attr finds an attribute of a start tag.
func attr(tag []byte, name string) string {
	s := string(tag[:min(len(tag), 8<<10)])
	for {
		s = strings.TrimLeft(s, " \t\r\n/")
		eq := strings.IndexByte(s, '=')
		if eq < 0 {
			return ""
		}
		key := strings.TrimSpace(s[:eq])
		s = strings.TrimLeft(s[eq+1:], " \t\r\n")
		if s == "" || s[0] != '"' && s[0] != '\'' {
			return ""
		}
		end := strings.IndexByte(s[1:], s[0])
		if end < 0 {
			return ""
		}
		if key == name {
			return s[1 : 1+end]
		}
		s = s[end+2:]
	}
}

// units are CSS lengths in pixels.
var units = []struct {
	suffix string
	px     float64
}{{"px", 1}, {"pt", 96.0 / 72}, {"pc", 16}, {"in", 96}, {"cm", 96 / 2.54}, {"mm", 96 / 25.4}, {"", 1}}

// length is a CSS length in pixels, 0 for what depends on its surroundings.
func length(s string) float64 {
	s = strings.TrimSpace(s)
	for _, u := range units {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			return number(n) * u.px
		}
	}
	return 0
}

func number(s string) float64 {
	if len(s) > 32 {
		return 0
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) || f < 0 {
		return 0
	}
	return f
}

// pdf finds the first MediaBox. Many files have it further back or compressed;
// then the size is not known.
func pdf(p []byte) (w, h float64) {
	i := bytes.Index(p, []byte("/MediaBox"))
	if i < 0 {
		return 0, 0
	}
	s := p[i+len("/MediaBox"):]
	s = bytes.TrimLeft(s, " \t\r\n")
	if len(s) == 0 || s[0] != '[' {
		return 0, 0
	}
	end := bytes.IndexByte(s[:min(len(s), 200)], ']')
	if end < 0 {
		return 0, 0
	}
	f := strings.Fields(string(s[1:end]))
	if len(f) != 4 {
		return 0, 0
	}
	var n [4]float64
	for i, v := range f {
		x, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return 0, 0
		}
		n[i] = x
	}
	return math.Abs(n[2] - n[0]), math.Abs(n[3] - n[1])
}
