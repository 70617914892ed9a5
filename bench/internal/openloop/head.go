package openloop

import "bytes"

// head is what counts of a status line and its fields.
type head struct {
	status  int
	length  int64 // Content-Length; -1 is none
	chunked bool
	close   bool   // the server closes the connection after the answer
	accept  string // Sec-WebSocket-Accept

	http10, keepAlive bool // the version, and an option of Connection: close is what becomes of them
}

// The character classes of RFC 9110, sections 5.5 and 5.6.2.
var (
	tokenChars [256]bool
	valueChars [256]bool
	hexValues  [256]int8 // -1 is no digit
)

func init() {
	for i := range 256 {
		c := byte(i)
		valueChars[i] = c == '\t' || c >= ' ' && c != 0x7f
		hexValues[i] = -1
		switch lower := c | 0x20; {
		case c >= '0' && c <= '9':
			tokenChars[i], hexValues[i] = true, int8(c-'0')
		case lower >= 'a' && lower <= 'z':
			if tokenChars[i] = true; lower <= 'f' {
				hexValues[i] = int8(lower-'a') + 10
			}
		}
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		tokenChars[c] = true
	}
}

func isFieldValue(b []byte) bool {
	for _, c := range b {
		if !valueChars[c] {
			return false
		}
	}
	return true
}

// parseHeadBytes reads a head, which ends with an empty line.
func parseHeadBytes(b []byte) (head, error) {
	h := head{length: -1}
	// Lines are cut at LF: a CR elsewhere than before it is no field-value, nor is an LF without CR a line's end.
	line, rest := cutLine(b)
	if line == nil || parseStatusLine(line, &h) != nil {
		return h, malformed("status line %.60q", b)
	}
	for {
		if line, rest = cutLine(rest); len(line) == 0 {
			break
		}
		name, value, err := parseField(line)
		if err != nil {
			return h, err
		}
		if err := h.field(name, value); err != nil {
			return h, err
		}
	}
	switch {
	case line == nil:
		return h, malformed("a line of the head ends with LF only")
	case h.chunked && h.length >= 0:
		return h, malformed("there are Transfer-Encoding and Content-Length")
	}
	h.close = h.close || h.http10 && !h.keepAlive
	return h, nil
}

// cutLine returns the first line of b without its CRLF, nil if it ends otherwise.
func cutLine(b []byte) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	if i < 1 || b[i-1] != '\r' {
		return nil, nil
	}
	return b[: i-1 : i-1], b[i+1:]
}

// parseStatusLine reads "HTTP/1.1 200 OK" (RFC 9112, section 4).
func parseStatusLine(line []byte, h *head) error {
	const version = "HTTP/1."
	if len(line) < len("HTTP/1.1 200 ") || string(line[:7]) != version || line[7]&^1 != '0' || line[8] != ' ' || line[12] != ' ' {
		return errMalformed
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return errMalformed
		}
		h.status = h.status*10 + int(c-'0')
	}
	if h.status < 100 || h.status > 599 || !isFieldValue(line[13:]) {
		return errMalformed
	}
	h.http10 = line[7] == '0'
	return nil
}

// parseField reads a field line. There is no white space before the colon, and no line folding (RFC 9112, section 5).
func parseField(line []byte) (name, value []byte, err error) {
	i := 0
	for i < len(line) && tokenChars[line[i]] {
		i++
	}
	if i == 0 || i == len(line) || line[i] != ':' || !isFieldValue(line[i+1:]) {
		return nil, nil, malformed("field line %.60q", line)
	}
	return line[:i], bytes.Trim(line[i+1:], " \t"), nil
}

// field takes over what a field says about the framing.
func (h *head) field(name, value []byte) error {
	switch len(name) {
	case len("Connection"):
		if equalFold(name, "connection") {
			return h.connection(value)
		}
	case len("Content-Length"):
		if equalFold(name, "content-length") {
			n, ok := parseDecimal(value)
			if !ok || h.length >= 0 {
				return malformed("Content-Length %.40q", value)
			}
			h.length = n
		}
	case len("Transfer-Encoding"):
		if equalFold(name, "transfer-encoding") {
			// An answer of HTTP/1.0 has none (RFC 9112, section 6.1), and this client asks for no other coding.
			if h.chunked || h.http10 || !equalFold(value, "chunked") {
				return malformed("Transfer-Encoding %.40q", value)
			}
			h.chunked = true
		}
	case len("Sec-WebSocket-Accept"):
		if equalFold(name, "sec-websocket-accept") {
			h.accept = string(value)
		}
	}
	return nil
}

// connection reads a Connection field: a list of tokens.
func (h *head) connection(value []byte) error {
	for option := range bytes.SplitSeq(value, []byte(",")) {
		option = bytes.Trim(option, " \t")
		for _, c := range option {
			if !tokenChars[c] {
				return malformed("Connection %.40q", value)
			}
		}
		switch {
		case equalFold(option, "close"):
			h.close = true
		case equalFold(option, "keep-alive"):
			h.keepAlive = true
		}
	}
	return nil
}

// parseDecimal reads 1*DIGIT of at most 18 digits, which always fits.
func parseDecimal(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// equalFold compares with a lower case string of ASCII.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := range b {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
