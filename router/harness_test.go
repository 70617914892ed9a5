package router_test

import (
	"fmt"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// do sends a request, such as "GET /path" or "GET http://host/path", with fields such as "Name: value", to a new server that
// serves r.
func do(t testing.TB, r *router.Router, request string, fields ...string) servertest.Answer {
	t.Helper()
	return servertest.New(t, r.Serve).Do(t, request, fields...)
}

// show answers with the route and its parameters, such as "GET /users/{id} id=7".
func show(c *filo.Ctx) error {
	text := c.Route()
	match := inside.Match(c)
	for i := range match.Len() {
		name, value := match.At(i)
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

// panicOf returns the value with which f panics, "" if it doesn't panic.
func panicOf(f func()) (message string) {
	defer func() {
		if value := recover(); value != nil {
			message = fmt.Sprint(value)
		}
	}()
	f()
	return ""
}
