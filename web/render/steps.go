package render

import (
	"bytes"
	"errors"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

const (
	maxNesting = 50  // quotes, list items and footnotes within each other
	openWork   = 2   // of asking whether a line begins a block
	goOnWork   = 4   // of asking a block whether a line goes on with it, which is noted, too
	blockWork  = 40  // of a block that is begun, for all that comes of it
	aheadWork  = 200 // of looking for the end of a formula
	cellWork   = 20  // of a cell of a table
)

var (
	errNested   = errors.New("nested too deeply")
	errTooMuch  = errors.New("takes too long")
	errPageFull = errors.New("no work left for the page")
)

// steps counts what a parser does with one text, and ends it by a panic with
// one of the errors above. Each line asks every container that is open, and each
// row of a table has the cells of its first: both grow with the square of the
// text, and no look at a line alone tells.
type steps struct {
	page *Work
	done int64
}

func (s *steps) spend(units int64) {
	if s.done += units; s.done > textWork {
		panic(errTooMuch)
	}
	if !s.page.take(units) {
		panic(errPageFull)
	}
}

// affords spends units if the text has as many left.
func (s *steps) affords(units int64) bool {
	if s.done+units > textWork {
		return false
	}
	s.spend(units)
	return true
}

// SetParserOption implements parser.Option: it puts the counter around the block
// parsers that are there, so it comes last.
func (s *steps) SetParserOption(c *parser.Config) {
	for i, v := range c.BlockParsers {
		c.BlockParsers[i].Value = countedBlock{v.Value.(parser.BlockParser), s}
	}
	for i, v := range c.ParagraphTransformers {
		c.ParagraphTransformers[i].Value = countedParagraph{v.Value.(parser.ParagraphTransformer), s}
	}
}

type countedBlock struct {
	parser.BlockParser
	steps *steps
}

// SetOption implements parser.SetOptioner.
func (b countedBlock) SetOption(name parser.OptionName, value any) {
	if so, ok := b.BlockParser.(parser.SetOptioner); ok {
		so.SetOption(name, value)
	}
}

func (b countedBlock) Open(parent ast.Node, r text.Reader, pc parser.Context) (ast.Node, parser.State) {
	b.steps.spend(openWork)
	node, state := b.BlockParser.Open(parent, r, pc)
	if node != nil {
		b.steps.spend(blockWork)
	}
	if container(node) {
		depth := 1
		for p := parent; p != nil; p = p.Parent() {
			if container(p) {
				depth++
			}
		}
		if depth > maxNesting {
			panic(errNested)
		}
	}
	return node, state
}

func (b countedBlock) Continue(node ast.Node, r text.Reader, pc parser.Context) parser.State {
	b.steps.spend(goOnWork)
	return b.BlockParser.Continue(node, r, pc)
}

func container(n ast.Node) bool {
	if n == nil {
		return false
	}
	k := n.Kind()
	return k == ast.KindBlockquote || k == ast.KindListItem || k == extast.KindFootnote
}

type countedParagraph struct {
	parser.ParagraphTransformer
	steps *steps
}

// SetOption implements parser.SetOptioner.
func (p countedParagraph) SetOption(name parser.OptionName, value any) {
	if so, ok := p.ParagraphTransformer.(parser.SetOptioner); ok {
		so.SetOption(name, value)
	}
}

// Transform charges for the cells a table would have, before there are any.
func (p countedParagraph) Transform(n *ast.Paragraph, r text.Reader, pc parser.Context) {
	columns, lines := 0, n.Lines()
	for i := 1; i < lines.Len(); i++ {
		at := lines.At(i)
		line := at.Value(r.Source())
		if len(bytes.Trim(line, " \t\r\n|:-")) == 0 {
			columns = max(columns, bytes.Count(line, []byte("|"))+1)
		}
	}
	if columns > 0 {
		p.steps.spend(int64(columns) * int64(lines.Len()) * cellWork)
	}
	p.ParagraphTransformer.Transform(n, r, pc)
}

var (
	_ parser.Option               = (*steps)(nil)
	_ parser.BlockParser          = countedBlock{}
	_ parser.ParagraphTransformer = countedParagraph{}
)
