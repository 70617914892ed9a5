// Package lend provides memory that is used for a while: for handlers that read large bodies, and for the server to copy through.
// Builds with the race detector overwrite a handler's memory when it is given back, and don't lend it again, so that their tests find
// code that keeps it too long.
package lend

import "github.com/filohttp/filo/internal/race"

// Poison overwrites memory that was lent, in builds with the race detector. In other builds it does nothing.
func Poison(b []byte) {
	if race.Enabled {
		for i := range b {
			b[i] = 0xDB
		}
	}
}
