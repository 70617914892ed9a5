package bind_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime/multipart"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

type rename struct {
	Shop  int     `path:"shop"`
	Dry   bool    `query:"dry"`
	Theme string  `cookie:"theme"`
	Name  string  `json:"name" form:"name" required:"true"`
	Limit int     `query:"limit"`
	Price float64 `json:"price"`
}

func (r *rename) SetDefaults() { r.Limit = 50 }

// ordering has defaults that all requests share.
type ordering struct {
	By    []string       `json:"by"`
	Pages []*page        `json:"pages"`
	Size  *int           `json:"size"`
	Rest  map[string]any `json:"rest"`
	*Nested
	Shared *page    `json:"-"`
	Codes  []string `query:"code"`
}

type Nested struct{ Deep struct{ List []int } }

type page struct{ Number int }

var ordered = ordering{
	By: []string{"name", "age"}, Pages: []*page{{Number: 1}}, Size: new(int), Rest: map[string]any{"a": 1},
	Nested: new(Nested), Shared: new(page), Codes: []string{"x", "y"},
}

func (o *ordering) SetDefaults() { *o = ordered }

// A request can't change the defaults of other requests, even if SetDefaults sets fields to slices, maps and pointers that all of them share.
func TestSharedDefaults(t *testing.T) {
	ordered.Deep.List = []int{1, 2}
	s := servertest.New(t, bind.Handler(func(c *filo.Ctx, in ordering) (ordering, error) {
		if in.Shared != ordered.Shared {
			t.Error("the value of a field that no JSON can fill was replaced by a copy")
		}
		return in, nil
	}))
	const want = `{"by":["name","age"],"pages":[{"Number":1}],"size":0,"rest":{"a":1},"Deep":{"List":[1,2]},"Codes":["x","y"]}` + "\n"
	for _, body := range []string{`{"by":["x"],"pages":[{"Number":9}],"size":5,"rest":{"b":2},"Deep":{"List":[3]}}`, `{"by":["y",1]}`, `{}`} {
		got := s.DoBody(t, "POST /?code=z", body, "Content-Type: application/json")
		if body == "{}" && got.Body != strings.Replace(want, `"x","y"`, `"z"`, 1) {
			t.Errorf("with the defaults: %v, want %s", got, want)
		}
		if kept, err := json.Marshal(ordered); err != nil || string(kept)+"\n" != want {
			t.Errorf("after %s, the defaults are %s, %v", body, kept, err)
		}
	}
}

type renamed struct {
	ID   int    `json:"id" xml:"id"`
	Text string `json:"text" xml:"text"`
}

// renameShop is a function for Handler.
func renameShop(c *filo.Ctx, in rename) (renamed, error) {
	switch in.Name {
	case "taken":
		return renamed{}, filo.Error(409, "there is one")
	case "broken":
		return renamed{}, errors.New("the database is away")
	case "new":
		c.Response.SetStatus(201)
		c.Response.Header.Set("Location", "/shops/7")
	}
	return renamed{in.Shop, fmt.Sprint(in.Name, " ", in.Dry, " ", in.Theme, " ", in.Limit)}, nil
}

// answerOf registers the handler for POST /shops/{shop}, and returns the first line, the Content-Type and the body of its answer.
func answerOf(t testing.TB, h filo.Handler, request string) string {
	t.Helper()
	r := router.New()
	r.Handle("/shops/{shop}", h)
	raw := servertest.New(t, r.Serve).Raw(t, strings.Replace(request, "/?q=1", "/shops/7", 1))
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	answer := strings.TrimPrefix(lines[0], "HTTP/1.1 ")
	for _, name := range []string{"Content-Type: ", "Location: ", "Vary: "} {
		if i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, name) }); i >= 0 {
			answer += " | " + lines[i]
		}
	}
	return answer + " | " + strings.TrimSpace(body)
}

// A handler made by Handler binds from all sources, and answers with its function's output.
func TestHandler(t *testing.T) {
	typed := bind.Handler(renameShop)
	const problem = " | Content-Type: application/problem+json | Vary: Accept | "
	for _, c := range []struct{ name, request, want string }{
		{"JSON, with defaults", postJSON(`{"name":"a"}`), `200 OK | Content-Type: application/json | {"id":7,"text":"a false  50"}`},
		{"a form", post("application/x-www-form-urlencoded", "name=a"), `200 OK | Content-Type: application/json | {"id":7,"text":"a false  50"}`},
		{"a query and a cookie", strings.Replace(get("/shops/7?dry=1&limit=0", "Cookie: theme=dark", "Content-Type: application/json", "Content-Length: 11")+`{"name":""}`, "GET", "PUT", 1),
			`200 OK | Content-Type: application/json | {"id":7,"text":" true dark 0"}`},
		{"a status and a field of its own", postJSON(`{"name":"new"}`), `201 Created | Content-Type: application/json | Location: /shops/7 | {"id":7,"text":"new false  50"}`},
		{"its error", postJSON(`{"name":"taken"}`), "409 Conflict" + problem + `{"detail":"there is one","status":409,"title":"Conflict"}`},
		{"an error that the client doesn't see", postJSON(`{"name":"broken"}`), "500 Internal Server Error" + problem + `{"status":500,"title":"Internal Server Error"}`},
		{"an error of the request, told in JSON without being asked", get("/shops/x"), "400 Bad Request" + problem +
			`{"detail":"path \"shop\": must be an integer (and 1 more error)","errors":[{"in":"path","name":"shop","detail":"must be an integer","code":"integer"},` +
			`{"in":"body","pointer":"/name","detail":"is required","code":"required"}],"status":400,"title":"Bad Request"}`},
		{"but not to who prefers text", get("/shops/x", "Accept: text/plain"), "400 Bad Request | Content-Type: text/plain; charset=utf-8 | Vary: Accept | " +
			`Bad Request: path "shop": must be an integer (and 1 more error)`},
		{"a malformed body", postJSON(`{`), "400 Bad Request" + problem + `{"detail":"body: line 1, column 1: unexpected end of JSON input",` +
			`"errors":[{"in":"body","detail":"line 1, column 1: unexpected end of JSON input","code":"malformed","params":{"column":1,"line":1}}],"status":400,"title":"Bad Request"}`},
		{"JSON even to who asks for something else", strings.Replace(postJSON(`{"name":"a"}`), "Host:", "Accept: text/html\r\nHost:", 1),
			`200 OK | Content-Type: application/json | {"id":7,"text":"a false  50"}`},
	} {
		if got := answerOf(t, typed, c.request); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// Options say how requests are read and answered.
func TestHandlerOptions(t *testing.T) {
	type empty struct{}
	nothing := func(*filo.Ctx, empty) (bind.NoContent, error) { return bind.NoContent{}, nil }
	one := func(*filo.Ctx, empty) (*renamed, error) { return &renamed{ID: 1}, nil }
	xml := bind.As("application/xml", (*filo.Ctx).XML)
	const asXML = `<?xml version="1.0" encoding="UTF-8"?>` + "\n<renamed><id>1</id><text></text></renamed>"
	for _, c := range []struct {
		name    string
		handler filo.Handler
		request string
		want    string
	}{
		{"no output", bind.Handler(nothing), get("/shops/7"), "204 No Content | "},
		{"no output, another status", bind.Handler(nothing, bind.Status(202)), get("/shops/7"), "202 Accepted | "},
		{"an answer of the function's own", bind.Handler(func(c *filo.Ctx, _ empty) (bind.NoContent, error) { return bind.NoContent{}, c.Text(200, "x") }),
			get("/shops/7"), "200 OK | Content-Type: text/plain; charset=utf-8 | x"},
		{"a status", bind.Handler(one, bind.Status(201)), get("/shops/7"), `201 Created | Content-Type: application/json | {"id":1,"text":""}`},
		{"JSON of two", bind.Handler(one, xml), get("/shops/7"), `200 OK | Content-Type: application/json | Vary: Accept | {"id":1,"text":""}`},
		{"XML of two", bind.Handler(one, xml), get("/shops/7", "Accept: application/xml"), "200 OK | Content-Type: application/xml; charset=utf-8 | Vary: Accept | " + asXML},
		{"none of two", bind.Handler(one, xml), get("/shops/7", "Accept: text/html"), "406 Not Acceptable | Content-Type: application/problem+json | Vary: Accept | " +
			`{"detail":"the response is available as application/json, application/xml","status":406,"title":"Not Acceptable"}`},
		{"strict", bind.Handler(nothing, bind.Strict()), get("/shops/7?x=1"), "400 Bad Request | Content-Type: application/problem+json | Vary: Accept | " +
			`{"detail":"query \"x\": isn't known here","errors":[{"in":"query","name":"x","detail":"isn't known here","code":"unknown"}],"status":400,"title":"Bad Request"}`},
		{"a validator", bind.Handler(nothing, bind.Strict(), bind.With(validatorFunc(func(any) error { return filo.Error(403, "no") }))), get("/shops/7"),
			`403 Forbidden | Content-Type: application/problem+json | Vary: Accept | {"detail":"no","status":403,"title":"Forbidden"}`},
		{"a body that nobody asked for", bind.Handler(nothing), post("text/csv", "a"), "204 No Content | "},
		{"an output that can't be encoded", bind.Handler(func(*filo.Ctx, empty) (chan int, error) { return nil, nil }), get("/shops/7"),
			`500 Internal Server Error | Content-Type: application/problem+json | Vary: Accept | {"status":500,"title":"Internal Server Error"}`},
	} {
		if got := answerOf(t, c.handler, c.request); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// Handler panics for a programming mistake.
func TestHandlerMistakes(t *testing.T) {
	type empty struct{}
	for want, make := range map[string]func(){
		"bind: Handler's function has the input int, which must be a struct": func() {
			bind.Handler(func(*filo.Ctx, int) (int, error) { return 0, nil })
		},
		"bind: the field C, tag query: text can't become a chan int": func() {
			bind.Handler(func(*filo.Ctx, struct {
				C chan int `query:"c"`
			}) (int, error) {
				return 0, nil
			})
		},
		`bind: the field N has the tag required:"1": write required:"true", or leave it out`: func() {
			bind.Handler(func(*filo.Ctx, struct {
				In []struct {
					N int `required:"1"`
				}
			}) (int, error) {
				return 0, nil
			})
		},
		`bind: the field ID has the tag uri:"id" of another framework, which isn't read here: write path:"id" instead, or as well`: func() {
			bind.Handler(func(*filo.Ctx, struct {
				ID int `uri:"id" json:"id"`
			}) (int, error) {
				return 0, nil
			})
		},
		`bind: the field ID has the tag param:"id" of another framework, which isn't read here: write path:"id" instead, or as well`: func() {
			bind.Handler(func(*filo.Ctx, struct {
				Name string `path:"name"`
				ID   int    `param:"id"`
			}) (int, error) {
				return 0, nil
			})
		},
		`bind: bind_test.embeddedForeign.Key has the tag reqHeader:"X-Key" of another framework, which isn't read here: write header:"X-Key" instead, or as well`: func() {
			bind.Handler(func(*filo.Ctx, embeddedForeign) (int, error) { return 0, nil })
		},
		`bind: the field Page has the tag binding:"max=9", and no validator is given, so nothing would follow it: write validate:"max=9" with ` +
			`bind.With(validate.New()) of contrib/validate, or required:"true" alone`: func() {
			bind.Handler(func(*filo.Ctx, struct {
				Page int `query:"page" binding:"max=9"`
			}) (int, error) {
				return 0, nil
			})
		},
		`bind: the field N has the tag binding:"required", and no validator is given, so nothing would follow it: write validate:"required" with ` +
			`bind.With(validate.New()) of contrib/validate, or required:"true" alone`: func() {
			bind.Handler(func(*filo.Ctx, struct {
				In []struct {
					N int `json:"n" binding:"required"`
				}
			}) (int, error) {
				return 0, nil
			})
		},
		`bind: the field IDs has gin's tag collection_format:"csv", which isn't read here: write query:"ids,comma" instead, or as well`: func() {
			bind.Handler(func(*filo.Ctx, struct {
				IDs []int `query:"ids" collection_format:"csv"`
			}) (int, error) {
				return 0, nil
			})
		},
		`bind: the field IDs has gin's tag collection_format:"pipes", which isn't read here: make the field a string, and split it`: func() {
			bind.Handler(func(*filo.Ctx, struct {
				IDs []int `form:"ids" collection_format:"pipes"`
			}) (int, error) {
				return 0, nil
			})
		},
		`bind: the field Day has gin's tag time_format:"2006-01-02", which isn't read here: write layout:"2006-01-02" instead, or as well`: func() {
			bind.Handler(func(*filo.Ctx, struct {
				Day time.Time `query:"day" time_format:"2006-01-02"`
			}) (int, error) {
				return 0, nil
			})
		},
		`bind: the field At has gin's tag time_format:"unix", which isn't read here: make the field an int64`: func() {
			bind.Handler(func(*filo.Ctx, struct {
				At time.Time `query:"at" time_format:"unix"`
			}) (int, error) {
				return 0, nil
			})
		},
		"bind: Status(204) has no body, and the function returns a int: make that a bind.NoContent": func() {
			bind.Handler(func(*filo.Ctx, empty) (int, error) { return 0, nil }, bind.Status(204))
		},
		"bind: Status(404): it is for answers, whose status is 200 to 399; an error has its own, as filo.Error": func() { bind.Status(200, 404) },
		`bind: As("text/csv"): the function returns a bind.NoContent, which has no media type`: func() {
			bind.Handler(func(*filo.Ctx, empty) (bind.NoContent, error) { return bind.NoContent{}, nil }, bind.As("text/csv", (*filo.Ctx).JSON))
		},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != want {
					t.Errorf("got %s\nwant %s", got, want)
				}
			}()
			make()
		}()
	}
}

type foreignKey struct {
	Key string `reqHeader:"X-Key"`
}

type embeddedForeign struct{ foreignKey }

// A struct may have another framework's tags in addition to bind's tags, and a validator may use rules in any tag.
func TestForeignTags(t *testing.T) {
	type both struct {
		ID   int    `path:"shop" uri:"shop" param:"shop"`
		None int    `path:"-" params:"shop"`
		Key  string `header:"X-Key" reqHeader:"X-Key"`
		Name string `json:"name" required:"true" binding:"required"`
		Any  string `json:"any" binding:"-"`
		IDs  []int  `query:"ids,comma" collection_format:"csv"`
		Tags []int  `query:"tags" collection_format:"multi"`

		Day  time.Time `query:"day" layout:"2006-01-02" time_format:"2006-01-02"`
		Made time.Time `json:"made" time_format:"2006-01-02"`
	}
	type checked struct {
		Name string `json:"name" binding:"required"`
		Page int    `query:"page" binding:"required"`
	}
	bind.Handler(func(*filo.Ctx, both) (int, error) { return 0, nil })
	noErrors := bind.With(validatorFunc(func(any) error { return nil }))
	bind.Handler(func(*filo.Ctx, checked) (int, error) { return 0, nil }, noErrors)
	if _, err := bound[checked](t, postJSON(`{}`), bind.All, noErrors); err != nil {
		t.Error(err)
	}
	for _, bindTo := range []func(*filo.Ctx, any, ...bind.Option) error{bind.All, bind.JSON, bind.Query} {
		if _, err := bound[checked](t, postJSON(`{}`), bindTo); err == nil || !strings.Contains(err.Error(), `has the tag binding:"required"`) {
			t.Errorf("got %v", err)
		}
	}
}

// If a route has something that the input doesn't read, a warning is logged once for that route.
func TestHandlerRoutes(t *testing.T) {
	type named struct {
		Name string `json:"name"`
	}
	type both struct {
		ID   int  `path:"id"`
		Part *int `path:"part"`
	}
	type listed struct {
		Page int    `form:"page"`
		Sort string `form:"sort" query:"sort"`
	}
	log := new(records)
	r := router.New()
	inner := router.New()
	ofNamed, ofBoth := bind.Handler(typedFor[named]), bind.Handler(typedFor[both])
	r.GET("/named/{id}/{rest...}", ofNamed)
	r.GET("/other/{id}", ofNamed)
	r.GET("/fine", ofNamed)
	r.GET("/both/{id}", ofBoth)
	r.GET("/both/{id}/{part}", ofBoth)
	r.GET("/both/{id}/x/{other}", ofBoth)
	r.GET("/list", bind.Handler(typedFor[listed]))
	r.POST("/list", bind.Handler(typedFor[listed]))
	r.GET("/nothing/{id}", bind.Handler(typedFor[struct{}]))
	inner.GET("/{id}/", ofBoth)
	r.Mount("/mounted/{tenant}", inner.Serve)
	server := servertest.NewServer(t, &filo.Server{Handler: r.Serve, Logger: slog.New(slog.NewTextHandler(log, nil))})
	for range 2 {
		for _, target := range []string{"/named/1/x/y", "/other/1", "/fine", "/both/1", "/both/1/2", "/both/1/x/2", "/list", "/nothing/1", "/mounted/a/1/"} {
			server.Raw(t, get(target))
		}
		server.Raw(t, strings.Replace(get("/list"), "GET", "POST", 1))
	}
	got := log.warnings()
	want := []string{
		`"GET /named/{id}/{rest...}" wildcard=id input=bind_test.named`,
		`"GET /named/{id}/{rest...}" wildcard=rest input=bind_test.named`,
		`"GET /other/{id}" wildcard=id input=bind_test.named`,
		`"GET /both/{id}/x/{other}" wildcard=other input=bind_test.both`,
		`"GET /list" fields=Page input=bind_test.listed`,
		`"GET /mounted/{tenant}/{id}/" wildcard=tenant input=bind_test.both`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s\nin %s", strings.Join(got, "\n"), strings.Join(want, "\n"), log)
	}
}

// All logs once for each route if it can't fill fields because requests of GET have no form. Structs may be shared by routes.
func TestAllFormsOfGET(t *testing.T) {
	type listed struct {
		Page int    `form:"page"`
		Sort string `form:"sort" query:"sort"`
	}
	type fine struct {
		Sort string `form:"sort" query:"sort"`
	}
	all := func(v func() any) filo.Handler {
		return func(c *filo.Ctx) error {
			if err := bind.All(c, v()); err != nil {
				t.Errorf("%s: %v", c.Route(), err)
			}
			return c.NoContent()
		}
	}
	ofListed, ofFine := all(func() any { return new(listed) }), all(func() any { return new(fine) })
	log := new(records)
	r := router.New()
	r.GET("/list", ofListed)
	r.HEAD("/head", ofListed)
	r.GET("/again", ofListed)
	r.POST("/list", ofListed)
	r.Any("/any", ofListed)
	r.GET("/fine", ofFine)
	server := servertest.NewServer(t, &filo.Server{Handler: r.Serve, Logger: slog.New(slog.NewTextHandler(log, nil))})
	for range 2 {
		for _, request := range []string{"GET /list", "HEAD /head", "GET /again", "POST /list", "GET /any", "GET /fine"} {
			server.Raw(t, request+" HTTP/1.1\r\nHost: a\r\n\r\n")
		}
	}
	got := log.warnings()
	want := []string{`"GET /list" fields=Page input=bind_test.listed`, `"HEAD /head" fields=Page input=bind_test.listed`, `"GET /again" fields=Page input=bind_test.listed`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q, in\n%s", got, want, log)
	}
}

// records collects the records of a logger that other goroutines use concurrently.
type records struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// warnings returns the records of package bind, each from its route on.
func (r *records) warnings() (routes []string) {
	for line := range strings.Lines(r.String()) {
		if strings.Contains(line, "bind: ") {
			_, route, _ := strings.Cut(line, " route=")
			routes = append(routes, strings.TrimSpace(route))
		}
	}
	return routes
}

func typedFor[In any](*filo.Ctx, In) (bind.NoContent, error) { return bind.NoContent{}, nil }

// Describe describes a handler made by Handler, even if it comes from a router's list, and no other handler.
func TestDescribe(t *testing.T) {
	type input struct {
		Paging
		ID     int                   `path:"id"`
		Both   string                `json:"both" query:"both" required:"true"`
		Name   string                `json:"name" form:"n" required:"true"`
		Tags   []string              `header:"Tags,comma" required:"true"`
		Theme  string                `cookie:"theme"`
		Part   *string               `path:"part"`
		Path   string                `path:"name" header:"-" query:"name"`
		Avatar *multipart.FileHeader `json:"-" form:"avatar"`
		Hidden string                `json:"-"`
	}
	doc := bind.Doc{ID: "doIt", Summary: "Does it", Errors: []int{409, 422}}
	r := router.New()
	r.POST("/a/{id}", bind.Handler(func(*filo.Ctx, input) ([]renamed, error) { return nil, nil }, bind.Status(201, 200), bind.Strict(), doc,
		bind.As("application/xml", (*filo.Ctx).XML)), func(next filo.Handler) filo.Handler { return next })
	r.GET("/b", bind.Handler(func(*filo.Ctx, struct{}) (bind.NoContent, error) { return bind.NoContent{}, nil }))
	r.GET("/c", func(*filo.Ctx) error { t.Error("a handler was called"); return nil })
	routes := r.Routes()
	op, ok := bind.Describe(routes[0].Handler)
	var fields []string
	for _, f := range op.Fields {
		fields = append(fields, fmt.Sprint(f.In, " ", f.Name, " ", f.Struct.Name, map[bool]string{true: " required"}[f.Required],
			map[bool]string{true: " comma"}[f.Comma], map[bool]string{true: " file"}[f.File]))
	}
	const wantFields = "body both Both, body name Name required, form n Name required, form avatar Avatar file, " +
		"header Tags Tags required comma, cookie theme Theme, query page Page, query size Size, query both Both, query name Path, path id ID required, path part Part, path name Path"
	if got := strings.Join(fields, ", "); got != wantFields {
		t.Errorf("got %s\nwant %s", got, wantFields)
	}
	if got, want := fmt.Sprint(ok, op.Input, op.Output, op.Strict, op.MediaTypes, op.Statuses, op.Errors, op.Doc.ID),
		"true bind_test.input []bind_test.renamed true [application/json application/xml] [201 200] [400 406 409 413 415 422]doIt"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if op, ok = bind.Describe(routes[1].Handler); !ok || op.Output != nil || fmt.Sprint(op.Statuses, op.Errors, op.Fields) != "[204] [] []" {
		t.Errorf("got %+v", op)
	}
	for _, h := range []filo.Handler{nil, routes[2].Handler, r.Serve, filo.Inline(routes[1].Handler)} {
		if op, ok := bind.Describe(h); ok {
			t.Errorf("got %+v", op)
		}
	}
}
