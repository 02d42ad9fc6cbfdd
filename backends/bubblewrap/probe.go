package bubblewrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"sandbook/backends"
	"sandbook/backends/internal/shim/job"
)

// Probe implements backends.Backend. It really starts a sandbox, with
// everything but a guest.
func (b *Backend) Probe(ctx context.Context) (backends.Caps, error) {
	caps := backends.Caps{Backend: Name}
	h, err := b.setup()
	if err != nil {
		return caps, err
	}
	if caps.Version, err = version(ctx, h.bwrap); err != nil {
		return caps, err
	}
	if err := b.trial(ctx); err != nil {
		return caps, explain(err, hostFacts())
	}
	if err := b.limited(h); err != nil {
		return caps, err
	}
	caps.Enforced = []string{
		backends.CapNamespaces, backends.CapSeccomp, backends.CapNoNetwork,
		backends.CapWorkspace, backends.CapKillAll, backends.CapAttach,
	}
	for _, c := range []struct{ controller, name, what string }{
		{"memory", backends.CapMemory, "Memory"},
		{"pids", backends.CapPids, "The number of processes"},
		{"cpu", backends.CapCPU, "Processor time"},
	} {
		why := h.cgroup.Refused(c.controller)
		if c.controller == "pids" && h.countsProcesses {
			why = nil
		}
		if why != nil {
			caps.Missing = append(caps.Missing, gap(c.name, c.what, why))
			continue
		}
		caps.Enforced = append(caps.Enforced, c.name)
	}
	caps.Isolation = "namespaces, system-call allow-list, " + h.cgroup.Summary()
	return caps, nil
}

// gap explains a limit that control groups would give.
func gap(name, what string, why error) backends.Gap {
	return backends.Gap{
		Cap: name,
		Why: fmt.Sprintf("%s of a sandbox is not limited: this server may not make control groups (%v).", what, why),
		Fix: delegate(os.Geteuid() == 0),
	}
}

// delegate says how a server gets control groups of its own.
func delegate(root bool) string {
	if root {
		return "Start the server with /sys/fs/cgroup writable (Docker: --cgroupns=private with a writable mount), or as a service with Delegate=yes."
	}
	return "Start the server as a service with Delegate=yes, by `systemd-run --user --scope -p Delegate=yes` before its command, or as root."
}

// limited says why no sandbox may start for want of a limit on its memory.
func (b *Backend) limited(h host) error {
	why := h.cgroup.Refused("memory")
	if why == nil || b.opts.AllowUnlimited {
		return nil
	}
	return fmt.Errorf("No kernel is started, since its memory would have no limit and code could use up this machine: the server may not make control groups (%w). %s To start kernels all the same, give the server --allow-unlimited.", why, delegate(os.Geteuid() == 0)) //nolint:revive,staticcheck // for people
}

func version(ctx context.Context, bwrap string) (string, error) {
	out, err := exec.CommandContext(ctx, bwrap, "--version").Output() //nolint:gosec // the path we looked up
	if err != nil {
		return "", fmt.Errorf("Bubblewrap does not run: %w. Install it again with `apt install --reinstall bubblewrap`.", err) //nolint:revive,staticcheck // for people
	}
	return strings.TrimPrefix(string(bytes.TrimSpace(out)), "bubblewrap "), nil
}

// trial starts a sandbox whose guest does nothing, and sees it end well: every
// wall was built and the filter was loaded. The guest is the shim, since no
// program of the host is known to work by itself under another name.
func (b *Backend) trial(ctx context.Context) error {
	h, err := b.setup()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	id := backends.ID(fmt.Sprintf("probe-%d-%d", os.Getpid(), time.Now().UnixNano()))
	spec := backends.Spec{
		ID:     id,
		Labels: backends.Labels{Install: b.opts.Install},
		Guest:  job.Self,
		Args:   []string{job.Trial},
		Limits: backends.Limits{}.WithDefaults(),
	}
	if err := validate(spec, b.opts.Install); err != nil {
		return err
	}
	uid, err := b.takeUID(id)
	if err != nil {
		return err
	}
	s, err := b.raise(ctx, h, spec, uid)
	if err != nil {
		b.freeUID(id)
		return err
	}
	exit, err := s.Wait(ctx)
	if err != nil {
		return err
	}
	if exit.Cause != backends.Exited || exit.Code != 0 {
		return fmt.Errorf("a trial sandbox ended badly (%s, code %d, signal %d): %s", exit.Cause, exit.Code, exit.Signal, strings.TrimSpace(exit.Detail))
	}
	return nil
}

// facts are settings of a host that explain why a sandbox cannot start.
type facts struct {
	root          bool
	usernsClone   string // Debian's switch
	maxUserns     string
	apparmorUsern string // Ubuntu's switch
	container     bool
}

func hostFacts() facts {
	read := func(path string) string {
		b, err := os.ReadFile(path) //nolint:gosec // fixed paths
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	f := facts{
		root:          os.Geteuid() == 0,
		usernsClone:   read("/proc/sys/kernel/unprivileged_userns_clone"),
		maxUserns:     read("/proc/sys/user/max_user_namespaces"),
		apparmorUsern: read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
	}
	for _, p := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(p); err == nil {
			f.container = true
		}
	}
	return f
}

// explain says in one sentence why no sandbox can start, and what to do.
func explain(err error, f facts) error {
	var fix string
	switch {
	case f.maxUserns == "0":
		fix = "User namespaces are switched off; allow them with `sysctl user.max_user_namespaces=10000`"
	case f.usernsClone == "0":
		fix = "Unprivileged user namespaces are switched off; allow them with `sysctl kernel.unprivileged_userns_clone=1`"
	case f.apparmorUsern == "1":
		fix = "AppArmor restricts user namespaces; install a profile that lets /usr/bin/bwrap and this server use them (`apt install apparmor-profiles`, then load bwrap-userns-restrict), or run `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
	case f.container:
		fix = "This container may not make namespaces; start it with `--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined`, or run the server on the host"
	default:
		fix = "See which step was refused, and run `web doctor` for the host's settings"
	}
	return fmt.Errorf("No sandbox can be started on this host: %w. %s.", noPeriod(err), fix) //nolint:revive,staticcheck // for people
}

// noPeriod lets an error stand inside a sentence.
func noPeriod(err error) error {
	text := strings.TrimRight(err.Error(), ".\n ")
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
