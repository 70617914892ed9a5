package filo

import (
	"fmt"
	"slices"
	"testing"
)

func TestField(t *testing.T) {
	vary, custom := NewField("Vary", " Origin\t"), NewField("X-Custom", "a, b")
	if vary.Name() != "Vary" || vary.Value() != "Origin" || custom.Name() != "X-Custom" || custom.Value() != "a, b" {
		t.Errorf("%q: %q, %q: %q", vary.Name(), vary.Value(), custom.Name(), custom.Value())
	}
	var h Header
	h.Add("Vary", "1")
	h.Add("x-custom", "2")
	h.Add("Vary", "3")
	h.Add("Other", "4")
	h.Add("X-CUSTOM", "5")
	h.SetField(&vary)
	h.SetField(&custom)
	h.AddField(&vary)
	h.AddField(&custom)
	var got []string
	for name, value := range h.All() {
		got = append(got, fmt.Sprintf("%s: %s", name, value))
	}
	if want := []string{"Vary: Origin", "X-Custom: a, b", "Other: 4", "Vary: Origin", "X-Custom: a, b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var line []byte
	for i := range h.fields {
		line = h.appendLine(line, i)
	}
	if want := "Vary: Origin\r\nX-Custom: a, b\r\nOther: 4\r\nVary: Origin\r\nX-Custom: a, b\r\n"; string(line) != want {
		t.Errorf("on the wire %q, want %q", line, want)
	}
}

// A Header of a request lies in the connection's buffer, which a change mustn't touch.
func TestFieldInBorrowedHeader(t *testing.T) {
	received := []byte("Vary: 1\r\nrest")
	h := Header{buf: received, borrowed: true}
	h.fields = append(h.fields, field{nameLen: 4, id: fieldVary, value: 6, valueLen: 1})
	vary := NewField("Vary", "Origin")
	h.SetField(&vary)
	if h.Get("Vary") != "Origin" || h.Len() != 1 || string(received) != "Vary: 1\r\nrest" {
		t.Errorf("%q in %d fields, the buffer is %q", h.Get("Vary"), h.Len(), received)
	}
}

func TestNewFieldPanics(t *testing.T) {
	for _, test := range []struct{ name, value string }{
		{"", "a"}, {"a b", "a"}, {"a:", "a"}, {"a\r\nb", "a"}, {string(make([]byte, 1<<16)), "a"},
		{"a", "b\r\nSet-Cookie: c"}, {"a", "\x00"}, {"a", "\x7f"},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%.20q: %q is a field", test.name, test.value)
				}
			}()
			NewField(test.name, test.value)
		}()
	}
}

func BenchmarkSetField(b *testing.B) {
	for _, name := range []string{"Vary", "X-Custom"} {
		f := NewField(name, "some value")
		b.Run(name+"/prepared", func(b *testing.B) {
			b.ReportAllocs()
			var h Header
			for b.Loop() {
				h.Reset()
				h.SetField(&f)
			}
		})
		b.Run(name+"/text", func(b *testing.B) {
			b.ReportAllocs()
			var h Header
			for b.Loop() {
				h.Reset()
				h.Set(name, "some value")
			}
		})
	}
}
