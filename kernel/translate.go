package kernel

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sandbook/kernel/notebook"
	"sandbook/kernel/wire"
)

// Bounds of what a guest may put into one output.
const (
	maxMIMETypes = 32
	maxInline    = 64 << 10 // bytes of one representation kept in the event itself
	maxOutput    = 96 << 10 // bytes of all representations of one output kept in the event
	maxValue     = 32 << 20 // bytes of one representation
	maxDepth     = 64       // of JSON that becomes part of the state: readers have limits, too
	maxTraceback = 200      // lines
	maxFileList  = 5000     // files that one event lists
	maxLine      = 8 << 10  // bytes of a traceback line, an error name or value
)

// jupyterData is the content of display_data, execute_result and
// update_display_data.
type jupyterData struct {
	Data      map[string]json.RawMessage `json:"data"`
	Metadata  json.RawMessage            `json:"metadata"`
	Transient struct {
		DisplayID string `json:"display_id"`
	} `json:"transient"`
}

// translate turns one event of the guest into the fact it reports. A nil body
// means there is nothing to record. An error is a malformed event.
func (s *Session) translate(ctx context.Context, e wire.Event) (notebook.Body, error) {
	body, err := s.translateEvent(ctx, e)
	if err == nil {
		return body, nil
	}
	if _, store := errors.AsType[*storeError](err); store {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %s: %w", errMalformed, cut(string(e.Type), 40), err)
}

// errMalformed marks an event that is the guest's fault.
var errMalformed = errors.New("malformed event")

// storeError marks a failure of ours; the event is sound and must come again.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

func (s *Session) translateEvent(ctx context.Context, e wire.Event) (notebook.Body, error) {
	run := notebook.RunID(e.Run)
	switch e.Type {
	case wire.EventRunStart, wire.EventComm:
		return nil, nil //nolint:nilnil // nothing to record is a valid answer
	case wire.EventStream:
		return notebook.StreamAppended{Run: run, Name: streamName(e.Name), Text: string(e.Data), Background: e.Background}, nil
	case wire.EventOmitted, wire.EventSpoolFull:
		var c wire.Omitted
		if err := json.Unmarshal(e.Content, &c); err != nil {
			return nil, err
		}
		if c.Name == "" {
			c.Name = e.Name
		}
		return notebook.StreamOmitted{Run: run, Name: streamName(c.Name), Bytes: max(0, c.Bytes), Lines: max(0, c.Lines), Tail: tail(e.Data)}, nil
	case wire.EventDisplay, wire.EventResult, wire.EventUpdate:
		return s.translateData(ctx, e)
	case wire.EventClear:
		var c struct{ Wait bool }
		err := json.Unmarshal(e.Content, &c)
		return notebook.OutputsCleared{Run: run, Wait: c.Wait}, err
	case wire.EventError:
		var c struct {
			EName     string   `json:"ename"`
			EValue    string   `json:"evalue"`
			Traceback []string `json:"traceback"`
		}
		if err := json.Unmarshal(e.Content, &c); err != nil {
			return nil, err
		}
		return notebook.OutputAdded{Run: run, Output: notebook.Output{
			Kind: notebook.ErrorOutput, Background: e.Background,
			EName: cut(c.EName, maxLine), EValue: cut(c.EValue, maxLine), Traceback: cutLines(c.Traceback),
		}}, nil
	case wire.EventInput:
		var c struct {
			Prompt   string
			Password bool
		}
		err := json.Unmarshal(e.Content, &c)
		return notebook.InputRequested{Run: run, Prompt: c.Prompt, Password: c.Password}, err
	case wire.EventFiles:
		var c wire.Files
		err := json.Unmarshal(e.Content, &c)
		return notebook.FilesChanged{Run: run, Files: translateFiles(c)}, err
	}
	return s.translateKernel(e)
}

// translateKernel handles the events about the kernel itself.
func (s *Session) translateKernel(e wire.Event) (notebook.Body, error) {
	run := notebook.RunID(e.Run)
	switch e.Type {
	case wire.EventReady:
		var c wire.KernelInfo
		err := json.Unmarshal(e.Content, &c)
		return notebook.KernelReady{Gen: e.Gen, Info: notebook.KernelInfo{
			Language: cut(c.Language, 100), Version: cut(c.Version, 100),
			Implementation: cut(c.Implementation, 200), Features: cutEach(c.Features[:min(len(c.Features), 32)]),
		}}, err
	case wire.EventInterrupt:
		var c wire.InterruptStage
		err := json.Unmarshal(e.Content, &c)
		return notebook.RunStage{Run: run, Stage: cut(c.Stage, 40)}, err
	case wire.EventRunEnd:
		var c wire.RunEnd
		if err := json.Unmarshal(e.Content, &c); err != nil {
			return nil, err
		}
		b := notebook.RunEnded{
			Run: run, Status: runStatus(c.Status), Reason: cut(c.Reason, maxLine), EName: cut(c.EName, maxLine), EValue: cut(c.EValue, maxLine),
			WallMS: max(0, c.WallMS), CPUMS: max(0, c.CPUMS), PeakMemory: max(0, c.Peak),
		}
		if b.Status == notebook.Killed {
			if why := s.outOfMemory(); why != "" {
				b.Reason = why
			}
		}
		return b, nil
	case wire.EventDied:
		var c wire.Died
		if err := json.Unmarshal(e.Content, &c); err != nil {
			return nil, err
		}
		return s.translateDied(e.Gen, c), nil
	}
	return nil, fmt.Errorf("unknown event type %q", cut(string(e.Type), 40))
}

// translateDied finds the words for a kernel's end.
func (s *Session) translateDied(gen int, c wire.Died) notebook.Body {
	d := notebook.KernelDied{Gen: gen, Cause: "exited", Code: c.Code, Signal: c.Signal, Peak: c.Peak, Message: cut(c.Reason, maxLine)}
	if c.Signal != 0 {
		d.Cause = "signaled"
	}
	if why := s.outOfMemory(); why != "" {
		d.Cause, d.Message = "out_of_memory", why
	}
	if d.Message == "" {
		d.Message = fmt.Sprintf("The kernel ended by itself with exit code %d.", c.Code)
		if c.Signal != 0 {
			d.Message = fmt.Sprintf("The kernel was ended by signal %d.", c.Signal)
		}
	}
	d.Message += " Its variables are gone; files it wrote are kept."
	return d
}

// translateData handles MIME bundles.
func (s *Session) translateData(ctx context.Context, e wire.Event) (notebook.Body, error) {
	var c jupyterData
	if err := json.Unmarshal(e.Content, &c); err != nil {
		return nil, err
	}
	data, err := s.bundle(ctx, c.Data)
	if err != nil {
		return nil, err
	}
	id := cut(c.Transient.DisplayID, 200)
	if len(c.Metadata) > maxInline || !json.Valid(c.Metadata) || notebook.Deeper(c.Metadata, maxDepth) {
		c.Metadata = nil
	}
	if e.Type == wire.EventUpdate {
		return notebook.OutputUpdated{DisplayID: id, Data: data, Metadata: c.Metadata}, nil
	}
	kind := notebook.DisplayOutput
	if e.Type == wire.EventResult {
		kind = notebook.ResultOutput
	}
	return notebook.OutputAdded{Run: notebook.RunID(e.Run), Output: notebook.Output{
		Kind: kind, Background: e.Background, Data: data, Metadata: c.Metadata, DisplayID: id,
	}}, nil
}

// bundle checks a MIME bundle and moves what is big or binary into blobs.
func (s *Session) bundle(ctx context.Context, in map[string]json.RawMessage) (map[string]notebook.Value, error) {
	if len(in) > maxMIMETypes {
		return nil, fmt.Errorf("bundle of %d types", len(in))
	}
	out := make(map[string]notebook.Value, len(in))
	inline := 0
	for _, mime := range slices.Sorted(maps.Keys(in)) {
		raw := in[mime]
		if !validMIME(mime) {
			continue
		}
		text := string(raw)
		var str string
		if json.Unmarshal(raw, &str) == nil {
			text = str
		} else if !strings.HasSuffix(mime, "json") && !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
			continue
		}
		text = strings.ToValidUTF8(text, "\uFFFD")
		v, err := keepValue(ctx, s.m.blobs, s.id, mime, text, min(maxInline, maxOutput-inline))
		if err != nil {
			return nil, &storeError{err}
		}
		inline += len(v.Text)
		out[mime] = v
	}
	return out, nil
}

// Keep makes the value of one representation of a MIME bundle: small text stays
// as it is, binary types (base64 in text) and long text become blobs.
func Keep(ctx context.Context, blobs Blobs, id notebook.ID, mime, text string) (notebook.Value, error) {
	return keepValue(ctx, blobs, id, mime, text, maxInline)
}

func keepValue(ctx context.Context, blobs Blobs, id notebook.ID, mime, text string, inline int) (notebook.Value, error) {
	if len(text) > maxValue {
		return notebook.Value{Text: fmt.Sprintf("This output is %d bytes long; at most %d are kept.", len(text), maxValue)}, nil
	}
	content := []byte(text)
	if BinaryMIME(mime) {
		b, err := base64.StdEncoding.DecodeString(strings.Map(dropSpace, text))
		if err != nil {
			return notebook.Value{Text: "This output is not valid base64."}, nil //nolint:nilerr // the guest's fault, shown to the person
		}
		content = b
	} else if len(text) <= inline {
		return notebook.Value{Text: text}, nil
	}
	hash, size, err := blobs.PutFor(ctx, id, bytes.NewReader(content), maxValue)
	if notebook.CodeOf(err) == notebook.TooLarge {
		return notebook.Value{Text: "This output was not kept. " + notebook.MessageOf(err)}, nil
	}
	if err != nil {
		return notebook.Value{}, err
	}
	return notebook.Value{Blob: hash, Size: size}, nil
}

func dropSpace(r rune) rune {
	if r == '\n' || r == '\r' || r == ' ' {
		return -1
	}
	return r
}

// BinaryMIME reports whether Jupyter sends a type as base64.
func BinaryMIME(mime string) bool {
	switch {
	case strings.HasPrefix(mime, "image/svg"):
		return false
	case strings.HasPrefix(mime, "image/"), strings.HasPrefix(mime, "audio/"), strings.HasPrefix(mime, "video/"):
		return true
	}
	return mime == "application/pdf"
}

func validMIME(s string) bool {
	if len(s) == 0 || len(s) > 100 || strings.Count(s, "/") != 1 {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/.+-_;= ", r) {
			return false
		}
	}
	return true
}

func streamName(s string) string {
	if s == "stderr" {
		return s
	}
	return "stdout"
}

func runStatus(s wire.RunStatus) notebook.RunStatus {
	switch s {
	case wire.RunOK:
		return notebook.OK
	case wire.RunError:
		return notebook.Failed
	case wire.RunInterrupted:
		return notebook.Interrupted
	case wire.RunTimeout:
		return notebook.TimedOut
	}
	return notebook.Killed
}

func translateFiles(f wire.Files) notebook.Files {
	out := notebook.Files{More: max(0, f.More)}
	for _, p := range f.Removed {
		switch {
		case checkPath(p) != nil:
		case len(out.Removed) < maxFileList:
			out.Removed = append(out.Removed, p)
		default:
			out.More++
		}
	}
	for _, c := range f.Changed {
		switch {
		case c.Kind != "file" || checkPath(c.Path) != nil:
		case len(out.Changed) < maxFileList:
			out.Changed = append(out.Changed, notebook.File{Path: c.Path, Size: max(0, c.Size), Mode: c.Mode & 0o777})
		default:
			out.More++
		}
	}
	return out
}

// tail is the end of a text, at most as much as one event may hold.
func tail(b []byte) string {
	if over := len(b) - notebook.MaxText; over > 0 {
		b = b[over:]
		for len(b) > 0 && !utf8.RuneStart(b[0]) {
			b = b[1:]
		}
	}
	return string(b)
}

func cutEach(in []string) []string {
	if len(in) == 0 {
		return nil
	}
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = cut(s, 100)
	}
	return out
}

// cut shortens s to n bytes at a character's edge.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func cutLines(in []string) []string {
	if len(in) > maxTraceback {
		in = append(append(in[:maxTraceback/2:maxTraceback/2], fmt.Sprintf("… %d lines are left out here …", len(in)-maxTraceback)), in[len(in)-maxTraceback/2:]...)
	}
	out := make([]string, len(in))
	for i, l := range in {
		out[i] = cut(l, maxLine)
	}
	return out
}

// outOfMemory says, in words, that the host counted an out-of-memory kill in
// the sandbox since the last time it was asked about; else it is empty.
func (s *Session) outOfMemory() string {
	if s.sandbox == nil {
		return ""
	}
	u, ok := s.usage()
	if !ok || u.OOMKills <= s.oomSeen {
		if time.Since(s.oomAt) < 5*time.Second {
			return s.oomWords
		}
		return ""
	}
	s.oomSeen, s.oomAt = u.OOMKills, time.Now()
	s.oomWords = fmt.Sprintf("The kernel ran out of memory: its limit is %s, and it had used %s.", sizeWords(s.state.Kernel.Memory), sizeWords(u.PeakMemory))
	return s.oomWords
}

// sizeWords prints bytes for people.
func sizeWords(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
