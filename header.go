package filo

import (
	"fmt"
	"iter"

	"github.com/filohttp/filo/internal/field"
	"golang.org/x/net/http/httpguts"
)

// Header is an ordered list of header fields, of a request, a response, or a trailer section.
//
// Lookup ignores the case of names; the fields keep the order and case in which they were sent or set. A name may occur several
// times. A []byte from a Header is borrowed: it is valid until the handler returns or the Header changes. A string belongs to
// the caller. A Header isn't safe for concurrent use.
//
// No field that is set can break the framing of a message: control bytes in a value (CR, LF and NUL among them) become spaces,
// and a field whose name isn't a token of RFC 9110 is left out.
//
// A Header must not be copied. To pass fields on, add each field that All yields.
type Header struct {
	_    noCopy
	list field.List
}

// noCopy makes go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Len returns the number of fields.
func (h *Header) Len() int { return h.list.Len() }

// Get returns the value of the first field called name, "" if there is none.
func (h *Header) Get(name string) string { return string(h.list.Get(name)) }

// GetBytes returns the value of the first field called name, nil if there is none.
func (h *Header) GetBytes(name string) []byte { return h.list.Get(name) }

// Has reports whether there is a field called name.
func (h *Header) Has(name string) bool { return h.list.Find(name, 0) >= 0 }

// Values yields the value of each field called name, in order.
func (h *Header) Values(name string) iter.Seq[[]byte] { return h.list.Values(name) }

// All yields the name and the value of each field, in order and in the case in which they were sent or set.
func (h *Header) All() iter.Seq2[[]byte, []byte] { return h.list.All() }

// Set replaces all fields called name with a single one, at the position of the first of them.
func (h *Header) Set(name, value string) { h.list.Set(name, value) }

// SetBytes is like Set, for a value in bytes, which it copies.
func (h *Header) SetBytes(name string, value []byte) { h.list.SetBytes(name, value) }

// Add appends a field and keeps other fields of the same name.
func (h *Header) Add(name, value string) { h.list.Add(name, value) }

// AddBytes is like Add, for a value in bytes, which it copies.
func (h *Header) AddBytes(name string, value []byte) { h.list.AddBytes(name, value) }

// Del removes all fields called name.
func (h *Header) Del(name string) { h.list.Del(name) }

// Reset removes all fields.
func (h *Header) Reset() { h.list.Reset() }

// SetField replaces all fields of f's name with f, as Set does.
func (h *Header) SetField(f *Field) { h.list.SetLine(&f.line) }

// AddField appends f and keeps other fields of the same name.
func (h *Header) AddField(f *Field) { h.list.AddLine(&f.line) }

// Field is a header field that is prepared once and set in many messages, which is faster than Header.Set.
type Field struct{ line field.Line }

// NewField makes a field. It trims white space around the value. It panics if the name isn't a token, or if the value has
// control bytes.
func NewField(name, value string) Field {
	if len(name) > field.MaxName || !httpguts.ValidHeaderFieldName(name) {
		panic(fmt.Sprintf("filo: NewField: %q isn't a field name", name))
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		panic(fmt.Sprintf("filo: NewField: %q isn't a field value", value))
	}
	return Field{field.NewLine(name, value)}
}

// Name returns the field's name.
func (f *Field) Name() string { return f.line.Name() }

// Value returns the field's value.
func (f *Field) Value() string { return f.line.Value() }
