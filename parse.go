package filo

import (
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/syntax"
)

// headState is what the head parser expects next.
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

const (
	// maxMethodBytes is how long a method may be. The longest registered one (UPDATEREDIRECTREF) has 17.
	maxMethodBytes = 32
	// maxEmptyLines is how many empty lines may come before a request line (RFC 9112, section 2.2, asks for one).
	maxEmptyLines = 4
)

// headLimits bounds what a head may hold.
type headLimits struct {
	bytes  int // of the whole head
	line   int // of the request line
	fields int
}

// headParser turns the bytes of a request head, or of a trailer section, into offsets. It makes one pass and can stop
// at any byte: called again with the same bytes and more behind them, it goes on where it stopped, so a head that
// arrives byte by byte costs no more than one that comes whole. It keeps no reference to the bytes, which may move.
type headParser struct {
	state      headState
	minor      uint8 // of the version, which is 1.minor
	emptyLines uint8
	percent    bool // the target holds a '%'

	pos  int // everything before it has been looked at
	mark int // start of the element that pos is in

	methodStart, methodEnd int
	targetStart, targetEnd int
	value                  field.Entry // the field being parsed

	fields []field.Entry
	// first holds, for each name that decides about framing, the index of its first field plus one; 0 is none.
	// repeated has a bit set for those that occur again.
	first    [field.Framing]uint16
	repeated uint16

	// host is the last valid Host: on one connection it is mostly the same, and needn't be checked again.
	host       [64]byte
	hostLength uint8
}

// reset makes the parser ready for the next head. It keeps the memory of its fields.
func (p *headParser) reset() {
	p.state, p.minor, p.emptyLines, p.percent = headStart, 0, 0, false
	p.pos, p.mark = 0, 0
	p.methodEnd = 0 // refuse asks whether there was a method
	p.fields = p.fields[:0]
	p.first, p.repeated = [field.Framing]uint16{}, 0
}

// resetTrailer makes the parser ready for a trailer section.
func (p *headParser) resetTrailer() {
	p.reset()
	p.state = headFieldStart
}

// started reports whether any byte of a request line has come.
func (p *headParser) started() bool { return p.state > headEmptyLF }

// fresh reports whether no byte has come, not even of an empty line.
func (p *headParser) fresh() bool { return p.state == headStart && p.emptyLines == 0 }

// parse looks at the bytes of b that it hasn't seen yet. It reports whether the head is complete, in which case
// it ends before b[p.pos]; false means that more bytes are needed.
func (p *headParser) parse(b []byte, limits *headLimits) (bool, *HTTPError) {
	if p.state == headDone {
		return true, nil // asked once more, since the request has yet to wait for its body
	}
	// What is behind the limit may have come by now or not, and so mustn't decide.
	b = b[:min(len(b), limits.bytes)]
	if p.state < headFieldStart {
		if err := p.parseRequestLine(b, limits); err != nil {
			return false, err
		}
	}
	if p.state >= headFieldStart {
		if err := p.parseFields(b, limits); err != nil {
			return false, err
		}
	}
	if p.state != headDone && len(b) >= limits.bytes {
		return false, errHeadTooLarge
	}
	return p.state == headDone, nil
}

// parseRequestLine follows RFC 9112, section 3: method SP request-target SP HTTP-version CRLF.
// One space each and no white space around, since lenient splitting is how two parsers come to disagree.
func (p *headParser) parseRequestLine(b []byte, limits *headLimits) *HTTPError {
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
			p.mark, p.methodStart = i, i
			p.state = headMethod

		case headEmptyLF:
			if b[i] != '\n' {
				return errBareCR
			}
			i++
			p.state = headStart

		case headMethod:
			for i < len(b) && syntax.IsTokenByte(b[i]) {
				i++
			}
			if i-p.mark > maxMethodBytes {
				return errMethodTooLong
			}
			if i == len(b) {
				break
			}
			if b[i] != ' ' || i == p.mark {
				return errMethod
			}
			p.methodEnd = i
			i++
			p.mark, p.targetStart = i, i
			p.state = headTarget

		case headTarget:
			for i < len(b) && syntax.IsTargetByte(b[i]) {
				if b[i] == '%' {
					p.percent = true
				}
				i++
			}
			if i-p.methodStart > limits.line {
				return errLineTooLong
			}
			if i == len(b) {
				break
			}
			if b[i] != ' ' || i == p.mark {
				if b[i] == '\r' || b[i] == '\n' {
					return errVersion // HTTP/0.9
				}
				return errTarget
			}
			p.targetEnd = i
			i++
			p.mark = i
			p.state = headVersion

		case headVersion:
			n, err := p.parseVersion(b[p.mark:], limits)
			p.pos = p.mark + n
			return err
		}
	}
	p.pos = i
	return nil
}

// parseVersion reads HTTP-version CRLF at the start of b and returns how much of it there is.
func (p *headParser) parseVersion(b []byte, limits *headLimits) (int, *HTTPError) {
	const usual, form = "HTTP/1.1\r\n", "HTTP/d.d\r\n"
	if len(b) >= len(usual) && string(b[:len(usual)]) == usual && p.mark+8-p.methodStart <= limits.line {
		p.minor, p.state = 1, headFieldStart
		return len(usual), nil
	}
	n := min(len(b), len(form))
	for i := 0; i < n; i++ {
		if form[i] == 'd' {
			if b[i] < '0' || b[i] > '9' {
				return 0, errVersion
			}
		} else if b[i] != form[i] {
			if i == len(form)-2 && b[i] == '\n' {
				return 0, errBareLF
			}
			return 0, errVersion
		}
	}
	if n < len(form) {
		return n, nil
	}
	if b[5] != '1' {
		return 0, errVersionNotSupported
	}
	if p.mark+8-p.methodStart > limits.line {
		return 0, errLineTooLong
	}
	p.minor = b[7] - '0'
	p.state = headFieldStart
	return n, nil
}

// parseFields follows RFC 9112, section 5: field-name ":" OWS field-value OWS CRLF, and an empty line at the end.
// A line that starts with white space (obs-fold), white space before the colon, a bare CR or LF and control bytes are
// refused: each of them is read in different ways by different servers.
func (p *headParser) parseFields(b []byte, limits *headLimits) *HTTPError {
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
				return errHeadTooLarge
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
				return errBareCR
			}
			if len(p.fields) >= limits.fields {
				return errTooManyFields
			}
			p.fields = field.Append(p.fields, b, &p.value)
			p.noteFraming(p.value.ID)
			i++
			p.state = headFieldStart

		case headEndLF:
			if b[i] != '\n' {
				return errBareCR
			}
			p.pos = i + 1
			p.state = headDone
			return nil
		}
	}
	p.pos = i
	return nil
}

// noteFraming takes note of the last field if it decides about framing.
func (p *headParser) noteFraming(id field.ID) {
	if id == field.Unknown || id >= field.Framing {
		return
	}
	if p.first[id] == 0 {
		p.first[id] = uint16(len(p.fields))
	} else {
		p.repeated |= 1 << id
	}
}

func nameError(b []byte, mark, i int) *HTTPError {
	switch {
	case i == mark && (b[i] == ' ' || b[i] == '\t'):
		return errFold
	case b[i] == ' ' || b[i] == '\t':
		return errSpaceBeforeColon
	case b[i] == '\n':
		return errBareLF
	}
	return errFieldName
}

func controlError(c byte) *HTTPError {
	if c == '\n' {
		return errBareLF
	}
	return errFieldValue
}
