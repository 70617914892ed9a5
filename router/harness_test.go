package router_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request, such as "GET /path" or "GET http://host/path", with fields such as "Name: value", to a server of its
// own, which serves r.
func do(t testing.TB, r *router.Router, request string, fields ...string) answer {
	t.Helper()
	return doTo(t, servertest.New(t, r.Serve), request, fields...)
}

func doTo(t testing.TB, s *servertest.Server, request string, fields ...string) answer {
	t.Helper()
	method, target, _ := strings.Cut(request, " ")
	host := "filo.test"
	if rest, ok := strings.CutPrefix(target, "http://"); ok {
		i := strings.IndexByte(rest, '/')
		host, target = rest[:i], rest[i:]
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, host)
	for _, field := range fields {
		head += field + "\r\n"
	}
	raw := s.Raw(t, head+"\r\n")
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s: %v in %q", request, err, raw)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v in %q", request, err, raw)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}

// show answers with the route and its parameters, such as "GET /users/{id} id=7".
func show(c *filo.Ctx) error {
	text := c.Route()
	for i := range c.Params().Len() {
		name, value := c.Params().At(i)
		text += fmt.Sprintf(" %s=%s", name, value)
	}
	c.Response.Header.Set("Route", text)
	return c.Text(200, text)
}

// with returns a router with show for each pattern.
func with(patterns ...string) *router.Router {
	r := router.New()
	for _, pattern := range patterns {
		r.Handle(pattern, show)
	}
	return r
}

// panicOf returns what f panics with, "" if it doesn't.
func panicOf(f func()) (message string) {
	defer func() {
		if value := recover(); value != nil {
			message = fmt.Sprint(value)
		}
	}()
	f()
	return ""
}
