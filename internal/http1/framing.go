package http1

import (
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/syntax"
)

// Framing says how long a request's body is, and whether the connection ends after the request.
type Framing struct {
	Length         int64 // the length of the body; -1 for a chunked body
	Close          bool  // the connection ends after this request
	ExpectContinue bool
}

// Frame checks the parts of a complete head that determine where the request ends and which host it is for, and returns the framing. It
// refuses every head that servers may interpret in different ways (RFC 9112, sections 3.2, 6.1 and 6.3).
func (h *RequestHead) Frame(b []byte) (Framing, Fault) {
	var f Framing
	if fault := h.checkHost(b); fault != NoFault {
		return f, fault
	}
	if fault := h.checkTarget(b); fault != NoFault {
		return f, fault
	}
	if h.first[field.ContentLength]|h.first[field.TransferEncoding] != 0 {
		length, fault := h.bodyLength(b)
		if fault != NoFault {
			return f, fault
		}
		f.Length = length
	}
	f.Close = h.Minor == 0
	if h.first[field.Connection] != 0 {
		fields := field.Borrow(b, h.fields)
		f.Close = fields.HasToken(field.Connection, "close") ||
			h.Minor == 0 && !fields.HasToken(field.Connection, "keep-alive")
	}
	// RFC 9110, section 10.1.1: a server ignores Expect in an HTTP/1.0 request.
	if h.first[field.Expect] != 0 && h.Minor > 0 {
		switch value := h.framingValue(b, field.Expect); {
		case h.repeated&(1<<field.Expect) != 0:
			return f, FaultExpectation
		case len(value) == 0: // an empty list
		case !syntax.EqualFold(value, "100-continue"):
			return f, FaultExpectation
		default:
			f.ExpectContinue = f.Length != 0
		}
	}
	return f, NoFault
}

// framingValue returns the value of the first field whose name has the given ID. The head must have such a field.
func (h *RequestHead) framingValue(b []byte, id field.ID) []byte {
	return h.fields[h.first[id]-1].ValueIn(b)
}

// checkHost follows RFC 9112, section 3.2: an HTTP/1.1 request must have exactly one Host, which must be valid but may be empty.
func (h *RequestHead) checkHost(b []byte) Fault {
	if h.first[field.Host] == 0 {
		if h.Minor == 0 {
			return NoFault
		}
		return FaultNoHost
	}
	if h.repeated&(1<<field.Host) != 0 {
		return FaultTwoHosts
	}
	host := h.framingValue(b, field.Host)
	if len(host) == 0 || string(host) == string(h.host[:h.hostLength]) {
		return NoFault
	}
	if !syntax.ValidHost(host) {
		return FaultHost
	}
	if len(host) <= len(h.host) {
		h.hostLength = uint8(copy(h.host[:], host))
	}
	return NoFault
}

// checkTarget follows RFC 9112, sections 3.2.1 to 3.2.4: the form of the target must be one that the method allows.
func (h *RequestHead) checkTarget(b []byte) Fault {
	method, target := b[h.MethodStart:h.MethodEnd], b[h.TargetStart:h.TargetEnd]
	ok := true
	switch {
	case string(method) == "CONNECT":
		ok = syntax.ValidAuthorityTarget(target)
	case target[0] == '/':
		ok = !h.percent || syntax.ValidOriginTarget(target)
	case target[0] == '*':
		ok = len(target) == 1 && string(method) == "OPTIONS"
	default:
		_, _, _, ok = syntax.SplitAbsoluteTarget(target)
	}
	if !ok {
		return FaultTarget
	}
	return NoFault
}

// bodyLength returns the length that Content-Length announces, or -1 for the chunked coding.
func (h *RequestHead) bodyLength(b []byte) (int64, Fault) {
	if h.first[field.TransferEncoding] != 0 {
		// RFC 9112, section 6.1: both fields at once, or a transfer coding on HTTP/1.0, may be an attempt at request smuggling.
		if h.first[field.ContentLength] != 0 {
			return 0, FaultLengthAndEncoding
		}
		if h.Minor == 0 || h.repeated&(1<<field.TransferEncoding) != 0 {
			return 0, FaultTransferEncoding
		}
		return -1, checkTransferEncoding(h.framingValue(b, field.TransferEncoding))
	}
	if h.repeated&(1<<field.ContentLength) != 0 {
		return 0, FaultContentLength
	}
	length, ok := ParseLength(h.framingValue(b, field.ContentLength))
	if !ok {
		return 0, FaultContentLength
	}
	return length, NoFault
}

// checkTransferEncoding accepts only chunked. Another coding before a final chunked is well-formed, but not supported (501). If chunked
// isn't the last coding, or occurs twice, the end of the body can't be determined (400).
func checkTransferEncoding(value []byte) Fault {
	if syntax.EqualFold(value, "chunked") {
		return NoFault
	}
	coding, rest, more := lastElement(value)
	if !more || !syntax.EqualFold(coding, "chunked") {
		return FaultTransferEncoding
	}
	for more {
		coding, rest, more = lastElement(rest)
		if !syntax.IsToken(coding) || syntax.EqualFold(coding, "chunked") || syntax.EqualFold(coding, "identity") {
			return FaultTransferEncoding
		}
	}
	return FaultTransferCoding
}

// lastElement splits a list at its last comma. more says whether there was a comma.
func lastElement(list []byte) (element, rest []byte, more bool) {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == ',' {
			return syntax.TrimSpace(list[i+1:]), list[:i], true
		}
	}
	return syntax.TrimSpace(list), nil, false
}

// ParseLength parses 1*DIGIT (RFC 9110, section 8.6). The largest valid value is 2^63-1.
func ParseLength(value []byte) (int64, bool) {
	if len(value) == 0 || len(value) > 19 {
		return 0, false
	}
	var n uint64
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return int64(n), n <= 1<<63-1
}
