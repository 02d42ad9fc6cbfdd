// Package docs holds the pages shown at /docs, written in Markdown and
// embedded. It is text and a way to find it, nothing more.
package docs

import (
	"embed"
	"io/fs"
	"path"
	"sort"
	"strings"
)

//go:embed *.md adr/*.md
var files embed.FS

// Page is one page.
type Page struct {
	Path  string // below /docs, without .md; empty is the first page
	Title string // its first heading
	Text  string // Markdown
}

// Find returns a page by its path.
func Find(p string) (Page, bool) {
	p = strings.Trim(p, "/")
	name := p
	if name == "" {
		name = "index"
	}
	if !fs.ValidPath(name) {
		return Page{}, false
	}
	b, err := files.ReadFile(name + ".md")
	if err != nil {
		return Page{}, false
	}
	return Page{Path: p, Title: title(string(b)), Text: string(b)}, true
}

// Pages lists every page, the ADRs last.
func Pages() []Page {
	var out []Page
	for _, pattern := range []string{"*.md", "adr/*.md"} {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			continue
		}
		sort.Strings(names)
		for _, n := range names {
			p := strings.TrimSuffix(n, path.Ext(n))
			if p == "index" {
				p = ""
			}
			if page, ok := Find(p); ok {
				out = append(out, page)
			}
		}
	}
	return out
}

func title(text string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if t, ok := strings.CutPrefix(line, "# "); ok {
			return strings.TrimSpace(t)
		}
	}
	return "Untitled"
}
