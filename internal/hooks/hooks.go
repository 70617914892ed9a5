// Package hooks holds the functions that the root provides, and that package inside offers to filo's own packages. It may import neither
// the root nor inside, so the functions have no types here. It also has those types of their parameters and results that the root uses.
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

// The root sets these when it is initialised.
var (
	Enter   any // func(c *filo.Ctx, class *class.Class, route string) error
	Routed  any // func(c *filo.Ctx) *Match
	Inherit any // func(c, from *filo.Ctx)
	Carry   any // func(*filo.Server, Transport, filo.Handler) error
	Serve   any // func(*filo.Server, Transport) error
	// Configure is func(*filo.Server).
	Configure any
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
)

// HTTP3Counts counts what is open over HTTP/3: see Stats.
type HTTP3Counts struct{ Conns, Streams atomic.Int64 }

// OverdueWait is a wait that should be over: see inside.Overdue.
type OverdueWait struct {
	Of       any       // the connection or the queue; tells the wait from others
	What     string    // what waits, and for which event
	Progress [2]uint64 // changes when the wait, or whatever waits, makes progress
	Looks    int64     // how often the loop of a connection has looked for events so far
}

// Match is the result of routing a request: its route, and the path parameters, one for each wildcard of the route's pattern, in their
// order. The router fills it in while it looks for the route.
type Match struct {
	Route  string   // the pattern; "" while there is none
	names  []string // of the route's wildcards; borrowed from the route
	values [][]byte // borrowed until the handler returns
}

// Append adds the value of the next wildcard.
func (m *Match) Append(value []byte) { m.values = append(m.values, value) }

// Truncate forgets all values except the first n: the others belong to a route that didn't match.
func (m *Match) Truncate(n int) { m.values = m.values[:n] }

// SetNames sets the names of the wildcards. The slice is shared, and never changed.
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

// Copy makes m a copy of from, with its own copy of the values.
func (m *Match) Copy(from *Match) {
	m.Route, m.names, m.values = from.Route, from.names, m.values[:0]
	for _, value := range from.values {
		m.values = append(m.values, append([]byte(nil), value...))
	}
}

// Reset forgets the parameters, and keeps the memory.
func (m *Match) Reset() {
	clear(m.values)
	m.names, m.values = nil, m.values[:0]
}

// Transport carries one request that another server has received, and its answer: see inside.Carry. The other server frames the messages:
// Read and Write carry only the content of the bodies.
type Transport interface {
	// Head makes h the request's head. It returns the bytes in which h lies, and the length of the body, negative if that is unknown. This
	// length counts, whatever the fields say. The bytes are borrowed until Carry returns, which overwrites them in builds with the race
	// detector.
	Head(h *http1.RequestHead, limits *http1.Limits) (b []byte, length int64, fault http1.Fault)
	// Major returns 2 or 3 if the request came by HTTP/2 or HTTP/3, and otherwise 1: then the head has the minor version.
	Major() uint8
	// Read reads the request's body. Its error may be an HTTPError of filo's.
	Read(p []byte) (int, error)
	// Trailer returns the fields after a body of unknown length, once Read has returned io.EOF.
	Trailer() iter.Seq2[string, string]

	// WriteHead begins the answer, or sends an interim one.
	WriteHead(h Head)
	// Write sends a part of the answer's body. It may keep the part until Flush, or the end.
	Write(p []byte) (int, error)
	// Flush sends everything that Write has kept.
	Flush() error
	// WriteTrailer ends a streamed answer, with the fields after its body.
	WriteTrailer(fields iter.Seq2[[]byte, []byte])

	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	// TLS returns the state of the client's connection if that is a TLS one, or nil.
	TLS() *tls.ConnectionState
	// Context returns the context of the request. The Ctx's context has its values, and ends with it.
	Context() context.Context
	// SetReadDeadline and SetWriteDeadline are net.Conn's.
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	// MayInterrupt reports whether SetReadDeadline, called on another goroutine, ends a Read that waits.
	MayInterrupt() bool
	// Hijack takes the client's connection over from its server, and returns it without a deadline.
	Hijack() (net.Conn, error)
}

// Duplex reads a request's body, on any goroutine, while the Ctx sends the answer. It fails as the Ctx's own reader does. It may be used
// until the handler returns, and fails afterwards.
type Duplex interface {
	io.Reader
	// Trailer returns the fields after the body, once Read has returned io.EOF.
	Trailer() iter.Seq2[[]byte, []byte]
	// Close ends a Read that waits, and makes further ones fail. It must not be called once the handler has returned.
	Close()
}

// Head is the head of an answer.
type Head struct {
	Status int
	// Fields yields the fields, except those that frame the body. They are borrowed.
	Fields iter.Seq2[[]byte, []byte]
	// Length is the value of Content-Length; negative leaves the field out.
	Length int64
	// Streams says that a body of unknown length follows, with these trailer fields, if the client knows them; nil is none.
	Streams bool
	Trailer *field.List
	// Close says that the connection ends with the answer.
	Close bool
}
