package bind

import (
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
)

// seenRoutes are the routes that a handler made by Handler has served. Few routes share a handler, so a slice suffices.
type seenRoutes struct{ routes atomic.Pointer[[]string] }

// add reports whether the route is new.
func (s *seenRoutes) add(route string) bool {
	for {
		old := s.routes.Load()
		if old != nil && slices.Contains(*old, route) {
			return false
		}
		added := []string{route}
		if old != nil {
			added = append(added, *old...)
		}
		if s.routes.CompareAndSwap(old, &added) {
			return true
		}
	}
}

// lookAt logs, at the first request of a route, wildcards and form fields that seem meant for the input but are never read. They aren't
// errors, since the function or middleware may read a wildcard itself. The check runs at a request, because Handler doesn't know the
// handler's routes, and a router doesn't know what a handler reads.
func (op *operation) lookAt(c *filo.Ctx) {
	if route := c.Route(); route == "" || len(op.description.Fields) == 0 || !op.seen.add(route) {
		return
	}
	for _, name := range op.unreadWildcards(c) {
		c.Logger().Warn("bind: the route has a wildcard that no field of the handler's input reads: give a field the tag path, unless the wildcard "+
			"is read by Ctx.Param", "wildcard", name, "input", op.description.Input.String())
	}
	if names := op.formsOfGET(c.Route()); len(names) > 0 {
		c.Logger().Warn("bind: fields of the handler's input have the tag form, which is for bodies, and requests of GET have none: for the query write the tag query",
			"fields", strings.Join(names, ", "), "input", op.description.Input.String())
	}
}

// unreadWildcards returns the names of the route's wildcards that no field reads.
func (op *operation) unreadWildcards(c *filo.Ctx) (names []string) {
	match := inside.Match(c)
	for i := range match.Len() {
		name, _ := match.At(i)
		if name != "" && !slices.ContainsFunc(op.description.Fields, func(f Field) bool { return f.In == inPath.String() && f.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// formsOfGET returns the fields that only a form could fill, if the route is for GET or HEAD. Such fields often come from
// programs for gin, which reads queries with the tag form.
func (op *operation) formsOfGET(route string) (names []string) {
	if method, _, _ := strings.Cut(route, " "); method != "GET" && method != "HEAD" {
		return nil
	}
	for _, f := range op.description.Fields {
		if f.In == inForm.String() && onlyIn(f.Struct, inForm) {
			names = append(names, f.Struct.Name)
		}
	}
	return names
}

// onlyIn reports whether a field has no tags of sources other than the given one.
func onlyIn(f reflect.StructField, in source) bool {
	for other := inBody; other < sources; other++ {
		if _, has := f.Tag.Lookup(other.tag()); has && other.tag() != in.tag() {
			return false
		}
	}
	return true
}
