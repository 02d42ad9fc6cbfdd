package render

import "strings"

const maxTraceback = 1 << 20

// Traceback renders an error: its name and message, then the frames as the
// kernel wrote them for a terminal.
func Traceback(ename, evalue string, frames []string) HTML {
	var b strings.Builder
	name, _ := clip(validUTF8(ename), 500)
	value, cut := clip(validUTF8(evalue), 20000)
	b.WriteString(`<div class="traceback"><p class="traceback-head"><span class="traceback-name">`)
	b.WriteString(string(Visible(name)))
	b.WriteString("</span>")
	if value != "" {
		b.WriteString(`: <span class="traceback-value">` + string(ANSI(value)))
		if cut {
			b.WriteString("…")
		}
		b.WriteString("</span>")
	}
	b.WriteString("</p>")
	if text := strings.Join(frames, "\n"); strings.TrimSpace(text) != "" {
		text, cut := clip(validUTF8(text), maxTraceback)
		b.WriteString(`<pre class="ansi">` + pre(ANSI(text)) + "</pre>")
		if cut {
			b.WriteString(`<p class="note">The rest of this traceback is too long to show here.</p>`)
		}
	}
	b.WriteString("</div>")
	return HTML(b.String())
}

// Text renders plain output as a block of its own.
func Text(s string) HTML {
	return HTML(`<pre class="ansi">` + pre(ANSI(s)) + "</pre>")
}

// pre keeps a first newline, which a parser would drop after <pre>.
func pre(h HTML) string {
	if strings.HasPrefix(string(h), "\n") {
		return "\n" + string(h)
	}
	return string(h)
}
