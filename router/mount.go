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

// mountPoint is where a handler is mounted. A Router among the handlers learns from the request where it is mounted.
type mountPoint struct {
	segments   int // of the path that belong to the prefix
	host, path string
	names      []string // of the prefix's wildcards
	// mounted says whether a Router was found mounted here. A mounted Router enters the classes of its own routes. So the mount point's
	// route need not enter its own class, which would mix the durations of all these routes.
	mounted *atomic.Uint32
	// within has this mount point combined with each outer *mountPoint at which its router is mounted.
	within sync.Map
}

// The values of mountPoint.mounted: no handler was called yet; a request is on its way through the route's middleware to find out what is
// mounted; a handler was called; the handler is a Router.
const (
	mountUnknown uint32 = iota
	mountSought
	mountTried
	mountRouter
)

// mountedAt finds the mount point that a request has come through.
var mountedAt = filo.NewKey[*mountPoint]("mount point")

// become makes m the mount point of a pattern, which ends in a slash.
func (m *mountPoint) become(p *pattern) {
	m.segments = len(p.segments) - 1
	m.host, m.path = p.host, strings.TrimSuffix(p.path, "/")
	m.names = p.names
	m.mounted = new(atomic.Uint32)
}

// handler returns the handler of m's route.
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

// below combines m with an outer mount point, at which m's router is mounted; nil means that there is none.
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

// found records that a Router is mounted here. The flag is written once: a write by each request would have the cores take its cache line
// from each other.
func (m *mountPoint) found() {
	if m.mounted.Load() != mountRouter {
		m.mounted.Store(mountRouter)
	}
}

// leadsToRouter reports whether the request is expected to reach a Router here. The first request tries it. That request doesn't enter the
// mount point's class. If it did, it would need a place in an overloaded server, and a mounted route that is always answered would never be
// found.
func (m *mountPoint) leadsToRouter() bool {
	switch m.mounted.Load() {
	case mountRouter:
		return true
	case mountUnknown:
		return m.mounted.CompareAndSwap(mountUnknown, mountSought)
	}
	return false
}

// notReached lets another request try, if the route's middleware has answered the request that was expected to reach a Router.
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
