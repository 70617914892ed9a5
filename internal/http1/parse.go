// Package http1 parses requests and renders answers in HTTP/1.1 and HTTP/1.0. It does no I/O.
package http1

import (
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/syntax"
)

// headState says to which part of a head the next byte belongs.
type headState uint8

const (
	headStart       headState = iota // the request line, or empty lines before it
	headEmptyLF                      // LF of an empty line before the request line
	headMethod                       // inside the method
	headTarget                       // inside the request target
	headVersion                      // inside the version
	headFieldStart                   // at the start of a field line, or of the empty line that ends the head
	headName                         // inside a field name
	headBeforeValue                  // in the white space between the colon and the value
	headValue                        // inside a field value
	headValueLF                      // LF after a field value
	headEndLF                        // LF of the empty line that ends the head
	headDone
)

// maxEmptyLines is how many empty lines may precede a request line (RFC 9112, section 2.2, recommends at least one).
const maxEmptyLines = 4

// Parser parses a request head, or a trailer section, into offsets of its parts. It makes one pass and can stop at any byte. When Parse is
// called again with the same bytes and more after them, it resumes where it stopped, so a head that arrives byte by byte costs no more than
// one that arrives whole. It keeps no reference to the bytes, so they may move between calls.
type Parser struct {
	RequestHead
	state      headState
	emptyLines uint8

	pos  int // the bytes before it have been parsed
	mark int // start of the element that contains pos

	value field.Entry // the field being parsed
}

// Reset makes the parser ready for the next head. It keeps the memory of its fields.
func (p *Parser) Reset() {
	p.RequestHead.reset()
	p.state, p.emptyLines = headStart, 0
	p.pos, p.mark = 0, 0
}

// Detach returns a copy of the parser that can continue in place of p, and owns the memory of the fields. p must be Reset before it is used
// again.
func (p *Parser) Detach() Parser {
	detached := *p
	p.fields = nil
	return detached
}

// Started reports whether a byte of the request line has been parsed.
func (p *Parser) Started() bool { return p.state > headEmptyLF }

// Fresh reports whether no byte has been parsed, not even of an empty line.
func (p *Parser) Fresh() bool { return p.state == headStart && p.emptyLines == 0 }

// TakeEmptyLines returns how many bytes of empty lines before the request line have been parsed. The caller must consume these bytes: the
// next Parse expects only the bytes after them. TakeEmptyLines returns 0 once the request line has begun.
func (p *Parser) TakeEmptyLines() int {
	if p.Started() {
		return 0
	}
	n := p.pos
	p.pos, p.mark = 0, 0
	return n
}

// Parse parses the bytes of b that earlier calls haven't parsed. It reports whether the head is complete; if so, Len is the head's length.
// Otherwise Parse needs more bytes.
func (p *Parser) Parse(b []byte, limits *Limits) (bool, Fault) {
	if p.state == headDone {
		return true, NoFault // Parse is called again while the request waits for its body
	}
	// Bytes beyond the limit must not change the result, since it depends on chance whether they have arrived yet.
	b = b[:min(len(b), limits.Bytes)]
	if p.state < headFieldStart {
		if fault := p.parseRequestLine(b, limits); fault != NoFault {
			return false, fault
		}
	}
	if p.state >= headFieldStart {
		if fault := p.parseFields(b, limits); fault != NoFault {
			return false, fault
		}
	}
	if p.state != headDone && len(b) >= limits.Bytes {
		return false, FaultHeadTooLarge
	}
	return p.state == headDone, NoFault
}

// ParseTrailer is Parse for a trailer section: it has no request line, and fields that aren't allowed in a trailer section are refused. If
// the parser has parsed a complete head, ParseTrailer resets it first.
func (p *Parser) ParseTrailer(b []byte, limits *Limits) (bool, Fault) {
	if p.state == headDone {
		p.Reset()
		p.state = headFieldStart
	}
	done, fault := p.Parse(b, limits)
	for i := 0; fault == NoFault && done && i < len(p.fields); i++ {
		if !p.fields[i].ID.InTrailer() {
			fault = FaultTrailer
		}
	}
	return done, fault
}

// Len returns the length of a complete head, in bytes.
func (p *Parser) Len() int { return p.pos }

// CopyFields copies the fields of a complete trailer section, whose bytes are in b, to l.
func (p *Parser) CopyFields(l *field.List, b []byte) { l.Copy(b[:p.pos], p.fields) }

// parseRequestLine follows RFC 9112, section 3: method SP request-target SP HTTP-version CRLF. It accepts single spaces and no other white
// space, since lenient parsers may split the same line in different ways.
func (p *Parser) parseRequestLine(b []byte, limits *Limits) Fault {
	i := p.pos
	for i < len(b) {
		switch p.state {
		case headStart:
			if b[i] == '\r' && p.emptyLines < maxEmptyLines {
				p.emptyLines++
				p.state = headEmptyLF
				i++
				continue
			}
			p.mark, p.MethodStart = i, i
			p.state = headMethod

		case headEmptyLF:
			if b[i] != '\n' {
				return FaultBareCR
			}
			i++
			p.state = headStart

		case headMethod:
			for i < len(b) && syntax.IsTokenByte(b[i]) {
				i++
			}
			if i-p.mark > MaxMethodBytes {
				return FaultMethodTooLong
			}
			if i == len(b) {
				break
			}
			if b[i] != ' ' || i == p.mark {
				return FaultMethod
			}
			p.MethodEnd = i
			i++
			p.mark, p.TargetStart = i, i
			p.state = headTarget

		case headTarget:
			for i < len(b) && syntax.IsTargetByte(b[i]) {
				if b[i] == '%' {
					p.percent = true
				}
				i++
			}
			if i-p.MethodStart > limits.Line {
				return FaultLineTooLong
			}
			if i == len(b) {
				break
			}
			if b[i] != ' ' || i == p.mark {
				if b[i] == '\r' || b[i] == '\n' {
					return FaultVersion // HTTP/0.9
				}
				return FaultTarget
			}
			p.TargetEnd = i
			i++
			p.mark = i
			p.state = headVersion

		case headVersion:
			n, fault := p.parseVersion(b[p.mark:], limits)
			p.pos = p.mark + n
			return fault
		}
	}
	p.pos = i
	return NoFault
}

// parseVersion parses HTTP-version CRLF at the start of b, and returns how many bytes it has accepted. Until CRLF has arrived, the state
// doesn't change.
func (p *Parser) parseVersion(b []byte, limits *Limits) (int, Fault) {
	const usual, form = "HTTP/1.1\r\n", "HTTP/d.d\r\n"
	if len(b) >= len(usual) && string(b[:len(usual)]) == usual && p.mark+8-p.MethodStart <= limits.Line {
		p.Minor, p.state = 1, headFieldStart
		return len(usual), NoFault
	}
	n := min(len(b), len(form))
	for i := 0; i < n; i++ {
		if form[i] == 'd' {
			if b[i] < '0' || b[i] > '9' {
				return 0, FaultVersion
			}
		} else if b[i] != form[i] {
			if i == len(form)-2 && b[i] == '\n' {
				return 0, FaultBareLF
			}
			return 0, FaultVersion
		}
	}
	if n < len(form) {
		return n, NoFault
	}
	if b[5] != '1' {
		return 0, FaultVersionNotSupported
	}
	if p.mark+8-p.MethodStart > limits.Line {
		return 0, FaultLineTooLong
	}
	p.Minor = b[7] - '0'
	p.state = headFieldStart
	return n, NoFault
}

// parseFields follows RFC 9112, section 5: field-name ":" OWS field-value OWS CRLF, and an empty line at the end. It refuses a line that
// starts with white space (obs-fold), white space before the colon, a bare CR or LF, and control bytes, since servers differ in how they
// interpret them.
func (p *Parser) parseFields(b []byte, limits *Limits) Fault {
	i := p.pos
	for i < len(b) {
		switch p.state {
		case headFieldStart:
			if b[i] == '\r' {
				i++
				p.state = headEndLF
				continue
			}
			p.mark = i
			p.state = headName
			fallthrough

		case headName:
			for i < len(b) && syntax.IsTokenByte(b[i]) {
				i++
			}
			if i == len(b) {
				break
			}
			if b[i] != ':' || i == p.mark {
				return nameError(b, p.mark, i)
			}
			if i-p.mark > field.MaxName {
				return FaultHeadTooLarge
			}
			p.value = field.Entry{Name: uint32(p.mark), NameLen: uint16(i - p.mark)}
			i++
			p.state = headBeforeValue
			fallthrough

		case headBeforeValue:
			for i < len(b) && (b[i] == ' ' || b[i] == '\t') {
				i++
			}
			if i == len(b) {
				break
			}
			p.mark = i
			p.state = headValue
			fallthrough

		case headValue:
			i = syntax.IndexControl(b, i)
			if i == len(b) {
				break
			}
			if b[i] != '\r' {
				if b[i] == '\t' {
					i++
					continue
				}
				return controlError(b[i])
			}
			end := i
			for end > p.mark && (b[end-1] == ' ' || b[end-1] == '\t') {
				end--
			}
			p.value.Value, p.value.ValueLen = uint32(p.mark), uint32(end-p.mark)
			i++
			p.state = headValueLF
			fallthrough

		case headValueLF:
			if i == len(b) {
				break
			}
			if b[i] != '\n' {
				return FaultBareCR
			}
			if len(p.fields) >= limits.Fields {
				return FaultTooManyFields
			}
			p.fields = field.Append(p.fields, b, &p.value)
			p.noteFraming(p.value.ID)
			i++
			p.state = headFieldStart

		case headEndLF:
			if b[i] != '\n' {
				return FaultBareCR
			}
			p.pos = i + 1
			p.state = headDone
			return NoFault
		}
	}
	p.pos = i
	return NoFault
}

func nameError(b []byte, mark, i int) Fault {
	switch {
	case i == mark && (b[i] == ' ' || b[i] == '\t'):
		return FaultFold
	case b[i] == ' ' || b[i] == '\t':
		return FaultSpaceBeforeColon
	case b[i] == '\n':
		return FaultBareLF
	}
	return FaultFieldName
}

func controlError(c byte) Fault {
	if c == '\n' {
		return FaultBareLF
	}
	return FaultFieldValue
}
