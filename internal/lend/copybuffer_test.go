package lend

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// sizes is a reader that records the sizes of the buffers that it gets.
type sizes struct {
	io.Reader
	seen []int
}

func (s *sizes) Read(p []byte) (int, error) {
	s.seen = append(s.seen, len(p))
	return s.Reader.Read(p)
}

// Everything is copied, regardless of how much the reader returns at once. Only a reader that fills the first buffer gets a larger one.
func TestCopy(t *testing.T) {
	const small = len(CopyBuffer{})
	content := bytes.Repeat([]byte("0123456789abcde\n"), 50_000)
	for _, test := range []struct {
		name  string
		size  int
		wrap  func(io.Reader) io.Reader
		large bool
	}{
		{"twice as much as a buffer", 2 * small, nil, true},
		{"nothing", 0, nil, false},
		{"a byte", 1, nil, false},
		{"less than a buffer", small - 1, nil, false},
		{"a buffer", small, nil, true},
		{"many buffers", len(content), nil, true},
		{"half of each buffer", len(content), iotest.HalfReader, false},
		{"the end with the last bytes", 100, iotest.DataErrReader, false},
	} {
		var r io.Reader = struct{ io.Reader }{bytes.NewReader(content[:test.size])}
		if test.wrap != nil {
			r = test.wrap(r)
		}
		seen := &sizes{Reader: r}
		var got bytes.Buffer
		if n, err := Copy(&got, seen); n != int64(test.size) || err != nil || !bytes.Equal(got.Bytes(), content[:test.size]) {
			t.Errorf("%s: %d of %d bytes, %v", test.name, n, test.size, err)
		}
		last := seen.seen[len(seen.seen)-1]
		if seen.seen[0] != small || last != map[bool]int{false: small, true: 2 * small}[test.large] {
			t.Errorf("%s: buffers of %v bytes", test.name, seen.seen)
		}
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Copy returns the number of bytes that were written, and the first error.
func TestCopyErrors(t *testing.T) {
	bad := errors.New("bad")
	good := writer(func(p []byte) (int, error) { return len(p), nil })
	for _, test := range []struct {
		name string
		w    io.Writer
		r    io.Reader
		n    int64
		err  error
	}{
		{"a reader that fails", good, io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(bad)), 3, bad},
		{"a writer that fails", writer(func([]byte) (int, error) { return 2, bad }), strings.NewReader("abc"), 2, bad},
		{"a short write", writer(func([]byte) (int, error) { return 1, nil }), strings.NewReader("abc"), 1, io.ErrShortWrite},
		{"a count that is too large", writer(func([]byte) (int, error) { return 4, nil }), strings.NewReader("abc"), 0, errWriteCount},
		{"a count below 0", writer(func([]byte) (int, error) { return -1, nil }), strings.NewReader("abc"), 0, errWriteCount},
	} {
		if n, err := Copy(test.w, test.r); n != test.n || err != test.err {
			t.Errorf("%s: %d, %v; want %d, %v", test.name, n, err, test.n, test.err)
		}
	}
}
