//go:build !linux

package main

import (
	"errors"
	"runtime"
)

// possible fails, since the measurement needs Linux.
func possible(int) error {
	return errors.New("filo's event loop, and the /proc that memory is read from, are Linux's: there are none on " + runtime.GOOS)
}
