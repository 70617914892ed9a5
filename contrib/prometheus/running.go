package prometheus

import (
	"time"

	"github.com/filohttp/filo"
)

// The requests that are being handled: see filo.Server.Running.
var (
	running = describe("filo_requests_running",
		"Requests that are being handled and take longer than a moment, by route and by what they do: handler, reading, answering, queued.",
		"route", "state")
	runningOldest = describe("filo_requests_running_oldest_seconds", "For how long the oldest of filo_requests_running has been handled.",
		"route", "state")
)

// runningKey distinguishes the series of running requests.
type runningKey struct {
	route string
	state filo.RunningState
}

// collectRunning sends a series for each state of each route that has a running request. The number of different route labels is limited, as for
// classes.
func (k *collector) collectRunning(out sink) {
	count, oldest := make(map[runningKey]int), make(map[runningKey]time.Duration)
	requests := k.server.Running()
	k.mu.Lock()
	for _, each := range requests {
		key := runningKey{serverClass, each.State}
		if each.Route != "" {
			key.route = k.label(1, each.Route)
		}
		count[key]++
		oldest[key] = max(oldest[key], each.Age)
	}
	k.mu.Unlock()
	for key, n := range count {
		out.gauge(running, float64(n), key.route, key.state.String())
		out.gauge(runningOldest, oldest[key].Seconds(), key.route, key.state.String())
	}
}
