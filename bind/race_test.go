//go:build race

package bind_test

const raceEnabled = true
