// Package ipynb reads and writes Jupyter notebooks, format 4. It is pure: bytes
// in, values out, no I/O of its own and no clock, and it knows nothing of live notebooks.
//
// What it reads is hostile: sizes, depth and counts are bounded, flags of trust
// are dropped, and nothing of a file is more than data. What it writes is valid
// nbformat 4.5.
package ipynb

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// Kind says what a cell is.
type Kind string

// The kinds of cell.
const (
	Code     Kind = "code"
	Markdown Kind = "markdown"
	Raw      Kind = "raw"
)

// OutputKind says what an output is.
type OutputKind string

// The kinds of output.
const (
	Stream  OutputKind = "stream"  // Name and Text
	Display OutputKind = "display" // Data and Metadata
	Result  OutputKind = "result"  // Data and Metadata
	Error   OutputKind = "error"   // EName, EValue and Traceback
)

// Notebook is a whole document.
type Notebook struct {
	Title    string
	Language string // such as "python"; empty when the file does not say
	Cells    []Cell
	Metadata json.RawMessage // the other metadata, an object or nil
}

// Cell is one cell.
type Cell struct {
	ID          string
	Kind        Kind
	Source      string
	Count       int // execution count; 0 for none
	Outputs     []Output
	Attribution *Attribution
	Metadata    json.RawMessage // an object or nil
	Attachments json.RawMessage // of Markdown and raw cells, an object or nil; opaque
}

// Attribution is who wrote a cell, as the file claims. It is not evidence.
type Attribution struct {
	Kind string `json:"kind"` // person or agent
	Name string `json:"name"`
}

// Output is one output of a code cell.
type Output struct {
	Kind      OutputKind
	Name      string            // stdout or stderr
	Text      string            // of a stream
	Data      map[string]string // by MIME type: text, base64 for binary types, a JSON text for JSON types
	Stored    map[string]Stored // values that are not in memory, to be written; Read makes none
	Metadata  json.RawMessage   // an object or nil
	EName     string
	EValue    string
	Traceback []string
}

// FormatError is why a file cannot be read, as a sentence for the person who gave it.
type FormatError struct {
	Message  string
	TooLarge bool // the file may be sound, but it is more than is taken
}

func (p *FormatError) Error() string { return p.Message }

func problem(format string, args ...any) error {
	return &FormatError{Message: fmt.Sprintf(format, args...)}
}

func tooLarge(format string, args ...any) error {
	return &FormatError{Message: fmt.Sprintf(format, args...), TooLarge: true}
}

// Limits bound what is read.
type Limits struct {
	Bytes    int // of the file
	Depth    int // of the JSON
	Cells    int
	Source   int // bytes of one cell's source
	Outputs  int // outputs of one cell
	Output   int // bytes of all outputs together
	Metadata int // bytes of one object of metadata or attachments
}

// DefaultLimits suit an upload by a person.
var DefaultLimits = Limits{
	Bytes: 64 << 20, Depth: 200, Cells: 10_000, Source: 1 << 20, Outputs: 2000, Output: 48 << 20, Metadata: 8 << 20,
}

var (
	cellID   = regexp.MustCompile(`^[a-zA-Z0-9\-_]{1,64}$`)
	jsonMime = regexp.MustCompile(`^application/(.*\+)?json$`)
	mimeForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9!#$&^_.+\-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+\-; =]{0,126}$`)
	binary   = regexp.MustCompile(`^(?:image/(?:[^s]|s[^v]|sv[^g]).*|audio/.*|video/.*|font/.*|application/(?:pdf|octet-stream|zip))$`)
	language = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+#._ \-]{0,39}$`)
)

// ownKey is where the metadata of a cell or notebook keeps what is ours.
const ownKey = "sandbook"
