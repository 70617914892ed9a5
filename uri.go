package filo

import (
	"bytes"

	"github.com/filohttp/filo/internal/syntax"
)

// targetForm is how a request target is written (RFC 9112, section 3.2).
type targetForm uint8

const (
	targetUnsplit   targetForm = iota // not parsed yet
	targetOrigin                      // "/path?query"
	targetAbsolute                    // "http://host/path?query"
	targetAuthority                   // "host:port", of CONNECT
	targetAsterisk                    // "*", of OPTIONS
)

// maxKeptPathBytes is the size of the largest buffer for decoded paths that is kept between requests.
const maxKeptPathBytes = 8 << 10

// URI is the target URI of a request (RFC 9110, section 7.1), built from the request target, Host and the connection. It is
// parsed on first use.
//
// A []byte from a URI is borrowed: it is valid until the handler returns, and must not be changed. A string belongs to the
// caller. URI isn't safe for concurrent use, not even for reading.
type URI struct {
	// target and hostField are the request target and the value of Host, borrowed from the connection's buffer, as are
	// host, rawPath and rawQuery.
	target    []byte
	hostField []byte
	host      []byte
	rawPath   []byte
	rawQuery  []byte

	path    []byte // decoded; nil until asked for
	decoded []byte // memory for path, kept between requests
	query   Args

	form        targetForm
	queryParsed bool
	// secure says whether the connection uses TLS. Once form is set, it says whether the scheme is https.
	secure bool
}

// parse sets the target, the value of Host, and whether the connection uses TLS. The target must have passed the validator of its form.
// parse does no work yet. u borrows target and host until the next parse or reset.
func (u *URI) parse(target, host []byte, secure bool) {
	u.reset()
	// Without spare capacity, an append by the handler can't overwrite what follows in the buffer. The slices taken from these have
	// none either.
	u.target, u.hostField, u.secure = target[:len(target):len(target)], host[:len(host):len(host)], secure
}

// reset drops all borrowed bytes.
func (u *URI) reset() {
	u.target, u.hostField, u.host, u.rawPath, u.rawQuery, u.path = nil, nil, nil, nil, nil, nil
	if cap(u.decoded) > maxKeptPathBytes {
		u.decoded = nil
	}
	if u.queryParsed {
		u.query.Reset()
	}
	u.form, u.queryParsed, u.secure = targetUnsplit, false, false
}

func (u *URI) split() {
	if u.form == targetUnsplit {
		u.splitTarget()
	}
}

func (u *URI) splitTarget() {
	u.host = u.hostField
	if len(u.target) == 0 || u.target[0] == '/' {
		u.form = targetOrigin
		u.splitPath(u.target)
		return
	}
	if string(u.target) == "*" {
		u.form = targetAsterisk
		u.rawPath = u.target
		return
	}
	// RFC 9112, section 3.2.2: "When an origin server receives a request with an absolute-form of request-target, the
	// origin server MUST ignore the received Host header field (if any) and instead use the host information of the
	// request-target."
	secure, host, rest, ok := syntax.SplitAbsoluteTarget(u.target)
	if !ok {
		u.form = targetAuthority
		u.host = u.target
		return
	}
	u.form = targetAbsolute
	u.secure, u.host = secure, host
	u.splitPath(rest)
}

func (u *URI) splitPath(b []byte) {
	if i := bytes.IndexByte(b, '?'); i >= 0 {
		u.rawPath, u.rawQuery = b[:i:i], b[i+1:]
		return
	}
	u.rawPath = b
}

// Scheme returns "http" or "https": from a target in absolute-form, else "https" if the connection uses TLS. A client or proxy
// can put either into an absolute-form target, so use Ctx.TLS, not Scheme, as proof of TLS.
func (u *URI) Scheme() string {
	u.split()
	if u.secure {
		return "https"
	}
	return "http"
}

// Host returns the host with its port, if one was sent, such as "example.com:8080": from a target in absolute-form or
// authority-form, else from the Host field. Its case and encoding are as sent. It is empty if the client sent none.
func (u *URI) Host() string { return string(u.HostBytes()) }

// HostBytes is Host, borrowed.
func (u *URI) HostBytes() []byte {
	u.split()
	return u.host
}

// Hostname returns the host without its port; an IPv6 address also loses its brackets.
func (u *URI) Hostname() string {
	host := u.HostBytes()
	if len(host) > 0 && host[0] == '[' {
		if end := bytes.IndexByte(host, ']'); end > 0 {
			return string(host[1:end])
		}
	}
	name, _ := cutPort(host)
	return string(name)
}

// Port returns the port that follows the host, in decimal, or "" if the client sent none.
func (u *URI) Port() string {
	_, port := cutPort(u.HostBytes())
	return string(port)
}

// cutPort splits host at the colon before the port. A colon inside an IPv6 address doesn't count.
func cutPort(host []byte) (name, port []byte) {
	i := bytes.LastIndexByte(host, ':')
	if i < 0 || bytes.IndexByte(host[i:], ']') >= 0 {
		return host, nil
	}
	return host[:i], host[i+1:]
}

// Path returns the path, percent-decoded, such as "/a b" for "/a%20b". It is "/" for an absolute-form target without a path,
// which RFC 9110, section 4.2.3, makes equivalent, "*" for OPTIONS *, and empty for CONNECT.
//
// The path isn't normalized. It may hold any bytes, such as "/" from "%2F", NUL from "%00", and invalid UTF-8. Segments "." and
// "..", and empty ones, remain. Code that builds a file name from it must clean it first.
func (u *URI) Path() string { return string(u.PathBytes()) }

// PathBytes is Path, borrowed.
func (u *URI) PathBytes() []byte {
	if u.path == nil {
		u.decodePath()
	}
	return u.path
}

func (u *URI) decodePath() {
	u.split()
	switch {
	case len(u.rawPath) == 0 && u.form == targetAbsolute:
		u.decoded = append(u.decoded[:0], '/')
		u.path = u.decoded
	case bytes.IndexByte(u.rawPath, '%') < 0:
		u.path = u.rawPath
	default:
		u.decoded = syntax.AppendPercentDecoded(u.decoded[:0], u.rawPath)
		u.path = u.decoded
	}
}

// RawPath returns the path as sent, such as "/a%20b".
func (u *URI) RawPath() string { return string(u.RawPathBytes()) }

// RawPathBytes is RawPath, borrowed.
func (u *URI) RawPathBytes() []byte {
	u.split()
	return u.rawPath
}

// RawQuery returns the query as sent, without its "?", or "" if there is none.
func (u *URI) RawQuery() string { return string(u.RawQueryBytes()) }

// RawQueryBytes is RawQuery, borrowed.
func (u *URI) RawQueryBytes() []byte {
	u.split()
	return u.rawQuery
}

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
func (u *URI) String() string {
	u.split()
	switch {
	case len(u.host) == 0 || u.form == targetAuthority:
		return string(u.target)
	case u.form == targetAsterisk:
		// RFC 9112, section 3.3: in asterisk-form, "the target URI's combined path and query component is empty".
		return u.Scheme() + "://" + string(u.host)
	case u.form == targetOrigin:
		return u.Scheme() + "://" + string(u.host) + string(u.target)
	}
	return u.absoluteString()
}

// absoluteString writes a missing path as "/".
func (u *URI) absoluteString() string {
	uri := u.Scheme() + "://" + string(u.host)
	if len(u.rawPath) == 0 {
		uri += "/"
	}
	// The rest of an absolute-form target follows the host.
	return uri + string(u.target[bytes.Index(u.target, []byte("://"))+len("://")+len(u.host):])
}
