package filo

import (
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/syntax"
)

// wireCases returns a name in lower, upper, and twice in mixed case.
func wireCases(name string) []string {
	mixed := [2][]byte{[]byte(strings.ToLower(name)), []byte(strings.ToLower(name))}
	for i := range name {
		if syntax.IsLetter(name[i]) {
			mixed[i%2][i] -= 'a' - 'A'
		}
	}
	return []string{name, strings.ToLower(name), strings.ToUpper(name), string(mixed[0]), string(mixed[1])}
}

// Field names are case-insensitive (RFC 9110, section 5.1): each known one is found in any case, by a lookup and by the
// parser.
func TestKnownFieldNames(t *testing.T) {
	for id := fieldUnknown + 1; id < fieldCount; id++ {
		name := fieldNames[id]
		if id == fieldFraming {
			if name != "" {
				t.Errorf("the end of the framing fields is called %q", name)
			}
			continue
		}
		if !syntax.IsToken(name) {
			t.Errorf("the name of field %d is %q", id, name)
			continue
		}
		if len(name) > maxKnownFieldName {
			t.Errorf("%q is longer than the longest known name", name)
		}
		for _, name := range wireCases(name) {
			if got := lookupField(name); got != id {
				t.Errorf("lookupField(%q) = %d, want %d", name, got, id)
			}
			if got := lookupField([]byte(name)); got != id {
				t.Errorf("lookupField of %q in bytes is %d, want %d", name, got, id)
			}
			head := wireParse([]byte("GET / HTTP/1.1\r\n"+name+": x\r\n\r\n"), wireLarge)
			if head.ids != string([]byte{byte(id)}) {
				t.Errorf("the parser takes %q for field %q, want %d", name, head.ids, id)
			}
			if id < fieldFraming && head.first[id] != 1 {
				t.Errorf("the parser took no note of %q", name)
			}
		}
	}
}

// "fieldHash has no collision among them": with one, the earlier name wouldn't be found.
func TestFieldHashCollisions(t *testing.T) {
	names := make(map[uint8]string)
	for _, name := range fieldNames {
		if name == "" {
			continue
		}
		hash := fieldHash(name)
		if other, taken := names[hash]; taken {
			t.Errorf("%q and %q have the same hash", name, other)
		}
		names[hash] = name
		for _, inCase := range wireCases(name) {
			if fieldHash(inCase) != hash || fieldHash([]byte(inCase)) != hash {
				t.Errorf("the hash of %q depends on case", name)
			}
		}
	}
}

// A name that is almost a known one isn't it, though it may have its hash.
func TestUnknownFieldNames(t *testing.T) {
	known := make(map[string]bool)
	for _, name := range fieldNames {
		known[strings.ToLower(name)] = true
	}
	check := func(name string) {
		if got := lookupField(name); got != fieldUnknown && !known[strings.ToLower(name)] {
			t.Errorf("%q is taken for %q", name, fieldNames[got])
		}
		if syntax.IsToken(name) {
			head := wireParse([]byte("GET / HTTP/1.1\r\n"+name+": x\r\n\r\n"), wireLarge)
			if id := fieldID(head.ids[0]); id != fieldUnknown && !known[strings.ToLower(name)] {
				t.Errorf("the parser takes %q for %q", name, fieldNames[id])
			}
		}
	}
	for _, name := range fieldNames {
		if name == "" {
			continue
		}
		check(name[1:])
		check(name[:len(name)-1])
		check(name + "s")
		check("X" + name)
		for i := range name {
			for c := range 256 {
				other := []byte(name)
				other[i] = byte(c)
				check(string(other))
			}
		}
	}
	check("")
	check(strings.Repeat("x", maxKnownFieldName))
	check(strings.Repeat("x", maxKnownFieldName+1))
}

// A trailer section has no field "necessary for message framing, routing, request modifiers, authentication, response
// control data, or determining how to process the content" (RFC 9110, section 6.5.1).
func TestFieldsInTrailers(t *testing.T) {
	for _, name := range []string{
		"Transfer-Encoding", "Content-Length", "Host", "Connection", "Expect", "Upgrade", "TE", "Trailer", "Cache-Control",
		"Authorization", "Cookie", "Set-Cookie", "Content-Encoding", "Content-Type", "Content-Range",
	} {
		if lookupField(name).inTrailer() {
			t.Errorf("%s may be in a trailer", name)
		}
	}
	for _, name := range []string{"ETag", "Server", "X-Checksum", "Digest", "Server-Timing", "X-Request-ID", "Date"} {
		if !lookupField(name).inTrailer() {
			t.Errorf("%s may not be in a trailer", name)
		}
	}
}
