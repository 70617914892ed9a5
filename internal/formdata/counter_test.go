package formdata

import (
	"errors"
	"strings"
	"testing"
)

// While a form arrives, room is reserved for its values, and for as much of its files as may stay in memory. When the form is complete, room is
// reserved for what it keeps in memory, or none if that is little.
func TestCounter(t *testing.T) {
	full := errors.New("full")
	for _, test := range []struct {
		name             string
		form             string
		most, free, room int64
		peak, end        int64
		err              error
	}{
		{"a small form", testForm("a", "1234"), 1000, 500, 1 << 20, 0, 0, nil},
		{"a large value", testForm("a", strings.Repeat("x", 5000)), 1 << 20, 500, 1 << 20, 5001, 5001, nil},
		{"a file in a temporary file", testForm("@a", strings.Repeat("x", 5000)), 1000, 500, 1 << 20, 1000, 1000, nil},
		{"a value while no file may stay in memory", testForm("a", strings.Repeat("x", 5000)), 0, 500, 1 << 20, 4500, 5001, nil},
		{"a file while none may stay in memory", testForm("@a", strings.Repeat("x", 50000)), 0, 500, 1 << 20, 0, 0, nil},
		{"a value behind a file", testForm("@a", strings.Repeat("x", 50000), "a", strings.Repeat("x", 5000)), 0, 500, 1 << 20, 4500, 5001, nil},
		{"no room", testForm("a", strings.Repeat("x", 5000)), 1 << 20, 500, 3000, 0, 0, full},
	} {
		var used, peak int64
		counter := &Counter{Body: strings.NewReader(test.form), Most: test.most, Free: test.free, Take: func(n int64) error {
			if n <= 0 || used+n > test.room {
				return full
			}
			used += n
			peak = max(peak, used)
			return nil
		}, Give: func(n int64) { used -= n }}
		form, err := counter.ReadForm(testFormType, Limits{MaxMemory: test.most})
		if err == nil {
			form.RemoveAll()
		}
		if !errors.Is(err, test.err) || err == nil && (peak < test.peak || peak > max(test.peak, test.end)+1000 || used != test.end) {
			t.Errorf("%s: %v, %d bytes at most, %d in the end", test.name, err, peak, used)
		}
	}
}

// A byte counts as a file's only if it is one for mime/multipart, however the client writes its form.
func TestFileFinder(t *testing.T) {
	const file, value = "Content-Disposition: form-data; name=a; filename=b\r\n\r\n", "Content-Disposition: form-data; name=a\r\n\r\n"
	long := "X: " + strings.Repeat("x", maxHead) + "\r\n"
	for _, test := range []struct {
		name, form string
		found      int64
	}{
		{"a file", "--a:b\r\n" + file + "1234567", 7},
		{"a file behind a preamble", "preamble\r\n--a:b\r\n" + file + "1234567", 7},
		{"an empty file and a file", "--a:b\r\n" + file + "--a:b\r\n" + file + "1234567", 7},
		{"two files", "--a:b\r\n" + file + "1234567\r\n--a:b\r\n" + file + "12345", 12},
		{"a value behind a file", "--a:b\r\n" + file + "1234567\r\n--a:b\r\n" + value + "1234567", 7},
		{"a file behind a value", "--a:b\r\n" + value + "1234567\r\n--a:b\r\n" + file + "1234567", 7},
		{"the epilogue", "--a:b\r\n" + file + "1234567\r\n--a:b--\r\n--a:b\r\n" + file + "1234567", 7},
		{"a delimiter without CR", "--a:b\r\n" + value + "1\n--a:b\r\n" + file + "1234567", 0},
		{"a delimiter and more", "--a:b\r\n" + value + "1\r\n--a:bc\r\n" + file + "1234567", 0},
		{"white space behind a delimiter", "--a:b\r\n" + file + "1234567\r\n--a:b \r\n" + value + "1234567", 7},
		{"a delimiter in a header", "--a:b\r\nContent-Disposition: form-data; name=a\r\n--a:b\r\n" + file + "1234567", 0},
		{"a delimiter in a long header", "--a:b\r\nContent-Disposition: form-data; name=a\r\n" + long + "--a:b\r\n" + file + "1234567", 0},
		{"a header that ends with LF", "--a:b\r\nContent-Disposition: form-data; name=a; filename=b\n\n\r\n--a:b\r\n" + value + "1234567", 0},
		{"a name in another field", "--a:b\r\nX: filename=b\r\n" + value + "1234567", 0},
		{"an empty name", "--a:b\r\nContent-Disposition: form-data; name=a; filename=\"\"\r\n\r\n1234567", 0},
	} {
		const end = "\r\n--a" // bytes that may begin a delimiter don't count yet
		for _, chunk := range []int{1, 2, 7, len(test.form) + len(end)} {
			f := newFileFinder("a:b")
			for rest := []byte(test.form + end); len(rest) > 0; rest = rest[min(chunk, len(rest)):] {
				f.scan(rest[:min(chunk, len(rest))])
			}
			if slack := f.found - test.found; slack < -10 || slack > 10 || test.found == 0 && f.found != 0 {
				t.Errorf("%s, in reads of %d bytes: %d bytes of files, want %d", test.name, chunk, f.found, test.found)
			}
		}
	}
}
