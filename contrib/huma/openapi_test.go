package humafilo_test

import (
	"context"
	"encoding/json"
	"mime/multipart"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	humafilo "github.com/filohttp/filo/contrib/huma"
	"github.com/filohttp/filo/router"
)

type Page struct {
	Limit int           `query:"limit" minimum:"1" maximum:"100"`
	Since time.Duration `query:"since" doc:"How far back."`
	Day   *time.Time    `query:"day" layout:"2006-01-02"`
	At    time.Time     `header:"If-Older"`
	Sort  []string      `query:"sort,comma" required:"true"`
	Tags  []string      `query:"tag"`
}

type Address struct {
	Street string   `json:"street" required:"true" maxLength:"100"`
	City   *string  `json:"city" required:"true"`
	Before *Address `json:"before,omitempty"`
}

type Person struct {
	Page
	Shop    int        `path:"shop"`
	Theme   string     `cookie:"theme"`
	Name    string     `json:"name" required:"true" doc:"What to call them."`
	Age     int        `json:"age"`
	Home    Address    `json:"home"`
	Others  []Address  `json:"others"`
	From    netip.Addr `json:"from"`
	Both    string     `json:"both" query:"both" required:"true"`
	private int
}

func (p *Person) SetDefaults() { p.Limit, p.Since, p.private = 20, time.Hour, 1 }

type photo struct {
	Title string                  `form:"title" required:"true"`
	Photo *multipart.FileHeader   `form:"photo" required:"true"`
	More  []*multipart.FileHeader `form:"more"`
}

func typed[In, Out any](*filo.Ctx, In) (out Out, err error) { return out, nil }

// shop returns a router with all kinds of typed handlers, and one handler that isn't typed.
func shop() *router.Router {
	r := router.New()
	xml := bind.As("application/xml", (*filo.Ctx).XML)
	g := r.Group("/shops/{shop:int}")
	g.POST("/people", bind.Handler(typed[Person, Address], bind.Status(201, 200), xml, bind.Doc{ID: "addPerson", Summary: "Add", Tags: []string{"people"}, Errors: []int{409}}))
	g.GET("/people", bind.Handler(typed[Page, []Person]))
	g.PUT("/home/{$}", bind.Handler(typed[Address, Address], bind.Strict()))
	g.PUT("/photos/{name:[a-z]{2,3}}", bind.Handler(typed[photo, bind.NoContent]))
	g.DELETE("/files/{path...}", bind.Handler(typed[struct{}, bind.NoContent]))
	r.GET("/plain", func(c *filo.Ctx) error { return c.Text(200, "") })
	return r
}

func info() *huma.OpenAPI {
	return &huma.OpenAPI{Info: &huma.Info{Title: "Shop", Version: "1.0.0"}}
}

// OpenAPI serves the document.
func TestOpenAPI(t *testing.T) {
	r := shop()
	r.GET("/openapi.json", humafilo.OpenAPI(r, info()))
	got := ask(t, serve(t, r.Serve), "GET /openapi.json", "")
	if got.status != 200 || got.header.Get("Content-Type") != "application/openapi+json" || !strings.Contains(got.body, `"openapi":"3.1.0"`) {
		t.Fatalf("got %d %v %s", got.status, got.header, got.body)
	}
}

// documented returns the document of a router's routes, as decoded by encoding/json.
func documented(t *testing.T, r *router.Router) (whole any) {
	t.Helper()
	document := info()
	if err := humafilo.DocumentRoutes(r, document); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	return whole
}

// The document describes how bind reads and checks requests.
func TestDocumentRoutes(t *testing.T) {
	whole := documented(t, shop())
	const people, schemas = "paths /shops/{shop}/people ", "components schemas "
	for way, want := range map[string]string{
		people + "post operationId":                                                 `"addPerson"`,
		people + "post summary":                                                     `"Add"`,
		people + "post requestBody required":                                        `true`,
		people + "post requestBody content application/json schema":                 `{"$ref":"#/components/schemas/PersonInput"}`,
		people + "post responses 201 content application/xml schema":                `{"$ref":"#/components/schemas/Address"}`,
		people + "post responses 200 description":                                   `"OK"`,
		people + "post responses 409 content application/problem+json schema":       `{"$ref":"#/components/schemas/ProblemDetails"}`,
		people + "post parameters limit":                                            `{"in":"query","name":"limit","schema":{"default":20,"format":"int64","maximum":100,"minimum":1,"type":"integer"}}`,
		people + "post parameters since":                                            `{"description":"How far back.","in":"query","name":"since","schema":{"default":"1h0m0s","type":"string"}}`,
		people + "get parameters since":                                             `{"description":"How far back.","in":"query","name":"since","schema":{"type":"string"}}`,
		people + "get parameters day":                                               `{"in":"query","name":"day","schema":{"format":"date","type":"string"}}`,
		people + "get parameters If-Older":                                          `{"in":"header","name":"If-Older","schema":{"format":"date-time","type":"string"}}`,
		people + "get parameters sort":                                              `{"explode":false,"in":"query","name":"sort","required":true,"schema":{"items":{"type":"string"},"type":"array"},"style":"form"}`,
		people + "get parameters tag":                                               `{"in":"query","name":"tag","schema":{"items":{"type":"string"},"type":"array"}}`,
		people + "post parameters shop":                                             `{"in":"path","name":"shop","required":true,"schema":{"format":"int64","type":"integer"}}`,
		people + "post parameters theme":                                            `{"in":"cookie","name":"theme","schema":{"type":"string"}}`,
		people + "post parameters both":                                             `{"in":"query","name":"both","schema":{"type":"string"}}`,
		people + "get parameters shop":                                              `{"in":"path","name":"shop","required":true,"schema":{"type":"string"}}`,
		people + "get requestBody":                                                  `null`,
		people + "get responses 422":                                                `null`,
		schemas + "PersonInput required":                                            `["name"]`,
		schemas + "PersonInput additionalProperties":                                `null`,
		schemas + "PersonInput properties name":                                     `{"description":"What to call them.","type":"string"}`,
		schemas + "PersonInput properties home":                                     `{"$ref":"#/components/schemas/AddressInput"}`,
		schemas + "PersonInput properties limit":                                    `null`,
		schemas + "AddressInput required":                                           `["street","city"]`,
		schemas + "AddressInput properties city":                                    `{"type":"string"}`,
		schemas + "AddressInput properties before":                                  `{"$ref":"#/components/schemas/AddressInput"}`,
		"paths /shops/{shop}/home/ put requestBody content application/json schema": `{"$ref":"#/components/schemas/AddressInput"}`,
		"paths /shops/{shop}/photos/{name} put requestBody content":                 `{"multipart/form-data":{"schema":{"properties":{"more":{"items":{"contentMediaType":"application/octet-stream","format":"binary","type":"string"},"type":"array"},"photo":{"contentMediaType":"application/octet-stream","format":"binary","type":"string"},"title":{"type":"string"}},"required":["title","photo"],"type":"object"}}}`,
		"paths /shops/{shop}/files/{path} delete responses":                         `{"204":{"description":"No Content"}}`,
		"paths /plain": `null`,
	} {
		if got := find(whole, strings.Fields(way)...); got != want {
			t.Errorf("%s:\n got %s\nwant %s", way, got, want)
		}
	}
}

// find follows the names in way through a document, and returns the value there as JSON. A parameter is found by its name.
func find(at any, way ...string) string {
	for _, step := range way {
		switch node := at.(type) {
		case map[string]any:
			at = node[step]
		case []any:
			at = nil
			for _, each := range node {
				if parameter := each.(map[string]any); parameter["name"] == step {
					at = parameter
				}
			}
		default:
			return "null"
		}
	}
	text, _ := json.Marshal(at)
	return string(text)
}

type checkedItem struct {
	SKU string `json:"sku" validate:"required,len=3"`
}

type checked struct {
	Limit   int               `query:"limit" validate:"min=1,max=100"`
	Sort    string            `query:"sort" validate:"oneof=name 'last login'"`
	From    string            `query:"from" validate:"omitempty,email"`
	Either  string            `json:"either" query:"either" validate:"required"`
	Email   string            `json:"email" validate:"required,email,max=200"`
	Nick    *string           `json:"nick" validate:"omitnil,alphanum,min=2"`
	Level   int               `json:"level" validate:"oneof=1 2"`
	Rank    int               `json:"rank" validate:"gte=0,lt=10"`
	Share   float64           `json:"share" validate:"omitempty,gt=0.5"`
	Terms   bool              `json:"terms" validate:"required"`
	Items   []checkedItem     `json:"items" validate:"min=1,max=2,dive"`
	Tags    []string          `json:"tags" validate:"unique,dive,min=1,max=9"`
	Labels  map[string]string `json:"labels" validate:"max=3,dive,keys,max=4,endkeys,required"`
	Owner   checkedItem       `json:"owner" validate:"required"`
	Colour  string            `json:"colour" validate:"omitempty,hexcolor|rgb"`
	Timeout time.Duration     `json:"timeout" validate:"min=1s"`
	Kind    string            `json:"kind" validate:"required"`
}

func (c *checked) SetDefaults() { c.Limit, c.Kind = 20, "plain" }

type checkedForm struct {
	Name string `form:"name" validate:"required,max=5"`
}

type Inner struct {
	N int `json:"n"`
}

type Strictly struct {
	Inner Inner `json:"inner"`
}

type Leniently struct {
	Inner []Inner `json:"inner"`
}

// The document states the rules of the tag validate, and the schema of each body is as strict as its handlers.
func TestDocumentRules(t *testing.T) {
	r := router.New()
	r.POST("/checked", bind.Handler(typed[checked, bind.NoContent], bind.Strict(),
		bind.Doc{ID: "check", Security: []map[string][]string{{"bearer": {"write"}}, {"key": {}}}}))
	r.POST("/form", bind.Handler(typed[checkedForm, bind.NoContent], bind.Strict(), bind.Doc{Security: []map[string][]string{}}))
	r.GET("/checked/{id}", bind.Handler(typed[struct {
		ID int `path:"id"`
	}, bind.NoContent]))
	r.POST("/strictly", bind.Handler(typed[Strictly, bind.NoContent], bind.Strict()))
	r.POST("/leniently", bind.Handler(typed[Leniently, bind.NoContent]))
	whole := documented(t, r)
	const post, schema = "paths /checked post ", "components schemas CheckedInput "
	for way, want := range map[string]string{
		post + "parameters limit":                                         `{"in":"query","name":"limit","schema":{"default":20,"format":"int64","maximum":100,"minimum":1,"type":"integer"}}`,
		post + "parameters sort":                                          `{"in":"query","name":"sort","required":true,"schema":{"enum":["name","last login"],"type":"string"}}`,
		post + "parameters from":                                          `{"in":"query","name":"from","schema":{"format":"email","type":"string"}}`,
		post + "parameters either":                                        `{"in":"query","name":"either","schema":{"minLength":1,"type":"string"}}`,
		post + "security":                                                 `[{"bearer":["write"]},{"key":[]}]`,
		"paths /form post security":                                       `[]`,
		"paths /strictly post security":                                   `null`,
		post + "requestBody required":                                     `true`,
		post + "requestBody content application/json schema":              `{"$ref":"#/components/schemas/CheckedInput"}`,
		schema + "required":                                               `["email","level","terms","items","owner"]`,
		schema + "additionalProperties":                                   `false`,
		schema + "properties email":                                       `{"format":"email","maxLength":200,"minLength":1,"type":"string"}`,
		schema + "properties nick":                                        `{"minLength":2,"pattern":"^[a-zA-Z0-9]+$","type":["string","null"]}`,
		schema + "properties level":                                       `{"enum":[1,2],"format":"int64","type":"integer"}`,
		schema + "properties rank":                                        `{"exclusiveMaximum":10,"format":"int64","minimum":0,"type":"integer"}`,
		schema + "properties share":                                       `{"exclusiveMinimum":0.5,"format":"double","type":"number"}`,
		schema + "properties terms":                                       `{"enum":[true],"type":"boolean"}`,
		schema + "properties items":                                       `{"items":{"$ref":"#/components/schemas/CheckedItemInput"},"maxItems":2,"minItems":1,"type":"array"}`,
		schema + "properties tags":                                        `{"items":{"maxLength":9,"minLength":1,"type":"string"},"type":["array","null"],"uniqueItems":true}`,
		schema + "properties labels":                                      `{"additionalProperties":{"minLength":1,"type":"string"},"maxProperties":3,"type":"object"}`,
		schema + "properties owner":                                       `{"$ref":"#/components/schemas/CheckedItemInput"}`,
		schema + "properties colour":                                      `{"type":"string"}`,
		schema + "properties timeout":                                     `{"format":"int64","type":"integer"}`,
		"components schemas CheckedItemInput":                             `{"additionalProperties":false,"properties":{"sku":{"maxLength":3,"minLength":3,"type":"string"}},"required":["sku"],"type":"object"}`,
		"components schemas StrictlyInput additionalProperties":           `false`,
		"components schemas LenientlyInput additionalProperties":          `null`,
		"components schemas InnerInput additionalProperties":              `null`,
		"paths /form post requestBody content multipart/form-data schema": `{"additionalProperties":false,"properties":{"name":{"maxLength":5,"minLength":1,"type":"string"}},"required":["name"],"type":"object"}`,
	} {
		if got := find(whole, strings.Fields(way)...); got != want {
			t.Errorf("%s:\n got %s\nwant %s", way, got, want)
		}
	}
}

// A document that describes a QUERY has the version 3.2.0, the first version with QUERY. If an older version is set, the route is an error.
func TestDocumentQUERY(t *testing.T) {
	r := router.New()
	r.QUERY("/people", bind.Handler(typed[Address, []Person], bind.Doc{Summary: "Search"}))
	whole := documented(t, r)
	for way, want := range map[string]string{
		"openapi":                         `"3.2.0"`,
		"paths /people query summary":     `"Search"`,
		"paths /people query operationId": `"query-people"`,
		"paths /people query requestBody content application/json schema": `{"$ref":"#/components/schemas/AddressInput"}`,
		"paths /people get": `null`,
	} {
		if got := find(whole, strings.Fields(way)...); got != want {
			t.Errorf("%s:\n got %s\nwant %s", way, got, want)
		}
	}
	r.GET("/people", bind.Handler(typed[Page, []Person]))
	for version, want := range map[string]string{
		"3.2.0": "", "3.3.0": "", "4.0.0": "",
		"3.1.0": `humafilo: describing QUERY /people (registered at `, "3.0.3": `OpenAPI 3.0.3 has no operations of QUERY: set the document's version to "3.2.0"`,
	} {
		document := info()
		document.OpenAPI = version
		added := 0
		document.OnAddOperation = append(document.OnAddOperation, func(*huma.OpenAPI, *huma.Operation) { added++ })
		err := humafilo.DocumentRoutes(r, document)
		if want == "" && (err != nil || added != 2 || document.Paths["/people"].Get == nil || document.Paths["/people"].Extensions["query"] == nil) {
			t.Errorf("%s: %v, %d operations added, %+v", version, err, added, document.Paths["/people"])
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", version, err, want)
		}
	}
}

// huma's own operations of QUERY are served, if they are Hidden.
func TestHiddenQUERY(t *testing.T) {
	r, api := newAPI()
	huma.Register(api, huma.Operation{Method: "QUERY", Path: "/people", Hidden: true}, func(_ context.Context, in *struct{ RawBody []byte }) (*text, error) {
		return &text{in.RawBody}, nil
	})
	s := serve(t, r.Serve)
	if got := ask(t, s, "QUERY /people", "who?", "Content-Type: text/plain"); got.status != 200 || got.body != "who?" {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

// A route that can't be described leads to an error that names the route.
func TestDocumentRoutesMistakes(t *testing.T) {
	type badTag struct {
		N int `query:"n" default:"low"`
	}
	type inShop struct {
		Shop int `path:"shop"`
	}
	type OtherInput struct {
		N int `json:"n"`
	}
	for _, c := range []struct {
		add  func(r *router.Router)
		want []string
	}{
		{func(r *router.Router) { r.Any("/a", bind.Handler(typed[struct{}, int])) }, []string{"humafilo: describing /a (registered at ", "openapi_test.go:", "it is for every method"}},
		{func(r *router.Router) { r.GET("/a", bind.Handler(typed[badTag, int])) }, []string{"humafilo: describing GET /a", "low"}},
		{func(r *router.Router) { r.GET("/shops/{id}", bind.Handler(typed[inShop, int])) }, []string{"humafilo: describing GET /shops/{id} (registered at ",
			`: the input's field Shop has the tag path:"shop", and the route has no wildcard {shop}`}},
		{func(r *router.Router) { r.PUT("/a", bind.Handler(typed[OtherInput, OtherInput])) }, []string{"humafilo: a request's schema and an answer's schema are both called OtherInput"}},
	} {
		r := router.New()
		c.add(r)
		err := humafilo.DocumentRoutes(r, info())
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		r.GET("/openapi.json", humafilo.OpenAPI(r, info()))
		if got := ask(t, serve(t, r.Serve), "GET /openapi.json", ""); got.status != 500 {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
}
