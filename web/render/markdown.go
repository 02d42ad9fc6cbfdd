package render

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
	"golang.org/x/net/html"
)

// maxMarkdown bounds the Markdown that is formatted; longer text is shown plain.
const maxMarkdown = 512 << 10

// Markdown renders GitHub's Markdown with footnotes and formulas. Plain
// HTML tags in it are kept without classes and ids, others are shown as text.
// Headings get ids with the prefix "doc-", and in-page links lead
// to them. Attachments are not files of the notebook
// and are left out.
func Markdown(src string, o Options) HTML {
	src = validUTF8(src)
	if len(src) > maxMarkdown {
		return o.plain(src, tooLong)
	}
	pairs := entangled(src)
	if pairs > maxPairs {
		return o.plain(src, tooCostly)
	}
	h, full := once(o, "markdown", src, proseText+int64(len(src))*proseByte+pairs/500, func() (HTML, bool) {
		out, err := o.goldmark(src)
		if errors.Is(err, errPageFull) {
			return "", true
		}
		if err == nil {
			if h, ok := sanitize(out, fromMarkdown, o); ok {
				return h, false
			}
		}
		return o.plain(src, tooCostly), false
	})
	if full {
		return o.plain(src, pageFull)
	}
	return h
}

// maxPairs bounds what entangled counts.
const maxPairs = 2e8

// entangled tells the work of a parser that pairs brackets and emphasis within a
// paragraph, and notes with what refers to them within the text: it grows with
// the square of their number.
func entangled(src string) int64 {
	work, marks, blank := int64(0), int64(0), true
	for i := range len(src) {
		switch src[i] {
		case '[', '*', '_', '~', '<':
			marks++
			blank = false
		case '\n':
			if blank || newBlock.MatchString(src[i+1:min(len(src), i+8)]) {
				work, marks = work+marks*marks, 0
			}
			blank = true
		case ' ', '\t', '\r', '>':
		default:
			blank = false
		}
	}
	notes := int64(strings.Count(src, "[^"))
	return work + marks*marks + notes*notes
}

// newBlock matches the start of a line that ends the paragraph before it.
var newBlock = regexp.MustCompile(`^ {0,3}(?:[-*+] |#{1,3} )\S?`)

// plainBlock shows text as it is.
func plainBlock(src string) HTML {
	w := &writer{how: exact}
	w.WriteString(`<pre class="plain">`)
	if strings.HasPrefix(src, "\n") {
		w.WriteString("\n")
	}
	w.text(src)
	w.WriteString("</pre>")
	return HTML(w.String())
}

func (o Options) goldmark(src string) (out string, err error) {
	defer func() {
		if p := recover(); p != nil { // hostile text must not take the page with it
			out, err = "", errTooMuch
			if p == errPageFull { //nolint:errorlint // it is the value a counter panicked with
				err = errPageFull
			}
		}
	}()
	prefix := "doc-"
	if scopePattern.MatchString(o.Scope) {
		prefix += o.Scope + "-"
	}
	count := &steps{page: o.Work}
	md := goldmark.New(
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
			extension.Strikethrough,
			extension.Linkify,
			extension.NewFootnote(extension.WithFootnoteIDPrefix(prefix)),
			mathExtension{count},
		),
		goldmark.WithParserOptions(
			parser.WithAutoHeadingID(),
			parser.WithInlineParsers(util.Prioritized(extension.NewTaskCheckBoxParser(), 0)),
		),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(ownNodes{count}, 100))),
	)
	md.Parser().AddOptions(count)
	var b bytes.Buffer
	ctx := parser.NewContext(parser.WithIDs(&headingIDs{used: map[string]int{}}))
	if err := md.Convert([]byte(src), &b, parser.WithContext(ctx)); err != nil {
		return "", err
	}
	return b.String(), nil
}

var scopePattern = regexp.MustCompile(`^[A-Za-z0-9\-]{1,64}$`)

// headingIDs makes the ids of one text unique within it.
type headingIDs struct{ used map[string]int }

func (h *headingIDs) Generate(value []byte, _ ast.NodeKind) []byte {
	id := "doc-" + slug(string(value))
	n := h.used[id]
	h.used[id] = n + 1
	if n > 0 {
		id += "-" + strconv.Itoa(n)
		h.used[id]++
	}
	return []byte(id)
}

func (h *headingIDs) Put(value []byte) { h.used[string(value)]++ }

// ownNodes writes the nodes that differ from the usual: code, raw HTML and task
// boxes.
type ownNodes struct{ steps *steps }

func (n ownNodes) RegisterFuncs(reg renderer.NodeRendererFuncRegisterer) {
	reg.Register(ast.KindFencedCodeBlock, n.codeBlock)
	reg.Register(ast.KindCodeBlock, n.codeBlock)
	reg.Register(ast.KindHTMLBlock, htmlBlock)
	reg.Register(ast.KindRawHTML, rawHTML)
	reg.Register(extast.KindTaskCheckBox, taskBox)
}

func (n ownNodes) codeBlock(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	language := ""
	if f, ok := node.(*ast.FencedCodeBlock); ok {
		language = string(f.Language(source))
	}
	code := strings.TrimSuffix(string(node.Lines().Value(source)), "\n")
	if !n.steps.affords(codeWork(code)) {
		language = ""
	}
	_, err := w.WriteString(`<pre class="code"><code>` + string(Code(code, language)) + "</code></pre>\n")
	return ast.WalkSkipChildren, err
}

func htmlBlock(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.HTMLBlock)
	raw := string(n.Lines().Value(source))
	if n.HasClosure() {
		raw += string(n.ClosureLine.Value(source))
	}
	_, err := w.WriteString(mixed(raw))
	return ast.WalkSkipChildren, err
}

func rawHTML(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	_, err := w.WriteString(mixed(string(node.(*ast.RawHTML).Segments.Value(source))))
	return ast.WalkSkipChildren, err
}

// rawAttrs are the attributes raw HTML may bring to the cleaner. Classes and ids
// are ours alone.
var rawAttrs = set("href src alt width height align colspan rowspan open start")

// mixed rewrites raw HTML: tags that may stay are written anew with few
// attributes, comments go, and every other tag is shown as the text it is.
func mixed(raw string) string {
	var b strings.Builder
	z := html.NewTokenizer(strings.NewReader(raw))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return b.String()
		case html.CommentToken, html.DoctypeToken:
		case html.TextToken:
			b.WriteString(escapeMarkup(string(z.Raw())))
		default:
			shown := string(z.Raw())
			t := z.Token()
			if !kept[t.Data] {
				b.WriteString(escapeMarkup(shown))
				continue
			}
			attrs := t.Attr[:0]
			for _, a := range t.Attr {
				if rawAttrs[a.Key] {
					attrs = append(attrs, a)
				}
			}
			t.Attr = attrs
			b.WriteString(t.String())
		}
	}
}

var escapeMarkup = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;").Replace

func taskBox(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	box := "☐"
	if node.(*extast.TaskCheckBox).IsChecked {
		box = "☑"
	}
	_, err := w.WriteString(`<span class="task">` + box + "</span> ")
	return ast.WalkContinue, err
}
