package syntax

import (
	"math/rand/v2"
	"testing"
)

// EqualFold is right for all pairs of bytes: those that differ in the same bit as the cases of a letter, too.
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
				t.Errorf("EqualFold of %q and %q isn't %t", a, b, want)
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

// IndexControl looks at eight bytes at a time, and finds what a look at each byte finds.
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
	// Each byte at each place, at several alignments, for all lengths up to two words and a byte.
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
	// Several of them, and neighbours that the arithmetic could mistake for one.
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
