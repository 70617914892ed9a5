//go:build !race

package filo

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/http2conn"
	"github.com/filohttp/filo/internal/loop"
)

// cacheLine is the size of a processor's cache lines.
const cacheLine = 64

// If each processor writes to its own object of a type, none of these objects shares a cache line with another object. Either the
// allocator's size class is whole lines (in classes over 512 bytes, 8 bytes of the allocator's come first), or the type ends with
// apart.Lines.
func TestObjectsHaveTheirOwnCacheLines(t *testing.T) {
	for _, of := range []reflect.Type{
		reflect.TypeFor[workerChan](), reflect.TypeFor[scratch](), reflect.TypeFor[http2Scratch](), reflect.TypeFor[Ctx](),
		reflect.TypeFor[loopConn](), reflect.TypeFor[http2conn.Conn](), reflect.TypeFor[loop.Seat](), reflect.TypeFor[loop.Loop](),
		reflect.TypeFor[class.Class](), reflect.TypeFor[[12]sharedCounts](),
	} {
		if of.Kind() == reflect.Struct && of.Field(of.NumField()-1).Type == reflect.TypeFor[apart.Lines]() {
			continue
		}
		for range 64 {
			if at := reflect.New(of).Pointer(); at%cacheLine != 0 && at%cacheLine != 8 {
				t.Errorf("a %s of %d bytes begins %d bytes behind the beginning of a cache line: let it end with apart.Lines", of, of.Size(), at%cacheLine)
				break
			}
		}
	}
	if size := unsafe.Sizeof(sharedCounts{}); size%(2*cacheLine) != 0 {
		t.Errorf("elements of connSet.answered have %d bytes", size)
	}
}

// The fields that each request reads are in other cache lines than those written for connections, large bodies, handshakes and samples.
func TestWrittenFieldsAreApart(t *testing.T) {
	var s Server
	var k class.Class
	var p workerPool
	offset := func(v any, name string) uintptr {
		f, ok := reflect.TypeOf(v).Elem().FieldByName(name)
		if !ok {
			t.Fatalf("%T has no field %s", v, name)
		}
		return f.Offset
	}
	for _, test := range []struct {
		name          string
		read, written uintptr
	}{
		{"Server.conns.clock and room", unsafe.Offsetof(s.conns.clock), unsafe.Offsetof(s.conns.room)},
		{"Server.conns and bodies", unsafe.Offsetof(s.conns) + unsafe.Offsetof(s.conns.waking), unsafe.Offsetof(s.bodies)},
		{"Server.classes and conns.schedule", unsafe.Offsetof(s.classes) + offset(&k, "backOff"), unsafe.Offsetof(s.conns)},
		{"workerPool.clock and places", offset(&p, "clock"), offset(&p, "places") + offset(&p.places, "taken")},
		{"Class.parked and mu", offset(&k, "parked"), offset(&k, "mu")},
	} {
		if test.written < test.read+2*cacheLine {
			t.Errorf("%s: %d bytes apart", test.name, int(test.written)-int(test.read))
		}
	}
	if size := unsafe.Offsetof(p.leading) + 8 - unsafe.Offsetof(p.places) - offset(&p.places, "taken"); size > 2*cacheLine {
		t.Errorf("what a hand-over writes in the worker pool takes %d bytes", size)
	}
	for _, name := range []string{"config", "life", "pool", "loops"} {
		if at := offset(&s, name); at >= unsafe.Offsetof(s.conns) {
			t.Errorf("Server.%s, which requests read, is behind what is written", name)
		}
	}
}

// manycoresMemory is memory that several loops use, with the names of the fields in it.
type manycoresMemory struct {
	names  map[uintptr]string // by address of the 8 bytes
	before map[uintptr]uint64
}

// add adds a struct, without the fields that skip names.
func (m *manycoresMemory) add(name string, t reflect.Type, at uintptr, skip ...string) {
	for _, each := range skip {
		if strings.HasPrefix(name, each) {
			return
		}
	}
	if t.Kind() == reflect.Struct && t.Size() > 8 {
		for i := range t.NumField() {
			f := t.Field(i)
			m.add(name+"."+f.Name, f.Type, at+f.Offset, skip...)
		}
		return
	}
	for word := at &^ 7; word < at+t.Size(); word += 8 {
		m.names[word] = name
	}
}

// changed returns the names of the memory that has changed since the last call.
func (m *manycoresMemory) changed() map[string]bool {
	now, changed := make(map[uintptr]uint64, len(m.names)), make(map[string]bool)
	for at, name := range m.names {
		now[at] = **(**uint64)(unsafe.Pointer(&at))
		if now[at] != m.before[at] {
			changed[name] = true
		}
	}
	m.before = now
	return changed
}

// A request that is served directly in its loop writes to no memory that other loops use: neither to the server's, nor to that of the other
// loops. The exceptions are the samples of one call in 64, the clock's tick and the sweep.
func TestRequestsWriteNothingShared(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			route := &class.Class{Name: "GET /"}
			route.SetInline()
			s := &Server{Leaders: 16, Handler: func(c *Ctx) error {
				if err := c.enter(route, route.Name); err != nil {
					return err
				}
				return c.Text(200, "Hello")
			}}
			s.HTTP2.Unencrypted = protocol == "HTTP/2.0"
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- s.Serve(listener) }()
			defer func() { s.Close(); <-served }()
			transport := &http.Transport{Protocols: new(http.Protocols), MaxConnsPerHost: 1}
			defer transport.CloseIdleConnections()
			transport.Protocols.SetHTTP1(!s.HTTP2.Unencrypted)
			transport.Protocols.SetUnencryptedHTTP2(s.HTTP2.Unencrypted)
			request := func() {
				t.Helper()
				answer, err := transport.RoundTrip(newManycoresRequest(t, listener))
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				if body, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(body, []byte("Hello")) || answer.Proto != protocol {
					t.Fatalf("%s %q, %v", answer.Proto, body, err)
				}
			}
			for range 2 * class.TimedCalls {
				request()
			}
			g := s.loops.Load()
			if g == nil {
				t.Skip("no loops")
			}
			// The only connection is on the loop own. others returns the memory to which the connection's requests must not write.
			others := func(own int) *manycoresMemory {
				m := &manycoresMemory{names: make(map[uintptr]string)}
				m.add("Server", reflect.TypeFor[Server](), uintptr(unsafe.Pointer(s)), "Server.clock", "Server.conns.schedule")
				m.add("Server.pool", reflect.TypeFor[workerPool](), uintptr(unsafe.Pointer(s.pool)))
				m.add("Class", reflect.TypeFor[class.Class](), uintptr(unsafe.Pointer(route)))
				m.add("Group", reflect.TypeFor[loop.Group](), uintptr(unsafe.Pointer(g)), "Group.monitors")
				for i, l := range g.Loops() {
					if i != own {
						m.add("other Loop", reflect.TypeFor[loop.Loop](), uintptr(unsafe.Pointer(l)))
					}
				}
				for i := range s.conns.answered {
					if i/8 != own {
						m.add("other answerCounts", reflect.TypeFor[sharedCounts](), uintptr(unsafe.Pointer(&s.conns.answered[i])))
					}
				}
				seats := reflect.ValueOf(g).Elem().FieldByName("seats")
				for i := range seats.Len() {
					if i/8 != own {
						m.add("other Seat", reflect.TypeFor[loop.Seat](), seats.Index(i).Pointer())
					}
				}
				m.changed()
				return m
			}
			// On a busy machine net/http's client may replace its connection by another one, which another loop may serve.
			owner := func() (own int) {
				own = -1
				for i, l := range g.Loops() {
					switch n := l.Conns(); {
					case n > 0 && own >= 0, n > 1:
						return -1
					case n == 1:
						own = i
					}
				}
				return own
			}
			const enough = 256
			counts, seen := make(map[string]int), 0
			own, m := -1, (*manycoresMemory)(nil)
			for range 16 * enough {
				if now := owner(); now < 0 {
					request()
					continue
				} else if now != own {
					own, m = now, others(now)
				}
				moved := g.Counts()
				request()
				changed := m.changed()
				if g.Counts() != moved || owner() != own {
					continue // the leader's seat was taken away, which happens on a busy machine and writes a lot
				}
				for name := range changed {
					counts[name]++
				}
				if seen++; seen == enough {
					break
				}
			}
			for name, n := range counts {
				if n > seen/16 {
					t.Errorf("%d of %d requests have written to %s", n, seen, name)
				}
			}
		})
	}
}

func newManycoresRequest(t *testing.T, listener net.Listener) *http.Request {
	r, err := http.NewRequest("GET", fmt.Sprintf("http://%s/", listener.Addr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
