// Package replay records responses in order to send them again: for a cache, and for clients that repeat a request.
package replay

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/filohttp/filo"
)

// Answer is a recorded response. Once several goroutines share it, it doesn't change.
type Answer struct {
	Status int
	fields []Field
	body   []byte
}

// Field is a header field of a response.
type Field struct{ name, value string }

// Record copies the response if it is complete: its status, its body, and those of its fields that aren't in outer, the fields that were set before.
// It leaves out fields that describe the connection or a single message.
func Record(c *filo.Ctx, outer []Field) (*Answer, bool) {
	body, ok := c.Response.WholeBody()
	if !ok || c.Response.Trailer.Len() > 0 {
		return nil, false
	}
	r := &Answer{Status: c.Status(), body: slices.Clone(body)}
	for _, f := range Fields(c) {
		if !momentary(f.name) && !slices.Contains(outer, f) {
			r.fields = append(r.fields, f)
		}
	}
	return r, true
}

// Get returns the value of the first field with the name, or "" if there is none.
func (r *Answer) Get(name string) string {
	for _, f := range r.fields {
		if strings.EqualFold(f.name, name) {
			return f.value
		}
	}
	return ""
}

// AddField adds a field to an answer that isn't shared yet.
func (r *Answer) AddField(name, value string) { r.fields = append(r.fields, Field{name, value}) }

// Fields copies the response's fields.
func Fields(c *filo.Ctx) []Field {
	fields := make([]Field, 0, c.Response.Header.Len())
	for name, value := range c.Response.Header.All() {
		fields = append(fields, Field{string(name), string(value)})
	}
	return fields
}

// momentary reports whether a field describes one message and not its content (RFC 9110, section 7.6.1, and the fields that the server
// writes itself).
func momentary(name string) bool {
	for _, known := range [...]string{
		"Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
	} {
		if strings.EqualFold(name, known) {
			return true
		}
	}
	return false
}

// Give makes r the response. Its fields replace existing ones of the same names, except Vary, which is merged.
func (r *Answer) Give(c *filo.Ctx) {
	c.Response.SetStatus(r.Status)
	h := &c.Response.Header
	for i, f := range r.fields {
		first := !slices.ContainsFunc(r.fields[:i], func(g Field) bool { return strings.EqualFold(f.name, g.name) })
		if first && !strings.EqualFold(f.name, "Vary") {
			h.Set(f.name, f.value)
		} else {
			h.Add(f.name, f.value)
		}
	}
	c.Response.SetBodyNoCopy(r.body)
}

// Restore resets the response's fields to outer, the fields that were there before, and drops its trailer, which belongs to the body that
// another answer replaces.
func Restore(c *filo.Ctx, outer []Field) {
	h := &c.Response.Header
	h.Reset()
	c.Response.Trailer.Reset()
	for _, f := range outer {
		h.Add(f.name, f.value)
	}
}

// Refresh replaces a 304 response with r. The 304 says that r is still current. The fields of the 304 replace
// those of r, except Vary and the fields that describe the body (RFC 9111, section 3.2).
func (r *Answer) Refresh(c *filo.Ctx, outer []Field) {
	newer := Fields(c)
	Restore(c, outer)
	r.Give(c)
	h := &c.Response.Header
	h.Del("Age") // the age of the response begins anew with the 304
	h.Del("Date")
	for i, f := range newer {
		switch {
		case momentary(f.name), slices.Contains(outer, f), slices.ContainsFunc(notRefreshed, f.named):
		case slices.ContainsFunc(newer[:i], func(g Field) bool { return g.named(f.name) && !slices.Contains(outer, g) }):
			h.Add(f.name, f.value)
		default:
			h.Set(f.name, f.value)
		}
	}
}

var notRefreshed = []string{"Vary", "Content-Encoding", "Content-Type", "Content-Range"}

func (f Field) named(name string) bool { return strings.EqualFold(f.name, name) }

// Len returns the length of the body.
func (r *Answer) Len() int { return len(r.body) }

// Size returns about how much memory r occupies, in bytes.
func (r *Answer) Size() int {
	size := 256 + len(r.body)
	for _, f := range r.fields {
		size += 32 + len(f.name) + len(f.value)
	}
	return size
}

// AppendTo appends an encoding of r for a store of bytes. Parse decodes it.
func (r *Answer) AppendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(r.Status))
	dst = binary.AppendUvarint(dst, uint64(len(r.fields)))
	for _, f := range r.fields {
		dst = appendString(appendString(dst, f.name), f.value)
	}
	return append(dst, r.body...)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

var errNotKept = errors.New("the store has returned a malformed response")

// Parse decodes an answer that AppendTo has encoded. The body is borrowed from b.
func Parse(b []byte) (*Answer, error) {
	status, b, ok := takeUvarint(b, 599)
	count, b, more := takeUvarint(b, len(b))
	if !ok || !more || status < 200 {
		return nil, errNotKept
	}
	r := &Answer{Status: status}
	for range count {
		var f Field
		for _, text := range [...]*string{&f.name, &f.value} {
			var size int
			if size, b, ok = takeUvarint(b, len(b)); !ok || size > len(b) {
				return nil, errNotKept
			}
			*text, b = string(b[:size]), b[size:]
		}
		r.fields = append(r.fields, f)
	}
	r.body = b
	return r, nil
}

// takeUvarint reads a number of at most limit from the beginning of b, and returns what follows it.
func takeUvarint(b []byte, limit int) (n int, rest []byte, ok bool) {
	value, size := binary.Uvarint(b)
	if size <= 0 || value > uint64(limit) {
		return 0, nil, false
	}
	return int(value), b[size:], true
}
