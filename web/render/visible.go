package render

import (
	"fmt"
	"strings"
	"unicode"
)

// strictness says which characters are shown as their code point.
type strictness int

const (
	// prose hides nothing that could reorder text or smuggle it, and keeps
	// the joiners and marks that real writing needs.
	prose strictness = iota
	// exact is for code and terminals, where what is seen must be what runs.
	exact
)

// maxMarks bounds how many spans one text may spend on hidden characters; after
// that they are written without markup.
const maxMarks = 2000

// names of the characters people meet; the others are shown by number alone.
var invisibleNames = map[rune]string{
	0x00AD: "soft hyphen", 0x034F: "combining grapheme joiner", 0x061C: "Arabic letter mark",
	0x115F: "Hangul filler", 0x1160: "Hangul filler", 0x17B4: "Khmer inherent vowel", 0x17B5: "Khmer inherent vowel",
	0x180E: "Mongolian vowel separator",
	0x200B: "zero width space", 0x200C: "zero width non-joiner", 0x200D: "zero width joiner",
	0x200E: "left-to-right mark", 0x200F: "right-to-left mark",
	0x2028: "line separator", 0x2029: "paragraph separator",
	0x202A: "left-to-right embedding", 0x202B: "right-to-left embedding", 0x202C: "pop directional formatting",
	0x202D: "left-to-right override", 0x202E: "right-to-left override",
	0x2060: "word joiner", 0x2061: "function application", 0x2062: "invisible times",
	0x2063: "invisible separator", 0x2064: "invisible plus",
	0x2066: "left-to-right isolate", 0x2067: "right-to-left isolate", 0x2068: "first strong isolate",
	0x2069: "pop directional isolate",
	0x2800: "Braille blank", 0x3164: "Hangul filler", 0xFEFF: "zero width no-break space", 0xFFA0: "half-width Hangul filler",
}

// hidden says whether r must be shown as its code point, given its neighbours.
func hidden(prev, r, next rune, how strictness) bool {
	switch {
	case r < 0x20:
		return r != '\n' && r != '\t'
	case r < 0x7F:
		return false
	case r < 0xA0: // DEL and C1
		return true
	case r == 0x200C || r == 0x200D:
		return !joins(prev, next)
	case r >= 0xFE00 && r <= 0xFE0F: // variation selectors: one after a visible character
		return prev == 0 || variation(prev) || prev <= ' '
	case r >= 0xE0100 && r <= 0xE01EF: // ideographic variations, and smuggled bytes
		return !unicode.Is(unicode.Han, prev)
	case r >= 0xE0000 && r <= 0xE0FFF: // tags
		return true
	case r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x206F, r == 0x2028, r == 0x2029:
		return true
	case r >= 0xFFF9 && r <= 0xFFFB, r >= 0xFDD0 && r <= 0xFDEF, r&0xFFFE == 0xFFFE, r >= 0xD800 && r <= 0xDFFF:
		return true
	case r >= 0x1D173 && r <= 0x1D17A: // musical format controls
		return true
	}
	if how == prose {
		return false
	}
	if _, ok := invisibleNames[r]; ok {
		return true
	}
	return unicode.Is(unicode.Cf, r)
}

func variation(r rune) bool {
	return r >= 0xFE00 && r <= 0xFE0F || r >= 0xE0100 && r <= 0xE01EF
}

// joins says whether a joiner between two characters is part of real writing:
// an emoji sequence, or a script that shapes its letters.
func joins(prev, next rune) bool {
	emoji := func(r rune) bool { return r >= 0x1F000 && r <= 0x1FAFF || r >= 0x2190 && r <= 0x2BFF || r == 0xFE0F }
	if emoji(prev) && emoji(next) {
		return true
	}
	return shaped(prev) && shaped(next)
}

func shaped(r rune) bool {
	if r < 0x0600 {
		return false
	}
	return unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi,
		unicode.Gujarati, unicode.Oriya, unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam,
		unicode.Sinhala, unicode.Khmer, unicode.Myanmar, unicode.Mongolian)
}

func nextRune(s string, i int, r rune) rune {
	if r != 0x200C && r != 0x200D {
		return 0 // only the joiners look ahead
	}
	for j, n := range s[i:] {
		if j > 0 {
			return n
		}
	}
	return 0
}

// writer escapes text into HTML and counts the marks it has spent.
type writer struct {
	strings.Builder
	how   strictness
	marks int
	prev  rune
}

// text writes s as text content. s must be valid UTF-8.
func (w *writer) text(s string) {
	for i, r := range s {
		if hidden(w.prev, r, nextRune(s, i, r), w.how) {
			w.mark(r)
		} else {
			w.rune(r)
		}
		w.prev = r
	}
}

func (w *writer) rune(r rune) {
	switch r {
	case '<':
		w.WriteString("&lt;")
	case '>':
		w.WriteString("&gt;")
	case '&':
		w.WriteString("&amp;")
	case '"':
		w.WriteString("&#34;")
	case '\'':
		w.WriteString("&#39;")
	default:
		w.WriteRune(r)
	}
}

// mark shows one hidden character.
func (w *writer) mark(r rune) {
	shown, title := markText(r), markTitle(r)
	if w.marks >= maxMarks {
		w.WriteString(shown)
		return
	}
	w.marks++
	w.WriteString(`<span class="invisible" title="`)
	w.WriteString(title)
	w.WriteString(`">`)
	w.WriteString(shown)
	w.WriteString("</span>")
}

// markText is what stands for a hidden character: its control picture, or its
// code point. Neither needs escaping.
func markText(r rune) string {
	switch {
	case r < 0x20:
		return string(rune(0x2400 + r))
	case r == 0x7F:
		return "\u2421"
	}
	return fmt.Sprintf("\u27E8U+%04X\u27E9", r)
}

func markTitle(r rune) string {
	if name, ok := invisibleNames[r]; ok {
		return fmt.Sprintf("Hidden character U+%04X, %s", r, name)
	}
	return fmt.Sprintf("Hidden character U+%04X", r)
}

// Visible escapes s for a page, showing every character that could hide or
// reorder text. Use it for source code and for names that came from outside.
func Visible(s string) HTML {
	w := &writer{how: exact}
	w.text(validUTF8(s))
	return HTML(w.String())
}

// attr makes s safe as the value of a double-quoted attribute. Hidden
// characters become U+FFFD there, for an attribute cannot hold markup.
func attr(s string) string {
	var w writer
	prev := rune(0)
	s = validUTF8(s)
	for i, r := range s {
		if hidden(prev, r, nextRune(s, i, r), exact) {
			w.WriteRune(0xFFFD)
		} else {
			w.rune(r)
		}
		prev = r
	}
	return w.String()
}
