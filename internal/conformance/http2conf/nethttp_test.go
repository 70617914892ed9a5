package http2conf

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/conformance"
	"github.com/filohttp/filo/internal/conformance/site"
	"github.com/filohttp/filo/internal/race"
)

// serveClear serves the site without TLS, over HTTP/1.1 and over HTTP/2 with prior knowledge. It returns a function that dials the server.
func serveClear(t *testing.T) func() (net.Conn, error) {
	s := &http.Server{Handler: http.HandlerFunc(site.ServeHTTP), ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(ln)
	t.Cleanup(func() { s.Close() })
	return func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) }
}

// serveTLS serves the site over TLS.
func serveTLS(t *testing.T) func() (net.Conn, error) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(site.ServeHTTP))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"h2"}
	return func() (net.Conn, error) {
		conn, err := tls.Dial("tcp", s.Listener.Addr().String(), config)
		if err != nil {
			return nil, err
		}
		return conn, conn.HandshakeContext(context.Background())
	}
}

// A deviation is a behaviour of net/http's server that differs from filo's in some cases. It breaks the RFC's sentence, or is another choice
// that the sentence allows.
type deviation struct {
	what  string
	came  string   // a text in the runner's error
	cases []string // a name that ends in "/" is a group
}

// deviations are those of Go 1.26.
var deviations = []deviation{
	{"it answers", `200 ""`, []string{
		"open/HEADERS that depend on themselves",
	}},
	{"it answers", `200 "Hello, World!"`, []string{
		"HPACK/an index behind what is too large", "HPACK/an index of a request that is too large",
		"closed streams don't count/one that is too large",
	}},
	{"it resets the stream at once when it has answered", `200 "Hello, World!", RST_STREAM NO_ERROR`, []string{
		"idle/HEADERS", "idle/HEADERS and CONTINUATION",
	}},
	{"it resets a stream that is over", `200 "Hello, World!", RST_STREAM PROTOCOL_ERROR`, []string{
		"closed/PRIORITY that depends on itself",
	}},
	{"it answers", `200 "hello"`, []string{
		"trailers/with 101 fields", "trailers/with a value of 16,355 bytes",
	}},
	{"its handler is told, and answers 400", `400 ""`, []string{
		"Content-Length/of 20,000, and less DATA", "Content-Length/of 20,000, and trailers too early",
	}},
	{"it decodes the block first, or gives up on a large one", `GOAWAY COMPRESSION_ERROR`, []string{
		"closed by a later stream/HEADERS that can't be decoded", "closed by the client's RST_STREAM/HEADERS that can't be decoded",
		"closed/HEADERS that can't be decoded",
	}},
	{"it ends the connection, where RST_STREAM would do", `GOAWAY FRAME_SIZE_ERROR`, []string{
		"closed by a later stream/PRIORITY of 4 bytes", "closed by the client's RST_STREAM/PRIORITY of 4 bytes",
		"closed by the server's RST_STREAM/PRIORITY of 4 bytes", "closed/PRIORITY of 4 bytes", "half-closed (remote)/PRIORITY of 4 bytes",
		"open/PRIORITY of 4 bytes",
	}},
	{"it leaves when the client says GOAWAY", `GOAWAY NO_ERROR`, []string{
		"GOAWAY/in a request", "GOAWAY/twice, with an error",
	}},
	{"it ends the connection, by another code or where it need not", `GOAWAY PROTOCOL_ERROR`, []string{
		"SETTINGS/HEADER_TABLE_SIZE of 0 and 4,096 again", "SETTINGS/the same one often: the last counts", "closed by a later stream/HEADERS",
		"closed by a later stream/HEADERS and CONTINUATION", "closed by a later stream/HEADERS of trailers",
		"closed by a later stream/HEADERS that depend on themselves", "closed by the client's RST_STREAM/HEADERS",
		"closed by the client's RST_STREAM/HEADERS and CONTINUATION", "closed by the client's RST_STREAM/HEADERS of trailers",
		"closed by the client's RST_STREAM/HEADERS that depend on themselves", "closed by the server's RST_STREAM/DATA",
		"closed by the server's RST_STREAM/DATA of padding alone", "closed by the server's RST_STREAM/DATA that are empty",
		"closed by the server's RST_STREAM/DATA with END_STREAM", "closed by the server's RST_STREAM/RST_STREAM",
		"closed by the server's RST_STREAM/WINDOW_UPDATE", "closed by the server's RST_STREAM/WINDOW_UPDATE of all", "closed/HEADERS",
		"closed/HEADERS and CONTINUATION", "closed/HEADERS of trailers", "closed/HEADERS that depend on themselves",
		"stream/with a lower number", "stream/with a lower number, and a field block of two frames", "stream/with the same number",
		"stream/with the same number, behind another", "trailers/without END_STREAM, and then with it",
	}},
	{"it resets the stream twice more", `RST_STREAM FLOW_CONTROL_ERROR, RST_STREAM STREAM_CLOSED, RST_STREAM STREAM_CLOSED`, []string{
		"window/of a stream is overrun at once",
	}},
	{"it resets the stream at once when it has answered", `RST_STREAM NO_ERROR`, []string{
		"Expect/100-continue, and an answer that doesn't depend on the content",
		"closed streams don't count/one that was answered early, and has DATA and then HEADERS",
		"closed streams don't count/one that was answered early, and has WINDOW_UPDATE of 0",
		"closed streams don't count/one that was answered early, and has ended",
		"closed streams don't count/one that was answered early, and has ended with another length than announced",
		"closed streams don't count/one that was answered early, and has ended with trailers",
		"closed streams don't count/one that was answered early, and has sent more than announced",
		"closed streams don't count/one that was answered early, and reset by the client",
		"closed streams don't count/one that was answered early, and reset by the server", "half-closed (local)/",
	}},
	{"it resets the stream, by another code, where it is over, or where the connection has to end", `RST_STREAM PROTOCOL_ERROR`, []string{
		"closed by a later stream/PRIORITY that depends on itself", "closed by the client's RST_STREAM/PRIORITY that depends on itself",
		"idle/PRIORITY that depends on itself", "idle/WINDOW_UPDATE of 0", "too many streams/a field block is decoded all the same",
		"too many streams/one", "too many streams/three",
	}},
	{"it resets the stream once more", `RST_STREAM PROTOCOL_ERROR, RST_STREAM PROTOCOL_ERROR`, []string{
		"closed by the server's RST_STREAM/HEADERS of trailers", "closed by the server's RST_STREAM/HEADERS that depend on themselves",
		"closed by the server's RST_STREAM/PRIORITY that depends on itself", "closed by the server's RST_STREAM/WINDOW_UPDATE of 0",
	}},
	{"it resets the stream once more", `RST_STREAM PROTOCOL_ERROR, RST_STREAM STREAM_CLOSED`, []string{
		"trailers/without END_STREAM, and then DATA",
	}},
	{"it takes PROTOCOL_ERROR, and resets the stream twice more", `RST_STREAM PROTOCOL_ERROR, RST_STREAM STREAM_CLOSED, RST_STREAM STREAM_CLOSED`, []string{
		"too many streams/with DATA",
	}},
	{"its GOAWAY names a stream that was never opened", `and the client has opened none`, []string{
		"idle/DATA", "idle/DATA of padding alone", "idle/DATA that are empty", "idle/DATA with END_STREAM", "idle/RST_STREAM",
		"idle/WINDOW_UPDATE", "idle/WINDOW_UPDATE of all",
	}},
	{"it takes HEADERS on a stream that it has reset for a new request", `behind RST_STREAM`, []string{
		"HPACK/an index of HEADERS on a stream that the server has reset", "closed by the server's RST_STREAM/HEADERS",
		"closed by the server's RST_STREAM/HEADERS and CONTINUATION",
	}},
	{"it ignores the frame, closes without GOAWAY, or gives no window", `came: nothing`, []string{
		"window/of the connection is another's to use, too",
	}},
}

// racy lists cases in which the behaviour of net/http's server depends on timing. The server resets a stream with NO_ERROR unless it has
// already read the end of the request. It acknowledges several SETTINGS one by one or all at once. Its handlers race for the order of
// answers.
var racy = []string{
	"priority/", "early answer/", "Expect/100-continue, and an answer that doesn't depend on the content", "SETTINGS/three",
	"window/changed when both have ended", "window/changed when the answer has ended before the request",
}

func among(names []string, c Case) bool {
	group, _, _ := strings.Cut(c.Name, "/")
	return slices.Contains(names, c.Name) || slices.Contains(names, group+"/")
}

func find(c Case) *deviation {
	for i, d := range deviations {
		if among(d.cases, c) {
			return &deviations[i]
		}
	}
	return nil
}

// The runner finds exactly the known deviations in net/http's server. This shows that the runner accepts correct behaviour and detects wrong
// behaviour.
func TestNetHTTP(t *testing.T) {
	if race.Enabled {
		t.Skip("no code of filo's is under test, and the tests without the race detector have it")
	}
	if !strings.HasPrefix(runtime.Version(), "go1.26") {
		t.Skipf("the deviations are those of Go 1.26, and this is %s", runtime.Version())
	}
	for name, serve := range map[string]func(*testing.T) func() (net.Conn, error){"clear": serveClear, "TLS": serveTLS} {
		t.Run(name, func(t *testing.T) {
			dial := serve(t)
			if lacks, err := Lacking(dial, conformance.Options{Timeout: timeout}); err != nil || len(lacks) > 0 {
				t.Fatalf("it lacks %v, %v", lacks, err)
			}
			run := func(c Case) error { return runOnNetHTTP(runner{Case: c, dial: dial, abrupt: true}, find(c)) }
			// net/http waits for a second before it closes a connection, so the cases run at the same time.
			places := make(chan bool, 200)
			var group sync.WaitGroup
			var mu sync.Mutex
			var failed []Case
			for _, c := range Table() {
				if among(racy, c) {
					continue
				}
				places <- true
				group.Go(func() {
					defer func() { <-places }()
					if err := run(c); err != nil {
						t.Logf("%q: %v", c.Name, err)
						mu.Lock()
						defer mu.Unlock()
						failed = append(failed, c)
					}
				})
			}
			group.Wait()
			// On a busy machine, the client may be so slow that net/http ends the connection, so failed cases run again, one at a time.
			for _, c := range failed {
				if err := run(c); err != nil {
					t.Fatalf("%q, by itself: %v", c.Name, err)
				}
			}
		})
	}
}

// runOnNetHTTP runs a case. If d isn't nil, the case must fail as the deviation says.
func runOnNetHTTP(r runner, d *deviation) error {
	if d == nil {
		r.timeout = timeout
		return r.run(true)
	}
	// In some deviations an expected frame never arrives, and the runner waits for the time-out. So the first time-out is short. The later
	// time-outs are long enough for a busy machine.
	var err error
	for _, r.timeout = range []time.Duration{time.Second / 2, 3 * time.Second, 20 * time.Second} {
		if err = r.run(true); err == nil {
			return fmt.Errorf("it is listed, and passes: %s", d.what)
		}
		if strings.Contains(err.Error(), d.came) {
			return nil
		}
	}
	return fmt.Errorf("want %s: %q: %w", d.what, d.came, err)
}

// Each deviation names existing cases.
func TestDeviationsAreOfCases(t *testing.T) {
	names := slices.Clone(racy)
	for _, d := range deviations {
		names = append(names, d.cases...)
	}
	for _, name := range names {
		if !slices.ContainsFunc(Table(), func(c Case) bool { return among([]string{name}, c) }) {
			t.Errorf("there is no case %q", name)
		}
	}
}
