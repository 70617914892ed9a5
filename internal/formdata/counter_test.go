package formdata

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// While a form arrives, room is reserved for its bytes, but no more than files may occupy in memory. When the form is complete, room
// is reserved for what it keeps in memory, or none if that is little.
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
		form, err := Read(struct{ io.Reader }{counter}, testFormType, Limits{MaxMemory: 1})
		if err == nil {
			err = counter.CountForm(form)
			form.RemoveAll()
		}
		if !errors.Is(err, test.err) || err == nil && (peak < test.peak || used != test.end) {
			t.Errorf("%s: %v, %d bytes at most, %d in the end", test.name, err, peak, used)
		}
	}
}
