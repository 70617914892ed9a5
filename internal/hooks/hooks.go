// Package hooks is where the root leaves what package inside hands to filo's own packages: it may import neither of them, so the
// functions have no types here. The types of what they take and return are here as well, where the root knows them.
package hooks

import (
	"context"
	"crypto/tls"
	"net"
)

// What the root sets when it is initialised.
var (
	Enter   any // func(c *filo.Ctx, class *class.Class, route string) error
	Inherit any // func(c, from *filo.Ctx)
	Carry   any // func(*filo.Server, Transport, filo.Handler) error
)

// Own is the parameter of methods for filo's own packages: others can't name the type. It is for methods that are called so often
// that a function variable would be too slow.
type Own struct{ _ struct{} }

// Match is what a router has found for a request: its route, and the path parameters, which are what the wildcards of the route's
// pattern stand for, in their order. The router fills it in while it looks for the route.
type Match struct {
	Route  string   // the pattern; "" while there is none
	names  []string // of the route; borrowed from it
	values [][]byte // borrowed until the handler returns
}

// Append adds the value of the next wildcard.
func (m *Match) Append(value []byte) { m.values = append(m.values, value) }

// Truncate forgets all values but the first n: those of a route that wasn't the one.
func (m *Match) Truncate(n int) { m.values = m.values[:n] }

// SetNames says what the wildcards are called. The slice is shared, and never changed.
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

// Copy makes m what from is, with values of its own.
func (m *Match) Copy(from *Match) {
	m.Route, m.names, m.values = from.Route, from.names, m.values[:0]
	for _, value := range from.values {
		m.values = append(m.values, append([]byte(nil), value...))
	}
}

// Reset forgets the parameters, and keeps the room.
func (m *Match) Reset() {
	clear(m.values)
	m.names, m.values = nil, m.values[:0]
}

// Transport brings one request that came to another server, and takes its answer: see inside.Carry. As a net.Conn it carries both
// as HTTP/1.1: Read returns the request, head and body, and then io.EOF; Write takes what a client would be sent, in pieces as it is
// flushed. After Hijack it is the client's connection.
type Transport interface {
	net.Conn
	// Flush sends what Write has taken, all of it. It is called where Write alone mustn't wait for more.
	Flush() error
	// Context returns the context of the request. That of the Ctx has its values, and ends with it.
	Context() context.Context
	// TLS returns the state of the client's connection if that is a TLS one, or nil.
	TLS() *tls.ConnectionState
	// Hijack takes the client's connection over from its server, and returns it without a deadline.
	Hijack() (net.Conn, error)
}
