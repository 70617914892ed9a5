package clock

import "time"

// Nanos is a moment on the process's monotonic clock, in nanoseconds. The zero Nanos is no moment.
type Nanos int64

// processStart is the origin of Nanotime.
var processStart = time.Now()

// Nanotime returns the current moment. It is never 0.
func Nanotime() Nanos { return Nanos(time.Since(processStart)) + 1 }

// Sub returns t minus u.
func (t Nanos) Sub(u Nanos) time.Duration { return time.Duration(t - u) }
