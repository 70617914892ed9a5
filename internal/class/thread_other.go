//go:build !linux

package class

import "time"

// threadTime returns zeros: without a loop no handler runs where its request was read.
func threadTime() (thread int, ran time.Duration) { return 0, 0 }
