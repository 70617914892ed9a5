package field

import (
	"bytes"
	"iter"
	"strconv"

	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/syntax"
	"golang.org/x/net/http/httpguts"
)

// MaxName is the maximum length of a name.
const MaxName = 1<<16 - 1

// Entry is one header field: where its name and value are in the bytes of a message. It has offsets instead of slices, so the bytes can move, and the
// garbage collector has nothing to scan.
type Entry struct {
	Name, Value uint32
	ValueLen    uint32
	NameLen     uint16
	ID          ID
	// rendered says that the field was set, not parsed, so the bytes hold it in the form that is sent, "Name: value\r\n".
	rendered bool
}

// ValueIn returns the value, which lies in b.
func (e *Entry) ValueIn(b []byte) []byte {
	end := e.Value + e.ValueLen
	return b[e.Value:end:end]
}

// Append appends e, whose name lies in b, to entries, and sets e.ID, the number of the name.
func Append(entries []Entry, b []byte, e *Entry) []Entry {
	name := b[e.Name : e.Name+uint32(e.NameLen)]
	e.ID = Unknown
	if len(name) <= maxKnownName {
		// Most names have their canonical case.
		if e.ID = table[hash(name)]; string(name) != names[e.ID] {
			e.ID = Lookup(name)
		}
	}
	return append(entries, *e)
}

// extend appends an entry, and returns it for the caller to fill in. An entry that is written in parts and then copied as a whole costs
// more: the processor can't read the whole until all parts have left the store buffer.
func extend(entries []Entry) ([]Entry, *Entry) {
	entries = append(entries, Entry{})
	return entries, &entries[len(entries)-1]
}

// fill sets each field of e separately: see extend.
func (e *Entry) fill(name uint32, nameLen uint16, id ID, value, valueLen uint32) {
	e.Name, e.NameLen, e.ID, e.Value, e.ValueLen = name, nameLen, id, value, valueLen
}

// List is an ordered list of header fields. Slices that it returns are valid until the list changes or its borrowed buffer becomes
// invalid. The zero value is an empty list.
type List struct {
	// buf holds the names and values. A field that was set is in buf in the form in which it is sent, "Name: value\r\n".
	buf     []byte
	entries []Entry
	// borrowed says that buf isn't the list's own: the list copies it before it writes to it.
	borrowed bool
}

// Borrow returns a list of entries, which lie in b. The list doesn't write to b.
func Borrow(b []byte, entries []Entry) List { return List{buf: b, entries: entries, borrowed: true} }

// Adopt makes l a list of entries, which lie in b. The list doesn't write to b, and owns entries. Adopt returns an empty slice with the memory of the
// list's previous entries, which the caller may reuse.
func (l *List) Adopt(b []byte, entries []Entry) []Entry {
	old := l.entries[:0]
	l.buf, l.entries, l.borrowed = b, entries, true
	return old
}

// Copy makes l a list of entries, which lie in b. The list copies both. l must not have borrowed a buffer.
func (l *List) Copy(b []byte, entries []Entry) {
	l.buf = append(l.buf[:0], b...)
	l.entries = append(l.entries[:0], entries...)
}

// CopyFrom makes l a copy of the list from. l must not have borrowed a buffer.
func (l *List) CopyFrom(from *List) { l.Copy(from.buf, from.entries) }

// Len returns the number of fields.
func (l *List) Len() int { return len(l.entries) }

// ID returns the number of field i's name.
func (l *List) ID(i int) ID { return l.entries[i].ID }

// Name returns the name of field i.
func (l *List) Name(i int) []byte {
	e := &l.entries[i]
	end := e.Name + uint32(e.NameLen)
	return l.buf[e.Name:end:end]
}

// Value returns the value of field i.
func (l *List) Value(i int) []byte {
	return l.entries[i].ValueIn(l.buf)
}

// Find returns the index of the first field called name whose index is at least from, or -1 if there is none.
func (l *List) Find(name string, from int) int { return l.findNamed(name, Lookup(name), from) }

// findNamed is Find for a name whose number is known.
func (l *List) findNamed(name string, id ID, from int) int {
	if id != Unknown {
		return l.FindID(id, from)
	}
	for i := from; i < len(l.entries); i++ {
		e := &l.entries[i]
		if e.ID == Unknown && int(e.NameLen) == len(name) && syntax.EqualFold(l.Name(i), name) {
			return i
		}
	}
	return -1
}

// FindID is Find for the number of a name.
func (l *List) FindID(id ID, from int) int {
	for i := from; i < len(l.entries); i++ {
		if l.entries[i].ID == id {
			return i
		}
	}
	return -1
}

// Get returns the value of the first field called name, nil if there is none.
func (l *List) Get(name string) []byte {
	if i := l.Find(name, 0); i >= 0 {
		return l.Value(i)
	}
	return nil
}

// GetID is Get for the number of a name.
func (l *List) GetID(id ID) []byte {
	if i := l.FindID(id, 0); i >= 0 {
		return l.Value(i)
	}
	return nil
}

// Values yields the value of each field called name, in order.
func (l *List) Values(name string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := l.Find(name, 0); i >= 0; i = l.Find(name, i+1) {
			if !yield(l.Value(i)) {
				return
			}
		}
	}
}

// All yields the name and the value of each field, in order and in the case in which they were sent or set.
func (l *List) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for i := range l.entries {
			if !yield(l.Name(i), l.Value(i)) {
				return
			}
		}
	}
}

// HasToken reports whether the comma-separated list in the fields with the number id contains the token, ignoring case. The list may be spread over
// several fields and have empty elements (RFC 9110, section 5.6.1).
func (l *List) HasToken(id ID, token string) bool {
	for i := l.FindID(id, 0); i >= 0; i = l.FindID(id, i+1) {
		if syntax.ListHasToken(l.Value(i), token) {
			return true
		}
	}
	return false
}

// Set replaces all fields called name with a single field that has the value, at the position of the first of them. It does nothing if the
// name isn't a token. It replaces control bytes in the value with spaces.
func (l *List) Set(name, value string) { set(l, name, Lookup(name), value) }

// SetBytes is Set for a value in bytes, which it copies.
func (l *List) SetBytes(name string, value []byte) { set(l, name, Lookup(name), value) }

// SetID is Set with the canonical name of a known field.
func (l *List) SetID(id ID, value string) { set(l, names[id], id, value) }

// SetInt is SetID for a value in decimal digits.
func (l *List) SetInt(id ID, value int64) {
	var digits [20]byte
	set(l, names[id], id, strconv.AppendInt(digits[:0], value, 10))
}

// Add appends a field and keeps other fields of the same name. It treats names and values as Set does.
func (l *List) Add(name, value string) { add(l, name, Lookup(name), value) }

// AddBytes is Add for a value in bytes, which it copies.
func (l *List) AddBytes(name string, value []byte) { add(l, name, Lookup(name), value) }

// Del removes all fields called name.
func (l *List) Del(name string) { l.removeFrom(name, Lookup(name), 0) }

// DelID is Del for the number of a name.
func (l *List) DelID(id ID) { l.removeFrom(names[id], id, 0) }

// Reset removes all fields.
func (l *List) Reset() {
	l.entries = l.entries[:0]
	if l.borrowed {
		l.buf, l.borrowed = nil, false
	}
	l.buf = l.buf[:0]
}

// ResetWithin is Reset, but drops a buffer that is larger than size.
func (l *List) ResetWithin(size int) {
	if cap(l.buf) > size {
		*l = List{}
	} else if len(l.buf) > 0 {
		l.Reset()
	}
}

// AppendLine appends field i in the form in which it is sent.
func (l *List) AppendLine(dst []byte, i int) []byte {
	e := &l.entries[i]
	if e.rendered {
		return append(dst, l.buf[e.Name:e.Value+e.ValueLen+2]...)
	}
	dst = append(append(dst, l.Name(i)...), ": "...)
	return append(append(dst, l.Value(i)...), "\r\n"...)
}

// Poison overwrites the list's own memory, in builds with the race detector.
func (l *List) Poison() {
	if !l.borrowed {
		lend.Poison(l.buf[:cap(l.buf)])
	}
}

func (l *List) removeFrom(name string, id ID, from int) {
	i := l.findNamed(name, id, from)
	if i < 0 {
		return
	}
	kept := l.entries[:i]
	for next := l.findNamed(name, id, i+1); next >= 0; next = l.findNamed(name, id, i+1) {
		kept = append(kept, l.entries[i+1:next]...)
		i = next
	}
	l.entries = append(kept, l.entries[i+1:]...)
}

func set[V []byte | string](l *List, name string, id ID, value V) {
	at := l.findNamed(name, id, 0)
	if at < 0 {
		add(l, name, id, value)
		return
	}
	write(l, &l.entries[at], name, id, value)
	l.removeFrom(name, id, at+1)
}

func add[V []byte | string](l *List, name string, id ID, value V) {
	if len(name) > MaxName || id == Unknown && !httpguts.ValidHeaderFieldName(name) {
		return
	}
	entries, e := extend(l.entries)
	l.entries = entries
	write(l, e, name, id, value)
}

// write writes a field's line to the end of buf, and makes e its entry.
func write[V []byte | string](l *List, e *Entry, name string, id ID, value V) {
	old := l.own()
	start := len(l.buf)
	l.buf = append(l.buf, name...)
	l.buf = append(l.buf, ": "...)
	from := len(l.buf)
	l.buf = append(l.buf, value...)
	CleanValue(l.buf[from:])
	trimmed := syntax.TrimSpace(l.buf[from:])
	if len(trimmed) < len(value) {
		l.buf = append(l.buf[:from], trimmed...)
	}
	l.buf = append(l.buf, "\r\n"...)
	l.poisonOutgrown(old)
	e.fill(uint32(start), uint16(len(name)), id, uint32(from), uint32(len(trimmed)))
	e.rendered = true
}

// own replaces a borrowed buf with a copy, so that the list can append to it. If buf wasn't borrowed, own returns it, for poisonOutgrown.
func (l *List) own() (old []byte) {
	if l.borrowed {
		l.buf, l.borrowed = bytes.Clone(l.buf), false
		return nil
	}
	return l.buf
}

// poisonOutgrown overwrites old, the buffer before a change, if the change has replaced it. Slices that the list has returned earlier point into
// old, and are no longer valid.
func (l *List) poisonOutgrown(old []byte) {
	if race.Enabled && cap(old) > 0 && &old[:1][0] != &l.buf[0] {
		lend.Poison(old[:cap(old)])
	}
}

// CleanValue replaces bytes that a field value must not contain (RFC 9110, section 5.5) with spaces.
func CleanValue(v []byte) {
	for i := syntax.IndexControl(v, 0); i < len(v); i = syntax.IndexControl(v, i+1) {
		if v[i] != '\t' {
			v[i] = ' '
		}
	}
}
