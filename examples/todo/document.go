package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/filohttp/filo"
	humafilo "github.com/filohttp/filo/contrib/huma"
	"github.com/filohttp/filo/router"
)

// newDocument returns the OpenAPI document of the API, generated from the routes.
func newDocument(r *router.Router) (*huma.OpenAPI, error) {
	document := &huma.OpenAPI{Info: &huma.Info{
		Title: "Todos", Version: "1.0.0",
		Description: "What is left to do. Errors are problem details (RFC 9457) for clients that accept JSON.",
	}}
	if err := humafilo.DocumentRoutes(r, document); err != nil {
		return nil, err
	}
	document.Paths["/api/todos"].Post.Responses["201"].Headers = map[string]*huma.Param{
		"Location": {Description: "The path of the new todo.", Schema: &huma.Schema{Type: huma.TypeString}},
	}
	return document, nil
}

// addDocument adds routes for the document, as JSON and as an HTML page.
func addDocument(r *router.Router) error {
	document, err := newDocument(r)
	if err != nil {
		return err
	}
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

// docs holds the values of the document's page.
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

// members lists the members of the JSON object that content describes.
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
