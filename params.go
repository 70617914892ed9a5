package filo

import "github.com/filohttp/filo/internal/hooks"

func init() {
	hooks.Enter = (*Ctx).enter
	hooks.Inherit = (*Ctx).inherit
	hooks.Carry = (*Server).carry
}

// Param returns what a wildcard of the route's pattern stands for, percent-decoded; "" if there is none of that name.
func (c *Ctx) Param(name string) string { c.check(); return string(c.match.Get(name)) }

// ParamBytes is Param, borrowed until the handler returns.
func (c *Ctx) ParamBytes(name string) []byte { c.check(); return c.match.Get(name) }

// Query returns the first value of a query parameter, decoded; "" if there is none of that name.
func (c *Ctx) Query(name string) string { c.check(); return c.Request.Query().Get(name) }

// Route returns the pattern of the route that was found for the request, such as "GET /users/{id}"; "" if there is none.
func (c *Ctx) Route() string { c.check(); return c.match.Route }

// Match is for filo's own router and adaptor: nobody else can make what it takes. It returns what a router has found for the request.
func (c *Ctx) Match(hooks.Own) *hooks.Match { c.check(); return &c.match }
