//go:build amd64 || arm64

package openloop

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// listen serves every connection by a script of its own, until the test ends.
func listen(t testing.TB, serve func(c net.Conn, r *bufio.Reader)) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listenOn(t, ln, serve)
}

func listenOn(t testing.TB, ln net.Listener, serve func(c net.Conn, r *bufio.Reader)) (address string) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[c] = true
			mu.Unlock()
			all.Go(func() {
				defer c.Close()
				serve(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for c := range conns {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return ln.Addr().String()
}

// readRequest reads a request with its body; nil if there is no more.
func readRequest(r *bufio.Reader) (*http.Request, []byte) {
	request, err := http.ReadRequest(r)
	if err != nil {
		return nil, nil
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, nil
	}
	return request, body
}

// always answers every request with the same bytes.
func always(answer string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, r *bufio.Reader) {
		for request, _ := readRequest(r); request != nil; request, _ = readRequest(r) {
			io.WriteString(c, answer)
		}
	}
}

// once answers one request and closes the connection.
func once(answer string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, r *bufio.Reader) {
		readRequest(r)
		io.WriteString(c, answer)
	}
}

func mustRun(t testing.TB, o Options) *Result {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// noErrors fails the test if anything went wrong with the requests.
func noErrors(t testing.TB, r *Result) {
	t.Helper()
	if r.Failed() > 0 || r.Dropped > 0 {
		t.Errorf("errors %v, outside %d, dropped %d: %s", r.Errors, r.ErrorsOutside, r.Dropped, r.FirstError)
	}
}

const hello = "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, World!"

var wantHello = Want{Body: []byte("Hello, World!")}

// What is due in the measured time is sent exactly once, in proportion to the weights, whatever becomes of the rest of the machine.
func TestOpenLoopCounts(t *testing.T) {
	var a, b, others atomic.Int64
	address := listen(t, func(c net.Conn, r *bufio.Reader) {
		for request, _ := readRequest(r); request != nil; request, _ = readRequest(r) {
			switch request.URL.Path {
			case "/a":
				a.Add(1)
			case "/b":
				b.Add(1)
			default:
				others.Add(1)
			}
			io.WriteString(c, hello)
		}
	})
	for _, threads := range []int{1, 2} {
		a.Store(0)
		b.Store(0)
		r := mustRun(t, Options{Address: address, Rate: 1000, Warmup: 100 * time.Millisecond,
			Duration: 400 * time.Millisecond, Connections: 4, Threads: threads,
			Requests: []Request{{Name: "a", Target: "/a", Weight: 3, Want: wantHello},
				{Name: "b", Target: "/b", Want: wantHello}}})
		noErrors(t, r)
		if r.Answers != 400 || r.Latency.Count != 400 || r.Offered != 1000 || r.Statuses[200] != 400 || r.Late.Count != 400 {
			t.Errorf("%d threads: %d answers, %d latencies, %v offered, statuses %v, %d late; want 400 of everything",
				threads, r.Answers, r.Latency.Count, r.Offered, r.Statuses, r.Late.Count)
		}
		if a.Load() != 375 || b.Load() != 125 || others.Load() != 0 {
			t.Errorf("%d threads: the server has got %d, %d and %d others; want 375 and 125 in half a second", threads,
				a.Load(), b.Load(), others.Load())
		}
		if len(r.Groups) != 2 || r.Groups[0].Name != "a" || r.Groups[0].Latency.Count != 300 ||
			r.Groups[1].Latency.Count != 100 {
			t.Errorf("%d threads: groups %+v", threads, r.Groups)
		}
		if r.ClientCPU <= 0 || r.BytesSent == 0 {
			t.Errorf("%d threads: CPU time %v, sent %d", threads, r.ClientCPU, r.BytesSent)
		}
	}
}

// A server that stops for 200 ms delays all that falls due meanwhile, though it has only two connections to delay.
func TestStall(t *testing.T) {
	const rate, stall = 1000, 200 * time.Millisecond
	var count atomic.Int64
	var stopped sync.RWMutex
	address := listen(t, func(c net.Conn, r *bufio.Reader) {
		for request, _ := readRequest(r); request != nil; request, _ = readRequest(r) {
			if count.Add(1) == 300 {
				stopped.Lock()
				time.Sleep(stall)
				stopped.Unlock()
			}
			stopped.RLock()
			io.WriteString(c, hello)
			stopped.RUnlock()
		}
	})
	r := mustRun(t, Options{Address: address, Rate: rate, Duration: time.Second, Connections: 2,
		Requests: []Request{{Want: wantHello}}})
	noErrors(t, r)
	h, err := r.Latency.Decode()
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond} {
		late := int64(0)
		for _, bar := range h.Distribution() {
			if bar.From >= int64(limit) {
				late += bar.Count
			}
		}
		// Those due up to the limit before the stall's end; one more or less where it begins.
		if want := int64(rate * (stall - limit).Seconds()); late < want-1 {
			t.Errorf("%d requests took %v and more, want %d", late, limit, want)
		}
	}
	if h.TotalCount() != rate || r.Latency.P99 < 180*time.Millisecond || r.Latency.Max < 199*time.Millisecond {
		t.Errorf("%d answers, p99 %v, max %v", h.TotalCount(), r.Latency.P99, r.Latency.Max)
	}
}

// reset makes the connection's end a reset.
func reset(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }

var failureCases = []struct {
	rule   string
	serve  func(c net.Conn, r *bufio.Reader)
	want   Want // hello by default
	kind   Failure
	others bool // the answers are recorded among those of another status
}{
	{rule: "a reset instead of an answer", kind: FailedReset,
		serve: func(c net.Conn, r *bufio.Reader) { readRequest(r); reset(c) }},
	{rule: "a reset within the body", kind: FailedReset, serve: func(c net.Conn, r *bufio.Reader) {
		readRequest(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHel")
		reset(c)
	}},
	{rule: "the end instead of an answer", kind: FailedClosed, serve: func(c net.Conn, r *bufio.Reader) { readRequest(r) }},
	{rule: "the end within the head", kind: FailedClosed, serve: once("HTTP/1.1 200 OK\r\n")},
	{rule: "the end within the body", kind: FailedClosed, serve: once(hello[:50])},
	{rule: "the end within a chunk", kind: FailedClosed,
		serve: once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\nHello")},
	{rule: "nothing", kind: FailedTimeout, serve: func(c net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) }},
	{rule: "a part, and no more", kind: FailedTimeout, serve: func(c net.Conn, r *bufio.Reader) {
		readRequest(r)
		io.WriteString(c, hello[:50])
		io.Copy(io.Discard, r)
	}},
	{rule: "503", kind: FailedStatus, others: true,
		serve: always("HTTP/1.1 503 Busy\r\nContent-Length: 13\r\n\r\nHello, World!")},
	{rule: "503 and the end", kind: FailedStatus, others: true,
		serve: once("HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")},
	{rule: "what is no HTTP", kind: FailedMalformed, serve: always("hello\r\n")},
	{rule: "lines that end with LF", kind: FailedMalformed, serve: always("HTTP/1.1 200 OK\nContent-Length: 0\n\n")},
	{rule: "a sign in the length", kind: FailedMalformed, serve: always("HTTP/1.1 200 OK\r\nContent-Length: +0\r\n\r\n")},
	{rule: "another body of the same length", kind: FailedMismatch,
		serve: always("HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, world!")},
	{rule: "a shorter body", kind: FailedMismatch,
		serve: always("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello, World")},
	{rule: "a longer body", kind: FailedMismatch,
		serve: always("HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\nHello, World!!")},
	{rule: "no body", kind: FailedMismatch, serve: always("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")},
	{rule: "a body where none should be", kind: FailedMismatch, want: Want{Body: []byte{}}, serve: always(hello)},
	{rule: "another length", kind: FailedMismatch, want: Want{Length: 12}, serve: always(hello)},
	{rule: "chunks that add up to something else", kind: FailedMismatch,
		serve: always("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nHello,\r\n6\r\nWorld!\r\n0\r\n\r\n")},
	{rule: "a body up to the end, cut short", kind: FailedMismatch,
		serve: once("HTTP/1.1 200 OK\r\n\r\nHello")},
}

// Each kind of error is told from the others, and every request has exactly one.
func TestFailures(t *testing.T) {
	for _, c := range failureCases {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			if c.want.Body == nil && c.want.Length == 0 {
				c.want = wantHello
			}
			address, timeout := listen(t, c.serve), 10*time.Second
			if c.kind == FailedTimeout {
				timeout = time.Second
			}
			const requests = 10
			r := mustRun(t, Options{Address: address, Rate: 100, Duration: requests * time.Second / 100,
				Connections: requests, Timeout: timeout, Requests: []Request{{Want: c.want}}})
			if want := map[string]uint64{c.kind.String(): requests}; !maps.Equal(r.Errors, want) || r.ErrorsOutside != 0 {
				t.Errorf("errors %v and %d outside, want %v", r.Errors, r.ErrorsOutside, want)
			}
			if r.Answers != 0 || r.Latency != nil || (r.Others != nil) != c.others || c.others && r.Others.Count != requests {
				t.Errorf("%d answers, latency %v, others %v", r.Answers, r.Latency, r.Others)
			}
			if (r.FirstError != "") != (c.kind == FailedMalformed) {
				t.Errorf("first error %q", r.FirstError)
			}
		})
	}
}

// With connections that are opened for their requests, a server that has gone is an error of every request.
func TestConnectFailure(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	o := Options{Address: ln.Addr().String(), Rate: 100, Duration: 100 * time.Millisecond, RequestsPerConnection: 1,
		Connections: 20, Requests: []Request{{}}}
	r := mustRun(t, o)
	if want := map[string]uint64{"connect": 10}; !maps.Equal(r.Errors, want) || !strings.Contains(r.FirstError, "refused") {
		t.Errorf("errors %v, want %v; the first: %s", r.Errors, want, r.FirstError)
	}
	o.RequestsPerConnection = 0
	if r, err := Run(t.Context(), o); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a run without a server: %v, %v", r, err)
	}
}

// What the server says in time counts, in every way to delimit an answer.
func TestAnswers(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 1<<16)
	for _, c := range []struct {
		rule   string
		serve  func(c net.Conn, r *bufio.Reader)
		method string
		want   Want
	}{
		{"chunks", always("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nHello,\r\n7\r\n World!\r\n0\r\n\r\n"),
			"", wantHello},
		{"byte by byte", func(c net.Conn, r *bufio.Reader) {
			for request, _ := readRequest(r); request != nil; request, _ = readRequest(r) {
				for i := range len(hello) {
					io.WriteString(c, hello[i:i+1])
				}
			}
		}, "", wantHello},
		{"up to the connection's end", once("HTTP/1.1 200 OK\r\n\r\nHello, World!"), "", wantHello},
		{"Connection: close", once("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\nHello, World!"), "",
			wantHello},
		{"HEAD", always(hello[:len(hello)-13]), "HEAD", Want{}},
		{"204", always("HTTP/1.1 204 No Content\r\n\r\n"), "", Want{Status: 204, Body: []byte{}}},
		{"only the length", always(hello), "", Want{Length: 13}},
		{"only the status", always(hello), "", Want{}},
		{"a megabyte", always(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(big), big)), "",
			Want{Body: []byte(big)}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			r := mustRun(t, Options{Address: listen(t, c.serve), Rate: 100, Duration: 100 * time.Millisecond, Connections: 3,
				Requests: []Request{{Method: c.method, Want: c.want}}})
			noErrors(t, r)
			if r.Answers != 10 {
				t.Errorf("%d answers, want 10", r.Answers)
			}
		})
	}
}

// Connections have as many requests as they are to have, and the last one says that it is the last.
func TestRequestsPerConnection(t *testing.T) {
	for _, rate := range []float64{0, 500} {
		for _, k := range []int{1, 3} {
			var requests, opened, wrong atomic.Int64
			address := listen(t, func(c net.Conn, r *bufio.Reader) {
				opened.Add(1)
				for n := 1; ; n++ {
					request, _ := readRequest(r)
					if request == nil {
						return
					}
					if requests.Add(1); request.Close != (n == k) || n > k {
						wrong.Add(1)
					}
					io.WriteString(c, hello)
				}
			})
			r := mustRun(t, Options{Address: address, Rate: rate, Duration: 200 * time.Millisecond, Connections: 3,
				RequestsPerConnection: k, Requests: []Request{{Want: wantHello}}})
			noErrors(t, r)
			if wrong.Load() > 0 || r.Answers == 0 || rate > 0 && r.Answers != 100 {
				t.Errorf("rate %v, %d per connection: %d answers of %d requests, %d times Connection is wrong", rate, k,
					r.Answers, requests.Load(), wrong.Load())
			}
			// The last ones of three connections may have had fewer.
			if least := (requests.Load() + int64(k) - 1) / int64(k); opened.Load() < least || opened.Load() > least+3 {
				t.Errorf("rate %v, %d per connection: %d connections for %d requests", rate, k, opened.Load(), requests.Load())
			}
		}
	}
}

// In a closed loop a connection has as many requests on the way as it may, and no more.
func TestPipeline(t *testing.T) {
	const depth = 4
	var more, batches atomic.Int64
	address := listen(t, func(c net.Conn, r *bufio.Reader) {
		for {
			for range depth {
				if request, _ := readRequest(r); request == nil {
					return
				}
			}
			batches.Add(1)
			more.Add(int64(r.Buffered()))
			io.WriteString(c, strings.Repeat(hello, depth))
		}
	})
	r := mustRun(t, Options{Address: address, Duration: 200 * time.Millisecond, Timeout: 2 * time.Second, Connections: 3,
		Pipeline: depth, Requests: []Request{{Want: wantHello}}})
	noErrors(t, r)
	if r.Answers < depth || more.Load() > 0 || uint64(batches.Load()*depth) < r.Answers {
		t.Errorf("%d answers in %d batches; %d bytes came before answers", r.Answers, batches.Load(), more.Load())
	}
}

// A server that doesn't answer makes requests wait, and then some are dropped; the result says that it is no good.
func TestOverflow(t *testing.T) {
	address := listen(t, func(c net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	r := mustRun(t, Options{Address: address, Rate: 1000, Duration: 200 * time.Millisecond, Timeout: time.Second,
		Connections: 2, Queue: 10, Requests: []Request{{Want: wantHello}}})
	// Two are on the way and ten wait, and each that fails lets another in.
	if r.Offered != 1000 || r.Dropped == 0 || r.Errors["timeout"] < 12 || r.Dropped+r.Errors["timeout"] != 200 || len(r.Errors) != 1 {
		t.Errorf("offered %v/s, dropped %d, errors %v", r.Offered, r.Dropped, r.Errors)
	}
	text := strings.Join(r.Invalid, "; ")
	if want := fmt.Sprintf("%d requests were dropped", r.Dropped); !strings.Contains(text, want) || !strings.Contains(text, "0.00 %") {
		t.Errorf("the result is invalid since %q", text)
	}
}

// A body of many megabytes arrives as it is, and an answer that comes before its end ends the exchange.
func TestUpload(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	var received atomic.Int64
	address := listen(t, func(c net.Conn, r *bufio.Reader) {
		for request, got := readRequest(r); request != nil; request, got = readRequest(r) {
			if bytes.Equal(got, body) {
				received.Add(1)
			}
			io.WriteString(c, hello)
		}
	})
	o := Options{Address: address, Rate: 20, Duration: 300 * time.Millisecond, Timeout: time.Minute, Connections: 2,
		Requests: []Request{{Body: body, Want: wantHello}}}
	r := mustRun(t, o)
	noErrors(t, r)
	if r.Answers != 6 || received.Load() != 6 {
		t.Errorf("%d answers, %d whole bodies; want 6", r.Answers, received.Load())
	}
	o.Address = listen(t, func(c net.Conn, r *bufio.Reader) {
		r.Peek(1)
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, r)
	})
	if r := mustRun(t, o); r.Others == nil || r.Others.Count != 6 || !maps.Equal(r.Errors, map[string]uint64{"status": 6}) {
		t.Errorf("of early answers: %+v, errors %v", r.Others, r.Errors)
	}
}

func TestTLS(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells of every client that doesn't trust it
	server.EnableHTTP2 = false
	var accepted atomic.Int64
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			accepted.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	address := server.Listener.Addr().String()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		config.ServerName, config.MinVersion, config.MaxVersion, config.NextProtos = "example.com", version, version, nil
		for _, k := range []int{0, 1, 4} {
			o := Options{Address: address, TLS: config, Rate: 200, Duration: 200 * time.Millisecond, Connections: 5,
				RequestsPerConnection: k,
				Requests: []Request{{Name: "small", Weight: 7, Body: []byte("x"), Want: Want{Body: []byte("x")}},
					{Name: "large", Body: body, Want: Want{Body: body}}}}
			accepted.Store(0)
			r := mustRun(t, o)
			noErrors(t, r)
			// What the run says of connections is of those opened within its 200 ms.
			opened := accepted.Load()
			if r.Answers != 40 || len(r.Groups) != 2 || r.Groups[1].Latency.Count != 5 {
				t.Errorf("%s, %d per connection: %d answers", tls.VersionName(version), k, r.Answers)
			}
			if k == 0 && (opened != 5 || r.Opened != 0) || k > 0 && opened < int64(40/k) {
				t.Errorf("%s, %d per connection: %d connections, the run says %d", tls.VersionName(version), k, opened, r.Opened)
			}
			if answer, err := Reference(t.Context(), o, o.Requests[1]); err != nil || answer.Status != 200 ||
				!bytes.Equal(answer.Body, body) {
				t.Errorf("%s: the reference has %d bytes, %v", tls.VersionName(version), len(answer.Body), err)
			}
		}
		config.RootCAs = nil
		o := Options{Address: address, TLS: config, Rate: 40, Duration: 50 * time.Millisecond, Connections: 2,
			RequestsPerConnection: 1, Requests: []Request{{}}}
		if r := mustRun(t, o); r.Answers != 0 || r.Failed() == 0 || !strings.Contains(r.FirstError, "certificate") {
			t.Errorf("an unknown certificate: %d answers, errors %v, %s", r.Answers, r.Errors, r.FirstError)
		}
		o.RequestsPerConnection = 0
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("a run with an unknown certificate: %v", err)
		}
	}
}

// serveEcho is a WebSocket echo service for messages below 126 bytes, with a ping before each.
func serveEcho(c net.Conn, r *bufio.Reader) {
	request, _ := readRequest(r)
	if request == nil {
		return
	}
	if request.URL.Path != "/echo" || request.Header.Get("Upgrade") != "websocket" ||
		request.Header.Get("Sec-WebSocket-Version") != "13" {
		io.WriteString(c, "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n")
		return
	}
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		acceptValue(request.Header.Get("Sec-WebSocket-Key")))
	for {
		var header [6]byte
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return
		}
		payload := make([]byte, header[1]&0x7f)
		if _, err := io.ReadFull(r, payload); err != nil {
			return
		}
		for i := range payload {
			payload[i] ^= header[2+i&3]
		}
		c.Write(append(serverFrame(0x89, "p"), serverFrame(header[0], string(payload))...))
	}
}

func TestWebSocket(t *testing.T) {
	address := listen(t, serveEcho)
	for _, message := range []string{"", "hello", strings.Repeat("m", 125)} {
		for _, k := range []int{0, 2} {
			r := mustRun(t, Options{Address: address, Rate: 200, Duration: 100 * time.Millisecond, Connections: 3,
				RequestsPerConnection: k,
				WebSocket:             &WebSocket{Target: "/echo", Message: []byte(message), Text: k == 0}})
			if noErrors(t, r); r.Answers != 20 {
				t.Errorf("%q, %d per connection: %d answers, want 20", message, k, r.Answers)
			}
		}
	}
	if _, err := Run(t.Context(), Options{Address: address, Duration: time.Second, Connections: 1,
		WebSocket: &WebSocket{Target: "/other"}}); err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("an upgrade that is refused: %v", err)
	}
	server := httptest.NewTLSServer(nil) // for its certificate
	server.Close()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: server.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	secure := mustRun(t, Options{Address: listenOn(t, ln, serveEcho), TLS: &tls.Config{InsecureSkipVerify: true}, Rate: 200,
		Duration: 100 * time.Millisecond, Connections: 3, WebSocket: &WebSocket{Target: "/echo", Message: []byte("hello")}})
	if noErrors(t, secure); secure.Answers != 20 {
		t.Errorf("with TLS: %d answers, want 20", secure.Answers)
	}
	r := mustRun(t, Options{Address: address, Duration: 50 * time.Millisecond, Connections: 2, Pipeline: 4,
		WebSocket: &WebSocket{Target: "/echo", Message: []byte("m")}})
	if noErrors(t, r); r.Answers == 0 {
		t.Error("a closed loop has no answers")
	}
}

// Idle connections are there, and have no requests.
func TestIdle(t *testing.T) {
	var connections, used atomic.Int64
	address := listen(t, func(c net.Conn, r *bufio.Reader) {
		connections.Add(1)
		request, _ := readRequest(r)
		if request == nil {
			return
		}
		used.Add(1)
		io.WriteString(c, hello)
		always(hello)(c, r)
	})
	r := mustRun(t, Options{Address: address, Rate: 500, Duration: 100 * time.Millisecond, Connections: 3, Idle: 200,
		Threads: 2, Requests: []Request{{Want: wantHello}}})
	noErrors(t, r)
	if connections.Load() != 203 || used.Load() != 3 {
		t.Errorf("%d connections, %d with requests; want 203 and 3", connections.Load(), used.Load())
	}
}

// A context that ends ends the run, whatever it is at.
func TestCancel(t *testing.T) {
	address := listen(t, always(hello))
	before := runtime.NumGoroutine()
	for _, o := range []Options{{Rate: 100}, {}, {Rate: 100, RequestsPerConnection: 1},
		{TLS: &tls.Config{InsecureSkipVerify: true}}} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		o.Address, o.Duration, o.Connections, o.Requests = address, time.Hour, 2, []Request{{Want: wantHello}}
		if o.TLS != nil {
			o.Address = listen(t, func(c net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
		}
		begun := time.Now()
		r, err := Run(ctx, o)
		if r != nil || !errors.Is(err, context.Canceled) || time.Since(begun) > 10*time.Second {
			t.Errorf("%v, %v after %v", r, err, time.Since(begun))
		}
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before+4; runtime.Gosched() { // the TLS listener's are there still
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestOptions(t *testing.T) {
	good := Options{Address: "127.0.0.1:1", Duration: time.Second, Requests: []Request{{}}}
	for rule, change := range map[string]func(*Options){
		"no duration":              func(o *Options) { o.Duration = 0 },
		"no requests":              func(o *Options) { o.Requests = nil },
		"requests and a WebSocket": func(o *Options) { o.WebSocket = &WebSocket{} },
		"a negative rate":          func(o *Options) { o.Rate = -1 },
		"negative connections":     func(o *Options) { o.Connections = -1 },
		"more threads":             func(o *Options) { o.Connections, o.Threads = 2, 3 },
		"a negative warm-up":       func(o *Options) { o.Warmup = -1 },
		"a bad request":            func(o *Options) { o.Requests = []Request{{Target: "a b"}} },
		"a bad field":              func(o *Options) { o.Requests = []Request{{Header: []string{"a"}}} },
		"a bad WebSocket":          func(o *Options) { o.Requests, o.WebSocket = nil, &WebSocket{Target: "\n"} },
		"an address without port":  func(o *Options) { o.Address = "127.0.0.1" },
		"too many names": func(o *Options) {
			for i := range maxGroups {
				o.Requests = append(o.Requests, Request{Name: fmt.Sprint(i)})
			}
		},
	} {
		o := good
		change(&o)
		if r, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: %+v", rule, r)
		}
	}
}

// Sending a request and taking its answer allocates nothing. Encoding the histograms in the end does, a few thousand times.
func TestAllocations(t *testing.T) {
	address := listen(t, func(c net.Conn, _ *bufio.Reader) {
		request, answer := make([]byte, 4096), []byte(hello)
		for {
			if _, err := c.Read(request); err != nil { // a request is small enough to come in one piece
				return
			}
			c.Write(answer)
		}
	})
	for _, rate := range []float64{0, 30000} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := mustRun(t, Options{Address: address, Rate: rate, Duration: time.Second, Connections: 4,
			Requests: []Request{{Want: wantHello}}})
		runtime.ReadMemStats(&after)
		if mallocs := after.Mallocs - before.Mallocs; mallocs > 25000 {
			t.Errorf("rate %v: %d allocations for %d answers", rate, mallocs, r.Answers)
		}
	}
}
