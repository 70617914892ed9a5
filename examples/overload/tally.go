package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// tally counts outcomes by status, with their latencies. The zero value is ready for use.
type tally struct {
	mu       sync.Mutex
	byStatus map[int][]time.Duration
	errs     []error
}

func (t *tally) add(o outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.err != nil {
		t.errs = append(t.errs, o.err)
		return
	}
	if t.byStatus == nil {
		t.byStatus = make(map[int][]time.Duration)
	}
	t.byStatus[o.status] = append(t.byStatus[o.status], o.took)
}

func (t *tally) count(status int) int { return len(t.byStatus[status]) }

// only tells whether there were no errors and no other statuses than these.
func (t *tally) only(statuses ...int) bool {
	for status := range t.byStatus {
		if !slices.Contains(statuses, status) {
			return false
		}
	}
	return len(t.errs) == 0
}

// statuses is the tally in words: "200 × 15, 503 × 2, failed × 1 (EOF)".
func (t *tally) statuses() string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(t.byStatus)) {
		parts = append(parts, fmt.Sprintf("%d × %d", status, t.count(status)))
	}
	if len(t.errs) > 0 {
		parts = append(parts, fmt.Sprintf("failed × %d (%v)", len(t.errs), t.errs[0]))
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// latency is the median, the 99th percentile and the longest time of the answers with this status.
func (t *tally) latency(status int) string {
	sorted := slices.Sorted(slices.Values(t.byStatus[status]))
	if len(sorted) == 0 {
		return "-"
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("half within %.1f ms, 99 %% within %.1f ms, all within %.1f ms",
		ms(sorted[(len(sorted)-1)/2]), ms(sorted[(len(sorted)-1)*99/100]), ms(sorted[len(sorted)-1]))
}

func (r *result) print(w io.Writer, cfg config) {
	say := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	say("A server with Concurrency %d and a handler that takes %v.", cfg.concurrency, cfg.work)
	say("")
	say("Calm, %v: %d regular clients, each on one connection that it keeps.", cfg.storm/2, cfg.regulars)
	say("  regulars     %s", r.calm.statuses())
	say("    the 200s   %s", r.calm.latency(http.StatusOK))
	say("")
	say("Storm, %v: a crowd of %d more, each request on a new connection.", cfg.storm, cfg.crowd)
	say("  regulars     %s", r.storm.statuses())
	say("    the 200s   %s", r.storm.latency(http.StatusOK))
	say("  crowd        %s", r.crowd.statuses())
	say("    the 200s   %s", r.crowd.latency(http.StatusOK))
	say("    the 503s   %s", r.crowd.latency(http.StatusServiceUnavailable))
	say("")
	say("Afterwards, one new client: %s", r.after.statuses())
	say("The server counted %d connections accepted, %d of them refused, and spawned %d workers.",
		r.stats.ConnsAccepted, r.stats.ConnsRefused, r.stats.WorkersSpawned)
	if r.verdict() == nil {
		say("")
		say("So: the served were not disturbed, and each of the others got a whole 503 with Retry-After.")
	}
}
