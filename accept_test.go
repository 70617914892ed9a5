package filo

import (
	"strings"
	"testing"
)

// The client's Accept decides between problem details in JSON and text, by RFC 9110, section 12.5.1.
func TestPrefersJSON(t *testing.T) {
	for _, test := range []struct {
		rule   string
		accept string // one field per line; "" for none
		want   bool
	}{
		{"without Accept any type will do: text", "", false},
		{"an empty Accept is no preference", " ", false},
		{"*/* is no preference", "*/*", false},
		{"JSON alone", "application/json", true},
		{"problem details alone", "application/problem+json", true},
		{"types are case-insensitive", "Application/JSON", true},
		{"a subtype's range", "application/*", true},
		{"text alone", "text/plain", false},
		{"another text", "text/html", false},
		{"both alike", "application/json, text/plain", false},
		{"by weight", "application/json;q=0.9, text/plain;q=0.8", true},
		{"by weight", "application/json;q=0.8, text/plain;q=0.9", false},
		{"three digits of weight", "application/json;q=0.801, text/plain;q=0.8", true},
		{"the default weight is 1", "text/plain;q=0.999, application/json", true},
		{"a weight's name is case-insensitive", "text/plain;Q=0.5, application/json;Q=0.6", true},
		{"white space around the semicolon", "text/plain ; q=0.5, application/json\t;\tq=0.6", true},
		{"q=0 is not acceptable", "application/json;q=0, text/plain;q=0.001", false},
		{"q=0 is not acceptable", "application/json;q=0", false},
		{"the more specific range goes first", "application/json;q=0.5, */*", false},
		{"the more specific range goes first", "application/*;q=0.5, text/*;q=0.6", false},
		{"the more specific range goes first, whatever its place", "text/plain;q=0.1, text/*, application/*;q=0.2", true},
		{"the more specific range goes first, whatever its place", "text/*, text/plain;q=0.1, application/*;q=0.2", true},
		{"*/* is for what nothing else matches", "*/*;q=0.3, text/plain;q=0.2", true},
		{"*/* is for what nothing else matches", "*/*;q=0.1, text/plain;q=0.2", false},
		{"of two for JSON the better", "application/json;q=0.1, application/problem+json;q=0.9, text/plain;q=0.5", true},
		{"other types don't matter", "text/html, application/xml;q=0.9, image/*", false},
		{"a browser gets text", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", false},
		{"other parameters don't matter", "application/json;charset=utf-8;q=0.6, text/plain;format=flowed;q=0.5", true},
		{"a list over two fields", "text/plain;q=0.5\napplication/json", true},
		{"empty elements", ", ,application/json,,", true},
		{"a malformed weight counts as 0", "application/json;q=x, text/plain;q=0.1", false},
		{"a malformed weight counts as 0", "application/json;q=, text/plain;q=0.1", false},
		{"a weight over 1 is malformed", "application/json;q=2, text/plain;q=0.1", false},
		{"a negative weight is malformed", "application/json;q=-1, text/plain;q=0.1", false},
		{"a weight is a number", "text/plain;q=NaN, application/json;q=0.1", true},
		{"a weight is a number", "text/plain;q=inf, application/json;q=0.1", true},
		{"not what merely begins like a type", "application/jsonx, text/plain;q=0.1", false},
		{"not what merely begins like a type", "application, text/plain;q=0.1", false},
		{"*/json is no range", "*/json, text/plain;q=0.1", false},
	} {
		var h Header
		if test.accept != "" {
			for value := range strings.SplitSeq(test.accept, "\n") {
				h.Add("accept", value)
			}
		}
		if got := prefersJSON(&h, false); got != test.want {
			t.Errorf("%s: %q gives %t", test.rule, test.accept, got)
		}
	}
}
