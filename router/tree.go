package router

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/filohttp/filo/internal/hooks"
)

// node is a node of a radix tree, which holds the paths of one method's routes, with their literals in canonical form. The prefixes from
// the root to a node, put together, are the beginning of a path. Only a node at which this text ends in a slash has wildcards.
type node struct {
	prefix   string // the bytes from the parent to this node
	first    string // the first byte of each child's prefix
	children []*node
	// constrained and single are the wildcards with and without a constraint.
	constrained []wildcard
	single      *node
	route       *Route // the route of the path that ends here
	rest        *Route // the route of all paths that begin with this path
}

// wildcard is a wildcard segment with a constraint, and the tree of the paths that follow it. Each of these paths is empty, or
// begins with a slash.
type wildcard struct {
	constraint *constraint
	node       *node
}

// add adds a route. No other route may conflict with it.
func (n *node) add(segments []segment, route *Route) {
	text := ""
	for _, s := range segments {
		text += "/"
		switch s.kind {
		case literal:
			text += s.text
		case single:
			n, text = n.at(text).wildcard(s.constraint), ""
		case rest:
			n.at(text).rest = route
			return
		}
	}
	n.at(text).route = route
}

// at returns the node to which text leads from n's parent, and creates it if necessary.
func (n *node) at(text string) *node {
	if n.prefix == "" && n.children == nil && n.constrained == nil && n.single == nil && n.route == nil && n.rest == nil {
		n.prefix = text // n is a new node
		return n
	}
	shared := 0
	for shared < len(text) && shared < len(n.prefix) && text[shared] == n.prefix[shared] {
		shared++
	}
	if shared < len(n.prefix) {
		below := *n
		below.prefix = n.prefix[shared:]
		*n = node{prefix: n.prefix[:shared], first: below.prefix[:1], children: []*node{&below}}
	}
	text = text[shared:]
	if text == "" {
		return n
	}
	if i := strings.IndexByte(n.first, text[0]); i >= 0 {
		return n.children[i].at(text)
	}
	child := &node{prefix: text}
	n.first += text[:1]
	n.children = append(n.children, child)
	return child
}

// wildcard returns the node after a wildcard of n with the constraint c, and creates it if necessary.
func (n *node) wildcard(c *constraint) *node {
	if c == nil {
		if n.single == nil {
			n.single = &node{}
		}
		return n.single
	}
	for _, w := range n.constrained {
		if w.constraint.text == c.text {
			return w.node
		}
	}
	w := wildcard{c, &node{}}
	n.constrained = append(n.constrained, w)
	return w.node
}

// order puts the children that lead to more routes first, and returns the number of routes below n.
func (n *node) order() int {
	routes := 0
	if n.route != nil {
		routes++
	}
	for _, w := range n.constrained {
		routes += w.node.order()
	}
	if n.single != nil {
		routes += n.single.order()
	}
	counts := make(map[*node]int, len(n.children))
	for _, child := range n.children {
		counts[child] = child.order()
		routes += counts[child]
	}
	slices.SortStableFunc(n.children, func(a, b *node) int { return cmp.Compare(counts[b], counts[a]) })
	first := make([]byte, len(n.children))
	for i, child := range n.children {
		first[i] = child.prefix[0]
	}
	n.first = string(first)
	return routes
}

// search is the state of a search for a request's route.
type search struct {
	match  *hooks.Match // the values of the wildcards are appended to it
	before int          // how many values match held before the search
	method []byte
	known  int // the method's index in knownMethods, or unknown
	// refuseDots is set if the path wasn't checked for empty segments and dot segments before the search. A path that contains
	// them then matches nothing.
	refuseDots bool
	scratch    *scratch // for a path with percent-encoding; else nil

	// beyond says that the {name...} or trailing slash of the found pattern matched a part of the path that isn't empty.
	beyond bool
	// withSlash is the route for the path with a slash appended, if that route would be found before any other.
	withSlash *Route
}

func (s *search) setMethod(method []byte) { s.method, s.known = method, known(method) }

// match returns the route for a path, or for the rest of one, nil if there is none.
//
// It tries the literal first, then wildcards with a constraint, then the wildcard without a constraint, and rest last. The first route that
// it finds is the most specific one. If two routes match the same path, one is more specific, since they don't conflict. Where their
// patterns diverge, the more specific route has the alternative that is tried first. No node is visited twice.
//
// If neither path nor n's prefix is empty, their first bytes are equal and need no comparison: the parent chose n by that byte,
// or both are slashes.
func (n *node) match(s *search, path []byte) *Route {
	for {
		if len(path) <= len(n.prefix) {
			return n.ending(s, path)
		}
		if len(n.prefix) > 1 && string(path[1:len(n.prefix)]) != n.prefix[1:] {
			return nil
		}
		path = path[len(n.prefix):]
		var child *node
		for i := 0; i < len(n.first); i++ {
			if n.first[i] == path[0] {
				child = n.children[i]
				break
			}
		}
		if n.single == nil && n.rest == nil && n.constrained == nil {
			if child == nil {
				return nil
			}
			n = child
			continue
		}
		mark := s.match.Len()
		if child != nil {
			if route := child.match(s, path); route != nil {
				return route
			}
			s.match.Truncate(mark)
		}
		size := bytes.IndexByte(path, '/')
		if size < 0 {
			size = len(path)
		}
		value := path[:size:size]
		if size == 0 || s.refuseDots && isDots(value) {
			return n.remainder(s, path)
		}
		for i := range n.constrained {
			if !s.satisfies(n.constrained[i].constraint, value) {
				continue
			}
			s.match.Append(value)
			if route := n.constrained[i].node.match(s, path[size:]); route != nil {
				return route
			}
			s.match.Truncate(mark)
		}
		if n.single == nil {
			return n.remainder(s, path)
		}
		s.match.Append(value)
		if n.rest == nil {
			n, path = n.single, path[size:] // the last alternative, so the search needs no backtracking
			continue
		}
		if route := n.single.match(s, path[size:]); route != nil {
			return route
		}
		s.match.Truncate(mark)
		return n.remainder(s, path)
	}
}

// ending returns the route for a path that ends at n, nil if there is none. path is the part of the request's path that n's prefix must
// match; it may end before the prefix does. If the path with a slash appended would have a route, ending records that route.
func (n *node) ending(s *search, path []byte) *Route {
	if string(path) != n.prefix {
		if len(path) == len(n.prefix)-1 && n.prefix[len(path)] == '/' && string(path) == n.prefix[:len(path)] {
			s.noteSlash(n)
		}
		return nil
	}
	switch {
	case n.route != nil:
		return n.route
	case n.rest != nil:
		if n.rest.restNamed {
			s.match.Append(nil)
		}
		return n.rest
	}
	if i := strings.IndexByte(n.first, '/'); i >= 0 && n.children[i].prefix == "/" {
		s.noteSlash(n.children[i])
	}
	return nil
}

// remainder returns n's route for all paths below n. The caller has found that the request's path continues after n.
func (n *node) remainder(s *search, path []byte) *Route {
	if n.rest == nil || s.refuseDots && !isClean(path) {
		return nil
	}
	if n.rest.restNamed {
		s.match.Append(path[:len(path):len(path)])
	}
	s.beyond = true
	return n.rest
}

// noteSlash records the route of n, the node that the path would have reached with a slash appended.
func (s *search) noteSlash(n *node) {
	if s.withSlash != nil {
		return
	}
	if s.withSlash = n.route; n.route == nil {
		s.withSlash = n.rest
	}
}

// satisfies reports whether a value in canonical form satisfies the constraint.
func (s *search) satisfies(c *constraint, value []byte) bool {
	if s.scratch != nil && bytes.IndexByte(value, '%') >= 0 {
		s.scratch.value = append(s.scratch.value[:0], value...)
		value = decodeCanonical(s.scratch.value)
	}
	return c.match(value)
}

// isClean reports whether a path, without its leading slash, has neither empty segments nor dot segments.
func isClean(path []byte) bool {
	for len(path) > 0 {
		size := bytes.IndexByte(path, '/')
		switch {
		case size == 0:
			return false
		case size < 0:
			return !isDots(path)
		case isDots(path[:size]):
			return false
		}
		path = path[size+1:]
	}
	return true
}

func isDots(segment []byte) bool {
	return len(segment) <= 2 && string(segment) == ".."[:len(segment)] && len(segment) > 0
}
