package bind_test

import (
	"encoding/json"
	"math/big"
	"net/url"
	"testing"

	"github.com/filohttp/filo/bind"
)

// Rules for numbers hold for types that decode themselves from a number or a text, however large the number is.
func TestRulesOfOtherNumbers(t *testing.T) {
	type numbers struct {
		Qty json.Number `json:"qty" query:"qty" maximum:"100"`
		Big *big.Int    `json:"big" query:"big" maximum:"100"`
		Dec big.Float   `json:"dec" query:"dec" maximum:"100"`
	}
	for _, c := range []struct {
		name, json, query string
		refused           bool
	}{
		{"qty", `100`, `100`, false}, {"qty", `"100"`, `1e2`, false}, {"qty", `101`, `101`, true}, {"qty", `"101"`, `1e400`, true}, {"qty", `1e400`, `1e3`, true},
		{"big", `100`, `100`, false}, {"big", `101`, `101`, true}, {"dec", `"99.5"`, `99.5`, false}, {"dec", `"100.5"`, `100.5`, true},
	} {
		_, err := bound[numbers](t, postJSON(`{"`+c.name+`":`+c.json+`}`), bind.JSON)
		want := map[bool]string{true: "422 body /" + c.name + ": must be at most 100"}[c.refused]
		if got := inShort(t, err); got != want {
			t.Errorf("JSON %s %s: got %s, want %s", c.name, c.json, got, want)
		}
		_, err = bound[numbers](t, get("/?"+c.name+"="+url.QueryEscape(c.query)), bind.Query)
		want = map[bool]string{true: "400 query " + c.name + ": must be at most 100"}[c.refused]
		if got := inShort(t, err); got != want {
			t.Errorf("query %s %s: got %s, want %s", c.name, c.query, got, want)
		}
	}
}
