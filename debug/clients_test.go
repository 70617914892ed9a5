package debug_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/debug"
	"github.com/filohttp/filo/servertest"
)

// An open connection is on the page of an inside server, with its client's address and its request, and in the JSON form.
func TestClients(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{})
	main := servertest.NewServer(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		close(begun)
		<-release
		return c.NoContent()
	}})
	pages := mounted(t, debug.Options{Server: main.Config})
	if got := pages.Do(t, "GET /debug/clients"); got.Status != 200 || strings.Count(got.Body, "None.") != 4 {
		t.Errorf("no client has come: %d %s", got.Status, got.Body)
	}
	client := main.Dial(t)
	if _, err := io.WriteString(client, servertest.Request("GET /secret", "", "Connection: close")); err != nil {
		t.Fatal(err)
	}
	<-begun
	got := pages.Do(t, "GET /debug/clients")
	if !strings.Contains(got.Body, "1 open, 0 ended") || !strings.Contains(got.Body, "1 request<") || strings.Contains(got.Body, "secret") ||
		got.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("the page is %s", got.Body)
	}
	got = pages.Do(t, "GET /debug/clients?format=json")
	var page struct {
		Clients []struct {
			Client                string
			Connections, Requests int
			Refusals              *int
		}
	}
	if err := json.Unmarshal([]byte(got.Body), &page); err != nil || len(page.Clients) != 1 || page.Clients[0].Connections != 1 ||
		page.Clients[0].Requests != 1 || page.Clients[0].Refusals == nil {
		t.Errorf("as JSON: %v, %s", err, got.Body)
	}
	close(release)
	io.Copy(io.Discard, client)
	client.Close()
}
