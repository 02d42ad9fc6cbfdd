package pages

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	calledT    = regexp.MustCompile(`(?:\bT|\.t|\bt)\(\s*"((?:[^"\\]|\\.)*)"`)
	calledN    = regexp.MustCompile(`\.N\([^"]*"((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)"`)
	calledOr   = regexp.MustCompile(`v\.t\(cmp\.Or\([^"]*"((?:[^"\\]|\\.)*)"`)
	serverSays = regexp.MustCompile(`(?s)// Sentences of the server.*`)
)

// said collects the English strings of source files.
func said(t *testing.T, patterns ...string) map[string]bool {
	t.Helper()
	words := map[string]bool{}
	for _, p := range patterns {
		files, err := filepath.Glob(p)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %d files", p, err, len(files))
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") || strings.HasSuffix(f, "_templ.go") || filepath.Base(f) == "zh.go" || strings.Contains(f, "gallery") {
				continue
			}
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, re := range []*regexp.Regexp{calledT, calledN, calledOr} {
				for _, m := range re.FindAllStringSubmatch(string(b), -1) {
					for _, s := range m[1:] {
						u, err := strconv.Unquote(`"` + s + `"`)
						if err != nil {
							t.Fatalf("%s: %q: %v", f, s, err)
						}
						words[u] = true
					}
				}
			}
		}
	}
	return words
}

func TestChineseIsWhole(t *testing.T) {
	t.Parallel()
	words := said(t, "*.templ", "*.go", "../view/*.go")
	for _, w := range clientWords {
		words[w] = true
	}
	for _, g := range keyGroups {
		words[g.title] = true
		for _, k := range g.keys {
			words[k.what] = true
		}
	}
	src, err := os.ReadFile("zh.go")
	if err != nil {
		t.Fatal(err)
	}
	server := serverSays.FindString(string(src))
	for _, w := range slices.Sorted(maps.Keys(words)) {
		if zh[w] == "" {
			t.Errorf("%q has no Chinese", w)
		}
	}
	for en, s := range zh {
		if !words[en] && !strings.Contains(server, strconv.Quote(en)) {
			t.Errorf("%q is said nowhere", en)
		}
		if a, b := strings.Count(en, "%"), strings.Count(s, "%"); a != b {
			t.Errorf("%q takes %d values, %q takes %d", en, a, s, b)
		}
	}
}

// The script gets exactly the strings it says.
func TestClientWords(t *testing.T) {
	t.Parallel()
	got := slices.Sorted(maps.Keys(said(t, "../../static/src/*.ts")))
	want := slices.Sorted(slices.Values(clientWords))
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("words.go (-) and the script (+) differ:\n%s", d)
	}
}

func TestChooseLang(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query, cookie, accept string
		want                  Lang
	}{
		{"", "", "", English},
		{"zh", "en", "en", Chinese},
		{"", "zh", "en", Chinese},
		{"xx", "", "de, zh-TW;q=0.8, en;q=0.7", Chinese},
		{"", "", "en-GB,zh", English},
		{"<script>", "..", strings.Repeat(",", 1000), English},
	} {
		if got := ChooseLang(c.query, c.cookie, c.accept); got != c.want {
			t.Errorf("ChooseLang(%q, %q, %.20q) = %s, want %s", c.query, c.cookie, c.accept, got, c.want)
		}
	}
}

func TestWordsForNumbers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ got, want string }{
		{English.Duration(0), "0 ms"},
		{English.Duration(-time.Second), "0 ms"},
		{English.Duration(99 * time.Millisecond), "99 ms"},
		{English.Duration(1234 * time.Millisecond), "1.2 s"},
		{English.Duration(200 * time.Second), "3 min 20 s"},
		{English.Duration(2*time.Hour + 5*time.Minute), "2 h 5 min"},
		{Chinese.Duration(1234 * time.Millisecond), "1.2 秒"},
		{Size(0), "0 B"}, {Size(999), "999 B"}, {Size(3_100_000), "3.1 MB"}, {Size(999_999), "1.0 MB"}, {Size(29_439), "29.4 kB"},
		{Memory(1 << 30), "1,024 MiB"}, {Memory(88_080_384), "84 MiB"},
		{Count(0), "0"}, {Count(48_120), "48,120"}, {Count(-1_234_567), "-1,234,567"},
		{English.Ordinal(1), "1st"}, {English.Ordinal(12), "12th"}, {English.Ordinal(22), "22nd"}, {English.Ordinal(103), "103rd"}, {English.Ordinal(111), "111th"},
		{English.Ago(now.Add(-30*time.Second), now), "just now"},
		{English.Ago(now.Add(-time.Hour), now), "1 hour ago"},
		{English.Ago(now.Add(-50*24*time.Hour), now), "12 October 2026"},
		{Chinese.Ago(now.Add(-3*time.Minute), now), "3 分钟前"},
		{English.Ago(time.Time{}, now), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
