// Package refusals logs requests that are refused because there are too many requests, and therefore too many to log each.
package refusals

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
)

// every is the minimum time between two records of a Log.
const every = 10 * time.Second

// Log writes a record for the first refusal and then, as long as requests are refused, a record with their number every ten seconds. The
// errors of such requests wrap filo.ErrBusy, so the server doesn't log them. The zero value is ready to use.
type Log struct {
	refused atomic.Int64 // requests since the last record of them
	logged  atomic.Int64 // the time of that record, in nanoseconds since 1970
}

// Note counts a refusal. The record, if one is due, has the message, the number of requests as "refused", and the attributes.
func (l *Log) Note(c *filo.Ctx, message string, attributes ...any) {
	l.refused.Add(1)
	now, last := time.Now().UnixNano(), l.logged.Load()
	if now-last >= int64(every) && l.logged.CompareAndSwap(last, now) {
		c.Logger().Warn(message, append([]any{"refused", l.refused.Swap(0)}, attributes...)...)
	}
}
