package http2

import (
	"unsafe"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/syntax"
)

// pseudo is the number of a pseudo-header field of requests.
type pseudo uint8

const (
	pseudoMethod pseudo = iota
	pseudoScheme
	pseudoPath
	pseudoAuthority
	pseudoProtocol // RFC 8441, section 4
	pseudoCount
)

var pseudoNames = [pseudoCount]string{":method", ":scheme", ":path", ":authority", ":protocol"}

// span is a range of bytes.
type span struct{ start, end uint32 }

// Head collects the fields of a request or of a trailer section, which HPACK's decoder passes to it. The decoder checks the characters of
// each field, and the size of all fields together. Head checks the other rules of RFC 9113, section 8, and turns the fields into an
// http1.RequestHead, which checks what is common to all HTTP versions. Head keeps the first fault, and ignores the fields after it. A Head
// can be used for many requests, and keeps its memory.
//
// An extended CONNECT request (RFC 8441) becomes the request that the client would send over HTTP/1.1: a GET with the fields Upgrade and
// Connection and, if the protocol is "websocket", a Sec-WebSocket-Key. Protocol returns a value for such requests only.
type Head struct {
	head   *http1.RequestHead
	limits *http1.Limits
	b      []byte // the method, the target, and the names and values of fields
	pseudo []byte // the values of pseudo-header fields
	spans  [pseudoCount]span
	cookie []byte // the parts of the Cookie field ("crumbs"), joined

	// Priority is the value of the request's Priority field (RFC 9218, section 5).
	Priority Priority

	fault   Fault
	refused http1.Fault
	seen    uint8 // a bit for each pseudo-header field that has occurred

	extended, trailer  bool
	begun              bool // pseudo-header fields aren't allowed any more
	host, crumbs       bool // there was a Host field; there was a Cookie field
	expects, hasLength bool
}

// Begin begins a request. The head's text is appended to b, which must be empty. extended allows extended CONNECT.
func (h *Head) Begin(head *http1.RequestHead, b []byte, limits *http1.Limits, extended bool) {
	*h = Head{head: head, limits: limits, b: b, extended: extended, Priority: UnsaidPriority, pseudo: h.pseudo[:0], cookie: h.cookie[:0]}
	head.MethodEnd = 0 // so that a head that is refused at once doesn't have the method of an earlier request
}

// BeginTrailer begins a trailer section. head must be a new RequestHead.
func (h *Head) BeginTrailer(head *http1.RequestHead, b []byte, limits *http1.Limits) {
	h.Begin(head, b, limits, false)
	h.trailer, h.begun = true, true
}

// Field adds the next field, and retains neither slice. id is the ID of the name, or field.Unknown. valid says that the name is a token in
// lower case, which a colon may precede, and that the value has neither control bytes nor white space around it (RFC 9113, section 8.2.1).
func (h *Head) Field(name, value []byte, id field.ID, valid bool) {
	switch {
	case !h.ok():
	case !valid:
		h.fault = FaultField
	case name[0] == ':':
		h.fault = h.addPseudo(name, value)
	default:
		if !h.begun {
			h.beginRequest()
		}
		if h.ok() {
			h.fault = h.addField(name, value, id)
		}
	}
}

// Text is Field for a decoder that doesn't check the characters, such as a decoder of QPACK.
func (h *Head) Text(name, value string) {
	n, v := unsafe.Slice(unsafe.StringData(name), len(name)), unsafe.Slice(unsafe.StringData(value), len(value))
	id := field.Lookup(n)
	h.Field(n, v, id, len(n) > 0 && validName(n, id) && validValue(v))
}

func (h *Head) ok() bool { return h.fault == NoFault && h.refused == http1.NoFault }

// addPseudo stores the value of a pseudo-header field.
func (h *Head) addPseudo(name, value []byte) Fault {
	switch {
	case h.trailer:
		return FaultPseudoInTrailer
	case h.begun:
		return FaultPseudoOrder
	}
	p := pseudoOf(name)
	switch {
	case p == pseudoCount || p == pseudoProtocol && !h.extended:
		return FaultPseudoUnknown
	case h.has(p):
		return FaultPseudoRepeated
	}
	h.seen |= 1 << p
	start := uint32(len(h.pseudo))
	h.pseudo = append(h.pseudo, value...)
	h.spans[p] = span{start, uint32(len(h.pseudo))}
	return NoFault
}

// pseudoOf returns the number of a pseudo-header field, or pseudoCount for an unknown name.
func pseudoOf(name []byte) pseudo {
	for p, known := range pseudoNames {
		if string(name) == known {
			return pseudo(p)
		}
	}
	return pseudoCount
}

func (h *Head) has(p pseudo) bool { return h.seen&(1<<p) != 0 }

func (h *Head) value(p pseudo) []byte { return h.pseudo[h.spans[p].start:h.spans[p].end] }

// beginRequest makes a request line from the pseudo-header fields.
func (h *Head) beginRequest() {
	h.begun = true
	method, target, fault := h.requestLine()
	if h.fault = fault; !h.ok() {
		return
	}
	var refused http1.Fault
	if h.b, refused = h.head.Begin(h.b, text(method), text(target), 1, h.limits); refused != http1.NoFault {
		h.refuse(refused)
		return
	}
	if h.has(pseudoAuthority) {
		h.add(nameHost, h.value(pseudoAuthority), field.Host)
	}
	if h.has(pseudoProtocol) {
		h.addUpgrade()
	}
}

// addUpgrade adds the fields with which an HTTP/1.1 client requests another protocol.
func (h *Head) addUpgrade() {
	protocol := h.value(pseudoProtocol)
	h.add(nameUpgrade, protocol, field.Upgrade)
	h.add(nameConnection, valueUpgrade, field.Connection)
	if syntax.EqualFold(protocol, "websocket") {
		h.add(nameKey, valueKey, field.SecWebSocketKey)
	}
}

// requestLine checks the pseudo-header fields together (RFC 9113, sections 8.3.1 and 8.5, and RFC 8441, section 4).
func (h *Head) requestLine() (method, target []byte, fault Fault) {
	method, target = h.value(pseudoMethod), h.value(pseudoPath)
	connect := string(method) == "CONNECT"
	switch {
	case h.has(pseudoProtocol):
		if !connect || !h.has(pseudoScheme) || !h.has(pseudoPath) || !h.has(pseudoAuthority) || !syntax.IsToken(h.value(pseudoProtocol)) {
			return nil, nil, FaultConnect
		}
		method = methodGet
	case connect:
		if h.has(pseudoScheme) || h.has(pseudoPath) || !h.has(pseudoAuthority) {
			return nil, nil, FaultConnect
		}
		return method, h.value(pseudoAuthority), NoFault
	case !h.has(pseudoMethod) || !h.has(pseudoScheme) || !h.has(pseudoPath):
		return nil, nil, FaultPseudoMissing
	}
	switch {
	case !validScheme(h.value(pseudoScheme)):
		return nil, nil, FaultScheme
	case h.has(pseudoAuthority) && len(h.value(pseudoAuthority)) == 0:
		return nil, nil, FaultAuthority
	case len(target) == 0:
		return nil, nil, FaultPath
	case target[0] != '/' && (string(target) != "*" || string(method) != "OPTIONS"):
		h.refused = http1.FaultTarget // a valid target, but not one that HTTP/2 allows
	}
	return method, target, NoFault
}

// Texts that are added to a head although the client hasn't sent them.
var (
	methodGet, nameHost, nameCookie           = []byte("GET"), []byte("host"), []byte("cookie")
	nameUpgrade, nameConnection, valueUpgrade = []byte("upgrade"), []byte("connection"), []byte("Upgrade")
	// A WebSocket over HTTP/2 has no key (RFC 8441, section 5). Handlers that know only HTTP/1.1 require one. Any key will do,
	// since the key and its answer only show that the server understands WebSockets.
	nameKey, valueKey = []byte("sec-websocket-key"), []byte("AAAAAAAAAAAAAAAAAAAAAA==")
)

// validScheme reports whether b is a scheme (RFC 3986, section 3.1).
func validScheme(b []byte) bool {
	for i, c := range b {
		if !syntax.IsLetter(c) && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return len(b) > 0
}

// addField adds a field, and checks the rules of RFC 9113, sections 8.2.2 and 8.2.3.
func (h *Head) addField(name, value []byte, id field.ID) Fault {
	switch id {
	case field.Unknown:
		if string(name) == "priority" {
			h.Priority = ParsePriority(value)
		}
	case field.Connection, field.ProxyConnection, field.KeepAlive, field.TransferEncoding, field.Upgrade:
		return FaultConnectionField
	case field.TE:
		if !syntax.EqualFold(value, "trailers") {
			return FaultTE
		}
	case field.ContentLength:
		h.hasLength = true
	case field.Expect:
		h.expects = len(value) > 0
	case field.SecWebSocketKey:
		if h.has(pseudoProtocol) {
			return NoFault // ignore the client's key: see valueKey
		}
	}
	if h.trailer {
		if !id.InTrailer() {
			h.refuse(http1.FaultTrailer)
			return h.fault
		}
	} else if id == field.Host && h.has(pseudoAuthority) {
		return h.compareHost(value)
	} else if id == field.Cookie {
		h.addCrumb(value)
		return NoFault
	}
	h.add(name, value, id)
	return h.fault
}

// compareHost checks that a Host field names the same host as :authority (RFC 9113, section 8.3.1). The head already has the value of
// :authority as its Host.
func (h *Head) compareHost(value []byte) Fault {
	port := ":80"
	if syntax.EqualFold(h.value(pseudoScheme), "https") {
		port = ":443"
	}
	if h.host || !syntax.EqualFold(withoutPort(value, port), withoutPort(h.value(pseudoAuthority), port)) {
		return FaultHostDiffers
	}
	h.host = true
	return NoFault
}

// withoutPort returns host without its port, if that is empty or the scheme's default port. The parameter port is the default, such as ":80".
func withoutPort(host []byte, port string) []byte {
	n := len(host)
	switch {
	case n >= len(port) && string(host[n-len(port):]) == port:
		return host[:n-len(port)]
	case n > 0 && host[n-1] == ':':
		return host[:n-1]
	}
	return host
}

// addCrumb adds a part of the Cookie field. The parts are joined by "; " (RFC 9113, section 8.2.3).
func (h *Head) addCrumb(value []byte) {
	if h.crumbs {
		h.cookie = append(h.cookie, "; "...)
	}
	h.cookie = append(h.cookie, value...)
	h.crumbs = true
}

// add adds a field to the head.
func (h *Head) add(name, value []byte, id field.ID) {
	var refused http1.Fault
	if h.b, refused = h.head.AddValid(h.b, name, value, id, h.limits); refused != http1.NoFault {
		h.refuse(refused)
	}
}

// refuse records the error with which the request is refused. If the error makes the request malformed over HTTP/2, refuse also sets
// h.fault. Errors about limits don't.
func (h *Head) refuse(f http1.Fault) {
	h.refused = f
	switch f {
	case http1.FaultContentLength:
		h.fault = FaultContentLength
	case http1.FaultTarget:
		if h.fault = FaultPath; !h.has(pseudoPath) {
			h.fault = FaultAuthority // the target of a CONNECT request is its :authority
		}
	case http1.FaultHost:
		h.fault = FaultAuthority
	case http1.FaultNoHost: // RFC 9113 doesn't call a request without a host malformed, so the server answers it
	default:
		if f.Status() == 400 {
			h.fault = FaultMalformed
		}
	}
}

// text returns b as a string that shares b's memory, for a callee that doesn't retain the string.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// End ends a request. over says that the decoder has left out fields, because they were too many or too large. End returns the head's text,
// and the framing of the content. f.Length is -1 if the length isn't known in advance.
//
// If fault is set, the caller resets the stream with the fault's code, and sends no answer. Otherwise, if refused is set, the caller answers
// the request with the status of refused.
func (h *Head) End(endStream, over bool) (b []byte, f http1.Framing, fault Fault, refused http1.Fault) {
	h.endFields(over)
	if h.ok() && !h.begun {
		h.beginRequest()
	}
	if h.ok() && h.crumbs {
		h.add(nameCookie, h.cookie, field.Cookie)
	}
	if h.ok() {
		var refused http1.Fault
		if f, refused = h.head.Frame(h.b); refused != http1.NoFault {
			h.refuse(refused)
		}
	}
	if h.ok() {
		switch {
		case h.has(pseudoProtocol):
			if f.Length != 0 {
				h.fault = FaultContentLength // the bytes that follow aren't content
			}
		case endStream && f.Length != 0:
			h.fault = FaultContentLength
		case !endStream && !h.hasLength:
			f.Length = -1
		}
		f.ExpectContinue = h.expects && f.Length != 0
	}
	return h.b, f, h.fault, h.refused
}

func (h *Head) endFields(over bool) {
	if h.ok() && over {
		h.refused = http1.FaultHeadTooLarge
	}
}

// EndTrailer is End for a trailer section. It stores the fields in l, which refers to the memory of b that BeginTrailer was given, or to a
// reallocated copy.
func (h *Head) EndTrailer(l *field.List, over bool) (Fault, http1.Fault) {
	if h.endFields(over); h.ok() {
		h.head.GiveFields(l, h.b)
	}
	return h.fault, h.refused
}

// Method returns the value of :method, even if the request is refused. It is valid until the next Begin.
func (h *Head) Method() []byte { return h.value(pseudoMethod) }

// Scheme returns the value of :scheme, which is empty for CONNECT. It is valid until the next Begin.
func (h *Head) Scheme() []byte { return h.value(pseudoScheme) }

// Protocol returns the value of :protocol, for example "websocket". It is empty unless the request is an extended CONNECT. It is valid until
// the next Begin.
func (h *Head) Protocol() []byte { return h.value(pseudoProtocol) }

// Content checks that the content of a request is as long as its Content-Length says (RFC 9113, section 8.1.1).
type Content struct{ left int64 }

// Begin sets the expected length, as in http1.Framing: -1 means that it isn't known.
func (c *Content) Begin(length int64) { c.left = length }

// Receive counts n bytes of content, or records the stream's end.
func (c *Content) Receive(n int64, endStream bool) Fault {
	if c.left < 0 {
		return NoFault
	}
	if n > c.left || endStream && n != c.left {
		return FaultContentLength
	}
	c.left -= n
	return NoFault
}
