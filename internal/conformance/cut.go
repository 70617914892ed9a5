package conformance

import (
	"net"
	"time"
)

const (
	// CutAll is the length of the longest request that is cut in two at every byte. A longer request is long only to reach a limit: it is cut
	// at every byte near its beginning and its end, and at some bytes in between.
	CutAll   = 400
	cutEnds  = 120
	cutsElse = 60

	// cutPause is the time between the two parts of a cut request. If the pause is too short, the server may read both parts at once. A
	// correct server still passes then, so the pause can't cause a false failure.
	cutPause = time.Millisecond
)

// Cuts returns the offsets at which a request of n bytes is cut.
func Cuts(n int) []int {
	var places []int
	for i, step := 1, 1; i < n; i += step {
		places = append(places, i)
		step = 1
		if n > CutAll && i >= cutEnds && i < n-cutEnds {
			step = min(max(1, (n-2*cutEnds)/cutsElse), n-cutEnds-i)
		}
	}
	return places
}

// readWaiter is a connection that can wait until its peer has read everything that was sent.
type readWaiter interface{ WaitRead() error }

// Exact reports whether cuts on conn are exact: conn can wait until its peer has read the first part before the second part is sent.
func Exact(conn net.Conn) bool {
	_, exact := conn.(readWaiter)
	return exact
}

// Pause gives the peer time to read what was sent.
func Pause(conn net.Conn) {
	if w, ok := conn.(readWaiter); ok {
		w.WaitRead()
		return
	}
	time.Sleep(cutPause)
}
