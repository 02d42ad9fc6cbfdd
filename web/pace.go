package web

import (
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

// How long a client may stand still: bodies that never come and answers that
// nobody reads would hold connections, and what is behind them, for ever.
const (
	readPace   = 30 * time.Second // for the next piece of a body
	writePace  = 60 * time.Second // for the next piece of an answer to be taken
	unreadPace = 5 * time.Second  // for what is left of a body that no handler wanted
)

// pace puts a deadline before each read of the request's body and each write of
// the answer. Call the function it returns when the handler has ended.
func pace(c echo.Context) (done func()) {
	rc := http.NewResponseController(c.Response().Writer)
	body := &pacedBody{ReadCloser: c.Request().Body, rc: rc}
	c.Request().Body = body
	c.Response().Writer = &pacedWriter{ResponseWriter: c.Response().Writer, rc: rc}
	return func() {
		// Not every connection has deadlines, such as one that was taken over.
		_ = rc.SetWriteDeadline(time.Now().Add(writePace))
		if !body.ended {
			_ = rc.SetReadDeadline(time.Now().Add(unreadPace))
		}
	}
}

type pacedBody struct {
	io.ReadCloser
	rc    *http.ResponseController
	ended bool
}

func (b *pacedBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(readPace))
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	// None stays behind: the server goes on reading to notice a client that leaves.
	_ = b.rc.SetReadDeadline(time.Time{})
	return n, err
}

type pacedWriter struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func (w *pacedWriter) Write(p []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(writePace))
	return w.ResponseWriter.Write(p)
}

// Unwrap is how http.ResponseController finds the connection's own writer.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
