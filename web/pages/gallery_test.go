package pages

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/a-h/templ"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
)

var update = flag.Bool("update", false, "rewrite golden files")

func printed(t *testing.T, c templ.Component) string {
	t.Helper()
	var b strings.Builder
	if err := c.Render(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var void = map[string]bool{"meta": true, "link": true, "input": true, "hr": true, "img": true, "br": true, "path": true}

// wellFormed reports the first thing a parser would have to mend.
func wellFormed(t *testing.T, name, s string) {
	t.Helper()
	z := html.NewTokenizer(strings.NewReader(s))
	var open []string
	ids := map[string]bool{}
	for {
		switch tt := z.Next(); tt {
		case html.ErrorToken:
			if len(open) > 0 {
				t.Errorf("%s: %v are not closed", name, open)
			}
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			tok := z.Token()
			seen := map[string]bool{}
			for _, a := range tok.Attr {
				if seen[a.Key] {
					t.Errorf("%s: <%s> has two %s", name, tok.Data, a.Key)
				}
				seen[a.Key] = true
				if a.Key == "id" {
					if ids[a.Val] {
						t.Errorf("%s: two elements have the id %s", name, a.Val)
					}
					ids[a.Val] = true
				}
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" {
					t.Errorf("%s: <%s %s> is not allowed by the policy of the page", name, tok.Data, a.Key)
				}
				if strings.Contains(a.Val, "TemplFailedSanitization") {
					t.Errorf("%s: <%s %s> holds an address that was refused", name, tok.Data, a.Key)
				}
			}
			if tt == html.StartTagToken && !void[tok.Data] {
				open = append(open, tok.Data)
			}
		case html.EndTagToken:
			tok := z.Token()
			if void[tok.Data] && tok.Data != "path" {
				t.Errorf("%s: </%s>", name, tok.Data)
			} else if !void[tok.Data] {
				if len(open) == 0 || open[len(open)-1] != tok.Data {
					t.Fatalf("%s: </%s> closes %v", name, tok.Data, open)
				}
				open = open[:len(open)-1]
			}
		}
	}
}

func sampleChrome(l Lang) Chrome {
	return Chrome{Lang: l, Theme: DarkTheme, CSRF: `c"srf`, User: "Ana <b>", Path: "/x", Assets: Assets{Style: "/static/a.css", Script: "/static/n.js", Small: "/static/s.js", Math: "/static/k.css", Icon: "/static/m.svg"}}
}

const hostile = `</title><script>alert(1)</script>"'&<img src=x onerror=alert(1)>`

func samplePages(l Lang) map[string]templ.Component {
	c := sampleChrome(l)
	row := Row{ID: "n1", Title: hostile, Changed: galleryTime, Now: galleryTime, Cells: 1, Kernel: "idle", Tone: Good, Waiting: true}
	nb := Notebook{Chrome: c, ID: "n1", Title: hostile, FrameOrigin: "http://127.0.0.1:1", Kernel: galleryKernels(l)[0], Actions: Actions{Lang: l}, Rail: Rail{RailFiles{Lang: l}, RailKernel{Lang: l}, RailHistory{Lang: l}}}
	trashed := nb
	trashed.Deleted = true
	return map[string]templ.Component{
		"gallery":      GalleryPage(c),
		"list":         ListPage(List{Chrome: c, Query: hostile, Rows: []Row{row}, Trash: []Row{{ID: "n2", Title: hostile}}, Deleted: &row, Problem: hostile}),
		"list, empty":  ListPage(List{Chrome: c}),
		"list, nobody": ListPage(List{Chrome: c, Query: hostile}),
		"login":        LoginPage(Login{Chrome: c, Problem: hostile, Next: hostile}),
		"error":        ErrorPage(Failure{Chrome: c, Status: 404, Message: hostile, RequestID: hostile}),
		"docs":         DocsPage(Docs{Chrome: c, Title: hostile, Body: "<p>x</p>", Nav: []DocLink{{Title: hostile, Href: "javascript:alert(1)", Current: true}}}),
		"notebook":     NotebookPage(nb),
		"in the trash": NotebookPage(trashed),
	}
}

func TestPagesAreWellFormed(t *testing.T) {
	t.Parallel()
	for _, l := range []Lang{English, Chinese} {
		for name, c := range samplePages(l) {
			s := printed(t, c)
			switch name {
			case "docs": // whose address is refused on purpose
			case "gallery": // which shows the same part in many states
				for _, g := range Gallery(l) {
					wellFormed(t, g.Name, printed(t, g.Part))
				}
			default:
				wellFormed(t, name, s)
			}
			for _, bad := range []string{"<script>alert", "<img src=x", "\"javascript:"} {
				if strings.Contains(s, bad) {
					t.Errorf("%s: %s got through", name, bad)
				}
			}
			if l == Chinese && strings.Contains(s, "%!") {
				t.Errorf("%s: a translation does not fit its values", name)
			}
		}
	}
}

// Every form carries the token, so that it works without a script.
func TestFormsCarryTheToken(t *testing.T) {
	t.Parallel()
	for name, c := range samplePages(English) {
		s := printed(t, c)
		posts := strings.Count(s, `method="post"`)
		if got := strings.Count(s, `name="csrf"`); got != posts {
			t.Errorf("%s: %d forms post, %d carry the token", name, posts, got)
		}
	}
}

func TestGalleryGolden(t *testing.T) {
	t.Parallel()
	s := strings.ReplaceAll(printed(t, GalleryPage(sampleChrome(English))), "<section", "\n<section")
	const file = "testdata/gallery.html"
	if *update {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), s); d != "" {
		t.Errorf("The gallery changed; look at it and run with -update.\n%s", d)
	}
}

func TestQuoteSurvivesTheCleaning(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"--" + ">", "</style", "\r\n", "\x00"} {
		if q := quote("a" + bad + "b"); strings.Contains(q, bad) {
			t.Errorf("%q holds what a cleaner or a parser would take away", q)
		}
	}
}
