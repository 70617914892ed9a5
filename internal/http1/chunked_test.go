package http1

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http/httputil"
	"strings"
	"testing"
)

// wireChunks is the result of the chunk decoder for some input.
type wireChunks struct {
	data string
	end  int // where the trailer section begins; -1 if the decoder didn't reach it
	err  Fault
}

// wireDecodeChunks passes the decoder the input up to each of the cuts, and then all of it. As a connection does, it calls Decode again with
// the bytes that weren't consumed.
func wireDecodeChunks(input []byte, cuts ...int) wireChunks {
	var d ChunkDecoder
	var data []byte
	taken := 0
	for i := 0; i <= len(cuts); i++ {
		end := len(input)
		if i < len(cuts) {
			end = cuts[i]
		}
		for taken < end && d.state != chunkTrailer {
			piece, n, err := d.Decode(input[taken:end:end])
			if err != NoFault {
				return wireChunks{string(data), -1, err}
			}
			data = append(data, piece...)
			taken += n
		}
	}
	if d.state != chunkTrailer {
		return wireChunks{string(data), -1, NoFault}
	}
	return wireChunks{string(data), taken, NoFault}
}

var wireAcceptedChunks = []struct{ rule, input, want string }{
	{"chunked-body = *chunk last-chunk trailer-section CRLF (RFC 9112, section 7.1)", "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world"},
	{"there may be no chunk", "0\r\n\r\n", ""},
	{"data may hold anything", "9\r\n0\r\n\r\n\x00\xff\r\n\r\n0\r\n\r\n", "0\r\n\r\n\x00\xff\r\n"},
	{"chunk-size = 1*HEXDIG, of either case", "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n", "01234567890123456789"},
	{"zeros may lead", "0000000000000001\r\nx\r\n00\r\n", "x"},
	{"last-chunk = 1*(\"0\")", "1\r\nx\r\n0000000000000000\r\n", "x"},
	{"chunk-ext-name (RFC 9112, section 7.1.1)", "1;a\r\nx\r\n0;b\r\n", "x"},
	{"chunk-ext-val = token", "1;a=b;c=d\r\nx\r\n0\r\n", "x"},
	{"chunk-ext-val = quoted-string", "1;a=\"b\"\r\nx\r\n0\r\n", "x"},
	{"a quoted-string may be empty", "1;a=\"\";b=\"\"\r\nx\r\n0\r\n", "x"},
	{"a quoted-string may hold what ends an extension elsewhere", "1;a=\"b;c=d \t\xff\"\r\nx\r\n0\r\n", "x"},
	{"quoted-pair", "1;a=\"\\\"\\\\\\;\"\r\nx\r\n0\r\n", "x"},
}

func TestChunksAccepted(t *testing.T) {
	for _, test := range wireAcceptedChunks {
		input := []byte(test.input)
		want := wireChunks{test.want, strings.LastIndex(test.input, "\r\n0") + 2, NoFault}
		want.end += strings.Index(test.input[want.end:], "\r\n") + 2
		switch test.rule {
		case "there may be no chunk":
			want.end = 3
		case "chunked-body = *chunk last-chunk trailer-section CRLF (RFC 9112, section 7.1)", "data may hold anything":
			want.end = len(input) - 2
		}
		if got := wireDecodeChunks(input); got != want {
			t.Errorf("%s: %q gave %+v, want %+v", test.rule, test.input, got, want)
		}
		for cut := range input {
			if got := wireDecodeChunks(input, cut); got != want {
				t.Errorf("%s: %q cut at %d gave %+v, want %+v", test.rule, test.input, cut, got, want)
			}
		}
		if got := wireDecodeChunks(input, wireEachByte(input)...); got != want {
			t.Errorf("%s: %q byte by byte gave %+v, want %+v", test.rule, test.input, got, want)
		}
		for n := range want.end {
			if got := wireDecodeChunks(input[:n]); got.err != NoFault || got.end >= 0 || !strings.HasPrefix(test.want, got.data) {
				t.Errorf("%s: %q gave %+v", test.rule, test.input[:n], got)
			}
		}
	}
}

var wireRefusedChunks = []struct {
	rule, input string
	err         Fault
}{
	{"a size is needed", "\r\nx", FaultChunkSize},
	{"a size is needed", ";a\r\nx", FaultChunkSize},
	{"a size is hexadecimal", "g\r\n", FaultChunkSize},
	{"a size is hexadecimal", "1g\r\n", FaultChunkSize},
	{"a size has no prefix", "0x1\r\nx\r\n", FaultChunkSize},
	{"a size has no sign", "+1\r\nx\r\n", FaultChunkSize},
	{"a size has no sign", "-1\r\nx\r\n", FaultChunkSize},
	{"no white space before a size", " 1\r\nx\r\n", FaultChunkSize},
	{"no white space behind a size", "1 \r\nx\r\n", FaultChunkSize},
	{"no white space before an extension (BWS is bad)", "1 ;a\r\nx\r\n", FaultChunkSize},
	{"no digit separators", "1_0\r\n", FaultChunkSize},
	{"bytes outside ASCII are no digits", "\xef\xbc\x91\r\n", FaultChunkSize},
	{"a size must be a number of 63 bits", "8000000000000000\r\n", FaultChunkSize},
	{"a size must not overflow (RFC 9112, section 7.1)", "ffffffffffffffff\r\n", FaultChunkSize},
	{"a size must not overflow (RFC 9112, section 7.1)", "10000000000000001\r\nx\r\n", FaultChunkSize},
	{"a size has at most 16 digits", "00000000000000001\r\nx\r\n", FaultChunkSize},
	{"so has the last chunk's", strings.Repeat("0", 17) + "\r\n", FaultChunkSize},
	{"a bare LF behind a size", "1\nx\r\n", FaultBareLF},
	{"a bare CR behind a size", "1\rx\r\n", FaultBareCR},
	{"a bare LF behind an extension", "1;a\nx\r\n", FaultBareLF},
	{"a bare LF behind a quoted value", "1;a=\"b\"\nx\r\n", FaultBareLF},
	{"a bare CR behind an extension", "1;a\r;b\r\n", FaultBareCR},
	{"data longer than its size", "1\r\nxy\r\n0\r\n", FaultChunkEnd},
	{"a bare LF behind data", "1\r\nx\n0\r\n", FaultChunkEnd},
	{"a bare CR behind data", "1\r\nx\r0\r\n", FaultChunkEnd},
	{"no CRLF behind data", "1\r\nx0\r\n\r\n", FaultChunkEnd},
	{"an extension has a name", "1;\r\nx\r\n", FaultChunkExtension},
	{"an extension has a name", "1;;a\r\nx\r\n", FaultChunkExtension},
	{"an extension has a name", "1;=a\r\nx\r\n", FaultChunkExtension},
	{"a name is a token", "1;a b\r\nx\r\n", FaultChunkExtension},
	{"a name isn't quoted", "1;\"a\"\r\nx\r\n", FaultChunkExtension},
	{"a value has a byte", "1;a=\r\nx\r\n", FaultChunkExtension},
	{"a value has a byte", "1;a=;b\r\nx\r\n", FaultChunkExtension},
	{"a value is a token", "1;a=b=c\r\nx\r\n", FaultChunkExtension},
	{"a value is a token", "1;a=b\"\r\nx\r\n", FaultChunkExtension},
	{"nothing behind a quoted value", "1;a=\"b\"c\r\nx\r\n", FaultChunkExtension},
	{"no white space behind a quoted value", "1;a=\"b\" \r\nx\r\n", FaultChunkExtension},
	{"no white space around \"=\" (BWS is bad)", "1;a =b\r\nx\r\n", FaultChunkExtension},
	{"no white space around \"=\" (BWS is bad)", "1;a= b\r\nx\r\n", FaultChunkExtension},
	{"no CR in a quoted value", "1;a=\"\r\n\"\r\nx\r\n", FaultChunkExtension},
	{"no LF in a quoted value", "1;a=\"\n\"\r\nx\r\n", FaultChunkExtension},
	{"no CR in a quoted-pair", "1;a=\"\\\r\n\"\r\nx\r\n", FaultChunkExtension},
	{"no NUL in a quoted-pair", "1;a=\"\\\x00\"\r\nx\r\n", FaultChunkExtension},
	{"no DEL in a quoted value", "1;a=\"\x7f\"\r\nx\r\n", FaultChunkExtension},
	{"no control bytes in a name", "1;a\x00\r\nx\r\n", FaultChunkExtension},
	{"an extension of the last chunk is held to the same rules", "0;\r\n\r\n", FaultChunkExtension},
}

func TestChunksRefused(t *testing.T) {
	for _, test := range wireRefusedChunks {
		// Each line has the same result in the first chunk and in a later one.
		for _, before := range []string{"", "3\r\nabc\r\n"} {
			input := []byte(before + test.input)
			want := wireDecodeChunks(input)
			if want.err != test.err {
				t.Errorf("%s: %q gave %+v, want %v", test.rule, input, want, test.err)
			}
			for cut := range input {
				if got := wireDecodeChunks(input, cut); got != want {
					t.Errorf("%s: %q cut at %d gave %+v, whole: %+v", test.rule, input, cut, got, want)
				}
			}
			if got := wireDecodeChunks(input, wireEachByte(input)...); got != want {
				t.Errorf("%s: %q byte by byte gave %+v, whole: %+v", test.rule, input, got, want)
			}
		}
	}
}

// maxChunkExtensions limits the total bytes of extensions, however many chunks have extensions.
func TestChunkExtensionLimit(t *testing.T) {
	one := ";" + strings.Repeat("a", maxChunkExtensions-1)
	quoted := ";a=\"" + strings.Repeat("b", maxChunkExtensions-5) + "\""
	var many, tooMany strings.Builder
	for range maxChunkExtensions / 2 {
		many.WriteString("1;a\r\nx\r\n")
	}
	tooMany.WriteString(many.String() + "1;a\r\nx\r\n")
	for _, test := range []struct {
		rule, input string
		err         Fault
	}{
		{"one extension at the limit", "1" + one + "\r\nx\r\n0\r\n", NoFault},
		{"one extension over the limit", "1" + one + "a\r\nx\r\n0\r\n", FaultChunkExtensions},
		{"a quoted value at the limit", "1" + quoted + "\r\nx\r\n0\r\n", NoFault},
		{"a quoted value over the limit", "1;a" + quoted[1:] + "\r\nx\r\n0\r\n", FaultChunkExtensions},
		{"at the limit, and more in the last chunk", "1" + one + "\r\nx\r\n0;a\r\n", FaultChunkExtensions},
		{"many small ones at the limit", many.String() + "0\r\n", NoFault},
		{"many small ones over the limit", tooMany.String() + "0\r\n", FaultChunkExtensions},
		{"one that never ends", "1;" + strings.Repeat("a", 2*maxChunkExtensions), FaultChunkExtensions},
	} {
		got := wireDecodeChunks([]byte(test.input))
		if got.err != test.err || test.err == NoFault && got.end < 0 {
			t.Errorf("%s: %+v, want %v", test.rule, got, test.err)
		}
		if split := wireDecodeChunks([]byte(test.input), wireEachByte([]byte(test.input))...); split != got {
			t.Errorf("%s: byte by byte %+v, whole: %+v", test.rule, split, got)
		}
	}
}

// The largest size of a chunk is 2^63-1. In this test the data of such a chunk never ends.
func TestChunkSizeLimit(t *testing.T) {
	var d ChunkDecoder
	_, n, err := d.Decode([]byte("7fffffffffffffff\r\n"))
	if err != NoFault || n != 18 || d.state != chunkData || d.remaining != math.MaxInt64 {
		t.Fatalf("%d, %v: %+v", n, err, d)
	}
	data, n, err := d.Decode([]byte("data"))
	if string(data) != "data" || n != 4 || err != NoFault || d.remaining != math.MaxInt64-4 {
		t.Errorf("%q, %d, %v: %+v", data, n, err, d)
	}
}

// Decode returns data as a slice of the input. Its capacity ends with the data, so an append can't overwrite the bytes after it.
func TestChunkDataIsBorrowed(t *testing.T) {
	input := []byte("3\r\nabc\r\n0\r\n")
	var d ChunkDecoder
	data, _, err := d.Decode(input)
	if err != NoFault || string(data) != "abc" || &data[0] != &input[3] || cap(data) != 3 {
		t.Errorf("%q with capacity %d, %v", data, cap(data), err)
	}
}

// GiveBack undoes Took, even at the end of a chunk.
func TestChunkGiveBack(t *testing.T) {
	for size := range 4 {
		input := []byte("3\r\nabc\r\n0\r\n")
		var d ChunkDecoder
		data, n, _ := d.Decode(input)
		if size > 0 {
			d.GiveBack(size)
		}
		var rest []byte
		for n -= size; n < len(input) && d.state != chunkTrailer; {
			piece, taken, err := d.Decode(input[n:])
			if err != NoFault {
				t.Fatal(err)
			}
			rest = append(rest, piece...)
			n += taken
		}
		if got := string(data[:3-size]) + string(rest); got != "abc" || n != len(input) {
			t.Errorf("with %d given back: %q, %d bytes taken", size, got, n)
		}
	}
}

// Bodies of random chunks are decoded to the original data, however they are cut.
func TestChunksOfRandomBodies(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	extensions := []string{"", "", ";a", ";a=b", `;a="b;\"c"`}
	for range 300 {
		var wire, want bytes.Buffer
		for range random.IntN(10) {
			data := make([]byte, 1+random.IntN(300))
			for i := range data {
				data[i] = "\r\n0123456789abcdef;x"[random.IntN(19)]
			}
			want.Write(data)
			fmt.Fprintf(&wire, "%0*x%s\r\n%s\r\n", random.IntN(8), len(data), extensions[random.IntN(len(extensions))], data)
		}
		wire.WriteString("0\r\n")
		end := wire.Len()
		wire.WriteString("Trailer: x\r\n\r\n")
		cuts := []int{random.IntN(end), random.IntN(end)}
		got := wireDecodeChunks(wire.Bytes(), min(cuts[0], cuts[1]), max(cuts[0], cuts[1]))
		if got.err != NoFault || got.end != end || got.data != want.String() {
			t.Fatalf("%q cut at %d gave %+v", wire.Bytes(), cuts, got)
		}
	}
}

// FuzzChunked cuts the input at each byte. If filo accepts the input, net/http's decoder must accept it, too, and return the same data. The
// exceptions are two limits of net/http: a line of 4,096 bytes, and the share of a body that isn't data. filo instead limits the total bytes
// of extensions, and the digits of each size.
func FuzzChunked(f *testing.F) {
	for _, test := range wireAcceptedChunks {
		f.Add([]byte(test.input))
	}
	for _, test := range wireRefusedChunks {
		f.Add([]byte(test.input))
		f.Add([]byte("3\r\nabc\r\n" + test.input))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		whole := wireDecodeChunks(input)
		for cut := 0; cut < len(input); cut += len(input)/200 + 1 {
			if got := wireDecodeChunks(input, cut); got != whole {
				t.Fatalf("cut at %d: %+v, whole: %+v", cut, got, whole)
			}
		}
		if got := wireDecodeChunks(input, wireEachByte(input)...); got != whole {
			t.Fatalf("byte by byte: %+v, whole: %+v", got, whole)
		}
		if whole.end < 0 {
			return
		}
		data, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(input[:whole.end])))
		switch {
		case err == nil && string(data) == whole.data:
		case err != nil && err.Error() == "header line too long" && wireLongestLine(input) >= 4096:
		case err != nil && strings.Contains(err.Error(), "too much non-data") && whole.end-len(whole.data) > 16<<10:
		default:
			t.Fatalf("data %q, net/http: %q, %v", whole.data, data, err)
		}
	})
}

func wireLongestLine(input []byte) int {
	longest := 0
	for line := range bytes.Lines(input) {
		longest = max(longest, len(line))
	}
	return longest
}
