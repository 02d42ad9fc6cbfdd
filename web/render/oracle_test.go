package render

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The oracle parses what the page would parse and looks at what came of it. It
// shares no list with the code it judges.

var oracleElements = words(`a abbr address article aside b bdi blockquote br caption cite code col colgroup dd del details
	dfn div dl dt em figcaption figure footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li mark ol p pre q s samp section
	small span strong sub summary sup table tbody td tfoot th thead time tr tt u ul var wbr`)

var oracleAttrs = words(`align alt class colspan datetime download height href id lang open rel rowspan scope span src
	start target title value width`)

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// contexts are the places of a page an output may stand in.
var contexts = [][2]string{
	{`<div id="page"><div id="box">`, `</div><p id="after">after</p></div>`},
	{`<ul id="page"><li id="box"><div>`, `</div></li><li id="after">after</li></ul>`},
	{`<dl id="page"><dd id="box"><div>`, `</div></dd><dd id="after">after</dd></dl>`},
	{`<article id="page"><section id="box">`, `</section><footer id="after">after</footer></article>`},
}

// unsafe returns what is wrong with h, or "".
func unsafe(h HTML, filesBase string) string {
	if !utf8.ValidString(string(h)) {
		return "not UTF-8"
	}
	for _, c := range contexts {
		body := &html.Node{Type: html.ElementNode, Data: "body", DataAtom: atom.Body}
		nodes, err := html.ParseFragment(strings.NewReader(c[0]+string(h)+c[1]), body)
		if err != nil {
			return "does not parse: " + err.Error()
		}
		if len(nodes) != 1 {
			return fmt.Sprintf("broke out of the page: %d nodes at the top", len(nodes))
		}
		page := nodes[0]
		box, after := page.FirstChild, page.LastChild
		if id(page) != "page" || box == nil || id(box) != "box" || box.NextSibling != after || id(after) != "after" ||
			after.FirstChild == nil || after.FirstChild.Data != "after" {
			return "broke out of its box"
		}
		for k := box.FirstChild; k != nil; k = k.NextSibling {
			if why := badNode(k, filesBase); why != "" {
				return why
			}
		}
	}
	return ""
}

func id(n *html.Node) string { return lookup(n, "id") }

func badNode(n *html.Node, filesBase string) string {
	switch n.Type {
	case html.TextNode:
		if why := badText(n.Data); why != "" {
			return "text: " + why
		}
	case html.ElementNode:
		if n.Namespace != "" || !oracleElements[n.Data] {
			return "element <" + n.Namespace + " " + n.Data + ">"
		}
		for _, a := range n.Attr {
			if why := badAttr(n, a, filesBase); why != "" {
				return fmt.Sprintf("<%s %s=%q>: %s", n.Data, a.Key, a.Val, why)
			}
		}
		if n.Data == "a" && lookup(n, "href") != "" && lookup(n, "rel") != "noopener noreferrer nofollow" {
			return "link without rel"
		}
	default:
		return fmt.Sprintf("node of type %d: %q", n.Type, n.Data)
	}
	for k := n.FirstChild; k != nil; k = k.NextSibling {
		if why := badNode(k, filesBase); why != "" {
			return why
		}
	}
	return ""
}

func badText(s string) string {
	for _, r := range s {
		switch {
		case r < 0x20 && r != '\n' && r != '\t', r >= 0x7F && r < 0xA0:
			return fmt.Sprintf("control character %U", r)
		case r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069, r == 0x2028, r == 0x2029, r >= 0xE0000 && r <= 0xE007F:
			return fmt.Sprintf("hidden character %U", r)
		}
	}
	return ""
}

func badAttr(n *html.Node, a html.Attribute, filesBase string) string {
	if a.Namespace != "" || !oracleAttrs[a.Key] {
		return "attribute"
	}
	if why := badText(a.Val); why != "" {
		return why
	}
	switch a.Key {
	case "id":
		if !strings.HasPrefix(a.Val, "doc-") {
			return "id without prefix"
		}
	case "href":
		return badHref(a.Val, filesBase)
	case "src":
		if n.Data != "img" {
			return "src"
		}
		for _, p := range []string{"data:image/png;base64,", "data:image/jpeg;base64,", "data:image/gif;base64,", "data:image/webp;base64,"} {
			if strings.HasPrefix(a.Val, p) {
				return ""
			}
		}
		if strings.HasPrefix(a.Val, "data:image/svg+xml;base64,") && lookup(n, "class") == "out-image" {
			return ""
		}
		return badFile(a.Val, filesBase)
	case "class":
		for _, c := range strings.Fields(a.Val) {
			if !knownClass(c) {
				return "class " + c
			}
		}
	case "target":
		if a.Val != "_blank" {
			return "target"
		}
	}
	return ""
}

func knownClass(c string) bool {
	for _, p := range []string{"ansi", "tok-", "json", "traceback", "output-", "footnote"} {
		if strings.HasPrefix(c, p) {
			return true
		}
	}
	return words("math inline display task invisible note code plain out-image left-out dataframe")[c]
}

func badHref(v, filesBase string) string {
	if strings.HasPrefix(v, "#doc-") {
		return ""
	}
	u, err := url.Parse(v)
	if err != nil {
		return "not a URL"
	}
	switch u.Scheme {
	case "http", "https":
		if u.Host == "" || u.User != nil {
			return "odd URL"
		}
		return ""
	case "mailto":
		return ""
	}
	return badFile(v, filesBase)
}

func badFile(v, filesBase string) string {
	if strings.HasPrefix(v, "/blobs/") {
		return ""
	}
	rest, ok := strings.CutPrefix(v, filesBase)
	if filesBase == "" || !ok {
		return "leads outside"
	}
	plain, err := url.PathUnescape(rest)
	if err != nil || strings.ContainsAny(plain, "\\") {
		return "odd path"
	}
	for _, seg := range strings.Split(plain, "/") {
		if seg == ".." {
			return "leads up"
		}
	}
	return ""
}
