package bind_test

import (
	"encoding/json"
	"fmt"
	"mime/multipart"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
)

type street struct {
	Name string `json:"name" required:"true"`
	No   *int   `json:"no" required:"true"`
}

type Stamp struct {
	By string `json:"by" required:"true"`
}

type customer struct {
	Stamp
	Name   string            `json:"name" required:"true"`
	Age    int               `json:"age" required:"true"`
	Live   bool              `json:"live" required:"true"`
	Nick   *string           `json:"nick" required:"true"`
	Tags   []string          `json:"tags" required:"true"`
	Raw    json.RawMessage   `json:"raw" required:"true"`
	Note   string            `json:"note" required:"false"`
	Home   street            `json:"home"`
	Work   *street           `json:"work"`
	Others []street          `json:"others"`
	Named  map[string]street `json:"a/b"`
	Next   *customer         `json:"next"`
	At     time.Time         `json:"at"`
}

// A required member may have any value in a JSON document, except null.
func TestRequiredInJSON(t *testing.T) {
	const own = `"by":"","name":"","age":0,"live":false,"nick":"","tags":[],"raw":0`
	for _, c := range []struct{ name, body, want string }{
		{"values that are zero", `{` + own + `}`, ""},
		{"names in another case, as encoding/json takes them", `{"BY":"","Name":"","AGE":0,"live":false,"nick":"","tags":[],"raw":0}`, ""},
		{"escaped names", `{"\u0062y":"","name":"","age":0,"live":false,"nick":"","tags":[],"raw":0}`, ""},
		{"none", `{}`, "422 body /by: is required; body /name: is required; body /age: is required; body /live: is required; " +
			"body /nick: is required; body /tags: is required; body /raw: is required"},
		{"null", `{"by":null,"name":null,"age":null,"live":null,"nick":null,"tags":null,"raw":null}`, "422 body /by: is required; body /name: is required; " +
			"body /age: is required; body /live: is required; body /nick: is required; body /tags: is required; body /raw: is required"},
		{"null beside a value, which is kept", `{` + own + `,"age":7,"age": null}`, ""},
		{"null behind a value, which makes a pointer nil", `{` + own + `,"nick":null}`, "422 body /nick: is required"},
		{"null behind a value, which makes a slice nil", `{` + own + `,"Tags":null}`, "422 body /tags: is required"},
		{"null before a value", `{"nick":null,` + own + `}`, ""},
		{"no document", `null`, "422 body /by: is required; body /name: is required; body /age: is required; body /live: is required; " +
			"body /nick: is required; body /tags: is required; body /raw: is required"},
		{"an array covers its members", `[]`, "422 body: must be an object"},
		{"a wrong value is there", `{` + strings.Replace(own, `"age":0`, `"age":"x"`, 1) + `}`, "422 body /age: must be an integer"},
		{"wrong values and missing ones", `{"by":"","name":1,"age":0,"live":0,"nick":"","home":{"no":"x"}}`,
			"422 body /name: must be a string; body /live: must be true or false; body /home/no: must be an integer; " +
				"body /home/name: is required; body /tags: is required; body /raw: is required"},
		{"what is in an object that isn't there needn't be either", `{` + own + `,"home":null,"work":null,"others":[],"a/b":{}}`, ""},
		{"what is in one that is", `{` + own + `,"home":{},"work":{"no":0},"others":[{"name":"","no":1},{"no":null,"name":""},null],"a/b":{"x/y":{"name":""}}}`,
			"422 body /home/name: is required; body /home/no: is required; body /work/name: is required; " +
				"body /others/1/no: is required; body /a~1b/x~1y/no: is required"},
		{"deep inside", `{` + own + `,"next":{` + own + `,"next":{` + strings.Replace(own, `"age":0,`, "", 1) + `,"home":{"name":"","no":1}}}}`,
			"422 body /next/next/age: is required"},
	} {
		for _, options := range [][]bind.Option{nil, {bind.Strict()}} {
			if options != nil && (strings.Contains(c.body, "AGE") || strings.Count(c.body, `"age":7`) > 0 || strings.HasPrefix(c.name, "null be")) {
				continue // Strict refuses this body
			}
			_, err := bound[customer](t, postJSON(c.body), bind.JSON, options...)
			if got := inShort(t, err); got != c.want {
				t.Errorf("%s, %d options:\n got %s\nwant %s", c.name, len(options), got, c.want)
			}
		}
	}
	_, err := bound[[]*street](t, postJSON(`[{"name":"","no":1},{"name":"x"}]`), bind.JSON)
	if got := inShort(t, err); got != "422 body /1/no: is required" {
		t.Errorf("a list: %s", got)
	}
	_, err = bound[*street](t, postJSON(`{"name":"x"}`), bind.JSON)
	if got := inShort(t, err); got != "422 body /no: is required" {
		t.Errorf("a pointer: %s", got)
	}
}

// A struct may have more required fields than a word has bits.
func TestManyRequired(t *testing.T) {
	var fields []reflect.StructField
	var members []string
	for i := range 200 {
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: reflect.TypeFor[int](),
			Tag: reflect.StructTag(fmt.Sprintf(`json:"f%d" required:"true"`, i))})
		if i != 63 && i != 64 && i != 199 {
			members = append(members, fmt.Sprintf(`"f%d":0`, i))
		}
	}
	v := reflect.New(reflect.StructOf(fields)).Interface()
	err := boundTo(t, postJSON("{"+strings.Join(members, ",")+"}"), v, bind.JSON)
	if got := inShort(t, err); got != "422 body /f63: is required; body /f64: is required; body /f199: is required" {
		t.Error(got)
	}
}

// In text, a value counts as present if its name is there. Only a number, bool, time or duration also needs text that isn't empty.
func TestRequiredInText(t *testing.T) {
	type values struct {
		Text  string        `query:"text" required:"true"`
		N     int           `query:"n" required:"true"`
		Live  *bool         `query:"live" required:"true"`
		Wait  time.Duration `query:"wait" required:"true"`
		Tags  []string      `query:"tag" required:"true"`
		Comma []int         `query:"comma,comma" required:"true"`
		Other string        `query:"other"`
	}
	const all = "text=&n=0&live=0&wait=0s&tag=&comma="
	for query, want := range map[string]string{
		all:                                     "",
		"":                                      "400 query text: is required; query n: is required; query live: is required; query wait: is required; query tag: is required; query comma: is required",
		"text=&n=&live=&wait=&tag=&comma=":      "400 query n: is required; query live: is required; query wait: is required",
		strings.Replace(all, "n=0", "n=x", 1):   "400 query n: must be an integer",
		strings.Replace(all, "n=0", "n=x&", 1):  "400 query n: must be an integer",
		strings.Replace(all, "text=", "t=1", 1): "400 query text: is required",
	} {
		_, err := bound[values](t, get("/?"+query), bind.Query)
		if got := inShort(t, err); got != want {
			t.Errorf("%q:\n got %s\nwant %s", query, got, want)
		}
	}
	_, err := bound[values](t, get("/?"+strings.Replace(all, "n=0", "n=", 1)), bind.Query, bind.Strict())
	if got := inShort(t, err); got != "400 query n: must not be empty" {
		t.Errorf("strict: %s", got)
	}
}

type everywhere struct {
	Shop   int                   `path:"shop" required:"true"`
	Dry    bool                  `query:"dry" required:"true"`
	Key    string                `header:"Idempotency-Key" required:"true"`
	Theme  string                `cookie:"theme" required:"true"`
	Note   string                `json:"note" form:"note" required:"true"`
	Both   int                   `json:"both" query:"both" required:"true"`
	Plain  int                   `required:"true"`
	Avatar *multipart.FileHeader `json:"-" form:"avatar" required:"true"`
}

// One answer lists the missing fields of all sources. A field with several sources is missing only if it is in none of them, and the error
// names the last one.
func TestRequiredFromAll(t *testing.T) {
	const told = "query both: is required"
	for _, c := range []struct {
		name, request, want string
	}{
		{"nothing", get("/"), "400 path shop: is required; query dry: is required; header Idempotency-Key: is required; cookie theme: is required; " +
			"body /note: is required; " + told + "; body /Plain: is required; form avatar: is required"},
		{"JSON has what queries have too", strings.Replace(postJSON(`{"note":"","both":0,"Plain":0}`), "/?q=1", "/?dry=0", 1),
			"400 path shop: is required; header Idempotency-Key: is required; cookie theme: is required; form avatar: is required"},
		{"a form has what is its own", multipartRequest("note=", "avatar@a=b"), "400 path shop: is required; query dry: is required; header Idempotency-Key: is required; " +
			"cookie theme: is required; " + told + "; body /Plain: is required"},
		{"a form that lacks something", post("application/x-www-form-urlencoded", "x=1"), "400 path shop: is required; query dry: is required; header Idempotency-Key: is required; " +
			"cookie theme: is required; form note: is required; " + told + "; body /Plain: is required; form avatar: is required"},
		{"fields and cookies that are empty", get("/?both=0&dry=0", "Idempotency-Key:", "Cookie: a=b; theme="), "400 path shop: is required; body /note: is required; " +
			"body /Plain: is required; form avatar: is required"},
	} {
		_, err := bound[everywhere](t, c.request, bind.All)
		if got := inShort(t, err); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	// A function that reads one source requires only that source's fields.
	for name, bindTo := range map[string]func(*filo.Ctx, any, ...bind.Option) error{
		"query": bind.Query, "path": bind.Path, "header": bind.Header, "cookie": bind.Cookie} {
		_, err := bound[everywhere](t, get("/"), bindTo)
		want := map[string]string{"query": "400 query dry: is required; query both: is required", "path": "400 path shop: is required",
			"header": "400 header Idempotency-Key: is required", "cookie": "400 cookie theme: is required"}[name]
		if got := inShort(t, err); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	_, err := bound[everywhere](t, postJSON("{}"), bind.JSON)
	if got := inShort(t, err); got != "422 body /note: is required; body /both: is required; body /Plain: is required" {
		t.Errorf("JSON: %s", got)
	}
}

// The validator runs even if required fields are missing, and its errors about missing fields are dropped.
func TestRequiredBesidesValidator(t *testing.T) {
	validator := bind.With(validatorFunc(func(v any) error {
		return &bind.Error{Status: 422, Fields: []bind.FieldError{{Field: "Name", Detail: "must be longer"}, {Field: "Home.Name", Detail: "must be longer"}}}
	}))
	type person struct {
		Name string `json:"name" required:"true"`
		Home street `json:"home" required:"true"`
	}
	for body, want := range map[string]string{
		`{}`:                                    "422 body /name: is required; body /home: is required",
		`{"name":"","home":{"no":1}}`:           "422 body /home/name: is required; body /name: must be longer",
		`{"name":"","home":{"name":"","no":1}}`: "422 body /name: must be longer; body /home/name: must be longer",
	} {
		_, err := bound[person](t, postJSON(body), bind.JSON, validator)
		if got := inShort(t, err); got != want {
			t.Errorf("%s:\n got %s\nwant %s", body, got, want)
		}
	}
}

// A tag required with another value than "true" is the programmer's mistake, even deep inside of a type.
func TestRequiredMistakes(t *testing.T) {
	type inner struct {
		N int `json:"n" query:"n" required:"yes"`
	}
	type outer struct {
		Inner []map[string]*inner `json:"inner"`
		Page  int                 `query:"page"`
	}
	const want = `bind: bind_test.inner.N has the tag required:"yes": write required:"true", or leave it out`
	_, inBody := bound[outer](t, postJSON("{}"), bind.JSON)
	_, inQuery := bound[inner](t, get("/?n=1"), bind.Query)
	for _, err := range []error{inBody, inQuery} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v", err)
		}
	}
}

// If several cookies have the same name, the first one counts, since browsers send the cookie with the most specific path first.
func TestCookie(t *testing.T) {
	type cookies struct {
		Theme string  `cookie:"theme"`
		Size  int     `cookie:"size"`
		None  *string `cookie:"none"`
	}
	got, err := bound[cookies](t, get("/", "Cookie: size=3; theme=dark", "Cookie: theme=light; x=y"), bind.Cookie, bind.Strict())
	if err != nil || got != (cookies{Theme: "dark", Size: 3}) {
		t.Errorf("%v, %+v", err, got)
	}
	_, err = bound[cookies](t, get("/", "Cookie: size=x"), bind.All)
	if got := inShort(t, err); got != "400 cookie size: must be an integer" {
		t.Error(got)
	}
	_, err = bound[cookies](t, postJSON(`{"Theme":"x","Size":7}`), bind.All, bind.Strict())
	if got := inShort(t, err); got != "400 body /Theme: isn't known here; body /Size: isn't known here; query q: isn't known here" {
		t.Error(got)
	}
}

// A form for a struct that only JSON can fill is refused, instead of being treated like an empty body.
func TestAllRefusesForms(t *testing.T) {
	for _, request := range []string{post("application/x-www-form-urlencoded", "sku=a"), multipartRequest("sku=a")} {
		_, err := bound[line](t, request, bind.All)
		if got := inShort(t, err); got != "415 header Content-Type: must be application/json, or end in +json" {
			t.Error(got)
		}
		if _, err := bound[Paging](t, request, bind.All); err != nil {
			t.Errorf("a struct without a body: %v", err)
		}
	}
}
