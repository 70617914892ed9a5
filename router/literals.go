package router

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// literals holds, for each known method, the routes whose paths contain only literals. No other route of that method can be more
// specific, so a lookup here replaces the search in the tree. A request path that equals such a path needs no checks either: it is
// clean and in canonical form.
type literals [unknown + 1]literalRoutes // the last entry, for unknown methods, is empty

// literalRoutes holds one method's literal routes in a hash table that is filled once: BenchmarkGitHub/static takes some 15 %
// longer with a map.
type literalRoutes struct {
	// ends is a filter: ends[b] has bit n set if a path's last byte is b and its length modulo 64 is n. Most paths that aren't in
	// the table fail this check, and need no lookup.
	ends [256]uint64
	// slots has a power of two as its length, at least twice the number of routes. A route is in the slot of its path's hash, or
	// in the next free one.
	slots []literalRoute
}

type literalRoute struct {
	path  string // in canonical form; "" marks a free slot
	route *Route
}

func newLiterals(routes []*Route) *literals {
	var byMethod [len(knownMethods)][]literalRoute
	for _, route := range routes {
		if method := known([]byte(route.pattern.method)); method != unknown && route.pattern.isLiteral() {
			path := ""
			for _, s := range route.pattern.segments {
				path += "/" + s.text
			}
			byMethod[method] = append(byMethod[method], literalRoute{path, route})
		}
	}
	l := new(literals)
	for method, routes := range byMethod {
		l[method].fill(routes)
	}
	return l
}

func (r *literalRoutes) fill(routes []literalRoute) {
	if len(routes) == 0 {
		return
	}
	r.slots = make([]literalRoute, 1<<bits.Len(uint(2*len(routes)-1)))
	for _, each := range routes {
		r.ends[each.path[len(each.path)-1]] |= 1 << (len(each.path) % 64)
		i := hash([]byte(each.path)) & uint64(len(r.slots)-1)
		for r.slots[i].path != "" {
			i = (i + 1) & uint64(len(r.slots)-1)
		}
		r.slots[i] = each
	}
}

// mayHave reports whether path may have a route here, so that calling find is worthwhile.
func (l *literals) mayHave(known int, path []byte) bool {
	return l[known].ends[path[len(path)-1]]>>(len(path)%64)&1 != 0
}

// find returns the route for a path as sent, nil if there is none here. Call mayHave first.
func (l *literals) find(known int, path []byte) *Route {
	slots := l[known].slots
	for i := hash(path); ; i++ {
		slot := &slots[i&uint64(len(slots)-1)]
		if slot.path == string(path) || slot.path == "" {
			return slot.route
		}
	}
}

// hash needs no secret: clients don't choose the contents of the table.
func hash(path []byte) uint64 {
	const mix = 0x9e3779b97f4a7c15 // an odd number without a pattern: 2^64 divided by the golden ratio
	h := uint64(len(path))
	if len(path) < 8 {
		for _, c := range path {
			h = h<<8 ^ uint64(c)
		}
		h *= mix
		return h ^ h>>32
	}
	for rest := path; len(rest) > 8; rest = rest[8:] {
		h = (h ^ binary.LittleEndian.Uint64(rest)) * mix
		h ^= h >> 32
	}
	// Hash the last eight bytes, some of them perhaps for the second time.
	h = (h ^ binary.LittleEndian.Uint64(path[len(path)-8:])) * mix
	return h ^ h>>32
}

// isLiteral reports whether the path has no wildcard. {$} doesn't count as a wildcard.
func (p *pattern) isLiteral() bool {
	return !slices.ContainsFunc(p.segments, func(s segment) bool { return s.kind != literal && s.kind != end })
}
