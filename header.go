package filo

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/filohttp/filo/internal/cookie"
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

// SameSite tells a browser with which cross-site requests to send a cookie (RFC 6265bis, section 4.1.2.7).
type SameSite int

const (
	SameSiteDefault SameSite = cookie.SameSiteDefault // no attribute: the browser decides, mostly as for Lax
	SameSiteLax     SameSite = cookie.SameSiteLax     // with same-site requests, and when the user follows a link from another site
	SameSiteStrict  SameSite = cookie.SameSiteStrict  // with same-site requests only
	SameSiteNone    SameSite = cookie.SameSiteNone    // with all requests; needs Secure
)

// Cookie is a cookie that a response sets (RFC 6265bis, section 4.1). Name is required; the other fields may be zero. An
// invalid cookie is never sent, not even in part: see Valid.
type Cookie struct {
	// Name is a token. Special rules apply to the prefixes "__Secure-" and "__Host-": see Valid.
	Name string
	// Value is visible ASCII without quotes, comma, semicolon and backslash, optionally all within one pair of quotes. Encode
	// other values, for example with base64 or url.QueryEscape.
	Value string
	// Path limits the cookie to that path and the paths below it. It starts with "/". If empty, the browser uses the directory
	// of the request's path; "/" is the usual choice.
	Path string
	// Domain shares the cookie with that domain and all hosts below it. If empty, only the host that sets the cookie gets it. A
	// leading dot has no meaning and isn't sent.
	Domain string
	// Expires is when the browser deletes the cookie. If Expires and MaxAge are zero, the cookie lasts until the browser's session ends.
	Expires time.Time
	// MaxAge is how many seconds the browser keeps the cookie: 0 omits the attribute, and a negative value deletes the cookie
	// now. MaxAge overrides Expires. Browsers keep no cookie for more than 400 days.
	MaxAge int
	// Secure restricts the cookie to TLS.
	Secure bool
	// HttpOnly hides the cookie from scripts.
	HttpOnly bool
	// Partitioned keeps a separate cookie for each top-level site that embeds this one. It needs Secure.
	Partitioned bool
	// SameSite tells the browser with which cross-site requests to send the cookie.
	SameSite SameSite
}

var errNilCookie = errors.New("filo: nil Cookie")

// Valid returns nil if the cookie can be sent and browsers accept it; otherwise the error says what is wrong.
//
// Beyond the syntax of each field, Valid rejects what browsers reject or ignore according to RFC 6265bis: SameSiteNone or Partitioned
// without Secure; a "__Secure-" name without Secure; a "__Host-" name without Secure, with a Path other than "/", or with a Domain;
// name and value of more than 4096 bytes together; an attribute of more than 1024 bytes; and a Path that isn't absolute.
func (c *Cookie) Valid() error {
	if c == nil {
		return errNilCookie
	}
	set := c.set()
	return set.Check()
}

// set converts the cookie to the type of package cookie.
func (c *Cookie) set() cookie.Set {
	return cookie.Set{
		Name: c.Name, Value: c.Value, Path: c.Path, Domain: c.Domain, Expires: c.Expires, MaxAge: c.MaxAge,
		Secure: c.Secure, HttpOnly: c.HttpOnly, Partitioned: c.Partitioned, SameSite: int(c.SameSite),
	}
}

// AppendTo appends the value of a Set-Cookie field and returns the extended slice. If the cookie is invalid, it appends nothing
// and returns the error of Valid.
func (c *Cookie) AppendTo(dst []byte) ([]byte, error) {
	if c == nil {
		return dst, errNilCookie
	}
	set := c.set()
	return set.AppendTo(dst)
}

// String returns the value of a Set-Cookie field, or "" if the cookie is invalid.
func (c *Cookie) String() string {
	value, _ := c.AppendTo(nil)
	return string(value)
}
