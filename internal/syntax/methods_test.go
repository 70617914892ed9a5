package syntax

import "testing"

// The properties of the methods are those of RFC 9110, section 9.2, RFC 5789 and RFC 10008. Methods are case-sensitive, and unknown methods have none
// of the properties.
func TestMethods(t *testing.T) {
	for method, want := range map[string][3]bool{ // retrieves, safe, idempotent
		"GET": {true, true, true}, "HEAD": {true, true, true}, "QUERY": {true, true, true},
		"OPTIONS": {false, true, true}, "TRACE": {false, true, true},
		"PUT": {false, false, true}, "DELETE": {false, false, true},
		"POST": {}, "PATCH": {}, "CONNECT": {}, "get": {}, "Query": {}, "SEARCH": {}, "": {},
	} {
		if got := [3]bool{Retrieves(method), IsSafe(method), IsIdempotent([]byte(method))}; got != want {
			t.Errorf("%q: %v, want %v", method, got, want)
		}
	}
	for _, method := range Methods {
		if len(method+" /") < 5 {
			t.Errorf("%q: the first bytes of a TLS record must tell it", method)
		}
	}
}
