// Package render turns hostile output into safe HTML: terminal text, Markdown,
// code, JSON, tracebacks and whole MIME bundles. Everything it returns may be
// put into a page of the application as it is.
//
// It is pure: no I/O, no clock, no goroutine, no state. It is not a browser:
// whatever needs scripts or styles of its own is not made safe here but handed
// back as a Frame, to be shown in a sandboxed frame from another origin.
//
// # What a string of type HTML promises
//
//   - it is balanced: put into a <div> it stays inside that <div>;
//   - it holds no script, style, frame, form control, SVG or MathML element, no
//     event handler, no style attribute and no data-* attribute;
//   - links are http, https, mailto, in-page, or below Options.FilesBase, and
//     carry rel="noopener noreferrer nofollow"; images are data: URLs of raster
//     types (SVG only where this package made the URL), blobs named by
//     Options.BlobURL, or below Options.FilesBase;
//   - ids begin with "doc-", and there is no name attribute;
//   - it holds no control character but tab and newline, and characters that
//     could hide or reorder text are shown as their code point.
//
// # Classes
//
// Terminal text uses ansi-bold, ansi-dim, ansi-italic, ansi-underline,
// ansi-strike, ansi-inverse, ansi-fg-0 … ansi-fg-255 and ansi-bg-0 …
// ansi-bg-255 (0–15 take the colours of the theme; Stylesheet has the rest).
// Code uses the tok-* classes of CodeMirror's classHighlighter, so that a
// listing and an editor look the same. Hidden characters use "invisible",
// formulas "math inline" and "math display", JSON "json…", tracebacks
// "traceback", tables made by data-frame libraries "dataframe".
package render

import (
	"strings"
	"unicode/utf8"
)

// HTML is markup that is safe in a page of the application. Only this package
// makes values of it.
type HTML string

// validUTF8 replaces what is not UTF-8, so that no decoder after us guesses.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// clip cuts s to at most n bytes at a rune boundary and says whether it did.
func clip(s string, n int) (string, bool) {
	if len(s) <= n {
		return s, false
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n], true
}
