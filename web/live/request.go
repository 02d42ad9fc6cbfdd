package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"sandbook/kernel/notebook"
	"sandbook/kernel/wire"
)

const (
	maxID     = 100  // bytes of a request's id
	maxListed = 5000 // files a question lists
)

// request is one message of a client: an op, a question, or neither, which is
// the answer to a ping.
type request struct {
	id  json.RawMessage // a number or a string; nil if there is none to answer under
	op  notebook.Op
	ask *wire.Request
	key string
}

// questions are what may be asked of the kernel.
var questions = map[string]wire.Op{
	"complete": wire.OpComplete, "inspect": wire.OpInspect, "is_complete": wire.OpIsComplete,
	"variables": wire.OpVariables, "files": wire.OpList,
}

// decode reads a message. Errors are Invalid and say what is wrong; the request
// then has nothing but the id.
func decode(text bool, b []byte) (request, error) {
	if !text || !utf8.Valid(b) {
		return request{}, notebook.Errorf(notebook.Invalid, "Messages are JSON text in UTF-8.")
	}
	if !bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")) || !json.Valid(b) {
		return request{}, notebook.Errorf(notebook.Invalid, `A message is a JSON object like {"id":1,"op":"cell.edit","args":{…}}.`)
	}
	var m struct {
		ID   json.RawMessage `json:"id"`
		Op   string          `json:"op"`
		Args json.RawMessage `json:"args"`
		Key  string          `json:"key"`
		Pong *int64          `json:"pong"`
	}
	err := strictly(b, &m)
	r := request{}
	if isID(m.ID) {
		r.id = m.ID
	}
	switch {
	case err != nil:
		return r, notebook.Errorf(notebook.Invalid, "The message does not fit: %s.", notebook.Misfit(err))
	case m.Pong != nil && m.Op == "" && m.ID == nil:
		return r, nil
	case r.id == nil:
		return r, notebook.Errorf(notebook.Invalid, "A request needs an id: a number or a string of at most %d bytes.", maxID)
	}
	if ask, ok := questions[m.Op]; ok {
		r.ask, err = decodeQuestion(m.Op, ask, m.Args)
		return r, err
	}
	if r.op, err = notebook.DecodeOp(m.Op, m.Args); err == nil {
		r.key = m.Key
	}
	return r, err
}

func decodeQuestion(name string, op wire.Op, args json.RawMessage) (*wire.Request, error) {
	var a struct {
		Code  string `json:"code"`
		Pos   int    `json:"pos"`
		Level int    `json:"level"`
		Path  string `json:"path"`
	}
	if len(args) > 0 {
		if err := strictly(args, &a); err != nil {
			return nil, notebook.Errorf(notebook.Invalid, "The arguments of %s do not fit: %s.", name, notebook.Misfit(err))
		}
	}
	return &wire.Request{Op: op, Code: a.Code, Pos: a.Pos, Level: a.Level, Path: a.Path, Limit: maxListed}, nil
}

// strictly decodes one JSON value and refuses unknown fields.
func strictly(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if _, more := d.Token(); err == nil && more != io.EOF { //nolint:errorlint // Token returns it bare
		err = errors.New("there is more than one value")
	}
	return err
}

// isID reports whether a JSON value can name a request.
func isID(v json.RawMessage) bool {
	return len(v) > 0 && len(v) <= maxID && (v[0] == '"' || v[0] == '-' || v[0] >= '0' && v[0] <= '9')
}
