// Package refusals logs that requests are refused because there are too many. It logs their number, since there are also too many to log each of
// them.
package refusals

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
)

// every is the minimum time between two records of a Log.
const every = 10 * time.Second

// Log writes a record for the first refusal. As long as requests are refused, it then writes a record with their number every ten seconds. The errors
// of refused requests wrap filo.ErrBusy, so the server itself doesn't log them. The zero value is ready to use.
type Log struct {
	refused atomic.Int64 // refusals since the last record
	logged  atomic.Int64 // the time of that record, in nanoseconds since 1970
}

// Note counts a refusal, and logs a record if ten seconds have passed since the last one. The record has the message, the number of refusals as
// "refused", and the attributes.
func (l *Log) Note(c *filo.Ctx, message string, attributes ...any) {
	l.refused.Add(1)
	now, last := time.Now().UnixNano(), l.logged.Load()
	if now-last >= int64(every) && l.logged.CompareAndSwap(last, now) {
		c.Logger().Warn(message, append([]any{"refused", l.refused.Swap(0)}, attributes...)...)
	}
}
