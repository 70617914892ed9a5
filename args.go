package filo

import (
	"bytes"
	"errors"
	"iter"
	"strconv"

	"github.com/filohttp/filo/internal/syntax"
)

const (
	// maxArgs limits the parameters that Parse keeps. A lookup compares them one by one, so without a limit a client could make each of
	// a handler's lookups arbitrarily slow.
	maxArgs = 1000

	// Reset keeps at most maxKeptArgs and maxKeptArgBytes allocated, so that one large form doesn't stay in memory for as long as the
	// Args is reused.
	maxKeptArgs     = 256
	maxKeptArgBytes = 16 << 10
)

// ErrTooManyArgs is wrapped by the error of a query or form with more than 1000 parameters.
var ErrTooManyArgs = errors.New("filo: too many query or form parameters")

// errTooManyArgs is shared: nothing may change it.
var errTooManyArgs = &HTTPError{Status: 400, Detail: "more than 1000 query or form parameters", Err: ErrTooManyArgs}

// Args holds the parameters of a query, or of an application/x-www-form-urlencoded form: pairs of a key and a value, in the
// order in which they were sent. A key may occur more than once. The zero value is empty and ready to use.
//
// Keys and values are percent-decoded, and may hold any bytes, not only UTF-8. Keys are case-sensitive: they are compared byte
// by byte.
//
// A []byte from an Args is borrowed: it is valid until the handler returns or Reset or Parse is called, and must not be
// changed. A string belongs to the caller. Args isn't safe for concurrent use, not even for reading, since values are decoded
// on first use.
type Args struct {
	source []byte // Parse's argument; never written to
	// arena holds the bytes that aren't in source: decoded ones, and those from Set and Add. It is append-only until Reset, so that
	// slices borrowed from it keep their bytes.
	arena []byte
	list  []argument
	err   error // of the last Parse
}

// argument is a key and a value by their offsets into source or arena. It holds no pointers, so a list needs no clearing, and the
// garbage collector doesn't scan it.
type argument struct {
	keyStart, keyEnd     int
	valueStart, valueEnd int
	keyInArena           bool
	valueInArena         bool
	valueUnread          bool // the value is in source, and may be encoded
}

// Parse replaces the parameters by those in query, a query without its "?" or the body of a form. Args keeps query and reads
// from it later, so query must not change until Reset or the next Parse; Parse itself never writes to it.
//
// Parsing follows the WHATWG URL standard and refuses nothing. Only "&" separates parameters, and empty ones are skipped. A
// parameter without "=" has an empty value, "+" is a space, and a "%" without two hexadecimal digits is kept. (net/url drops a
// parameter with such a "%" or with ";".)
//
// If there are more than 1000 parameters, Parse keeps the first 1000 and returns an *HTTPError with status 400 that wraps
// ErrTooManyArgs. It returns no other error.
func (a *Args) Parse(query []byte) error {
	a.Reset()
	a.source = query
	for start := 0; start < len(query); {
		end := len(query)
		if n := bytes.IndexByte(query[start:], '&'); n >= 0 {
			end = start + n
		}
		if end > start {
			if len(a.list) == maxArgs {
				a.err = errTooManyArgs
				return a.err
			}
			a.parseOne(start, end)
		}
		start = end + 1
	}
	return nil
}

// parseOne adds the parameter at source[start:end]. It decodes the key, because every lookup compares it. The value is decoded on first
// use.
func (a *Args) parseOne(start, end int) {
	arg := argument{keyStart: start, keyEnd: end, valueStart: end, valueEnd: end}
	if n := bytes.IndexByte(a.source[start:end], '='); n >= 0 {
		arg.keyEnd = start + n
		arg.valueStart = arg.keyEnd + 1
		arg.valueUnread = true
	}
	if key := a.source[start:arg.keyEnd]; syntax.IsFormEncoded(key) {
		arg.keyStart = len(a.arena)
		a.arena = syntax.AppendFormDecoded(a.arena, key)
		arg.keyEnd = len(a.arena)
		arg.keyInArena = true
	}
	a.list = append(a.list, arg)
}

// Err returns the error of the last Parse, including one that another method has called, such as URI.Query. It is nil unless the query
// had too many parameters.
func (a *Args) Err() error { return a.err }

// Get returns the first value of the key, or "" if there is none.
func (a *Args) Get(key string) string { return string(a.GetBytes(key)) }

// GetBytes returns the first value of the key, or nil if there is none. An empty value isn't nil.
func (a *Args) GetBytes(key string) []byte {
	if i := a.find(key, 0); i >= 0 {
		return a.value(i)
	}
	return nil
}

// Has reports whether a parameter has the key.
func (a *Args) Has(key string) bool { return a.find(key, 0) >= 0 }

// Int returns the first value of the key as a decimal integer with an optional sign. If the key is missing, or the value isn't
// an integer or doesn't fit an int, the error is an *HTTPError with status 400, which a handler can return unchanged. For a bad
// value it wraps strconv.ErrSyntax or strconv.ErrRange.
func (a *Args) Int(key string) (int, error) {
	i := a.find(key, 0)
	if i < 0 {
		return 0, Error(400, "parameter "+strconv.Quote(key)+" is missing")
	}
	n, err := strconv.Atoi(string(a.value(i)))
	if err != nil {
		return 0, &HTTPError{Status: 400, Detail: "parameter " + strconv.Quote(key) + " must be an integer", Err: err}
	}
	return n, nil
}

// Values yields the values of the key, in order.
func (a *Args) Values(key string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := a.find(key, 0); i >= 0; i = a.find(key, i+1) {
			if !yield(a.value(i)) {
				return
			}
		}
	}
}

// All yields the keys and values, in order.
func (a *Args) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for i := 0; i < len(a.list); i++ {
			if !yield(a.key(i), a.value(i)) {
				return
			}
		}
	}
}

// Len returns the number of parameters.
func (a *Args) Len() int { return len(a.list) }

// Set gives the value to the first parameter with the key, and removes the others with that key. If there is none, it adds one
// at the end. Both strings are copied, unencoded.
func (a *Args) Set(key, value string) {
	i := a.find(key, 0)
	if i < 0 {
		a.Add(key, value)
		return
	}
	a.deleteFrom(key, i+1)
	arg := &a.list[i]
	arg.valueStart, arg.valueEnd = a.store(value)
	arg.valueInArena, arg.valueUnread = true, false
}

// Add adds a parameter at the end. Both strings are copied, unencoded. The limit of Parse doesn't apply.
func (a *Args) Add(key, value string) {
	arg := argument{keyInArena: true, valueInArena: true}
	arg.keyStart, arg.keyEnd = a.store(key)
	arg.valueStart, arg.valueEnd = a.store(value)
	a.list = append(a.list, arg)
}

// Del removes the parameters with the key.
func (a *Args) Del(key string) { a.deleteFrom(key, 0) }

// Reset removes all parameters and releases the query given to Parse. It keeps some memory for reuse.
func (a *Args) Reset() {
	a.source, a.err = nil, nil
	a.arena, a.list = a.arena[:0], a.list[:0]
	if cap(a.arena) > maxKeptArgBytes {
		a.arena = nil
	}
	if cap(a.list) > maxKeptArgs {
		a.list = nil
	}
}

// AppendTo appends the parameters as application/x-www-form-urlencoded, such as "q=a+b&page=2", and returns the extended slice.
// Parse reads the same parameters back.
func (a *Args) AppendTo(dst []byte) []byte {
	for i := range a.list {
		if i > 0 {
			dst = append(dst, '&')
		}
		dst = syntax.AppendFormEncoded(dst, a.key(i))
		dst = append(dst, '=')
		dst = syntax.AppendFormEncoded(dst, a.value(i))
	}
	return dst
}

// String returns the parameters in the form that AppendTo appends.
func (a *Args) String() string { return string(a.AppendTo(nil)) }

// find returns the index of the first parameter at or after from with the key, -1 if there is none.
func (a *Args) find(key string, from int) int {
	for i := from; i < len(a.list); i++ {
		if string(a.key(i)) == key {
			return i
		}
	}
	return -1
}

func (a *Args) key(i int) []byte {
	arg := &a.list[i]
	return a.slice(arg.keyInArena, arg.keyStart, arg.keyEnd)
}

func (a *Args) value(i int) []byte {
	arg := &a.list[i]
	if arg.valueUnread {
		a.decodeValue(arg)
	}
	return a.slice(arg.valueInArena, arg.valueStart, arg.valueEnd)
}

func (a *Args) decodeValue(arg *argument) {
	arg.valueUnread = false
	value := a.source[arg.valueStart:arg.valueEnd]
	if !syntax.IsFormEncoded(value) {
		return
	}
	arg.valueStart = len(a.arena)
	a.arena = syntax.AppendFormDecoded(a.arena, value)
	arg.valueEnd = len(a.arena)
	arg.valueInArena = true
}

// slice returns bytes without spare capacity, so that an append by the caller can't overwrite what follows them.
func (a *Args) slice(inArena bool, start, end int) []byte {
	if start == end {
		return []byte{} // a slice of a nil arena would be nil, which means missing
	}
	if inArena {
		return a.arena[start:end:end]
	}
	return a.source[start:end:end]
}

// store copies s to the arena.
func (a *Args) store(s string) (start, end int) {
	start = len(a.arena)
	a.arena = append(a.arena, s...)
	return start, len(a.arena)
}

// deleteFrom removes the parameters with the key at or after from.
func (a *Args) deleteFrom(key string, from int) {
	kept := from
	for i := from; i < len(a.list); i++ {
		if string(a.key(i)) != key {
			a.list[kept] = a.list[i]
			kept++
		}
	}
	a.list = a.list[:kept]
}
