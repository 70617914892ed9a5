//go:build race && (amd64 || arm64)

package race

// goroutine returns the address of the runtime's g of the calling goroutine. No other goroutine has this address before this goroutine ends.
func goroutine() uintptr
