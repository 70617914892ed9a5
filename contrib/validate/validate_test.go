package validate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-playground/validator/v10"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/contrib/validate"
	"github.com/filohttp/filo/servertest"
)

type item struct {
	SKU   string `json:"sku" validate:"required,len=3"`
	Count int    `json:"count" validate:"min=1,max=9"`
}

type Paging struct {
	Page int `query:"page" validate:"gte=0"`
}

type order struct {
	Paging
	Email  string           `json:"email" validate:"required,email"`
	Colour string           `json:"colour" validate:"omitempty,oneof='light blue' red"`
	Items  []item           `json:"items" validate:"max=2,dive"`
	ByName map[string]*item `json:"by/name" validate:"dive"`
	Tags   []string         `json:"tags" validate:"unique,dive,max=1"`
	At     time.Time        `json:"at" validate:"omitempty,gt"`
	Token  string           `header:"X-Token" validate:"omitempty,startswith=t-"`
	Odd    int              `json:"odd" validate:"odd"`
	Next   *order           `json:"next"`
	NoTag  string           `validate:"omitempty,e164"`
}

type page[T any] struct {
	Items []T `json:"items" validate:"dive"`
}

// newValidator returns a Validator with a user-defined rule.
func newValidator() *validate.Validator {
	rules := validator.New(validator.WithRequiredStructEnabled())
	if err := rules.RegisterValidation("odd", func(f validator.FieldLevel) bool { return f.Field().Int()%2 == 1 }); err != nil {
		panic(err)
	}
	return validate.New(validate.Options{Validate: rules})
}

// bound returns the error of binding a request to a new T, as "422 body /a: detail; …".
func bound[T any](t testing.TB, v bind.Validator, target, body string) string {
	t.Helper()
	var err error
	request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nX-Token: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", target, len(body), body)
	servertest.New(t, func(c *filo.Ctx) error {
		var value T
		if target == "/" {
			err = bind.JSON(c, &value, bind.With(v))
		} else {
			err = bind.All(c, &value, bind.With(v))
		}
		return nil
	}).Raw(t, request)
	var invalid *bind.Error
	if !errors.As(err, &invalid) {
		return fmt.Sprint(err)
	}
	var parts []string
	for _, f := range invalid.Fields {
		parts = append(parts, fmt.Sprintf("%s %s%s: %s", f.In, f.Pointer, f.Name, f.Detail))
	}
	return fmt.Sprint(invalid.Status, " ", strings.Join(parts, "; "))
}

// Each broken rule is a separate error, with the place in the request from which the field was bound.
func TestValidate(t *testing.T) {
	const fine = `"email":"a@b.de","odd":1`
	v := newValidator()
	for _, c := range []struct{ target, body, want string }{
		{"/", `{` + fine + `}`, "<nil>"},
		{"/", `{"odd":1}`, "422 body /email: is required"},
		{"/", `{"email":"x","colour":"green","odd":2}`, `422 body /email: must be an e-mail address; body /colour: must be one of: light blue, red; body /odd: breaks the rule "odd"`},
		{"/", `{` + fine + `,"items":[{"sku":"abc","count":1},{"sku":"ab","count":10}]}`,
			"422 body /items/1/sku: must have exactly 3 characters; body /items/1/count: must be at most 9"},
		{"/", `{` + fine + `,"items":[{},{},{}]}`, "422 body /items: must have at most 2 elements"},
		{"/", `{` + fine + `,"by/name":{"a.b":{"sku":"abc"}}}`, "422 body /by~1name/a.b/count: must be at least 1"},
		{"/", `{` + fine + `,"tags":["a","bc"]}`, "422 body /tags/1: must have at most 1 character"},
		{"/", `{` + fine + `,"tags":["a","a"]}`, "422 body /tags: must not have anything twice"},
		{"/", `{` + fine + `,"at":"2001-01-01T00:00:00Z"}`, "422 body /at: must be later than now"},
		{"/", `{` + fine + `,"next":{` + fine + `,"next":{"email":"x","odd":1}}}`, "422 body /next/next/email: must be an e-mail address"},
		{"/", `{` + fine + `,"NoTag":"x"}`, "422 body /NoTag: must be a telephone number as in E.164"},
		{"/?page=-1", `{` + fine + `}`, "422 query page: must be at least 0; header X-Token: must start with t-"},
	} {
		if got := bound[order](t, v, c.target, c.body); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.body, got, c.want)
		}
	}
}

// Bodies needn't be structs, and structs may be generic or have no name.
func TestOtherTypes(t *testing.T) {
	v := newValidator()
	const bad = `{"sku":"x","count":1}`
	for _, c := range []struct{ name, got, want string }{
		{"a slice", bound[[]item](t, v, "/", `[{"sku":"abc","count":1},`+bad+`]`), "422 body /1/sku: must have exactly 3 characters"},
		{"pointers", bound[[]*item](t, v, "/", `[`+bad+`]`), "422 body /0/sku: must have exactly 3 characters"},
		{"a map", bound[map[string]item](t, v, "/", `{"a.b":`+bad+`}`), "422 body /a.b/sku: must have exactly 3 characters"},
		{"an empty slice", bound[[]item](t, v, "/", `[]`), "<nil>"},
		{"numbers", bound[[]int](t, v, "/", `[1]`), "<nil>"},
		{"a number", bound[int](t, v, "/", `1`), "<nil>"},
		{"generic", bound[page[item]](t, v, "/", `{"items":[`+bad+`]}`), "422 body /items/0/sku: must have exactly 3 characters"},
		{"generic, twice", bound[page[page[item]]](t, v, "/", `{"items":[{"items":[`+bad+`]}]}`), "422 body /items/0/items/0/sku: must have exactly 3 characters"},
		{"without a name", bound[struct {
			A item `json:"a"`
		}](t, v, "/", `{"a":`+bad+`}`), "422 body /a/sku: must have exactly 3 characters"},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, c.got, c.want)
		}
	}
}

// The zero Options are valid, and Options.Message replaces the default texts.
func TestOptions(t *testing.T) {
	if got := bound[item](t, validate.New(), "/", `{}`); got != "422 body /sku: is required; body /count: must be at least 1" {
		t.Error(got)
	}
	german := validate.New(validate.Options{Message: func(c *filo.Ctx, f validator.FieldError) string {
		return c.Request.Header.Get("X-Token") + " fehlt: " + f.Tag()
	}})
	if got := bound[item](t, german, "/", `{"count":1}`); got != "422 body /sku: x fehlt: required" {
		t.Error(got)
	}
}

// Each error has a code and parameters, by which it can be translated. A rule that takes a context gets the request's context.
func TestCodes(t *testing.T) {
	type value struct {
		Name  string    `validate:"max=3"`
		Level int       `validate:"max=3"`
		Tags  []string  `validate:"min=2"`
		Kind  string    `validate:"oneof=a b"`
		Email string    `validate:"email"`
		At    time.Time `validate:"gt"`
	}
	err := validate.New().Validate(&value{Name: "long", Level: 4, Kind: "c", Email: "x"})
	var invalid *bind.Error
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	var got []string
	for _, f := range invalid.Fields {
		got = append(got, fmt.Sprint(f.Field, " ", f.Code, " ", f.Params))
	}
	const want = "Name max map[max:3 of:characters]; Level max map[max:3 of:number]; Tags min map[min:2 of:elements]; " +
		"Kind oneof map[oneof:a b]; Email email map[]; At gt map[of:time]"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got %s\nwant %s", text, want)
	}

	rules := validator.New()
	if err := rules.RegisterValidationCtx("asked", func(ctx context.Context, _ validator.FieldLevel) bool { return ctx.Value(key{}) != nil }); err != nil {
		t.Fatal(err)
	}
	type asked struct {
		Name string `json:"name" validate:"asked"`
	}
	called := false
	servertest.New(t, func(c *filo.Ctx) error {
		called = true
		c.SetContext(context.WithValue(c.Context(), key{}, 1))
		if err := validate.New(validate.Options{Validate: rules}).ValidateRequest(c, &asked{}); err != nil {
			t.Error(err)
		}
		return nil
	}).Raw(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if !called {
		t.Error("there was no request")
	}
}

type key struct{}

// The validator has every rule that Message knows, so none of their names is mistyped.
func TestMessagesAreForRules(t *testing.T) {
	rules := validator.New()
	for _, tag := range validate.Known() {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); strings.Contains(text, "Undefined validation function") {
					t.Error(text)
				}
			}()
			_ = rules.Var("x", tag+"=1")
		}()
	}
}

func BenchmarkValidate(b *testing.B) {
	v := validate.New()
	value := item{SKU: "abc", Count: 1}
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Validate(&value); err != nil {
			b.Fatal(err)
		}
	}
}

// ginItem has a rule in gin's tag only.
type ginItem struct {
	Name string `json:"name" binding:"required"`
}

// Rules in gin's tag are applied or lead to an error, and are never ignored silently.
func TestGinRules(t *testing.T) {
	type twice struct {
		Name string `json:"name" binding:"required" validate:"required"`
		Any  string `json:"any" binding:"-"`
		Sent string `json:"sent" required:"true" binding:"required"`
		Next *twice `json:"next"`
	}
	gin := validator.New(validator.WithRequiredStructEnabled())
	gin.SetTagName("binding")
	other := newValidator()
	for _, v := range []*validate.Validator{validate.New(), other} {
		for _, value := range []any{&ginItem{"Ada"}, &struct{ Inner *ginItem }{}, &struct{ ginItem }{}, &struct{ Inner map[string][]ginItem }{}, &[]ginItem{{"Ada"}}} {
			for range 2 { // the second time with the cached analysis of the type
				err := v.Validate(value)
				var got *filo.HTTPError
				if !errors.As(err, &got) || got.Status != 500 ||
					!strings.Contains(err.Error(), `validate: validate_test.ginItem.Name has the tag binding:"required", which this validator doesn't read: write validate:"required"`) {
					t.Errorf("%T: got %v", value, err)
				}
			}
		}
		if err := v.Validate(&twice{Name: "Ada"}); err != nil {
			t.Error(err)
		}
		if err := v.Validate(&struct {
			Page int `binding:"max=9"`
		}{}); err == nil || !strings.Contains(err.Error(), `the field Page has the tag binding:"max=9"`) {
			t.Errorf("got %v", err)
		}
	}
	v := validate.New(validate.Options{Validate: gin})
	if err := v.Validate(&ginItem{"Ada"}); err != nil {
		t.Error(err)
	}
	var invalid *bind.Error
	if err := v.Validate(&ginItem{}); !errors.As(err, &invalid) || invalid.Fields[0].Code != "required" {
		t.Errorf("got %v", err)
	}
}

func TestOptionsOnce(t *testing.T) {
	validate.New()
	defer func() {
		if message, _ := recover().(string); !strings.HasPrefix(message, "validate: New takes one Options at most") {
			t.Errorf("panics with %q", message)
		}
	}()
	validate.New(validate.Options{}, validate.Options{})
}
