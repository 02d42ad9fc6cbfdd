package guest

import (
	"sort"
	"strings"
	"testing"
	"time"

	"sandbook/kernel/wire"
)

func TestTenThousandPrints(t *testing.T) {
	t.Parallel()
	_, h := testKernel(t, nil)
	h.ok("1")
	from := time.Now()
	o := h.ok("for i in range(10000): print('line number', i)")
	took := time.Since(from)
	if got := strings.Count(o.stdout, "\n"); got != 10000 {
		t.Errorf("%d lines, want 10000", got)
	}
	if !strings.HasSuffix(o.stdout, "line number 9999\n") {
		t.Errorf("the end is %q", o.stdout[max(0, len(o.stdout)-40):])
	}
	t.Logf("10,000 prints: %s in %d events", took, len(o.events))
}

func TestLatency(t *testing.T) {
	t.Parallel()
	_, h := testKernel(t, nil)
	var all []time.Duration
	for range 300 {
		from := time.Now()
		r := newRun("1+1")
		h.begin(r)
		h.event("run_end", func(e wire.Event) bool { return e.Type == wire.EventRunEnd })
		all = append(all, time.Since(from))
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	t.Logf("1+1 from request to run_end: p50 %s p99 %s", all[150], all[297])
}

func TestColdStart(t *testing.T) {
	t.Parallel()
	var all []time.Duration
	for range 10 {
		from := time.Now()
		_, h := testKernel(t, nil)
		h.ok("1+1")
		all = append(all, time.Since(from))
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	t.Logf("guest and kernel to first result: %v", all)
}
