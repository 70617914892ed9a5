package http2

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

func huffmanEncoded(dst []byte, s string) []byte {
	return appendHuffman(dst, []byte(s), huffmanLen([]byte(s)))
}

// Every byte has the same code as in x/net (RFC 7541, appendix B).
func TestHuffmanCodes(t *testing.T) {
	for c := range 256 {
		s := string([]byte{byte(c)})
		for _, s := range []string{s, s + "a", "a" + s, strings.Repeat(s, 9)} {
			want := hpack.AppendHuffmanString(nil, s)
			if got := huffmanEncoded(nil, s); !bytes.Equal(got, want) {
				t.Errorf("%q is %x, want %x", s, got, want)
			}
			if got := huffmanLen([]byte(s)); got != len(want) {
				t.Errorf("%q has %d bytes, want %d", s, got, len(want))
			}
			if got, ok := appendHuffmanDecoded(nil, want); !ok || string(got) != s {
				t.Errorf("%x is %q, want %q (%t)", want, got, s, ok)
			}
		}
	}
}

// randomText returns up to max bytes like those of field values: mostly common letters, and sometimes other bytes.
func randomText(random *rand.Rand, max int) string {
	b := make([]byte, random.IntN(max+1))
	odd := random.IntN(4)
	for i := range b {
		switch random.IntN(20) {
		case 0:
			b[i] = byte(random.IntN(256))
			if odd > 0 {
				b[i] = byte(' ' + random.IntN(95))
			}
		case 1, 2, 3:
			b[i] = byte(' ' + random.IntN(95))
		default:
			b[i] = "012aceiost-/=gzlk,;"[random.IntN(19)]
		}
	}
	return string(b)
}

// Decoding an encoded text returns the text. x/net encodes and decodes it with the same results.
func TestHuffmanAgrees(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		s := randomText(random, 200)
		want := hpack.AppendHuffmanString(nil, s)
		got := huffmanEncoded([]byte("before"), s)
		if string(got) != "before"+string(want) {
			t.Fatalf("%q is %x, want %x", s, got, want)
		}
		decoded, ok := appendHuffmanDecoded([]byte("before"), want)
		if !ok || string(decoded) != "before"+s {
			t.Fatalf("%x is %q, want %q", want, decoded, s)
		}
	}
}

// "Padding strictly longer than 7 bits MUST be treated as a decoding error. A padding not corresponding to the most significant bits of
// the code for the EOS symbol MUST be treated as a decoding error. A Huffman-encoded string literal containing the EOS symbol MUST be
// treated as a decoding error." (RFC 7541, section 5.2)
func TestHuffmanMalformed(t *testing.T) {
	long := huffmanEncoded(nil, strings.Repeat("www.example.com ", 4)) // ends at a byte boundary: 16 letters are 12 bytes
	for _, test := range []struct {
		what string
		in   string
		want string
		ok   bool
	}{
		{"nothing", "", "", true},
		{"a letter of 5 bits, padding of 3", "\x1f", "a", true},
		{"a letter of 8 bits", "\xf8", "&", true},
		{"padding with a zero in it", "\x1e", "", false},
		{"padding of zeros", "\x18", "", false},
		{"padding of 8 bits", "\xff", "", false},
		{"padding of 8 bits behind a letter", "\xf8\xff", "", false},
		{"padding of 11 bits", "\x1f\xff", "", false},
		{"EOS", "\xff\xff\xff\xff", "", false},
		{"EOS behind a letter", "\x1f\xff\xff\xff\xff", "", false},
		{"EOS in front of more", "\xff\xff\xff\xfc\x1f\x1f\x1f\x1f\x1f\x1f\x1f", "", false},
		{"a code of 24 bits", "\xff\xff\xea", "\t", true},
		{"half a long code", "\xff\xfe", "", false},
		{"padding of 8 bits behind a code of 24", "\xff\xff\xea\xff", "", false},
		{"the longest code and padding", "\xff\xff\xff\xf3", "\n", true},
		{"the longest code, its last bit gone", "\xff\xff\xff\xf0", "", false},
		{"padding of 8 bits behind a long string", string(long) + "\xff", "", false},
		{"EOS behind a long string", string(long) + "\xff\xff\xff\xff", "", false},
		{"EOS in a long string", string(long) + "\xff\xff\xff\xff" + string(long), "", false},
	} {
		got, ok := appendHuffmanDecoded(nil, []byte(test.in))
		if ok != test.ok || ok && string(got) != test.want {
			t.Errorf("%s: %x is %q (%t), want %q (%t)", test.what, test.in, got, ok, test.want, test.ok)
		}
		if _, err := hpack.HuffmanDecodeToString([]byte(test.in)); (err == nil) != test.ok {
			t.Errorf("%s: x/net says %v", test.what, err)
		}
	}
}

// FuzzHuffman checks that any bytes are decoded as x/net decodes them.
func FuzzHuffman(f *testing.F) {
	for _, s := range []string{"", "a", "www.example.com", "\n\r\x16", strings.Repeat("\xff", 9), "{}<>\\"} {
		f.Add(huffmanEncoded(nil, s))
	}
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x1f\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, ok := appendHuffmanDecoded(nil, in)
		want, err := hpack.HuffmanDecodeToString(in)
		if ok != (err == nil) || ok && string(got) != want {
			t.Fatalf("%x is %q (%t), want %q (%v)", in, got, ok, want, err)
		}
		if ok && !bytes.Equal(huffmanEncoded(nil, want), in) {
			t.Fatalf("%q has two encodings: %x and %x", want, in, huffmanEncoded(nil, want))
		}
	})
}

const userAgent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"

func BenchmarkHuffmanDecode(b *testing.B) {
	in := huffmanEncoded(nil, userAgent)
	b.SetBytes(int64(len(userAgent)))
	b.ReportAllocs()
	var out []byte
	for b.Loop() {
		out, _ = appendHuffmanDecoded(out[:0], in)
	}
}

func BenchmarkHuffmanEncode(b *testing.B) {
	in := []byte(userAgent)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	var out []byte
	for b.Loop() {
		out = appendHuffman(out[:0], in, huffmanLen(in))
	}
}
