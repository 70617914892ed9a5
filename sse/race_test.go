//go:build race

package sse_test

// raceEnabled says that the race detector makes the tests several times slower.
const raceEnabled = true
