package bind_test

import (
	"errors"
	"fmt"
	"mime/multipart"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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

// bindAll returns the struct and the error of All for a request to /shops/{shop}. v has the values from before the call.
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

// All decodes the body according to its media type, and each field from the source that its tag names.
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
		{"others are not for the body", orderRequest("", "application/json", `{"Shop":8,"shop":9,"Dry":true,"key":"stolen","Tags":["t"]}`), order{}, nil, "{7 false k  [] 0 []}", ""},
		{"and keep their defaults", orderRequest("", "application/json", `{"Dry":false}`), order{Dry: true}, nil, "{7 true k  [] 0 []}", ""},
		{"strict says so", orderRequest("", "application/json", `{"Shop":8,"note":""}`), order{}, strict, "", "422 body /Shop: isn't known here"},
		{"another type", orderRequest("", "text/csv", "a"), order{}, nil, "", "415 header Content-Type: must be application/json, application/x-www-form-urlencoded or multipart/form-data"},
		{"malformed", orderRequest("?dry=x", "application/json", "{"), order{}, nil, "", "400 body: line 1, column 1: unexpected end of JSON input"},
		{"errors of all sources", strings.Replace(orderRequest("?dry=x&both=y", "application/json", `{"note":1}`), "/7", "/seven", 1), order{}, nil, "",
			"400 body /note: must be a string; query dry: must be true or false; " +
				"query both: must be an integer; " +
				"path shop: must be an integer"},
	} {
		got, err := bindAll(t, c.request, c.before, c.options...)
		if fails := inShort(t, err); fails != c.fails || err == nil && fmt.Sprint(got) != c.want {
			t.Errorf("%s:\n got %v %s\nwant %s %s", c.name, got, fails, c.want, c.fails)
		}
	}
}

// elsewhere has a field of each kind that no JSON body fills.
type elsewhere struct {
	Name   string                  `json:"name"`
	Path   string                  `path:"shop"`
	Query  *int                    `query:"q"`
	Header string                  `header:"X-A"`
	Cookie string                  `cookie:"c"`
	Form   []string                `form:"f"`
	File   *multipart.FileHeader   `form:"file"`
	Files  []*multipart.FileHeader `form:"files"`
	Both   *multipart.FileHeader   `json:"both" form:"both"`
	Bare   *multipart.FileHeader
}

// A JSON body fills no field that is for another source: the field keeps its previous value. This holds for JSON and for All, and for a
// target that is a pointer to a pointer.
func TestJSONFillsNoOtherSource(t *testing.T) {
	const file = `{"Filename":"../x","Size":3}`
	values := map[string]string{"Path": `"8"`, "Query": "8", "Header": `"8"`, "Cookie": `"8"`, "Form": `["8"]`, "File": file, "Files": "[" + file + "]",
		"both": file, "Bare": file}
	all := func(c *filo.Ctx, v any, options ...bind.Option) error {
		before := *v.(*elsewhere)
		err := bind.All(c, v, options...)
		v.(*elsewhere).Path, v.(*elsewhere).Query = before.Path, before.Query // All has bound these from the request
		return err
	}
	pointer := func(c *filo.Ctx, v any, options ...bind.Option) error {
		p := v.(*elsewhere)
		return bind.JSON(c, &p, options...)
	}
	for name, bindTo := range map[string]func(*filo.Ctx, any, ...bind.Option) error{"JSON": bind.JSON, "All": all, "JSON to a pointer": pointer} {
		for member, value := range values {
			for _, written := range []string{member, strings.ToLower(member)} {
				for _, strict := range []bool{false, true} {
					var options []bind.Option
					want := ""
					if strict {
						options, want = []bind.Option{bind.Strict()}, "422 body /"+written+": isn't known here"
					}
					query, known := 7, &multipart.FileHeader{Filename: "known"}
					v := elsewhere{"", "7", &query, "7", "7", []string{"7"}, known, []*multipart.FileHeader{known}, known, known}
					before := v
					before.Name = "n"
					err := boundTo(t, postJSON(fmt.Sprintf(`{"name":"n",%q:%s}`, written, value)), &v, bindTo, options...)
					if got := inShort(t, err); got != want {
						t.Errorf("%s, %s: %s, want %s", name, written, got, want)
					}
					if !reflect.DeepEqual(v, before) || known.Filename != "known" || query != 7 {
						t.Errorf("%s, %s:\n got %+v\nwant %+v", name, written, v, before)
					}
				}
			}
		}
	}
	// Nor does it fill such a field of a struct that bind itself makes for a nil pointer.
	var made *elsewhere
	if err := boundTo(t, postJSON(`{"name":"n","Path":"8","File":`+file+`}`), &made, bind.JSON); err != nil || made.Name != "n" || made.Path != "" || made.File != nil {
		t.Errorf("%v, %+v", err, made)
	}
}

// A struct that only forms can fill refuses JSON, and a missing upload is reported as missing in the form.
func TestJSONForms(t *testing.T) {
	type upload struct {
		Shop string                `path:"shop"`
		File *multipart.FileHeader `form:"file" required:"true"`
	}
	type text struct {
		Name string `form:"name"`
	}
	const forged = `{"File":{"Filename":"../x","Size":3}}`
	if _, err := bound[upload](t, postJSON(forged), bind.All); inShort(t, err) != "415 header Content-Type: must be multipart/form-data" {
		t.Error(inShort(t, err))
	}
	if _, err := bound[text](t, postJSON(`{"Name":"n"}`), bind.All); inShort(t, err) != "415 header Content-Type: must be application/x-www-form-urlencoded or multipart/form-data" {
		t.Error(inShort(t, err))
	}
	if _, err := bound[upload](t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", bind.All); inShort(t, err) != "422 form file: is required" {
		t.Error(inShort(t, err))
	}
	if _, err := bound[text](t, postJSON(`{"Name":"n"}`), bind.JSON); err == nil || !strings.Contains(err.Error(), "nothing would be bound") {
		t.Error(err)
	}
	type tree struct {
		Name     string
		Children []tree
		File     *multipart.FileHeader
	}
	for _, v := range []any{new(tree), new([]upload), new(map[string]*multipart.FileHeader), new(struct{ In upload }), new(struct{ Files []**multipart.FileHeader })} {
		if err := boundTo(t, postJSON(`{}`), v, bind.JSON); err == nil || !strings.Contains(err.Error(), "files come in forms only") {
			t.Errorf("%T: %v", v, err)
		}
	}
	type lists []lists // a recursive type
	if _, err := bound[lists](t, postJSON(`[[],[[]]]`), bind.JSON); err != nil {
		t.Error(err)
	}
}

type Inner struct {
	Secret string `header:"X-Secret"`
}

// If a body sets a field that is for another source, the field is cleared, even in an embedded struct that was made for the body.
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

// A JSON body for another source's field doesn't modify the value that the field's default points to.
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

// A validator's error becomes the answer, and the Go fields that it names become places in the request.
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

// The answer lists every wrong field and every missing one: the validator checks the bound fields, even if other fields couldn't be
// bound.
func TestValidatorBesidesErrors(t *testing.T) {
	type customer struct {
		Name string    `json:"name"`
		Born time.Time `json:"born"`
		Age  int8      `json:"age"`
		Home line      `json:"home"`
		Even even      `json:"even"`
		Dry  bool      `json:"-" query:"q"`
	}
	required := validatorFunc(func(v any) error {
		c := v.(*customer)
		var fields []bind.FieldError
		for name, missing := range map[string]bool{"Name": c.Name == "", "Born": c.Born.IsZero(), "Age": c.Age == 0, "Home.SKU": c.Home.SKU == "",
			"Even": c.Even == 0, "Dry": !c.Dry} {
			if missing {
				fields = append(fields, bind.FieldError{Field: name, Detail: "is required"})
			}
		}
		if fields == nil {
			return nil
		}
		slices.SortFunc(fields, func(a, b bind.FieldError) int { return strings.Compare(a.Field, b.Field) })
		return &bind.Error{Status: 409, Fields: fields}
	})
	const rest = `,"even":2,"home":{"sku":"x"}`
	for _, c := range []struct {
		name, body string
		options    []bind.Option
		want       string
	}{
		{"nothing is wrong", `{"name":"n","born":"2000-01-02T00:00:00Z","age":1` + rest + "}", nil, ""},
		{"the validator's alone have its status", `{"name":"n","age":1` + rest + "}", nil, "409 body /born: is required"},
		{"a wrong type and what is missing", `{"age":"x"` + rest + "}", nil,
			"422 body /age: must be an integer from -128 to 127; body /born: is required; body /name: is required"},
		{"what is behind a value at which decoding stops", `{"born":"yesterday","name":"n","age":1` + rest + "}", nil,
			"422 body /born: " + "must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z"},
		{"a value of a type's own", `{"even":1,"home":{"sku":"x"},"name":"n"}`, nil, "422 body /even: must be even; body /age: is required; body /born: is required"},
		{"an object around a field", `{"home":3,"even":2,"name":"n","age":1}`, nil, "422 body /home: must be an object; body /born: is required"},
		{"names in another case", `{"AGE":"x","name":"n","born":"2000-01-02T00:00:00Z"` + rest + "}", nil, "422 body /AGE: must be an integer from -128 to 127"},
		{"strict", `{"name":"n","born":"2000-01-02T00:00:00Z","old":1` + rest + "}", []bind.Option{bind.Strict()},
			"422 body /old: isn't known here; body /age: is required"},
		{"malformed", `{"age":"x"`, nil, "400 body: line 1, column 10: unexpected end of JSON input"},
		{"too large", `{"age":"x","name":"` + strings.Repeat("n", 256<<10) + `"}`, nil, "422 body: line 1, column 10: must be an integer from -128 to 127"},
	} {
		_, err := bound[customer](t, postJSON(c.body), bind.All, append(c.options, bind.With(required))...)
		if got := inShort(t, err); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	// A wrong parameter is listed, too.
	_, err := bound[customer](t, strings.Replace(postJSON(`{"age":1`+rest+"}"), "q=1", "q=x", 1), bind.All, bind.With(required))
	if got, want := inShort(t, err), "400 query q: must be true or false; body /born: is required; body /name: is required"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	// A validator's error that names no field is dropped, since it may be about values that were never sent.
	_, err = bound[customer](t, postJSON(`{"name":1}`), bind.All, bind.With(validatorFunc(func(any) error { return errors.New("the database is away") })))
	if got := inShort(t, err); got != "422 body /name: must be a string" {
		t.Error(got)
	}
}

// The place of a Go field is found through every kind of type that a struct may contain.
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
	_, err = bound[nested](t, get("/"), bind.All, bind.With(validatorFunc(func(any) error {
		return &bind.Error{Fields: []bind.FieldError{{Field: "Outer.Any", Detail: "x"}}}
	})))
	if got := inShort(t, err); got != "422 body /o/any: x" {
		t.Errorf("of a request that lacks its body: %s", got)
	}
}
