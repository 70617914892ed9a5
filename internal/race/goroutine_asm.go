//go:build race && (amd64 || arm64)

package race

// goroutine returns the address where the runtime keeps the goroutine. No other goroutine has this address before this one ends.
func goroutine() uintptr
