// Package sitetest has tests that several examples share.
package sitetest

import (
	"net/http"
	"testing"
)

// Hosts tests that a site accepts its own names in Host, and refuses others. So a page of another site can't read from this site after its own name
// has been made to resolve to this site's address (DNS rebinding). A request for url must be answered with 200.
func Hosts(t *testing.T, url string) {
	t.Helper()
	for host, want := range map[string]int{"localhost": 200, "LOCALHOST:80": 200, "127.0.0.1": 200, "[::1]:80": 200, "evil.test": 421, "evil.test.": 421} {
		r, err := http.NewRequest("GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: got %d, want %d", host, response.StatusCode, want)
		}
	}
}
