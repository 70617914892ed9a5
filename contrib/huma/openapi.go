package humafilo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/router"
)

// OpenAPI returns a handler that serves the document as JSON, with all routes of r that DocumentRoutes describes. The document is made at the
// first request, when all routes are registered. If the document is invalid, the handler returns an error, which is answered with 500.
//
//	r.GET("/openapi.json", humafilo.OpenAPI(r, &huma.OpenAPI{Info: &huma.Info{Title: "Shop", Version: "1.0.0"}}))
func OpenAPI(r *router.Router, document *huma.OpenAPI) filo.Handler {
	text := sync.OnceValues(func() ([]byte, error) {
		if err := DocumentRoutes(r, document); err != nil {
			return nil, err
		}
		return json.Marshal(document)
	})
	return func(c *filo.Ctx) error {
		text, err := text()
		if err != nil {
			return err
		}
		return c.Bytes(http.StatusOK, "application/openapi+json", text)
	}
}

// DocumentRoutes adds to an OpenAPI 3.1 document the routes of r whose handlers were made by bind.Handler. It describes parameters and bodies
// with bind's requirements, answers, and errors as problem details. It omits other routes, and the routes of routers that are mounted in r.
//
// Fields may have huma's tags. minimum, maxLength, pattern, enum and the other tags that package bind lists are also enforced for requests;
// doc, example, format and huma's other tags only describe the fields. The tag validate of contrib/validate is described, too, so its rules needn't be
// written twice: required, min, max, len, gt, gte, lt, lte, eq, oneof, unique, dive, and the string formats that JSON Schema has, such as
// email, url and uuid. A field is required if its rules refuse its zero value, unless SetDefaults sets it. The document leaves out other
// rules, and alternatives such as rgb|hsl.
//
// Defaults come from the input's SetDefaults and from the tag default. The schemas of request bodies have names that end in Input, since
// requests require fewer fields than answers have. A schema allows unknown members unless all handlers that read it are strict.
//
// OpenAPI has QUERY since version 3.2. A document without a version gets 3.2.0 if it describes a route with QUERY, and 3.1.0 otherwise. If an
// older version is set, a route with QUERY is an error. huma has no field for the operation of QUERY, so it is in PathItem.Extensions, under
// "query".
//
// Call DocumentRoutes once for a document. The document may have other content, and may be changed afterwards, for example to add a header
// field to an answer. The error names a route that can't be described, and the reason, such as a field with the tag path for which the route
// has no wildcard.
func DocumentRoutes(r *router.Router, document *huma.OpenAPI) error {
	if document.Components == nil {
		document.Components = &huma.Components{}
	}
	if document.Components.Schemas == nil {
		document.Components.Schemas = huma.NewMapRegistry(schemaPrefix, huma.DefaultSchemaNamer)
	}
	d := documenter{document: document, outputs: document.Components.Schemas, inputs: huma.NewMapRegistry(schemaPrefix, inputName),
		defaults: make(map[string]reflect.Value)}
	for _, route := range r.Routes() {
		op, ok := bind.Describe(route.Handler)
		if !ok {
			continue
		}
		if err := d.add(route, op); err != nil {
			return fmt.Errorf("humafilo: describing %s (registered at %s): %w", route.Pattern, route.Location, err)
		}
	}
	document.OpenAPI = cmp.Or(document.OpenAPI, "3.1.0")
	return d.finish()
}

const schemaPrefix = "#/components/schemas/"

// inputName returns huma's name for a type, with a suffix that distinguishes inputs from outputs.
func inputName(t reflect.Type, hint string) string {
	return strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Input") + "Input"
}

// problemDetails is the body of error responses.
type problemDetails struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"`
	Errors []struct {
		In      string         `json:"in,omitempty" doc:"Where the value is: body, form, header, cookie, query or path."`
		Pointer string         `json:"pointer,omitempty" doc:"Its place in a JSON body, as a JSON Pointer."`
		Name    string         `json:"name,omitempty" doc:"The name of the parameter, header field, cookie or form field."`
		Detail  string         `json:"detail" doc:"What was expected."`
		Code    string         `json:"code,omitempty" doc:"The rule that the value breaks."`
		Params  map[string]any `json:"params,omitempty" doc:"What the rule is about, by name."`
	} `json:"errors,omitempty" nullable:"false"`
	_ struct{} `additionalProperties:"true"`
}

// documenter adds operations to a document.
type documenter struct {
	document        *huma.OpenAPI
	outputs, inputs huma.Registry
	// lenient are the schemas of the bodies of operations that aren't strict. They and the schemas in them allow unknown members.
	lenient []*huma.Schema
	// defaults has each input that has defaults, with its defaults set. The key is the reference to the schema of the input's body.
	defaults map[string]reflect.Value
}

// add adds a route. If huma panics, for example because it can't parse a tag, add returns the panic as an error.
func (d *documenter) add(route router.RouteInfo, described bind.Operation) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v", fault)
		}
	}()
	if route.Method == "" {
		return fmt.Errorf("it is for every method, and OpenAPI needs one: register it with GET, POST and so on")
	}
	path, wildcards := templateOf(route.Path)
	doc := described.Doc
	op := &huma.Operation{
		OperationID: doc.ID, Method: route.Method, Path: path, Summary: doc.Summary, Description: doc.Description, Tags: doc.Tags,
		Deprecated: doc.Deprecated, Security: doc.Security, Responses: make(map[string]*huma.Response),
	}
	if op.OperationID == "" {
		op.OperationID = huma.GenerateOperationID(route.Method, path, struct{}{})
	}
	if err := d.parameters(op, described, wildcards); err != nil {
		return err
	}
	d.body(op, described)
	d.responses(op, described)
	if op.Method == "QUERY" {
		return d.addQuery(op)
	}
	d.document.AddOperation(op)
	return nil
}

// addQuery adds an operation of QUERY, a method that huma doesn't support.
func (d *documenter) addQuery(op *huma.Operation) error {
	document := d.document
	document.OpenAPI = cmp.Or(document.OpenAPI, "3.2.0")
	if version := document.OpenAPI; strings.HasPrefix(version, "3.0") || strings.HasPrefix(version, "3.1") {
		return fmt.Errorf(`OpenAPI %s has no operations of QUERY: set the document's version to "3.2.0"`, version)
	}
	if document.Paths == nil {
		document.Paths = make(map[string]*huma.PathItem)
	}
	item := document.Paths[op.Path]
	if item == nil {
		item = new(huma.PathItem)
		document.Paths[op.Path] = item
	}
	if item.Extensions == nil {
		item.Extensions = make(map[string]any)
	}
	item.Extensions["query"] = op
	for _, added := range document.OnAddOperation {
		added(document, op)
	}
	return nil
}

// parameters describes the fields that aren't in the body. Each wildcard of the route is a parameter.
func (d *documenter) parameters(op *huma.Operation, described bind.Operation, wildcards []string) error {
	defaults := defaultsOf(described.Input)
	for _, f := range described.Fields {
		if f.In == "body" || f.In == "form" {
			continue
		}
		param := &huma.Param{Name: f.Name, In: f.In, Schema: d.text(f)}
		param.Description, param.Schema.Description = param.Schema.Description, ""
		if param.Schema.Default == nil {
			param.Schema.Default = defaultOf(defaults, f.Struct.Name)
		}
		param.Required = f.Required || demandedOf(described, f) && param.Schema.Default == nil
		if f.Comma && f.In == "query" {
			param.Style, param.Explode = "form", new(bool)
		}
		if f.In == "path" {
			i := slices.Index(wildcards, f.Name)
			switch {
			case i < 0 && f.Required:
				return fmt.Errorf("the input's field %s has the tag path:%q, and the route has no wildcard {%s}", f.Struct.Name, f.Name, f.Name)
			case i < 0:
				continue // the wildcard of another route with this input
			}
			wildcards = slices.Delete(wildcards, i, i+1)
			param.Required = true
		}
		op.Parameters = append(op.Parameters, param)
	}
	for _, name := range wildcards {
		op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}})
	}
	return nil
}

// text returns the schema of a field that is bound from text, because for some types the text that bind parses differs from the text in
// encoding/json.
func (d *documenter) text(f bind.Field) *huma.Schema {
	t := f.Struct.Type
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	f.Struct.Type = t
	switch {
	case f.File && t.Kind() == reflect.Slice:
		return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString, Format: "binary"}, Description: f.Struct.Tag.Get("doc")}
	case f.File:
		return &huma.Schema{Type: huma.TypeString, Format: "binary", Description: f.Struct.Tag.Get("doc")}
	case t == reflect.TypeFor[time.Duration](), t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		f.Struct.Type = reflect.TypeFor[string]()
	}
	schema := huma.SchemaFromField(d.inputs, f.Struct, f.Name)
	schema.Nullable = false
	switch layout := f.Struct.Tag.Get("layout"); {
	case layout == "2006-01-02":
		schema.Format = "date"
	case layout != "":
		schema.Format = ""
	case schema.Format == "date-time-http":
		schema.Format = "date-time" // bind parses RFC 3339 everywhere
	}
	describeRules(schema, f.Struct)
	schema.PrecomputeMessages()
	return schema
}

// body describes the body: a JSON object, a form, or a choice of the two.
func (d *documenter) body(op *huma.Operation, described bind.Operation) {
	var members []bind.Field
	form := &huma.Schema{Type: huma.TypeObject, Properties: make(map[string]*huma.Schema)}
	if described.Strict {
		form.AdditionalProperties = false
	}
	withFile, defaults := false, defaultsOf(described.Input)
	for _, f := range described.Fields {
		switch f.In {
		case "body":
			members = append(members, f)
		case "form":
			form.Properties[f.Name] = d.text(f)
			if f.Required || demandedOf(described, f) && defaultOf(defaults, f.Struct.Name) == nil {
				form.Required = append(form.Required, f.Name)
			}
			withFile = withFile || f.File
		}
	}
	body := &huma.RequestBody{Content: make(map[string]*huma.MediaType)}
	if len(members) > 0 {
		schema := d.object(described, members)
		body.Content["application/json"] = &huma.MediaType{Schema: schema}
		body.Required = slices.ContainsFunc(members, func(f bind.Field) bool {
			return f.Required || demandedOf(described, f) && defaultOf(defaults, f.Struct.Name) == nil
		})
		d.defaults[schema.Ref] = defaults
		if !described.Strict {
			d.lenient = append(d.lenient, schema)
		}
	}
	if len(form.Properties) > 0 {
		body.Content["multipart/form-data"] = &huma.MediaType{Schema: form}
		if !withFile {
			body.Content["application/x-www-form-urlencoded"] = &huma.MediaType{Schema: form}
		}
		body.Required = body.Required || len(form.Required) > 0
	}
	if len(body.Content) > 0 {
		op.RequestBody = body
	}
}

// object returns the schema of a JSON body: the input's schema, or the schema of a struct with only the fields that come from the body.
func (d *documenter) object(described bind.Operation, members []bind.Field) *huma.Schema {
	if len(members) == len(described.Fields) {
		return d.inputs.Schema(described.Input, true, "Body")
	}
	fields, defaults := make([]reflect.StructField, len(members)), defaultsOf(described.Input)
	for i, f := range members {
		_, options, _ := strings.Cut(f.Struct.Tag.Get("json"), ",")
		required := ""
		if !f.Required && (len(sourcesOf(described, f)) > 1 || defaultOf(defaults, f.Struct.Name) != nil) { // a field that another source or a default can set may be missing in the body
			required = `required:"false" `
		}
		fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: f.Struct.Type,
			Tag: reflect.StructTag(fmt.Sprintf(`json:%q %s`, strings.TrimSuffix(f.Name+","+options, ","), required)) + f.Struct.Tag}
	}
	return d.inputs.Schema(reflect.StructOf(fields), true, huma.DefaultSchemaNamer(described.Input, op(described)))
}

// op returns a name for the body of an operation whose input type has no name.
func op(described bind.Operation) string {
	if id := described.Doc.ID; id != "" {
		return strings.ToUpper(id[:1]) + id[1:]
	}
	return "Body"
}

// responses describes answers and errors.
func (d *documenter) responses(op *huma.Operation, described bind.Operation) {
	for _, status := range described.Statuses {
		response := &huma.Response{Description: http.StatusText(status)}
		if described.Output != nil && status != http.StatusNoContent {
			response.Content = make(map[string]*huma.MediaType)
			for _, mediaType := range described.MediaTypes {
				response.Content[mediaType] = &huma.MediaType{Schema: d.outputs.Schema(described.Output, true, "Output")}
			}
		}
		op.Responses[strconv.Itoa(status)] = response
	}
	for _, status := range described.Errors {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status), Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: d.outputs.Schema(reflect.TypeFor[problemDetails](), true, "")},
		}}
	}
}

// sourcesOf returns the sources that can set a field. All kinds of bodies are one source.
func sourcesOf(described bind.Operation, f bind.Field) (sources []string) {
	for _, each := range described.Fields {
		in := strings.Replace(each.In, "form", "body", 1)
		if each.Struct.Name == f.Struct.Name && each.Struct.Tag == f.Struct.Tag && !slices.Contains(sources, in) {
			sources = append(sources, in)
		}
	}
	return sources
}

// demandedOf reports whether the validator refuses a request without this field, because no other source can set it.
func demandedOf(described bind.Operation, f bind.Field) bool {
	return demanded(f.Struct) && len(sourcesOf(described, f)) == 1
}

// finish adds the inputs' schemas to the document. It replaces huma's requirements, which include all members without omitempty, by those of
// bind and the validator. A schema forbids unknown members if all handlers that read it are strict.
func (d *documenter) finish() error {
	schemas := d.outputs.Map()
	for name, schema := range d.inputs.Map() {
		if _, taken := schemas[name]; taken {
			return fmt.Errorf("humafilo: a request's schema and an answer's schema are both called %s: rename one of the types", name)
		}
		if schema.Type == huma.TypeObject {
			demand(schema, d.inputs.TypeFromRef(schemaPrefix+name), d.defaults[schemaPrefix+name])
		}
	}
	seen := make(map[*huma.Schema]bool)
	for _, schema := range d.lenient {
		d.allow(schema, seen)
	}
	maps.Copy(schemas, d.inputs.Map())
	return nil
}

// allow makes a schema, and all schemas in it, allow unknown members.
func (d *documenter) allow(schema *huma.Schema, seen map[*huma.Schema]bool) {
	if schema != nil && schema.Ref != "" {
		schema = d.inputs.SchemaFromRef(schema.Ref)
	}
	if schema == nil || seen[schema] {
		return
	}
	seen[schema] = true
	if values, ok := schema.AdditionalProperties.(*huma.Schema); ok {
		d.allow(values, seen)
	} else if schema.Type == huma.TypeObject {
		schema.AdditionalProperties = nil
	}
	d.allow(schema.Items, seen)
	for _, property := range schema.Properties {
		d.allow(property, seen)
	}
}

// demand makes an object's schema require the members that bind and the validator require. bind treats null as a missing value.
func demand(schema *huma.Schema, t reflect.Type, defaults reflect.Value) {
	schema.Required = nil
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		name = cmp.Or(name, f.Name)
		property := schema.Properties[name]
		if property == nil || slices.Contains(schema.Required, name) {
			continue
		}
		describeRules(property, f)
		property.PrecomputeMessages()
		required := f.Tag.Get("required")
		if required == "true" || required == "" && demanded(f) && defaultOf(defaults, f.Name) == nil {
			schema.Required = append(schema.Required, name)
			property.Nullable = false
		}
	}
}

// defaultsOf returns an input with its defaults set, or an invalid Value if the type has no SetDefaults.
func defaultsOf(t reflect.Type) reflect.Value {
	input := reflect.New(t)
	defaulter, ok := input.Interface().(interface{ SetDefaults() })
	if !ok {
		return reflect.Value{}
	}
	defaulter.SetDefaults()
	return input.Elem()
}

// defaultOf returns the default of the field with the name, or nil if it has none.
func defaultOf(defaults reflect.Value, name string) any {
	if !defaults.IsValid() {
		return nil
	}
	field, ok := defaults.Type().FieldByName(name)
	if !ok {
		return nil // hidden by another field of the same name in Go
	}
	value, err := defaults.FieldByIndexErr(field.Index)
	for err == nil && value.Kind() == reflect.Pointer && !value.IsNil() {
		value = value.Elem()
	}
	if err != nil || value.IsZero() {
		return nil
	}
	if d, ok := value.Interface().(time.Duration); ok {
		return d.String()
	}
	return value.Interface()
}

// templateOf returns OpenAPI's template for a router's path, and the names of its wildcards.
func templateOf(path string) (template string, names []string) {
	var b strings.Builder
	for len(path) > 0 {
		if path[0] != '{' {
			b.WriteByte(path[0])
			path = path[1:]
			continue
		}
		end := closing(path)
		name, _, _ := strings.Cut(strings.TrimSuffix(path[1:end], "..."), ":")
		if name != "$" {
			names = append(names, name)
			b.WriteString("{" + name + "}")
		}
		path = path[end+1:]
	}
	return b.String(), names
}

// closing returns the index of the brace that closes the brace at the beginning of text. It counts braces, because constraints may contain them.
func closing(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(text) - 1
}
