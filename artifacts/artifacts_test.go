package artifacts_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"sandbook/artifacts"
	"sandbook/kernel/notebook"
	"sandbook/sessionstore"
)

var _ artifacts.Blobs = (*sessionstore.Store)(nil)

func store(t *testing.T, q artifacts.Quota) (*artifacts.Store, *sessionstore.Store) {
	t.Helper()
	s, err := sessionstore.Open(t.Context(), sessionstore.Options{Dir: filepath.Join(t.TempDir(), "data"), NoMaintenance: true, Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return artifacts.New(s, q), s
}

func wantCode(t *testing.T, err error, code notebook.Code) {
	t.Helper()
	if got := notebook.CodeOf(err); got != code {
		t.Fatalf("error is %v, want %s", err, code)
	}
	if msg := notebook.MessageOf(err); !strings.HasSuffix(msg, ".") {
		t.Fatalf("%q is no sentence", msg)
	}
}

func TestPutAndOpen(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, s := store(t, artifacts.Quota{})
	want := bytes.Repeat([]byte("abc\x00"), 200_000)
	sum := sha256.Sum256(want)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			hash, n, err := a.Put(ctx, bytes.NewReader(want), 1<<20)
			if err != nil || n != int64(len(want)) || hash != hex.EncodeToString(sum[:]) {
				t.Error(hash, n, err)
			}
		})
	}
	wg.Wait()
	if n, err := s.BlobBytes(ctx); err != nil || n != int64(len(want)) {
		t.Fatalf("%d bytes stored, %v", n, err)
	}
	r, err := a.Open(ctx, hex.EncodeToString(sum[:]))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, want) {
		t.Fatal(len(got), err)
	}
	for _, bad := range []string{"", "../../etc/passwd", strings.Repeat("0", 64), strings.ToUpper(hex.EncodeToString(sum[:])), strings.Repeat("z", 64)} {
		r, err := a.Open(ctx, bad)
		wantCode(t, err, notebook.NotFound)
		if r != nil {
			t.Fatal("a reader came with the error")
		}
		if ok, err := a.Has(ctx, bad); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, s := store(t, artifacts.Quota{File: 1000, Notebook: 1500, Install: 3000})
	put := func(fill byte, n int) error {
		_, _, err := a.Put(ctx, bytes.NewReader(bytes.Repeat([]byte{fill}, n)), 1<<40)
		return err
	}
	wantCode(t, put('a', 1001), notebook.TooLarge)
	_, _, err := a.Put(ctx, strings.NewReader("12345"), 4)
	wantCode(t, err, notebook.TooLarge)
	hash, size, err := a.PutFor(ctx, "n1", bytes.NewReader(make([]byte, 1000)), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	event := notebook.FilesChanged{Run: "r", Files: notebook.Files{Changed: []notebook.File{{Path: "a", Blob: hash, Size: size}}}}
	if err := s.Create(ctx, "n1", []notebook.Event{{Seq: 1, Body: notebook.Created{}}, {Seq: 2, Body: event}}); err != nil {
		t.Fatal(err)
	}
	_, _, err = a.PutFor(ctx, "n1", bytes.NewReader(bytes.Repeat([]byte("b"), 600)), 1<<40)
	wantCode(t, err, notebook.TooLarge)
	if !strings.Contains(notebook.MessageOf(err), "A notebook keeps 1.5 KiB") {
		t.Fatal(err)
	}
	_, _, err = a.PutFor(ctx, "n2", bytes.NewReader(bytes.Repeat([]byte("b"), 600)), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	if err := put('c', 1000); err != nil {
		t.Fatal(err)
	}
	err = put('d', 900)
	wantCode(t, err, notebook.TooLarge)
	if !strings.Contains(notebook.MessageOf(err), "The server keeps 2.9 KiB") {
		t.Fatal(err)
	}
	if n, _ := s.BlobBytes(ctx); n != 2600 {
		t.Fatalf("%d bytes stored", n)
	}
	if err := put('e', 400); err != nil {
		t.Fatal(err)
	}
	wantCode(t, put('f', 1), notebook.TooLarge)
	if b, _ := store(t, artifacts.Quota{File: -1, Notebook: -1, Install: -1}); b != nil {
		if _, _, err := b.PutFor(ctx, "n", strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	pngHead  = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x20\x00\x00\x00\x10\x08\x02\x00\x00\x00\xf8\x62\xea\x0e"
	gifHead  = "GIF89a\x05\x00\x07\x00\x00\x00\x00;"
	jpegHead = "\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xc0\x00\x11\x08\x00\x0a\x00\x14\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
	webpVP8  = "RIFF\x1a\x00\x00\x00WEBPVP8 \x0e\x00\x00\x00\x30\x01\x00\x9d\x01\x2a\x40\x00\x30\x00\x00\x00\x00"
	webpVP8L = "RIFF\x1a\x00\x00\x00WEBPVP8L\x0e\x00\x00\x00\x2f\x3f\xc0\x0b\x00\x00\x00\x00\x00\x00\x00"
	webpVP8X = "RIFF\x1a\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x3f\x00\x00\x2f\x00\x00"
	svgText  = "<?xml version=\"1.0\"?>\n<!-- made by > someone -->\n<!DOCTYPE svg PUBLIC \"-//W3C//DTD SVG 1.1//EN\" \"x\">\n<svg xmlns=\"x\" width='2in' height=\"96pt\" a=\"<>\">"
	pdfText  = "%PDF-1.4\n1 0 obj <</Type/Page /MediaBox [ 0 0 432 288 ]>>"
)

func TestSniffAndDimensions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, head, mime string
		w, h             int
	}{
		{"a.png", pngHead, "image/png", 32, 16},
		{"a.html", pngHead, "image/png", 32, 16}, // content wins
		{"a.gif", gifHead, "image/gif", 5, 7},
		{"a", jpegHead, "image/jpeg", 20, 10},
		{"a.webp", webpVP8, "image/webp", 64, 48},
		{"a.webp", webpVP8L, "image/webp", 64, 48},
		{"a.webp", webpVP8X, "image/webp", 64, 48},
		{"a.svg", svgText, "image/svg+xml", 192, 128},
		{"plot", svgText, "image/svg+xml", 192, 128},
		{"a.SVG", `<svg viewBox="0 0 10 20"/>`, "image/svg+xml", 10, 20},
		{"a.svg", `<svg viewBox="0,0,10,20" width="50"/>`, "image/svg+xml", 50, 100},
		{"a.svg", `<svg viewBox="0 0 10 20" height="50px" width="100%"/>`, "image/svg+xml", 25, 50},
		{"a.svg", `<svg:svg xmlns:svg="x" width="3" height="4"/>`, "image/svg+xml", 3, 4},
		{"a.svg", `<svg width="1e300" height="NaN"/>`, "image/svg+xml", 0, 0},
		{"a.svg", `<svg data-x="1" width=`, "image/svg+xml", 0, 0},
		{"a.svg", `<html><svg width="1" height="2"/>`, "text/plain", 0, 0}, // the name alone makes no picture
		{"a.pdf", pdfText, "application/pdf", 432, 288},
		{"a.pdf", "%PDF-1.7\n", "application/pdf", 0, 0},
		{"a.png", "not a picture", "text/plain", 0, 0},
		{"a.png", "\x00\x01\x02", "application/octet-stream", 0, 0},
		{"a.png", pngHead[:20], "image/png", 0, 0},
		{"a.csv", "a,b\n1,2\n", "text/csv", 0, 0},
		{"a.csv", "a,b\x00\n", "application/octet-stream", 0, 0},
		{"a.json", "{}", "application/json", 0, 0},
		{"a.xlsx", "PK\x03\x04rest", zipped("spreadsheetml.sheet"), 0, 0},
		{"a.png.zip", "PK\x03\x04rest", "application/zip", 0, 0},
		{"a.parquet", "PAR1", "application/vnd.apache.parquet", 0, 0},
		{"notes", "hä\x1b[31mrot", "text/plain", 0, 0},
		{"cut", "hä"[:2], "text/plain", 0, 0}, // a character cut off at the end
		{"latin1", "h\xe4 und mehr", "application/octet-stream", 0, 0},
		{"index", "<!DOCTYPE html><script>", "text/html", 0, 0},
		{"a.txt", "<html><script>", "text/plain", 0, 0},
		{"a.html", "hello", "text/html", 0, 0},
		{"empty", "", "application/octet-stream", 0, 0},
		{"empty.csv", "", "text/csv", 0, 0},
		{"a.bmp", "BM just words, many of them", "text/plain", 0, 0},
		{"../../x.py/..", "#!", "text/plain", 0, 0},
	} {
		m := artifacts.Sniff(c.name, []byte(c.head))
		if m != c.mime {
			t.Errorf("%s %.20q is %s, want %s", c.name, c.head, m, c.mime)
			continue
		}
		if w, h := artifacts.Dimensions(m, []byte(c.head)); w != c.w || h != c.h {
			t.Errorf("%s %.20q is %d×%d, want %d×%d", c.name, c.head, w, h, c.w, c.h)
		}
	}
	// A size that would fill the memory is only a number here.
	huge := []byte(strings.Replace(pngHead, "\x00\x00\x00\x20\x00\x00\x00\x10", "\x7f\xff\xff\xff\x7f\xff\xff\xff", 1))
	if w, h := artifacts.Dimensions("image/png", huge); w != 0 || h != 0 {
		t.Errorf("a picture of %d×%d", w, h)
	}
}

func zipped(s string) string { return "application/vnd.openxmlformats-officedocument." + s }

// Nothing that can run a script is ever shown inline.
func TestOnlyHarmlessTypesAreInline(t *testing.T) {
	t.Parallel()
	for _, m := range []string{"text/html", "image/svg+xml", "application/xhtml+xml", "application/xml", "application/pdf", "text/javascript", "text/css", "application/json", "", "text/plain; charset=x", "IMAGE/PNG"} {
		if artifacts.Inline(m) || artifacts.Served(m) != "application/octet-stream" || !strings.HasPrefix(artifacts.Disposition(m, "a"), "attachment") {
			t.Errorf("%q is shown inline", m)
		}
	}
	if artifacts.Served("text/plain") != "text/plain; charset=utf-8" || artifacts.Served("image/png") != "image/png" || artifacts.Disposition("image/png", "a") != `inline; filename="a"` {
		t.Error("a harmless type is not shown")
	}
}

func TestHostileNames(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                            "file",
		".":                           "file",
		"..":                          "file",
		"../../etc/passwd":            "passwd",
		`C:\Windows\system32\cmd.exe`: "cmd.exe",
		"a/b/c.csv":                   "c.csv",
		"dir/":                        "dir",
		"/":                           "file",
		".bashrc":                     "bashrc",
		"a\r\nSet-Cookie: x=1":        "aSet-Cookie_ x=1",
		"a\x00b.png":                  "ab.png",
		"photo\u202egnp.exe":          "photognp.exe", // shown as photoexe.png
		"a\u200b\u2066b\ufeff":        "ab",
		"a\u2028b":                    "ab",
		`a"b;c=d'.csv`:                "a_b;c=d'.csv",
		"con.txt":                     "_con.txt",
		"LPT1":                        "_LPT1",
		"console.txt":                 "console.txt",
		"trailing. . ":                "trailing",
		"übung 1.csv":                 "übung 1.csv",
		"\xff\xfe.csv":                "csv",
		"日本.csv":                      "日本.csv",
		"a\u00a0b":                    "a b",
		"<script>.html":               "_script_.html",
	} {
		if got := artifacts.Name(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	if got := artifacts.Name(strings.Repeat("ü", 500) + ".csv"); len(got) > 200 || !utf8.ValidString(got) {
		t.Errorf("a long name becomes %q", got)
	}
	for in, want := range map[string]string{
		"a b.csv":  `attachment; filename="a b.csv"`,
		"übung.py": `attachment; filename="_bung.py"; filename*=UTF-8''%C3%BCbung.py`,
		"50%.csv":  `attachment; filename="50_.csv"; filename*=UTF-8''50%25.csv`,
		`x"y\z`:    `attachment; filename="z"`,
	} {
		if got := artifacts.Attachment(in); got != want {
			t.Errorf("%q becomes %s, want %s", in, got, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"a.csv", "../x", "\u202e", "a\r\nb", `"\%`, "\xff", "CON", "日本"} {
		f.Add(s)
	}
	f.Add("con." + strings.Repeat("ü .", 300))
	f.Fuzz(func(t *testing.T, in string) {
		name := artifacts.Name(in)
		if name == "" || len(name) > 200 || !utf8.ValidString(name) || strings.ContainsAny(name, "/\\\x00\r\n\"<>") || name[0] == '.' {
			t.Fatalf("%q becomes %q", in, name)
		}
		if again := artifacts.Name(name); again != name {
			t.Fatalf("%q becomes %q, and that %q", in, name, again)
		}
		h := artifacts.Attachment(in)
		for _, c := range []byte(h) {
			if c < 0x20 || c > 0x7e {
				t.Fatalf("header %q", h)
			}
		}
		kind, params, err := mime.ParseMediaType(h)
		if err != nil || kind != "attachment" {
			t.Fatalf("header %q: %v", h, err)
		}
		if strings.Contains(h, "filename*") && params["filename"] != name {
			t.Fatalf("header %q says %q, not %q", h, params["filename"], name)
		}
	})
}

func FuzzSniff(f *testing.F) {
	for _, s := range []string{pngHead, gifHead, jpegHead, webpVP8, webpVP8L, webpVP8X, svgText, pdfText, "BM", "<svg", "<!--", "RIFF", "<!DOCTYPE x [ ]><svg>"} {
		f.Add("a.svg", []byte(s))
	}
	f.Fuzz(func(t *testing.T, name string, head []byte) {
		m := artifacts.Sniff(name, head)
		if _, _, err := mime.ParseMediaType(m); err != nil {
			t.Fatalf("%q: %v", m, err)
		}
		if artifacts.Inline(m) && strings.HasPrefix(strings.TrimSpace(string(head)), "<") && m != "text/plain" {
			t.Fatalf("markup is %s", m)
		}
		_, _ = artifacts.Dimensions(m, head)
	})
}

func FuzzDimensions(f *testing.F) {
	for m, s := range map[string]string{"image/png": pngHead, "image/gif": gifHead, "image/jpeg": jpegHead, "image/webp": webpVP8X, "image/svg+xml": svgText, "application/pdf": pdfText} {
		f.Add(m, []byte(s))
	}
	f.Fuzz(func(t *testing.T, m string, head []byte) {
		w, h := artifacts.Dimensions(m, head)
		if w < 0 || h < 0 || w > 1<<24 || h > 1<<24 || (w == 0) != (h == 0) {
			t.Fatalf("%d×%d", w, h)
		}
	})
}

// What real programs write is recognised.
func TestRealFiles(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		mime string
		w, h int
	}{
		"matplotlib.svg": {"image/svg+xml", 144, 96}, // 1.5 by 1 inch
		"matplotlib.pdf": {"application/pdf", 108, 72},
		"pillow.png":     {"image/png", 144, 72},
		"pillow.jpg":     {"image/jpeg", 144, 72},
		"pillow.gif":     {"image/gif", 144, 72},
		"pillow.webp":    {"image/webp", 144, 72},
		"lossless.webp":  {"image/webp", 144, 72},
		"alpha.webp":     {"image/webp", 144, 72},
	} {
		p, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		m := artifacts.Sniff("no name", p)
		w, h := artifacts.Dimensions(m, p)
		if m != want.mime || w != want.w || h != want.h {
			t.Errorf("%s is %s, %d×%d", name, m, w, h)
		}
	}
}
