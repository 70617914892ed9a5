package filo

// ctxValue is a value that was stored for a request.
type ctxValue struct{ key, value any }

// Set stores a value for the rest of the request, for the handlers and middleware that come after; another one of the same
// key is replaced. The key is compared as a map's is: a type of your own keeps yours apart from those of others, and a Key
// does so with the value's type.
func (c *Ctx) Set(key, value any) {
	c.check()
	for i := range c.values {
		if c.values[i].key == key {
			c.values[i].value = value
			return
		}
	}
	c.values = append(c.values, ctxValue{key, value})
}

// Get returns the value that was stored for the request by Set, nil if there is none.
func (c *Ctx) Get(key any) any {
	c.check()
	for i := range c.values {
		if c.values[i].key == key {
			return c.values[i].value
		}
	}
	return nil
}

// Key stores and finds values of one type in requests. Each key is another one, whatever its name.
type Key[T any] struct{ name string }

// NewKey makes a key. The name is for people to read.
func NewKey[T any](name string) *Key[T] { return &Key[T]{name: name} }

// Set stores a value for the rest of the request.
func (k *Key[T]) Set(c *Ctx, value T) { c.Set(k, value) }

// Get returns the request's value, and whether there is one.
func (k *Key[T]) Get(c *Ctx) (value T, ok bool) {
	value, ok = c.Get(k).(T)
	return value, ok
}

// String returns the key's name.
func (k *Key[T]) String() string { return k.name }

// Status returns the status that the response has so far, that of the time-out's if that has answered.
func (c *Ctx) Status() int {
	c.check()
	if c.timedOut() {
		return c.timeout.answer.Status
	}
	return c.Response.status
}

// Committed reports whether the response's head is on its way, so that neither status nor fields can be changed any more.
func (c *Ctx) Committed() bool { c.check(); return c.stream.sent || c.timedOut() }

// BytesWritten returns the size of the response's body so far, whether or not it was sent.
func (c *Ctx) BytesWritten() int64 {
	c.check()
	if c.stream.open {
		return c.stream.written
	}
	return int64(c.Response.size())
}

// RenderError makes the ErrorHandler turn err into the response now, instead of when the handler has returned it, so that
// middleware around finds the response as it will be: from then on it is final, whatever error is returned. The result is
// err, for the handler to return. ErrAbort, and an error behind a head that was sent, are left to the server.
func (c *Ctx) RenderError(err error) error {
	c.check()
	if err == nil || c.rendered || c.stream.sent || c.conn.hijacked || c.timedOut() {
		return err
	}
	c.rendered = c.conn.renderError(c, err)
	return err
}

// ErrorRendered reports whether RenderError has turned an error into the response.
func (c *Ctx) ErrorRendered() bool { c.check(); return c.rendered }
