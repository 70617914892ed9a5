// Package lend has the memory that a server lends for a while: to its handlers for large bodies, and to itself to copy through. Builds
// with the race detector overwrite what handlers had when it is taken back, and don't lend it again, so that their tests show who keeps
// something too long.
package lend

import "github.com/filohttp/filo/internal/race"

// Poison overwrites memory that was lent, in builds with the race detector. It does nothing in others.
func Poison(b []byte) {
	if race.Enabled {
		for i := range b {
			b[i] = 0xDB
		}
	}
}
