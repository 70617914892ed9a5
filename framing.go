package filo

import "github.com/filohttp/filo/internal/syntax"

// framing is what a request's head says about the bytes behind it and about the connection.
type framing struct {
	length         int64 // of the body; -1 for chunked
	close          bool  // the connection ends with this request
	expectContinue bool
}

// frame checks the parts of a complete head that decide where the request ends and whom it is for, and works out
// the framing. Whatever could be read in two ways is refused (RFC 9112, sections 3.2, 6.1 and 6.3).
func (p *headParser) frame(b []byte, h *Header) (framing, *HTTPError) {
	var f framing
	if err := p.checkHost(h); err != nil {
		return f, err
	}
	if err := p.checkTarget(b); err != nil {
		return f, err
	}
	if p.first[fieldContentLength]|p.first[fieldTransferEncoding] != 0 {
		length, err := p.bodyLength(h)
		if err != nil {
			return f, err
		}
		f.length = length
	}
	f.close = p.minor == 0
	if p.first[fieldConnection] != 0 {
		f.close = h.hasToken(fieldConnection, "close") ||
			p.minor == 0 && !h.hasToken(fieldConnection, "keep-alive")
	}
	// RFC 9110, section 10.1.1: a server ignores an Expect that comes with HTTP/1.0.
	if p.first[fieldExpect] != 0 && p.minor > 0 {
		switch value := p.framingValue(h, fieldExpect); {
		case p.repeated&(1<<fieldExpect) != 0:
			return f, errExpectation
		case len(value) == 0: // a list without a member
		case !syntax.EqualFold(value, "100-continue"):
			return f, errExpectation
		default:
			f.expectContinue = f.length != 0
		}
	}
	return f, nil
}

// framingValue returns the value of the first field with the number id, which must occur.
func (p *headParser) framingValue(h *Header, id fieldID) []byte {
	return h.valueOf(int(p.first[id]) - 1)
}

// checkHost follows RFC 9112, section 3.2: exactly one Host in HTTP/1.1, and a valid one. Its value may be empty.
func (p *headParser) checkHost(h *Header) *HTTPError {
	if p.first[fieldHost] == 0 {
		if p.minor == 0 {
			return nil
		}
		return errNoHost
	}
	if p.repeated&(1<<fieldHost) != 0 {
		return errTwoHosts
	}
	host := p.framingValue(h, fieldHost)
	if len(host) == 0 || string(host) == string(p.host[:p.hostLength]) {
		return nil
	}
	if !syntax.ValidHost(host) {
		return errHost
	}
	if len(host) <= len(p.host) {
		p.hostLength = uint8(copy(p.host[:], host))
	}
	return nil
}

// checkTarget follows RFC 9112, section 3.2.1 to 3.2.4: the form of the target must fit the method.
func (p *headParser) checkTarget(b []byte) *HTTPError {
	method, target := b[p.methodStart:p.methodEnd], b[p.targetStart:p.targetEnd]
	ok := true
	switch {
	case string(method) == "CONNECT":
		ok = syntax.ValidAuthorityTarget(target)
	case target[0] == '/':
		ok = !p.percent || syntax.ValidOriginTarget(target)
	case target[0] == '*':
		ok = len(target) == 1 && string(method) == "OPTIONS"
	default:
		_, _, _, ok = syntax.SplitAbsoluteTarget(target)
	}
	if !ok {
		return errTarget
	}
	return nil
}

// bodyLength returns the length that Content-Length announces, or -1 for the chunked coding.
func (p *headParser) bodyLength(h *Header) (int64, *HTTPError) {
	if p.first[fieldTransferEncoding] != 0 {
		// RFC 9112, section 6.1: both fields at once, or a transfer coding on HTTP/1.0, is an attempt to smuggle.
		if p.first[fieldContentLength] != 0 {
			return 0, errLengthAndEncoding
		}
		if p.minor == 0 || p.repeated&(1<<fieldTransferEncoding) != 0 {
			return 0, errTransferEncoding
		}
		return -1, checkTransferEncoding(p.framingValue(h, fieldTransferEncoding))
	}
	if p.repeated&(1<<fieldContentLength) != 0 {
		return 0, errContentLength
	}
	length, ok := parseLength(p.framingValue(h, fieldContentLength))
	if !ok {
		return 0, errContentLength
	}
	return length, nil
}

// checkTransferEncoding accepts chunked alone. Another coding before a final chunked is well-formed but not known
// here (501); where chunked isn't the last one, or occurs twice, the body's end can't be told (400).
func checkTransferEncoding(value []byte) *HTTPError {
	if syntax.EqualFold(value, "chunked") {
		return nil
	}
	coding, rest, more := lastElement(value)
	if !more || !syntax.EqualFold(coding, "chunked") {
		return errTransferEncoding
	}
	for more {
		coding, rest, more = lastElement(rest)
		if !syntax.IsToken(coding) || syntax.EqualFold(coding, "chunked") || syntax.EqualFold(coding, "identity") {
			return errTransferEncoding
		}
	}
	return errTransferCoding
}

// lastElement splits a list at its last comma, and reports whether there are elements before that.
func lastElement(list []byte) (element, rest []byte, more bool) {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == ',' {
			return syntax.TrimSpace(list[i+1:]), list[:i], true
		}
	}
	return syntax.TrimSpace(list), nil, false
}

// parseLength reads 1*DIGIT (RFC 9110, section 8.6), at most 2^63-1.
func parseLength(value []byte) (int64, bool) {
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
