package notebook

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestTextIsWhatATerminalShows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		in    []string
		want  string
		extra func(Text) error
	}{
		{name: "nothing"},
		{name: "plain", in: []string{"a\nb"}, want: "a\nb"},
		{name: "line end at the end", in: []string{"a\n"}, want: "a\n"},
		{name: "pieces of a line", in: []string{"a", "b", "\n", "c"}, want: "ab\nc"},
		{name: "tab stays", in: []string{"a\tb"}, want: "a\tb"},
		{name: "other controls go", in: []string{"a\x00\x01\a\v\f\x7fb"}, want: "ab"},
		{name: "not UTF-8", in: []string{"a\xffb"}, want: "a\uFFFDb"},

		{name: "carriage return", in: []string{"abc\rx"}, want: "xbc"},
		{name: "progress bar", in: []string{"10%", "\r20%", "\r100%", "\n", "done"}, want: "100%\ndone"},
		{name: "Windows line ends", in: []string{"a\r\nb\r\n"}, want: "a\nb\n"},
		{name: "a line end cut in two", in: []string{"a\r", "\nb"}, want: "a\nb"},
		{name: "doubled carriage return", in: []string{"a\r\r\nb"}, want: "a\nb"},
		{name: "trailing carriage return waits", in: []string{"abc\r"}, want: "abc"},
		{name: "characters are not bytes", in: []string{"äöü\rxy"}, want: "xyü"},
		{name: "backspace", in: []string{"ab\bc"}, want: "ac"},
		{name: "backspace at the start", in: []string{"\b\b\bx"}, want: "x"},
		{name: "spinner", in: []string{"|", "\b/", "\b-", "\b\\"}, want: "\\"},
		{name: "backspace does not erase", in: []string{"ab\b\b\n"}, want: "ab\n"},

		{name: "cursor up", in: []string{"a\nb\n\x1b[2Ax\n"}, want: "x\nb\n"},
		{name: "cursor up and down", in: []string{"a\nb\n\x1b[Ay\x1b[Bz"}, want: "a\ny\n z"},
		{name: "next and previous line", in: []string{"ab\ncd\x1b[Fx\x1b[Ey"}, want: "xb\nyd"},
		{name: "up stops at the top", in: []string{"a\nb\x1b[99A\rx"}, want: "x\nb"},
		{name: "down stops at the bottom", in: []string{"a\nb\x1b[9Bx"}, want: "a\nbx"},
		{name: "right fills with blanks", in: []string{"a\x1b[3Cb"}, want: "a   b"},
		{name: "left", in: []string{"abcd\x1b[2Dx"}, want: "abxd"},
		{name: "left stops", in: []string{"ab\x1b[9Dx"}, want: "xb"},
		{name: "column", in: []string{"abcd\x1b[2Gx\x1b[Gy"}, want: "yxcd"},
		{name: "a huge move", in: []string{"a\x1b[99999999999999999999Cb"}, want: "a b"},
		{name: "not too far right", in: []string{"\x1b[9999Cb"}, want: strings.Repeat(" ", maxColumn) + "b"},
		{name: "text goes on after moving up", in: []string{"a\nb\x1b[A\rx", "\n", "\n", "end"}, want: "x\nb\nend"},

		{name: "erase to the right", in: []string{"abcd\x1b[2D\x1b[K"}, want: "ab"},
		{name: "erase to the left", in: []string{"abcd\x1b[2D\x1b[1K"}, want: "   d"},
		{name: "erase the line", in: []string{"abcd\x1b[2K\rx"}, want: "x"},
		{name: "erase beyond the end", in: []string{"ab\x1b[5C\x1b[K\x1b[1K"}, want: "  "},
		{name: "erase keeps the column", in: []string{"abcd\x1b[2Kx"}, want: "    x"},
		{name: "erase below", in: []string{"a\nb\nc\x1b[2A\r\x1b[Jx"}, want: "x"},
		{name: "erase below in the middle", in: []string{"ab\ncd\nef\x1b[A\x1b[D\x1b[Jx\ny"}, want: "ab\ncx\ny"},
		{name: "clear the screen", in: []string{"a\nb\n\x1b[2J\x1b[Hc"}, want: "c"},
		{name: "erase above is not done", in: []string{"a\nb\x1b[1Jc"}, want: "a\nbc"},

		{name: "colours stay", in: []string{"\x1b[31mred\x1b[0m plain"}, want: "\x1b[31mred\x1b[0m plain"},
		{name: "a line ends without a colour", in: []string{"\x1b[31ma\nb\x1b[m\n"}, want: "\x1b[31ma\x1b[0m\n\x1b[31mb\x1b[m\n"},
		{name: "overwrite in another colour", in: []string{"\x1b[31mabc\x1b[0m\r\x1b[32mx\x1b[0m"}, want: "\x1b[32mx\x1b[0m\x1b[31mbc\x1b[0m"},
		{name: "overwrite in no colour", in: []string{"\x1b[31mabc\x1b[0m\r\x1b[1Cx"}, want: "\x1b[31ma\x1b[0mx\x1b[31mc\x1b[0m"},
		{name: "a colour does not leak down", in: []string{"\x1b[31mA\nB\x1b[0m\rX"}, want: "\x1b[31mA\x1b[0m\nX"},
		{name: "colours add up", in: []string{"\x1b[1m\x1b[31mab\x1b[0m\rx"}, want: "x\x1b[1m\x1b[31mb\x1b[0m"},
		{name: "a new colour after a reset", in: []string{"\x1b[31m\x1b[0;32mab\r\x1b[0mx"}, want: "x\x1b[0;32mb\x1b[0m"},
		{name: "a full line ends without a colour", in: []string{"\x1b[31m" + strings.Repeat("x", textMaxLine) + "\x1b[0m\ny"}, want: "\x1b[31m" + strings.Repeat("x", textMaxLine-8) + "\x1b[0m\ny\n… 8 bytes of long lines are not shown …\n"},
		{name: "256 and true colours", in: []string{"\x1b[38;5;9mx\x1b[38:2::1:2:3my\x1b[0m"}, want: "\x1b[38;5;9mx\x1b[38:2::1:2:3my\x1b[0m"},
		{name: "an m that is no colour", in: []string{"\x1b[>4;2ma\x1b[?1mb"}, want: "ab"},

		{name: "hide the cursor", in: []string{"\x1b[?25la\x1b[?25h"}, want: "a"},
		{name: "a title", in: []string{"\x1b]0;title\aa\x1b]0;title\x1b\\b"}, want: "ab"},
		{name: "a link", in: []string{"\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\"}, want: "text"},
		{name: "a string that never ends stops at the line", in: []string{"\x1b]0;title\nb"}, want: "\nb"},
		{name: "a string broken by a colour", in: []string{"\x1bPabc\x1b[31mb\x1b[0m"}, want: "\x1b[31mb\x1b[0m"},
		{name: "a string that is too long", in: []string{"\x1b]" + strings.Repeat("x", maxOSC-2) + "yz"}, want: "yz"},
		{name: "a long string in pieces", in: []string{"\x1b]", strings.Repeat("x", maxOSC-3), "xy", "z"}, want: "yz"},
		{name: "character set", in: []string{"\x1b(Ba\x1b", "(", "Bb"}, want: "ab"},
		{name: "a broken character set", in: []string{"\x1b(\nb"}, want: "\nb"},
		{name: "short escapes", in: []string{"\x1b7a\x1b8\x1b=b\x1bMc"}, want: "abc"},
		{name: "escape and a letter that is none", in: []string{"\x1bäb\x1b\nc"}, want: "äb\nc"},
		{name: "escape twice", in: []string{"\x1b\x1b[31mx\x1b[0m"}, want: "\x1b[31mx\x1b[0m"},
		{name: "not a sequence", in: []string{"\x1b[12\nb\x1b[1äc"}, want: "\nbäc"},
		{name: "a sequence that is too long", in: []string{"\x1b[" + strings.Repeat("1", 100) + "m"}, want: strings.Repeat("1", 100-maxSeq-1) + "m"},
		{name: "a sequence in pieces", in: []string{"\x1b", "[", "3", "1", "m", "x", "\x1b[", "0m"}, want: "\x1b[31mx\x1b[0m"},
	} {
		got := Text{}
		var bytes int64
		for _, s := range c.in {
			got = got.Append(s)
			bytes += int64(len(s))
		}
		if got.String() != c.want {
			t.Errorf("%s: %q gives %q, want %q", c.name, c.in, got.String(), c.want)
		}
		if got.Bytes != bytes {
			t.Errorf("%s: %d bytes counted, %d printed", c.name, got.Bytes, bytes)
		}
	}
}

// TestTextProgressBars replays what tqdm and rich print for nested bars.
func TestTextProgressBars(t *testing.T) {
	t.Parallel()
	var tqdm strings.Builder
	tqdm.WriteString("\r  0%|          | 0/2 [00:00<?, ?it/s]")
	for outer := range 2 {
		tqdm.WriteString("\n\r  0%|          | 0/3 [00:00<?, ?it/s]\x1b[A")
		for inner := range 3 {
			fmt.Fprintf(&tqdm, "\n\r %d%%|###       | %d/3 [00:00<00:00, 9.9it/s]\x1b[A", (inner+1)*33, inner+1)
		}
		fmt.Fprintf(&tqdm, "\n\r"+strings.Repeat(" ", 60)+"\r\x1b[A\r %d%%|#####     | %d/2 [00:00<00:00, 3.3it/s]", (outer+1)*50, outer+1)
	}
	tqdm.WriteString("\ndone\n")
	got := Text{}
	for _, r := range tqdm.String() { // one character at a time
		got = got.Append(string(r))
	}
	var lines []string
	for l := range strings.Lines(got.String()) {
		lines = append(lines, strings.TrimRight(l, " \n"))
	}
	want := []string{" 100%|#####     | 2/2 [00:00<00:00, 3.3it/s]", "done"}
	if d := cmp.Diff(want, lines); d != "" {
		t.Error(d)
	}

	rich := "Working 10%\nOther 5%\n" + "\x1b[1A\x1b[2K\x1b[1A\x1b[2K\r" + "Working 100%\nOther 100%\n"
	if got := (Text{}).Append(rich).String(); got != "Working 100%\nOther 100%\n" {
		t.Errorf("rich: %q", got)
	}
}

// exact checks that of plain text what is kept and what is left out add up.
func exact(t testing.TB, name string, got Text, printed string, lines int64) {
	t.Helper()
	kept := int64(len(got.Head))
	keptLines := int64(strings.Count(got.Head, "\n"))
	for i, l := range got.Lines {
		kept += int64(len(l))
		if i > 0 {
			kept++
			keptLines++
		}
	}
	if kept+got.OmittedBytes != got.Bytes || keptLines+got.OmittedLines != lines {
		t.Errorf("%s: kept %d and left out %d of %d bytes, %d and %d of %d lines",
			name, kept, got.OmittedBytes, got.Bytes, keptLines, got.OmittedLines, lines)
	}
	if printed != "" && (!strings.HasPrefix(printed, got.Head) || !strings.HasSuffix(printed, got.Lines[len(got.Lines)-1])) {
		t.Errorf("%s: head or end are not what was printed", name)
	}
	if n := len(got.Lines); n > textMaxLines || kept > textMaxBytes+textMaxLine {
		t.Errorf("%s: kept %d lines, %d bytes", name, n, kept)
	}
}

func TestTextCountsWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]string{
		"short":           "a\nb\nc",
		"many lines":      numbered(50_000, "%d"),
		"just too many":   numbered(textMaxLines, "%d"),
		"wide lines":      numbered(500, "%d "+strings.Repeat("ä", 1000)),
		"one long line":   strings.Repeat("ü", 100_000),
		"long lines":      numbered(50, "%d "+strings.Repeat("€", 20_000)),
		"empty lines":     strings.Repeat("\n", 5000),
		"long line first": strings.Repeat("x", 200_000) + "\n" + numbered(3000, "%d"),
	} {
		got := Text{}.Append(s)
		printed := s
		if strings.HasPrefix(name, "long line") {
			printed = "" // the lines of the head are cut, too
		}
		exact(t, name, got, printed, int64(strings.Count(s, "\n")))
		str := got.String()
		if got.OmittedBytes > 0 != strings.Contains(str, " not shown ") {
			t.Errorf("%s: %d bytes left out, and the text says otherwise", name, got.OmittedBytes)
		}
		if !utf8.ValidString(str) {
			t.Errorf("%s: a character was cut", name)
		}
	}
	got := Text{}.Append(numbered(5000, "%d"))
	if !strings.HasPrefix(got.Head, "0\n1\n") || strings.Count(got.Head, "\n") != textHeadLines || got.Lines[len(got.Lines)-2] != "4999" {
		t.Errorf("head %.20q, end %q", got.Head, got.Lines[len(got.Lines)-2:])
	}
	want := fmt.Sprintf("199\n… %d lines (%d bytes) are not shown here …\n", got.OmittedLines, got.OmittedBytes)
	if !strings.Contains(got.String(), want) {
		t.Errorf("the sentence is not %q", want)
	}
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format+"\n", i)
	}
	return b.String()
}

func TestTextOmit(t *testing.T) {
	t.Parallel()
	// The guest sent the first lines, then only counts and a rolling tail.
	first := numbered(300, "first %d")
	missing := numbered(100_000, "missing %d")
	tail := missing[len(missing)-4000:]
	got := Text{}.Append(first).Omit(int64(len(missing)), 100_000, tail)
	exact(t, "omit", got, first+missing, 100_300)
	if !strings.HasPrefix(got.Head, "first 0\n") || !strings.HasSuffix(got.String(), "missing 99999\n") {
		t.Errorf("head %.20q, end %q", got.Head, got.Lines[len(got.Lines)-2:])
	}
	// The tail rolls on: what of it was counted before is not counted again.
	got = got.Omit(10, 1, tail[10:]+"123456789\n")
	exact(t, "omit again", got, "", 100_301)
	if !strings.HasSuffix(got.String(), "\n123456789\n") {
		t.Errorf("end %q", got.Lines[len(got.Lines)-3:])
	}
	got = got.Append("goes on\n")
	exact(t, "goes on", got, "", 100_302)

	// In the middle of a line, and of an escape sequence.
	got = Text{}.Append("half a line\x1b[3").Omit(100, 10, "end")
	if got.Head != "half a line\n" || got.Lines[0] != "end" || got.OmittedBytes != 96 || got.OmittedLines != 9 || got.Rest != "" {
		t.Errorf("%+v", got)
	}
	// From the very start, and without a tail.
	got = Text{}.Omit(100, 10, "")
	if got.Head != "" || got.OmittedBytes != 100 || got.OmittedLines != 10 || got.Bytes != 100 {
		t.Errorf("%+v", got)
	}
	if want := "… 10 lines (100 bytes) are not shown here …\n"; got.String() != want {
		t.Errorf("%q", got.String())
	}
	// Lies do no harm.
	got = Text{}.Append("a\nb").Omit(0, 0, "long tail\n\n\n")
	if got.OmittedBytes < 0 || got.OmittedLines < 0 {
		t.Errorf("%+v", got)
	}
}

func TestTextOfAMillionLinesIsFlat(t *testing.T) {
	t.Parallel()
	got := Text{}
	chunk := numbered(10_000, "line %d")
	for range 100 {
		got = got.Append(chunk)
	}
	exact(t, "a million lines", got, "", 1_000_000)
	b, err := json.Marshal(got)
	if err != nil || len(b) > 2*textMaxBytes {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestTextLetsGoOfChunks: a few characters kept of a large piece must not keep
// the piece.
func TestTextLetsGoOfChunks(t *testing.T) { // not parallel: it measures the heap
	got := Text{}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 300 {
		got = got.Append("x\n" + strings.Repeat("\a", 200<<10))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	if len(got.Lines) != 301 {
		t.Errorf("%d lines", len(got.Lines))
	}
}

func TestTextIsAValue(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var olds []Text
	var jsons []string
	cur := Text{}
	for range 300 {
		cur = cur.Append(noise(rng, 20))
		if rng.IntN(10) == 0 {
			cur = cur.Omit(100, 2, noise(rng, 5))
		}
		b, _ := json.Marshal(cur)
		olds, jsons = append(olds, cur), append(jsons, string(b))
		_ = olds[rng.IntN(len(olds))].Append(noise(rng, 20)) // another future of an old text
	}
	for i, old := range olds {
		if b, _ := json.Marshal(old); string(b) != jsons[i] {
			t.Fatalf("text %d changed after it was returned", i)
		}
		var back Text
		if err := json.Unmarshal([]byte(jsons[i]), &back); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(old, back, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("text %d through JSON: %s", i, d)
		}
	}
}

var words = []string{
	"a", "bc", "def ", "äö", "漢字", "🙂", "\n", "\n", "\n", "\r", "\r\n", "\b", "\t", "\a", "\x00",
	"\x1b", "[", "m", "\x1b[31m", "\x1b[0m", "\x1b[1;32m", "\x1b[0;4m", "\x1b[m", "\x1b[A", "\x1b[2A", "\x1b[B", "\x1b[3C", "\x1b[2D", "\x1b[5G",
	"\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J", "\x1b[2J", "\x1b[1J", "\x1b[E", "\x1b[F", "\x1b]0;t\a", "\x1b]8;;x\x1b\\", "\x1b(B", "\x1b[?25l", "\x1b[38;5;200m", "\x1b[999C",
}

func noise(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		switch rng.IntN(60) {
		case 0:
			b.WriteString(strings.Repeat("x", rng.IntN(20_000)))
		case 1:
			b.WriteString(strings.Repeat("line\n", rng.IntN(300)))
		default:
			b.WriteString(words[rng.IntN(len(words))])
		}
	}
	return b.String()
}

// inPieces prints s cut into pieces between characters.
func inPieces(s string, size func() int) Text {
	t := Text{}
	for s != "" {
		n := min(len(s), max(1, size()))
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n++
		}
		t = t.Append(s[:n])
		s = s[n:]
	}
	return t
}

// TestTextDoesNotDependOnPieces is what lets the server join and the guest cut
// what was printed.
func TestTextDoesNotDependOnPieces(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		s := noise(rng, 50+rng.IntN(400))
		whole := Text{}.Append(s)
		pieces := inPieces(s, func() int { return 1 + rng.IntN(1+rng.IntN(5000)) })
		if d := cmp.Diff(whole, pieces, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("seed %d: whole and in pieces differ (-whole +pieces):\n%s", seed, d)
		}
		sane(t, whole)
	}
}

// sane checks bounds and form of a text.
func sane(t testing.TB, x Text) {
	t.Helper()
	size := 0
	for i, l := range x.Lines {
		size += len(l) + 1
		if i < len(x.Lines)-1 {
			if len(l) > 5*textMaxLine {
				t.Fatalf("a line of %d bytes", len(l))
			}
			if pen := penAtEnd([]byte(l)); pen != "" {
				t.Fatalf("line %q ends in %q", l, pen)
			}
		}
		if strings.ContainsAny(l, "\n\r\b\a\x00\x7f") || !utf8.ValidString(l) {
			t.Fatalf("line %q holds control characters", l)
		}
	}
	if len(x.Lines) > textMaxLines || size > textMaxBytes+6*textMaxLine || len(x.Rest) > maxOSC || len(x.Pen) > maxPen ||
		x.Up < 0 || x.Up > textScreen || x.Up >= max(1, len(x.Lines)) || x.Col < -1 || x.OmittedBytes < 0 || x.OmittedLines < 0 {
		t.Fatalf("out of bounds: %d lines, %d bytes, %+v", len(x.Lines), size, x)
	}
}

// TestTerminalSizesAreExact: the sizes kept up to date while lines change are
// those of the lines put together.
func TestTerminalSizesAreExact(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		e := newTerminal(Text{})
		e.print(noise(rng, 200))
		size := 0
		for i := range e.lines {
			l := e.lines[i]
			if r := e.rows[e.first+i]; r != nil {
				l = e.encode(r)
				if len(l) != r.size {
					t.Fatalf("seed %d: line %d has %d bytes, counted %d", seed, i, len(l), r.size)
				}
			}
			if i < len(e.lines)-1 {
				size += len(l) + 1
			}
		}
		if size != e.size {
			t.Fatalf("seed %d: %d bytes, counted %d", seed, size, e.size)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, w := range words {
		f.Add("x"+w+"y", uint16(1))
	}
	f.Add("a\nb\x1b[A\rx\n\n\x1b[31mz", uint16(3))
	f.Fuzz(func(t *testing.T, s string, size uint16) {
		s = strings.ToValidUTF8(s, "\uFFFD")
		whole := Text{}.Append(s)
		sane(t, whole)
		if d := cmp.Diff(whole, inPieces(s, func() int { return int(size) }), cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
		sane(t, whole.Omit(int64(size), 3, s))
		if plain(s) == len(s) {
			exact(t, "plain", whole, s, 0)
		}
	})
}
