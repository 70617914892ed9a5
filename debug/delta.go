package debug

import (
	"bytes"
	"time"

	"github.com/google/pprof/profile"
)

// subtract returns the samples that were added to a profile of this process since an earlier profile: the samples in after minus those in
// before. Both arguments and the result are in the format of runtime/pprof. The result records duration, the time between the two profiles.
//
// Samples that are only in before, such as the stacks of ended goroutines, become negative.
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
	difference, err := profile.Merge([]*profile.Profile{a, b}) // leaves out samples whose values are all 0
	if err != nil {
		return nil, err
	}
	difference.TimeNanos, difference.DurationNanos = a.TimeNanos, int64(duration)
	var out bytes.Buffer
	err = difference.Write(&out)
	return out.Bytes(), err
}
