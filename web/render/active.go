package render

import (
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/net/html"
)

// elements that make markup active: they run, load, ask or restyle, so the
// markup is shown in a frame of its own rather than without them.
var activeElements = set(`applet audio base body button canvas embed fieldset form frame frameset iframe input link math
	meta meter noscript object param portal progress script select slot style svg template textarea video`)

// dataframeStyle matches the one style sheet that pandas and polars put before
// every table and that says nothing but how their tables look.
var dataframeStyle = regexp.MustCompile(`^(?:\s*\.dataframe[A-Za-z0-9 \t\r\n.,>:\-()]*\{[^{}<]*\})*\s*$`)

// verdict is what a look at markup found.
type verdict struct {
	active bool
	script bool     // it has scripts, so it may be empty without them
	text   bool     // it has text or images that show without scripts
	hosts  []string // other hosts it wants to load from, at most five
}

// inspect decides whether markup needs a frame. It errs on the side of the
// frame: what is judged harmless is sanitised all the same.
func inspect(src string) verdict {
	nodes, ok := parseFragment(validUTF8(src))
	if !ok {
		return verdict{active: true}
	}
	var v verdict
	for _, n := range nodes {
		v.look(n)
	}
	if strings.Contains(strings.ToLower(src), "<body") { // the parser drops it in a fragment
		v.active = true
	}
	return v
}

func (v *verdict) look(n *html.Node) {
	switch n.Type {
	case html.TextNode:
		if n.Parent == nil || !dropped[n.Parent.Data] {
			v.text = v.text || strings.TrimSpace(n.Data) != ""
		}
		return
	case html.ElementNode:
		v.element(n)
	}
	for k := n.FirstChild; k != nil; k = k.NextSibling {
		v.look(k)
	}
}

func (v *verdict) element(n *html.Node) {
	switch {
	case n.Data == "style" && n.FirstChild != nil && dataframeStyle.MatchString(n.FirstChild.Data):
	case n.Namespace != "" || activeElements[n.Data] || strings.Contains(n.Data, "-"):
		v.active = true
	}
	if n.Data == "script" {
		v.script = true
	}
	if n.Data == "img" {
		v.text = true
	}
	for _, a := range n.Attr {
		if strings.HasPrefix(a.Key, "on") {
			v.active = true
		}
		loads := a.Key == "src" || a.Key == "href" && n.Data == "link" || a.Key == "data" && n.Data == "object"
		if loads {
			v.host(a.Val)
		}
	}
}

func (v *verdict) host(raw string) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Host == "" || len(v.hosts) >= 5 || len(u.Host) > 253 {
		return
	}
	for _, h := range v.hosts {
		if h == u.Host {
			return
		}
	}
	v.hosts = append(v.hosts, u.Host)
}
