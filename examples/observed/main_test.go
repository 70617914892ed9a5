package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo/examples/internal/sitetest"
)

// longest bounds each wait of a test, since the machine may be busy.
const longest = time.Minute

// start runs the example on free ports, and returns the operator's URL. The example ends with the test, or when stop is called. stop doesn't wait for
// the end, at which ended is closed.
func start(t *testing.T, args ...string) (base string, stop func(), ended <-chan struct{}) {
	t.Helper()
	_, base, stop, ended = startBoth(t, args...)
	return base, stop, ended
}

// startBoth is start, but also returns the clients' URL.
func startBoth(t *testing.T, args ...string) (clients, operators string, stop func(), ended <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stdout, out := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := run(ctx, append([]string{"-addr", "127.0.0.1:0", "-inside", "127.0.0.1:0", "-drain", "1ms"}, args...), out)
		out.CloseWithError(err)
		if err != nil {
			t.Errorf("run returned %v", err)
		}
	}()
	lines := bufio.NewReader(stdout)
	var urls []string
	for range 2 {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("run ended before it listened: %v", err)
		}
		urls = append(urls, strings.TrimSpace(line[strings.Index(line, "http"):]))
	}
	go io.Copy(io.Discard, stdout)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		<-done
	})
	return urls[0], urls[1], cancel, done
}

// get requests a URL, with fields given as names and values.
func get(t *testing.T, url string, fields ...string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// getUntil requests a URL until ok accepts the answer, and returns the answer.
func getUntil(t *testing.T, url string, ok func(status int, body string) bool, fields ...string) string {
	t.Helper()
	for deadline := time.Now().Add(longest); ; time.Sleep(5 * time.Millisecond) {
		status, body := get(t, url, fields...)
		if ok(status, body) {
			return body
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s stays %d %q", url, status, body)
		}
	}
}

func has(text string) func(int, string) bool {
	return func(_ int, body string) bool { return strings.Contains(body, text) }
}

func TestPages(t *testing.T) {
	base, _, _ := start(t, "-load", "0")
	for path, want := range map[string]string{
		"/":                             "From a terminal",
		"/observed.css":                 "--accent",
		"/dashboard/":                   "<title>",
		"/traces":                       "<h1>Traces</h1>",
		"/debug/":                       "pprof",
		"/dashboard":                    `id="stack"`, // without a final slash, as a user may type it
		"/debug":                        "pprof/heap",
		"/debug/vars":                   `"load_sent"`,
		"/debug/loglevel":               `{"level":"INFO"}`,
		"/debug/stats":                  "WorkersRunning",
		"/debug/pprof/cmdline":          "observed",
		"/livez":                        "ok",
		"/readyz?verbose":               "backend ok",
		"/quick":                        "hello",
		"/users/7":                      `{"user":"7"}`,
		"/orders/12":                    `{"order":12,"total":84}`,
		"/export":                       "4,16",
		"/metrics?name[]=go_goroutines": "go_goroutines",
	} {
		if status, body := get(t, base+path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %q, want 200 and %q", path, status, body, want)
		}
	}
	for path, want := range map[string]int{"/orders/10": 500, "/orders/7": 404, "/users/x": 404, "/other": 404, "/traces/xyz": 404} {
		if status, body := get(t, base+path); status != want {
			t.Errorf("%s: got %d %q, want %d", path, status, body, want)
		}
	}
}

// The labels of metrics have routes, never paths, and exemplars have the IDs of traces.
func TestMetrics(t *testing.T) {
	base, _, _ := start(t, "-load", "0")
	for i := range 50 {
		get(t, fmt.Sprintf("%s/users/%d", base, 1000+i))
		get(t, fmt.Sprintf("%s/nowhere/%d", base, 1000+i))
	}
	get(t, base+"/orders/10")
	_, body := get(t, base+"/metrics", "Accept", "application/openmetrics-text; version=1.0.0")
	for _, want := range []string{
		`http_request_duration_seconds_count{method="GET",paced="",route="/users/{id:int}",status="2xx"} 50`,
		`http_request_duration_seconds_count{method="GET",paced="",route="_UNMATCHED",status="4xx"} 50`,
		`http_request_errors_total{method="GET",route="/orders/{id:int}"} 1`,
		`filo_connections`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("there is no %s", want)
		}
	}
	if path := regexp.MustCompile(`(users|nowhere)/1\d*`).FindString(body); path != "" {
		t.Errorf("a path became a label: %s", path)
	}
	exemplar := regexp.MustCompile(`route="/users/{id:int}",status="2xx",le="[^"]*"} \d+ # {trace_id="([0-9a-f]{32})"}`).FindStringSubmatch(body)
	if exemplar == nil {
		t.Fatalf("no bucket leads to a trace:\n%s", body)
	}
	getUntil(t, base+"/traces/"+exemplar[1], has("GET /users/{id:int}"))
}

// The server continues a client's trace. The trace's page shows the spans and the log records of the request.
func TestTraceOfAClient(t *testing.T) {
	base, _, _ := start(t, "-load", "0")
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	get(t, base+"/orders/10", "traceparent", "00-"+id+"-"+parent+"-01")
	page := getUntil(t, base+"/traces/"+id, has("GET /orders/{id:int}"))
	for _, want := range []string{"find order", "find prices", "add up prices", "order 10 has no prices", "http.response.status_code", `class="reason"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the trace's page doesn't show %q", want)
		}
	}
	_, log := get(t, base+"/log?trace="+id)
	var record struct {
		Trace  string `json:"trace_id"`
		Route  string `json:"route"`
		Status int    `json:"status"`
		// A duration must be in a field that names the unit.
		Milliseconds float64 `json:"duration_ms"`
		Duration     any     `json:"duration"`
	}
	if err := json.Unmarshal([]byte(log), &record); err != nil {
		t.Fatalf("the log %q: %v", log, err)
	}
	if record.Trace != id || record.Status != 500 || record.Route != "GET /orders/{id:int}" {
		t.Errorf("the log has %+v", record)
	}
	// The order waited for the longer of its queries, 9 ms.
	if record.Milliseconds < 9 || record.Milliseconds > float64(longest.Milliseconds()) || record.Duration != nil {
		t.Errorf("the log has %v ms, and %v without a unit", record.Milliseconds, record.Duration)
	}

	// The server doesn't record a trace that the client doesn't record.
	const silent = "4bf92f3577b34da6a3ce929d0e0e4737"
	get(t, base+"/orders/12", "traceparent", "00-"+silent+"-"+parent+"-00")
	get(t, base+"/orders/13", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4738-"+parent+"-01")
	getUntil(t, base+"/traces/4bf92f3577b34da6a3ce929d0e0e4738", func(status int, _ string) bool { return status == 200 })
	if status, page := get(t, base+"/traces/"+silent); status != 404 || !strings.Contains(page, "only the last ones are kept") || !strings.Contains(page, `href="/traces/`) {
		t.Errorf("a trace that isn't to be recorded: %d %q, want 404 and the others", status, page)
	}
}

// The load's traces begin with the client: the client's span is the parent of the server's span, which is the parent of the backend's.
func TestTraceOfTheLoad(t *testing.T) {
	base, _, _ := start(t, "-load", "100")
	page := getUntil(t, base+"/traces", has("get user"))
	id := regexp.MustCompile(`/traces/([0-9a-f]{32})[^\n]*\n[^\n]*\n<span class="name">get user`).FindStringSubmatch(page)
	if id == nil {
		t.Fatalf("no trace is a user's:\n%s", page)
	}
	page = getUntil(t, base+"/traces/"+id[1], has("find user"))
	names := regexp.MustCompile(`<span class="name (d\d)" title="([^"]*)"`).FindAllStringSubmatch(page, -1)
	var rows []string
	for _, name := range names {
		rows = append(rows, name[1]+" "+name[2])
	}
	if got, want := strings.Join(rows, ", "), "d0 get user, d1 GET /users/{id:int}, d2 find user"; got != want {
		t.Errorf("the trace has %s, want %s", got, want)
	}
	for _, order := range []string{"slowest", "failed"} {
		if status, body := get(t, base+"/traces?order="+order); status != 200 {
			t.Errorf("%s traces: %d %q", order, status, body)
		}
	}
}

// counted returns the load's counters, which also count earlier tests.
func counted(t *testing.T, base string) (sent, failed int) {
	t.Helper()
	var vars struct {
		Sent   int `json:"load_sent"`
		Failed int `json:"load_failed"`
	}
	_, body := get(t, base+"/debug/vars")
	if err := json.Unmarshal([]byte(body), &vars); err != nil {
		t.Fatal(err)
	}
	return vars.Sent, vars.Failed
}

// A profile can be taken while the server works, and the variables count requests.
func TestProfile(t *testing.T) {
	base, _, _ := start(t, "-load", "200")
	sentBefore, failedBefore := counted(t, base)
	for deadline := time.Now().Add(longest); ; {
		status, profile := get(t, base+"/debug/pprof/profile?seconds=1")
		reader, err := gzip.NewReader(strings.NewReader(profile))
		if err != nil {
			t.Fatalf("%d %q: %v", status, profile, err)
		}
		content, err := io.ReadAll(reader)
		if err == nil && bytes.Contains(content, []byte("runtime.")) {
			break
		}
		if err != nil || time.Now().After(deadline) { // on a busy machine the process may have no sample in a second
			t.Fatalf("the profile has %d bytes and no function of the runtime, %v", len(content), err)
		}
	}
	sent, failed := counted(t, base)
	for deadline := time.Now().Add(longest); sent-sentBefore < 50 && time.Now().Before(deadline); sent, failed = counted(t, base) {
		time.Sleep(5 * time.Millisecond)
	}
	if sent, failed = sent-sentBefore, failed-failedBefore; sent < 50 || failed != 0 {
		t.Errorf("the load has sent %d requests, and %d failed", sent, failed)
	}
}

// Before it ends, the server reports that it isn't ready, and continues to serve until a balancer has noticed.
func TestShutdownIsSeen(t *testing.T) {
	base, stop, ended := start(t, "-load", "0", "-drain", "5s")
	getUntil(t, base+"/readyz", func(status int, _ string) bool { return status == 200 })
	stop()
	body := getUntil(t, base+"/readyz", func(status int, _ string) bool { return status == 503 })
	if !strings.Contains(body, "shutting down") && !strings.Contains(body, "not ready") {
		t.Errorf("it says %q", body)
	}
	for _, path := range []string{"/quick", "/livez"} {
		if status, body := get(t, base+path); status != 200 {
			t.Errorf("%s meanwhile: %d %q", path, status, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	<-ended
	if _, err := http.Get(base + "/quick"); err == nil {
		t.Error("it still serves after its end")
	}
}

// A page of another site whose name was made to resolve to this server can't read from it (DNS rebinding).
func TestHosts(t *testing.T) {
	base, _, _ := start(t, "-load", "0")
	sitetest.Hosts(t, base+"/quick")
}

// The tools that observe the server are available only at the operator's address, and not for requests through a proxy. Clients, even those on this
// machine, can use only the other routes.
func TestInside(t *testing.T) {
	clients, base, _, _ := startBoth(t, "-load", "0", "-hosts", "127.0.0.1,shop.test")
	for path, inside := range map[string]bool{
		"/quick": false, "/livez": false,
		"/metrics": true, "/traces": true, "/traces/xyz": true, "/log": true, "/dashboard/": true, "/debug/": true, "/debug/vars": true,
	} {
		want := 200
		if inside {
			want = 404
		}
		if status, body := get(t, base+path, "X-Forwarded-For", "192.0.2.1"); status != want {
			t.Errorf("%s by way of a proxy: %d %q, want %d", path, status, body, want)
		}
		if status, body := get(t, clients+path); status != want {
			t.Errorf("%s on the clients' address: %d %q, want %d", path, status, body, want)
		}
	}
	// The page for clients has no links to these tools.
	_, front := get(t, clients)
	links := regexp.MustCompile(`href="(/[^"]*)"`).FindAllStringSubmatch(front, -1)
	if len(links) < 5 {
		t.Errorf("the front page has no more than %q", links)
	}
	for _, link := range links {
		if status, _ := get(t, clients+link[1]); status >= 400 && link[1] != "/orders/10" {
			t.Errorf("the front page leads to %s: %d", link[1], status)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-load", "-1"}, {"-load", "Inf"}, {"-load", "NaN"}, {"more"}, {"-addr", "nowhere:-1"}, {"-addr", "127.0.0.1:0", "-inside", "nowhere:-1"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

// Only the last traces and the last lines of the log are kept, regardless of how many there are.
func TestLimits(t *testing.T) {
	end := newTail(io.Discard)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range maxLines {
				fmt.Fprintf(end, "%d-%d\n", w, i)
			}
		})
	}
	writers.Wait()
	fmt.Fprintln(end, "last")
	if lines := end.with(""); len(lines) != maxLines || lines[maxLines-1] != "last\n" {
		t.Errorf("%d lines are kept, and the last one is %q", len(lines), lines[len(lines)-1])
	}
	if lines := end.with("3-" + strconv.Itoa(maxLines)); lines != nil {
		t.Errorf("found %q", lines)
	}
}
