package debug_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/debug"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// The page of an inside server lists a handler that waits, with its route (escaped) and age, but without the path and the query.
func TestRequests(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{})
	r := router.New()
	r.GET("/<b>/{id}", func(c *filo.Ctx) error {
		close(begun)
		<-release
		return c.NoContent()
	}).Offload()
	main := servertest.NewServer(t, &filo.Server{Handler: r.Serve})
	pages := mounted(t, debug.Options{Server: main.Config})
	if got := pages.Do(t, "GET /debug/requests"); got.Status != 200 || !strings.Contains(got.Body, "Nothing runs") {
		t.Errorf("nothing runs: %d %s", got.Status, got.Body)
	}
	client := main.Dial(t)
	if _, err := io.WriteString(client, servertest.Request("GET /%3Cb%3E/secret?token=secret", "", "Connection: close")); err != nil {
		t.Fatal(err)
	}
	<-begun
	got := pages.Do(t, "GET /debug/requests")
	if !strings.Contains(got.Body, "GET /&lt;b&gt;/{id}") || !strings.Contains(got.Body, "oldest ") || strings.Contains(got.Body, "secret") ||
		strings.Contains(got.Body, "/<b>/") ||
		!strings.Contains(got.Body, `href="pprof/goroutine?debug=1"`) || got.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("the page is %s", got.Body)
	}
	got = pages.Do(t, "GET /debug/requests?format=json")
	var page struct {
		Total    int
		Routes   []struct{ Route, State string }
		Requests []struct {
			Route string
			Age   *float64 `json:"age_seconds"`
		}
	}
	if err := json.Unmarshal([]byte(got.Body), &page); err != nil || page.Total != 1 || len(page.Routes) != 1 || page.Routes[0].State != "handler" ||
		len(page.Requests) != 1 || page.Requests[0].Route != "GET /<b>/{id}" || page.Requests[0].Age == nil {
		t.Errorf("as JSON: %v, %s", err, got.Body)
	}
	close(release)
	io.Copy(io.Discard, client)
	client.Close()
}

// Without Options.Server the pages show the server that serves them.
func TestRequestsOfTheSameServer(t *testing.T) {
	if got := mounted(t, debug.Options{}).Do(t, "GET /debug/requests"); got.Status != 200 || !strings.Contains(got.Body, "GET /requests") {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}
