package abuse

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Site serves the paths that attacks request.
type Site struct {
	calls, running, peak atomic.Int64
}

// Calls counts calls of all paths but / and /calls, and returns how many of them ran at once since the last call to Calls.
func (s *Site) Calls() (calls, peak int64) {
	return s.calls.Load(), s.peak.Swap(s.running.Load())
}

// Called counts a call that begins. It returns the function to call when the counted call ends.
func (s *Site) Called() func() {
	s.calls.Add(1)
	running := s.running.Add(1)
	for {
		peak := s.peak.Load()
		if running <= peak || s.peak.CompareAndSwap(peak, running) {
			break
		}
	}
	return func() { s.running.Add(-1) }
}

// FileSize is the size of /file, in bytes.
const FileSize = 16 << 20

var file = sync.OnceValue(func() string { return strings.Repeat(large, FileSize/len(large)) })

var large = strings.Repeat("0123456789abcdef", 64<<10)

// ServeHTTP answers a request.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/":
		io.WriteString(w, "Hello, World!")
		return
	case "/calls":
		calls, peak := s.Calls()
		fmt.Fprintln(w, calls, peak)
		return
	}
	defer s.Called()()
	switch r.URL.Path {
	case pathQuick:
		io.WriteString(w, "Hello, World!")
	case pathLarge:
		io.WriteString(w, large)
	case pathWait5:
		time.Sleep(5 * time.Millisecond)
	case pathWait1s:
		time.Sleep(time.Second)
	case pathStream:
		for {
			if _, err := io.WriteString(w, large); err != nil {
				return
			}
		}
	case pathFile:
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(file()))
	case pathBody:
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, n)
	default:
		http.NotFound(w, r)
	}
}
