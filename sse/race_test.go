//go:build race

package sse_test

// raceEnabled says that all is several times slower.
const raceEnabled = true
