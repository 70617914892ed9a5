//go:build race

package websocket_test

const raceEnabled = true
