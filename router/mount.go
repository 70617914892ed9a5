package router

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/filohttp/filo"
)

// mountPoint describes where a handler is mounted. If that handler is a Router, it finds its mount point in the request, with
// mountedAt.
type mountPoint struct {
	segments   int // how many of the path's segments belong to the prefix
	host, path string
	names      []string // of the prefix's wildcards
	// mounted says whether the mounted handler has turned out to be a Router. A mounted Router enters the class of the route that it
	// chooses. The mount point's own route then enters no class, since that class would mix the durations of all these routes.
	mounted *atomic.Uint32
	// within caches this mount point combined with each outer *mountPoint at which its router is mounted.
	within sync.Map
}

// The values of mountPoint.mounted, in order: the handler wasn't called yet; a first request is on its way through the route's middleware
// to the handler; the handler was called; the handler is a Router.
const (
	mountUnknown uint32 = iota
	mountSought
	mountTried
	mountRouter
)

// mountedAt is the key for the mount point through which a request has passed.
var mountedAt = filo.NewKey[*mountPoint]("mount point")

// become makes m the mount point of a pattern, which ends in a slash.
func (m *mountPoint) become(p *pattern) {
	m.segments = len(p.segments) - 1
	m.host, m.path = p.host, strings.TrimSuffix(p.path, "/")
	m.names = p.names
	m.mounted = new(atomic.Uint32)
}

// handler returns the handler of m's route: it stores the mount point in the request and calls h.
func (m *mountPoint) handler(h filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		if seen := m.mounted.Load(); seen < mountTried {
			m.mounted.CompareAndSwap(seen, mountTried)
		}
		outer, _ := mountedAt.Get(c)
		mountedAt.Set(c, m.below(outer))
		err := h(c)
		mountedAt.Set(c, outer)
		return err
	}
}

// below combines m with outer, the mount point of the router that contains m. It returns m if that router isn't mounted.
func (m *mountPoint) below(outer *mountPoint) *mountPoint {
	if outer == nil {
		return m
	}
	if found, ok := m.within.Load(outer); ok {
		return found.(*mountPoint)
	}
	joined := &mountPoint{
		segments: outer.segments + m.segments,
		host:     cmp.Or(m.host, outer.host),
		path:     outer.path + m.path,
		names:    slices.Concat(outer.names, m.names),
		mounted:  m.mounted,
	}
	found, _ := m.within.LoadOrStore(outer, joined)
	return found.(*mountPoint)
}

// found records that a Router is mounted here. It writes the flag only once: if each request wrote it, the flag's cache line would bounce
// between the cores.
func (m *mountPoint) found() {
	if m.mounted.Load() != mountRouter {
		m.mounted.Store(mountRouter)
	}
}

// leadsToRouter reports whether the request is expected to reach a Router here. The first request is assumed to reach one, so it doesn't
// enter the mount point's class. If it did, an overloaded server could refuse it, and a mounted route marked with Always would never be
// reached.
func (m *mountPoint) leadsToRouter() bool {
	switch m.mounted.Load() {
	case mountRouter:
		return true
	case mountUnknown:
		return m.mounted.CompareAndSwap(mountUnknown, mountSought)
	}
	return false
}

// notReached lets the next request try to reach a Router, if the route's middleware answered this request before the mounted handler was
// called.
func (m *mountPoint) notReached() { m.mounted.CompareAndSwap(mountSought, mountUnknown) }

// cut returns the path without the prefix.
func (m *mountPoint) cut(path []byte) []byte {
	for range m.segments {
		i := bytes.IndexByte(path[1:], '/')
		if i < 0 {
			return rootPath
		}
		path = path[1+i:]
	}
	return path
}

// placement has the pattern and the parameter names of a route below a mount point.
type placement struct {
	text  string
	names []string
}

// placement returns the route's placement below m.
func (route *Route) placement(m *mountPoint) *placement {
	if found, ok := route.placed.Load(m); ok {
		return found.(*placement)
	}
	p := route.pattern
	place := &placement{text: cmp.Or(p.host, m.host) + m.path + p.path, names: slices.Concat(m.names, p.names)}
	if p.method != "" {
		place.text = p.method + " " + place.text
	}
	found, _ := route.placed.LoadOrStore(m, place)
	return found.(*placement)
}
