package render

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	_ "image/gif"  // dimensions of inline images
	_ "image/jpeg" // dimensions of inline images
	_ "image/png"  // dimensions of inline images
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// Value is one representation of an output. Small ones are Text (base64 for
// binary types, a JSON text for JSON types); large ones are stored, and Blob is
// their sha256 in hex.
type Value struct {
	Text string
	Blob string
	Size int64 // bytes of the stored value

	// Width and Height of an image in pixels, where they are known.
	Width, Height int
}

// Bundle is the representations of one output by MIME type.
type Bundle map[string]Value

// Tier says how an output is shown.
type Tier int

// The tiers, in the order of trust.
const (
	TierPlain     Tier = 1 // written by this package from data
	TierSanitized Tier = 2 // HTML of the output, without anything active
	TierActive    Tier = 3 // in a sandboxed frame from another origin
)

// Output is how a bundle is shown. HTML is always safe and always there: for
// TierActive it is the static fallback, which stands until the frame has drawn
// and when it cannot.
type Output struct {
	Tier  Tier
	Mime  string // the representation that was chosen
	HTML  HTML
	Frame *Frame // for TierActive only
}

// Frame is what a sandboxed frame is to draw. It is not safe in the page.
type Frame struct {
	Mime string
	Text string // or, when empty,
	Blob string // the stored value

	// Hosts are other hosts the content wants to load from, which frames may
	// not; the page says so when the frame stays empty.
	Hosts []string
}

const maxInline = 8 << 20 // of an inline image; larger ones belong into blobs

var (
	blobHash  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	mimeType  = regexp.MustCompile(`^[a-z0-9][a-z0-9!#$&^_.+\-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+\-]{0,126}$`)
	vegaType  = regexp.MustCompile(`^application/vnd\.vega(lite)?\.v[0-9]{1,2}(\.[0-9]{1,2}){0,2}\+json$`)
	texFences = regexp.MustCompile(`(?s)^\s*(?:\$\$(.*)\$\$|\$(.*)\$|\\\[(.*)\\\]|\\\((.*)\\\))\s*$`)
)

const plotlyType = "application/vnd.plotly.v1+json"

// preference lists what is shown first when an output offers several.
var preference = []string{
	plotlyType, "vega", "text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "image/webp",
	"image/gif", "text/latex", "application/javascript", "text/javascript", "application/json", "json", "text/plain",
}

// Render chooses the best representation of a bundle that can be shown, and
// renders it.
func (o Options) Render(b Bundle) Output {
	for _, want := range preference {
		for _, mime := range b.matching(want) {
			if out, ok := o.one(b, mime); ok {
				return out
			}
		}
	}
	return Output{Tier: TierPlain, HTML: o.unknown(b)}
}

// matching lists the types of a bundle that a preference names, in order.
func (b Bundle) matching(want string) []string {
	var m []string
	for mime := range b {
		switch {
		case mime == want,
			want == "vega" && vegaType.MatchString(mime),
			want == "json" && strings.HasSuffix(mime, "+json") && len(b) == 1 && mimeType.MatchString(mime):
			m = append(m, mime)
		}
	}
	sort.Strings(m)
	return m
}

// one renders one representation; false when it cannot be shown.
func (o Options) one(b Bundle, mime string) (Output, bool) {
	v := b[mime]
	plain := func(h HTML, ok bool) (Output, bool) {
		return Output{Tier: TierPlain, Mime: mime, HTML: h}, ok
	}
	switch {
	case mime == plotlyType || vegaType.MatchString(mime):
		if v.Blob == "" && !json.Valid([]byte(v.Text)) {
			return Output{}, false
		}
		return o.active(b, mime, verdict{script: true}), true
	case mime == "application/javascript" || mime == "text/javascript":
		return o.active(b, mime, verdict{script: true}), true
	case mime == "text/html":
		return o.html(b)
	case strings.HasPrefix(mime, "image/"):
		return plain(o.picture(b, mime))
	case v.Blob != "":
		return plain(o.stored(mime, v), mime == "text/plain" || len(b) == 1)
	case mime == "text/markdown":
		return plain(Markdown(v.Text, o), true)
	case mime == "text/latex":
		return plain(LaTeX(v.Text), true)
	case mime == "text/plain":
		return plain(Text(v.Text), true)
	}
	h, full := once(o, "json", v.Text, int64(len(v.Text))*markupByte, func() (HTML, bool) { return JSON(v.Text), false })
	if full {
		h = o.plain(validUTF8(v.Text), pageFull)
	}
	return plain(h, true)
}

func (o Options) html(b Bundle) (Output, bool) {
	v := b["text/html"]
	if v.Blob != "" {
		return o.active(b, "text/html", verdict{active: true}), true
	}
	found, full := o.inspect(v.Text)
	if full {
		return o.later(b), true
	}
	if found.active {
		return o.active(b, "text/html", found), true
	}
	if !found.text && len(b) > 1 {
		return o.withScript(b)
	}
	c, full := o.clean(v.Text)
	if full {
		return o.later(b), true
	}
	if !c.ok {
		return Output{}, false
	}
	return Output{Tier: TierSanitized, Mime: "text/html", HTML: `<div class="output-html">` + c.html + "</div>"}, true
}

// later is HTML that the page has no work left for: the text of the same output,
// or what was written.
func (o Options) later(b Bundle) Output {
	mime := "text/html"
	if v, has := b["text/plain"]; has && v.Blob == "" && strings.TrimSpace(v.Text) != "" {
		mime = "text/plain"
	}
	return Output{Tier: TierPlain, Mime: mime, HTML: o.plain(validUTF8(b[mime].Text), pageFull)}
}

// withScript joins markup that only reserves a place with the script of the same
// output that draws into it, as Bokeh sends them. Without such a script the
// markup says nothing, and another representation is better.
func (o Options) withScript(b Bundle) (Output, bool) {
	js, ok := b["application/javascript"]
	if !ok || js.Blob != "" || strings.Contains(strings.ToLower(js.Text), "</script") || strings.Contains(js.Text, "<!--") {
		return Output{}, false
	}
	out := o.active(b, "text/html", verdict{script: true})
	out.Frame.Text += "<script>" + js.Text + "</script>"
	return out, true
}

// active makes the frame and the fallback that stands in for it.
func (o Options) active(b Bundle, mime string, found verdict) Output {
	v := b[mime]
	return Output{
		Tier:  TierActive,
		Mime:  mime,
		HTML:  o.fallback(b, mime, found),
		Frame: &Frame{Mime: mime, Text: v.Text, Blob: v.Blob, Hosts: found.hosts},
	}
}

// fallback is the best static picture of an active output: an image, its own
// markup where that shows something, its text, or a sentence.
func (o Options) fallback(b Bundle, mime string, found verdict) HTML {
	for _, alt := range []string{"image/png", "image/svg+xml", "image/jpeg", "image/webp", "image/gif"} {
		if _, has := b[alt]; has {
			if h, ok := o.picture(b, alt); ok {
				return h
			}
		}
	}
	if v, has := b["text/html"]; has && v.Blob == "" {
		if mime != "text/html" {
			found, _ = o.inspect(v.Text)
		}
		if found.text {
			if c, _ := o.clean(v.Text); c.ok && strings.TrimSpace(string(c.html)) != "" {
				return `<div class="output-html">` + c.html + "</div>"
			}
		}
	}
	if v, has := b["text/markdown"]; has && v.Blob == "" {
		return Markdown(v.Text, o)
	}
	if v, has := b["text/plain"]; has && v.Blob == "" && strings.TrimSpace(v.Text) != "" {
		return Text(v.Text)
	}
	if strings.HasSuffix(mime, "javascript") && b[mime].Blob == "" {
		src, _ := clip(validUTF8(b[mime].Text), maxHighlight)
		return `<pre class="code"><code>` + o.Code(src, "javascript") + "</code></pre>"
	}
	return `<p class="note">` + Visible("This "+kindName(mime)+" is drawn in a frame of its own and has no still picture.") + "</p>"
}

func kindName(mime string) string {
	switch {
	case mime == plotlyType:
		return "Plotly figure"
	case vegaType.MatchString(mime):
		return "Vega chart"
	case strings.HasSuffix(mime, "javascript"):
		return "script"
	}
	return "interactive output"
}

// picture renders an image as an <img>, in which no script ever runs.
func (o Options) picture(b Bundle, mime string) (HTML, bool) {
	switch mime {
	case "image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml":
	default:
		return "", false
	}
	v := b[mime]
	src, ok := o.imageURL(mime, &v)
	if !ok {
		return "", false
	}
	s := `<img class="out-image" src="` + attr(src) + `" alt="` + attr(altText(b)) + `"`
	if v.Width > 0 && v.Height > 0 && v.Width <= 20000 && v.Height <= 20000 {
		s += fmt.Sprintf(` width="%d" height="%d"`, v.Width, v.Height)
	}
	return HTML(s + ">"), true
}

// imageURL names an image: the stored one, or a data: URL of the inline one.
func (o Options) imageURL(mime string, v *Value) (string, bool) {
	if v.Blob != "" {
		return o.blobURL(v.Blob, mime)
	}
	if len(v.Text) == 0 || len(v.Text) > maxInline {
		return "", false
	}
	if mime == "image/svg+xml" {
		return "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString([]byte(validUTF8(v.Text))), true
	}
	data, ok := cleanBase64(v.Text)
	if !ok {
		return "", false
	}
	if v.Width == 0 && v.Height == 0 {
		head := io.LimitReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)), 64<<10)
		if raw, err := io.ReadAll(head); err == nil {
			if c, _, err := image.DecodeConfig(bytes.NewReader(raw)); err == nil {
				v.Width, v.Height = c.Width, c.Height
			}
		}
	}
	return "data:" + mime + ";base64," + data, true
}

// blobURL asks the caller for the path of a stored value. Only a path of this
// site is taken.
func (o Options) blobURL(hash, mime string) (string, bool) {
	if o.BlobURL == nil || !blobHash.MatchString(hash) {
		return "", false
	}
	u := o.BlobURL(hash, mime)
	return u, strings.HasPrefix(u, "/") && !strings.HasPrefix(u, "//") && !strings.HasPrefix(u, "/\\")
}

// altText takes what the output says of itself, such as "Figure size 640x480
// with 1 Axes".
func altText(b Bundle) string {
	s := strings.TrimSpace(b["text/plain"].Text)
	s = strings.TrimSuffix(strings.TrimPrefix(s, "<"), ">")
	if s == "" || strings.Contains(s, " object at 0x") || strings.Contains(s, "\n") || len(s) > 200 {
		return "Picture made by this cell"
	}
	return s
}

// LaTeX marks a formula for the script that sets it.
func LaTeX(src string) HTML {
	src = validUTF8(src)
	if len(src) > maxTeX || strings.Contains(src, `\begin{tabular}`) {
		return plainBlock(src)
	}
	tex := src
	if m := texFences.FindStringSubmatch(src); m != nil {
		if inner := m[1] + m[2] + m[3] + m[4]; !strings.Contains(inner, "$") {
			tex = inner
		}
	}
	return `<div class="output-math">` + formula(strings.TrimSpace(tex), true) + "</div>"
}

// stored offers a value that is too large for the page.
func (o Options) stored(mime string, v Value) HTML {
	w := &writer{how: exact}
	w.WriteString(`<p class="note">`)
	label := kindOf(mime) + ", " + size(v.Size)
	if u, ok := o.blobURL(v.Blob, mime); ok {
		w.WriteString(`This output is too large to show here. <a href="` + attr(u) + `" download rel="noopener noreferrer nofollow">`)
		w.text("Download it (" + label + ")")
		w.WriteString("</a>.")
	} else {
		w.text("This output is too large to show here (" + label + ").")
	}
	w.WriteString("</p>")
	return HTML(w.String())
}

// unknown says in words what an output was that nothing here can show.
func (o Options) unknown(b Bundle) HTML {
	types := make([]string, 0, len(b))
	for mime := range b {
		types = append(types, mime)
	}
	sort.Strings(types)
	if len(types) == 0 {
		return `<p class="note">This output is empty.</p>`
	}
	if first := types[0]; len(types) == 1 && b[first].Blob != "" {
		return o.stored(first, b[first])
	}
	names, _ := clip(validUTF8(strings.Join(types[:min(len(types), 8)], ", ")), 400)
	return `<p class="note">` + Visible("This output cannot be shown here. Its type is "+names+".") + "</p>"
}

func kindOf(mime string) string {
	if mimeType.MatchString(mime) {
		return mime
	}
	return "unknown type"
}

// size writes a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 0:
		return "unknown size"
	case n < 1000:
		return strconv.FormatInt(n, 10) + " bytes"
	case n < 1000*1000:
		return strconv.FormatFloat(float64(n)/1e3, 'f', 0, 64) + " kB"
	case n < 1000*1000*1000:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " MB"
	}
	return strconv.FormatFloat(float64(n)/1e9, 'f', 1, 64) + " GB"
}
