package replay

import (
	"reflect"
	"testing"
)

// Parse decodes the same response that AppendTo has encoded, and fails for truncated bytes.
func TestBytes(t *testing.T) {
	for why, r := range map[string]*Answer{
		"all of it":      {Status: 201, fields: []Field{{"A", "b"}, {"A", ""}, {"Long", string(make([]byte, 300))}}, body: []byte("body")},
		"no body":        {Status: 204, fields: []Field{{"A", "b"}}, body: []byte{}},
		"nothing at all": {Status: 599, body: []byte{}},
	} {
		kept := r.AppendTo(nil)
		if got, err := Parse(kept); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s: %+v, %v, want %+v", why, got, err, r)
		}
		for i := range len(kept) - len(r.body) {
			if got, err := Parse(kept[:i]); err == nil {
				t.Errorf("%s: %d of %d bytes are %+v", why, i, len(kept), got)
			}
		}
	}
}

func BenchmarkBytes(b *testing.B) {
	b.ReportAllocs()
	kept := (&Answer{Status: 200, fields: []Field{{"Content-Type", "text/plain"}, {"Location", "/a"}}, body: make([]byte, 1000)}).AppendTo(nil)
	for range b.N {
		if _, err := Parse(kept); err != nil {
			b.Fatal(err)
		}
	}
}
