package render

import (
	"regexp"
	"strings"
	"sync"

	"github.com/microcosm-cc/bluemonday"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

const (
	// maxHTML bounds the markup one output may bring into the page.
	maxHTML = 1 << 20
	// maxElements bounds the elements of one output in the page.
	maxElements = 30000
)

// flavour says where markup came from, and so what it may keep.
type flavour int

const (
	fromOutput   flavour = iota // a kernel's text/html: no ids, one class
	fromMarkdown                // our own Markdown renderer's output
)

// elements that may stay. What is in neither list is unwrapped: the tag goes,
// its content stays.
var kept = set(`a abbr address article aside b bdi blockquote br caption cite code col colgroup dd del details dfn div
	dl dt em figcaption figure footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li mark ol p pre q s samp section small
	span strong sub summary sup table tbody td tfoot th thead time tr tt u ul var wbr`)

// elements that go with all they hold, because their content is not text.
var dropped = set(`applet area audio base basefont bgsound canvas datalist embed fencedframe frame frameset head iframe
	link map math meta noembed noframes noscript object option optgroup param plaintext portal script select source
	style svg template textarea title track video xmp`)

var void = set("br col hr img wbr")

func set(words string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}

// parseFragment parses markup as the content of a <div>. It refuses what is too
// large or nested too deeply to be worth showing.
func parseFragment(src string) (nodes []*html.Node, ok bool) {
	if len(src) > maxHTML {
		return nil, false
	}
	defer func() {
		if recover() != nil { // the parser's own depth limit
			nodes, ok = nil, false
		}
	}()
	div := &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div}
	nodes, err := html.ParseFragment(strings.NewReader(src), div)
	return nodes, err == nil
}

// sanitize rebuilds markup from its parsed form, keeping only what is listed
// here, and then sends the result through bluemonday: two gates that do not
// share code. Nothing touches the markup after that.
func sanitize(src string, from flavour, o Options) (HTML, bool) {
	nodes, ok := parseFragment(validUTF8(src))
	if !ok {
		return "", false
	}
	c := &cleaner{o: o, from: from}
	for _, n := range nodes {
		c.node(n, "div")
	}
	if c.left > 0 {
		c.WriteString(`<p class="note">The rest of this output is too large to show here.</p>`)
	}
	return HTML(lastGate().Sanitize(c.String())), true
}

// cleaner writes the kept part of a tree.
type cleaner struct {
	writer
	o     Options
	from  flavour
	count int // elements written
	left  int // elements left out for size
	pre   int // depth of <pre> and <code>
	link  int // depth of <a>
}

func (c *cleaner) node(n *html.Node, parent string) {
	switch n.Type {
	case html.TextNode:
		c.how = prose
		if c.pre > 0 {
			c.how = exact
		}
		c.text(n.Data)
	case html.ElementNode:
		c.element(n, parent)
	}
}

func (c *cleaner) children(n *html.Node, parent string) {
	for k := n.FirstChild; k != nil; k = k.NextSibling {
		c.node(k, parent)
	}
}

func (c *cleaner) element(n *html.Node, parent string) {
	if n.Namespace != "" || dropped[n.Data] {
		return
	}
	if !kept[n.Data] {
		c.children(n, parent)
		return
	}
	if c.count >= maxElements {
		c.left++
		return
	}
	tag := place(n.Data, parent)
	var attrs string
	switch tag {
	case "img":
		c.image(n)
		return
	case "a":
		if c.link > 0 {
			c.children(n, parent)
			return
		}
		attrs = c.anchor(n)
	}
	c.count++
	c.WriteString("<" + tag + attrs + c.attrs(n, tag) + ">")
	if void[tag] {
		return
	}
	switch tag {
	case "a":
		c.link++
		defer func() { c.link-- }()
	case "pre", "code":
		c.pre++
		defer func() { c.pre-- }()
	}
	if tag == "pre" && n.FirstChild != nil && strings.HasPrefix(n.FirstChild.Data, "\n") {
		c.WriteString("\n") // a parser drops the first newline of a <pre>
	}
	c.children(n, tag)
	c.WriteString("</" + tag + ">")
}

// place turns an element that would close one of the page's own elements, were
// it parsed inside that, into a <div>.
func place(tag, parent string) string {
	switch tag {
	case "li":
		if parent != "ul" && parent != "ol" {
			return "div"
		}
	case "dt", "dd":
		if parent != "dl" {
			return "div"
		}
	}
	return tag
}

var (
	smallInt   = regexp.MustCompile(`^[0-9]{1,4}$`)
	alignment  = regexp.MustCompile(`^(left|right|center)$`)
	textAlign  = regexp.MustCompile(`(?i)(?:^|;)\s*text-align\s*:\s*(left|right|center)\s*(?:;|$)`)
	docID      = regexp.MustCompile(`^doc-[\p{L}\p{M}\p{N}_.:\-]{1,200}$`)
	docRef     = regexp.MustCompile(`^#doc-[\p{L}\p{M}\p{N}_.:\-]{1,200}$`)
	datetime   = regexp.MustCompile(`^[0-9TZ:+.\- ]{1,40}$`)
	ownClasses = regexp.MustCompile(`^(?:(?:math|inline|display|task|invisible|note|footnotes|footnote-ref|footnote-backref|` +
		`code|out-image|left-out|dataframe|tok-[A-Za-z0-9]{1,20}|language-[a-z0-9+#\-]{1,20})(?: |$))+$`)
	languageTag = regexp.MustCompile(`^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$`)
)

// attrs writes the attributes an element may keep, but for links and images.
func (c *cleaner) attrs(n *html.Node, tag string) string {
	var b strings.Builder
	aligned := false
	for _, a := range n.Attr {
		key, val := a.Key, a.Val
		if a.Namespace != "" {
			continue
		}
		if key == "style" && cell(tag) {
			if m := textAlign.FindStringSubmatch(val); m != nil {
				key, val = "align", strings.ToLower(m[1])
			}
		}
		if key == "align" && aligned || !c.keeps(tag, key, val) {
			continue
		}
		aligned = aligned || key == "align"
		b.WriteString(" " + key + `="` + attr(val) + `"`)
	}
	return b.String()
}

func cell(tag string) bool { return tag == "td" || tag == "th" || tag == "tr" }

func (c *cleaner) keeps(tag, key, val string) bool {
	switch key {
	case "class":
		if c.from == fromMarkdown {
			return ownClasses.MatchString(val)
		}
		return tag == "table" && val == "dataframe"
	case "id":
		return c.from == fromMarkdown && docID.MatchString(val)
	case "title":
		return tag != "a" && len(val) <= 500
	case "lang":
		return languageTag.MatchString(val)
	case "colspan", "rowspan":
		return (tag == "td" || tag == "th") && smallInt.MatchString(val)
	case "scope":
		return tag == "th" && (val == "row" || val == "col" || val == "rowgroup" || val == "colgroup")
	case "align":
		return cell(tag) && alignment.MatchString(val)
	case "span":
		return (tag == "col" || tag == "colgroup") && smallInt.MatchString(val)
	case "start":
		return tag == "ol" && smallInt.MatchString(val)
	case "value":
		return tag == "li" && smallInt.MatchString(val)
	case "open":
		return tag == "details" && (val == "" || val == "open")
	case "datetime":
		return tag == "time" && datetime.MatchString(val)
	}
	return false
}

func lookup(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Namespace == "" && a.Key == key {
			return a.Val
		}
	}
	return ""
}

// anchor writes the attributes of a link, or none when it leads nowhere we go.
func (c *cleaner) anchor(n *html.Node) string {
	href, host, ok := c.o.link(lookup(n, "href"), c.from)
	if !ok {
		return ""
	}
	s := ` href="` + attr(href) + `"`
	if host != "" {
		s += ` title="Opens ` + attr(host) + `" target="_blank"`
	}
	return s + ` rel="noopener noreferrer nofollow"`
}

// image writes an <img>, or its alternative text when it may not be loaded:
// an image from elsewhere would tell that server what was shown, and when.
func (c *cleaner) image(n *html.Node) {
	alt, _ := clip(lookup(n, "alt"), 500)
	src, ok := c.o.image(lookup(n, "src"))
	if !ok {
		c.count++
		c.WriteString(`<span class="left-out">`)
		if alt == "" {
			alt = "image"
		}
		c.text("[" + alt + ": not loaded, it is neither a file of this notebook nor part of this text]")
		c.WriteString("</span>")
		return
	}
	c.count++
	c.WriteString(`<img src="` + attr(src) + `" alt="` + attr(alt) + `"`)
	for _, key := range []string{"width", "height"} {
		if v := strings.TrimSuffix(lookup(n, key), "px"); smallInt.MatchString(v) {
			c.WriteString(" " + key + `="` + v + `"`)
		}
	}
	c.WriteString(">")
}

// lastGate is the allow-list that has the last word over all markup that was
// not written tag by tag in this package.
var lastGate = sync.OnceValue(func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	names := make([]string, 0, len(kept))
	for name := range kept {
		names = append(names, name)
	}
	p.AllowElements(names...)
	p.AllowNoAttrs().OnElements(names...)
	p.RequireParseableURLs(true)
	p.AllowRelativeURLs(true)
	p.AllowURLSchemes("http", "https", "mailto")
	p.AllowURLSchemeWithCustomPolicy("data", allowDataURL)
	p.AllowAttrs("class").Matching(ownClasses).Globally()
	p.AllowAttrs("id").Matching(docID).Globally()
	p.AllowAttrs("title").Globally()
	p.AllowAttrs("lang").Matching(languageTag).Globally()
	p.AllowAttrs("href").Matching(regexp.MustCompile(`^(https?://|mailto:|/|#doc-)`)).OnElements("a")
	p.AllowAttrs("rel").Matching(regexp.MustCompile(`^noopener noreferrer nofollow$`)).OnElements("a")
	p.AllowAttrs("target").Matching(regexp.MustCompile(`^_blank$`)).OnElements("a")
	p.AllowAttrs("src").Matching(regexp.MustCompile(`^(data:image/|/)`)).OnElements("img")
	p.AllowAttrs("alt").OnElements("img")
	p.AllowAttrs("width", "height").Matching(smallInt).OnElements("img")
	p.AllowAttrs("colspan", "rowspan").Matching(smallInt).OnElements("td", "th")
	p.AllowAttrs("scope").Matching(regexp.MustCompile(`^(row|col|rowgroup|colgroup)$`)).OnElements("th")
	p.AllowAttrs("align").Matching(alignment).OnElements("td", "th", "tr")
	p.AllowAttrs("span").Matching(smallInt).OnElements("col", "colgroup")
	p.AllowAttrs("start").Matching(smallInt).OnElements("ol")
	p.AllowAttrs("value").Matching(smallInt).OnElements("li")
	p.AllowAttrs("open").Matching(regexp.MustCompile(`^(open)?$`)).OnElements("details")
	p.AllowAttrs("datetime").Matching(datetime).OnElements("time")
	return p
})
