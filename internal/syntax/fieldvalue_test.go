package syntax

import "testing"

func TestWeight(t *testing.T) {
	for weight, want := range map[string]int{
		"": 1000, "q=1": 1000, "Q=0.5": 500, "q=0.123": 123, "q=0.": 0, "q=1.000": 1000, "q=0": 0,
		"q=1.001": 0, "q=2": 0, "q=0.1234": 0, "q=": 0, "q": 0, "p=1": 0, "q=0,5": 0, "q=0.x": 0, "q=-1": 0, "q =1": 0,
	} {
		if got := Weight([]byte(weight)); got != want {
			t.Errorf("%q: %d, want %d", weight, got, want)
		}
	}
}

// Lists are compared element by element (RFC 9110, section 5.6.1).
func TestListHasToken(t *testing.T) {
	for _, test := range []struct {
		list, token string
		want        bool
	}{
		{"close", "close", true}, {"Close", "close", true}, {"a, close", "close", true}, {"close,a", "close", true},
		{"a ,\tclose\t, b", "close", true}, {",,close,", "close", true}, {"", "close", false}, {",", "close", false},
		{"closed", "close", false}, {"not-close", "close", false}, {"clo se", "close", false}, {"\"close\"", "close", false},
		{"close;q=1", "close", false}, {"close", "", false},
	} {
		if got := ListHasToken([]byte(test.list), test.token); got != test.want {
			t.Errorf("%q has %q: %t", test.list, test.token, got)
		}
	}
}

// "The "+json" suffix" names media types whose content is JSON (RFC 6839, section 3.1). The first semicolon separates a type from its
// parameters, even if a malformed type has a quote before the semicolon.
func TestMediaType(t *testing.T) {
	for contentType, want := range map[string]struct {
		mediaType string
		json      bool
	}{
		"application/json":                           {"application/json", true},
		"Application/JSON ;charset=utf-8":            {"Application/JSON", true},
		"\tapplication/problem+json; a=\"b;c\"":      {"application/problem+json", true},
		"application/vnd.api+JSON":                   {"application/vnd.api+JSON", true},
		"text/plain;type=application/json":           {"text/plain", false},
		`text/plain";"+json`:                         {`text/plain"`, false},
		"application/jsonp":                          {"application/jsonp", false},
		"application/x-ndjson":                       {"application/x-ndjson", false},
		"text/json":                                  {"text/json", false},
		"+json":                                      {"+json", false},
		"application/x-www-form-urlencoded; q=\";\"": {"application/x-www-form-urlencoded", false},
		";": {"", false},
		"":  {"", false},
	} {
		if got, json := MediaType([]byte(contentType)), IsJSON([]byte(contentType)); string(got) != want.mediaType || json != want.json {
			t.Errorf("%q: %q, JSON: %t", contentType, got, json)
		}
	}
}
