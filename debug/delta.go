package debug

import (
	"bytes"
	"time"

	"github.com/google/pprof/profile"
)

// subtract returns what has been added to a profile of this process since it was taken before: the samples of after less those
// of before. Both are as runtime/pprof writes them, and so is the result, for which the time in between is noted.
//
// Samples that are only in before, as the stacks of goroutines that have ended, become negative ones.
func subtract(before, after []byte, duration time.Duration) ([]byte, error) {
	b, err := profile.ParseData(before)
	if err != nil {
		return nil, err
	}
	a, err := profile.ParseData(after)
	if err != nil {
		return nil, err
	}
	b.Scale(-1)
	difference, err := profile.Merge([]*profile.Profile{a, b}) // leaves out samples of nothing
	if err != nil {
		return nil, err
	}
	difference.TimeNanos, difference.DurationNanos = a.TimeNanos, int64(duration)
	var out bytes.Buffer
	err = difference.Write(&out)
	return out.Bytes(), err
}
