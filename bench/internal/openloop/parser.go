package openloop

import (
	"bytes"
	"errors"
	"fmt"
)

const (
	// maxHead is how many bytes a status line and its fields may have, and as many again a trailer section.
	maxHead = 64 << 10
	// maxLine is how many bytes a chunk-size line may have.
	maxLine = 1 << 10
	// maxInterim is how many 1xx answers may come before the one that counts.
	maxInterim = 16
)

// errMalformed is what every error of a parser wraps.
var errMalformed = errors.New("malformed answer")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// parserState is what a parser expects next.
type parserState uint8

const (
	parseHead parserState = iota
	parseLength
	parseUntilClose
	parseChunkSize
	parseChunkData
	parseChunkEnd // CRLF after a chunk's data
	parseTrailer
)

// parser takes the answers of a connection apart (RFC 9112), however the bytes are split. It is strict: what a server has
// no reason to send is malformed, even where the RFC lets a client be lenient. It keeps no body and returns it in pieces of
// what it was given.
type parser struct {
	state   parserState
	interim int
	ignore  bool // the answer has no body whatever its head says: it is to HEAD
	upgrade bool // 101 is a final answer
	head    head
	left    int64  // of the body, or of the chunk
	partial []byte // a head or line of which the end hasn't come
	memo    *headMemo
}

// headMemo is the last head that was parsed. Most heads of a run are the same byte for byte, and need no parsing then.
// Parsers on one thread share it.
type headMemo struct {
	bytes []byte
	head  head
}

// begin prepares the parser for the next answer.
func (p *parser) begin(ignoreBody bool) {
	p.state, p.interim, p.ignore = parseHead, 0, ignoreBody
	p.partial = p.partial[:0]
}

// next consumes the first n bytes of data: some framing or a piece of the body, which it returns as a part of data. It is to be
// called again with what is left, and after done not before begin. After an error the connection is of no use.
func (p *parser) next(data []byte) (n int, body []byte, done bool, err error) {
	switch p.state {
	case parseHead:
		return p.nextHead(data)
	case parseUntilClose:
		return len(data), data, false, nil
	case parseLength, parseChunkData:
		n = int(min(int64(len(data)), p.left))
		if p.left -= int64(n); p.left == 0 {
			if done = p.state == parseLength; !done {
				p.state = parseChunkEnd
			}
		}
		return n, data[:n], done, nil
	}
	line, n, err := p.line(data)
	if line == nil || err != nil {
		return n, nil, false, err
	}
	switch p.state {
	case parseChunkSize:
		err = p.chunkSize(line)
	case parseChunkEnd:
		if p.state = parseChunkSize; len(line) > 0 {
			err = malformed("a chunk's data is followed by %.20q", line)
		}
	case parseTrailer:
		if done = len(line) == 0; !done {
			if p.left -= int64(len(line) + 2); p.left < 0 {
				return n, nil, false, malformed("the trailer section has more than %d bytes", maxHead)
			}
			_, _, err = parseField(line)
		}
	}
	p.partial = p.partial[:0]
	return n, nil, done, err
}

// eof says that the server has closed its side. It reports whether that ends the answer as it should.
func (p *parser) eof() bool { return p.state == parseUntilClose }

// nextHead looks for the end of the head.
func (p *parser) nextHead(data []byte) (n int, body []byte, done bool, err error) {
	if m := p.memo; len(p.partial) == 0 && m != nil && len(m.bytes) > 0 && bytes.HasPrefix(data, m.bytes) {
		p.head = m.head
		done, err = p.frame()
		return len(m.bytes), nil, done, err
	}
	whole, n := p.upTo(data, "\r\n\r\n", maxHead)
	if whole == nil {
		return n, nil, false, p.checkPartial()
	}
	if p.head, err = parseHeadBytes(whole); err != nil {
		return n, nil, false, err
	}
	if p.memo != nil {
		p.memo.bytes = append(p.memo.bytes[:0], whole...)
		p.memo.head = p.head
	}
	p.partial = p.partial[:0]
	done, err = p.frame()
	return n, nil, done, err
}

// upTo returns what ends with end: a part of data, or of partial if it came in pieces, which the caller is to empty. It returns
// nil, and has all of data in partial, if the end isn't there.
func (p *parser) upTo(data []byte, end string, limit int) (whole []byte, n int) {
	if len(p.partial) == 0 {
		if i := bytes.Index(data, []byte(end)); i >= 0 {
			return data[:i+len(end)], i + len(end)
		}
	}
	before := len(p.partial)
	n = min(len(data), max(0, limit+1-before))
	p.partial = append(p.partial, data[:n]...)
	from := max(0, before-len(end)+1)
	if i := bytes.Index(p.partial[from:], []byte(end)); i >= 0 {
		size := from + i + len(end)
		return p.partial[:size], size - before
	}
	return nil, n
}

// checkPartial finds what can't become a head any more, so that it isn't waited for.
func (p *parser) checkPartial() error {
	const version = "HTTP/1."
	b := p.partial
	if n := min(len(b), len(version)); string(b[:n]) != version[:n] {
		return malformed("it begins with %.20q", b)
	}
	if len(b) > maxHead {
		return malformed("the head has more than %d bytes", maxHead)
	}
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return nil
		}
		if i += from; b[i-1] != '\r' {
			return malformed("a line of the head ends with LF only")
		}
		from = i + 1
	}
}

// line returns a line without its CRLF, nil if its end hasn't come. The caller empties partial when it is done with it.
func (p *parser) line(data []byte) (line []byte, n int, err error) {
	limit := maxLine
	if p.state == parseTrailer {
		limit = maxHead
	}
	whole, n := p.upTo(data, "\n", limit)
	switch {
	case whole == nil && len(p.partial) > limit:
		return nil, n, malformed("a line of the body's framing has more than %d bytes", limit)
	case whole == nil:
		return nil, n, nil
	case len(whole) < 2 || whole[len(whole)-2] != '\r':
		return nil, n, malformed("a line of the body's framing ends with LF only")
	}
	return whole[:len(whole)-2], n, nil
}

// frame decides from the head how the body is delimited (RFC 9112, section 6.3).
func (p *parser) frame() (done bool, err error) {
	h := &p.head
	bodyless := h.status < 200 || h.status == 204
	if bodyless && (h.chunked || h.length > 0) {
		return false, malformed("status %d has a body", h.status)
	}
	if h.status < 200 && !(h.status == 101 && p.upgrade) {
		if p.interim++; h.status == 101 || p.interim > maxInterim {
			return false, malformed("status %d isn't expected", h.status)
		}
		return false, nil
	}
	switch {
	case p.ignore || bodyless || h.status == 304:
		return true, nil
	case h.chunked:
		p.state = parseChunkSize
	case h.length < 0:
		p.state, h.close = parseUntilClose, true
	default:
		p.state, p.left = parseLength, h.length
		return h.length == 0, nil
	}
	return false, nil
}

// chunkSize reads the line in front of a chunk (RFC 9112, section 7.1).
func (p *parser) chunkSize(line []byte) error {
	size, digits := int64(0), 0
	for digits < len(line) && hexValues[line[digits]] >= 0 {
		if digits == 15 {
			return malformed("a chunk-size has more than 15 digits")
		}
		size = size<<4 | int64(hexValues[line[digits]])
		digits++
	}
	extension := line[digits:]
	if digits == 0 || len(extension) > 0 && extension[0] != ';' || !isFieldValue(extension) {
		return malformed("chunk-size line %.40q", line)
	}
	if p.state, p.left = parseChunkData, size; size == 0 {
		p.state, p.left = parseTrailer, maxHead
	}
	return nil
}
