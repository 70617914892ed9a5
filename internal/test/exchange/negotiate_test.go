package exchange

import (
	"fmt"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

func TestNegotiate(t *testing.T) {
	both := []string{"application/json", "text/html"}
	for _, test := range []struct {
		why    string
		accept []string
		offers []string
		want   string
	}{
		{"without Accept anything is acceptable", nil, both, "application/json"},
		{"an empty field says nothing", []string{""}, both, "application/json"},
		{"the offers' order decides between equals", []string{"text/html, application/json"}, both, "application/json"},
		{"the weight decides", []string{"text/html, application/json;q=0.9"}, both, "text/html"},
		{"weights have three digits", []string{"text/html;q=0.899, application/json;q=0.9"}, both, "application/json"},
		{"the most specific range has precedence", []string{"text/html;q=0.2, text/*;q=0.9, */*;q=0.3"}, both, "application/json"},
		{"a range for the type", []string{"text/*"}, both, "text/html"},
		{"a range for all", []string{"image/png, */*;q=0.1"}, both, "application/json"},
		{"nothing is acceptable", []string{"image/png"}, both, ""},
		{"q=0 is not acceptable", []string{"*/*, application/json;q=0"}, both, "text/html"},
		{"several fields are one list", []string{"image/png", "text/html"}, both, "text/html"},
		{"case doesn't matter", []string{"TEXT/HTML; Q=1.000"}, both, "text/html"},
		{"a parameter that the offer says nothing about doesn't matter", []string{"text/html;charset=utf-8"}, both, "text/html"},
		{"one that it has otherwise does", []string{"text/html;level=1"}, []string{"text/html; level=2"}, ""},
		{"a range without it is nearer", []string{"text/html;level=1;q=0.1, text/html;q=0.4, application/json;q=0.3"}, both, "text/html"},
		{"the same parameter is more specific", []string{"text/html;level=1, text/html;q=0.4"}, []string{"text/html", "text/html; level=1"}, "text/html; level=1"},
		{"a comma in quotes is none", []string{`text/plain;x="a, text/html", application/json;q=0.1`}, both, "application/json"},
		{"a quote in quotes", []string{`text/plain;x="\", text/html", application/json;q=0.1`}, both, "application/json"},
		{"an offer's parameter may have a separator in quotes", []string{`text/html;x="a;b", application/json;q=0.5`}, []string{"application/json", `text/html; x="a;b"`}, `text/html; x="a;b"`},
		{"and what is in quotes is no parameter", []string{"text/html;level=1"}, []string{`text/html; x="a;level=2;b"`}, `text/html; x="a;level=2;b"`},
		{"accept-ext comes behind the weight", []string{"text/html;q=0.5;ext=1, application/json;q=0.6"}, both, "application/json"},
		{"a browser", []string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, both, "text/html"},
		{"what isn't a media range is passed over", []string{"html, /, text/, /html;q=1, text/html;q=0.1"}, both, "text/html"},
		{"a weight that isn't one takes its range with it", []string{"text/html;q=2, text/html;q=1.5, text/html;q=0.5555, text/html;q=x, application/json;q=0.1"}, both, "application/json"},
		{"only nonsense is no wish", []string{",;,q=1"}, both, "application/json"},
		{"no offers", []string{"*/*"}, nil, ""},
	} {
		var lines strings.Builder
		for _, value := range test.accept {
			fmt.Fprintf(&lines, "Accept: %s\r\n", value)
		}
		s := servertest.New(t, func(c *filo.Ctx) error {
			return c.Text(200, "<"+c.Negotiate(test.offers...)+c.Negotiate()+">")
		})
		answer := s.Raw(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+lines.String()+"\r\n")
		if !strings.HasSuffix(answer, "<"+test.want+">") || strings.Count(answer, "Vary: Accept\r\n") != 1 {
			t.Errorf("%s: Accept %q: got %s; want %q and one Vary", test.why, test.accept, answer, test.want)
		}
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add("text/html;q=0.5, */*;q=0.1;x=\"a,b\"")
	f.Add("a/b;q=;c,\"")
	f.Fuzz(func(t *testing.T, accept string) {
		s := servertest.New(t, func(c *filo.Ctx) error {
			c.Request.Header.Set("Accept", accept)
			if got := c.Negotiate("a/b", "text/html"); got != "" && got != "a/b" && got != "text/html" {
				t.Errorf("Accept %q: %q was not on offer", accept, got)
			}
			return nil
		})
		s.Raw(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	})
}
