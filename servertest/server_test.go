package servertest_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

func hello(c *filo.Ctx) error {
	return c.Text(200, "Hello, World!")
}

func TestClient(t *testing.T) {
	s := servertest.New(t, hello)
	for range 3 {
		answer, err := s.Client().Get(s.URL + "/hello")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != 200 || string(body) != "Hello, World!" {
			t.Errorf("got %s, %q, %v", answer.Status, body, err)
		}
	}
	if accepted := s.Config.Stats().ConnsAccepted; accepted != 1 {
		t.Errorf("%d connections for 3 requests, want 1 that is kept alive", accepted)
	}
}

func TestRaw(t *testing.T) {
	s := servertest.New(t, hello)
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, test := range []struct {
		name    string
		send    func(testing.TB, string) string
		request string
		want    int
	}{
		{"half-closed", s.Raw, request + request, 2},
		{"open", s.RawOpen, request + "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 2},
		{"nothing", s.Raw, "", 0},
	} {
		answers := test.send(t, test.request)
		if got := strings.Count(answers, "HTTP/1.1 200 OK\r\n"); got != test.want {
			t.Errorf("%s: %d answers, want %d: %q", test.name, got, test.want, answers)
		}
	}
}

func TestDial(t *testing.T) {
	s := servertest.New(t, hello)
	c := s.Dial(t)
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	status := make([]byte, len("HTTP/1.1 200 OK"))
	if _, err := io.ReadFull(c, status); err != nil || string(status) != "HTTP/1.1 200 OK" {
		t.Errorf("got %q, %v", status, err)
	}
}

// A server works, and ends, in a synctest bubble: its connections block durably there.
func TestInSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.New(t, func(c *filo.Ctx) error {
			time.Sleep(time.Second)
			return c.Text(200, "slept")
		})
		start := time.Now()
		answer, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v of the bubble's time, want 1s", took)
		}
	})
}

// A recorder is a testing.TB whose failures don't fail the test that made it.
type recorder struct {
	testing.TB
	cleanups []func()
	errors   int
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.errors++ }
func (r *recorder) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }

func (r *recorder) end() {
	for _, f := range r.cleanups {
		f()
	}
}

func TestReportsALeakedGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		tb := &recorder{TB: t}
		s := servertest.New(tb, func(c *filo.Ctx) error {
			go func() { <-release }()
			return c.NoContent()
		})
		s.Raw(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		tb.end()
		if tb.errors != 1 {
			t.Errorf("%d failures reported for a goroutine left behind, want 1", tb.errors)
		}
		close(release)
	})
}

func TestReportsAHandlerThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		tb := &recorder{TB: t}
		s := servertest.New(tb, func(c *filo.Ctx) error {
			<-release
			return nil
		})
		c := s.Dial(t)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		synctest.Wait()
		time.AfterFunc(7*time.Second, func() { close(release) })
		tb.end()
		if tb.errors != 1 {
			t.Errorf("%d failures reported for a handler that runs on, want 1", tb.errors)
		}
	})
}

// The client keeps cookies, Secure ones too, so that a test can log in.
func TestClientKeepsCookies(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		if c.Path() == "/login" {
			if err := c.Response.SetCookie(&filo.Cookie{Name: "__Host-session", Value: "ada", Path: "/", Secure: true, HttpOnly: true}); err != nil {
				return err
			}
			return c.Redirect(303, "/")
		}
		return c.Text(200, c.Request.Cookie("__Host-session"))
	})
	for _, path := range []string{"/login", "/"} {
		response, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(body) != "ada" {
			t.Errorf("%s: the cookie %q, error %v", path, body, err)
		}
	}
}
