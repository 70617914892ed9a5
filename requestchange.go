package filo

import (
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/syntax"
)

// requestChange is what SetMethod and SetTarget have made of a request. What was sent stays where it is, in the
// connection's buffer: it may be lent, and it decides how the answer is framed.
type requestChange struct {
	method, target []byte // in memory; nil as sent
	// memory is only appended to until the request ends, so that what was lent of it keeps its bytes.
	memory []byte
}

// maxKeptChange is how much memory for changes is kept between requests.
const maxKeptChange = 8 << 10

// They are shared: nothing may change them.
var (
	errChangeMethod  = Error(400, "the method isn't a token")
	errChangeConnect = Error(400, "CONNECT can't become another request, nor another one CONNECT")
	errChangeForm    = Error(400, "the request target has no path")
)

// SetMethod changes the method that Method and MethodBytes return, for middleware that runs before the router. The method that
// was sent still decides how the answer is framed: an answer to HEAD, and only that, has no body.
//
// If SetMethod returns an error, an *HTTPError, the method is unchanged. The status is 400 if method isn't a token (RFC 9110,
// section 5.6.2), or if the old or new method is CONNECT, whose target has another form; 501 if method has more than 32 bytes.
func (r *Request) SetMethod(method string) error {
	switch {
	case method == "CONNECT" || string(r.MethodBytes()) == "CONNECT":
		return errChangeConnect
	case !syntax.IsToken(method):
		return errChangeMethod
	case len(method) > http1.MaxMethodBytes:
		return faultErrors[http1.FaultMethodTooLong]
	}
	start := len(r.change.memory)
	r.change.memory = append(r.change.memory, method...)
	r.change.method, r.changed = r.change.since(start), true
	return nil
}

// SetTarget changes the path and query of the request, for middleware that runs before the router. Target, URI and Query then
// return those of target, which must be in origin-form, such as "/a%20b?x=1". Scheme and host don't change, even if they were
// sent as a part of the target. Bytes borrowed before stay valid.
//
// If SetTarget returns an error, an *HTTPError with status 400, the target is unchanged. Either target isn't in origin-form
// (RFC 9112, section 3.2.1), or the request has no path to replace, as with CONNECT and OPTIONS *.
func (r *Request) SetTarget(target string) error {
	start := len(r.change.memory)
	r.change.memory = append(r.change.memory, target...)
	return r.setTarget(start)
}

// SetTargetBytes is SetTarget for a target in bytes, which are copied.
func (r *Request) SetTargetBytes(target []byte) error {
	start := len(r.change.memory)
	r.change.memory = append(r.change.memory, target...)
	return r.setTarget(start)
}

// setTarget takes the target that was appended to the memory for changes, and removes it again if it isn't valid.
func (r *Request) setTarget(start int) error {
	target, uri := r.change.since(start), r.URI()
	uri.split()
	hasPath := uri.form == targetOrigin || uri.form == targetAbsolute
	if hasPath && syntax.ValidOriginTarget(target) {
		r.change.target, r.changed = target, true
		uri.setTarget(target)
		return nil
	}
	r.change.memory = r.change.memory[:start]
	if !hasPath {
		return errChangeForm
	}
	return faultErrors[http1.FaultTarget]
}

// since returns what was appended to the memory from start on.
func (change *requestChange) since(start int) []byte {
	end := len(change.memory)
	return change.memory[start:end:end]
}

// end forgets the changes. What was lent of them becomes invalid.
func (change *requestChange) end() {
	lend.Poison(change.memory[:cap(change.memory)])
	memory := change.memory[:0]
	if cap(memory) > maxKeptChange {
		memory = nil
	}
	*change = requestChange{memory: memory}
}

// setTarget replaces path and query. The URI must have been split, so that host and scheme are known.
func (u *URI) setTarget(target []byte) {
	u.target, u.form = target, targetOrigin
	u.rawPath, u.rawQuery = nil, nil
	u.splitPath(target)
	if u.path != nil {
		// It may be lent, in the memory of decoded ones.
		u.path, u.decoded = nil, nil
	}
	if u.queryParsed {
		u.query, u.queryParsed = Args{}, false
	}
}
