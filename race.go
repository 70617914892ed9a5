//go:build race

package filo

// raceEnabled makes a request's memory unusable once its handler has returned, so that the race detector's runs show
// who keeps a Ctx or a borrowed slice too long.
const raceEnabled = true
