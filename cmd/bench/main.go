// Command bench measures Sandbook beside Jupyter Server with ipykernel, in one
// run on one machine, through the sockets their clients use. It asserts
// nothing; it prints a table, and JSON with --json.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// kernelClient runs code on one kernel and waits for its end.
type kernelClient interface {
	// run returns what the code printed, in bytes, when the run is done.
	run(ctx context.Context, code string) (printed int, err error)
	// start begins a run without waiting; wait waits for its end.
	start(ctx context.Context, code string) error
	wait(ctx context.Context) error
	interrupt(ctx context.Context) error
	// memory is the proportional memory of everything that serves the kernel.
	memory() (int64, error)
	close(ctx context.Context)
}

// system is one of the two that are measured.
type system interface {
	name() string
	kernel(ctx context.Context) (kernelClient, error) // a new kernel; it may start with the first run
	close()
}

// figure is one line of the table.
type figure struct {
	Name   string             `json:"name"`
	Unit   string             `json:"unit"`
	Values map[string]float64 `json:"values"`
	Note   string             `json:"note,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := bench(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	web := f.String("web", "bin/web", "the server's program")
	file := f.String("json", "", "write the figures to this file, too")
	n := f.Int("n", 500, "runs of 1+1")
	if err := f.Parse(args); err != nil {
		return err
	}
	ours, err := startSandbook(ctx, *web)
	if err != nil {
		return err
	}
	defer ours.close()
	systems := []system{ours}
	theirs, err := startJupyter(ctx)
	if err != nil {
		fmt.Fprintf(out, "Jupyter Server is not measured: %v.\nInstall python3-jupyter-server and python3-ipykernel for the other column.\n\n", err)
	} else {
		defer theirs.close()
		systems = append(systems, theirs)
	}
	var figures []figure
	for _, m := range []func(context.Context, []system, int) ([]figure, error){newKernels, loaded, runs, prints, memory, interrupts} {
		fs, err := m(ctx, systems, *n)
		if err != nil {
			return err
		}
		figures = append(figures, fs...)
	}
	restart, err := ours.restart(ctx)
	if err != nil {
		return err
	}
	figures = append(figures, restart)
	printTable(out, systems, figures)
	if *file == "" {
		return nil
	}
	b, err := json.MarshalIndent(map[string]any{"machine": machine(), "figures": figures}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(*file, append(b, '\n'), 0o600)
}

func printTable(out io.Writer, systems []system, figures []figure) {
	fmt.Fprintln(out, machine())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := ""
	for _, s := range systems {
		head += s.name() + "\t"
	}
	fmt.Fprintf(w, "\t%s\n", head)
	for _, f := range figures {
		line := f.Name + "\t"
		for _, s := range systems {
			if v, ok := f.Values[s.name()]; ok {
				line += fmt.Sprintf("%.2f %s\t", v, f.Unit)
			} else {
				line += "–\t"
			}
		}
		fmt.Fprintln(w, line)
	}
	_ = w.Flush()
}

func machine() string {
	cpu := "?"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range strings.SplitSeq(string(b), "\n") {
			if name, ok := strings.CutPrefix(l, "model name"); ok {
				cpu = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), ":"))
				break
			}
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	cores := strings.Count(mustOutput("nproc"), "\n")
	_ = cores
	return fmt.Sprintf("%s, %s processors, Linux %s, %s", cpu, strings.TrimSpace(mustOutput("nproc")), strings.TrimSpace(string(kernel)), time.Now().Format(time.DateOnly))
}

func mustOutput(name string) string {
	b, err := exec.CommandContext(context.Background(), name).Output()
	if err != nil {
		return "?"
	}
	return string(b)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// at is the p-th quantile of the times.
func at(d []time.Duration, p float64) float64 {
	s := slices.Clone(d)
	slices.Sort(s)
	return ms(s[min(len(s)-1, int(float64(len(s))*p))])
}

// runs measures 1+1 from request to done.
func runs(ctx context.Context, systems []system, n int) ([]figure, error) {
	p50 := figure{Name: "run 1+1 to done, p50", Unit: "ms", Values: map[string]float64{}}
	p99 := figure{Name: "run 1+1 to done, p99", Unit: "ms", Values: map[string]float64{}}
	clients := map[string]kernelClient{}
	times := map[string][]time.Duration{}
	for _, s := range systems {
		k, err := s.kernel(ctx)
		if err != nil {
			return nil, err
		}
		defer k.close(ctx)
		clients[s.name()] = k
		for range 50 {
			if _, err := k.run(ctx, "1+1"); err != nil {
				return nil, err
			}
		}
	}
	for range n {
		for _, s := range systems { // in turn, so that both see the same machine
			start := time.Now()
			if _, err := clients[s.name()].run(ctx, "1+1"); err != nil {
				return nil, err
			}
			times[s.name()] = append(times[s.name()], time.Since(start))
		}
	}
	for name, t := range times {
		p50.Values[name], p99.Values[name] = at(t, 0.5), at(t, 0.99)
	}
	return []figure{p50, p99}, nil
}

func newKernels(ctx context.Context, systems []system, _ int) ([]figure, error) {
	return cold(ctx, systems, 10, "new kernel to first result", "1+1")
}

func loaded(ctx context.Context, systems []system, _ int) ([]figure, error) {
	return cold(ctx, systems, 5, "new kernel to numpy, pandas, matplotlib", "import numpy, pandas, matplotlib.pyplot\n1+1")
}

// cold measures a new kernel to the end of its first run.
func cold(ctx context.Context, systems []system, n int, name, code string) ([]figure, error) {
	f := figure{Name: name + ", p50", Unit: "ms", Values: map[string]float64{}}
	best := figure{Name: name + ", best", Unit: "ms", Values: map[string]float64{}}
	times := map[string][]time.Duration{}
	for range n {
		for _, s := range systems {
			start := time.Now()
			k, err := s.kernel(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := k.run(ctx, code); err != nil {
				return nil, err
			}
			times[s.name()] = append(times[s.name()], time.Since(start))
			k.close(ctx)
		}
	}
	for name, t := range times {
		f.Values[name], best.Values[name] = at(t, 0.5), at(t, 0)
	}
	return []figure{f, best}, nil
}

// prints measures 10,000 prints until the client has all of them.
func prints(ctx context.Context, systems []system, _ int) ([]figure, error) {
	const code = "for i in range(10000): print(i)"
	const want = 48890
	f := figure{Name: "10,000 prints to the client, p50", Unit: "ms", Values: map[string]float64{}}
	lost := figure{Name: "bytes of them lost", Unit: "", Values: map[string]float64{}}
	for _, s := range systems {
		k, err := s.kernel(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := k.run(ctx, "1+1"); err != nil {
			return nil, err
		}
		var t []time.Duration
		for range 10 {
			start := time.Now()
			got, err := k.run(ctx, code)
			if err != nil {
				return nil, err
			}
			t = append(t, time.Since(start))
			lost.Values[s.name()] += float64(want - got)
		}
		f.Values[s.name()] = at(t, 0.5)
		k.close(ctx)
	}
	return []figure{f, lost}, nil
}

// memory measures an idle kernel, fresh and with libraries loaded.
func memory(ctx context.Context, systems []system, _ int) ([]figure, error) {
	fresh := figure{Name: "memory of an idle kernel (PSS)", Unit: "MiB", Values: map[string]float64{}}
	full := figure{Name: "with numpy, pandas, matplotlib (PSS)", Unit: "MiB", Values: map[string]float64{}}
	for _, s := range systems {
		k, err := s.kernel(ctx)
		if err != nil {
			return nil, err
		}
		for code, f := range map[string]*figure{"1+1": &fresh} {
			if err := measure(ctx, k, code, f, s.name()); err != nil {
				return nil, err
			}
		}
		if err := measure(ctx, k, "import numpy, pandas, matplotlib.pyplot", &full, s.name()); err != nil {
			return nil, err
		}
		k.close(ctx)
	}
	return []figure{fresh, full}, nil
}

func measure(ctx context.Context, k kernelClient, code string, f *figure, name string) error {
	if _, err := k.run(ctx, code); err != nil {
		return err
	}
	b, err := k.memory()
	f.Values[name] = float64(b) / (1 << 20)
	return err
}

// interrupts measures the interrupt of a loop until the run has ended.
func interrupts(ctx context.Context, systems []system, _ int) ([]figure, error) {
	f := figure{Name: "interrupt of while True to ended, p50", Unit: "ms", Values: map[string]float64{}}
	for _, s := range systems {
		k, err := s.kernel(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := k.run(ctx, "1+1"); err != nil {
			return nil, err
		}
		var t []time.Duration
		for range 10 {
			if err := k.start(ctx, "while True: pass"); err != nil {
				return nil, err
			}
			pause(ctx, 200*time.Millisecond)
			start := time.Now()
			if err := k.interrupt(ctx); err != nil {
				return nil, err
			}
			if err := k.wait(ctx); err != nil {
				return nil, err
			}
			t = append(t, time.Since(start))
		}
		f.Values[s.name()] = at(t, 0.5)
		k.close(ctx)
	}
	return []figure{f}, nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
