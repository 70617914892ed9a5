package router

import "maps"

// methods holds one host's trees of routes, one tree for each method.
type methods struct {
	known [len(knownMethods)]*node
	other map[string]*node
	any   *node // the tree of patterns without a method
}

// knownMethods are found without a map: those of RFC 9110, section 9, PATCH and QUERY.
var knownMethods = [...]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY"}

// unknown is known's result for a method that isn't one of knownMethods.
const unknown = len(knownMethods)

// known returns the index of a method in knownMethods.
func known(method []byte) int {
	switch string(method) {
	case "GET":
		return 0
	case "HEAD":
		return 1
	case "POST":
		return 2
	case "PUT":
		return 3
	case "PATCH":
		return 4
	case "DELETE":
		return 5
	case "OPTIONS":
		return 6
	case "CONNECT":
		return 7
	case "TRACE":
		return 8
	case "QUERY":
		return 9
	}
	return unknown
}

// add adds a route, which must not conflict with another one.
func (m *methods) add(route *Route) {
	method := route.pattern.method
	tree := &m.any
	if i := known([]byte(method)); i != unknown {
		tree = &m.known[i]
	} else if method != "" {
		if m.other == nil {
			m.other = make(map[string]*node)
		}
		added := m.other[method]
		tree = &added
		defer func() { m.other[method] = added }()
	}
	if *tree == nil {
		*tree = &node{}
	}
	(*tree).add(route.pattern.segments, route)
}

// trees returns all trees.
func (m *methods) trees() (trees []*node) {
	for _, tree := range m.byMethod() {
		trees = append(trees, tree)
	}
	if m.any != nil {
		trees = append(trees, m.any)
	}
	return trees
}

// byMethod returns the trees of patterns with a method.
func (m *methods) byMethod() map[string]*node {
	trees := maps.Clone(m.other)
	if trees == nil {
		trees = make(map[string]*node)
	}
	for i, tree := range m.known {
		if tree != nil {
			trees[knownMethods[i]] = tree
		}
	}
	return trees
}

// find returns the route for a request, nil if there is none. find searches the method's own tree first: a pattern without a method that
// matches the same path can't be more specific, since the two patterns would then conflict.
func (m *methods) find(s *search, path []byte) *Route {
	var tree *node
	if s.known != unknown {
		tree = m.known[s.known]
	} else {
		tree = m.other[string(s.method)]
	}
	if route := tree.find(s, path); route != nil {
		return route
	}
	switch string(s.method) {
	case "HEAD":
		// RFC 9110, section 9.3.2: HEAD is GET without the content.
		if route := m.known[known([]byte("GET"))].find(s, path); route != nil {
			return route
		}
	case "CONNECT":
		// CONNECT asks for a tunnel. A handler for every method doesn't know that, and the client would take its 200 for an open
		// tunnel.
		return nil
	}
	return m.any.find(s, path)
}

// find calls match on a tree that may be nil. If no route matches, find removes the values that the method match has appended, so that the
// search in the next tree starts without them.
func (n *node) find(s *search, path []byte) *Route {
	if n == nil {
		return nil
	}
	route := n.match(s, path)
	if route == nil {
		s.match.Truncate(s.before)
	}
	return route
}
