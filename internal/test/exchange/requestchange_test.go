package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

// describeRequest returns everything that a request's methods return about its method and target.
func describeRequest(c *filo.Ctx) string {
	uri := c.Request.URI()
	return strings.Join([]string{c.Method(), c.Request.Target(), c.Path(), uri.RawPath(), uri.RawQuery(), c.Query("q"),
		c.Host(), uri.Host(), uri.String()}, " | ")
}

func TestSetTarget(t *testing.T) {
	for _, test := range []struct {
		sentence, request, target, want string
	}{
		{"path and query are replaced", "GET /a%20b?q=1", "/c%20d?q=2",
			"GET | /c%20d?q=2 | /c d | /c%20d | q=2 | 2 | a.test | a.test | http://a.test/c%20d?q=2"},
		{"a target without a query has none", "GET /a?q=1", "/b",
			"GET | /b | /b | /b |  |  | a.test | a.test | http://a.test/b"},
		{"the host of a target in absolute-form stays", "GET http://b.test/a?q=1", "/b?q=2",
			"GET | /b?q=2 | /b | /b | q=2 | 2 | b.test | b.test | http://b.test/b?q=2"},
		{"an absolute-form without a path gets one", "GET http://b.test", "/b",
			"GET | /b | /b | /b |  |  | b.test | b.test | http://b.test/b"},
		{"two slashes are no authority", "GET /a", "//b.test/c",
			"GET | //b.test/c | //b.test/c | //b.test/c |  |  | a.test | a.test | http://a.test//b.test/c"},
		{"a target must begin with a slash", "GET /a?q=1", "b", "400"},
		{"a target isn't empty", "GET /a?q=1", "", "400"},
		{"absolute-form would change the host", "GET /a", "http://b.test/", "400"},
		{"a space would be seen as the target's end by the next server", "GET /a", "/b HTTP/1.1", "400"},
		{"line breaks make another request", "GET /a", "/b\r\nX: y", "400"},
		{"percent-encoding is well-formed", "GET /a", "/%4", "400"},
		{"a fragment is no part of a target", "GET /a", "/a#b", "400"},
		{"bytes outside ASCII are encoded", "GET /a", "/ä", "400"},
		{"CONNECT has no path", "CONNECT a.test:443", "/b", "400"},
	} {
		before, after := "", ""
		s := servertest.New(t, func(c *filo.Ctx) error {
			before = describeRequest(c)
			err := c.Request.SetTarget(test.target)
			after = describeRequest(c)
			return err
		})
		s.Raw(t, test.request+" HTTP/1.1\r\nHost: a.test\r\n\r\n")
		want := test.want
		if want == "400" {
			want = before
		}
		if after != want {
			t.Errorf("%s: got  %s\nwant %s", test.sentence, after, want)
		}
	}
}

// The error of a refused change has a status, with which a handler can answer the client.
func TestChangeErrors(t *testing.T) {
	for _, test := range []struct {
		sentence, request string
		change            func(*filo.Request) error
		status            int
	}{
		{"a target in another form", "GET /", func(r *filo.Request) error { return r.SetTarget("x") }, 400},
		{"CONNECT has no path", "CONNECT a:1", func(r *filo.Request) error { return r.SetTarget("/") }, 400},
		{"a method is a token", "GET /", func(r *filo.Request) error { return r.SetMethod("A B") }, 400},
		{"a method isn't empty", "GET /", func(r *filo.Request) error { return r.SetMethod("") }, 400},
		{"line breaks make another request", "GET /", func(r *filo.Request) error { return r.SetMethod("A\r\n") }, 400},
		{"no longer than the server takes", "GET /", func(r *filo.Request) error { return r.SetMethod(strings.Repeat("A", 33)) }, 501},
		{"CONNECT's target has another form", "GET /", func(r *filo.Request) error { return r.SetMethod("CONNECT") }, 400},
		{"CONNECT's target has another form", "CONNECT a:1", func(r *filo.Request) error { return r.SetMethod("GET") }, 400},
	} {
		s := servertest.New(t, func(c *filo.Ctx) error {
			before := describeRequest(c)
			err := test.change(&c.Request)
			var httpError *filo.HTTPError
			if !errors.As(err, &httpError) || httpError.Status != test.status {
				t.Errorf("%s: %v, want a status of %d", test.sentence, err, test.status)
			}
			if after := describeRequest(c); after != before {
				t.Errorf("%s: %s became %s", test.sentence, before, after)
			}
			return nil
		})
		s.Raw(t, test.request+" HTTP/1.1\r\nHost: a\r\n\r\n")
	}
}

// RFC 9110, section 9.3.2: an answer has no content if the client sent HEAD, whatever the handler sets the method to. The client would
// mistake content after HEAD for the next answer, or the next answer for missing content.
func TestSetMethodKeepsFraming(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		sent := c.Method()
		if err := c.Request.SetMethod(c.Query("m")); err != nil {
			return err
		}
		return c.Text(200, "<"+sent+" as "+c.Method()+">")
	})
	for _, test := range []struct{ sent, changed, want string }{
		{"POST", "HEAD", "<POST as HEAD>"},
		{"POST", "PURGE", "<POST as PURGE>"},
		{"HEAD", "GET", ""},
	} {
		request := test.sent + " /?m=" + test.changed + " HTTP/1.1\r\nHost: a\r\n\r\n"
		answers := s.Raw(t, request+request)
		if got := strings.Count(answers, "HTTP/1.1 200"); got != 2 {
			t.Errorf("%s as %s: %d answers to two requests: %q", test.sent, test.changed, got, answers)
		}
		if _, body, _ := strings.Cut(answers, "\r\n\r\n"); !strings.HasPrefix(body, test.want+"HTTP/1.1") {
			t.Errorf("%s as %s: %q", test.sent, test.changed, answers)
		}
	}
}

// Bytes that were borrowed before a change stay valid until the handler returns, and a change doesn't outlive its request.
func TestChangeKeepsWhatIsBorrowed(t *testing.T) {
	seen := 0
	s := servertest.New(t, func(c *filo.Ctx) error {
		if seen++; seen == 2 {
			if got, want := describeRequest(c), "GET | /plain | /plain | /plain |  |  | a | a | http://a/plain"; got != want {
				t.Errorf("the next request is %s", got)
			}
			return nil
		}
		r := &c.Request
		borrowed := [][]byte{r.MethodBytes(), r.TargetBytes(), c.PathBytes(), r.Query().GetBytes("q"), r.HostBytes()}
		for i := range 100 {
			if err := r.SetMethod(fmt.Sprint("M", i)); err != nil {
				t.Error(err)
			}
			target := fmt.Appendf(nil, "/%%20%d?q=%%20%d", i, i)
			if err := r.SetTargetBytes(target); err != nil {
				t.Error(err)
			}
			clear(target) // it was copied
			borrowed = append(borrowed, r.MethodBytes(), r.TargetBytes(), c.PathBytes(), r.Query().GetBytes("q"))
		}
		want := "GET /a%20b?q=%31 /a b 1 a"
		for i := range 100 {
			want += fmt.Sprintf(" M%d /%%20%d?q=%%20%d / %d  %d", i, i, i, i, i)
		}
		got := make([]string, len(borrowed))
		for i, b := range borrowed {
			got[i] = string(b)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("borrowed bytes were changed: %q", got)
		}
		return nil
	})
	s.Raw(t, "GET /a%20b?q=%31 HTTP/1.1\r\nHost: a\r\n\r\nGET /plain HTTP/1.1\r\nHost: a\r\n\r\n")
	if seen != 2 {
		t.Errorf("%d requests were handled", seen)
	}
}

func BenchmarkSetTarget(b *testing.B) {
	b.ReportAllocs()
	end := []byte("the end")
	s := servertest.New(b, func(c *filo.Ctx) error {
		if err := c.Request.SetTarget("/another?q=1"); err != nil {
			return err
		}
		return c.BytesNoCopy(200, "text/plain", end)
	})
	c := s.Dial(b)
	in, out := []byte("GET /one HTTP/1.1\r\nHost: a\r\n\r\n"), make([]byte, 4096)
	for range b.N {
		if _, err := c.Write(in); err != nil {
			b.Fatal(err)
		}
		for n := 0; !bytes.HasSuffix(out[:n], end); {
			m, err := c.Read(out[n:])
			if err != nil {
				b.Fatal(err)
			}
			n += m
		}
	}
}
