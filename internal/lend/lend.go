// Package lend provides reusable buffers: for handlers that read large bodies, and for copying in the server. Builds with the race detector overwrite
// a handler's buffer when it is returned, and don't reuse it, so that tests find code that still uses the buffer.
package lend

import "github.com/filohttp/filo/internal/race"

// Poison overwrites returned memory in builds with the race detector. In other builds it does nothing.
func Poison(b []byte) {
	if race.Enabled {
		for i := range b {
			b[i] = 0xDB
		}
	}
}
