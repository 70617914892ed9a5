//go:build !race

package race

import "sync"

// Enabled says whether this is a build with the race detector.
const Enabled = false

// Mutex is a sync.Mutex with a rank. A function whose caller must hold it asserts that. Builds with the race detector check the assertion, and
// where they can tell goroutines apart also the rank.
type Mutex[R Rank] struct{ sync.Mutex }

// AssertHeld does nothing.
func (m *Mutex[R]) AssertHeld() {}

// SetRank does nothing.
func (m *Mutex[R]) SetRank(Rank) {}
