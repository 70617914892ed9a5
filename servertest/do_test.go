package servertest_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

func TestDo(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		c.Response.Header.Set("X-Length", fmt.Sprint(c.Request.ContentLength()))
		return c.Text(201, fmt.Sprintf("%s %s%s %s %s %s", c.Method(), c.Host(), c.Path(), c.Request.Header.Get("Accept"), body, c.RemoteAddr()))
	})
	from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7}
	for name, test := range map[string]struct {
		got    servertest.Answer
		body   string
		length string
	}{
		"a path":         {s.Do(t, "GET /a", "Accept: x/y"), "GET filo.test/a x/y  ", "0"},
		"a host":         {s.Do(t, "GET http://host:1/a/b"), "GET host:1/a/b   ", "0"},
		"a host alone":   {s.Do(t, "GET http://host"), "GET host/   ", "0"},
		"a body":         {s.DoBody(t, "POST /a", "hi"), "POST filo.test/a  hi ", "2"},
		"a chunked body": {s.DoBody(t, "POST /a", "2\r\nhi\r\n0\r\n\r\n", "transfer-encoding: chunked"), "POST filo.test/a  hi ", "-1"},
		"from elsewhere": {s.DoFrom(t, from, "GET /a"), "GET filo.test/a   192.0.2.1:7", "0"},
	} {
		if test.got.Status != 201 || !strings.HasPrefix(test.got.Body, test.body) || test.got.Header.Get("X-Length") != test.length {
			t.Errorf("%s: %+v, want %q and a length of %s", name, test.got, test.body, test.length)
		}
	}
	if got := s.Do(t, "HEAD /a"); got.Status != 201 || got.Body != "" {
		t.Errorf("HEAD: %+v", got)
	}
}

// A test sends a request, and gets its answer, in one line.
func ExampleServer_Do() {
	TestGreeting := func(t *testing.T) {
		s := servertest.New(t, func(c *filo.Ctx) error { return c.Text(200, "Hello, "+c.Query("name")+"!") })
		if got := s.Do(t, "GET /?name=gopher", "Accept: text/plain"); got.Status != 200 || got.Body != "Hello, gopher!" {
			t.Errorf("got %d %q", got.Status, got.Body)
		}
	}
	_ = TestGreeting // go test calls it
}
