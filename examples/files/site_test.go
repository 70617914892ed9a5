package main

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
)

func TestSite(t *testing.T) {
	base := startNew(t)
	uploadWhole(t, base, "page.html", "<script>alert(1)</script>")
	uploadWhole(t, base, "film.mp4", noise(1000))
	for _, tc := range []struct {
		name, method, path string
		fields             []string
		status             int
		field, value       string
	}{
		{"the page loads nothing from elsewhere", "GET", "/", nil, 200, "Content-Security-Policy", pagePolicy},
		{"its script is one", "GET", "/files.js", nil, 200, "Content-Type", "text/javascript; charset=utf-8"},
		{"scripts that were uploaded don't run", "GET", "/files/page.html", nil, 200, "Content-Security-Policy", filePolicy},
		{"no type is guessed", "GET", "/files/page.html", nil, 200, "X-Content-Type-Options", "nosniff"},
		{"films are shown from anywhere", "GET", "/files/film.mp4", []string{"Range", "bytes=100-199"}, 206, "Content-Range", "bytes 100-199/1000"},
		{"ranges beyond the end aren't there", "GET", "/files/film.mp4", []string{"Range", "bytes=1000-"}, 416, "Content-Range", "bytes */1000"},
		{"a list without scripts", "GET", "/files/", nil, 200, "Content-Type", "text/html; charset=utf-8"},
		{"what isn't there", "GET", "/files/other", nil, 404, "", ""},
		{"what isn't there either", "GET", "/other", nil, 404, "", ""},
		{"another site's page deletes nothing", "DELETE", "/files/film.mp4", []string{"Origin", "http://evil.test"}, 403, "", ""},
		{"a file is deleted", "DELETE", "/files/film.mp4", nil, 204, "", ""},
		{"at once", "GET", "/files/film.mp4", nil, 404, "", ""},
		{"and once", "DELETE", "/files/film.mp4", nil, 404, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer, text := request(t, tc.method, base+tc.path, nil, tc.fields...)
			expect(t, answer, text, tc.status)
			if got := answer.Header.Get(tc.field); got != tc.value {
				t.Errorf("%s is %q, want %q", tc.field, got, tc.value)
			}
		})
	}
}

// Clients of the event stream are told of files that are added and removed.
func TestEvents(t *testing.T) {
	base, stop := start(t, t.TempDir())
	answer, err := http.Get(base + "/api/events")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	uploadWhole(t, base, "new", "x")
	request(t, "DELETE", base+"/files/new", nil)
	lines := bufio.NewScanner(answer.Body)
	for heard := 0; heard < 2 && lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "data: changed" {
			heard++
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the events broke off: %v", err)
	}
	stop() // the open stream doesn't delay the shutdown
	for lines.Scan() {
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream's end isn't a clean one: %v", err)
	}
}
