// Package hooks holds functions that the root package provides, and that package inside offers to filo's own packages. Package hooks can import neither
// the root nor inside, so the functions have the type any here. It also declares the types of their parameters and results that the root uses.
package hooks

import (
	"context"
	"crypto/tls"
	"io"
	"iter"
	"net"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
)

// The root package sets these when it is initialised.
var (
	Enter   any // func(c *filo.Ctx, class *class.Class, route string) error
	Routed  any // func(c *filo.Ctx) *Match
	Inherit any // func(c, from *filo.Ctx)
	Carry   any // func(*filo.Server, Transport, filo.Handler) error
	Serve   any // func(*filo.Server, Transport) error
	// Configure is func(*filo.Server).
	Configure any
	// Base is func(*filo.Server) context.Context.
	Base any
	// HTTP3 is func(*filo.Server) *HTTP3Counts.
	HTTP3 any
	// TakeBody is func(c *filo.Ctx) (Duplex, bool).
	TakeBody any
	// WholeBody is func(c *filo.Ctx) (body []byte, whole bool, err error).
	WholeBody any
	// Upgrade is func(c *filo.Ctx) (net.Conn, []byte, error).
	Upgrade any
	// Leftover is func(*filo.Server) string.
	Leftover any
	// Overdue is func(s *filo.Server, found func(OverdueWait)).
	Overdue any
	// KeepFields is func(c *filo.Ctx).
	KeepFields any
	// MaxHeaderFields is func(c *filo.Ctx) int.
	MaxHeaderFields any
	// TakeRoom is func(c *filo.Ctx, n int64) error.
	TakeRoom any
	// GiveRoom is func(c *filo.Ctx, n int64).
	GiveRoom any
	// TakeEncoder is func(c *filo.Ctx, n int64, must bool) bool.
	TakeEncoder any
	// GiveEncoder is func(c *filo.Ctx, n int64).
	GiveEncoder any
)

// HTTP3Counts counts what is open over HTTP/3: see Stats.
type HTTP3Counts struct{ Conns, Streams atomic.Int64 }

// OverdueWait is a wait that should have ended already: see inside.Overdue.
type OverdueWait struct {
	Of       any       // the connection or the queue that waits; identifies the wait
	What     string    // describes what waits, and for which event
	Progress [2]uint64 // changes when the wait, or the connection or queue, makes progress
	Looks    int64     // how often the loop of a connection has looked for events so far
}

// Match is the result of routing a request: its route, and the path parameters, one for each wildcard of the route's pattern, in their
// order. The router fills in a Match while it searches for the route.
type Match struct {
	Route  string   // the pattern; "" while there is none
	names  []string // the names of the route's wildcards; borrowed from the route
	values [][]byte // borrowed until the handler returns
	memory []byte   // holds the values that Keep has copied
}

// Append adds the value of the next wildcard.
func (m *Match) Append(value []byte) { m.values = append(m.values, value) }

// Keep copies the values to memory that belongs to m. The router calls it before it reuses the memory in which it has decoded them: they are
// valid until the handler returns, which may be later, as with middleware around the router.
func (m *Match) Keep() {
	for i, value := range m.values {
		start := len(m.memory)
		m.memory = append(m.memory, value...)
		m.values[i] = m.memory[start:len(m.memory):len(m.memory)]
	}
}

// maxKeptValues is the size of the largest memory that a Match keeps for the next request.
const maxKeptValues = 4 << 10

// Truncate drops all values except the first n. The router calls it when a route doesn't match after all.
func (m *Match) Truncate(n int) { m.values = m.values[:n] }

// SetNames sets the names of the wildcards. The slice belongs to the route, and is never changed.
func (m *Match) SetNames(names []string) { m.names = names }

// Len returns how many values there are.
func (m *Match) Len() int { return len(m.values) }

// At returns a name and its value.
func (m *Match) At(i int) (name string, value []byte) {
	if i < len(m.names) {
		name = m.names[i]
	}
	return name, m.values[i]
}

// Get returns the value of a wildcard, or nil if the route has none of that name.
func (m *Match) Get(name string) []byte {
	for i, each := range m.names {
		if each == name && i < len(m.values) {
			return m.values[i]
		}
	}
	return nil
}

// Copy makes m a copy of the Match from, with its own copy of the values.
func (m *Match) Copy(from *Match) {
	m.Route, m.names, m.values = from.Route, from.names, m.values[:0]
	for _, value := range from.values {
		m.values = append(m.values, append([]byte(nil), value...))
	}
}

// Reset removes the parameters, and keeps the memory of values for reuse.
func (m *Match) Reset() {
	clear(m.values)
	m.names, m.values = nil, m.values[:0]
	if m.memory = m.memory[:0]; cap(m.memory) > maxKeptValues {
		m.memory = nil
	}
}

// Transport carries one request that another server has received, and its answer: see inside.Carry. The other server frames the messages:
// the Transport's Read and Write carry only the content of the bodies.
type Transport interface {
	// Head stores the request's head in h. It returns the bytes to which h refers, and the length of the body, negative if that is unknown. This
	// length takes precedence over the header fields. The bytes are borrowed until Carry returns; in builds with the race detector Carry overwrites
	// them.
	Head(h *http1.RequestHead, limits *http1.Limits) (b []byte, length int64, fault http1.Fault)
	// Major returns 2 for a request over HTTP/2, 3 over HTTP/3, and otherwise 1. With 1 the head has the minor version.
	Major() uint8
	// Read reads the request's body. Its error may be a *filo.HTTPError.
	Read(p []byte) (int, error)
	// Trailer returns the fields after a body of unknown length, once Read has returned io.EOF.
	Trailer() iter.Seq2[string, string]

	// WriteHead begins the answer, or sends an interim one.
	WriteHead(h Head)
	// Write sends a part of the answer's body. It may buffer the part until Flush is called or the answer ends.
	Write(p []byte) (int, error)
	// Flush sends everything that Write has buffered.
	Flush() error
	// WriteTrailer ends a streamed answer, with the fields after its body.
	WriteTrailer(fields iter.Seq2[[]byte, []byte])

	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	// TLS returns the state of the client's TLS connection, or nil if the connection doesn't use TLS.
	TLS() *tls.ConnectionState
	// Context returns the context of the request. The Ctx's context is derived from it.
	Context() context.Context
	// SetReadDeadline and SetWriteDeadline work like those of net.Conn.
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	// MayInterrupt reports whether SetReadDeadline, called on another goroutine, ends a Read that waits.
	MayInterrupt() bool
	// Hijack takes the client's connection over from its server, and returns it without a deadline.
	Hijack() (net.Conn, error)
}

// Duplex reads a request's body, on any goroutine, while the Ctx sends the answer. It returns the same errors as the Ctx's own reader. Once the
// handler has returned, reads fail.
type Duplex interface {
	io.Reader
	// Trailer returns the fields after the body, once Read has returned io.EOF.
	Trailer() iter.Seq2[[]byte, []byte]
	// Close ends a Read that waits, and makes each later Read fail. It must not be called once the handler has returned.
	Close()
}

// Head is the head of an answer.
type Head struct {
	Status int
	// Fields yields the fields, except those that frame the body. They are borrowed.
	Fields iter.Seq2[[]byte, []byte]
	// Length is the value of Content-Length; negative leaves the field out.
	Length int64
	// Streams says that a body of unknown length follows. Trailer has the fields that follow the body, or is nil if there are none.
	Streams bool
	Trailer *field.List
	// Close says that the connection ends with the answer, or with its last answer if it carries several requests at once.
	Close bool
}
