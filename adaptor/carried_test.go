package adaptor_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/middleware"
)

// The protocol is the one by which the request came, in the Ctx, in the access log, and for handlers of net/http inside.
func TestCarriedProtocol(t *testing.T) {
	for proto, version := range map[string][2]int{"HTTP/1.0": {1, 0}, "HTTP/1.1": {1, 1}, "HTTP/2.0": {2, 0}, "HTTP/3.0": {3, 0}} {
		var log bytes.Buffer
		access := middleware.AccessLog(middleware.AccessLogOptions{Combined: &log})
		inside := adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
		changes := adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&wrapper{w}, r) })
		})
		var seen string
		h := adaptor.ToHTTP(access(changes(func(c *filo.Ctx) error {
			seen = c.Request.Proto()
			return inside(c)
		})))
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Proto, r.ProtoMajor, r.ProtoMinor = proto, version[0], version[1]
		h.ServeHTTP(w, r)
		if seen != proto || w.Body.String() != proto || !strings.Contains(log.String(), ` "GET / `+proto+`" 200 `) {
			t.Errorf("%s is %s, to net/http's handlers %s, and in the log %s", proto, seen, w.Body, log.String())
		}
	}
}

// A middleware of net/http doesn't change the protocol that handlers behind it see.
func TestProtocolBehindMiddleware(t *testing.T) {
	wraps := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&wrapper{w}, r) })
	})
	url, client := startHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		adaptor.ToHTTP(wraps(func(c *filo.Ctx) error { return c.Text(200, c.Request.Proto()) })).ServeHTTP(w, r)
	})
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); string(got) != "HTTP/2.0" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// By HTTP/2 trailer fields may follow a body whose length was announced, whatever server has the connection.
func TestCarriedTrailerBesideLength(t *testing.T) {
	s := httptest.NewUnstartedServer(adaptor.ToHTTP(func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Length", "5")
		c.Response.Trailer.Set("X-Sum", "7")
		_, err := c.Stream().WriteString("hello")
		return err
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	for _, method := range []string{"GET", "HEAD"} {
		r, err := http.NewRequest(method, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if got := response.Trailer.Get("X-Sum"); err != nil || response.ContentLength != 5 || method == "GET" && (string(body) != "hello" || got != "7") {
			t.Errorf("%s: %q of %d, trailer %q, %v", method, body, response.ContentLength, got, err)
		}
	}
}
