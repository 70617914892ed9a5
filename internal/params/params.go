// Package params parses and renders the parameters of queries and of forms of type application/x-www-form-urlencoded, as the WHATWG URL standard
// says.
package params

import (
	"bytes"
	"iter"

	"github.com/filohttp/filo/internal/syntax"
)

const (
	// Max limits the parameters that Parse keeps. A lookup compares them one by one, so without a limit a client could make each of
	// a handler's lookups arbitrarily slow.
	Max = 1000

	// Reset keeps at most maxKept and maxKeptBytes allocated, so that one large form doesn't stay in memory for as long as the
	// List is reused.
	maxKept      = 256
	maxKeptBytes = 16 << 10
)

// List holds parameters: see filo.Args. The zero value is empty and ready to use.
type List struct {
	source []byte // Parse's argument; never written to
	// arena holds the bytes that aren't in source: decoded ones, and those from Set and Add. It is append-only until Reset, so that slices borrowed
	// from it stay valid.
	arena []byte
	list  []argument
}

// argument is a key and a value, as offsets into source or arena. It holds no pointers, so a list needs no clearing, and the
// garbage collector doesn't scan it.
type argument struct {
	keyStart, keyEnd     int
	valueStart, valueEnd int
	keyInArena           bool
	valueInArena         bool
	valueUnread          bool // the value is in source, and may be encoded
}

// Parse replaces the parameters with those in query. If there are more than Max, it keeps the first Max and reports false.
func (l *List) Parse(query []byte) (all bool) {
	l.Reset()
	l.source = query
	for start := 0; start < len(query); {
		end := len(query)
		if n := bytes.IndexByte(query[start:], '&'); n >= 0 {
			end = start + n
		}
		if end > start {
			if len(l.list) == Max {
				return false
			}
			l.parseOne(start, end)
		}
		start = end + 1
	}
	return true
}

// parseOne adds the parameter at source[start:end]. It decodes the key at once, because every lookup compares it. The value is decoded when it is
// first read.
func (l *List) parseOne(start, end int) {
	arg := argument{keyStart: start, keyEnd: end, valueStart: end, valueEnd: end}
	if n := bytes.IndexByte(l.source[start:end], '='); n >= 0 {
		arg.keyEnd = start + n
		arg.valueStart = arg.keyEnd + 1
		arg.valueUnread = true
	}
	if key := l.source[start:arg.keyEnd]; syntax.IsFormEncoded(key) {
		arg.keyStart = len(l.arena)
		l.arena = syntax.AppendFormDecoded(l.arena, key)
		arg.keyEnd = len(l.arena)
		arg.keyInArena = true
	}
	l.list = append(l.list, arg)
}

// Get returns the first value of the key, or nil if there is none. An empty value isn't nil.
func (l *List) Get(key string) []byte {
	if i := l.find(key, 0); i >= 0 {
		return l.value(i)
	}
	return nil
}

// Has reports whether a parameter has the key.
func (l *List) Has(key string) bool { return l.find(key, 0) >= 0 }

// Values yields the values of the key, in order.
func (l *List) Values(key string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := l.find(key, 0); i >= 0; i = l.find(key, i+1) {
			if !yield(l.value(i)) {
				return
			}
		}
	}
}

// All yields the keys and values, in order.
func (l *List) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for i := 0; i < len(l.list); i++ {
			if !yield(l.key(i), l.value(i)) {
				return
			}
		}
	}
}

// Len returns the number of parameters.
func (l *List) Len() int { return len(l.list) }

// Set sets the value of the first parameter with the key, and removes the others with that key. If there is none, it adds a parameter at the end. It
// copies both strings, which aren't encoded.
func (l *List) Set(key, value string) {
	i := l.find(key, 0)
	if i < 0 {
		l.Add(key, value)
		return
	}
	l.deleteFrom(key, i+1)
	arg := &l.list[i]
	arg.valueStart, arg.valueEnd = l.store(value)
	arg.valueInArena, arg.valueUnread = true, false
}

// Add adds a parameter at the end. It copies both strings, which aren't encoded. The limit Max doesn't apply.
func (l *List) Add(key, value string) {
	arg := argument{keyInArena: true, valueInArena: true}
	arg.keyStart, arg.keyEnd = l.store(key)
	arg.valueStart, arg.valueEnd = l.store(value)
	l.list = append(l.list, arg)
}

// Del removes the parameters with the key.
func (l *List) Del(key string) { l.deleteFrom(key, 0) }

// Reset removes all parameters and releases the query given to Parse. It keeps some memory for reuse.
func (l *List) Reset() {
	l.source = nil
	l.arena, l.list = l.arena[:0], l.list[:0]
	if cap(l.arena) > maxKeptBytes {
		l.arena = nil
	}
	if cap(l.list) > maxKept {
		l.list = nil
	}
}

// AppendTo appends the parameters as application/x-www-form-urlencoded, such as "q=a+b&page=2", and returns the extended slice.
// Parse reads the same parameters back.
func (l *List) AppendTo(dst []byte) []byte {
	for i := range l.list {
		if i > 0 {
			dst = append(dst, '&')
		}
		dst = syntax.AppendFormEncoded(dst, l.key(i))
		dst = append(dst, '=')
		dst = syntax.AppendFormEncoded(dst, l.value(i))
	}
	return dst
}

// find returns the index of the first parameter with the key, beginning with the parameter at the index from; -1 if there is none.
func (l *List) find(key string, from int) int {
	for i := from; i < len(l.list); i++ {
		if string(l.key(i)) == key {
			return i
		}
	}
	return -1
}

func (l *List) key(i int) []byte {
	arg := &l.list[i]
	return l.slice(arg.keyInArena, arg.keyStart, arg.keyEnd)
}

func (l *List) value(i int) []byte {
	arg := &l.list[i]
	if arg.valueUnread {
		l.decodeValue(arg)
	}
	return l.slice(arg.valueInArena, arg.valueStart, arg.valueEnd)
}

func (l *List) decodeValue(arg *argument) {
	arg.valueUnread = false
	value := l.source[arg.valueStart:arg.valueEnd]
	if !syntax.IsFormEncoded(value) {
		return
	}
	arg.valueStart = len(l.arena)
	l.arena = syntax.AppendFormDecoded(l.arena, value)
	arg.valueEnd = len(l.arena)
	arg.valueInArena = true
}

// slice returns bytes without spare capacity, so that an append by the caller can't overwrite what follows them.
func (l *List) slice(inArena bool, start, end int) []byte {
	if start == end {
		return []byte{} // a slice of a nil arena would be nil, which means missing
	}
	if inArena {
		return l.arena[start:end:end]
	}
	return l.source[start:end:end]
}

// store copies s to the arena.
func (l *List) store(s string) (start, end int) {
	start = len(l.arena)
	l.arena = append(l.arena, s...)
	return start, len(l.arena)
}

// deleteFrom removes the parameters with the key, beginning with the parameter at the index from.
func (l *List) deleteFrom(key string, from int) {
	kept := from
	for i := from; i < len(l.list); i++ {
		if string(l.key(i)) != key {
			l.list[kept] = l.list[i]
			kept++
		}
	}
	l.list = l.list[:kept]
}

// Memory returns the memory that holds the decoded parameters.
func (l *List) Memory() []byte { return l.arena[:cap(l.arena)] }
