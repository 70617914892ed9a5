//go:build !race

package race

import "sync"

// Enabled says whether this is a build with the race detector.
const Enabled = false

// Mutex is a sync.Mutex with a rank. A function whose caller must hold the mutex calls AssertHeld. Builds with the race detector check this
// assertion. On platforms where goroutines can be told apart, they also check the rank.
type Mutex[R Rank] struct{ sync.Mutex }

// AssertHeld does nothing.
func (m *Mutex[R]) AssertHeld() {}

// SetRank does nothing.
func (m *Mutex[R]) SetRank(Rank) {}
