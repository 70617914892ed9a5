package middleware_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

func ExampleAccessLog() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "duration_ms" {
				return slog.Attr{} // these values would differ in each run
			}
			return a
		},
	}))
	h := middleware.AccessLog(middleware.AccessLogOptions{Logger: logger})(func(c *filo.Ctx) error {
		return filo.Error(404, "nothing here")
	})
	mwtest.Show(h, nil, "GET /path?query", "User-Agent: example/1.0")
	// Output:
	// level=INFO msg=request method=GET path=/path status=404 bytes=24 client=192.0.2.1 host=filo.test agent=example/1.0 error="404 Not Found: nothing here"
	// 404 Not Found: nothing here
}

// synchronized is a buffer that several goroutines may use at once.
type synchronized struct {
	mu     sync.Mutex
	buffer bytes.Buffer
	writes int
	err    error
}

func (s *synchronized) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.err != nil {
		return 0, s.err
	}
	return s.buffer.Write(p)
}

func (s *synchronized) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buffer.String()
}

func TestAccessLog(t *testing.T) {
	basic := middleware.BasicAuth(middleware.BasicAuthOptions{Users: map[string]string{"a \"b\"": "secret"}})
	user := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("a \"b\":secret"))
	for _, test := range []struct {
		sentence         string
		handler          filo.Handler
		request          string
		fields           []string
		record, combined string // regular expressions
	}{
		{"an answer", mwtest.Hello, "GET /a%20b?q=1", []string{"User-Agent: agent", "Referer: http://r.test/"},
			`method=GET path="/a b" status=200 bytes=5 duration_ms=[0-9.]+ client=192.0.2.7 host=filo.test agent=agent$`,
			`^192.0.2.7 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "GET /a%20b\?q=1 HTTP/1.1" 200 5 "http://r.test/" "agent"$`},
		{"an error that nobody has rendered is", func(*filo.Ctx) error { return filo.Error(503, "no\r\nbody") }, "POST /", nil,
			`method=POST path=/ status=503 bytes=\d\d .*error="503 Service Unavailable: no\\r\\nbody"$`, `"POST / HTTP/1.1" 503 \d+ "-" "-"$`},
		{"an aborted answer has no status", func(*filo.Ctx) error { return filo.ErrAbort }, "GET /", nil, `status=0 bytes=0 .*error=`, `HTTP/1.1" - - "-" "-"$`},
		{"a stream", func(c *filo.Ctx) error {
			_, err := c.Stream().WriteString("streamed")
			return err
		}, "GET /", nil, `status=200 bytes=8`, `200 8`},
		{"an answer without a body", func(c *filo.Ctx) error { return c.NoContent() }, "GET /", nil, `status=204 bytes=0`, `204 - "-" "-"$`},
		{"control bytes of a path", mwtest.Hello, "GET /%0d%0aInjected:%20line", nil, `path="/\\r\\nInjected: line" status`, `"GET /%0d%0aInjected:%20line HTTP/1.1"`},
		{"what would end a value of the combined format", mwtest.Hello, `GET /"\`, []string{"User-Agent: a\" \\\tb\xff"},
			`path="/\\"\\\\" .*agent="a\\" \\\\\\tb\\xff"`, `"GET /\\x22\\x5c HTTP/1.1" .*"a\\x22 \\x5c\\x09b\\xff"`},
		{"the id and the route", func(c *filo.Ctx) error {
			inside.Match(c).Route = "GET /users/{id}"
			return mwtest.Hello(c)
		}, "GET /users/7", []string{"X-Request-ID: id-1"}, `route="GET /users/{id}" request_id=id-1$`, `GET /users/7`},
		{"parameters that are secrets", mwtest.Hello, "GET /a?page=2&access_token=t1&s%69g=t2&X-Amz-Signature=t3&signed=4&Pin=t5", []string{"Referer: https://a.test/?sig=t6&b=\"c"},
			`path=/a status=200`, `^[^t]* "GET /a\?page=2&access_token=REDACTED&s%69g=REDACTED&X-Amz-Signature=REDACTED&signed=4&Pin=REDACTED HTTP/1.1" 200 5 "https://a.test/\?sig=REDACTED&b=\\x22c" "-"`},
		{"parameters of a URL in a parameter", mwtest.Hello, "GET /a?next=%2Fcb%3Ftoken%3Dt1&r=https%253A%252F%252Fx%252F%253Fc%256Fde%253Dt2&x=a%3Dt&s=%3fP%49N=t3%&next=%2Fcb%3Fa%3D1",
			[]string{"Referer: https://a.test/?u=/%23id_token=t4"}, `path=/a status=200`, `"GET /a\?next=REDACTED&r=REDACTED&x=a%3Dt&s=REDACTED&next=%2Fcb%3Fa%3D1 HTTP/1.1" 200 5 "https://a.test/\?u=REDACTED" "-"`},
		{"odd queries", mwtest.Hello, "GET /a?&&sig&sig=&=x&", nil, `path=/a status=200`, `"GET /a\?&&sig&sig=REDACTED&=x& HTTP/1.1"`},
		{"no query", mwtest.Hello, "GET /a?", nil, `path=/a status=200`, `"GET /a\? HTTP/1.1"`},
		{"a user", basic(mwtest.Hello), "GET /", []string{user}, `status=200`, `^192.0.2.7 - a\\x20"b" \[`},
	} {
		var record, combined synchronized
		logger := slog.New(slog.NewTextHandler(&record, nil))
		s := servertest.NewServer(t, &filo.Server{
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Handler: mwtest.Wrap(test.handler,
				middleware.RequestID(middleware.RequestIDOptions{TrustIncoming: true}),
				middleware.AccessLog(middleware.AccessLogOptions{Logger: logger}),
				middleware.AccessLog(middleware.AccessLogOptions{Combined: &combined, Redact: []string{"PIN"}})),
		})
		fields := test.fields
		if !strings.Contains(strings.Join(fields, " "), "X-Request-ID") {
			fields = append(fields, "X-Request-ID: any")
			test.record = strings.TrimSuffix(test.record, "$")
		}
		c, err := s.Listener.DialFrom(mwtest.TCPAddress("192.0.2.7:1"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, servertest.Request(test.request, "", append(fields, "Connection: close")...))
		io.Copy(io.Discard, c)
		c.Close()
		for _, each := range []struct{ got, want string }{{record.String(), test.record}, {combined.String(), test.combined}} {
			line, ended := strings.CutSuffix(each.got, "\n")
			if !ended || strings.ContainsAny(line, "\r\n\x1b") || !regexp.MustCompile(each.want).MatchString(line) {
				t.Errorf("%s: %q, want %s", test.sentence, each.got, each.want)
			}
		}
	}
}

// No line contains the value of a parameter that may be a secret, however the parameter's name is written. Nor does a line contain a key that
// a KeyAuth reads from the query, no matter where the KeyAuth is created.
func TestAccessLogSecrets(t *testing.T) {
	var combined synchronized
	s := servertest.New(t, middleware.AccessLog(middleware.AccessLogOptions{Combined: &combined})(mwtest.Hello))
	middleware.KeyAuth(middleware.KeyAuthOptions{Keys: []string{"a long random key"}, Query: "Ticket"}) // created after AccessLog, and not in its chain
	for _, name := range []string{
		"token", "Access_Token", "refresh_token", "id_token", "authToken", "reset-password-token", "token[]", "api_key", "apiKey", "X-API-Key", "code",
		"password", "user[password]", "passwd", "pwd", "client_secret", "client_assertion", "SAMLResponse", "jwt", "otp", "ticket", "t%6fken",
		"sig", "Signature", "AWSAccessKeyId", "X-Amz-Credential", "X-Amz-Security-Token", "X-Amz-Signature", "X-Goog-Signature",
	} {
		for _, query := range []string{name + "=hidden", "a=b&" + name + "=hidden&c=d", "a=b;" + name + "=hidden"} {
			s.Do(t, "GET /?"+query, "Referer: https://a.test/?"+query)
		}
	}
	if got := combined.String(); strings.Contains(got, "hidden") {
		t.Errorf("%s", got)
	}
	s.Do(t, "GET /?page=seen&codes=seen&tokens=seen&pin=seen&keys=seen")
	if got := combined.String(); strings.Count(got, "=seen") != 5 {
		t.Errorf("%s", got)
	}
}

// Records stay short, however much a client sends, in each format of AccessLog and in the server's own log.
func TestAccessLogLength(t *testing.T) {
	for _, part := range []string{"a", "\xff", "\"", "é", "%00", "%ff"} {
		var combined, text, records, server synchronized
		long := strings.Repeat(part, 7000/len(part))
		handler := mwtest.Wrap(func(c *filo.Ctx) error {
			return fmt.Errorf("it was %s", c.Path())
		},
			middleware.AccessLog(middleware.AccessLogOptions{Combined: &combined}),
			middleware.AccessLog(middleware.AccessLogOptions{Logger: slog.New(slog.NewTextHandler(&text, nil))}),
			middleware.AccessLog(middleware.AccessLogOptions{Logger: slog.New(slog.NewJSONHandler(&records, nil))}))
		s := servertest.NewServer(t, &filo.Server{Handler: handler, MaxHeaderBytes: 64 << 10, Logger: slog.New(slog.NewJSONHandler(&server, nil))})
		fields := []string{"Referer: http://" + long, "User-Agent: " + long, "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(long+":a"))}
		for _, request := range []string{"GET /" + long, "GET /?" + long, "GET /?token=" + long, "GET /?" + strings.Repeat("token=&", 1000), strings.Repeat("M", 7000) + " /"} {
			s.Do(t, request, fields...)
		}
		for name, log := range map[string]*synchronized{"combined": &combined, "text": &text, "JSON": &records} {
			for line := range strings.Lines(log.String()) {
				if len(line) > 3500 {
					t.Errorf("%q, %s: a record of %d bytes: %s", part, name, len(line), line[:200])
				}
			}
		}
	}
}

func TestAccessLogOptions(t *testing.T) {
	var log synchronized
	logger := slog.New(slog.NewTextHandler(&log, nil))
	h := middleware.AccessLog(middleware.AccessLogOptions{
		Logger: logger,
		Level:  slog.LevelWarn,
		Skip:   func(c *filo.Ctx) bool { return c.Status() == 200 && c.Path() == "/health" },
		Attributes: func(c *filo.Ctx, attributes []slog.Attr) []slog.Attr {
			return append(attributes, slog.String("tenant", c.Request.Header.Get("Tenant")))
		},
	})(mwtest.Hello)
	s := servertest.New(t, h)
	s.Do(t, "GET /health")
	s.Do(t, "GET /a", "Tenant: red")
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "tenant=red\n") {
		t.Errorf("logged %q", got)
	}
	quiet := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	mwtest.Do(t, middleware.AccessLog(middleware.AccessLogOptions{Logger: quiet})(mwtest.Hello), "GET /")
	if got := log.String(); strings.Count(got, "\n") != 1 {
		t.Errorf("below its level the logger got %q", got)
	}
}

// The function Attributes may remove attributes, return different ones, or return none. The next record has all of AccessLog's attributes again.
func TestAccessLogOtherAttributes(t *testing.T) {
	var log synchronized
	logger := slog.New(slog.NewTextHandler(&log, nil))
	h := middleware.AccessLog(middleware.AccessLogOptions{Logger: logger, Attributes: func(c *filo.Ctx, attributes []slog.Attr) []slog.Attr {
		switch c.Path() {
		case "/none":
			return nil
		case "/part":
			return attributes[1:2]
		case "/own":
			return []slog.Attr{slog.Int("own", 1)}
		case "/many":
			for i := range 100 {
				attributes = append(attributes, slog.Int("many", i))
			}
		}
		return attributes
	}})(mwtest.Hello)
	s := servertest.New(t, h)
	for _, step := range []struct{ path, want string }{
		{"/none", "msg=request\n"}, {"/part", "msg=request path=/part\n"}, {"/own", "msg=request own=1\n"}, {"/many", "many=99\n"},
	} {
		for _, path := range []string{step.path, "/all"} {
			s.Do(t, "GET "+path)
			got := log.String()
			log.buffer.Reset()
			all := strings.Contains(got, "msg=request method=GET path=/all status=200 bytes=5 duration_ms=") && strings.HasSuffix(got, "host=filo.test\n")
			if !strings.HasSuffix(got, step.want) && !all || all != (path == "/all") {
				t.Errorf("%s: logged %q", path, got)
			}
		}
	}
}

// Without a logger of its own, AccessLog uses the server's.
func TestAccessLogByServersLogger(t *testing.T) {
	var log synchronized
	s := servertest.NewServer(t, &filo.Server{
		Handler: middleware.AccessLog()(mwtest.Hello),
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
	})
	s.Do(t, "GET /a")
	if got := log.String(); !strings.Contains(got, "msg=request method=GET path=/a status=200") {
		t.Errorf("logged %q", got)
	}
}

// The error of a writer that keeps failing is logged once, until a Write succeeds.
func TestAccessLogWriteError(t *testing.T) {
	var log synchronized
	full := &synchronized{err: errors.New("disk full")}
	h := middleware.AccessLog(middleware.AccessLogOptions{Combined: full, Logger: slog.New(slog.NewTextHandler(&log, nil))})(mwtest.Hello)
	s := servertest.New(t, h)
	s.Raw(t, strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 3))
	full.mu.Lock()
	full.err = nil
	full.mu.Unlock()
	s.Raw(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	full.mu.Lock()
	full.err = errors.New("disk full again")
	full.mu.Unlock()
	s.Raw(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := log.String(); full.writes != 5 || strings.Count(got, "\n") != 2 || strings.Count(got, "disk full again") != 1 {
		t.Errorf("%d writes, logged %q", full.writes, got)
	}
}

// counting is a slog.Handler that discards records, so that only the middleware is measured.
type counting struct{ slog.Handler }

func (counting) Enabled(context.Context, slog.Level) bool  { return true }
func (counting) Handle(context.Context, slog.Record) error { return nil }

func BenchmarkAccessLog(b *testing.B) {
	fields := []string{"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0", "Referer: http://filo.test/index.html"}
	for _, each := range []struct {
		name    string
		options middleware.AccessLogOptions
	}{
		{"combined", middleware.AccessLogOptions{Combined: io.Discard}},
		{"JSON", middleware.AccessLogOptions{Logger: slog.New(slog.NewJSONHandler(io.Discard, nil))}},
		{"text", middleware.AccessLogOptions{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}},
		{"no handler", middleware.AccessLogOptions{Logger: slog.New(counting{})}},
	} {
		b.Run(each.name, func(b *testing.B) {
			mwtest.Benchmark(b, middleware.AccessLog(each.options)(mwtest.Hello), "GET /users/7/repos?page=2", fields...)
		})
	}
}

// If a panic passes through the access log, its request isn't logged, and one warning says so. If Recover, inside of the access log, turns
// the panic into an error, the request is logged like any other.
func TestAccessLogPanic(t *testing.T) {
	for name, test := range map[string]struct {
		chain            []filo.Middleware
		warned, requests int
	}{
		"Recover inside":  {[]filo.Middleware{middleware.AccessLog(), middleware.Recover()}, 0, 3},
		"Recover outside": {[]filo.Middleware{middleware.Recover(), middleware.AccessLog()}, 1, 1},
		"no Recover":      {[]filo.Middleware{middleware.AccessLog()}, 1, 1},
	} {
		var log synchronized
		s := servertest.NewServer(t, &filo.Server{
			Handler: mwtest.Wrap(func(c *filo.Ctx) error {
				if c.Path() == "/quiet" {
					return c.NoContent()
				}
				panic("out of luck")
			}, test.chain...),
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		for _, path := range []string{"/a", "/b", "/quiet"} {
			s.Do(t, "GET "+path)
		}
		got := log.String()
		if warned := strings.Count(got, "put Recover inside of AccessLog"); warned != test.warned || strings.Count(got, "msg=request") != test.requests ||
			warned > 0 && !strings.Contains(got, "method=GET path=/a") {
			t.Errorf("%s: logged\n%s", name, got)
		}
	}
}

// After a panic in the writer of the combined format, later requests are still logged and answered.
func TestAccessLogWriterPanics(t *testing.T) {
	var log synchronized
	combined := &panicsOnce{}
	s := servertest.NewServer(t, &filo.Server{
		Handler: middleware.AccessLog(middleware.AccessLogOptions{Combined: combined})(mwtest.Hello),
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
	})
	for _, path := range []string{"/first", "/second"} {
		s.Do(t, "GET "+path)
	}
	if got := combined.String(); !strings.Contains(got, "/second") || !strings.Contains(log.String(), "the disk is gone") {
		t.Errorf("the access log has %q, the server's log %q", got, log.String())
	}
}

// panicsOnce is a writer whose first Write panics.
type panicsOnce struct {
	synchronized
	panicked bool
}

func (w *panicsOnce) Write(b []byte) (int, error) {
	if !w.panicked {
		w.panicked = true
		panic("the disk is gone")
	}
	return w.synchronized.Write(b)
}
