package field

import (
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/syntax"
)

// wireCases returns a name in lower case, in upper case, and in two mixtures of both.
func wireCases(name string) []string {
	mixed := [2][]byte{[]byte(strings.ToLower(name)), []byte(strings.ToLower(name))}
	for i := range name {
		if syntax.IsLetter(name[i]) {
			mixed[i%2][i] -= 'a' - 'A'
		}
	}
	return []string{name, strings.ToLower(name), strings.ToUpper(name), string(mixed[0]), string(mixed[1])}
}

// appendName returns the entry that Append makes for a name that a client has sent.
func appendName(name string) Entry {
	e := Entry{NameLen: uint16(len(name))}
	return Append(nil, []byte(name), &e)[0]
}

// Field names are case-insensitive (RFC 9110, section 5.1): each known one is found in any case, by Lookup and by
// Append.
func TestKnownFieldNames(t *testing.T) {
	for id := Unknown + 1; id < Count; id++ {
		name := names[id]
		if id == Framing {
			if name != "" {
				t.Errorf("the end of the framing fields is called %q", name)
			}
			continue
		}
		if !syntax.IsToken(name) {
			t.Errorf("the name of field %d is %q", id, name)
			continue
		}
		if len(name) > maxKnownName {
			t.Errorf("%q is longer than the longest known name", name)
		}
		for _, name := range wireCases(name) {
			if got := Lookup(name); got != id {
				t.Errorf("Lookup(%q) = %d, want %d", name, got, id)
			}
			if got := Lookup([]byte(name)); got != id {
				t.Errorf("Lookup of %q in bytes is %d, want %d", name, got, id)
			}
			if entry := appendName(name); entry.ID != id {
				t.Errorf("Append takes %q for %d, want %d", name, entry.ID, id)
			}
		}
	}
}

// The hashes of the known names don't collide: otherwise the earlier of two names wouldn't be found.
func TestFieldHashCollisions(t *testing.T) {
	taken := make(map[uint8]string)
	for _, name := range names {
		if name == "" {
			continue
		}
		h := hash(name)
		if other := taken[h]; other != "" {
			t.Errorf("%q and %q have the same hash", name, other)
		}
		taken[h] = name
		for _, inCase := range wireCases(name) {
			if hash(inCase) != h || hash([]byte(inCase)) != h {
				t.Errorf("the hash of %q depends on case", name)
			}
		}
	}
}

// A name that differs slightly from a known name isn't mistaken for it, even if both have the same hash.
func TestUnknownFieldNames(t *testing.T) {
	known := make(map[string]bool)
	for _, name := range names {
		known[strings.ToLower(name)] = true
	}
	check := func(name string) {
		if got := Lookup(name); got != Unknown && !known[strings.ToLower(name)] {
			t.Errorf("%q is taken for %q", name, names[got])
		}
		if syntax.IsToken(name) {
			if id := appendName(name).ID; id != Unknown && !known[strings.ToLower(name)] {
				t.Errorf("Append takes %q for %q", name, names[id])
			}
		}
	}
	for _, name := range names {
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
	check(strings.Repeat("x", maxKnownName))
	check(strings.Repeat("x", maxKnownName+1))
}

// A trailer section has no field "necessary for message framing, routing, request modifiers, authentication, response
// control data, or determining how to process the content" (RFC 9110, section 6.5.1).
func TestFieldsInTrailers(t *testing.T) {
	for _, name := range []string{
		"Transfer-Encoding", "Content-Length", "Host", "Connection", "Expect", "Upgrade", "TE", "Trailer", "Cache-Control",
		"Authorization", "Cookie", "Set-Cookie", "Content-Encoding", "Content-Type", "Content-Range", "Keep-Alive", "Proxy-Connection",
	} {
		if Lookup(name).InTrailer() {
			t.Errorf("%s may be in a trailer", name)
		}
	}
	for _, name := range []string{"ETag", "Server", "X-Checksum", "Digest", "Server-Timing", "X-Request-ID", "Date"} {
		if !Lookup(name).InTrailer() {
			t.Errorf("%s may not be in a trailer", name)
		}
	}
}
