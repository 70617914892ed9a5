package adaptor_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/servertest"
)

// side is a server that runs a handler of net/http in one way or another.
type side struct {
	name string
	// start serves h until the test ends, and returns a function that connects to the server.
	start func(t testing.TB, h http.Handler) (dial func() (net.Conn, error))
}

// reference is the server that the others are compared with.
var reference = side{"net/http", func(t testing.TB, h http.Handler) func() (net.Conn, error) {
	return startHTTP(t, h)
}}

// sides are the ways in which the package runs a handler of net/http.
var sides = []side{
	{"filo on TCP", func(t testing.TB, h http.Handler) func() (net.Conn, error) {
		return startTCP(t, &filo.Server{Handler: adaptor.FromHTTP(h)})
	}},
	{"filo on TCP, blocking", func(t testing.TB, h http.Handler) func() (net.Conn, error) {
		return startTCP(t, &filo.Server{Handler: adaptor.FromHTTP(h), Driver: filo.DriverBlocking})
	}},
	{"filo in memory", func(t testing.TB, h http.Handler) func() (net.Conn, error) {
		return servertest.NewServer(t, &filo.Server{Handler: adaptor.FromHTTP(h), Logger: quiet}).Listener.Dial
	}},
	{"behind a middleware in filo", func(t testing.TB, h http.Handler) func() (net.Conn, error) {
		same := adaptor.Middleware(func(next http.Handler) http.Handler { return next })
		return startTCP(t, &filo.Server{Handler: same(adaptor.FromHTTP(h))})
	}},
	{"behind a middleware that wraps", func(t testing.TB, h http.Handler) func() (net.Conn, error) {
		wrapping := adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&wrapper{w}, r) })
		})
		return startTCP(t, &filo.Server{Handler: wrapping(adaptor.FromHTTP(h))})
	}},
	{"filo in net/http", func(t testing.TB, h http.Handler) func() (net.Conn, error) {
		return startHTTP(t, adaptor.ToHTTPServer(&filo.Server{Handler: adaptor.FromHTTP(h), Logger: quiet}))
	}},
}

// wrapper is the simplest wrapper that a middleware may put around a ResponseWriter.
type wrapper struct{ http.ResponseWriter }

func (w *wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var quiet = slog.New(slog.DiscardHandler)

func startHTTP(t testing.TB, h http.Handler) func() (net.Conn, error) {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return func() (net.Conn, error) { return net.Dial("tcp", s.Listener.Addr().String()) }
}

func startTCP(t testing.TB, s *filo.Server) func() (net.Conn, error) {
	t.Helper()
	if s.Logger == nil {
		s.Logger = quiet
	}
	address := tcptest.Serve(t, s)
	return func() (net.Conn, error) { return net.Dial("tcp", address) }
}

// exchangeRaw sends a request, and returns all bytes that arrive until the end of the connection.
func exchangeRaw(t testing.TB, dial func() (net.Conn, error), request string) []byte {
	t.Helper()
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	go io.WriteString(conn, request)
	got, err := io.ReadAll(conn)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("the connection wasn't closed; got %q", got)
	}
	return got
}

// describe returns a description of the answers as a client parses them. It leaves out what a server may choose: the order of fields,
// Date, Server, version and reason phrase, and where chunks begin.
func describe(raw []byte, head bool) string {
	var b strings.Builder
	r := bufio.NewReader(bytes.NewReader(raw))
	request := &http.Request{Method: "GET"}
	if head {
		request.Method = "HEAD"
	}
	for {
		if _, err := r.Peek(1); err != nil {
			return b.String()
		}
		response, err := http.ReadResponse(r, request)
		if err != nil {
			rest, _ := io.ReadAll(r)
			fmt.Fprintf(&b, "then %d more bytes\n", len(rest))
			return b.String()
		}
		fmt.Fprintf(&b, "%d, length %d, %v, close %v, dated %v\n", response.StatusCode, response.ContentLength,
			response.TransferEncoding, response.Close, response.Header.Get("Date") != "" || response.StatusCode == http.StatusSwitchingProtocols)
		response.Header.Del("Date")
		response.Header.Del("Server")
		if response.Close && response.StatusCode != http.StatusSwitchingProtocols {
			response.Header.Del("Connection") // an HTTP/1.0 client doesn't need this field
		}
		var lines []string
		for name, values := range response.Header {
			lines = append(lines, fmt.Sprintf("  %s: %q\n", name, values))
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
		if response.StatusCode == http.StatusSwitchingProtocols {
			rest, _ := io.ReadAll(r)
			fmt.Fprintf(&b, "then %q\n", rest)
			return b.String()
		}
		body, err := io.ReadAll(response.Body)
		if len(body) > 200 {
			body = fmt.Appendf(nil, "%d bytes of %q", len(body), body[:20])
		}
		fmt.Fprintf(&b, "  body %q, error %v\n", body, err)
		lines = lines[:0]
		for name, values := range response.Trailer {
			lines = append(lines, fmt.Sprintf("  trailer %s: %q\n", name, values))
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
	}
}

// compare compares each side's answer with net/http's.
func compare(t *testing.T, h http.Handler, request string) {
	t.Helper()
	head := strings.HasPrefix(request, "HEAD ")
	want := describe(exchangeRaw(t, reference.start(t, h), request), head)
	if want == "" {
		t.Log("net/http answers nothing")
	}
	for _, side := range sides {
		t.Run(side.name, func(t *testing.T) {
			if got := describe(exchangeRaw(t, side.start(t, h), request), head); got != want {
				t.Errorf("got\n%s\nwant, as net/http answers\n%s", got, want)
			}
		})
	}
}

const (
	get  = "GET /a%20b?x=1 HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"
	head = "HEAD / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"
	// upgrade needs no Connection: close, since no request follows it.
	upgrade = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
	post    = "POST / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
)

// A handler gives the same answer as under net/http's server.
func TestAnswers(t *testing.T) {
	large := strings.Repeat("0123456789", 5000)
	for _, test := range []struct {
		name, request string
		handler       http.HandlerFunc
	}{
		{"a handler that does nothing answers 200", get, func(http.ResponseWriter, *http.Request) {}},
		{"a small body has its length and its type", get, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>small") }},
		{"pieces are put together", get, func(w http.ResponseWriter, r *http.Request) {
			for range 100 {
				io.WriteString(w, "piece ")
			}
		}},
		{"a large body is streamed", get, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, large) }},
		{"a large body with a length isn't chunked", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(large)))
			io.WriteString(w, large)
		}},
		{"a type is told from pieces", get, func(w http.ResponseWriter, r *http.Request) {
			for _, piece := range []string{"<!DOC", "TYPE ", "html>", large} {
				io.WriteString(w, piece)
			}
		}},
		{"a date that isn't to be", get, func(w http.ResponseWriter, r *http.Request) { w.Header()["Date"] = nil; io.WriteString(w, "x") }},
		{"a length that isn't to be told", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Length"] = nil
			io.WriteString(w, "x")
		}},
		{"a length that isn't to be told, to HEAD", head, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Length"] = nil
			io.WriteString(w, "x")
		}},
		{"a length that isn't to be told, of nothing", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Length"] = nil
			w.WriteHeader(204)
		}},
		{"101 and a Flush before Hijack", upgrade, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Upgrade", "x")
			w.WriteHeader(101)
			http.NewResponseController(w).Flush()
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			io.WriteString(conn, "hello")
			conn.Close()
		}},
		{"a type that was set stays", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "x/y")
			io.WriteString(w, "<html>")
		}},
		{"a type of nil is none", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			io.WriteString(w, "<html>")
		}},
		{"an encoded body has no type that could be told", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "\x1f\x8b...")
		}},
		{"fields with several values", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("X-Many", "1")
			w.Header().Add("X-Many", "2")
			http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
			http.SetCookie(w, &http.Cookie{Name: "c", Value: "d"})
		}},
		{"a value can't make lines", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Injected", "a\r\nX-Evil: 1\r\n\r\nbody")
			w.Header()["X-Bad\r\nX-Evil"] = []string{"1"}
		}},
		{"the header is copied by WriteHeader", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-A", "before")
			w.WriteHeader(201)
			w.Header().Set("X-A", "after")
			w.Header().Set("X-B", "late")
			io.WriteString(w, "made")
		}},
		{"the second WriteHeader has no effect", get, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(404)
			w.WriteHeader(200)
		}},
		{"204 has no body, and a write says so", get, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(204)
			if _, err := io.WriteString(w, "x"); err != http.ErrBodyNotAllowed {
				t.Errorf("Write to 204: %v", err)
			}
		}},
		{"304 has neither body nor type", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "x/y")
			w.Header().Set("Content-Length", "7")
			w.Header().Set("Etag", `"1"`)
			w.WriteHeader(304)
			if _, err := w.Write([]byte("x")); err != http.ErrBodyNotAllowed {
				t.Errorf("Write to 304: %v", err)
			}
		}},
		{"HEAD with a small body has its length", head, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "small") }},
		{"HEAD with a large body has none", head, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, large) }},
		{"HEAD without a body says nothing about it", head, func(w http.ResponseWriter, r *http.Request) {}},
		{"HEAD with a length of its own", head, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Length", "1234") }},
		{"no more than the length is written", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "3")
			if _, err := io.WriteString(w, "four"); err != http.ErrContentLength {
				t.Errorf("Write of more than the length: %v", err)
			}
			io.WriteString(w, "two")
		}},
		{"less than the length breaks the connection off", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "30")
			io.WriteString(w, "short")
		}},
		{"Flush makes a stream", get, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			io.WriteString(w, "second")
		}},
		{"Flush without a body sends the head", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-A", "1")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("Flush: %v", err)
			}
			w.Header().Set("X-B", "too late")
			io.WriteString(w, "body")
		}},
		{"Flush keeps a length", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			io.WriteString(w, "again")
		}},
		{"HTTP/1.0 gets a stream until the end", "GET / HTTP/1.0\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			io.WriteString(w, "second")
		}},
		{"announced trailer fields follow the body", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum, X-Other")
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "42")
			w.Header().Set("X-Other", "a")
		}},
		{"announced trailer fields follow a large body", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Trailer", "X-Sum")
			io.WriteString(w, large)
			w.Header().Set("X-Sum", "42")
		}},
		{"announced trailer fields may be missing", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum, X-Other")
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "1")
		}},
		{"announced trailer fields may all be missing", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum, X-Other")
			io.WriteString(w, "body")
		}},
		{"trailer fields needn't be announced", get, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "body")
			w.(http.Flusher).Flush()
			w.Header().Set(http.TrailerPrefix+"X-Late", "here")
		}},
		{"103 comes before the answer", get, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("X-Final", "1")
			io.WriteString(w, "body")
		}},
		{"102 comes before the answer, and several may", get, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusProcessing)
			w.WriteHeader(http.StatusProcessing)
			w.WriteHeader(http.StatusAccepted)
		}},
		{"a body is read", post, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%q %v %d", body, err, r.ContentLength)
		}},
		{"a chunked body is read, with its trailer", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n" +
			"Trailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
			before := fmt.Sprint(r.Trailer)
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%q %v %d %v %s %v", body, err, r.ContentLength, r.TransferEncoding, before, r.Trailer)
		}},
		{"100 is sent when the body is read", "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
			func(w http.ResponseWriter, r *http.Request) {
				go func() {}()
				w.Header().Set("X-Expect", r.Header.Get("Expect"))
				w.WriteHeader(400)
			}},
		{"a read after Close is refused", post, func(w http.ResponseWriter, r *http.Request) {
			r.Body.Close()
			if _, err := r.Body.Read(make([]byte, 1)); err != http.ErrBodyReadAfterClose {
				t.Errorf("Read after Close: %v", err)
			}
		}},
		{"MaxBytesReader limits a body", post, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 3)
			body, err := io.ReadAll(r.Body)
			var tooLarge *http.MaxBytesError
			fmt.Fprintf(w, "%q %v", body, errors.As(err, &tooLarge))
		}},
		{"a form is parsed", "POST /?q=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n" +
			"Content-Length: 7\r\n\r\na=1&b=2", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.FormValue("a"), r.FormValue("b"), r.FormValue("q"), r.ParseForm())
		}},
		{"io.Copy from the body to the answer", post, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }},
		{"the connection goes on", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" + get,
			func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }},
		{"the handler closes the connection", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			io.WriteString(w, "bye")
		}},
		{"ErrAbortHandler leaves nothing", get, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "never sent")
			panic(http.ErrAbortHandler)
		}},
		{"ErrAbortHandler breaks a stream off", get, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "sent")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}},
		{"http.Error", get, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusTeapot) }},
		{"http.Redirect", get, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "../x", http.StatusFound) }},
		{"http.NotFound", get, http.NotFound},
	} {
		t.Run(test.name, func(t *testing.T) { compare(t, test.handler, test.request) })
	}
}

// Handlers see the same request as under net/http.
func TestRequests(t *testing.T) {
	show := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %q %+v host %q\n", r.Method, r.Proto, r.RequestURI, *r.URL, r.Host)
		fmt.Fprintf(w, "%d %v close %v trailer %v nobody %v tls %v\n", r.ContentLength, r.TransferEncoding, r.Close, r.Trailer,
			r.Body == http.NoBody, r.TLS == nil)
		var names []string
		for name := range r.Header {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(w, "%s: %q\n", name, r.Header[name])
		}
		fmt.Fprintln(w, r.Cookies(), r.UserAgent(), r.Referer())
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintln(w, host != "", err)
		_, server := r.Context().Value(http.ServerContextKey).(*http.Server)
		_, local := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		fmt.Fprintln(w, server, local, r.Context().Err())
	})
	for _, test := range []struct{ name, request string }{
		{"a simple one", get},
		{"without a path", "GET http://other.example?q HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
		{"in absolute form", "GET http://other.example/x%2Fy?q=1%202 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
		{"with fields in several lines", "GET / HTTP/1.1\r\nHost: a\r\nx-many: 1\r\nX-MANY: 2\r\naccept:  */*  \r\nCookie: a=1\r\nCookie: b=2\r\n" +
			"User-Agent: me\r\nReferer: there\r\nPragma: no-cache\r\nConnection: close\r\n\r\n"},
		{"with a body", post},
		{"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n"},
		{"a method of its own", "PURGE / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := show
			if test.name == "in absolute form" || test.name == "without a path" {
				// A request that passes through a Ctx is in origin form.
				compareOn(t, h, test.request, sides[:4])
				return
			}
			compareOn(t, h, test.request, sides)
		})
	}
}

// compareOn is like compare, for some of the sides only.
func compareOn(t *testing.T, h http.Handler, request string, some []side) {
	t.Helper()
	all := sides
	defer func() { sides = all }()
	sides = some
	compare(t, h, request)
}

// On every path through the package, a request's target stays as it was sent, except that bytes that a URI can't hold are encoded.
func TestTargets(t *testing.T) {
	viaURL := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q %q\n", r.URL.RequestURI(), r.URL.Path)
	})
	ctx := filo.Handler(func(c *filo.Ctx) error {
		return c.Text(200, fmt.Sprintf("%q %q\n", mwtest.EscapedTarget(c.Request.Target()), c.Path()))
	})
	changing := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Changed", "yes")
			next.ServeHTTP(w, r)
		})
	})
	const stripped = "/stripped"
	for _, test := range []struct {
		name  string
		start func(t testing.TB) string
	}{
		{"FromHTTP", func(t testing.TB) string {
			return serveBoth(t, adaptor.FromHTTP(viaURL))
		}},
		{"ToHTTP", func(t testing.TB) string { return startBoth(t, adaptor.ToHTTP(ctx)) }},
		{"FromHTTP in ToHTTP", func(t testing.TB) string { return startBoth(t, adaptor.ToHTTP(adaptor.FromHTTP(viaURL))) }},
		{"Middleware that changes the request", func(t testing.TB) string {
			return serveBoth(t, changing(ctx))
		}},
		{"StripPrefix in front of ToHTTP", func(t testing.TB) string {
			return startBoth(t, http.StripPrefix(stripped, adaptor.ToHTTP(ctx)))
		}},
		{"FromHTTP of StripPrefix", func(t testing.TB) string {
			return serveBoth(t, adaptor.FromHTTP(http.StripPrefix(stripped, viaURL)))
		}},
	} {
		for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(test.name+" "+version, func(t *testing.T) {
				prefix := ""
				if strings.Contains(test.name, "StripPrefix") {
					prefix = stripped
				}
				transport := &http.Transport{Protocols: new(http.Protocols)}
				defer transport.CloseIdleConnections()
				transport.Protocols.SetHTTP1(version == "HTTP/1.1")
				transport.Protocols.SetUnencryptedHTTP2(version != "HTTP/1.1")
				address := test.start(t)
				random := rand.New(rand.NewPCG(1, 2))
				for range 300 {
					target := mwtest.Target(random)
					at := &url.URL{Scheme: "http", Host: address, Opaque: prefix + target} // sent as it is
					if strings.HasPrefix(at.Opaque, "//") {
						at.Opaque = "//" + address + at.Opaque // as http://address//
					}
					r := &http.Request{Method: "GET", URL: at, Header: make(http.Header)}
					answer, err := transport.RoundTrip(r)
					if err != nil {
						t.Fatal(target, err)
					}
					got, err := io.ReadAll(answer.Body)
					if err != nil {
						t.Fatal(target, err)
					}
					sent, _, _ := strings.Cut(target, "?")
					path, _ := url.PathUnescape(sent)
					if want := fmt.Sprintf("%q %q\n", mwtest.EscapedTarget(target), path); string(got) != want {
						t.Fatalf("%s has arrived as %swant %s", target, got, want)
					}
				}
			})
		}
	}
}

// serveBoth serves h by filo in both protocols, and returns the address.
func serveBoth(t testing.TB, h filo.Handler) string {
	return tcptest.Serve(t, &filo.Server{Handler: h, Logger: quiet, HTTP2: filo.HTTP2Options{Unencrypted: true}})
}

// startBoth is like serveBoth, for a handler of net/http.
func startBoth(t testing.TB, h http.Handler) string {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
