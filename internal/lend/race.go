//go:build race

package lend

// RaceEnabled says whether this is a build with the race detector. A request's memory is unusable there once its handler has
// returned.
const RaceEnabled = true
