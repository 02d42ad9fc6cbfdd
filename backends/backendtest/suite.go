// Package backendtest is the one conformance and escape suite of every
// backend: behaviour, limits, isolation and named regressions, as rows of one
// table. It starts real sandboxes with the real guest and attacks them from
// inside. It knows no backend; what a host cannot enforce is reported with the
// reason and counted, never passed over.
//
// A row's id is the name of its subtest and, where there is one, the id of the
// row in the security matrix or the CVE it keeps from coming back.
package backendtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sandbook/backends"
)

// Severity of a row that fails. Those up to HostDoS and PeerDoS block a
// release on every backend.
type Severity string

// The severities, worst first.
const (
	Escape       Severity = "Escape"
	HostLeak     Severity = "HostLeak"
	Exfil        Severity = "Exfil"
	Lateral      Severity = "Lateral"
	HostDoS      Severity = "HostDoS"
	PeerDoS      Severity = "PeerDoS"
	InternalEsc  Severity = "InternalEsc"
	InternalRead Severity = "InternalRead"
	SelfDoS      Severity = "SelfDoS"
	Integrity    Severity = "Integrity"
)

// Options describe the backend under test to the suite.
type Options struct {
	// Guest is the host path of the guest program.
	Guest string
	// Install is the install id the backend works for.
	Install string
	// Reopen makes the backend as a restarted server would: the same state on
	// disk, nothing in memory.
	Reopen func() backends.Backend
	// Foreign makes a backend of another install that shares all it can with
	// the one under test.
	Foreign func() (b backends.Backend, install string)
	// Left lists what the backend's sandboxes left on the host.
	Left func() []string
	// Secrets are paths of the host that hold what no sandbox may see.
	Secrets []string
	// Python is the interpreter's path inside a sandbox; empty: there is none.
	Python string
}

// row is one line of the table.
type row struct {
	id    string
	sev   Severity
	title string
	needs []string // capabilities without which the row cannot hold
	run   func(*T)
}

// outcome of a row.
type outcome struct {
	Row      string   `json:"row"`
	Severity Severity `json:"severity"`
	Title    string   `json:"title"`
	Result   string   `json:"result"` // pass, fail, "not enforced"
	Reason   string   `json:"reason,omitempty"`
	Millis   int64    `json:"ms"`
}

// suite is one run over one backend.
type suite struct {
	b      backends.Backend
	opts   Options
	caps   backends.Caps
	probe  string // folder with the probe program
	canary string
	start  time.Time

	mu       sync.Mutex
	outcomes []outcome
	n        int
	texts    []string // everything any sandbox printed, for the canary
	shared   [2]*box
	reasons  sync.Map // name of a test → why it is not enforced
}

// T is what a row works with.
type T struct {
	*testing.T
	*suite
	ctx context.Context
}

// Run runs every row against a backend.
func Run(t *testing.T, b backends.Backend, opts Options) {
	t.Helper()
	s := &suite{b: b, opts: opts, start: time.Now(), canary: "canary-" + random()}
	s.plant(t)
	s.build(t)
	caps, err := b.Probe(t.Context())
	if err != nil {
		t.Fatalf("NOT TESTED: %v", err)
	}
	s.caps = caps
	t.Cleanup(func() { s.report(t) })
	t.Run("rows", func(t *testing.T) {
		for i := range s.shared {
			s.shared[i] = s.open(&T{T: t, suite: s, ctx: t.Context()}, backends.Spec{})
		}
		for _, r := range rows() {
			t.Run(r.id, func(t *testing.T) { s.row(t, r) })
		}
	})
	for _, r := range []row{
		{id: "V01", sev: HostLeak, title: "no secret of the server was ever printed by a sandbox", run: (*T).noCanary},
		{id: "L27", sev: HostDoS, title: "nothing is left of any sandbox of this run", run: (*T).nothingLeft},
	} {
		t.Run(r.id, func(t *testing.T) { s.row(t, r) })
	}
}

func (s *suite) row(t *testing.T, r row) {
	o := outcome{Row: r.id, Severity: r.sev, Title: r.title, Result: "pass"}
	began := time.Now()
	defer func() {
		if p := recover(); p != nil {
			o.Result, o.Reason = "fail", fmt.Sprint(p)
			s.record(o, began)
			panic(p)
		}
		switch {
		case t.Failed():
			o.Result = "fail"
		case t.Skipped():
			o.Result = "not enforced"
		}
		s.record(o, began)
	}()
	for _, need := range r.needs {
		if !s.caps.Has(need) {
			o.Reason = s.why(need)
			o.Result = "not enforced"
			t.Skipf("NOT ENFORCED: %s", o.Reason)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	rt := &T{T: t, suite: s, ctx: ctx}
	defer func() {
		if reason, ok := s.reasons.LoadAndDelete(t.Name()); ok {
			o.Reason, _ = reason.(string)
		}
	}()
	r.run(rt)
}

func (s *suite) record(o outcome, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.Millis = time.Since(began).Milliseconds()
	s.outcomes = append(s.outcomes, o)
}

func (s *suite) why(capability string) string {
	for _, g := range s.caps.Missing {
		if g.Cap == capability {
			return g.Why
		}
	}
	return "the backend does not offer " + capability
}

// unenforced ends a row that this host cannot show, with the reason.
func (t *T) unenforced(reason string) {
	t.Helper()
	t.reasons.Store(t.Name(), reason)
	t.Skipf("NOT ENFORCED: %s", reason)
}

// report prints the table, and writes it where asked.
func (s *suite) report(t *testing.T) {
	var b strings.Builder
	count := map[string]int{}
	fmt.Fprintf(&b, "\n%-22s %-12s %-13s %s\n", "row", "severity", s.b.Name(), "what")
	for _, o := range s.outcomes {
		count[o.Result]++
		what := o.Title
		if o.Reason != "" {
			what += " — " + o.Reason
		}
		fmt.Fprintf(&b, "%-22s %-12s %-13s %s\n", o.Row, o.Severity, o.Result, what)
	}
	fmt.Fprintf(&b, "%s %s, %s: %d rows, %d pass, %d fail, %d not enforced, in %.1f s\n", s.b.Name(), s.caps.Version, s.caps.Isolation,
		len(s.outcomes), count["pass"], count["fail"], count["not enforced"], time.Since(s.start).Seconds())
	t.Log(b.String())
	out := os.Getenv("SANDBOOK_CONFORMANCE_OUT")
	if out == "" {
		return
	}
	text, err := json.MarshalIndent(struct {
		Backend string         `json:"backend"`
		UID     int            `json:"uid"`
		Caps    backends.Caps  `json:"caps"`
		Counts  map[string]int `json:"counts"`
		Rows    []outcome      `json:"rows"`
	}{s.b.Name(), os.Geteuid(), s.caps, count, s.outcomes}, "", "  ")
	if err == nil {
		name := fmt.Sprintf("%s-%s.json", s.b.Name(), map[bool]string{true: "root", false: "user"}[os.Geteuid() == 0])
		err = os.WriteFile(filepath.Join(out, name), text, 0o644) //nolint:gosec // a report
	}
	if err != nil {
		t.Errorf("write the table: %v", err)
	}
}

// plant puts secrets where a server has them.
func (s *suite) plant(t *testing.T) {
	t.Helper()
	t.Setenv("SANDBOOK_TEST_SECRET", s.canary)
	for _, p := range s.opts.Secrets {
		if err := os.WriteFile(p, []byte(s.canary), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A descriptor without the close-on-exec flag, as a careless parent leaves.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(s.canary); err != nil {
		t.Fatal(err)
	}
	clearCloexec(r.Fd())
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
}

// build builds the probe program.
func (s *suite) build(t *testing.T) {
	t.Helper()
	s.probe = t.TempDir()
	if dir := os.Getenv("SANDBOOK_PROBE"); dir != "" {
		s.probe = dir // built beforehand, for a user without a toolchain
		return
	}
	_, here, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(s.probe, "probe"), ".")
	cmd.Dir = filepath.Join(filepath.Dir(here), "probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the probe: %v\n%s", err, out)
	}
}

func random() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
