package conformance

import (
	"net"
	"time"
)

const (
	// CutAll is the length of the longest request that is cut in two at every byte. Longer requests, which are long only to reach a limit,
	// are cut at every byte near their ends and at some in between.
	CutAll   = 400
	cutEnds  = 120
	cutsElse = 60

	// cutPause is how long a socket gets to deliver one part before the next is sent. After too short a pause the server may read both
	// parts at once, which no correct server fails for.
	cutPause = time.Millisecond
)

// Cuts returns where n bytes are cut.
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

// readWaiter is a connection that knows when its peer has read everything that was sent.
type readWaiter interface{ WaitRead() error }

// Exact reports whether cuts are exact on a connection, since it knows when its peer has read everything that was sent.
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
