package bind

import (
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
)

// seenRoutes are the routes that a handler made by Handler has served, or those for GET for which All has bound a struct. Few routes share a
// handler or such a struct, so a slice suffices.
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
	if plan := &plansOf(op.description.Input)[inMultipart]; len(plan.formOnly) > 0 && isGET(c.Route()) {
		plan.warnOfGET(c, op.description.Input)
	}
}

// warnOfGET logs fields that a route for GET can't fill. Such fields often come from programs for gin, which reads queries with the tag form.
// It is no error, since routes for GET and POST may share a struct.
func (p *plan) warnOfGET(c *filo.Ctx, input reflect.Type) {
	c.Logger().Warn("bind: fields of the input have the tag form, which is for bodies, and requests of GET have none: for the query write the tag query",
		"fields", strings.Join(p.formOnly, ", "), "input", input.String())
}

// isGET reports whether a route is for GET or HEAD.
func isGET(route string) bool {
	return strings.HasPrefix(route, "GET ") || strings.HasPrefix(route, "HEAD ")
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

// onlyIn reports whether a field has no tags of sources other than the given one.
func onlyIn(f reflect.StructField, in source) bool {
	for other := inBody; other < sources; other++ {
		if _, has := f.Tag.Lookup(other.tag()); has && other.tag() != in.tag() {
			return false
		}
	}
	return true
}
