package filo

import (
	"errors"
	"time"

	"github.com/filohttp/filo/internal/cookie"
)

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
