package syntax

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// The classes of bytes are those that their RFCs list.
func TestClasses(t *testing.T) {
	const letters, digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "0123456789"
	for i := range 256 {
		c := byte(i)
		is := func(members string) bool { return strings.IndexByte(members, c) >= 0 }
		for _, test := range []struct {
			class     string
			got, want bool
		}{
			{"letters", IsLetter(c), is(letters)},
			{"tchar (RFC 9110, section 5.6.2)", IsTokenByte(c), is(letters + digits + "!#$%&'*+-.^_`|~")},
			{"bytes of a target", IsTargetByte(c), c > ' ' && c < 0x7f && c != '#'},
			{"bytes of a host", ValidHost([]byte{c}), is(letters + digits + "-._~!$&'()*+;=")}, // without the comma
			{"hexadecimal digits", HexValue(c) >= 0, is(digits + "abcdefABCDEF")},
		} {
			if test.got != test.want {
				t.Errorf("%s: %q is one: %t", test.class, c, test.got)
			}
		}
	}
	for token, want := range map[string]bool{"": false, "a": true, "a b": false, "a:": false, "x-A1": true, "\u00e9": false} {
		if IsToken(token) != want || IsToken([]byte(token)) != want {
			t.Errorf("%q is a token: %t", token, !want)
		}
	}
}

// EqualFold is right for all pairs of bytes, including pairs of other characters that differ in the same bit as the upper and the lower case of a
// letter.
func TestEqualFold(t *testing.T) {
	lower := func(c byte) byte {
		if 'A' <= c && c <= 'Z' {
			return c + 0x20
		}
		return c
	}
	for a := range 256 {
		for b := range 256 {
			want := lower(byte(a)) == lower(byte(b))
			if EqualFold([]byte{'x', byte(a)}, []byte{'X', byte(b)}) != want {
				t.Errorf("EqualFold of %#x and %#x isn't %t", a, b, want)
			}
		}
	}
	for _, test := range []struct {
		a, b string
		want bool
	}{{"", "", true}, {"a", "", false}, {"ab", "a", false}, {"Content-Length", "cONTENT-lENGTH", true}, {"k", "\u212a", false}} {
		if EqualFold(test.a, test.b) != test.want || EqualFold([]byte(test.b), test.a) != test.want {
			t.Errorf("EqualFold(%q, %q) isn't %t", test.a, test.b, test.want)
		}
	}
}

// IndexControl, which examines eight bytes at a time, returns the same as a loop over single bytes.
func TestIndexControl(t *testing.T) {
	naive := func(b []byte, i int) int {
		for i < len(b) && b[i] >= 0x20 && b[i] != 0x7f {
			i++
		}
		return i
	}
	memory := make([]byte, 64)
	check := func(b []byte, i int) {
		if got, want := IndexControl(b, i), naive(b, i); got != want {
			t.Fatalf("IndexControl(%q, %d) = %d, want %d", b, i, got, want)
		}
	}
	// Each byte value at each position, at several alignments, for all lengths up to two words and a byte.
	for _, offset := range []int{0, 1, 6} {
		for length := range 18 {
			b := memory[offset : offset+length : offset+length]
			for i := range memory {
				memory[i] = 'x'
			}
			check(b, 0)
			for at := range b {
				for c := range 256 {
					b[at] = byte(c)
					check(b, 0)
					check(b, at/2)
				}
				b[at] = 'x'
			}
		}
	}
	// Several control bytes, and neighbours that the arithmetic could mistake for control bytes.
	const alphabet = "\x00\x01\x09\x1f\x20\x21\x7e\x7f\x80\x81\x9f\xa0\xfe\xff"
	random := rand.New(rand.NewPCG(3, 4))
	for range 50_000 {
		offset := random.IntN(8)
		b := memory[offset : offset+random.IntN(40)]
		for i := range b {
			b[i] = alphabet[random.IntN(len(alphabet))]
			if random.IntN(4) > 0 {
				b[i] = byte(0x20 + random.IntN(0x5f))
			}
		}
		check(b, random.IntN(len(b)+1))
	}
}
