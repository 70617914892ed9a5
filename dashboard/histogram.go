package dashboard

import (
	"math"
	"math/bits"
	"time"
)

// A histogram counts durations in buckets, 16 for every power of two, so that the error of a value is at most 6 %. The first 16
// buckets are 128 ns wide, and the last one has all durations from about two minutes on.
const (
	unitBits      = 7 // 128 ns
	subBits       = 4
	subBuckets    = 1 << subBits
	durationBits  = 37
	bucketsNumber = (durationBits-unitBits-subBits+1)*subBuckets + 1
)

// bucketOf returns the bucket of a duration.
func bucketOf(d time.Duration) int {
	units := uint64(max(d, 0)) >> unitBits
	if units < subBuckets {
		return int(units)
	}
	shift := bits.Len64(units) - subBits - 1
	return min(shift*subBuckets+int(units>>shift), bucketsNumber-1)
}

// lowest returns the least duration of a bucket, in nanoseconds.
func lowest(bucket int) float64 {
	if bucket < subBuckets {
		return float64(uint64(bucket) << unitBits)
	}
	shift := bucket/subBuckets - 1
	return float64(uint64(bucket-shift*subBuckets) << (shift + unitBits))
}

// counts is a copy of a histogram at some moment.
type counts [bucketsNumber]uint32

func (k *counts) total() (n uint64) {
	for _, count := range k {
		n += uint64(count)
	}
	return n
}

// quantile returns the duration that the given fraction of all values doesn't exceed, or 0 if there are no values. It assumes that the values
// in a bucket are spread evenly.
func (k *counts) quantile(part float64, total uint64) time.Duration {
	rank := max(1, uint64(math.Ceil(part*float64(total))))
	for bucket, count := range k {
		if uint64(count) < rank {
			rank -= uint64(count)
			continue
		}
		low, high := lowest(bucket), lowest(bucket+1)
		return time.Duration(low + (high-low)*(float64(rank)-0.5)/float64(count))
	}
	return 0
}
