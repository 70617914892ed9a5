package servertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
)

const (
	// rawTimeout bounds how long Raw waits for the server to close the connection.
	rawTimeout = 10 * time.Second

	// shutdownTimeout bounds how long handlers may still run after the test has ended.
	shutdownTimeout = 5 * time.Second

	// leakTimeout bounds how long goroutines may still run after the server has ended.
	leakTimeout = 5 * time.Second

	// leakLabel is the pprof label that identifies the goroutines of a Server. A goroutine inherits it from the one that starts it.
	leakLabel = "servertest.Server"
)

// A Server is a filo server that serves an in-memory listener until its test ends.
type Server struct {
	// URL is the server's URL for Client: "http://filo.test", without a slash at the end.
	URL string

	// Listener is the listener that the server accepts from. Dial it for more connections.
	Listener *Listener

	// Config is the server itself, for Stats, Shutdown and the like.
	Config *filo.Server

	client *http.Client
	label  string
	served chan error // receives the result of Serve
}

// serverCount is how many servers were started so far. The label of the next server is made from it.
var serverCount atomic.Int64

// New starts a server with the handler h and the default configuration. When the test ends, the server is shut down. The test
// fails if the shutdown takes over 5 seconds, or if goroutines are left that the server or its handlers started.
func New(t testing.TB, h filo.Handler) *Server {
	t.Helper()
	return NewServer(t, &filo.Server{Handler: h})
}

// NewServer is like New, with a given configuration. A server without a Logger logs to the test's output.
func NewServer(t testing.TB, config *filo.Server) *Server {
	t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	ln := NewListener()
	s := &Server{
		URL:      "http://" + serverHost,
		Listener: ln,
		Config:   config,
		client:   &http.Client{Transport: &http.Transport{DialContext: ln.DialContext}, Jar: newJar()},
		label:    fmt.Sprint(serverCount.Add(1)),
		served:   make(chan error, 1),
	}
	go pprof.Do(context.Background(), pprof.Labels(leakLabel, s.label), func(context.Context) {
		s.served <- config.Serve(ln)
	})
	t.Cleanup(func() { s.end(t) })
	return s
}

// Client returns an HTTP client that sends every request to the server, whatever the host in its URL. It always returns the same client,
// which keeps connections alive. Its Jar keeps cookies as a browser does, so a login lasts. Like browsers for localhost, it sends Secure
// cookies over plain HTTP, too. For a client without cookies, set Jar to nil; for a second user, copy the client and set another Jar in the
// copy.
func (s *Server) Client() *http.Client {
	return s.client
}

// secureJar is a jar that treats plain HTTP as HTTPS.
type secureJar struct{ *cookiejar.Jar }

func newJar() http.CookieJar {
	jar, _ := cookiejar.New(nil) // the error is always nil
	return secureJar{jar}
}

// SetCookies implements http.CookieJar.
func (j secureJar) SetCookies(u *url.URL, cookies []*http.Cookie) {
	j.Jar.SetCookies(secured(u), cookies)
}

// Cookies implements http.CookieJar.
func (j secureJar) Cookies(u *url.URL) []*http.Cookie { return j.Jar.Cookies(secured(u)) }

func secured(u *url.URL) *url.URL {
	copied := *u
	copied.Scheme = "https"
	return &copied
}

// Dial connects to the server. The connection is closed when the test ends.
func (s *Server) Dial(t testing.TB) *Conn {
	t.Helper()
	c, err := s.Listener.Dial()
	if err != nil {
		t.Fatalf("servertest: dial: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*Conn)
}

// Raw sends the bytes of request on a new connection, closes its writing half, and returns every byte until the server closes
// the connection. The test fails if the server doesn't close it within 10 seconds. The bytes may hold several requests, one
// after the other.
func (s *Server) Raw(t testing.TB, request string) string {
	t.Helper()
	return s.raw(t, request, true)
}

// RawOpen is like Raw but leaves the writing half open: the server must close the connection by itself.
func (s *Server) RawOpen(t testing.TB, request string) string {
	t.Helper()
	return s.raw(t, request, false)
}

func (s *Server) raw(t testing.TB, request string, halfClose bool) string {
	t.Helper()
	c := s.Dial(t)
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		t.Fatalf("servertest: %v", err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		// A server that refuses a request need not read all of it, so an error here is no failure: only the answer counts.
		io.WriteString(c, request)
		if halfClose {
			c.CloseWrite()
		}
	}()
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("servertest: reading the answer to %q: %v\ngot so far: %q", request, err, answer)
	}
	c.Close()
	<-sent
	return string(answer)
}

// end shuts the server down and reports the goroutines that it has left behind.
func (s *Server) end(t testing.TB) {
	t.Helper()
	s.client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := s.Config.Shutdown(ctx); err != nil {
		t.Errorf("servertest: shutdown: %v", err)
		s.Config.Close()
	}
	if err := <-s.served; !errors.Is(err, filo.ErrServerClosed) {
		t.Errorf("servertest: Serve returned %v, want ErrServerClosed", err)
	}
	if left := s.waitGoroutines(); left != "" {
		t.Errorf("servertest: goroutines left by the server or its handlers:\n%s", left)
	}
}

// waitGoroutines waits until no goroutine of the server is left, and returns the
// stacks of those that stay.
func (s *Server) waitGoroutines() string {
	pause := time.Millisecond
	for deadline := time.Now().Add(leakTimeout); ; pause *= 2 {
		left := s.goroutines()
		if left == "" || time.Now().After(deadline) {
			return left
		}
		time.Sleep(pause)
	}
}

// goroutines returns the stacks of the goroutines that carry the server's label.
func (s *Server) goroutines() string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return fmt.Sprintf("no goroutine profile: %v", err)
	}
	label := fmt.Sprintf("%q:%q", leakLabel, s.label)
	var left strings.Builder
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, label) {
			left.WriteString(stack)
			left.WriteString("\n\n")
		}
	}
	return left.String()
}
