package filo

import "github.com/filohttp/filo/internal/hooks"

func init() {
	hooks.Enter = (*Ctx).enter
	hooks.Inherit = (*Ctx).inherit
	hooks.Carry = (*Server).carry
}

// Param returns the percent-decoded value of a wildcard in the route's pattern, or "" if the pattern has no wildcard of that
// name.
func (c *Ctx) Param(name string) string { c.check(); return string(c.match.Get(name)) }

// ParamBytes is Param, borrowed until the handler returns.
func (c *Ctx) ParamBytes(name string) []byte { c.check(); return c.match.Get(name) }

// Query returns the first value of a query parameter, decoded, or "" if there is no parameter of that name.
func (c *Ctx) Query(name string) string { c.check(); return c.Request.Query().Get(name) }

// Route returns the pattern of the route that matched the request, such as "GET /users/{id}", or "" if none did.
func (c *Ctx) Route() string { c.check(); return c.match.Route }

// Match is for filo's own router and adaptor: no other package can construct its argument. It returns the router's match of the
// request.
func (c *Ctx) Match(hooks.Own) *hooks.Match { c.check(); return &c.match }
