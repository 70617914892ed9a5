package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

const report = `Running 5s test @ http://127.0.0.1:8080/hello
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   653.17us    0.94ms  20.12ms   91.06%
    Req/Sec   140.01k     5.10k  151.88k    70.00%
  Latency Distribution
     50%  412.00us
     75%  701.00us
     90%    1.30ms
     99%    4.46ms
  696789 requests in 5.00s, 93.69MB read
Requests/sec: 139352.17
Transfer/sec:     18.74MB
`

func TestParseWrk(t *testing.T) {
	got, err := parseWrk(report, false)
	want := wrkResult{requests: 696789, perSecond: 139352.17, p99: 4460 * time.Microsecond}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for unit, want := range map[string]time.Duration{
		"812.00us": 812 * time.Microsecond, "1.07s": 1070 * time.Millisecond, "1.50m": 90 * time.Second,
	} {
		got, err := parseWrk(strings.Replace(report, "4.46ms", unit, 1), false)
		if err != nil || got.p99 != want {
			t.Errorf("a p99 of %s is read as %v, %v", unit, got.p99, err)
		}
	}
}

// A run with errors gives no figures.
func TestParseWrkRefuses(t *testing.T) {
	last := "Requests/sec:"
	for name, bad := range map[string]string{
		"socket errors":     strings.Replace(report, last, "  Socket errors: connect 0, read 3, write 0, timeout 0\n"+last, 1),
		"answers not 2xx":   strings.Replace(report, last, "  Non-2xx or 3xx responses: 12\n"+last, 1),
		"no requests":       strings.Replace(report, "696789 requests", "0 requests", 1),
		"no latency":        strings.Replace(report, "99%", "98%", 1),
		"no rate":           strings.Replace(report, last, "Requests/min:", 1),
		"a number cut":      strings.Replace(report, "139352.17", "1393x", 1),
		"an unknown unit":   strings.Replace(report, "4.46ms", "4.46 fortnights", 1),
		"nothing":           "",
		"connection failed": "unable to connect to 127.0.0.1:8080 Connection refused\n",
	} {
		if got, err := parseWrk(bad, false); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func TestParseStat(t *testing.T) {
	const stat = "4242 (a) b (c) S 1 4242 4242 0 -1 4194304 900 0 0 0 123 45 7 8 20 0 9 0 5000 1 2 3\n"
	got, err := parseStat(stat)
	if want := 1680 * time.Millisecond; err != nil || got != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "4242 (hello) S 1 2 3", "no parenthesis", "1 (x) S 1 4242 4242 0 -1 4194304 900 0 0 0 a b 7 8"} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestParseSchedstat(t *testing.T) {
	if got, err := parseSchedstat("8994718 365901 19\n"); err != nil || got != 8994718 {
		t.Errorf("got %d, %v", got, err)
	}
	for _, bad := range []string{"", "1 2", "x 2 3"} {
		if got, err := parseSchedstat(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestParsePeak(t *testing.T) {
	if got, err := parsePeak("Name:\thello\nVmHWM:\t   12345 kB\nVmRSS:\t   1 kB\n"); err != nil || got != 12345<<10 {
		t.Errorf("got %d, %v", got, err)
	}
	if got, err := parsePeak("Name:\thello\n"); err == nil {
		t.Errorf("a status without VmHWM is read as %d", got)
	}
}

// What is read of this very process is plausible, so the fields are the right ones.
func TestProcOfThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/proc is Linux's")
	}
	proc := filepath.Join("/proc", strconv.Itoa(os.Getpid()))
	before, err := cpuTime(proc)
	if err != nil {
		t.Fatal(err)
	}
	for started := time.Now(); time.Since(started) < 50*time.Millisecond; {
	}
	after, err := cpuTime(proc)
	if err != nil {
		t.Fatal(err)
	}
	// A busy machine gives the loop less than its 50 ms, other goroutines may add to them.
	if used := after - before; used <= 0 || used > 10*time.Second {
		t.Errorf("50 ms of a busy loop are %v of CPU time", used)
	}
	if peak, err := peakMemory(proc); err != nil || peak < 1<<20 || peak > 8<<30 {
		t.Errorf("the peak memory is %d, %v", peak, err)
	}
}

func TestTable(t *testing.T) {
	tab := newTable([]*peer{{name: "filo"}, {name: "other"}, {name: "broken"}}, 64, 2)
	tab.runs[0] = []figures{{100, 2, 1, 8}, {300, 2, 1, 8}}
	tab.runs[1] = []figures{{100, 3, 4, 8}}
	var out bytes.Buffer
	tab.print(&out)
	got := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"64 connections filo other broken",
		"requests/s 200 100 (0.50×) -",
		"CPU µs per request 2.00 3.00 (1.50×) -",
		"rounds that count 2 of 2 1 of 2 0 of 2",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
}

func TestAlike(t *testing.T) {
	base := func() *answer {
		return &answer{200, []byte("x"), http.Header{"Server": {"a"}, "Date": {"now"}, "Content-Type": {"text/plain"}}}
	}
	other := base()
	other.header.Set("Server", "b")
	other.header.Set("Date", "later")
	if err := base().sameAs(other); err != nil {
		t.Errorf("only Server's and Date's values differ: %v", err)
	}
	for name, change := range map[string]func(*answer){
		"the body":         func(a *answer) { a.body = []byte("y") },
		"the status":       func(a *answer) { a.status = 404 },
		"a missing field":  func(a *answer) { a.header.Del("Date") },
		"a surplus field":  func(a *answer) { a.header.Set("Vary", "x") },
		"a field's values": func(a *answer) { a.header.Set("Content-Type", "text/html") },
	} {
		other := base()
		change(other)
		if base().sameAs(other) == nil {
			t.Errorf("%s differs and isn't noticed", name)
		}
	}
}

func TestParseFlags(t *testing.T) {
	o, err := parseFlags([]string{"-connections", "1,64,512", "-peers", "filo,old=/bin/old", "-warmup", "0s"})
	if err != nil || len(o.connections) != 3 || o.connections[2] != 512 || len(o.peers) != 2 {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, bad := range [][]string{
		{"-connections", "0"}, {"-connections", "1,x"}, {"-duration", "1500ms"}, {"-duration", "0s"},
		{"-rounds", "0"}, {"-warmup", "-1s"}, {"surplus"},
	} {
		if o, err := parseFlags(bad); err == nil {
			t.Errorf("%q are taken: %+v", bad, o)
		}
	}
}

// A whole comparison, short: real processes under wrk.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("wrk"); err != nil {
		if os.Getenv("FILO_CI") != "" {
			t.Fatal("wrk isn't installed; `make deps` installs it")
		}
		t.Skip("wrk isn't installed; `make deps` installs it")
	}
	var out bytes.Buffer
	t.Chdir("../..") // the module's folder, where `make bench` runs it
	args := []string{"-duration", "1s", "-warmup", "0s", "-rounds", "1", "-connections", "8"}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, peer := range []string{"filo", "fasthttp", "nethttp"} {
		if !strings.Contains(out.String(), "8 connections, round 1, "+peer) {
			t.Errorf("no run of %s:\n%s", peer, &out)
		}
	}
	if strings.Count(out.String(), "1 of 1") != 3 {
		t.Errorf("not every run counts:\n%s", &out)
	}
}

func TestRunRefusesWhatCannotBeMeasured(t *testing.T) {
	t.Chdir("../..")
	for name, args := range map[string][]string{
		"an unknown peer":            {"-peers", "nginx"},
		"a program that isn't there": {"-peers", "x=/nonexistent/program"},
		"one that isn't a server":    {"-peers", "x=/bin/echo"},
		"a path that nobody answers": {"-peers", "nethttp", "-path", "/nothing"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
