//go:build !race

package filo

const raceEnabled = false
