package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"sandbook/artifacts"
	"sandbook/kernel/notebook"
	"sandbook/sessionstore"
)

// Some may be busy at one time, fewer of one credential; the others wait.
func TestPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(3, 2)
		var mu sync.Mutex
		busy, most, all := map[string]int{}, map[string]int{}, 0
		var wg sync.WaitGroup
		for i := range 60 {
			who := fmt.Sprint(i % 3)
			wg.Go(func() {
				done, err := p.take(t.Context(), who)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				busy[who]++
				most[who] = max(most[who], busy[who])
				sum := busy["0"] + busy["1"] + busy["2"]
				all = max(all, sum)
				mu.Unlock()
				<-time.After(time.Second)
				mu.Lock()
				busy[who]--
				mu.Unlock()
				done()
				done() // once more does nothing
			})
		}
		wg.Wait()
		if all != 3 || most["0"] > 2 || most["1"] > 2 || most["2"] > 2 {
			t.Errorf("busy at one time: %d, %v; want 3, at most 2 of each", all, most)
		}
		done, err := p.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		second, err := p.take(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.take(ctx, "a"); err == nil || ctx.Err() == nil {
			t.Errorf("a third place of one: %v, want to wait until the context ends", err)
		}
		other, err := p.take(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		done()
		second()
		other()
		if len(p.byWho) > 0 || len(p.free) > 0 {
			t.Errorf("left behind: %v, %d", p.byWho, len(p.free))
		}
	})
}

// Whoever cannot be answered now is told so, in words, and nothing else waits.
func TestLargeAnswersWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("Large", "1")
	nb := "/api/v1/notebooks/" + string(id)
	whole := map[string]string{
		"state": nb, "events": nb + "/events", "page": "/n/" + string(id),
	}
	var done []func()
	for i := range maxWhole {
		d, err := r.app.bounds.whole.take(t.Context(), fmt.Sprint("other", i))
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, d)
	}
	var wg sync.WaitGroup
	for name, path := range whole {
		wg.Go(func() {
			wantProblem(t, name, r.do(call{method: "GET", path: path, as: r.owner()}), http.StatusServiceUnavailable, "unavailable")
		})
	}
	wg.Go(func() {
		ws, err := r.dial(id, r.owner())
		if err != nil {
			t.Error(err)
			return
		}
		if code := r.closed(ws); code != websocket.StatusTryAgainLater {
			t.Errorf("the socket: closed with %d, want %d", code, websocket.StatusTryAgainLater)
		}
	})
	for _, path := range []string{"/", nb + "/files", nb + "/runs", "/healthz"} {
		if a := r.do(call{method: "GET", path: path, as: r.owner()}); a.status != http.StatusOK {
			t.Errorf("%s meanwhile: got %s, want it", path, a)
		}
	}
	wg.Wait()
	for _, d := range done {
		d()
	}
	for name, path := range whole {
		for range maxWhole + 1 { // each gives its place back
			if a := r.do(call{method: "GET", path: path, as: r.owner()}); a.status != http.StatusOK {
				t.Errorf("%s afterwards: got %s, want it", name, a)
			}
		}
	}
	if n := len(r.app.bounds.whole.free); n > 0 {
		t.Errorf("%d places are taken at the end", n)
	}
}

// A page of events is as large as what is in it, whatever kind of event it is;
// it was counted as 4 KiB each once, and was 150 MiB.
func TestPageOfEventsIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.notebook("Large")
	source := strings.Repeat("x", 1_000_000)
	for range 20 {
		b, err := json.Marshal(map[string]any{"op": "cell.insert", "args": map[string]any{"source": source, "kind": "code"}})
		if err != nil {
			t.Fatal(err)
		}
		if a := r.do(call{method: "POST", path: "/api/v1/notebooks/" + string(id) + "/ops", body: string(b), as: r.owner()}); a.status != http.StatusOK {
			t.Fatal(a)
		}
	}
	since, pages := int64(0), 0
	for {
		a := r.do(call{method: "GET", path: fmt.Sprintf("/api/v1/notebooks/%s/events?since=%d", id, since), as: r.owner()})
		var page struct {
			Events []notebook.Event `json:"events"`
			Seq    int64            `json:"seq"`
		}
		if err := json.Unmarshal([]byte(a.body), &page); a.status != http.StatusOK || err != nil {
			t.Fatalf("got %s, %v", a, err)
		}
		if len(a.body) > maxEventBytes+2*len(source) {
			t.Errorf("a page has %d bytes, want about %d at most", len(a.body), maxEventBytes)
		}
		if len(page.Events) == 0 {
			break
		}
		for _, e := range page.Events {
			if since++; e.Seq != since {
				t.Fatalf("event %d comes where %d should", e.Seq, since)
			}
		}
		pages++
	}
	if pages < 3 || since != r.state(id).Seq {
		t.Errorf("%d pages to event %d, want at least 3 to %d", pages, since, r.state(id).Seq)
	}
}

// fading is a store whose blobs go: at once, or after somebody looked.
type fading struct {
	*sessionstore.Store
	gone atomic.Int32 // 1: at once, 2: when they are opened, as far as they are text
}

func (f *fading) HasBlob(ctx context.Context, hash string) (bool, error) {
	if f.gone.Load() == 1 {
		return false, nil
	}
	return f.Store.HasBlob(ctx, hash)
}

func (f *fading) OpenBlob(ctx context.Context, hash string) (io.ReadSeekCloser, int64, error) {
	r, n, err := f.Store.OpenBlob(ctx, hash)
	if err != nil || f.gone.Load() != 2 {
		return r, n, err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, 0, err
	}
	if string(head) == "a li" {
		_ = r.Close()
		return nil, 0, errors.New("sector 17 is bad")
	}
	_, err = r.Seek(0, io.SeekStart)
	return r, n, err
}

// A file is written piece by piece, so few at one time, and what is not whole
// does not pass for it.
func TestExportOfLargeOutputs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := &fading{Store: r.store}
	r.app.blobs = artifacts.New(f, artifacts.Quota{})
	text := strings.Repeat("a line with \"quotes\", ümläute and <tags>\n", 20_000)
	data, err := json.Marshal(map[string]any{
		"text/plain": text, "image/png": base64.StdEncoding.EncodeToString([]byte(pngBytes + text)), "application/json": []string{text, "x"},
		"text/html": "<b>small</b>", "text/x-odd": text + "no end of line",
	})
	if err != nil {
		t.Fatal(err)
	}
	id := r.imported(`{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":[{"id":"a","cell_type":"code","source":"1","metadata":{},"execution_count":1,"outputs":[
		{"output_type":"display_data","metadata":{},"data":` + string(data) + `},{"output_type":"stream","name":"stdout","text":["printed\n"]}]},
		{"id":"b","cell_type":"markdown","source":"text","metadata":{}}]}`)
	path := "/n/" + string(id) + "/export.ipynb"
	a := r.do(call{method: "GET", path: path, as: r.owner()})
	if a.status != http.StatusOK || !strings.HasPrefix(a.head.Get("Content-Type"), "application/x-ipynb+json") {
		t.Fatalf("got %.300s, want the file", a)
	}
	again := r.do(call{method: "GET", path: "/n/" + string(r.imported(a.body)) + "/export.ipynb", as: r.owner()})
	var was, is struct {
		Cells []struct {
			Outputs []map[string]any `json:"outputs"`
		} `json:"cells"`
	}
	if err := errors.Join(json.Unmarshal([]byte(a.body), &was), json.Unmarshal([]byte(again.body), &is)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(was, is); d != "" {
		t.Errorf("the file of the file differs (-first +second):\n%.2000s", d)
	}
	out, _ := was.Cells[0].Outputs[0]["data"].(map[string]any)
	lines, _ := out["text/plain"].([]any)
	if len(out) != 5 || len(lines) != 20_000 || out["image/png"] != base64.StdEncoding.EncodeToString([]byte(pngBytes+text)) {
		t.Errorf("%d values, %d lines of text, %.60s; want all of them", len(out), len(lines), out["image/png"])
	}

	for range maxExports {
		r.app.bounds.exports <- struct{}{}
	}
	wantProblem(t, "one export too many", r.do(call{method: "GET", path: path, as: r.owner()}), http.StatusServiceUnavailable, "unavailable")
	for range maxExports {
		<-r.app.bounds.exports
	}
	f.gone.Store(1)
	wantProblem(t, "with a value gone", r.do(call{method: "GET", path: path, as: r.owner()}), http.StatusInternalServerError, "internal")
	f.gone.Store(2)
	res, err := r.client.Do(r.request(call{method: "GET", path: path, as: r.owner()}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if b, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("a value that goes meanwhile: got %d bytes as if that were all", len(b))
	}
	if n := len(r.app.bounds.exports); n > 0 {
		t.Errorf("%d exports are under way at the end", n)
	}
}
