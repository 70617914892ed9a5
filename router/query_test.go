package router_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// A route for QUERY answers only QUERY. Answers to other methods for its path list the accepted media types (RFC 10008).
func TestQUERY(t *testing.T) {
	r := router.New()
	echo := func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, string(body))
	}
	r.QUERY("/any", echo)
	g := r.Group("/g")
	g.QUERY("/{id}", echo, trace("m")).AcceptQuery("application/json", "text/*")
	g.GET("/{id}", show)
	r.Handle("QUERY /all", echo).AcceptQuery("*/*")
	r.QUERY("/tree/", echo).AcceptQuery("text/csv")
	const both = `"application/json", "text/*"`
	s := servertest.New(t, r.Serve)
	for _, c := range []struct {
		request, contentType string
		status               int
		allow, accept        string
	}{
		{"QUERY /any", "a/b", 200, "", ""},
		{"QUERY /any", "", 400, "", ""}, // section 2: "MUST fail the request if the Content-Type request field is missing"
		{"GET /any", "", 405, "OPTIONS, QUERY", ""},
		{"OPTIONS /any", "", 204, "OPTIONS, QUERY", ""},

		{"QUERY /g/1", "application/json", 200, "", both},
		{"QUERY /g/1", "Application/JSON ;charset=utf-8", 200, "", both},
		{"QUERY /g/1", "text/csv", 200, "", both},
		{"QUERY /g/1", "text/", 415, "", both},
		{"QUERY /g/1", "texts/csv", 415, "", both},
		{"QUERY /g/1", "application/jsonpath", 415, "", both},
		{"QUERY /g/1", "", 400, "", both},
		{"GET /g/1", "", 200, "", ""},
		{"POST /g/1", "text/csv", 405, "GET, HEAD, OPTIONS, QUERY", both},
		{"OPTIONS /g/1", "", 204, "GET, HEAD, OPTIONS, QUERY", both},

		{"QUERY /all", "a/b", 200, "", `"*/*"`},
		{"QUERY /all", "", 400, "", `"*/*"`},
		{"QUERY /tree", "text/csv", 308, "", ""},
		{"OPTIONS /tree", "", 204, "OPTIONS, QUERY", `"text/csv"`},
		{"query /any", "a/b", 405, "OPTIONS, QUERY", ""}, // methods are case-sensitive
	} {
		var fields []string
		if c.contentType != "" {
			fields = []string{"Content-Type: " + c.contentType}
		}
		got := s.DoBody(t, c.request, "select", fields...)
		if got.Status != c.status || got.Header.Get("Allow") != c.allow || got.Header.Get("Accept-Query") != c.accept {
			t.Errorf("%s with %q: %v, want %d, Allow %q, Accept-Query %q", c.request, c.contentType, got, c.status, c.allow, c.accept)
		}
		if query := strings.HasPrefix(c.request, "QUERY "); query && c.status == 200 && got.Body != "select" {
			t.Errorf("%s: %q", c.request, got.Body)
		} else if middle := query && strings.HasPrefix(c.request, "QUERY /g"); middle != strings.HasPrefix(traceOf(got), "m") {
			t.Errorf("%s: %q, want the route's middleware to see what the route refuses", c.request, traceOf(got))
		}
	}
}

func TestAcceptQueryMistakes(t *testing.T) {
	for _, types := range [][]string{
		{}, {""}, {"json"}, {"text/"}, {"/json"}, {"a/b", "*"}, {"*/json"}, {"te*/x"}, {"a/b;c=d"}, {" a/b"}, {"a/b, c/d"}, {`a/"b`}, {"a/b\r\nx: y"},
	} {
		r := router.New()
		if got := panicOf(func() { r.QUERY("/a", show).AcceptQuery(types...) }); !strings.HasPrefix(got, `router: AcceptQuery of pattern "QUERY /a" (registered at `) {
			t.Errorf("%q: %q", types, got)
		}
	}
	r := router.New()
	twice := r.QUERY("/a", show).AcceptQuery("a/b")
	for why, f := range map[string]func(){
		"twice":          func() { twice.AcceptQuery("a/b") },
		"another method": func() { r.POST("/a", show).AcceptQuery("a/b") },
		"every method":   func() { r.Any("/b", show).AcceptQuery("a/b") },
	} {
		if got := panicOf(f); !strings.Contains(got, "AcceptQuery") {
			t.Errorf("%s: %q", why, got)
		}
	}
}

// Accept-Query lists the media types of the most specific host's route, which is the one that answers.
func TestQUERYOfHosts(t *testing.T) {
	r := router.New()
	r.Handle("QUERY /", show).AcceptQuery("text/any")
	r.Handle("QUERY *.test/", show).AcceptQuery("text/star")
	r.Handle("QUERY a.test/", show).AcceptQuery("text/a")
	s := servertest.New(t, r.Serve)
	for host, want := range map[string]string{"a.test": "text/a", "b.test": "text/star", "other": "text/any"} {
		for _, method := range []string{"QUERY", "OPTIONS", "GET"} {
			got := s.Do(t, method+" http://"+host+"/x", "Content-Type: "+want)
			if accept := got.Header.Get("Accept-Query"); accept != strconv.Quote(want) || got.Status == 415 {
				t.Errorf("%s of %s: %d, Accept-Query %s, want %q", method, host, got.Status, accept, want)
			}
		}
	}
}
