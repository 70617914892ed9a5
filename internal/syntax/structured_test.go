package syntax

import (
	"fmt"
	"testing"
)

// Each member of a dictionary is returned with its value, if that is a number or a boolean (RFC 9651, section 3.2).
func TestDictionary(t *testing.T) {
	for _, test := range []struct{ value, want string }{
		{"", ""}, {"  ", ""}, {"a", "a=?1 "}, {"a=1, b ,\tc=-2.5;x=y", "a=1 b=?1 c=-2.5 "}, {"*a=?0, b.c_-=x/y", "*a=?0 b.c_-= "},
		{`a="x, y\", z", b=(1 "2";p 3);q`, "a= b= "}, {"a=:YQ==:, b=@1, c=%\"d\"", "a= b= c= "},
		{"a=-123456789012345, b=123456789012.125;c=-0.5", "a=-123456789012345 b=123456789012.125 "},
		{"a=1234567890123456", "bad"}, {"a=1-2", "bad"}, {"a=1.2.3", "bad"}, {"a=-", "bad"}, {"a=1.", "bad"}, {"a=-.5", "bad"}, {"a=1.1234", "bad"},
		{"a=1234567890123.5", "bad"}, {"a=@1-2", "bad"}, {"a=1;b=1-2", "bad"}, {"a=(1-2)", "bad"},
		{"a,", "bad"}, {"a=1 b", "bad"}, {"A=1", "bad"}, {"a, =", "a=?1 bad"}, {"=%\"a\"", "bad"}, {"a=", "bad"}, {`a, b="x`, "a=?1 bad"}, {",", "bad"},
	} {
		got := ""
		d := NewDictionary([]byte(test.value))
		for key, item, ok := d.Next(); ok; key, item, ok = d.Next() {
			got += fmt.Sprintf("%s=%s ", key, item)
		}
		if d.Bad() {
			got += "bad"
		}
		if key, _, ok := d.Next(); ok {
			t.Errorf("%q: %q behind the end", test.value, key)
		}
		if got != test.want {
			t.Errorf("%q: %q, want %q", test.value, got, test.want)
		}
	}
}
