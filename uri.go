package filo

import "github.com/filohttp/filo/internal/target"

// URI is the target URI of a request (RFC 9110, section 7.1), built from the request target, Host and the connection. It is
// parsed on first use.
//
// A []byte from a URI is borrowed: it is valid until the handler returns, and must not be changed. A string belongs to the
// caller. URI isn't safe for concurrent use, not even for reading.
type URI struct {
	target      target.Target
	query       Args
	queryParsed bool
}

// parse sets the target, the value of Host, and whether the connection uses TLS. The target must have passed the validator of its form.
// u borrows both until the next parse or reset.
func (u *URI) parse(target, host []byte, secure bool) {
	u.reset()
	u.target.Parse(target, host, secure)
}

// reset drops all borrowed bytes.
func (u *URI) reset() {
	u.target.Reset()
	if u.queryParsed {
		u.query.Reset()
	}
	u.queryParsed = false
}

// replace replaces path and query.
func (u *URI) replace(target []byte) {
	u.target.Replace(target)
	if u.queryParsed {
		u.query, u.queryParsed = Args{}, false // the handler may have borrowed the old ones
	}
}

// Scheme returns "http" or "https": from a target in absolute-form, else "https" if the connection uses TLS. A client or proxy
// can put either into an absolute-form target, so use Ctx.TLS, not Scheme, as proof of TLS.
func (u *URI) Scheme() string { return u.target.Scheme() }

// Host returns the host with its port, if one was sent, such as "example.com:8080": from a target in absolute-form or
// authority-form, else from the Host field. Its case and encoding are as sent. It is empty if the client sent none.
func (u *URI) Host() string { return string(u.target.Host()) }

// HostBytes returns the result of Host as borrowed bytes.
func (u *URI) HostBytes() []byte { return u.target.Host() }

// Hostname returns the host without its port; an IPv6 address also loses its brackets.
func (u *URI) Hostname() string { return u.target.Hostname() }

// Port returns the port that follows the host, in decimal, or "" if the client sent none.
func (u *URI) Port() string { return u.target.Port() }

// Path returns the path, percent-decoded, such as "/a b" for "/a%20b". For an absolute-form target without a path it is the equivalent "/"
// (RFC 9110, section 4.2.3). It is "*" for OPTIONS *, and empty for CONNECT.
//
// The path isn't normalized. It may hold any bytes, such as "/" from "%2F", NUL from "%00", and invalid UTF-8. Segments "." and
// "..", and empty ones, remain. Code that builds a file name from it must clean it first.
func (u *URI) Path() string { return string(u.target.Path()) }

// PathBytes returns the result of Path as borrowed bytes.
func (u *URI) PathBytes() []byte { return u.target.Path() }

// RawPath returns the path as sent, such as "/a%20b".
func (u *URI) RawPath() string { return string(u.target.RawPath()) }

// RawPathBytes returns the result of RawPath as borrowed bytes.
func (u *URI) RawPathBytes() []byte { return u.target.RawPath() }

// RawQuery returns the query as sent, without its "?", or "" if there is none.
func (u *URI) RawQuery() string { return string(u.target.RawQuery()) }

// RawQueryBytes returns the result of RawQuery as borrowed bytes.
func (u *URI) RawQueryBytes() []byte { return u.target.RawQuery() }

// Query returns the parameters of the query, parsed on the first call. It holds at most 1000; Args.Err tells whether there were
// more. Changes to the parameters don't affect RawQuery or String.
func (u *URI) Query() *Args {
	if !u.queryParsed {
		u.queryParsed = true
		_ = u.query.Parse(u.RawQueryBytes()) // u.query keeps the error for Err
	}
	return &u.query
}

// String returns the URI in full, such as "http://example.com/a%20b?x=1", with path and query as sent. For CONNECT it is the
// authority, such as "example.com:443". Without a host, which HTTP/1.0 allows, it is the target as sent.
func (u *URI) String() string { return u.target.String() }
