package http1

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The line of each status is status-line = HTTP-version SP status-code SP [ reason-phrase ] CRLF (RFC 9112, section 4).
func TestStatusLines(t *testing.T) {
	form := regexp.MustCompile(`^HTTP/1\.1 (\d{3}) ([A-Za-z0-9 '-]+)\r\n$`)
	for status := 100; status < 600; status++ {
		line := string(AppendStatusLine([]byte("before"), status))
		parts := form.FindStringSubmatch(strings.TrimPrefix(line, "before"))
		if parts == nil || parts[1] != strconv.Itoa(status) || parts[2] != StatusText(status) {
			t.Errorf("the line of %d is %q", status, line)
		}
	}
}

// The reason phrases are those of the registry. Some of them have changed there since they were added to net/http.
func TestStatusTexts(t *testing.T) {
	changed := map[int]string{413: "Content Too Large", 414: "URI Too Long", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}
	unregistered := map[int]bool{418: true, 510: true} // reserved; obsolete
	for status := 100; status < 600; status++ {
		text, known := statusTexts[status]
		want := http.StatusText(status)
		if newer, ok := changed[status]; ok {
			want = newer
		}
		switch {
		case unregistered[status]:
			if known {
				t.Errorf("%d has a text, %q", status, text)
			}
		case text != want:
			t.Errorf("the text of %d is %q, want %q", status, text, want)
		}
		if !known && StatusText(status) != "Status "+strconv.Itoa(status) {
			t.Errorf("the text of %d is %q", status, StatusText(status))
		}
	}
}

// "All 1xx, 204 and 304 responses do not include content" (RFC 9110, section 6.4.1), and a 205 must not have any (section 15.3.6).
func TestBodyAllowed(t *testing.T) {
	for status := 100; status < 600; status++ {
		want := status >= 200 && status != 204 && status != 205 && status != 304
		if BodyAllowed(status) != want {
			t.Errorf("BodyAllowed(%d) isn't %t", status, want)
		}
	}
}

func TestStatusLineAllocations(t *testing.T) {
	buffer := make([]byte, 0, 100)
	for _, status := range []int{200, 404, 503} {
		if n := testing.AllocsPerRun(100, func() { buffer = AppendStatusLine(buffer[:0], status) }); n != 0 {
			t.Errorf("%d: %v allocations, want 0", status, n)
		}
	}
}
