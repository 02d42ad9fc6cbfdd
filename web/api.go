package web

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"sandbook/artifacts"
	"sandbook/kernel"
	"sandbook/kernel/notebook"
	"sandbook/kernel/wire"
	"sandbook/sessionstore"
	"sandbook/web/live"
)

// Bounds of the API.
const (
	maxBody   = 4 << 20   // bytes of a JSON request
	maxForm   = 64 << 10  // of a small form
	maxNext   = 2 << 10   // of the address to go to after signing in
	maxImport = 64 << 20  // of an .ipynb file
	maxFile   = 256 << 20 // of an upload
	maxWait   = 50 * time.Second
	pageLimit = 1000

	maxEventBytes = 8 << 20 // of JSON in one page of events
	eventStep     = 32      // events read at one time, for each may be large
)

// session opens the notebook the path names.
func (s *Server) session(c echo.Context) (*kernel.Session, error) {
	return s.manager.Open(c.Request().Context(), notebook.ID(c.Param("id")))
}

// decode reads a JSON body strictly.
func decode(c echo.Context, v any) error {
	r := c.Request()
	if ct, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); r.ContentLength != 0 && (err != nil || ct != "application/json") {
		return notebook.Errorf(notebook.Invalid, "Send JSON, with Content-Type: application/json.")
	}
	d := json.NewDecoder(http.MaxBytesReader(c.Response(), r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if errors.Is(err, io.EOF) {
		return nil
	}
	var after error
	if err == nil {
		_, after = d.Token() // not More, which takes a bracket too many for an end
	}
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](errors.Join(err, after)); {
	case tooLarge:
		return errors.Join(err, after)
	case err != nil:
		return notebook.Errorf(notebook.Invalid, "The JSON does not fit: %s.", notebook.Misfit(err))
	case !errors.Is(after, io.EOF):
		return notebook.Errorf(notebook.Invalid, "Something follows the JSON value.")
	}
	return nil
}

func (s *Server) apiList(c echo.Context) error {
	q := sessionstore.ListQuery{Search: c.QueryParam("q"), Deleted: c.QueryParam("deleted") == "true"}
	q.Cursor = c.QueryParam("cursor")
	list, err := s.store.List(c.Request().Context(), q)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, list)
}

type newNotebook struct {
	Title    string `json:"title"`
	Language string `json:"language"`
	Backend  string `json:"backend"`
	Cells    []struct {
		Kind   notebook.CellKind `json:"kind"`
		Source string            `json:"source"`
	} `json:"cells"`
}

func (s *Server) apiCreate(c echo.Context) error {
	var in newNotebook
	if err := decode(c, &in); err != nil {
		return err
	}
	if in.Language == "" {
		in.Language = "python"
	}
	if in.Language != "python" {
		return notebook.Errorf(notebook.Invalid, "This server runs python, not %q.", in.Language)
	}
	cells := make([]kernel.NewCell, 0, len(in.Cells))
	for _, cell := range in.Cells {
		cells = append(cells, kernel.NewCell{Kind: cell.Kind, Source: cell.Source})
	}
	id, err := s.manager.Create(c.Request().Context(), actor(c), notebook.Created{Title: in.Title, Language: in.Language, Backend: in.Backend}, cells, nil)
	if err != nil {
		return err
	}
	c.Response().Header().Set("Location", "/api/v1/notebooks/"+string(id))
	return c.JSON(http.StatusCreated, map[string]any{"id": id})
}

func (s *Server) apiState(c echo.Context) error {
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	return s.whole(c, func() (any, error) { return ses.State(), nil })
}

// whole answers with something as large as a notebook, when its turn comes.
func (s *Server) whole(c echo.Context, of func() (any, error)) error {
	done, err := s.turn(c.Request().Context(), claimsOf(c).ID)
	if err != nil {
		return err
	}
	defer done()
	v, err := of()
	if err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) < smallAnswer {
		done()
	}
	return c.JSONBlob(http.StatusOK, append(b, '\n'))
}

// apiOp does one op: the same as on the socket.
func (s *Server) apiOp(c echo.Context) error {
	var in struct {
		Op   string          `json:"op"`
		Args json.RawMessage `json:"args"`
		Key  string          `json:"key"`
	}
	if err := decode(c, &in); err != nil {
		return err
	}
	if k := c.Request().Header.Get("Idempotency-Key"); in.Key == "" {
		in.Key = k
	}
	op, err := notebook.DecodeOp(in.Op, in.Args)
	if err != nil {
		return err
	}
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	res, err := ses.Do(c.Request().Context(), actor(c), op, in.Key)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, res)
}

// apiEvents returns events after since; with wait it holds the answer until
// there is one, at most maxWait.
func (s *Server) apiEvents(c echo.Context) error {
	since, err := intParam(c, "since", 0)
	if err != nil {
		return err
	}
	limit, err := intParam(c, "limit", pageLimit)
	if err != nil {
		return err
	}
	wait, err := intParam(c, "wait", 0)
	if err != nil {
		return err
	}
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	wait = min(wait, int64(maxWait/time.Second))
	ctx := c.Request().Context()
	if wait > 0 && ses.State().Seq <= since {
		sub, err := ses.Subscribe(ctx)
		if err != nil {
			return err
		}
		t := time.NewTimer(time.Duration(wait) * time.Second)
		for waiting := sub.State.Seq <= since; waiting; {
			select {
			case u, ok := <-sub.Updates:
				waiting = ok && u.After == nil
			case <-t.C:
				waiting = false
			case <-ctx.Done():
				waiting = false
			}
		}
		t.Stop()
		sub.Close()
	}
	return s.whole(c, func() (any, error) {
		evs, err := pageOf(ctx, s.store, ses.ID(), since, int(min(limit, pageLimit)))
		return map[string]any{"events": evs, "seq": ses.State().Seq}, err
	})
}

// pageOf reads a page of events, and ends it where it gets too long for one
// answer.
func pageOf(ctx context.Context, log kernel.Log, id notebook.ID, since int64, limit int) ([]json.RawMessage, error) {
	page, n := []json.RawMessage{}, 0
	for len(page) < limit && n < maxEventBytes {
		evs, err := log.Events(ctx, id, since, min(limit-len(page), eventStep))
		if err != nil || len(evs) == 0 {
			return page, err
		}
		for _, e := range evs {
			b, err := e.MarshalJSON()
			if err != nil {
				return nil, err
			}
			page, n, since = append(page, b), n+len(b), e.Seq
			if n >= maxEventBytes {
				break
			}
		}
	}
	return page, nil
}

func intParam(c echo.Context, name string, def int64) (int64, error) {
	v := c.QueryParam(name)
	if v == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return 0, notebook.Errorf(notebook.Invalid, "The parameter %s is a whole number, not negative.", name)
	}
	return n, nil
}

// apiAsk puts a question to the kernel: complete, inspect, is_complete,
// variables or files.
func (s *Server) apiAsk(c echo.Context) error {
	var in struct {
		Op    string `json:"op"`
		Code  string `json:"code"`
		Pos   int    `json:"pos"`
		Level int    `json:"level"`
		Path  string `json:"path"`
	}
	if err := decode(c, &in); err != nil {
		return err
	}
	ops := map[string]wire.Op{
		"complete": wire.OpComplete, "inspect": wire.OpInspect, "is_complete": wire.OpIsComplete,
		"variables": wire.OpVariables, "files": wire.OpList,
	}
	op, ok := ops[in.Op]
	if !ok {
		return notebook.Errorf(notebook.Invalid, "Ask one of complete, inspect, is_complete, variables, files.")
	}
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	b, err := ses.Ask(c.Request().Context(), actor(c), wire.Request{Op: op, Code: in.Code, Pos: in.Pos, Level: in.Level, Path: in.Path, Limit: 5000})
	if err != nil {
		return err
	}
	if len(b) == 0 {
		b = []byte("{}")
	}
	return c.JSONBlob(http.StatusOK, b)
}

// apiRuns lists run records, newest first.
func (s *Server) apiRuns(c echo.Context) error {
	before, err := intParam(c, "before", 0)
	if err != nil {
		return err
	}
	limit, err := intParam(c, "limit", 0)
	if err != nil {
		return err
	}
	if _, err := s.session(c); err != nil { // the store knows no notebooks here, only runs
		return err
	}
	runs, err := s.store.Runs(c.Request().Context(), sessionstore.RunsQuery{
		Notebook: notebook.ID(c.Param("id")), Cell: notebook.CellID(c.QueryParam("cell")), Before: before, Limit: int(min(limit, 500)),
	})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{"runs": runs})
}

// apiRunOutput is everything a run printed to one stream, as kept.
func (s *Server) apiRunOutput(c echo.Context) error {
	stream := c.QueryParam("stream")
	if stream == "" {
		stream = "stdout"
	}
	if stream != "stdout" && stream != "stderr" {
		return notebook.Errorf(notebook.Invalid, "The stream is stdout or stderr.")
	}
	ctx := c.Request().Context()
	r, err := s.store.RunOutput(ctx, notebook.ID(c.Param("id")), notebook.RunID(c.Param("run")), stream)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	c.Response().Header().Set("Content-Disposition", artifacts.Attachment("output-"+stream+".txt"))
	return c.Stream(http.StatusOK, "text/plain; charset=utf-8", r)
}

func (s *Server) apiFiles(c echo.Context) error {
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{"files": ses.State().Files})
}

// filePath is the workspace path a request names. The router has undone the
// escapes, unless there is more than one way to write them.
func filePath(c echo.Context) (string, error) {
	if c.Request().URL.RawPath == "" {
		return c.Param("*"), nil
	}
	p, err := url.PathUnescape(c.Param("*"))
	if err != nil {
		return "", notebook.Errorf(notebook.Invalid, "The path is not well escaped.")
	}
	return p, nil
}

func (s *Server) apiFileGet(c echo.Context) error {
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	p, err := filePath(c)
	if err != nil {
		return err
	}
	r, _, err := ses.OpenFile(c.Request().Context(), p)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	return s.download(c, r)
}

func (s *Server) apiFilePut(c echo.Context) error {
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	p, err := filePath(c)
	if err != nil {
		return err
	}
	f, err := ses.Upload(c.Request().Context(), actor(c), p, http.MaxBytesReader(c.Response(), c.Request().Body, maxFile))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, f)
}

func (s *Server) apiFileDelete(c echo.Context) error {
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	p, err := filePath(c)
	if err != nil {
		return err
	}
	if err := ses.RemoveFile(c.Request().Context(), actor(c), p); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// apiLive is the socket.
func (s *Server) apiLive(c echo.Context) error {
	if !c.IsWebSocket() {
		c.Response().Header().Set(echo.HeaderUpgrade, "websocket")
		return echo.NewHTTPError(http.StatusUpgradeRequired)
	}
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	since := int64(-1)
	if v := c.QueryParam("since"); v != "" {
		if since, err = intParam(c, "since", 0); err != nil {
			return err
		}
	}
	claims := claimsOf(c)
	revoked, done, err := s.watches.add(claims.ID)
	if err != nil {
		return err
	}
	defer done()
	if s.store.Revoked(claims.ID) { // between the check and the watch
		return errSignIn
	}
	o := live.Options{
		Session: ses, Log: s.store, Turn: func(ctx context.Context) (func(), error) { return s.turn(ctx, claims.ID) },
		Actor: claims.Actor, Since: since, Expires: claims.Expires, Revoked: revoked, Build: s.build, Logger: s.logger,
	}
	switch v := c.QueryParam("view"); v {
	case "":
	case "page":
		o.Patch = s.patcher(c)
	default:
		return notebook.Errorf(notebook.Invalid, "The view is page, or none for events.")
	}
	s.sockets.Add(1)
	defer s.sockets.Done()
	live.Serve(c.Response(), c.Request(), o)
	return nil
}

// apiStatus says what this server is and what its sandboxes enforce.
func (s *Server) apiStatus(c echo.Context) error {
	return c.JSON(http.StatusOK, map[string]any{"version": s.build, "wire": wire.Version, "backends": s.caps, "live": s.manager.Live()})
}
