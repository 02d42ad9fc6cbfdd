package render

import (
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
)

const (
	// maxHighlight bounds the code that is coloured; longer code is shown plain.
	maxHighlight = 64 << 10
	// maxHighlightLine keeps minified text, and patterns that dislike it, away
	// from the lexers.
	maxHighlightLine = 8 << 10
)

// languages are the names people and kernels use, and the lexer for each. Code
// in any other language is shown plain.
var languages = map[string]string{
	"python": "python", "python3": "python", "py": "python", "ipython": "python", "ipython3": "python", "pycon": "pycon",
	"markdown": "markdown", "md": "markdown",
	"javascript": "javascript", "js": "javascript", "node": "javascript", "mjs": "javascript", "jsx": "react",
	"typescript": "typescript", "ts": "typescript", "tsx": "typescript",
	"r": "r", "ir": "r", "julia": "julia", "ruby": "ruby", "rb": "ruby", "go": "go", "rust": "rust", "rs": "rust",
	"c": "c", "cpp": "cpp", "c++": "cpp", "java": "java", "kotlin": "kotlin", "scala": "scala", "swift": "swift",
	"csharp": "csharp", "c#": "csharp", "php": "php", "perl": "perl", "lua": "lua", "haskell": "haskell",
	"bash": "bash", "sh": "bash", "shell": "bash", "console": "console", "powershell": "powershell",
	"sql": "sql", "json": "json", "yaml": "yaml", "yml": "yaml", "toml": "toml", "ini": "ini", "xml": "xml",
	"html": "html", "css": "css", "diff": "diff", "patch": "diff", "tex": "tex", "latex": "tex",
	"dockerfile": "docker", "make": "makefile", "makefile": "makefile",
}

// Code highlights source code with tok-* classes. What it shows is exactly src:
// characters that could hide or reorder code are shown as their code point, and
// where a lexer would change a byte the code is shown plain. The result belongs
// in a <pre><code>.
func Code(src, language string) HTML {
	src = strings.ReplaceAll(validUTF8(src), "\r\n", "\n")
	w := &writer{how: exact}
	w.Grow(len(src) * 2)
	for _, t := range tokens(src, language) {
		if c := tokenClass(t.Type); c != "" && strings.TrimSpace(t.Value) != "" {
			w.WriteString(`<span class="` + c + `">`)
			w.text(t.Value)
			w.WriteString("</span>")
		} else {
			w.text(t.Value)
		}
	}
	return HTML(w.String())
}

// tokens returns pieces whose values joined are src.
func tokens(src, language string) (out []chroma.Token) {
	whole := []chroma.Token{{Type: chroma.Text, Value: src}}
	name, ok := languages[strings.ToLower(language)]
	if !ok || len(src) > maxHighlight || longestLine(src) > maxHighlightLine {
		return whole
	}
	lexer := lexers.Get(name)
	if lexer == nil {
		return whole
	}
	defer func() {
		if recover() != nil { // a lexer that gives up must not take the page with it
			out = whole
		}
	}()
	it, err := chroma.Coalesce(lexer).Tokenise(&chroma.TokeniseOptions{State: "root"}, src)
	if err != nil {
		return whole
	}
	n := 0
	for t := it(); t != chroma.EOF; t = it() {
		if n+len(t.Value) > len(src) { // the newline some lexers add
			t.Value = t.Value[:len(src)-n]
		}
		if !strings.HasPrefix(src[n:], t.Value) {
			return whole
		}
		n += len(t.Value)
		if t.Value != "" {
			out = append(out, t)
		}
	}
	if n != len(src) {
		return whole
	}
	return out
}

func longestLine(s string) int {
	longest := 0
	for line := range strings.SplitSeq(s, "\n") {
		longest = max(longest, len(line))
	}
	return longest
}

// tokenClass maps a token to the class CodeMirror's classHighlighter gives it:
// keyword, bool, atom, string, string2, number, comment, operator, punctuation,
// meta, typeName, className, namespace, propertyName, variableName,
// variableName2, definition, labelName, heading, emphasis, strong, link,
// inserted, deleted.
func tokenClass(t chroma.TokenType) string {
	switch t {
	case chroma.KeywordConstant:
		return "tok-bool"
	case chroma.KeywordType:
		return "tok-typeName"
	case chroma.NameBuiltin, chroma.NameBuiltinPseudo, chroma.NameVariableMagic, chroma.NamePseudo:
		return "tok-variableName2"
	case chroma.NameFunction, chroma.NameFunctionMagic:
		return "tok-variableName tok-definition"
	case chroma.NameClass, chroma.NameException:
		return "tok-className"
	case chroma.NameDecorator, chroma.CommentPreproc, chroma.CommentPreprocFile, chroma.CommentHashbang:
		return "tok-meta"
	case chroma.NameNamespace:
		return "tok-namespace"
	case chroma.NameAttribute, chroma.NameProperty:
		return "tok-propertyName"
	case chroma.NameTag:
		return "tok-typeName"
	case chroma.NameLabel, chroma.NameEntity:
		return "tok-labelName"
	case chroma.NameConstant:
		return "tok-atom"
	case chroma.LiteralStringEscape, chroma.LiteralStringRegex, chroma.LiteralStringInterpol, chroma.LiteralStringSymbol:
		return "tok-string2"
	case chroma.OperatorWord:
		return "tok-keyword"
	case chroma.GenericHeading, chroma.GenericSubheading:
		return "tok-heading"
	case chroma.GenericEmph:
		return "tok-emphasis"
	case chroma.GenericStrong:
		return "tok-strong"
	case chroma.GenericInserted:
		return "tok-inserted"
	case chroma.GenericDeleted:
		return "tok-deleted"
	case chroma.GenericPrompt:
		return "tok-meta"
	}
	switch t.SubCategory() {
	case chroma.LiteralString:
		return "tok-string"
	case chroma.LiteralNumber:
		return "tok-number"
	case chroma.NameVariable:
		return "tok-variableName"
	}
	switch t.Category() {
	case chroma.Keyword:
		return "tok-keyword"
	case chroma.Comment:
		return "tok-comment"
	case chroma.Operator:
		return "tok-operator"
	case chroma.Punctuation:
		return "tok-punctuation"
	}
	return ""
}
