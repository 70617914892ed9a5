package exchange

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// Browsers drop a Secure cookie over plain HTTP, unless it comes from their own machine. If every request after a login gets a 401, only this
// warning explains the reason.
func TestSecureCookieOverPlainHTTP(t *testing.T) {
	tcp := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1234"))
	for _, test := range []struct {
		cookie filo.Cookie
		client net.Addr
		host   string
		field  string
		warned bool
	}{
		{filo.Cookie{Name: "a", Value: "1", Secure: true}, tcp, "example.com", "", true},
		{filo.Cookie{Name: "a", Value: "1", Secure: true}, tcp, "192.168.1.7:8080", "", true},
		{filo.Cookie{Name: "a", Value: "1", Secure: true}, tcp, "example.com", "X-Forwarded-Proto: http", true},
		{filo.Cookie{Name: "a", Value: "1", Secure: true}, tcp, "example.com", "X-Forwarded-Proto: HTTPS", false},
		{filo.Cookie{Name: "a", Value: "1", Secure: true}, tcp, "example.com", `Forwarded: for=192.0.2.9;proto="https"`, false},
		{filo.Cookie{Name: "a", Value: "1", Secure: true}, tcp, "LOCALHOST.:8080", "", false},
		{filo.Cookie{Name: "a", Value: "1", Secure: true}, tcp, "app.localhost", "", false},
		{filo.Cookie{Name: "a", Value: "1", Secure: true}, tcp, "127.0.0.2:80", "", false},
		{filo.Cookie{Name: "a", Value: "1", Secure: true}, tcp, "[::1]:80", "", false},
		{filo.Cookie{Name: "a", Value: "1", Secure: true}, &net.UnixAddr{Name: "@", Net: "unix"}, "example.com", "", false},
		{filo.Cookie{Name: "a", Value: "1", Secure: true, MaxAge: -1}, tcp, "example.com", "", false},
		{filo.Cookie{Name: "a", Value: "1"}, tcp, "example.com", "", false},
	} {
		log := new(filotest.Log)
		s := servertest.NewServer(t, &filo.Server{Logger: log.Logger(), Handler: func(c *filo.Ctx) error {
			return c.Response.SetCookie(&test.cookie)
		}})
		var fields []string
		if test.field != "" {
			fields = append(fields, test.field)
		}
		want := 0
		if test.warned {
			want = 1
		}
		for range 2 {
			s.DoFrom(t, test.client, "GET http://"+test.host+"/login", fields...)
		}
		if got := log.Lines("browsers drop a Secure cookie"); len(got) != want || test.warned && !strings.Contains(got[0], "path=/login") {
			t.Errorf("%s from %v, %q: logged %q", test.host, test.client, test.field, got)
		}
	}
}

// If a handler refuses a request but forgets to return, the client gets the content nevertheless. Builds with the race detector log this
// mistake once. It isn't a mistake to set a status and then send a page, or to replace a rendered error with another answer.
func TestReplacedAnswer(t *testing.T) {
	refuse := func(c *filo.Ctx) { c.Text(401, "log in first") }
	for name, test := range map[string]struct {
		handler filo.Handler
		warned  bool
	}{
		"text":          {func(c *filo.Ctx) error { refuse(c); return c.Text(200, "secret") }, true},
		"JSON":          {func(c *filo.Ctx) error { c.JSON(403, "no"); return c.JSON(200, "secret") }, true},
		"a bare status": {func(c *filo.Ctx) error { c.Response.SetStatus(401); return c.HTML(200, "secret") }, true},
		"no content":    {func(c *filo.Ctx) error { refuse(c); return c.NoContent() }, true},
		"a redirect":    {func(c *filo.Ctx) error { refuse(c); return c.Redirect(303, "/secret") }, true},
		"a file":        {func(c *filo.Ctx) error { refuse(c); return c.File("warnings_test.go") }, true},
		"a stream": {func(c *filo.Ctx) error {
			refuse(c)
			_, err := c.Stream().WriteString("secret")
			return err
		}, true},
		"another refusal":     {func(c *filo.Ctx) error { refuse(c); return c.Text(404, "not here") }, false},
		"an error":            {func(c *filo.Ctx) error { refuse(c); return filo.Error(403, "") }, false},
		"returned":            {func(c *filo.Ctx) error { return c.Text(401, "log in first") }, false},
		"an answer, then 401": {func(c *filo.Ctx) error { c.Text(200, "half"); return c.Text(401, "log in first") }, false},
		"a page for a status": {func(c *filo.Ctx) error { c.Response.SetStatus(404); return c.File("warnings_test.go") }, false},
		"an error's place": {func(c *filo.Ctx) error {
			c.RenderError(filo.Error(404, ""))
			return c.Text(200, "the page of all unknown paths")
		}, false},
	} {
		log := new(filotest.Log)
		r := router.New()
		r.GET("/users/{id}", test.handler)
		s := servertest.NewServer(t, &filo.Server{Logger: log.Logger(), Handler: r.Serve})
		for range 2 {
			s.Do(t, "GET /users/7")
		}
		want := 0
		if race.Enabled && test.warned {
			want = 1
		}
		got := log.Lines("a return may be missing")
		if len(got) != want || want > 0 && !strings.Contains(got[0], `path=/users/7 route="GET /users/{id}"`) {
			t.Errorf("%s: logged %q", name, got)
		}
	}
}

// An inline route that blocks delays other connections. The server logs this once, with the route.
func TestBlockingInline(t *testing.T) {
	filotest.NeedLoops(t)
	log := new(filotest.Log)
	r := router.New()
	// The sleep is so long that the monitor takes the leader's seat away in most calls, even on a busy machine.
	r.GET("/blocks", func(c *filo.Ctx) error { time.Sleep(30 * time.Millisecond); return c.NoContent() }).Inline()
	s := filotest.Serve(t, &filo.Server{Handler: r.Serve, Logger: log.Logger(), Leaders: 1}, filotest.Listen(t, "tcp", "127.0.0.1:0"))
	c := s.Dial(t)
	for deadline := time.Now().Add(time.Minute); len(log.Lines("an Inline handler blocks")) == 0; {
		if time.Now().After(deadline) {
			t.Fatalf("nothing was said of a handler that blocks: %+v", s.Stats().Classes)
		}
		c.Get("/blocks")
		c.Want(204, "", false)
	}
	for range 20 { // the warning isn't repeated
		c.Get("/blocks")
		c.Want(204, "", false)
	}
	if got := log.Lines("an Inline handler blocks"); len(got) != 1 || !strings.Contains(got[0], `route="GET /blocks"`) {
		t.Errorf("logged %q", got)
	}
}
