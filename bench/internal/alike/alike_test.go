package alike

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/filohttp/filo/bench/internal/row"
)

func answer(server, kind, body string) Answer {
	return Answer{200, []byte(body), http.Header{"Server": {server}, "Content-Type": {kind}, "Date": {"x"}}, 0}
}

func TestCompare(t *testing.T) {
	r := &row.Row{Requests: []row.Request{{Target: "/"}}}
	varied := &row.Row{Requests: r.Requests, Varies: []string{"Content-Type"}}
	first := []Answer{answer("bench", "text/plain", "hello")}
	another := first[0]
	another.Header = http.Header{"Server": {"bench"}, "Content-Type": {"text/plain"}, "Date": {"y"}, "X-More": {"1"}}
	for _, c := range []struct {
		name  string
		row   *row.Row
		other Answer
		may   []string
		want  string // part of the error
	}{
		{"the same", r, answer("bench", "text/plain", "hello"), nil, ""},
		{"another body", r, answer("bench", "text/plain", "hello!"), nil, `"hello!"`},
		{"another field", r, answer("bench", "text/html", "hello"), nil, "Content-Type"},
		{"a field that may differ in the row", varied, answer("bench", "text/html", "hello"), nil, ""},
		{"a field that may differ by the server", r, answer("nginx", "text/plain", "hello"), []string{"Server"}, ""},
		{"one field more", r, another, nil, "X-More"},
		{"one field more that may be there", r, another, []string{"X-More"}, ""},
	} {
		err := Compare(c.row, first, []Answer{c.other}, c.may...)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestFetch(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			w.Write([]byte("good"))
		case "/lost":
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	good := row.Request{Target: "/good", Want: row.Want{Body: []byte("good")}}
	for _, c := range []struct {
		name     string
		requests []row.Request
		want     string
	}{
		{"two requests", []row.Request{good, good}, ""},
		{"a status of 404", []row.Request{good, {Target: "/lost"}}, "404"},
		{"a body that isn't wanted", []row.Request{{Target: "/good", Want: row.Want{Body: []byte("bad")}}}, "bad"},
	} {
		answers, err := Fetch(s.URL, &row.Row{Requests: c.requests})
		switch {
		case c.want == "" && (err != nil || len(answers) != len(c.requests) || string(answers[0].Body) != "good"):
			t.Errorf("%s: %v, %v", c.name, answers, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
