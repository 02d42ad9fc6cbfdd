package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"sandbook/backends"
	"sandbook/sessionstore"
	"sandbook/web/auth"
)

// printConfig shows the settings in force and where each comes from.
func printConfig(cfg Config, from map[string]string, getenv func(string) string, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range settings(getenv) {
		fmt.Fprintf(w, "%s\t%s\t(%s)\n", s.name, s.get(&cfg), from[s.name])
	}
	return w.Flush()
}

// printLink shows the sign-in link of a data folder.
func printLink(cfg Config, out io.Writer) error {
	dir := filepath.Join(cfg.Data, "secrets")
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("there is no server data in %s yet; start one with: web run", cfg.Data)
	}
	keys, err := auth.OpenKeys(dir, nil)
	if err != nil {
		return err
	}
	url := cfg.URL
	if url == "" {
		url = "http://" + cfg.Addr
	}
	_, err = fmt.Fprintf(out, "%s/login?token=%s\n", url, keys.SignInSecret())
	return err
}

// doctor says what each backend enforces on this machine. It fails when none
// can start a sandbox.
func doctor(ctx context.Context, cfg Config, out io.Writer) error {
	data, err := filepath.Abs(cfg.Data)
	if err != nil {
		return err
	}
	r, err := newRegistry(cfg, data, "doctor")
	if err != nil {
		return err
	}
	usable := 0
	for _, name := range r.Names() {
		b, err := r.Backend(name)
		if err != nil {
			return err
		}
		caps, err := b.Probe(ctx)
		if err != nil {
			fmt.Fprintf(out, "%s: cannot be used\n  %s\n", name, err)
			continue
		}
		usable++
		printCaps(out, name, caps)
	}
	if usable == 0 {
		return errors.New("no backend can isolate code on this machine, so no kernel will be started")
	}
	return nil
}

func printCaps(out io.Writer, name string, caps backends.Caps) {
	fmt.Fprintf(out, "%s %s: %s\n", name, caps.Version, caps.Isolation)
	for _, e := range caps.Enforced {
		fmt.Fprintf(out, "  enforced  %s\n", e)
	}
	for _, g := range caps.Missing {
		fmt.Fprintf(out, "  missing   %s: %s %s\n", g.Cap, g.Why, g.Fix)
	}
}

// token makes, lists and revokes access tokens of the running server. Whoever
// can read the data folder may: the sign-in secret is in it.
func token(ctx context.Context, args []string, getenv func(string) string, out, errs io.Writer) error {
	const help = "web token create --name NAME [--scopes read,edit,run] [--days 30] | web token list | web token revoke ID"
	if len(args) == 0 {
		return errors.New(help)
	}
	f := flag.NewFlagSet("web token "+args[0], flag.ContinueOnError)
	f.SetOutput(errs)
	data := f.String("data", "", "data folder of the server")
	addr := f.String("addr", "", "address of the server")
	name := f.String("name", "", "what the agent is called on the page")
	scopes := f.String("scopes", "read,edit,run", "what it may do: read, edit, run")
	days := f.Int("days", 30, "days until it expires, at most 365")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	cfg, _, err := loadConfig(nil, getenv, errs)
	if err != nil {
		return err
	}
	if *data != "" {
		cfg.Data = *data
	}
	if *addr != "" {
		cfg.Addr = *addr
	}
	api, err := signIn(ctx, cfg)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "create":
		var made struct{ Token string }
		in := map[string]any{"name": *name, "scopes": strings.Split(*scopes, ","), "days": *days}
		if err := api.do(ctx, http.MethodPost, "/api/v1/tokens", in, &made); err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, made.Token)
		return err
	case args[0] == "list":
		return listTokens(ctx, api, out)
	case args[0] == "revoke" && f.NArg() == 1:
		return api.do(ctx, http.MethodDelete, "/api/v1/tokens/"+url.PathEscape(f.Arg(0)), nil, nil)
	}
	return errors.New(help)
}

func listTokens(ctx context.Context, api *apiClient, out io.Writer) error {
	var list struct{ Tokens []sessionstore.Token }
	if err := api.do(ctx, http.MethodGet, "/api/v1/tokens", nil, &list); err != nil {
		return err
	}
	if len(list.Tokens) == 0 {
		_, err := fmt.Fprintln(out, "There are no tokens. Make one with: web token create --name NAME")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, t := range list.Tokens {
		state := "until " + t.Expires.Format(time.DateOnly)
		if t.Revoked {
			state = "revoked"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.ID, t.Name, strings.Join(t.Scopes, ","), state)
	}
	return w.Flush()
}

// apiClient talks to the running server as the person who owns its data.
type apiClient struct {
	base string
	http *http.Client
}

func signIn(ctx context.Context, cfg Config) (*apiClient, error) {
	if _, err := os.Stat(filepath.Join(cfg.Data, "secrets")); err != nil {
		return nil, fmt.Errorf("there is no server data in %s; name it with --data", cfg.Data)
	}
	keys, err := auth.OpenKeys(filepath.Join(cfg.Data, "secrets"), nil)
	if err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	c := &apiClient{base: "http://" + cfg.Addr, http: &http.Client{Jar: jar, Timeout: 30 * time.Second}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/login?token="+url.QueryEscape(keys.SignInSecret()), nil)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no server answers at %s; start it, or name it with --addr", cfg.Addr)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server at %s did not take the secret of %s: %s", cfg.Addr, cfg.Data, res.Status)
	}
	return c, nil
}

func (c *apiClient) do(ctx context.Context, method, path string, in, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", c.base)
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode/100 != 2 {
		var p struct{ Error struct{ Message string } }
		if err := json.NewDecoder(res.Body).Decode(&p); err != nil || p.Error.Message == "" {
			return fmt.Errorf("the server answered %s", res.Status)
		}
		return errors.New(p.Error.Message)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(out)
}

// reap ends every sandbox of a data folder whose server is not running.
func reap(ctx context.Context, cfg Config, out io.Writer) error {
	data, err := filepath.Abs(cfg.Data)
	if err != nil {
		return err
	}
	st, err := sessionstore.Open(ctx, sessionstore.Options{Dir: data})
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	install, err := st.InstallID(ctx)
	if err != nil {
		return err
	}
	r, err := newRegistry(cfg, data, install)
	if err != nil {
		return err
	}
	for _, name := range r.Names() {
		b, err := r.Backend(name)
		if err != nil {
			return err
		}
		if err := b.Reap(ctx, install, nil); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(out, "No sandbox of this server is left.")
	return err
}
