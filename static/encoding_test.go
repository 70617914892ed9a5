package static

import (
	"testing"

	"github.com/filohttp/filo"
)

func TestChoose(t *testing.T) {
	zstd, br, gzip := &encodings[0], &encodings[1], &encodings[2]
	all := []*encoding{zstd, br, gzip}
	cases := []struct {
		why   string
		there []*encoding
		value string // the value of Accept-Encoding; "-" means no such field
		want  string // "" means the plain file, "-" none
	}{
		{"who says nothing gets the plain file", all, "-", ""},
		{"who has an empty field takes nothing else", all, "", ""},
		{"the first of those that are liked alike", all, "gzip, deflate, br, zstd", "zstd"},
		{"of those that are there", []*encoding{br, gzip}, "gzip, deflate, br, zstd", "br"},
		{"none is there", nil, "gzip", ""},
		{"the one that is liked best", all, "zstd;q=0.5, br;q=0.7, gzip;q=0.6", "br"},
		{"by the third digit", all, "zstd;q=0.998, gzip;q=0.999", "gzip"},
		{"a weight of 0 refuses", all, "zstd;q=0, br;q=0.000, gzip", "gzip"},
		{"any is the first", all, "*", "zstd"},
		{"any that isn't named", all, "zstd;q=0, *;q=0.1", "br"},
		{"codings have no case", all, "GZip", "gzip"},
		{"x-gzip is gzip (RFC 9110, section 8.4.1.3)", all, "x-gzip", "gzip"},
		{"plain may be liked better", all, "gzip;q=0.5, identity", ""},
		{"as much isn't better", all, "gzip, identity", "gzip"},
		{"plain is taken unless it is refused", all, "deflate", ""},
		{"refused by its name", all, "deflate, identity;q=0", "-"},
		{"refused by any", all, "deflate, *;q=0", "-"},
		{"but for its name", all, "deflate, *;q=0, identity;q=0.1", ""},
		{"refused, and another one there", all, "identity;q=0, gzip;q=0.1", "gzip"},
		{"a malformed weight is 0", all, "gzip;q=2, br;q=0.1234, zstd;p=1", ""},
		{"white space", all, " gzip ; q=0.5 ,\tbr;q=0.4", "gzip"},
	}
	for _, tc := range cases {
		e := &entry{representations: []*representation{{}}}
		for _, encoding := range tc.there {
			e.representations = append(e.representations, &representation{encoding: encoding})
		}
		var h filo.Header
		if tc.value != "-" {
			h.Add("Accept-Encoding", tc.value)
		}
		got := "-"
		if r := e.choose(&h); r != nil {
			if got = ""; r.encoding != nil {
				got = r.encoding.name
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q: got %q, want %q", tc.why, tc.value, got, tc.want)
		}
	}
}

func FuzzChoose(f *testing.F) {
	f.Add("gzip;q=0.5, br, *;q=0")
	f.Add(",,;=,identity;q=")
	f.Fuzz(func(t *testing.T, value string) {
		e := &entry{representations: []*representation{{}, {encoding: &encodings[0]}, {encoding: &encodings[2]}}}
		var h filo.Header
		h.Add("Accept-Encoding", value)
		r := e.choose(&h)
		if r == nil {
			return
		}
		if r.encoding == nil {
			return
		}
		if accepted := acceptedCodings(&h); accepted.Weight(r.encoding.number) == 0 {
			t.Fatalf("%q: %s isn't wanted", value, r.encoding.name)
		}
	})
}
