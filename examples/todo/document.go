package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/filohttp/filo"
	humafilo "github.com/filohttp/filo/contrib/huma"
	"github.com/filohttp/filo/router"
)

// What the operations' inputs and outputs are to huma.
type (
	addBody struct {
		Body newTodo
	}
	changeBody struct {
		idInput
		Body todoChange
	}
	pageAnswer struct {
		Body page
	}
	todoAnswer struct {
		Body todo
	}
	addedAnswer struct {
		Location string `header:"Location" doc:"The path of the new todo."`
		Body     todo
	}
	problem struct {
		Status int    `json:"status"`
		Title  string `json:"title"`
		Detail string `json:"detail,omitempty"`
		Errors []struct {
			In      string `json:"in,omitempty" enum:"body,query,path,header" doc:"Where the value is."`
			Pointer string `json:"pointer,omitempty" doc:"Its place in the body, as a JSON Pointer."`
			Name    string `json:"name,omitempty" doc:"The name of the parameter or header field."`
			Detail  string `json:"detail" doc:"What was expected."`
		} `json:"errors,omitempty" nullable:"false"`
	}
)

// newDocument describes the API.
func newDocument(r *router.Router) *huma.OpenAPI {
	config := huma.DefaultConfig("Todos", "1.0.0")
	config.Info.Description = "What is left to do. Errors are problem details (RFC 9457) for clients that accept JSON."
	// The document is made once, below; huma's own page of documentation loads scripts from elsewhere.
	config.OpenAPIPath, config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", "", nil
	api := humafilo.New(r, config)

	schema := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[problem](), true, "Problem")
	operation := func(id, method, path, summary string, status int, errors ...int) huma.Operation {
		op := huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, DefaultStatus: status}
		op.Responses = make(map[string]*huma.Response)
		for _, status := range errors {
			op.Responses[strconv.Itoa(status)] = &huma.Response{
				Description: http.StatusText(status),
				Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: schema}},
			}
		}
		return op
	}
	const all, one = "/api/todos", "/api/todos/{id}"
	humafilo.Document[listInput, pageAnswer](api, operation("list", "GET", all, "List todos", 200, 400, 503))
	humafilo.Document[addBody, addedAnswer](api, operation("add", "POST", all, "Add a todo", 201, 400, 409, 413, 415, 422, 503, 507))
	humafilo.Document[idInput, todoAnswer](api, operation("get", "GET", one, "Get a todo", 200, 400, 404, 503))
	humafilo.Document[changeBody, todoAnswer](api, operation("change", "PATCH", one, "Tick a todo, or give it another title",
		200, 400, 404, 413, 415, 422, 503, 507))
	humafilo.Document[idInput, struct{}](api, operation("remove", "DELETE", one, "Delete a todo", 204, 400, 404, 503, 507))
	return api.OpenAPI()
}

// addDocument adds the document, as JSON and as a page to read.
func addDocument(r *router.Router) error {
	document := newDocument(r)
	text, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("making the OpenAPI document: %w", err)
	}
	var html bytes.Buffer
	if err := docsTemplate.Execute(&html, newDocs(document)); err != nil {
		return fmt.Errorf("making the page of the OpenAPI document: %w", err)
	}
	r.GET("/openapi.json", func(c *filo.Ctx) error { return c.Bytes(http.StatusOK, "application/openapi+json", text) })
	r.GET("/docs", asset{"text/html; charset=utf-8", html.Bytes(), etag(html.Bytes())}.serve)
	return nil
}

var (
	//go:embed page/docs.html
	docsHTML     string
	docsTemplate = template.Must(template.New("docs").Parse(docsHTML))
)

// docs is what the page of the document shows.
type docs struct {
	Title, Description string
	Operations         []docsOperation
}

type docsOperation struct {
	Method, Path, Summary string
	Parameters            []*huma.Param
	Body                  []docsMember
	Answers               []docsAnswer
}

type docsMember struct {
	Name, Type string
	Required   bool
}

type docsAnswer struct {
	Status, Description string
	Members             []docsMember
}

func newDocs(document *huma.OpenAPI) docs {
	d := docs{Title: document.Info.Title, Description: document.Info.Description}
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		item := document.Paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Patch, item.Delete} {
			if op != nil {
				d.Operations = append(d.Operations, newDocsOperation(document, op))
			}
		}
	}
	return d
}

func newDocsOperation(document *huma.OpenAPI, op *huma.Operation) docsOperation {
	o := docsOperation{Method: op.Method, Path: op.Path, Summary: op.Summary, Parameters: op.Parameters}
	if op.RequestBody != nil {
		o.Body = members(document, op.RequestBody.Content)
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		if status < "400" {
			o.Answers = append(o.Answers, docsAnswer{status, op.Responses[status].Description, members(document, op.Responses[status].Content)})
		}
	}
	return o
}

// members lists what the object has that is JSON in content.
func members(document *huma.OpenAPI, content map[string]*huma.MediaType) (list []docsMember) {
	media := content["application/json"]
	if media == nil {
		return nil
	}
	schema := media.Schema
	if schema.Ref != "" {
		schema = document.Components.Schemas.SchemaFromRef(schema.Ref)
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		list = append(list, docsMember{name, typeOf(schema.Properties[name]), slices.Contains(schema.Required, name)})
	}
	return list
}

func typeOf(schema *huma.Schema) string {
	text := schema.Type
	if schema.Format != "" {
		text = schema.Format
	}
	if schema.MaxLength != nil {
		text += fmt.Sprintf(", up to %d characters", *schema.MaxLength)
	}
	return text
}
