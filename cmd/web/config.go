package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// Config is everything an administrator can set. To add a setting: give it a
// row in settings; file, environment, flag, help and `web config` follow.
type Config struct {
	Data      string // folder of the database, the secrets and the live sandboxes
	Addr      string // where the app listens
	FrameAddr string // where active outputs are served from, a separate origin
	URL       string // how browsers reach Addr, if not http://Addr
	FrameURL  string // how browsers reach FrameAddr
	Backend   string // default backend
	Memory    string // per sandbox, such as 2GiB
	CPU       string // per sandbox, processors, such as 2
	Pids      string // per sandbox
	Workspace string // bytes of the writable workspace
	Sandboxes string // how many run at one time
	Total     string // memory of all sandboxes together
	Unlimited bool   // start kernels also where their memory has no limit
	Demo      bool   // make a demo notebook if there is none
	Log       string // debug, info, warn, error
}

// setting ties a field to its names.
type setting struct {
	name, help, def string
	isBool          bool
	get             func(*Config) string
	set             func(*Config, string) error
}

func str(name, def, help string, field func(*Config) *string) setting {
	return setting{
		name: name, help: help, def: def,
		get: func(c *Config) string { return *field(c) },
		set: func(c *Config, v string) error { *field(c) = v; return nil },
	}
}

func yes(name, help string, field func(*Config) *bool) setting {
	return setting{
		name: name, help: help, def: "false", isBool: true,
		get: func(c *Config) string { return strconv.FormatBool(*field(c)) },
		set: func(c *Config, v string) (err error) { *field(c), err = strconv.ParseBool(v); return err },
	}
}

func settings(getenv func(string) string) []setting {
	return []setting{
		str("data", defaultData(getenv), "folder of the database, the secrets and the live sandboxes", func(c *Config) *string { return &c.Data }),
		str("addr", "127.0.0.1:8888", "where the app listens", func(c *Config) *string { return &c.Addr }),
		str("frame-addr", "", "where active outputs are served from, a separate origin (default: the next port)", func(c *Config) *string { return &c.FrameAddr }),
		str("url", "", "how browsers reach the app, if not http://ADDR", func(c *Config) *string { return &c.URL }),
		str("frame-url", "", "how browsers reach the frame address, if not http://FRAME-ADDR", func(c *Config) *string { return &c.FrameURL }),
		str("backend", "bubblewrap", "the default sandbox backend", func(c *Config) *string { return &c.Backend }),
		str("memory", "2GiB", "memory of one sandbox, swap included", func(c *Config) *string { return &c.Memory }),
		str("cpu", "2", "processors of one sandbox", func(c *Config) *string { return &c.CPU }),
		str("pids", "512", "processes and threads of one sandbox", func(c *Config) *string { return &c.Pids }),
		str("workspace", "512MiB", "writable workspace of one sandbox", func(c *Config) *string { return &c.Workspace }),
		str("log", "info", "debug, info, warn or error", func(c *Config) *string { return &c.Log }),
		str("sandboxes", "32", "sandboxes that may run at one time", func(c *Config) *string { return &c.Sandboxes }),
		str("total-memory", "", "memory of all sandboxes together, such as 12GiB (default: the machine's less 2 GiB)", func(c *Config) *string { return &c.Total }),
		yes("allow-unlimited", "start kernels also where the system lets the server limit neither their memory nor their processors", func(c *Config) *bool { return &c.Unlimited }),
		yes("demo", "make a demo notebook if there is none", func(c *Config) *bool { return &c.Demo }),
	}
}

func defaultData(getenv func(string) string) string {
	if d := getenv("XDG_DATA_HOME"); d != "" {
		return filepath.Join(d, "sandbook")
	}
	if h := getenv("HOME"); h != "" {
		return filepath.Join(h, ".local", "share", "sandbook")
	}
	return "sandbook-data"
}

// loadConfig reads the settings: defaults, then the file, then the environment
// (SANDBOOK_NAME), then flags. It also says where each value came from.
func loadConfig(args []string, getenv func(string) string, stderr io.Writer) (Config, map[string]string, error) {
	var c Config
	all := settings(getenv)
	from := map[string]string{}
	fset := flag.NewFlagSet("web", flag.ContinueOnError)
	fset.SetOutput(io.Discard)
	file := fset.String("config", getenv("SANDBOOK_CONFIG"), "JSON file with settings by the names below")
	flags := map[string]*string{}
	for _, s := range all {
		if s.isBool {
			v := "false"
			flags[s.name] = &v
			fset.BoolFunc(s.name, s.help, func(x string) error { v = x; return nil })
			continue
		}
		flags[s.name] = fset.String(s.name, s.def, s.help)
	}
	switch err := fset.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fset.SetOutput(stderr)
		fset.Usage()
		return c, nil, err
	case err != nil:
		return c, nil, fmt.Errorf("%w; web run -h lists the settings", err)
	}
	if fset.NArg() > 0 {
		return c, nil, fmt.Errorf("there is no argument %q; settings begin with a dash, see web run -h", fset.Arg(0))
	}
	values, err := configFile(*file, all)
	if err != nil {
		return c, nil, err
	}
	given := map[string]bool{}
	fset.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, s := range all {
		v, src := s.def, "default"
		if f, ok := values[s.name]; ok {
			v, src = f, *file
		}
		env := "SANDBOOK_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
		if e := getenv(env); e != "" {
			v, src = e, env
		}
		if given[s.name] {
			v, src = *flags[s.name], "flag"
		}
		if err := s.set(&c, v); err != nil {
			return c, nil, fmt.Errorf("setting %s from %s: %w", s.name, src, err)
		}
		from[s.name] = src
	}
	return c, from, nil
}

func configFile(path string, all []setting) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the config file %s does not exist", path)
	}
	if err != nil {
		return nil, err
	}
	var raw map[string]any
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("%s is not a JSON object: %w", path, err)
	}
	names := make([]string, 0, len(all))
	known := map[string]bool{}
	for _, s := range all {
		known[s.name] = true
		names = append(names, s.name)
	}
	sort.Strings(names)
	out := map[string]string{}
	for k, v := range raw {
		if !known[k] {
			return nil, fmt.Errorf("%s: there is no setting %q; the settings are %s", path, k, strings.Join(names, ", "))
		}
		out[k] = fmt.Sprint(v)
	}
	return out, nil
}

// parseSize reads 512MiB, 2GiB, 1.5G or plain bytes.
func parseSize(s string) (int64, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	unit := int64(1)
	for _, u := range []struct {
		suffix string
		n      int64
	}{{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}} {
		if strings.HasSuffix(t, u.suffix) {
			t, unit = strings.TrimSpace(strings.TrimSuffix(t, u.suffix)), u.n
			break
		}
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil || f <= 0 || f*float64(unit) > 1<<50 {
		return 0, fmt.Errorf("%q is not a size; write 512MiB or 2GiB", s)
	}
	return int64(f * float64(unit)), nil
}
