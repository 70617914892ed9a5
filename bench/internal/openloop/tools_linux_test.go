//go:build amd64 || arm64

package openloop

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// tool runs another load generator and returns the numbers that pattern's groups find in its report.
func tool(t *testing.T, pattern, name string, args ...string) []float64 {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s isn't installed", name)
	}
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	match := regexp.MustCompile(pattern).FindSubmatch(out)
	if match == nil {
		t.Fatalf("%s says nothing of the kind %q:\n%s", name, pattern, out)
	}
	var numbers []float64
	for _, group := range match[1:] {
		n, err := strconv.ParseFloat(string(group), 64)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// counting serves hello and counts the requests.
func counting(t *testing.T) (address string, count *atomic.Int64) {
	count = new(atomic.Int64)
	return listen(t, func(c net.Conn, r *bufio.Reader) {
		for request, _ := readRequest(r); request != nil; request, _ = readRequest(r) {
			count.Add(1)
			io.WriteString(c, hello)
		}
	}), count
}

// At the same rate h2load sends as many requests, and both count what the server has seen.
func TestLikeH2load(t *testing.T) {
	address, count := counting(t)
	const connections, seconds, rate = 10, 2, 500
	theirs := tool(t, `(\d+) succeeded, (\d+) failed`, "h2load", "--h1", "-t", "1", "-c", strconv.Itoa(connections), "-D",
		strconv.Itoa(seconds),
		"--rps", strconv.Itoa(rate/connections), "http://"+address+"/")
	seen := count.Swap(0)
	if theirs[1] != 0 || float64(seen) < theirs[0] || float64(seen) > theirs[0]+connections {
		t.Errorf("h2load counts %v answers and %v failures, the server %d requests", theirs[0], theirs[1], seen)
	}
	r := mustRun(t, Options{Address: address, Rate: rate, Duration: seconds * time.Second, Connections: connections,
		Requests: []Request{{Want: wantHello}}})
	noErrors(t, r)
	if r.Answers != rate*seconds || count.Load() != rate*seconds {
		t.Errorf("%d answers, the server has seen %d requests, want %d", r.Answers, count.Load(), rate*seconds)
	}
	// h2load may fall behind where the machine is busy, and doesn't catch up.
	if theirs[0] > 1.1*float64(r.Answers) {
		t.Errorf("h2load has %v answers at this rate, this client %d", theirs[0], r.Answers)
	}
	t.Logf("h2load has %v answers, this client %d", theirs[0], r.Answers)
}

// In a closed loop this client and wrk both count what the server has seen.
func TestLikeWrk(t *testing.T) {
	address, count := counting(t)
	const connections = 8
	theirs := tool(t, `(\d+) requests in [\d.]+m?s,[^$]*Requests/sec: +([\d.]+)`, "wrk", "-t1", "-c",
		strconv.Itoa(connections), "-d1", "http://"+address+"/")
	seen := count.Swap(0)
	if float64(seen) < theirs[0] || float64(seen) > theirs[0]+2*connections {
		t.Errorf("wrk counts %v answers, the server %d requests", theirs[0], seen)
	}
	r := mustRun(t, Options{Address: address, Duration: time.Second, Connections: connections,
		Requests: []Request{{Want: wantHello}}})
	noErrors(t, r)
	if all := uint64(count.Load()); all < r.Answers || all > r.Answers+connections {
		t.Errorf("%d answers, the server has seen %d requests", r.Answers, all)
	}
	if r.Answers == 0 || r.Answers != r.Statuses[200] || r.Answers != uint64(r.Latency.Count) {
		t.Errorf("%d answers, statuses %v, %d latencies", r.Answers, r.Statuses, r.Latency.Count)
	}
	t.Logf("%.0f answers/s, wrk has %.0f", r.Achieved, theirs[1])
}
