package bind_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

type order struct {
	Shop  int      `path:"shop"`
	Dry   bool     `query:"dry"`
	Key   string   `header:"Idempotency-Key"`
	Note  string   `json:"note" form:"note"`
	Items []line   `json:"items"`
	Both  int      `json:"both" query:"both"`
	Tags  []string `form:"tag"`
}

// bindAll returns the struct and the error of All for a request to /shops/{shop}, which v's fields were set before.
func bindAll(t *testing.T, request string, v order, options ...bind.Option) (order, error) {
	t.Helper()
	var err error
	r := router.New()
	r.Handle("/shops/{shop}", func(c *filo.Ctx) error {
		err = bind.All(c, &v, options...)
		return nil
	})
	servertest.New(t, r.Serve).Raw(t, request)
	return v, err
}

func orderRequest(query, contentType, body string) string {
	request := strings.Replace(post(contentType, body), "/?q=1", "/shops/7"+query, 1)
	return strings.Replace(request, "Host:", "Idempotency-Key: k\r\nHost:", 1)
}

// All takes the body by its type, and each field from where its tag says.
func TestAll(t *testing.T) {
	strict := []bind.Option{bind.Strict()}
	for _, c := range []struct {
		name, request string
		before        order
		options       []bind.Option
		want, fails   string
	}{
		{"JSON", orderRequest("?dry=1", "application/json", `{"note":"n","items":[{"n":1}]}`), order{}, strict, "{7 true k n [{ 1}] 0 []}", ""},
		{"a form", orderRequest("", "application/x-www-form-urlencoded", "note=n&tag=x"), order{}, strict, "{7 false k n [] 0 [x]}", ""},
		{"multipart", strings.Replace(multipartRequest("note=n", "tag=x"), "/?q=1", "/shops/7", 1), order{}, strict, "{7 false  n [] 0 [x]}", ""},
		{"no body", get("/shops/7?dry=1"), order{}, strict, "{7 true   [] 0 []}", ""},
		{"an empty chunked body", "POST /shops/7 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", order{}, strict, "{7 false   [] 0 []}", ""},
		{"the query after the body", orderRequest("?both=2", "application/json", `{"both":1}`), order{}, nil, "{7 false k  [] 2 []}", ""},
		{"others are not for the body", orderRequest("", "application/json", `{"Shop":8,"shop":9,"Dry":true,"key":"stolen","Tags":["t"]}`), order{}, nil, "{7 false k  [] 0 [t]}", ""},
		{"and keep their defaults", orderRequest("", "application/json", `{"Dry":false}`), order{Dry: true}, nil, "{7 true k  [] 0 []}", ""},
		{"strict says so", orderRequest("", "application/json", `{"Shop":8,"note":""}`), order{}, strict, "", "422 body /Shop: isn't known here"},
		{"another type", orderRequest("", "text/csv", "a"), order{}, nil, "", "415 header Content-Type: must be application/json, application/x-www-form-urlencoded or multipart/form-data"},
		{"malformed", orderRequest("?dry=x", "application/json", "{"), order{}, nil, "", "400 body: line 1, column 1: unexpected end of JSON input"},
		{"errors of all sources", strings.Replace(orderRequest("?dry=x&both=y", "application/json", `{"note":1}`), "/7", "/seven", 1), order{}, nil, "",
			"400 body /note: must be a string; query dry: must be true or false; " +
				"query both: must be an integer from -9223372036854775808 to 9223372036854775807; " +
				"path shop: must be an integer from -9223372036854775808 to 9223372036854775807"},
	} {
		got, err := bindAll(t, c.request, c.before, c.options...)
		if fails := inShort(t, err); fails != c.fails || err == nil && fmt.Sprint(got) != c.want {
			t.Errorf("%s:\n got %v %s\nwant %s %s", c.name, got, fails, c.want, c.fails)
		}
	}
}

type Inner struct {
	Secret string `header:"X-Secret"`
}

// What a body sets for another source is taken back even where the body made the struct that it is in.
func TestAllTakesBackFromEmbeddedPointers(t *testing.T) {
	type outer struct {
		*Inner
		Name string `json:"name"`
	}
	got, err := bound[outer](t, postJSON(`{"Secret":"x","name":"n"}`), bind.All)
	if err != nil || got.Name != "n" || got.Inner != nil && got.Secret != "" {
		t.Errorf("%v %+v %+v", err, got, got.Inner)
	}
}

// What a default refers to isn't changed in place either.
func TestAllKeepsWhatDefaultsReferTo(t *testing.T) {
	type filter struct {
		Size *int     `query:"size"`
		Tags []string `query:"tag"`
	}
	v := filter{ptr(20), []string{"a"}}
	if err := boundTo(t, postJSON(`{"Size":5,"Tags":["b"]}`), &v, bind.All); err != nil || *v.Size != 20 || v.Tags[0] != "a" {
		t.Errorf("%v, %d, %v", err, *v.Size, v.Tags)
	}
}

type validatorFunc func(v any) error

func (f validatorFunc) Validate(v any) error { return f(v) }

// What a validator says becomes the answer, with places in the request for Go fields.
func TestValidator(t *testing.T) {
	request := orderRequest("?dry=1", "application/json", `{"note":"n","items":[{"n":1}]}`)
	teapot := filo.Error(409, "no coffee")
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"nothing", nil, ""},
		{"any other error", errors.New("the database is away"), "the database is away"},
		{"an HTTPError", fmt.Errorf("wrapped: %w", teapot), "wrapped: 409 Conflict: no coffee"},
		{"fields", &bind.Error{Fields: []bind.FieldError{
			{Field: "Shop", Detail: "a"}, {Field: "Dry", Detail: "b"}, {Field: "Key", Detail: "c"}, {Field: "Note", Detail: "d"},
			{Field: "Items[0].SKU", Detail: "e"}, {Field: "Both", Detail: "f"}, {Field: "Tags[1]", Detail: "g"},
			{In: "query", Name: "x", Detail: "h"}, {Field: "Nothing.There", Detail: "i"},
		}}, "422 path shop: a; query dry: b; header Idempotency-Key: c; body /note: d; body /items/0/sku: e; query both: f; " +
			"body /Tags/1: g; query x: h; body /Nothing/There: i"},
		{"a status", &bind.Error{Status: 409, Fields: []bind.FieldError{{Field: "Note", Detail: "is taken"}}}, "409 body /note: is taken"},
	} {
		var seen any
		_, err := bindAll(t, request, order{}, bind.Strict(), bind.With(validatorFunc(func(v any) error { seen = v; return c.err })))
		if got := inShort(t, err); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if v, ok := seen.(*order); !ok || v.Note != "n" {
			t.Errorf("%s: the validator got %v", c.name, seen)
		}
	}
}

// What wasn't bound isn't validated.
func TestValidatorIsLast(t *testing.T) {
	_, err := bound[order](t, postJSON(`{"note":1}`), bind.JSON, bind.With(validatorFunc(func(any) error {
		t.Error("called")
		return nil
	})))
	if got := inShort(t, err); got != "422 body /note: must be a string" {
		t.Error(got)
	}
}

// Go fields lead to places through everything that structs are made of.
func TestLocate(t *testing.T) {
	type nested struct {
		Paging
		base
		Outer struct {
			ByName map[string]*line    `json:"by/name"`
			Grid   [][]*line           `json:"grid"`
			Any    any                 `json:"any"`
			Maps   map[string][]string `json:"-"`
		} `json:"o"`
	}
	for field, want := range map[string]string{
		"Paging.Page":              "query page",
		"Page":                     "query page",
		"base.ID":                  "body /id",
		"base.Note":                "body /Note",
		"Outer":                    "body /o",
		"Outer.ByName[a.b].SKU":    "body /o/by~1name/a.b/sku",
		"Outer.ByName[x[1]].N":     "body /o/by~1name/x[1]/n",
		"Outer.Grid[1][2].SKU":     "body /o/grid/1/2/sku",
		"Outer.Any.Deep[0].Deeper": "body /o/any/Deep/0/Deeper",
		"Outer.Maps[k][3]":         "body /o/Maps/k/3",
		"Outer.ByName[":            "body /o/by~1name/",
		"..":                       "body //",
	} {
		_, err := bound[nested](t, postJSON("{}"), bind.All, bind.With(validatorFunc(func(any) error {
			return &bind.Error{Fields: []bind.FieldError{{Field: field, Detail: "x"}}}
		})))
		if got := inShort(t, err); got != "422 "+want+": x" {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
	_, err := bound[nested](t, get("/"), bind.Query, bind.With(validatorFunc(func(any) error {
		return &bind.Error{Fields: []bind.FieldError{{Field: "Outer.Any", Detail: "x"}}}
	})))
	if got := inShort(t, err); got != "422 Outer.Any: x" {
		t.Errorf("without a body: %s", got)
	}
}
