package filo

// ctxValue is a value that was stored for a request.
type ctxValue struct{ key, value any }

// Set stores a value for the rest of the request, for later handlers and middleware. It replaces a value with the same key.
// Keys are compared like map keys: use a key of your own type, or a Key, which also fixes the value's type, to avoid
// collisions.
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

// Get returns the value that Set stored under the key, or nil.
func (c *Ctx) Get(key any) any {
	c.check()
	for i := range c.values {
		if c.values[i].key == key {
			return c.values[i].value
		}
	}
	return nil
}

// Key stores and finds values of one type in requests. Two keys are always distinct, even with the same name.
type Key[T any] struct{ name string }

// NewKey makes a key. The name serves people only, for example in logs.
func NewKey[T any](name string) *Key[T] { return &Key[T]{name: name} }

// Set stores a value for the rest of the request.
func (k *Key[T]) Set(c *Ctx, value T) { c.Set(k, value) }

// Get returns the request's value and whether Set stored one.
func (k *Key[T]) Get(c *Ctx) (value T, ok bool) {
	value, ok = c.Get(k).(T)
	return value, ok
}

// String returns the key's name.
func (k *Key[T]) String() string { return k.name }

// Status returns the response's current status, or the status of the time-out's answer once a time-out has answered.
func (c *Ctx) Status() int {
	c.check()
	if c.timedOut() {
		return c.timeout.answer.Status
	}
	return c.Response.status
}

// Committed reports whether the response's head has been sent, so that status and fields can no longer change.
func (c *Ctx) Committed() bool { c.check(); return c.stream.sent || c.timedOut() }

// BytesWritten returns the current size of the response body, sent or not, or that of the time-out's answer once a time-out has answered.
func (c *Ctx) BytesWritten() int64 {
	c.check()
	if c.timedOut() {
		return c.timeout.bodyBytes
	}
	if c.stream.open {
		return c.stream.written
	}
	return int64(c.Response.size())
}

// RenderError makes the ErrorHandler turn err into the response now rather than after the handler has returned, so that outer
// middleware sees the final response. No error that is returned later changes the response. RenderError returns err, for the
// handler to return. It leaves ErrAbort, and an error after the head was sent, to the server.
func (c *Ctx) RenderError(err error) error {
	c.check()
	if err == nil || c.rendered || c.stream.sent || c.exchange.hijacked || c.timedOut() {
		return err
	}
	c.rendered = c.exchange.renderError(c, err)
	return err
}

// ErrorRendered reports whether RenderError has turned an error into the response.
func (c *Ctx) ErrorRendered() bool { c.check(); return c.rendered }
