package clock

import "time"

// processStart is the origin of Nanotime.
var processStart = time.Now()

// Nanotime returns the monotonic time in nanoseconds, of the process and not of a server. It is never 0.
func Nanotime() int64 { return int64(time.Since(processStart)) + 1 }
