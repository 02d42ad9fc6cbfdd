// Program build makes the page's scripts and styles: it bundles static/src into
// static/dist under hashed names, writes each file's compressed forms beside it
// and a manifest, and copies the libraries of the output frame. It prints what
// a first visit loads and fails when that is more than promised.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/evanw/esbuild/pkg/api"

	"sandbook/static"
	"sandbook/web/render"
)

// budget is what a first visit may load of scripts and styles, compressed. The
// page itself comes on top and is some kilobytes.
const budget = 45_000

func main() {
	if err := build(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func build(out io.Writer) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	src, dist := filepath.Join(root, "static", "src"), filepath.Join(root, "static", "dist")
	if _, err := os.Stat(filepath.Join(root, "static", "node_modules")); err != nil {
		return errors.New("The packages of the page's scripts are not installed. Run `npm --prefix static ci`.") //nolint:staticcheck,revive // a sentence for people
	}
	files, names, err := bundle(src)
	if err != nil {
		return err
	}
	libs, err := frameLibraries(filepath.Join(root, "static", "node_modules"))
	if err != nil {
		return err
	}
	if err := clear(dist); err != nil {
		return err
	}
	m := static.Manifest{Files: names, ETags: map[string]string{}}
	for name, body := range files {
		m.ETags[name] = digest(body)
		if err := write(filepath.Join(dist, name), body); err != nil {
			return err
		}
	}
	for name, body := range libs {
		if err := write(filepath.Join(dist, "frame", name), body); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dist, static.ManifestName), b, 0o644); err != nil { //nolint:gosec // public files
		return err
	}
	return report(out, files, names)
}

// moduleRoot is the folder of go.mod, from wherever the program is started.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("There is no go.mod above this folder. Start the build within the repository.") //nolint:staticcheck,revive // a sentence for people
		}
		dir = up
	}
}

// entries maps the names pages ask for to the sources.
var entries = map[string]string{
	"app.css":     "app.css",
	"katex.css":   "katex.css",
	"notebook.js": "notebook.ts",
	"small.js":    "small.ts",
	"mark.svg":    "mark.svg",
}

// bundle runs esbuild in memory. The result maps hashed names to contents, and
// the names pages ask for to hashed names.
func bundle(src string) (files map[string][]byte, names map[string]string, err error) {
	var points []api.EntryPoint
	for name, file := range entries {
		points = append(points, api.EntryPoint{InputPath: filepath.Join(src, file), OutputPath: strings.TrimSuffix(name, filepath.Ext(name))})
	}
	out := filepath.Join(src, "out")
	r := api.Build(api.BuildOptions{
		EntryPointsAdvanced: points, Bundle: true, Splitting: true, Format: api.FormatESModule, Outdir: out,
		EntryNames: "[name]-[hash]", ChunkNames: "[name]-[hash]", AssetNames: "[name]-[hash]",
		MinifySyntax: true, MinifyIdentifiers: true, MinifyWhitespace: true, Target: api.ES2022, LegalComments: api.LegalCommentsNone,
		Engines: []api.Engine{{Name: api.EngineChrome, Version: "123"}, {Name: api.EngineFirefox, Version: "120"}, {Name: api.EngineSafari, Version: "17.5"}},
		Loader:  map[string]api.Loader{".woff2": api.LoaderFile, ".svg": api.LoaderCopy}, Plugins: []api.Plugin{patches()}, Metafile: true, Charset: api.CharsetUTF8,
		AbsWorkingDir: src,
	})
	if len(r.Errors) > 0 {
		return nil, nil, errors.New(strings.Join(api.FormatMessages(r.Errors, api.FormatMessagesOptions{Kind: api.ErrorMessage}), "\n"))
	}
	files, names = map[string][]byte{}, map[string]string{}
	for _, f := range r.OutputFiles {
		files[filepath.Base(f.Path)] = f.Contents
	}
	var meta struct {
		Outputs map[string]struct{ EntryPoint string }
	}
	if err := json.Unmarshal([]byte(r.Metafile), &meta); err != nil {
		return nil, nil, err
	}
	for path, o := range meta.Outputs {
		for name, file := range entries {
			if o.EntryPoint == file && filepath.Ext(path) == filepath.Ext(name) {
				names[name] = filepath.Base(path)
			}
		}
	}
	if len(names) != len(entries) {
		return nil, nil, fmt.Errorf("esbuild made %d of %d entries", len(names), len(entries))
	}
	return files, names, nil
}

var oldFonts = regexp.MustCompile(`,url\([^)]*\.(woff|ttf)\) format\("(woff|truetype)"\)`)

// patches changes three files of packages on their way into the bundle. Each
// fails when what it changes is no longer there.
func patches() api.Plugin {
	change := func(b api.PluginBuild, filter string, loader api.Loader, how func(string) (string, bool)) {
		b.OnLoad(api.OnLoadOptions{Filter: filter}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
			text, err := os.ReadFile(a.Path)
			if err != nil {
				return api.OnLoadResult{}, err
			}
			s, ok := how(string(text))
			if !ok {
				return api.OnLoadResult{}, fmt.Errorf("%s has changed; look at static/build again", a.Path)
			}
			return api.OnLoadResult{Contents: &s, Loader: loader, ResolveDir: filepath.Dir(a.Path)}, nil
		})
	}
	return api.Plugin{Name: "patches", Setup: func(b api.PluginBuild) {
		// Style sheets are adopted, never written into the page: the policy of
		// the page allows no inline styles.
		change(b, `style-mod\.js$`, api.LoaderJS, func(s string) (string, bool) {
			const was = "!root.head && root.adoptedStyleSheets && win.CSSStyleSheet"
			return strings.Replace(s, was, "root.adoptedStyleSheets && win.CSSStyleSheet", 1), strings.Contains(s, was)
		})
		// Every browser we serve reads woff2.
		change(b, `katex\.min\.css$`, api.LoaderCSS, func(s string) (string, bool) {
			return oldFonts.ReplaceAllString(s, ""), oldFonts.MatchString(s)
		})
		// The colours 16 to 255 of terminal text.
		change(b, `app\.css$`, api.LoaderCSS, func(s string) (string, bool) {
			return s + render.Stylesheet(), true
		})
	}}
}

// frameLibraries are served as they come, by the origin of active outputs only.
func frameLibraries(modules string) (map[string][]byte, error) {
	libs := map[string][]byte{}
	for name, path := range map[string]string{
		"plotly.min.js":     "plotly.js-dist-min/plotly.min.js",
		"vega.min.js":       "vega/build/vega.min.js",
		"vega-lite.min.js":  "vega-lite/build/vega-lite.min.js",
		"vega-embed.min.js": "vega-embed/build/vega-embed.min.js",
	} {
		b, err := os.ReadFile(filepath.Join(modules, filepath.FromSlash(path)))
		if err != nil {
			return nil, err
		}
		if i := bytes.LastIndex(b, []byte("\n//# sourceMappingURL=")); i >= 0 {
			b = b[:i+1]
		}
		libs[name] = b
	}
	return libs, nil
}

// clear empties dist but for the file that keeps it in the repository.
func clear(dist string) error {
	if err := os.MkdirAll(dist, 0o755); err != nil { //nolint:gosec // public files
		return err
	}
	found, err := os.ReadDir(dist)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.Name() != ".keep" {
			if err := os.RemoveAll(filepath.Join(dist, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}

// write puts a file and, where they are smaller, its compressed forms.
func write(path string, body []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // public files
		return err
	}
	forms := map[string][]byte{"": body}
	if filepath.Ext(path) != ".woff2" {
		gz, err := gzipped(body)
		if err != nil {
			return err
		}
		br, err := brotlied(body)
		if err != nil {
			return err
		}
		forms[".gz"], forms[".br"] = gz, br
	}
	for suffix, b := range forms {
		if suffix == "" || len(b) < len(body) {
			if err := os.WriteFile(path+suffix, b, 0o644); err != nil { //nolint:gosec // public files
				return err
			}
		}
	}
	return nil
}

func gzipped(body []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func brotlied(body []byte) ([]byte, error) {
	var b bytes.Buffer
	level := 11
	if len(body) > 1<<20 { // the last percent of a large library is not worth a minute
		level = 7
	}
	w := brotli.NewWriterLevel(&b, level)
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// report prints sizes: what the notebook page loads at once, then the rest.
func report(out io.Writer, files map[string][]byte, names map[string]string) error {
	first := closure(files, names["notebook.js"])
	first[names["app.css"]] = true
	var total, packed int
	fmt.Fprintf(out, "%-34s %9s %9s %9s\n", "file", "bytes", "gzip", "brotli")
	row := func(name string) (int, int, error) {
		gz, err := gzipped(files[name])
		if err != nil {
			return 0, 0, err
		}
		br, err := brotlied(files[name])
		fmt.Fprintf(out, "%-34s %9d %9d %9d\n", name, len(files[name]), len(gz), len(br))
		return len(files[name]), len(gz), err
	}
	var later []string
	for _, name := range sorted(files) {
		switch {
		case !first[name] && filepath.Ext(name) != ".woff2":
			later = append(later, name)
		case first[name]:
			n, gz, err := row(name)
			if err != nil {
				return err
			}
			total, packed = total+n, packed+gz
		}
	}
	fmt.Fprintf(out, "%-34s %9d %9d\nlater, when needed:\n", "= with the notebook page", total, packed)
	for _, name := range later {
		if _, _, err := row(name); err != nil {
			return err
		}
	}
	if packed > budget {
		return fmt.Errorf("A first visit loads %d bytes of scripts and styles; the budget is %d. Load something later.", packed, budget) //nolint:staticcheck,revive // a sentence for people
	}
	return nil
}

var staticImport = regexp.MustCompile(`(?:^|[;}\n])\s*(?:import|export)\s*(?:[^"'()]*?from\s*)?["']\./([^"']+)["']`)

// closure is a script with all it imports before it runs.
func closure(files map[string][]byte, name string) map[string]bool {
	seen, todo := map[string]bool{}, []string{name}
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		if seen[n] {
			continue
		}
		seen[n] = true
		for _, m := range staticImport.FindAllSubmatch(files[n], -1) {
			todo = append(todo, string(m[1]))
		}
	}
	return seen
}

func sorted(m map[string][]byte) []string {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
