package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"sandbook/artifacts"
	"sandbook/backends"
	"sandbook/backends/bubblewrap"
	"sandbook/kernel"
	"sandbook/kernel/guestbin"
	"sandbook/kernel/notebook"
	"sandbook/sessionstore"
	"sandbook/static"
	"sandbook/web"
	"sandbook/web/auth"
	"sandbook/web/frame"
)

// How long a stopping server waits for requests and sessions to end.
const drainTime = 10 * time.Second

// server is the wired program.
type server struct {
	cfg     Config
	out     io.Writer
	logger  *slog.Logger
	store   *sessionstore.Store
	manager *kernel.Manager
	caps    []backends.Caps
	cachers []cacher
	keys    *auth.Keys
	app     *web.Server
	frame   http.Handler
	appLn   net.Listener
	frameLn net.Listener
	url     string
}

// cacher is a backend that makes once what each of its sandboxes would make
// anew. It does so until ctx ends.
type cacher interface {
	KeepCaches(ctx context.Context, failed func(error))
}

var _ cacher = (*bubblewrap.Backend)(nil)

func run(ctx context.Context, release func(), cfg Config, out, errs io.Writer) error {
	logger, err := newLogger(cfg.Log, errs)
	if err != nil {
		return err
	}
	s := &server{cfg: cfg, out: out, logger: logger}
	defer s.close()
	if err := s.wire(ctx); err != nil {
		return err
	}
	if err := s.manager.Adopt(ctx, s.withSandbox(ctx)); err != nil {
		logger.LogAttrs(ctx, slog.LevelError, "adopt sandboxes", slog.Any("error", err))
	}
	if cfg.Demo {
		if err := demo(ctx, s.manager, s.store, s.limited()); err != nil {
			return err
		}
	}
	s.greet()
	return s.serve(ctx, release)
}

// limited reports whether the memory of the default backend's sandboxes has a
// limit here.
func (s *server) limited() bool {
	for _, c := range s.caps {
		if c.Backend == s.cfg.Backend {
			return c.Has(backends.CapMemory)
		}
	}
	return false
}

func newLogger(level string, w io.Writer) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("the log level is debug, info, warn or error, not %q", level)
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})), nil
}

// wire opens everything in the order it is needed.
func (s *server) wire(ctx context.Context) error {
	limits, err := limitsOf(s.cfg)
	if err != nil {
		return err
	}
	data, err := filepath.Abs(s.cfg.Data)
	if err != nil {
		return err
	}
	if s.store, err = sessionstore.Open(ctx, sessionstore.Options{Dir: data, Logger: s.logger}); err != nil {
		return err
	}
	install, err := s.store.InstallID(ctx)
	if err != nil {
		return err
	}
	guest, err := guestbin.Path(filepath.Join(data, "bin"))
	if err != nil {
		return err
	}
	registry, err := newRegistry(s.cfg, data, install)
	if err != nil {
		return err
	}
	blobs := artifacts.New(s.store, artifacts.Quota{})
	if s.caps, err = s.probe(ctx, registry); err != nil {
		return err
	}
	s.manager = kernel.New(kernel.Options{
		Log: s.store, Blobs: blobs, Backends: registry, Caps: s.caps, Install: install, GuestPath: guest, Limits: limits,
		NewID: func() string { return uuid.Must(uuid.NewV7()).String() }, Now: time.Now, Logger: s.logger,
	})
	if err := s.listen(ctx); err != nil {
		return err
	}
	return s.wireWeb(data, blobs)
}

// newRegistry builds the backends of this program, the default first.
func newRegistry(cfg Config, data, install string) (*backends.Registry, error) {
	sandboxes, err := strconv.Atoi(cfg.Sandboxes)
	if err != nil || sandboxes < 1 || sandboxes > 4096 {
		return nil, fmt.Errorf("sandboxes is a whole number from 1 to 4096, not %q", cfg.Sandboxes)
	}
	var total int64
	if cfg.Total != "" {
		if total, err = parseSize(cfg.Total); err != nil {
			return nil, fmt.Errorf("total-memory: %w", err)
		}
	}
	bw, err := bubblewrap.New(bubblewrap.Options{
		RunDir: filepath.Join(data, "run"), CacheDir: filepath.Join(data, "cache"), Install: install,
		MaxSandboxes: sandboxes, TotalMemory: total, AllowUnlimited: cfg.Unlimited,
	})
	if err != nil {
		return nil, err
	}
	r := backends.NewRegistry(bw)
	if _, err := r.Backend(cfg.Backend); err != nil {
		return nil, err
	}
	return r, nil
}

func limitsOf(cfg Config) (backends.Limits, error) {
	l := backends.DefaultLimits()
	var err error
	if l.Memory, err = parseSize(cfg.Memory); err != nil {
		return l, fmt.Errorf("memory: %w", err)
	}
	if l.Workspace, err = parseSize(cfg.Workspace); err != nil {
		return l, fmt.Errorf("workspace: %w", err)
	}
	cpu, err := strconv.ParseFloat(cfg.CPU, 64)
	if err != nil || cpu < 0.05 || cpu > 1024 {
		return l, fmt.Errorf("cpu is a number of processors such as 2 or 0.5, not %q", cfg.CPU)
	}
	l.CPU = int64(cpu * 1000)
	if l.Pids, err = strconv.ParseInt(cfg.Pids, 10, 64); err != nil || l.Pids < 16 {
		return l, fmt.Errorf("pids is a whole number of at least 16, not %q", cfg.Pids)
	}
	if l.Workspace+l.Tmp >= l.Memory {
		return l, fmt.Errorf("the workspace (%s) and /tmp live in memory and must together be smaller than the memory limit (%s)", cfg.Workspace, cfg.Memory)
	}
	return l, nil
}

func (s *server) listen(ctx context.Context) error {
	var lc net.ListenConfig
	var err error
	if s.appLn, err = lc.Listen(ctx, "tcp", s.cfg.Addr); err != nil {
		return fmt.Errorf("cannot listen on %s: %w; choose another address with --addr", s.cfg.Addr, err)
	}
	addr := s.cfg.FrameAddr
	if addr == "" {
		host, port, err := net.SplitHostPort(s.appLn.Addr().String())
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		if strings.HasSuffix(s.cfg.Addr, ":0") {
			n = -1
		}
		addr = net.JoinHostPort(host, strconv.Itoa(n+1))
	}
	if s.frameLn, err = lc.Listen(ctx, "tcp", addr); err != nil {
		return fmt.Errorf("cannot listen on %s for active outputs: %w; choose another address with --frame-addr", addr, err)
	}
	return nil
}

func (s *server) wireWeb(data string, blobs *artifacts.Store) error {
	s.url = s.cfg.URL
	if s.url == "" {
		s.url = "http://" + s.appLn.Addr().String()
	}
	frameURL := s.cfg.FrameURL
	if frameURL == "" {
		frameURL = "http://" + s.frameLn.Addr().String()
	}
	var err error
	if s.keys, err = auth.OpenKeys(filepath.Join(data, "secrets"), s.store); err != nil {
		return err
	}
	loopback := strings.HasPrefix(s.cfg.Addr, "127.") || strings.HasPrefix(s.cfg.Addr, "localhost") || strings.HasPrefix(s.cfg.Addr, "[::1]")
	site, err := auth.NewSite([]string{s.url}, loopback)
	if err != nil {
		return err
	}
	assets, err := static.Open()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(s.appLn.Addr().String())
	n, _ := strconv.Atoi(port)
	s.app = web.New(web.Options{
		Manager: s.manager, Store: s.store, Blobs: blobs, Keys: s.keys, Door: auth.NewDoor(s.keys, n, strings.HasPrefix(s.url, "https:")),
		Site: site, Assets: assets, FrameOrigin: frameURL, Caps: s.caps, Build: buildID(), Logger: s.logger,
	})
	frameSite, err := auth.NewSite([]string{frameURL}, loopback)
	if err != nil {
		return err
	}
	s.frame, err = frame.New(frame.Options{AppOrigins: appOrigins(s.url, loopback), Addressed: frameSite.Addressed, Assets: assets.Frame()})
	return err
}

// probe asks each backend what it enforces on this host.
func (s *server) probe(ctx context.Context, registry *backends.Registry) ([]backends.Caps, error) {
	var caps []backends.Caps
	for _, name := range registry.Names() {
		b, err := registry.Backend(name)
		if err != nil {
			return nil, err
		}
		c, err := b.Probe(ctx)
		if err != nil {
			s.logger.LogAttrs(ctx, slog.LevelError, "backend cannot be used", slog.String("backend", name), slog.Any("error", err))
			c = backends.Caps{Backend: name, Missing: []backends.Gap{{Cap: "start", Why: err.Error()}}}
		}
		caps = append(caps, c)
		if k, ok := b.(cacher); ok && err == nil {
			s.cachers = append(s.cachers, k)
		}
	}
	return caps, nil
}

// appOrigins are the origins whose pages may use the frames: the public one
// and, on this machine, its other name.
func appOrigins(url string, loopback bool) []string {
	out := []string{url}
	if _, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://")); err == nil && loopback {
		for _, o := range []string{"http://127.0.0.1:" + port, "http://localhost:" + port} {
			if o != url {
				out = append(out, o)
			}
		}
	}
	return out
}

// withSandbox lists the notebooks that had a live sandbox when the last server
// ended.
func (s *server) withSandbox(ctx context.Context) []notebook.ID {
	ids, err := s.store.WithSandbox(ctx)
	if err != nil {
		s.logger.LogAttrs(ctx, slog.LevelError, "list live sandboxes", slog.Any("error", err))
	}
	return ids
}

// greet prints the sign-in link, as people who know Jupyter expect it.
func (s *server) greet() {
	for _, c := range s.caps {
		for _, g := range c.Missing {
			fmt.Fprintf(s.out, "Note on %s, %s: %s\n", c.Backend, g.Cap, g.Why)
		}
		if len(c.Missing) > 0 {
			fmt.Fprintln(s.out, "`web doctor` says how to mend it.")
		}
	}
	fmt.Fprintf(s.out, "\nSandbook is running. Open this link to sign in:\n\n    %s/login?token=%s\n\nStop it with Ctrl-C; kernels keep running for ten minutes and are found again.\n\n", s.url, s.keys.SignInSecret())
}

func (s *server) serve(ctx context.Context, release func()) error {
	g, gctx := errgroup.WithContext(ctx)
	app := newHTTP(s.app)
	side := newHTTP(s.frame)
	g.Go(func() error { return ignoreClosed(app.Serve(s.appLn)) })
	g.Go(func() error { return ignoreClosed(side.Serve(s.frameLn)) })
	for _, k := range s.cachers {
		g.Go(func() error {
			k.KeepCaches(gctx, func(err error) {
				s.logger.LogAttrs(gctx, slog.LevelWarn, "kernels start without a cache", slog.Any("error", err))
			})
			return nil
		})
	}
	g.Go(func() error {
		<-gctx.Done()
		release() // a second Ctrl-C ends the process at once
		dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		go func() { _ = side.Shutdown(dctx) }()
		err := s.manager.Close(dctx)
		err = errors.Join(err, s.app.Drain(dctx), app.Shutdown(dctx))
		if err != nil {
			_ = app.Close()
		}
		return err
	})
	return g.Wait()
}

func newHTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *server) close() {
	if s.manager != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		_ = s.manager.Close(ctx)
		cancel()
	}
	if s.store != nil {
		if err := s.store.Close(); err != nil {
			s.logger.LogAttrs(context.Background(), slog.LevelError, "close database", slog.Any("error", err))
		}
	}
	for _, l := range []net.Listener{s.appLn, s.frameLn} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// buildID names this build: it changes when the page's assets may have.
func buildID() string { return versionString() + "-" + runtime.GOARCH }
