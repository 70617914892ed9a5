//go:build race

package middleware_test

const raceEnabled = true // the race detector makes a sync.Pool drop some of the values that are put into it
