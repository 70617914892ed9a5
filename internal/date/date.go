// Package date renders the field Date, once a second at most, however many answers have it.
package date

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/syntax"
)

// Clock is a coarse clock with a prepared Date field.
type Clock struct {
	clock.Coarse
	// date is the Date field for the second of the cached time. It is stored before the cached time, so a reader that sees a cached time
	// finds a field that is no older.
	date atomic.Pointer[rendered]
}

type rendered struct {
	second int64
	line   []byte // "Date: …\r\n", never changed
	http2  http2.Literal
}

// Start lets the clock tick. It panics if the clock already runs.
func (c *Clock) Start(tick time.Duration) { c.Coarse.Start(tick, c.refreshed) }

// Line returns the Date field line with its CRLF, in IMF-fixdate (RFC 9110, section 5.6.7). It is shared: the caller
// copies it and never changes it.
func (c *Clock) Line() []byte { return c.today().line }

// Literal is Line for HTTP/2.
func (c *Clock) Literal() *http2.Literal { return &c.today().http2 }

func (c *Clock) today() *rendered {
	if !c.Ticks() {
		return render(time.Now())
	}
	return c.date.Load()
}

// refreshed makes a new Date line if the second has changed.
func (c *Clock) refreshed(wall time.Time) {
	if date := c.date.Load(); date == nil || date.second != wall.Unix() {
		c.date.Store(render(wall))
	}
}

func render(wall time.Time) *rendered {
	line := append(make([]byte, 0, len("Date: \r\n")+len(syntax.TimeFormat)), "Date: "...)
	line = wall.UTC().AppendFormat(line, syntax.TimeFormat)
	literal := http2.NewLiteral("date", string(line[len("Date: "):]))
	return &rendered{second: wall.Unix(), line: append(line, "\r\n"...), http2: literal}
}
