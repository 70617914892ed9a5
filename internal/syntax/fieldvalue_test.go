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
