// Package target splits the target of a request (RFC 9112, section 3.2) into the parts of its URI, once a caller asks for one.
package target

import (
	"bytes"

	"github.com/filohttp/filo/internal/syntax"
)

// form is how a request target is written (RFC 9112, section 3.2).
type form uint8

const (
	unsplit   form = iota // not parsed yet
	origin                // "/path?query"
	absolute              // "http://host/path?query"
	authority             // "host:port", of CONNECT
	asterisk              // "*", of OPTIONS
)

// maxKeptPath is the maximum size of a buffer for decoded paths that is kept for the next request.
const maxKeptPath = 8 << 10

// Target is a request target together with the Host field and the scheme, which complete the target URI: see filo.URI. It borrows the bytes that
// Parse gets, until the next Parse or Reset.
type Target struct {
	target    []byte // as sent
	hostField []byte // the value of Host
	host      []byte
	rawPath   []byte
	rawQuery  []byte

	path    []byte // decoded; nil until asked for
	decoded []byte // memory for path, kept between requests

	form form
	// secure says whether the connection uses TLS. Once form is set, it says whether the scheme is https.
	secure bool
}

// Parse sets the target, the value of Host, and whether the connection uses TLS. The target must be valid: see the functions of package syntax. Parse
// only stores its arguments. t borrows target and host until the next Parse or Reset.
func (t *Target) Parse(target, host []byte, secure bool) {
	t.Reset()
	// The slices have no spare capacity, so that an append by the handler can't overwrite the bytes that follow in the buffer. The parts into
	// which they are split have none either.
	t.target, t.hostField, t.secure = target[:len(target):len(target)], host[:len(host):len(host)], secure
}

// Reset drops all borrowed bytes.
func (t *Target) Reset() {
	t.target, t.hostField, t.host, t.rawPath, t.rawQuery, t.path = nil, nil, nil, nil, nil, nil
	if cap(t.decoded) > maxKeptPath {
		t.decoded = nil
	}
	t.form, t.secure = unsplit, false
}

func (t *Target) split() {
	if t.form == unsplit {
		t.splitTarget()
	}
}

func (t *Target) splitTarget() {
	t.host = t.hostField
	if len(t.target) == 0 || t.target[0] == '/' {
		t.form = origin
		t.splitPath(t.target)
		return
	}
	if string(t.target) == "*" {
		t.form = asterisk
		t.rawPath = t.target
		return
	}
	// RFC 9112, section 3.2.2: "When an origin server receives a request with an absolute-form of request-target, the
	// origin server MUST ignore the received Host header field (if any) and instead use the host information of the
	// request-target."
	secure, host, rest, ok := syntax.SplitAbsoluteTarget(t.target)
	if !ok {
		t.form = authority
		t.host = t.target
		return
	}
	t.form = absolute
	t.secure, t.host = secure, host
	t.splitPath(rest)
}

func (t *Target) splitPath(b []byte) {
	if i := bytes.IndexByte(b, '?'); i >= 0 {
		t.rawPath, t.rawQuery = b[:i:i], b[i+1:]
		return
	}
	t.rawPath = b
}

// Scheme returns "http" or "https".
func (t *Target) Scheme() string {
	t.split()
	if t.secure {
		return "https"
	}
	return "http"
}

// Host returns the host with its port, if one was sent.
func (t *Target) Host() []byte {
	t.split()
	return t.host
}

// Hostname returns the host without its port; an IPv6 address also loses its brackets.
func (t *Target) Hostname() string {
	host := t.Host()
	if len(host) > 0 && host[0] == '[' {
		if end := bytes.IndexByte(host, ']'); end > 0 {
			return string(host[1:end])
		}
	}
	name, _ := CutPort(host)
	return string(name)
}

// Port returns the port that follows the host, in decimal, or "" if the client sent none.
func (t *Target) Port() string {
	_, port := CutPort(t.Host())
	return string(port)
}

// CutPort splits host at the colon before the port. It ignores colons inside an IPv6 address.
func CutPort(host []byte) (name, port []byte) {
	i := bytes.LastIndexByte(host, ':')
	if i < 0 || bytes.IndexByte(host[i:], ']') >= 0 {
		return host, nil
	}
	return host[:i], host[i+1:]
}

// Path returns the path, percent-decoded.
func (t *Target) Path() []byte {
	if t.path == nil {
		t.decodePath()
	}
	return t.path
}

func (t *Target) decodePath() {
	t.split()
	switch {
	case len(t.rawPath) == 0 && t.form == absolute:
		t.decoded = append(t.decoded[:0], '/')
		t.path = t.decoded
	case bytes.IndexByte(t.rawPath, '%') < 0:
		t.path = t.rawPath
	default:
		t.decoded = syntax.AppendPercentDecoded(t.decoded[:0], t.rawPath)
		t.path = t.decoded
	}
}

// RawPath returns the path as sent.
func (t *Target) RawPath() []byte {
	t.split()
	return t.rawPath
}

// RawQuery returns the query as sent, without its "?".
func (t *Target) RawQuery() []byte {
	t.split()
	return t.rawQuery
}

// String returns the whole URI.
func (t *Target) String() string {
	t.split()
	switch {
	case len(t.host) == 0 || t.form == authority:
		return string(t.target)
	case t.form == asterisk:
		// RFC 9112, section 3.3: in asterisk-form, "the target URI's combined path and query component is empty".
		return t.Scheme() + "://" + string(t.host)
	case t.form == origin:
		return t.Scheme() + "://" + string(t.host) + string(t.target)
	}
	return t.absoluteString()
}

// absoluteString is String for a target in absolute-form. It adds the path "/" if there is none.
func (t *Target) absoluteString() string {
	uri := t.Scheme() + "://" + string(t.host)
	if len(t.rawPath) == 0 {
		uri += "/"
	}
	// The rest of an absolute-form target follows the host.
	return uri + string(t.target[bytes.Index(t.target, []byte("://"))+len("://")+len(t.host):])
}

// HasPath reports whether the target has a path, which Replace may replace.
func (t *Target) HasPath() bool {
	t.split()
	return t.form == origin || t.form == absolute
}

// Replace replaces path and query with those of a target in origin-form. Host and scheme stay. Slices of the old path stay valid, since a handler may
// still use them.
func (t *Target) Replace(target []byte) {
	t.split()
	t.target, t.form = target, origin
	t.rawPath, t.rawQuery = nil, nil
	t.splitPath(target)
	if t.path != nil {
		t.path, t.decoded = nil, nil // the old path's bytes are in decoded, which therefore can't be reused
	}
}

// Memory returns the buffer that holds the decoded path.
func (t *Target) Memory() []byte { return t.decoded[:cap(t.decoded)] }
