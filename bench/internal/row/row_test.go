package row

import (
	"slices"
	"strings"
	"testing"

	"github.com/filohttp/filo/bench/internal/site"
)

// Rows have names of their own, somebody to measure, and something to ask.
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
	for _, id := range slices.Concat(Quick, HTTP2) {
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
