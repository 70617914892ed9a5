package filo

// Params are the path parameters of a request: what the wildcards of its route's pattern stand for, in their order. They are
// a router's to fill in, while it looks for the route; see Ctx.Params. Handlers ask Ctx.Param.
type Params struct {
	names  []string // of the route; borrowed from it
	values [][]byte // borrowed
}

// Append adds the value of the next wildcard. It is borrowed until the handler returns.
func (p *Params) Append(value []byte) { p.values = append(p.values, value) }

// Truncate forgets all values but the first n: those of a route that wasn't the one.
func (p *Params) Truncate(n int) { p.values = p.values[:n] }

// SetNames says what the wildcards are called. The slice is shared, and never changed.
func (p *Params) SetNames(names []string) { p.names = names }

// Len returns how many there are.
func (p *Params) Len() int { return len(p.values) }

// At returns a name and its value, which is borrowed until the handler returns.
func (p *Params) At(i int) (name string, value []byte) {
	if i < len(p.names) {
		name = p.names[i]
	}
	return name, p.values[i]
}

// Get returns the value of a wildcard, borrowed until the handler returns, or nil if the route has none of that name.
func (p *Params) Get(name string) []byte {
	for i, each := range p.names {
		if each == name && i < len(p.values) {
			return p.values[i]
		}
	}
	return nil
}

// reset forgets all of them, and keeps the room.
func (p *Params) reset() {
	clear(p.values)
	p.names, p.values = nil, p.values[:0]
}

// Params returns the request's path parameters, for a router to fill in.
func (c *Ctx) Params() *Params { c.check(); return &c.params }

// Param returns what a wildcard of the route's pattern stands for, percent-decoded; "" if there is none of that name.
func (c *Ctx) Param(name string) string { c.check(); return string(c.params.Get(name)) }

// ParamBytes is Param, borrowed until the handler returns.
func (c *Ctx) ParamBytes(name string) []byte { c.check(); return c.params.Get(name) }

// Query returns the first value of a query parameter, decoded; "" if there is none of that name.
func (c *Ctx) Query(name string) string { c.check(); return c.Request.Query().Get(name) }

// Route returns the pattern of the route that was found for the request, such as "GET /users/{id}"; "" if there is none.
func (c *Ctx) Route() string { c.check(); return c.route }

// SetRoute says which route was found for the request. It is a router's to call.
func (c *Ctx) SetRoute(pattern string) { c.check(); c.route = pattern }
