package syntax

import (
	"bytes"
	"net/netip"
)

// ValidHost reports whether b is a host with an optional port, as in Host and in the authority of an http URI (RFC
// 9110, sections 4.2 and 7.2, and RFC 3986, section 3.2). It is stricter than the grammar in five ways:
//
//   - An empty host isn't valid. Callers that allow an empty Host field check for it themselves.
//   - Brackets must hold an IPv6 address without a zone. A zone has a meaning only on one machine, and there is no later version of IP literals.
//   - Percent-encoding is allowed only for bytes outside ASCII, as RFC 3986, section 3.2.2, intends. Otherwise one
//     program could compare a host with encoded ASCII before decoding it, and another program after decoding.
//   - A comma isn't valid: it shows that an intermediary has merged two Host fields.
//   - A port is at most 65535. An empty one, as in "example.com:", is allowed.
//
// User information isn't valid: RFC 9110, section 4.2.4, asks to treat it as an error.
func ValidHost(b []byte) bool {
	end := hostEnd(b)
	if end <= 0 {
		return false
	}
	if end == len(b) {
		return true
	}
	_, ok := parsePort(b[end+1:])
	return b[end] == ':' && ok
}

// hostEnd returns the length of the host at the start of b. The host ends before the first byte that a host can't contain, such as the colon before a
// port. hostEnd returns 0 if b doesn't start with a valid host.
func hostEnd(b []byte) int {
	if len(b) > 0 && b[0] == '[' {
		return ipLiteralEnd(b)
	}
	i := 0
	for i < len(b) {
		if classes[b[i]]&classHost != 0 {
			i++
			continue
		}
		if b[i] != '%' {
			break
		}
		if c, ok := PercentEscape(b[i:]); !ok || c < 0x80 {
			return 0
		}
		i += 3
	}
	return i
}

// ipLiteralEnd is hostEnd for a host in brackets.
func ipLiteralEnd(b []byte) int {
	const maxAddress = len("0000:0000:0000:0000:0000:ffff:255.255.255.255")
	end := bytes.IndexByte(b, ']')
	if end < 0 || end-1 > maxAddress {
		return 0
	}
	address, err := netip.ParseAddr(string(b[1:end]))
	if err != nil || !address.Is6() || address.Zone() != "" {
		return 0
	}
	return end + 1
}

// parsePort returns the port in b, or 0 if b is empty. It reports false if b isn't a number up to 65535.
func parsePort(b []byte) (int, bool) {
	port := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		port = port*10 + int(c-'0')
		if port > 65535 {
			return 0, false
		}
	}
	return port, true
}

// ValidOriginTarget reports whether b is a request target in origin-form (RFC 9112, section 3.2.1): an absolute path with well-formed
// percent-encoding, and perhaps a query. All bytes must be visible ASCII other than "#". That is more than RFC 3986 allows, since browsers send some
// of '"<>\^`{|}' unencoded. A query may contain a "%" that isn't part of an escape, since only the client and the handler decide what a query means.
func ValidOriginTarget(b []byte) bool {
	return len(b) > 0 && b[0] == '/' && validPathAndQuery(b)
}

func validPathAndQuery(b []byte) bool {
	i := 0
	for ; i < len(b) && b[i] != '?'; i++ {
		if b[i] == '%' {
			if _, ok := PercentEscape(b[i:]); !ok {
				return false
			}
			i += 2
			continue
		}
		if !IsTargetByte(b[i]) {
			return false
		}
	}
	for ; i < len(b); i++ {
		if !IsTargetByte(b[i]) {
			return false
		}
	}
	return true
}

// SplitAbsoluteTarget splits a request target in absolute-form (RFC 9112, section 3.2.2). The scheme is http or, with
// secure, https; host is never empty, may have a port and passes ValidHost; rest is the path and the query, empty or
// beginning with "/" or "?", and passes the checks of ValidOriginTarget.
func SplitAbsoluteTarget(b []byte) (secure bool, host, rest []byte, ok bool) {
	const plainPrefix, securePrefix = "http://", "https://"
	switch {
	case len(b) > len(plainPrefix) && EqualFold(b[:len(plainPrefix)], plainPrefix):
		b = b[len(plainPrefix):]
	case len(b) > len(securePrefix) && EqualFold(b[:len(securePrefix)], securePrefix):
		b = b[len(securePrefix):]
		secure = true
	default:
		return false, nil, nil, false
	}
	end := 0
	for end < len(b) && b[end] != '/' && b[end] != '?' {
		end++
	}
	host, rest = b[:end:end], b[end:]
	if !ValidHost(host) || !validPathAndQuery(rest) {
		return false, nil, nil, false
	}
	return secure, host, rest, true
}

// ValidAuthorityTarget reports whether b is a request target in authority-form, which CONNECT uses: a host that passes ValidHost, and a
// port. RFC 9110, section 9.3.6: "A server MUST reject a CONNECT request that targets an empty or invalid port number", such as 0.
func ValidAuthorityTarget(b []byte) bool {
	end := hostEnd(b)
	if end == 0 || end == len(b) || b[end] != ':' {
		return false
	}
	port, ok := parsePort(b[end+1:])
	return ok && port > 0
}
