package libfuzzer

import (
	"reflect"
	"testing"
)

func TestValues(t *testing.T) {
	for _, values := range [][]any{
		{[]byte("text")},
		{""},
		{"a", []byte("bc"), "d"},
		{uint16(65535), "a", true, int64(-7), "b", false, uint8(9), float32(1.5), -2.25},
	} {
		var types []reflect.Type
		for _, value := range values {
			types = append(types, reflect.TypeOf(value))
		}
		if got := decode(encode(values), types); !reflect.DeepEqual(got, values) {
			t.Errorf("%#v came back as %#v", values, got)
		}
	}
}

// A single text argument is libFuzzer's bytes without a change. Any bytes can be decoded to arguments.
func TestDecode(t *testing.T) {
	text, number := reflect.TypeFor[string](), reflect.TypeFor[uint32]()
	for _, test := range []struct {
		data  string
		types []reflect.Type
		want  []any
	}{
		{"abc", []reflect.Type{text}, []any{"abc"}},
		{"", []reflect.Type{number, text, text}, []any{uint32(0), "", ""}},
		{"\x01\x02", []reflect.Type{number}, []any{uint32(0x0201)}},
		{"\x02\x00abc", []reflect.Type{text, text}, []any{"ab", "c"}},
		{"\xff\xffabc", []reflect.Type{text, text}, []any{"abc", ""}},
		{"\x02", []reflect.Type{text, text}, []any{"", ""}},
	} {
		if got := decode([]byte(test.data), test.types); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q is %#v, want %#v", test.data, got, test.want)
		}
	}
}
