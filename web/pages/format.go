package pages

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandbook/web/render"
)

func pressed(b bool) string { return strconv.FormatBool(b) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func millis(d time.Duration) string { return strconv.FormatInt(max(0, d.Milliseconds()), 10) }

func itoa[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// preformatted makes a <pre> exactly of what it is given: the first newline,
// which a parser would drop, is doubled.
func preformatted(class, id string, h render.HTML, attrs string) render.HTML {
	var b strings.Builder
	b.WriteString(`<pre class="` + class + `"`)
	if id != "" {
		b.WriteString(` id="` + id + `"`)
	}
	b.WriteString(attrs + ">")
	if strings.HasPrefix(string(h), "\n") {
		b.WriteString("\n")
	}
	b.WriteString(string(h))
	b.WriteString("</pre>")
	return render.HTML(b.String())
}

// Lines wraps each line of a stream in an element of its own, so that a page
// can drop, replace and add lines by number.
func Lines(lines []render.HTML, last bool) render.HTML {
	var b strings.Builder
	for i, l := range lines {
		b.WriteString("<span>")
		b.WriteString(string(l))
		if !last || i < len(lines)-1 {
			b.WriteString("\n")
		}
		b.WriteString("</span>")
	}
	return render.HTML(b.String())
}

// dirName splits a path for showing: the folder quietly, then the name.
func dirName(p string) (dir, name string) {
	i := strings.LastIndexByte(p, '/')
	return p[:i+1], p[i+1:]
}

// Clock is what a head shows that changes by itself: the time, and the place in
// the queue.
type Clock struct {
	Now   time.Time
	Place int
}

// quote carries a text through an attribute unharmed: a parser would change
// its line ends.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}

// joined puts a middle dot between what there is.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " · ")
}
