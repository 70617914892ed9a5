package budget

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/pace"
)

// Answers counts the bytes of all answers that wait to be sent after their handlers have returned or gone on.
type Answers struct {
	limit int64 // negative: none; immutable
	used  atomic.Int64
	// waiting is how many handlers wait for an HTTP/2 window. used doesn't include the memory of these handlers, since another limit bounds their
	// number.
	waiting atomic.Int64
}

const (
	// waiterCost is about how many bytes a handler that waits for a window holds, with its goroutine and its request.
	waiterCost = 32 << 10
	// Once half of the limit is used, one HTTP/2 connection may use at most 1/connShare of the limit.
	connShare = 32
	// While the budget is crowded, a client has 1/crowdedShare of its grace to open a window, but at least crowdedTime.
	crowdedShare = 10
	crowdedTime  = time.Second
)

// SetLimit sets the maximum number of bytes, negative for no limit. It must be called before any other method.
func (a *Answers) SetLimit(limit int64) { a.limit = limit }

// Limit returns the maximum number of bytes.
func (a *Answers) Limit() int64 { return a.limit }

// Used returns how many bytes are in use.
func (a *Answers) Used() int64 { return a.used.Load() }

// Take reserves n bytes. If there is no room for them, it reserves none and reports false.
func (a *Answers) Take(n int64) bool {
	if used := a.used.Add(n); a.limit >= 0 && used > a.limit {
		a.used.Add(-n)
		return false
	}
	return true
}

// Add counts n more bytes, whether there is room for them or not; n may be negative.
func (a *Answers) Add(n int64) { a.used.Add(n) }

// MayHold reports whether a connection may hold n more bytes of answers; held returns how many it holds now.
func (a *Answers) MayHold(n int, held func() int64) bool {
	if a.limit < 0 {
		return true
	}
	used := a.used.Load() + int64(n)
	return used <= a.limit/2 || used <= a.limit && held()+int64(n) <= a.limit/connShare
}

// Wait counts n more handlers that wait for a window; n may be negative.
func (a *Answers) Wait(n int64) { a.waiting.Add(n) }

// Waiting returns how many handlers wait for a window.
func (a *Answers) Waiting() int64 { return a.waiting.Load() }

// Crowded reports whether the waiting bytes and handlers use more than half of the limit. While they do, clients have less time to open their
// windows.
func (a *Answers) Crowded() bool {
	return a.limit >= 0 && a.used.Load()+a.waiting.Load()*waiterCost > a.limit/2
}

// Limits returns the current limits on how slowly a client may open its windows. The given limits apply while the budget isn't crowded.
func (a *Answers) Limits(limits pace.Limits) pace.Limits {
	if a.Crowded() {
		limits.Grace = CrowdedGrace(limits.Grace)
	}
	return limits
}

// CrowdedGrace returns the reduced grace while the budget is crowded.
func CrowdedGrace(grace time.Duration) time.Duration {
	return min(grace, max(grace/crowdedShare, crowdedTime))
}
