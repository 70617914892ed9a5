package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/coder/websocket"

	"github.com/filohttp/filo/bench/internal/row"
)

const greeting = "hello"

// newJob returns a job for a server that answers with a greeting or with the length of a body, and has a WebSocket that echoes.
func newJob(t *testing.T, start func(*httptest.Server)) *Job {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/length":
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		case "/websocket":
			echo(w, r)
		case "/chunked":
			io.WriteString(w, greeting)
			http.NewResponseController(w).Flush()
		case "/busy":
			http.Error(w, "busy", http.StatusServiceUnavailable)
		default:
			io.WriteString(w, greeting)
		}
	}))
	start(s)
	t.Cleanup(s.Close)
	r := &row.Row{Requests: []row.Request{{Target: "/", Want: row.Want{Body: []byte(greeting)}}}, Connections: 4}
	return &Job{Base: s.URL, Row: r, Warmup: 20 * time.Millisecond, Duration: 200 * time.Millisecond, MaxLateness: time.Minute, Window: func(bool) error { return nil }}
}

func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil || conn.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

// openCalm is Open, repeated if the machine was too busy to sustain the rate, or to answer any request within the window.
func openCalm(t *testing.T, j *Job) (r *Result, err error) {
	for range 10 {
		r, err = Open(t.Context(), j)
		if err == nil || !strings.Contains(err.Error(), "in time") && !strings.Contains(err.Error(), "no answers") {
			break
		}
	}
	return r, err
}

// Open handles everything that a row may have, at a constant rate and, for WebSockets, in a closed loop.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Job)
	}{
		{"a GET", func(*Job) {}},
		{"a POST", func(j *Job) {
			j.Row.Requests = []row.Request{{Method: "POST", Target: "/length", Body: make([]byte, 1<<20), Want: row.Want{Body: []byte("1048576")}}}
		}},
		{"several requests", func(j *Job) {
			j.Row.Requests = append(j.Row.Requests, row.Request{Target: "/length", Want: row.Want{Length: 1}})
		}},
		{"an answer in chunks", func(j *Job) { j.Row.Requests[0].Target = "/chunked"; j.Row.Requests[0].Want.Body = nil }},
		{"a request per connection", func(j *Job) { j.Row.PerConnection = 1 }},
		{"three requests per connection", func(j *Job) { j.Row.PerConnection = 3 }},
		{"messages", func(j *Job) { j.Row.Requests[0].Target, j.Row.Message = "/websocket", 125 }},
		{"longer messages", func(j *Job) { j.Row.Requests[0].Target, j.Row.Message = "/websocket", 1000 }},
		{"messages in a closed loop", func(j *Job) { j.Row.Requests[0].Target, j.Row.Message, j.Rate = "/websocket", 125, 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob(t, (*httptest.Server).Start)
			j.Rate = 100
			c.change(j)
			var calls []bool
			j.Window = func(begin bool) error {
				calls = append(calls, begin)
				return nil
			}
			r, err := openCalm(t, j)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(calls); n < 2 || !calls[n-2] || calls[n-1] {
				t.Errorf("the window's calls are %v", calls)
			}
			if l := r.Latency; r.Answers == 0 || r.Seconds <= 0 || l.P50 <= 0 || l.P99 < l.P50 || l.P999 < l.P99 {
				t.Errorf("the result is %+v", r)
			}
		})
	}
}

func TestOpenTLS(t *testing.T) {
	j := newJob(t, func(s *httptest.Server) {
		s.TLS = &tls.Config{NextProtos: []string{"http/1.1"}}
		s.StartTLS()
	})
	j.Row.TLS, j.Rate = true, 100
	r, err := openCalm(t, j)
	if err != nil || r.Answers == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A latency is measured from the moment at which the request was due. If a server stalls for a fifth of a second, all twenty requests that are due
// during the stall are late, although the only connection can send just one of them during the stall.
func TestOpenCountsFromWhenDue(t *testing.T) {
	j := newJob(t, (*httptest.Server).Start)
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%100 == 10 {
			time.Sleep(200 * time.Millisecond)
		}
		io.WriteString(w, greeting)
	}))
	defer s.Close()
	j.Base, j.Row.Connections, j.Rate, j.Warmup, j.Duration = s.URL, 1, 100, 0, time.Second
	r, err := openCalm(t, j)
	if err != nil {
		t.Fatal(err)
	}
	// Twenty of a hundred requests had to wait, the tenth of them for a hundred milliseconds. So p99 is nearly the whole stall.
	if r.Latency.P99 < 150 {
		t.Errorf("p99 is %v ms", r.Latency.P99)
	}
}

// Refusals are counted separately if the job allows them. Otherwise they are an error.
func TestOpenRefusals(t *testing.T) {
	j := newJob(t, (*httptest.Server).Start)
	j.Row.Requests = append(j.Row.Requests, row.Request{Target: "/busy"})
	j.Rate, j.Refusals = 100, true
	r, err := openCalm(t, j)
	if err != nil || r.Answers == 0 || r.Refused == 0 || r.RefusedLatency.P50 <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
	j.Refusals = false
	if _, err := openCalm(t, j); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("refusals that may not be: %v", err)
	}
}

func TestOpenFails(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*Job)
	}{
		{"another body", "and not", func(j *Job) { j.Row.Requests[0].Want.Body = []byte("jello") }},
		{"another length", "has 5 bytes", func(j *Job) { j.Row.Requests[0].Want = row.Want{Length: 7} }},
		{"another status", "503", func(j *Job) { j.Row.Requests[0].Target = "/busy" }},
		{"nobody listens", "refused", func(j *Job) { j.Base = "http://127.0.0.1:1" }},
		{"no WebSocket", "upgrade", func(j *Job) { j.Row.Message = 9 }},
		{"a late generator", "late itself", func(j *Job) { j.MaxLateness = 0 }},
		{"a window that fails", "gone", func(j *Job) { j.Window = func(bool) error { return fmt.Errorf("gone") } }},
	} {
		j := newJob(t, (*httptest.Server).Start)
		j.Rate = 1000
		if c.change(j); c.name == "" {
			continue
		}
		if r, err := openCalm(t, j); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
	j := newJob(t, (*httptest.Server).Start)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, j); err == nil {
		t.Error("a run that is cancelled has a result")
	}
}

// It is an error if the server ends during a run.
func TestOpenServerGone(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			io.ReadFull(c, make([]byte, 10))
			c.Close()
		}
	}()
	j := newJob(t, (*httptest.Server).Start)
	j.Base, j.Rate = "http://"+listener.Addr().String(), 100
	if r, err := Open(t.Context(), j); err == nil {
		t.Errorf("%+v", r)
	}
}

// The result of reading an answer doesn't depend on the pieces in which it arrives.
func TestAnswer(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nDate: x\r\n"
	for _, c := range []struct {
		text, want string
		ends       bool
		err        string
	}{
		{head + "Content-Length: 5\r\n\r\nhello", "hello", true, ""},
		{head + "content-length: 5\r\n\r\nhello", "", true, ""},
		{head + "Content-Length: 5\r\n\r\nhell", "hello", false, ""},
		{head + "Content-Length: 0\r\n\r\n", "", true, ""},
		{head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "", true, ""},
		{head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", "", false, ""},
		{head + "Content-Length: 5\r\n\r\njello", "hello", false, "jello"},
		{head + "Content-Length: 4\r\n\r\nhell", "hello", false, "4 bytes"},
		{head + "\r\nhello", "", false, "no length"},
		{"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "", false, "404"},
		{"SSH-2.0-x\r\n\r\n", "", false, "SSH"},
	} {
		want := &row.Want{}
		if c.want != "" {
			want.Body = []byte(c.want)
		}
		for name, reader := range map[string]io.Reader{"whole": strings.NewReader(c.text), "bytes": iotest.OneByteReader(strings.NewReader(c.text))} {
			var a answer
			done, err := false, error(nil)
			for piece := make([]byte, 1000); err == nil && !done; {
				n, end := reader.Read(piece)
				if end != nil {
					break
				}
				done, err = a.take(piece[:n], want, false)
			}
			if done != c.ends || (err == nil) != (c.err == "") || err != nil && c.err != "jello" && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s of %q: %t, %v", name, c.text, done, err)
			}
		}
	}
}

func TestFrames(t *testing.T) {
	if got := clientFrame(6); !bytes.Equal(got, []byte{0x82, 0x86, 0x3a, 0xc5, 0x96, 0x0f, 0x3a, 0xc5, 0x96, 0x0f, 0x3a, 0xc5}) {
		t.Errorf("a message of six zeros is % x", got)
	}
	if got := serverFrame(300); len(got) != 304 || !bytes.Equal(got[:5], []byte{0x82, 126, 1, 44, 0}) {
		t.Errorf("its echo is % x", got)
	}
}

// wrk sends the requests of each kind of row, and reports their answers.
func TestWrk(t *testing.T) {
	j := newJob(t, (*httptest.Server).Start)
	j.Duration = time.Second
	for _, c := range []struct {
		name   string
		change func(*row.Row)
	}{
		{"a GET", func(*row.Row) {}},
		{"pipelined", func(r *row.Row) { r.Pipeline = 16 }},
		{"a request per connection", func(r *row.Row) { r.PerConnection = 1 }},
		{"ten requests per connection", func(r *row.Row) { r.PerConnection = 10 }},
		{"a POST", func(r *row.Row) {
			r.Requests = []row.Request{{Method: "POST", Target: "/length", Body: bytes.Repeat([]byte("7\n"), 3<<19)}}
		}},
		{"several requests", func(r *row.Row) {
			r.Requests = append(r.Requests, row.Request{Method: "PUT", Target: "/x", Body: []byte{}})
		}},
	} {
		r := *j.Row
		c.change(&r)
		one := *j
		one.Row = &r
		if got, err := Wrk(t.Context(), &one); err != nil || got.Answers == 0 || got.Seconds < 0.5 || (got.Latency.P99 > 0) != (r.Pipeline < 2) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	j.Row.Requests[0].Target = "/busy"
	if got, err := Wrk(t.Context(), j); err == nil {
		t.Errorf("answers of 503: %+v", got)
	}
}

// read fails for a report with errors, or with an unexpected number of bytes.
func TestRead(t *testing.T) {
	const before = "Running 1s test\nRequests/sec: 5\n\n"
	for _, c := range []struct{ says, want string }{
		{before + `{"Answers":100,"Bytes":15100,"Errors":0,"Micros":[1000000,200,900,2000]}`, ""},
		{before + `{"Answers":100,"Bytes":15100,"Errors":1,"Micros":[1000000,200,900,2000]}`, "1 errors"},
		{before + `{"Answers":0,"Bytes":0,"Errors":0,"Micros":[1000000,0,0,0]}`, "0 answers"},
		{before + `{"Answers":100,"Bytes":5000,"Errors":0,"Micros":[1000000,200,900,2000]}`, "5000 bytes"},
		{before + `{"Answers":100,"Bytes":20000,"Errors":0,"Micros":[1000000,200,900,2000]}`, "20000 bytes"},
		{before + `{"Answers":`, "report"},
		{"unable to connect", "only"},
	} {
		r, err := read(c.says, 150, 4)
		if c.want == "" && (err != nil || *r != Result{Answers: 100, Seconds: 1, Size: 151, Latency: Percentiles{0.2, 0.9, 2}}) ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %+v, %v", c.says, r, err)
		}
	}
}
