package filo

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/syntax"
)

// coarseClock is a server's clock, with a prepared Date line.
type coarseClock struct {
	clock.Coarse
	// date is the Date line for the second of the cached time. It is stored before the cached time, so a reader that sees a cached time
	// finds a line that is no older.
	date atomic.Pointer[dateLine]
}

type dateLine struct {
	second int64
	line   []byte // "Date: …\r\n", never changed
	http2  http2.Literal
}

// start makes the clock tick. It panics if the clock is already running.
func (c *coarseClock) start(tick time.Duration) { c.Start(tick, c.refreshed) }

// dateLine returns the Date field line with its CRLF, in IMF-fixdate (RFC 9110, section 5.6.7). It is shared: the caller
// copies it and never changes it.
func (c *coarseClock) dateLine() []byte { return c.today().line }

// dateLiteral returns the Date field as HTTP/2 encodes it.
func (c *coarseClock) dateLiteral() *http2.Literal { return &c.today().http2 }

func (c *coarseClock) today() *dateLine {
	if !c.Ticks() {
		return newDateLine(time.Now())
	}
	return c.date.Load()
}

// refreshed makes a new Date line if the second has changed.
func (c *coarseClock) refreshed(wall time.Time) {
	if date := c.date.Load(); date == nil || date.second != wall.Unix() {
		c.date.Store(newDateLine(wall))
	}
}

func newDateLine(wall time.Time) *dateLine {
	line := append(make([]byte, 0, len("Date: \r\n")+len(syntax.TimeFormat)), "Date: "...)
	line = wall.UTC().AppendFormat(line, syntax.TimeFormat)
	literal := http2.NewLiteral("date", string(line[len("Date: "):]))
	return &dateLine{second: wall.Unix(), line: append(line, "\r\n"...), http2: literal}
}
