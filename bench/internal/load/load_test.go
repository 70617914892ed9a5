package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo/bench/internal/openloop"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

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
	got, err := parseWrk(report)
	want := Wrk{Requests: 696789, PerSecond: 139352.17, P99: 4460 * time.Microsecond}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for unit, want := range map[string]time.Duration{
		"812.00us": 812 * time.Microsecond, "1.07s": 1070 * time.Millisecond, "1.50m": 90 * time.Second,
	} {
		got, err := parseWrk(strings.Replace(report, "4.46ms", unit, 1))
		if err != nil || got.P99 != want {
			t.Errorf("a p99 of %s is read as %v, %v", unit, got.P99, err)
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
		if got, err := parseWrk(bad); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func TestFollow(t *testing.T) {
	const result = `{"answers": 7}` + "\n"
	for _, c := range []struct {
		name, says, want string
		window           error
	}{
		{"all", "begin\nend\n" + result, "true false 7", nil},
		{"nothing", "", "no result", nil},
		{"no result", "begin\nend\n", "no result", nil},
		{"half a result", "begin\nend\n{\"answers\": \n", "its result", nil},
		{"a window that fails", "begin\nend\n" + result, "the server is gone", errors.New("the server is gone")},
	} {
		var seen []string
		r, err := follow(bufio.NewReader(strings.NewReader(c.says)), func(begin bool) error {
			seen = append(seen, fmt.Sprint(begin))
			return c.window
		})
		got := fmt.Sprint(err)
		if err == nil {
			got = strings.Join(append(seen, fmt.Sprint(r.Answers)), " ")
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestErr(t *testing.T) {
	for _, c := range []struct {
		name    string
		result  openloop.Result
		allowed []int
		want    string
	}{
		{"a good run", openloop.Result{Answers: 1}, nil, ""},
		{"no answers", openloop.Result{}, nil, "no answers"},
		{"an error", openloop.Result{Answers: 9, Errors: map[string]uint64{"reset": 1}}, nil, "reset:1"},
		{"an error outside", openloop.Result{Answers: 9, ErrorsOutside: 1}, nil, "1 outside"},
		{"a late generator", openloop.Result{Answers: 9, Invalid: []string{"it was late"}}, nil, "it was late"},
		{"refused requests", openloop.Result{Answers: 9, Errors: map[string]uint64{"status": 3},
			Statuses: map[int]uint64{503: 3}}, nil, "3 errors"},
		{"refused requests that may be", openloop.Result{Answers: 9, Errors: map[string]uint64{"status": 3}, ErrorsOutside: 2,
			Statuses: map[int]uint64{503: 3}}, []int{503}, ""},
		{"another error beside them", openloop.Result{Answers: 9, Errors: map[string]uint64{"status": 3, "reset": 1}, ErrorsOutside: 2,
			Statuses: map[int]uint64{503: 3}}, []int{503}, "1 errors"},
	} {
		err := Err(&c.result, c.allowed...)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A whole run: the generator is a process of its own, and says when its measured time begins and ends.
func TestRun(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("hello")) }))
	defer s.Close()
	o := openloop.Options{Address: strings.TrimPrefix(s.URL, "http://"), Connections: 2, Warmup: 50 * time.Millisecond,
		Duration: 200 * time.Millisecond, Requests: []openloop.Request{{Want: openloop.Want{Body: []byte("hello")}}}}
	var times []time.Time
	r, err := Run(context.Background(), Spec{Options: o}, func(begin bool) error {
		if begin != (len(times) == 0) {
			t.Errorf("call %d of the window says %t", len(times), begin)
		}
		times = append(times, time.Now())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Err(r); err != nil || len(times) != 2 {
		t.Fatalf("%v, %d calls", err, len(times))
	}
	if d := times[1].Sub(times[0]); d < 150*time.Millisecond || d > 5*time.Second {
		t.Errorf("the window was %v", d)
	}
	o.Requests[0].Want.Body = []byte("other")
	if r, err := Run(context.Background(), Spec{Options: o}, nil); err != nil || Err(r) == nil {
		t.Errorf("another body: %v, %v", r, err)
	}
	o.Address = "127.0.0.1:1"
	if _, err := Run(context.Background(), Spec{Options: o}, nil); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody listens: %v", err)
	}
}
