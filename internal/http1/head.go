package http1

import (
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/syntax"
)

// MaxMethodBytes is the maximum length of a method. The longest registered method (UPDATEREDIRECTREF) has 17 bytes.
const MaxMethodBytes = 32

// Limits bounds the size of a head.
type Limits struct {
	Bytes  int // maximum size of the whole head
	Line   int // maximum length of the request line
	Fields int // maximum number of fields
}

// Line holds the offsets of the parts of a request line in the bytes of a head.
type Line struct {
	MethodStart, MethodEnd int
	TargetStart, TargetEnd int
	Minor                  uint8 // the HTTP version is 1.Minor
}

// RequestHead is the head of a request, as offsets into bytes that the caller keeps. A Parser fills it while HTTP/1.1 text arrives. A
// protocol that receives the parts of the head separately builds it with Begin and Add. Frame checks a head that was made in either way.
type RequestHead struct {
	Line
	fields []field.Entry
	// For each name that is relevant for framing, first holds one plus the index of the first field with that name, or 0 if there is none.
	// repeated has a bit set for each of these names that occurs more than once.
	first    [field.Framing]uint16
	repeated uint16
	percent  bool // the target holds a '%'

	// host is the last valid Host. Most requests of a connection have the same Host, and a repeated Host needn't be checked again.
	hostLength uint8
	host       [64]byte
}

// reset clears the head, but keeps the memory of the fields.
func (h *RequestHead) reset() {
	h.Minor, h.percent = 0, false
	h.MethodEnd = 0 // 0 tells Method that there is no method
	h.fields = h.fields[:0]
	h.first, h.repeated = [field.Framing]uint16{}, 0
}

// Begin makes h a head without fields, and appends the method and the target to b, which must be empty. The limits apply to the size that
// the head would have as HTTP/1.1 text.
func (h *RequestHead) Begin(b []byte, method, target string, minor uint8, limits *Limits) ([]byte, Fault) {
	h.reset()
	b = append(append(b, method...), target...)
	h.Line = Line{MethodEnd: len(method), TargetStart: len(method), TargetEnd: len(b), Minor: minor}
	switch {
	case !syntax.IsToken(method):
		return b, FaultMethod
	case len(method) > MaxMethodBytes:
		return b, FaultMethodTooLong
	case len(b)+len("  HTTP/1.1") > limits.Line:
		return b, FaultLineTooLong
	case len(target) == 0:
		return b, FaultTarget
	}
	for i := range len(target) {
		if !syntax.IsTargetByte(target[i]) {
			return b, FaultTarget
		}
		h.percent = h.percent || target[i] == '%'
	}
	return b, NoFault
}

// Add adds a field, and appends its name and value to b, which must hold the parts that were added before.
func (h *RequestHead) Add(b []byte, name, value string, limits *Limits) ([]byte, Fault) {
	start := len(b)
	b = append(append(b, name...), value...)
	text := b[start+len(name):]
	switch trimmed := syntax.TrimSpace(text); {
	case len(h.fields) >= limits.Fields:
		return b, FaultTooManyFields
	case !syntax.IsToken(name):
		return b, FaultFieldName
	case len(name) > field.MaxName, len(b)+len("  HTTP/1.1\r\n\r\n")+(len(h.fields)+1)*len(": \r\n") > limits.Bytes:
		return b, FaultHeadTooLarge
	case hasControl(text):
		return b, FaultFieldValue
	default:
		copy(text, trimmed)
		b = b[:len(b)-len(text)+len(trimmed)]
		e := field.Entry{Name: uint32(start), NameLen: uint16(len(name)), Value: uint32(start + len(name)), ValueLen: uint32(len(trimmed))}
		h.fields = field.Append(h.fields, b, &e)
		h.noteFraming(e.ID)
		return b, NoFault
	}
}

// AddValid is Add for a field that is known to be valid: the name is a token with the given ID, and the value has neither control bytes nor
// white space around it.
func (h *RequestHead) AddValid(b []byte, name, value []byte, id field.ID, limits *Limits) ([]byte, Fault) {
	size := len(b) + len(name) + len(value) + len("  HTTP/1.1\r\n\r\n") + (len(h.fields)+1)*len(": \r\n")
	switch {
	case len(h.fields) >= limits.Fields:
		return b, FaultTooManyFields
	case len(name) > field.MaxName, size > limits.Bytes:
		return b, FaultHeadTooLarge
	}
	start := uint32(len(b))
	h.fields = append(h.fields, field.Entry{Name: start, NameLen: uint16(len(name)), Value: start + uint32(len(name)),
		ValueLen: uint32(len(value)), ID: id})
	h.noteFraming(id)
	return append(append(b, name...), value...), NoFault
}

// hasControl reports whether a field's value has a control byte other than a tab.
func hasControl(value []byte) bool {
	for i := syntax.IndexControl(value, 0); i < len(value); i = syntax.IndexControl(value, i+1) {
		if value[i] != '\t' {
			return true
		}
	}
	return false
}

// noteFraming records the field that was added last, if its name is relevant for framing. id is the ID of the name.
func (h *RequestHead) noteFraming(id field.ID) {
	if id == field.Unknown || id >= field.Framing {
		return
	}
	if h.first[id] == 0 {
		h.first[id] = uint16(len(h.fields))
	} else {
		h.repeated |= 1 << id
	}
}

// Method returns the method as a slice of b, or nil if the method hasn't arrived completely.
func (h *RequestHead) Method(b []byte) []byte {
	if h.MethodEnd == 0 {
		return nil
	}
	return b[h.MethodStart:h.MethodEnd]
}

// Has reports whether the head has a field with the given name, which must be relevant for framing.
func (h *RequestHead) Has(id field.ID) bool { return h.first[id] != 0 }

// HostIndex returns the index of Host among the fields, or -1 if there is no Host.
func (h *RequestHead) HostIndex() int { return int(h.first[field.Host]) - 1 }

// GiveFields moves the fields of a complete head, whose bytes are in b, to l.
func (h *RequestHead) GiveFields(l *field.List, b []byte) { h.fields = l.Adopt(b, h.fields) }
