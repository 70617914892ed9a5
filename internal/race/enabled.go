//go:build race

package race

// Enabled says whether this is a build with the race detector.
const Enabled = true
