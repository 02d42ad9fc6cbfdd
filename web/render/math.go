package render

import (
	"bytes"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// maxTeX bounds one formula; a longer one is left as text.
const maxTeX = 10000

// Formulas pass through Markdown untouched, as $…$, $$…$$ and
// \begin{…}…\end{…}: a script in the page sets them, and without it they are
// read as the TeX that was written. A single dollar opens a formula only
// before a character that is not a space and closes one only after such a
// character and not before a digit, so that prices stay prices.
var kindMath = ast.NewNodeKind("Math")

type mathNode struct {
	ast.BaseInline
	tex     string
	display bool
}

func (n *mathNode) Kind() ast.NodeKind { return kindMath }

func (n *mathNode) Dump(source []byte, level int) { ast.DumpHelper(n, source, level, nil, nil) }

var kindMathBlock = ast.NewNodeKind("MathBlock")

type mathBlock struct {
	ast.BaseBlock
	tex   bytes.Buffer
	until []byte // what ends the block
}

func (n *mathBlock) Kind() ast.NodeKind { return kindMathBlock }

func (n *mathBlock) Dump(source []byte, level int) { ast.DumpHelper(n, source, level, nil, nil) }

func (n *mathBlock) IsRaw() bool { return true }

type mathExtension struct{ steps *steps }

func (e mathExtension) Extend(m goldmark.Markdown) {
	m.Parser().AddOptions(
		parser.WithInlineParsers(util.Prioritized(mathInline{}, 150)),
		parser.WithBlockParsers(util.Prioritized(mathBlocks(e), 750)),
	)
	m.Renderer().AddOptions(renderer.WithNodeRenderers(util.Prioritized(mathHTML{}, 500)))
}

type mathInline struct{}

func (mathInline) Trigger() []byte { return []byte{'$'} }

// Parse looks for the closing dollar within the paragraph.
func (mathInline) Parse(_ ast.Node, block text.Reader, _ parser.Context) ast.Node {
	line, seg := block.PeekLine()
	fence := 1
	if bytes.HasPrefix(line, []byte("$$")) {
		fence = 2
	}
	if fence == 1 && (len(line) < 2 || space(line[1]) || digitBefore(block, seg)) {
		return nil
	}
	savedLine, savedPos := block.Position()
	block.Advance(fence)
	var tex []byte
	for len(tex) <= maxTeX {
		line, _ := block.PeekLine()
		if line == nil {
			break
		}
		i, ok := closing(line, tex, fence)
		if !ok {
			break
		}
		if i >= 0 {
			tex = append(tex, line[:i]...)
			if len(bytes.TrimSpace(tex)) == 0 {
				break
			}
			block.Advance(i + fence)
			return &mathNode{tex: string(bytes.TrimSpace(tex)), display: fence == 2}
		}
		tex = append(tex, line...)
		block.AdvanceLine()
	}
	block.SetPosition(savedLine, savedPos)
	return nil
}

// digitBefore keeps "US$5" and "5$" out: a dollar that follows a letter or a
// digit opens nothing.
func digitBefore(block text.Reader, seg text.Segment) bool {
	if seg.Start == 0 {
		return false
	}
	c := block.Source()[seg.Start-1]
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '\\' || c == '$'
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// closing finds the fence that ends a formula in one line; ok is false when
// something comes first that says this is no formula.
func closing(line, before []byte, fence int) (at int, ok bool) {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '`': // code binds tighter
			return -1, false
		case '$':
			next := byte(' ')
			if i+1 < len(line) {
				next = line[i+1]
			}
			if fence == 2 {
				if next == '$' {
					return i, true
				}
				continue
			}
			last := byte(' ')
			if i > 0 {
				last = line[i-1]
			} else if len(before) > 0 {
				last = before[len(before)-1]
			}
			return i, !space(last) && (next < '0' || next > '9') && next != '$'
		}
	}
	return -1, true
}

type mathBlocks struct{ steps *steps }

func (mathBlocks) Trigger() []byte { return []byte{'$', '\\'} }

// Open starts a block where a line begins with $$ or \begin{…} and the end is
// found before a blank line; otherwise the line is ordinary text.
func (b mathBlocks) Open(_ ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	line, seg := reader.PeekLine()
	pos := pc.BlockOffset()
	if pos < 0 {
		return nil, parser.NoChildren
	}
	n := &mathBlock{}
	body := line[pos:]
	start := seg.Start + pos
	skip := 0
	switch {
	case bytes.HasPrefix(body, []byte("$$")):
		n.until, skip = []byte("$$"), 2
	case bytes.HasPrefix(body, []byte(`\begin{`)):
		name, _, ok := bytes.Cut(body[7:], []byte("}"))
		if !ok || len(name) == 0 || len(name) > 20 {
			return nil, parser.NoChildren
		}
		n.until = []byte(`\end{` + string(name) + "}")
	default:
		return nil, parser.NoChildren
	}
	b.steps.spend(aheadWork)
	if !endsAhead(reader.Source()[min(start+skip, len(reader.Source())):], n.until) {
		return nil, parser.NoChildren
	}
	if n.add(body[skip:]) {
		n.until = nil
	}
	reader.AdvanceToEOL()
	return n, parser.NoChildren
}

// endsAhead says whether the end comes, alone at the end of its line, before a
// blank line and within the bound.
func endsAhead(rest, until []byte) bool {
	rest = rest[:min(len(rest), maxTeX)]
	for first := true; len(rest) > 0; first = false {
		line, tail, _ := bytes.Cut(rest, []byte("\n"))
		if i := bytes.Index(line, until); i >= 0 {
			return len(bytes.TrimSpace(line[i+len(until):])) == 0
		}
		if !first && len(bytes.TrimSpace(line)) == 0 {
			return false
		}
		rest = tail
	}
	return false
}

// add appends a line and says whether it ended the formula.
func (n *mathBlock) add(line []byte) bool {
	if i := bytes.Index(line, n.until); i >= 0 {
		if n.until[0] == '\\' {
			i += len(n.until)
		}
		n.tex.Write(line[:i])
		return true
	}
	n.tex.Write(line)
	return n.tex.Len() > maxTeX
}

func (mathBlocks) Continue(node ast.Node, reader text.Reader, _ parser.Context) parser.State {
	n := node.(*mathBlock)
	if n.until == nil {
		return parser.Close
	}
	line, _ := reader.PeekLine()
	if len(bytes.TrimSpace(line)) == 0 {
		return parser.Close
	}
	done := n.add(line)
	reader.AdvanceToEOL()
	if done {
		return parser.Close
	}
	return parser.Continue | parser.NoChildren
}

func (mathBlocks) Close(ast.Node, text.Reader, parser.Context) {}

func (mathBlocks) CanInterruptParagraph() bool { return true }

func (mathBlocks) CanAcceptIndentedLine() bool { return false }

type mathHTML struct{}

func (mathHTML) RegisterFuncs(reg renderer.NodeRendererFuncRegisterer) {
	reg.Register(kindMath, func(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
		if n := node.(*mathNode); entering {
			_, err := w.WriteString(string(formula(n.tex, n.display)))
			return ast.WalkSkipChildren, err
		}
		return ast.WalkContinue, nil
	})
	reg.Register(kindMathBlock, func(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
		if n := node.(*mathBlock); entering {
			_, err := w.WriteString("<p>" + string(formula(string(bytes.TrimSpace(n.tex.Bytes())), true)) + "</p>\n")
			return ast.WalkSkipChildren, err
		}
		return ast.WalkContinue, nil
	})
}

// formula marks TeX for the script that sets it.
func formula(tex string, display bool) HTML {
	w := &writer{how: exact}
	w.WriteString(`<span class="math inline">`)
	if display {
		w.Reset()
		w.WriteString(`<span class="math display">`)
	}
	w.text(validUTF8(tex))
	w.WriteString("</span>")
	return HTML(w.String())
}
