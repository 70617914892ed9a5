package syntax

import "testing"

// RFC 9110, section 12.5.3.
func TestCodings(t *testing.T) {
	for _, c := range []struct {
		values              []string
		gzip, brotli, plain int
		plainOK             bool
	}{
		{nil, 0, 0, 0, true},
		{[]string{"gzip"}, 1000, 0, 0, true},
		{[]string{"x-GZIP;q=0.5, br;q=0.25"}, 500, 250, 0, true},
		{[]string{"gzip;q=0.5", "gzip, br"}, 500, 1000, 0, true},
		{[]string{"*"}, 1000, 1000, 0, true},
		{[]string{"*;q=0"}, 0, 0, 0, false},
		{[]string{"*;q=0, identity"}, 0, 0, 1000, true},
		{[]string{"gzip;q=0, *"}, 0, 1000, 0, true},
		{[]string{"identity;q=0"}, 0, 0, 0, false},
		{[]string{"identity;q=0.3, br"}, 0, 1000, 300, true},
		{[]string{" , ;q=1,compress, gzip ; q=0.7 "}, 700, 0, 0, true},
		{[]string{"gzip;q=2"}, 0, 0, 0, true},
	} {
		var got Codings
		for _, value := range c.values {
			got.Read([]byte(value))
		}
		plain, ok := got.Plain()
		if got.Weight(Gzip) != c.gzip || got.Weight(Brotli) != c.brotli || plain != c.plain || ok != c.plainOK {
			t.Errorf("%q: gzip %d, br %d, identity %d %t", c.values, got.Weight(Gzip), got.Weight(Brotli), plain, ok)
		}
	}
}
