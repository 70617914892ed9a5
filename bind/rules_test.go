package bind_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo/bind"
)

type ruledItem struct {
	SKU string `json:"sku" pattern:"^[a-z]+$" maxLength:"3"`
}

type ruled struct {
	Name   string         `json:"name" query:"name" minLength:"2" maxLength:"3"`
	Level  int            `json:"level" query:"level" minimum:"1" maximum:"9007199254740993"`
	Share  float64        `json:"share" query:"share" exclusiveMinimum:"0" exclusiveMaximum:"0.5" multipleOf:"0.1"`
	Kind   *string        `json:"kind" query:"kind" enum:"a,b c"`
	Size   uint8          `json:"size" query:"size" enum:"1,2"`
	Tags   []string       `json:"tags" query:"tags" maxItems:"2" uniqueItems:"true" maxLength:"1"`
	IDs    []int          `json:"ids" query:"ids,comma" minItems:"2" minimum:"1"`
	Quoted int            `json:"quoted,string" maximum:"5"`
	Code   string         `json:"code" query:"code" pattern:"^[a-z]{2}$" patternDescription:"two letters"`
	Items  []ruledItem    `json:"items"`
	Wait   time.Duration  `query:"wait" maxLength:"2"`
	At     time.Time      `json:"at" maxLength:"20"`
	Any    map[string]any `json:"any"`
}

func (r *ruled) SetDefaults() { r.Level = -1 }

// The tags that describe a field in OpenAPI documents are enforced for values that were sent, in any source, but not for values that
// weren't sent.
func TestRules(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"name", `ab`, ""}, {"name", `üüü`, ""}, {"name", `a`, "must have at least 2 characters"}, {"name", `abcd`, "must have at most 3 characters"},
		{"level", `1`, ""}, {"level", `9007199254740993`, ""}, {"level", `0`, "must be at least 1"},
		{"level", `9007199254740994`, "must be at most 9007199254740993"}, {"level", `99999999999999999999`, "must be an integer from -9223372036854775808 to 9223372036854775807"},
		{"share", `0.3`, ""}, {"share", `0`, "must be more than 0"}, {"share", `0.5`, "must be less than 0.5"}, {"share", `0.25`, "must be a multiple of 0.1"},
		{"kind", `b c`, ""}, {"kind", `c`, "must be one of: a, b c"}, {"size", `2`, ""}, {"size", `3`, "must be one of: 1, 2"},
		{"code", `ab`, ""}, {"code", `abc`, "must be two letters"},
	} {
		quoted := c.value
		if strings.Trim(c.value, "0123456789.") != "" {
			quoted = `"` + c.value + `"`
		}
		_, err := bound[ruled](t, postJSON(`{"`+c.name+`":`+quoted+`}`), bind.JSON)
		want, wantQuery := "", ""
		if c.want != "" {
			want, wantQuery = "422 body /"+c.name+": "+c.want, "400 query "+c.name+": "+c.want
		}
		if got := inShort(t, err); got != want {
			t.Errorf("JSON %s %s: got %s, want %s", c.name, c.value, got, want)
		}
		_, err = bound[ruled](t, get("/?"+c.name+"="+url.QueryEscape(c.value)), bind.Query)
		if got := inShort(t, err); got != wantQuery {
			t.Errorf("query %s %s: got %s, want %s", c.name, c.value, got, wantQuery)
		}
	}
	for body, want := range map[string]string{
		`{}`: "", `{"kind":null,"tags":null,"ids":null,"name":null}`: "",
		`{"tags":["a","bb","a"]}`:                   "422 body /tags/1: must have at most 1 character; body /tags: must have at most 2 elements; body /tags: must not have anything twice",
		`{"tags":["a","\u0061"]}`:                   "422 body /tags: must not have anything twice",
		`{"ids":[0]}`:                               "422 body /ids/0: must be at least 1; body /ids: must have at least 2 elements",
		`{"ids":[null,1]}`:                          "",
		`{"quoted":"6"}`:                            "422 body /quoted: must be at most 5",
		`{"items":[{},{"sku":"A"},{"sku":"abcd"}]}`: "422 body /items/1/sku: must match ^[a-z]+$; body /items/2/sku: must have at most 3 characters",
		`{"items":[{"sku":1}],"name":"a"}`:          "422 body /items/0/sku: must be a string; body /name: must have at least 2 characters",
		`{"at":"2006-01-02T15:04:05Z"}`:             "", `{"at":"2006-01-02T15:04:05.5Z"}`: "422 body /at: must have at most 20 characters",
		`{"any":{"name":"a"}}`: "",
	} {
		for _, options := range [][]bind.Option{nil, {bind.Strict()}} {
			_, err := bound[ruled](t, postJSON(body), bind.JSON, options...)
			if got := inShort(t, err); got != want {
				t.Errorf("%s:\n got %s\nwant %s", body, got, want)
			}
		}
	}
	for query, want := range map[string]string{
		"": "", "level=": "", "name=": "400 query name: must have at least 2 characters",
		"tags=a&tags=bb&tags=a": "400 query tags: value 2 must have at most 1 character; query tags: must have at most 2 elements; query tags: must not have anything twice",
		"ids=0,x,2":             "400 query ids: value 1 must be at least 1; query ids: value 2 must be an integer", "ids=1": "400 query ids: must have at least 2 elements",
		"wait=1s": "", "wait=10s": "400 query wait: must have at most 2 characters",
	} {
		_, err := bound[ruled](t, get("/?"+query), bind.Query)
		if got := inShort(t, err); got != want {
			t.Errorf("%s:\n got %s\nwant %s", query, got, want)
		}
	}
}

// For a value that breaks a rule, the validator's error is dropped, and the rule's error has the rule's name and parameter.
func TestRulesAndValidator(t *testing.T) {
	validated := bind.With(validatorFunc(func(any) error {
		return &bind.Error{Status: 422, Fields: []bind.FieldError{{Field: "Name", Detail: "a"}, {Field: "Code", Detail: "b"}}}
	}))
	_, err := bound[ruled](t, postJSON(`{"name":"a","code":"xy"}`), bind.JSON, validated)
	if got, want := inShort(t, err), "422 body /name: must have at least 2 characters; body /code: b"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if f := err.(*bind.Error).Fields[0]; f.Code != "minLength" || f.Params["minLength"] != 2 {
		t.Errorf("got %+v", f)
	}
}

// A rule that can't be parsed is a programming mistake.
func TestMistakenRules(t *testing.T) {
	type low struct {
		N int `json:"n" minimum:"low"`
	}
	type text struct {
		N string `query:"n" pattern:"("`
	}
	type length struct {
		In []struct {
			N string `json:"n" maxLength:"-1"`
		} `json:"in"`
	}
	for want, make := range map[string]func(){
		`bind: bind_test.low.N, tag minimum:"low": it must be a number`:            func() { bind.Handler(typedFor[low]) },
		`bind: bind_test.text.N, tag pattern:"(": it must be a regular expression`: func() { bind.Handler(typedFor[text]) },
		`bind: the field N, tag maxLength:"-1": it must be a length`:               func() { bind.Handler(typedFor[length]) },
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}()
			make()
		}()
	}
}
