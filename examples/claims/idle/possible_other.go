//go:build !linux

package main

import (
	"errors"
	"runtime"
)

// possible says that what is measured is Linux's.
func possible(int) error {
	return errors.New("filo's event loop, and the /proc that memory is read from, are Linux's: there are none on " + runtime.GOOS)
}
