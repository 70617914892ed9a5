package field

import "github.com/filohttp/filo/internal/syntax"

// Line is a header field that is rendered once and then set in many lists.
type Line struct {
	text    string // in the form that is sent, with CRLF
	nameLen uint16
	id      ID
}

// NewLine renders a field. It trims white space around the value. The name must be a token of at most MaxName bytes, and the
// value must have no control bytes.
func NewLine(name, value string) Line {
	value = string(syntax.TrimSpace([]byte(value)))
	return Line{text: name + ": " + value + "\r\n", nameLen: uint16(len(name)), id: Lookup(name)}
}

// Name returns the field's name.
func (f *Line) Name() string { return f.text[:f.nameLen] }

// Value returns the field's value.
func (f *Line) Value() string { return f.text[f.nameLen+2 : len(f.text)-2] }

// SetLine replaces all fields of f's name with f, as Set does.
func (l *List) SetLine(f *Line) {
	if len(l.entries) == 0 {
		l.AddLine(f)
		return
	}
	at := l.findNamed(f.Name(), f.id, 0)
	if at < 0 {
		l.AddLine(f)
		return
	}
	l.removeFrom(f.Name(), f.id, at+1)
	l.writeLine(&l.entries[at], f)
}

// AddLine appends f and keeps other fields of the same name.
func (l *List) AddLine(f *Line) {
	entries, e := extend(l.entries)
	l.entries = entries
	l.writeLine(e, f)
}

// writeLine writes f's line to the end of buf, and makes e its entry.
func (l *List) writeLine(e *Entry, f *Line) {
	old := l.own()
	start := uint32(len(l.buf))
	l.buf = append(l.buf, f.text...)
	l.poisonOutgrown(old)
	value := start + uint32(f.nameLen) + 2
	e.fill(start, f.nameLen, f.id, value, uint32(len(l.buf))-2-value)
	e.rendered = true
}
