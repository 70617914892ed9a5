// Package clock measures how long things take.
package clock

import "time"

// processStart is the origin of Nanotime.
var processStart = time.Now()

// Nanotime returns the monotonic time in nanoseconds. It is never 0.
func Nanotime() int64 { return int64(time.Since(processStart)) + 1 }
