package router

import (
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// queries holds the media types that a QUERY route accepts.
type queries struct {
	types   []string   // "*/*" and "text/*" are ranges
	field   filo.Field // Accept-Query
	refusal error      // the error for any other type
}

var errNoQueryType = filo.Error(400, "a QUERY needs a Content-Type, which says how to read its content")

// AcceptQuery sets the media types that a QUERY route accepts, such as "application/json" or "text/*". The route's responses list them in
// Accept-Query (RFC 10008, section 3), and so do the router's 204 and 405 responses for the route's path. A QUERY with content of another
// type is answered with 415, before the handler is called. Parameters of a request's type, such as charset, are ignored. AcceptQuery
// returns the route. It panics if the route is for another method, if no type or a type with parameters is given, and if it is called twice.
func (route *Route) AcceptQuery(mediaTypes ...string) *Route {
	r := route.group.router
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustNotServe("Route.AcceptQuery")
	check := func(ok bool, problem string) {
		if !ok {
			panic(fmt.Sprintf("router: AcceptQuery of %s: %s", route.pattern, problem))
		}
	}
	check(route.pattern.method == "QUERY", "the route is for another method than QUERY")
	check(route.queries == nil, "it was called before: name all types at once")
	check(len(mediaTypes) > 0, "it needs a media type")
	q := &queries{types: slices.Clone(mediaTypes)}
	for _, mediaType := range mediaTypes {
		_, parameters, err := mime.ParseMediaType(mediaType)
		main, sub, ok := strings.Cut(mediaType, "/")
		check(err == nil && len(parameters) == 0 && ok && main != "" && sub != "" && mediaType == strings.TrimSpace(mediaType) &&
			(sub == "*" || !strings.Contains(mediaType, "*")), fmt.Sprintf(`%q isn't a media type such as "application/json" or "text/*", without parameters`, mediaType))
	}
	// RFC 10008, section 3: a List of Tokens or Strings (RFC 9651, section 3.1). A String can hold any media type. It needs no escapes,
	// because the tokens of a media type contain no quotes.
	q.field = filo.NewField("Accept-Query", `"`+strings.Join(mediaTypes, `", "`)+`"`)
	q.refusal = filo.Error(415, "Content-Type must be "+strings.Join(mediaTypes, " or "))
	route.queries = q
	return route
}

// accept reports whether the route accepts a request's media type.
func (q *queries) accept(mediaType []byte) bool {
	return slices.ContainsFunc(q.types, func(accepted string) bool {
		prefix, isRange := strings.CutSuffix(accepted, "*")
		switch {
		case accepted == "*/*":
			return true
		case isRange:
			return len(mediaType) > len(prefix) && syntax.EqualFold(mediaType[:len(prefix)], prefix)
		}
		return syntax.EqualFold(mediaType, accepted)
	})
}

// query is the handler of a route for QUERY. RFC 10008, section 2: "Servers MUST fail the request if the Content-Type request field […]
// is missing or is inconsistent with the request content."
func (route *Route) query(c *filo.Ctx) error {
	if route.queries != nil {
		c.Response.Header.SetField(&route.queries.field)
	}
	mediaType := syntax.MediaType(c.Request.Header.GetBytes("Content-Type"))
	switch {
	case len(mediaType) == 0:
		return errNoQueryType
	case route.queries != nil && !route.queries.accept(mediaType):
		return route.queries.refusal
	}
	return route.given(c)
}
