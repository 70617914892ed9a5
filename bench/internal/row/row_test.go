package row

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/filohttp/filo/bench/internal/database"
	"github.com/filohttp/filo/bench/internal/site"
)

// Each row has a unique name, peers to measure, and requests to send.
func TestAll(t *testing.T) {
	ids, titles := map[string]bool{}, map[string]bool{}
	for _, r := range All() {
		if ids[r.ID] || titles[r.Title] || r.ID == "" || strings.ContainsAny(r.ID, " ,/") {
			t.Errorf("%q %q isn't a name of its own", r.ID, r.Title)
		}
		ids[r.ID], titles[r.Title] = true, true
		if len(r.Requests) == 0 || r.Connections < 1 || r.Seconds < 1 {
			t.Errorf("%s: %d requests, %d connections, %d seconds", r.ID, len(r.Requests), r.Connections, r.Seconds)
		}
		for _, name := range Core() {
			if !slices.Contains(r.Peers, name) && (r.Streams == 0 || name != "fasthttp") {
				t.Errorf("%s isn't measured of %s", r.ID, name)
			}
		}
		for _, name := range r.More {
			if slices.Contains(r.Peers, name) {
				t.Errorf("%s: %s is there twice", r.ID, name)
			}
		}
		if found, err := Find(r.ID); err != nil || found.Title != r.Title {
			t.Errorf("%s is found as %q, %v", r.ID, found.Title, err)
		}
	}
	for _, id := range slices.Concat(Quick, HTTP2, Grown) {
		if !ids[id] {
			t.Errorf("%s is in a size, and isn't there", id)
		}
	}
}

func TestRouterRowHasAllRoutes(t *testing.T) {
	r, err := Find("router-203")
	if err != nil || len(r.Requests) != 203 {
		t.Errorf("%d requests, %v", len(r.Requests), err)
	}
}

// Each row of the table that is requested exists. The answers have nearly the same size, so that the sum of their sizes can be checked.
func TestDatabaseRow(t *testing.T) {
	r, err := Find("db")
	if err != nil || !r.Database || len(r.Requests) != 100 {
		t.Fatalf("%d requests, a database: %t, %v", len(r.Requests), r.Database, err)
	}
	for _, request := range r.Requests {
		var p database.Product
		if err := json.Unmarshal(request.Want.Body, &p); err != nil {
			t.Fatal(err)
		}
		if request.Target != fmt.Sprintf("/db?id=%d", p.ID) || p.ID < 1 || p.ID > database.Rows || p.Name == "" {
			t.Errorf("the answer to %s is %+v", request.Target, p)
		}
		if n := len(request.Want.Body) - len(r.Requests[0].Want.Body); n < -3 || n > 3 {
			t.Errorf("the answer to %s is %d bytes longer than the first one", request.Target, n)
		}
	}
}

func TestSite(t *testing.T) {
	if n := len(site.LargeJSON()); n < 20_000 || n > 21_000 {
		t.Errorf("the large document has %d bytes", n)
	}
	routes := &site.Flags{Routes: true}
	for route, names := range routes.GitHub(true) {
		if strings.Count(route.Path, ":") != len(names) || strings.Contains(route.Path, "{") {
			t.Errorf("the wildcards of %s are %q", route.Path, names)
		}
	}
}
