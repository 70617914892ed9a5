package middleware

import (
	"reflect"
	"testing"
)

// A response that was kept as bytes is the same when it is read, and no part of it is one.
func TestRecordedBytes(t *testing.T) {
	for why, r := range map[string]*recorded{
		"all of it":      {status: 201, fields: []recordedField{{"A", "b"}, {"A", ""}, {"Long", string(make([]byte, 300))}}, body: []byte("body")},
		"no body":        {status: 204, fields: []recordedField{{"A", "b"}}, body: []byte{}},
		"nothing at all": {status: 599, body: []byte{}},
	} {
		kept := r.appendTo(nil)
		if got, err := parseRecorded(kept); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s: %+v, %v, want %+v", why, got, err, r)
		}
		for i := range len(kept) - len(r.body) {
			if got, err := parseRecorded(kept[:i]); err == nil {
				t.Errorf("%s: %d of %d bytes are %+v", why, i, len(kept), got)
			}
		}
	}
}

func BenchmarkRecordedBytes(b *testing.B) {
	b.ReportAllocs()
	kept := (&recorded{status: 200, fields: []recordedField{{"Content-Type", "text/plain"}, {"Location", "/a"}}, body: make([]byte, 1000)}).appendTo(nil)
	for range b.N {
		if _, err := parseRecorded(kept); err != nil {
			b.Fatal(err)
		}
	}
}
