package http2

import (
	"encoding/binary"
	"unsafe"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/syntax"
)

// pseudo numbers the pseudo-header fields of requests.
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

// span says where something is in bytes.
type span struct{ start, end uint32 }

// fieldOverhead is what each field counts besides its name and value (RFC 9113, section 6.5.2).
const fieldOverhead = 32

// Head takes the fields of a request or of a trailer section as HPACK's decoder gives them, holds them to RFC 9113, section 8, and makes an
// http1.RequestHead of them, which checks what HTTP versions have in common. It remembers the first thing that is wrong; after that the
// fields are only decoded. A Head can be used again, and keeps its memory.
//
// A request by extended CONNECT (RFC 8441) becomes a GET, as that of HTTP/1.1 for the same purpose is. Protocol tells them apart.
type Head struct {
	head   *http1.RequestHead // nil: the fields are thrown away
	limits *http1.Limits
	b      []byte // the method, the target, and the names and values of fields
	pseudo []byte // the values of pseudo-header fields
	spans  [pseudoCount]span
	cookie []byte // the crumbs, joined

	// Priority is what the request's field of that name says (RFC 9218, section 5).
	Priority Priority

	size    int // of the fields, as SETTINGS_MAX_HEADER_LIST_SIZE counts it
	fault   Fault
	refused http1.Fault
	seen    uint8 // a bit for each pseudo-header field

	extended, trailer  bool
	begun              bool // the pseudo-header fields are over
	host, crumbs       bool // such a field has come
	expects, hasLength bool
}

// Begin begins a request. The head's text is appended to b, which is empty. extended allows extended CONNECT.
func (h *Head) Begin(head *http1.RequestHead, b []byte, limits *http1.Limits, extended bool) {
	*h = Head{head: head, limits: limits, b: b, extended: extended, Priority: DefaultPriority, pseudo: h.pseudo[:0], cookie: h.cookie[:0]}
}

// BeginTrailer begins a trailer section. The head must be a new one.
func (h *Head) BeginTrailer(head *http1.RequestHead, b []byte, limits *http1.Limits) {
	h.Begin(head, b, limits, false)
	h.trailer, h.begun = true, true
}

// BeginDiscard begins a field block that is decoded only because later ones build upon it (RFC 9113, section 4.3).
func (h *Head) BeginDiscard() { h.Begin(nil, nil, nil, false) }

// Field takes the next field. It keeps neither slice. The number is the name's, or field.Unknown; a number doesn't promise that the name is
// in lower case.
func (h *Head) Field(name, value []byte, id field.ID) {
	if h.head == nil || h.fault != NoFault || h.refused != http1.NoFault {
		return
	}
	if h.size += h.weight(name, value, id); h.size > h.limits.Bytes {
		h.refused = http1.FaultHeadTooLarge
		return
	}
	if len(name) > 0 && name[0] == ':' {
		h.fault = h.addPseudo(name, value)
		return
	}
	if !h.begun {
		h.beginRequest()
	}
	if h.fault == NoFault && h.refused == http1.NoFault {
		h.fault = h.addField(name, value, id)
	}
}

// weight returns by how much a field makes the head larger. The crumbs of a cookie are one field (RFC 9113, section 8.2.3): clients send
// a hundred of them, and a hundred thousand are worth no more than their bytes.
func (h *Head) weight(name, value []byte, id field.ID) int {
	if id == field.Cookie && h.crumbs {
		return len(value) + len("; ")
	}
	return len(name) + len(value) + fieldOverhead
}

// addPseudo keeps the value of a pseudo-header field.
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

// pseudoOf returns the number of a pseudo-header field, pseudoCount for another.
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

// beginRequest checks the pseudo-header fields together, and makes the request line of them (RFC 9113, sections 8.3.1 and 8.5).
func (h *Head) beginRequest() {
	h.begun = true
	method, target := h.value(pseudoMethod), h.value(pseudoPath)
	switch {
	case string(method) == "CONNECT":
		if h.has(pseudoProtocol) {
			if !h.has(pseudoScheme) || !h.has(pseudoPath) || !h.has(pseudoAuthority) || !syntax.IsToken(h.value(pseudoProtocol)) {
				h.fault = FaultConnect
				return
			}
			method = []byte("GET")
			break
		}
		if h.has(pseudoScheme) || h.has(pseudoPath) || !h.has(pseudoAuthority) {
			h.fault = FaultConnect
			return
		}
		target = h.value(pseudoAuthority)
	case h.has(pseudoProtocol):
		h.fault = FaultConnect
		return
	case !h.has(pseudoMethod) || !h.has(pseudoScheme) || !h.has(pseudoPath):
		h.fault = FaultPseudoMissing
		return
	}
	switch {
	case h.has(pseudoScheme) && !validScheme(h.value(pseudoScheme)):
		h.fault = FaultScheme
	case h.has(pseudoAuthority) && len(h.value(pseudoAuthority)) == 0:
		h.fault = FaultAuthority
	case h.has(pseudoPath) && (len(target) == 0 || target[0] != '/' && target[0] != '*'):
		h.fault = FaultPath
	}
	if h.fault != NoFault {
		return
	}
	var refused http1.Fault
	if h.b, refused = h.head.Begin(h.b, text(method), text(target), 1, h.limits); refused != http1.NoFault {
		h.refuse(refused)
		return
	}
	if h.has(pseudoAuthority) {
		h.add("host", h.value(pseudoAuthority))
	}
}

// validScheme reports whether b is a scheme (RFC 3986, section 3.1).
func validScheme(b []byte) bool {
	for i, c := range b {
		if !syntax.IsLetter(c) && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return len(b) > 0
}

// addField holds a field to RFC 9113, sections 8.2.1 to 8.2.3. That its name is a token, and that its value has no control bytes, is for
// the http1.RequestHead to say.
func (h *Head) addField(name, value []byte, id field.ID) Fault {
	if hasUpper(name) {
		return FaultFieldName
	}
	if n := len(value); n > 0 && (isSpace(value[0]) || isSpace(value[n-1])) {
		return FaultFieldValue
	}
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
	h.add(text(name), value)
	return h.fault
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// compareHost checks a Host beside :authority, whose value the head already has as Host (RFC 9113, section 8.3.1).
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

// withoutPort returns a host without its port, if that is the scheme's own, or empty.
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

// addCrumb adds a part of the cookie. RFC 9113, section 8.2.3: they are joined by "; ".
func (h *Head) addCrumb(value []byte) {
	if h.crumbs {
		h.cookie = append(h.cookie, "; "...)
	}
	h.cookie = append(h.cookie, value...)
	h.crumbs = true
}

// add adds a field to the head.
func (h *Head) add(name string, value []byte) {
	var refused http1.Fault
	if h.b, refused = h.head.Add(h.b, name, text(value), h.limits); refused != http1.NoFault {
		h.refuse(refused)
	}
}

// refuse takes note of what the head says is wrong, which is malformed where it would be in each version of HTTP, and where it isn't about
// a limit.
func (h *Head) refuse(f http1.Fault) {
	h.refused = f
	switch f {
	case http1.FaultFieldName:
		h.fault = FaultFieldName
	case http1.FaultFieldValue:
		h.fault = FaultFieldValue
	case http1.FaultContentLength:
		h.fault = FaultContentLength
	case http1.FaultTarget:
		h.fault = FaultPath
	case http1.FaultNoHost: // RFC 9113 leaves it to the server whether it knows whom such a request is for
	default:
		if f.Status() == 400 {
			h.fault = FaultMalformed
		}
	}
}

// text returns b as a string for a callee that doesn't keep it.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// End ends a request. It returns the head's text, and how long the content is: -1 if only its end will tell.
//
// The stream is reset with fault, if there is one. If refused is set, the request can be answered with its status: before the stream is
// reset or, without a fault, in place of that.
func (h *Head) End(endStream bool) (b []byte, f http1.Framing, fault Fault, refused http1.Fault) {
	if h.ok() && !h.begun {
		h.beginRequest()
	}
	if h.ok() && h.crumbs {
		h.add("cookie", h.cookie)
	}
	if h.ok() {
		var refused http1.Fault
		if f, refused = h.head.Frame(h.b); refused != http1.NoFault {
			h.refuse(refused)
		}
	}
	if h.ok() {
		switch {
		case endStream && f.Length != 0:
			h.fault = FaultContentLength
		case !endStream && !h.hasLength:
			f.Length = -1
		}
		f.ExpectContinue = h.expects && f.Length != 0
	}
	return h.b, f, h.fault, h.refused
}

func (h *Head) ok() bool { return h.head != nil && h.fault == NoFault && h.refused == http1.NoFault }

// EndTrailer ends a trailer section, and makes l the list of its fields. The list has borrowed the bytes that BeginTrailer was given, or
// larger ones. A trailer section over a limit is refused as a head is.
func (h *Head) EndTrailer(l *field.List) (Fault, http1.Fault) {
	if h.ok() {
		h.head.GiveFields(l, h.b)
	}
	return h.fault, h.refused
}

// Scheme returns the value of :scheme, which is empty for CONNECT. It is valid until the next Begin, as are those below.
func (h *Head) Scheme() []byte { return h.value(pseudoScheme) }

// Protocol returns the value of :protocol, "websocket" for instance, which is empty unless the request is one by extended CONNECT.
func (h *Head) Protocol() []byte { return h.value(pseudoProtocol) }

// hasUpper reports whether a name has letters in upper case, or isn't ASCII.
func hasUpper(name []byte) bool {
	if len(name) < 8 {
		for _, c := range name {
			if c-'A' < 26 || c >= 0x80 {
				return true
			}
		}
		return false
	}
	found := uint64(0)
	for i := 0; i+8 < len(name); i += 8 {
		found |= upperIn(binary.LittleEndian.Uint64(name[i:]))
	}
	return found|upperIn(binary.LittleEndian.Uint64(name[len(name)-8:])) != 0
}

// upperIn sets the high bit of each byte of x that is a letter in upper case, or isn't ASCII.
func upperIn(x uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	low := x &^ high // no sum of its bytes carries into the next one
	return ((low+(0x80-'A')*ones)&^(low+(0x7f-'Z')*ones) | x) & high
}

// Content holds the content of a request to its Content-Length (RFC 9113, section 8.1.1).
type Content struct{ left int64 }

// Begin begins with the length of http1.Framing: -1 is unknown.
func (c *Content) Begin(length int64) { c.left = length }

// Receive takes note of n bytes of content, or of the stream's end.
func (c *Content) Receive(n int, endStream bool) Fault {
	if c.left < 0 {
		return NoFault
	}
	if int64(n) > c.left || endStream && int64(n) != c.left {
		return FaultContentLength
	}
	c.left -= int64(n)
	return NoFault
}
