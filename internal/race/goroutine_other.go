//go:build race && !(amd64 || arm64)

package race

// goroutine returns 0: on this platform goroutines can't be told apart, so ranks aren't checked.
func goroutine() uintptr { return 0 }
