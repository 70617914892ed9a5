// Package bind reads a request into a struct, and tells the client where each invalid value is and what was expected instead.
//
//	type Order struct {
//		Shop  int      `path:"shop"`
//		Dry   bool     `query:"dry"`
//		Key   string   `header:"Idempotency-Key"`
//		Items []Item   `json:"items"`
//	}
//
//	func create(c *filo.Ctx) error {
//		var order Order
//		if err := bind.All(c, &order, bind.Strict()); err != nil {
//			return err
//		}
//		…
//	}
//
// Handler turns a function with an input and an output into a handler that binds, answers and describes itself:
//
//	r.POST("/shops/{shop}/orders", bind.Handler(func(c *filo.Ctx, in Order) (Receipt, error) { … }, bind.Strict(), bind.Status(201)))
//
// # Which fields
//
// JSON follows the rules of encoding/json: a member's name is the name in the json tag, or the Go name. But in the bound struct itself,
// JSON fills no field that has only tags of other sources, and no file. In nested types, the tags of other sources have no effect.
//
// The other sources bind only exported fields that have their tag (path, query, header, cookie or form), so that clients can't
// set a field that wasn't meant for them. The tag holds the name; an empty tag means the Go name, and "-" counts as no tag. Names
// are case-sensitive, except those of header fields. The option comma, as in `query:"ids,comma"`, splits each value at its
// commas, as header fields with lists need it. A field may have several tags. Fields of embedded structs without a tag count as
// fields of the outer struct.
//
// # Which types
//
// Paths, queries, header fields, cookies and forms contain only text. bind converts the text to:
//
//   - a string, if the text is UTF-8; []byte takes any bytes (in JSON, []byte is base64)
//   - an integer in decimal, or a finite floating-point number, if it is in the type's range
//   - a bool: true, false, 1, 0, on, off, and the other forms of strconv.ParseBool
//   - a time.Duration such as 1m30s; a time.Time as in RFC 3339, or in the format of the tag layout: `layout:"2006-01-02"`
//   - any type with encoding.TextUnmarshaler
//   - a pointer to one of these, which is nil if there is no value
//   - a slice of these, which holds all values with the name; every other type gets the first value
//
// A *multipart.FileHeader or a []*multipart.FileHeader with a form tag is set to the uploaded files of that name, which can be
// read until the handler returns.
//
// Programming mistakes are errors without a status: an unsupported type, a file inside a type other than the struct itself, a tag on an
// unexported field, a path tag with a name that is no wildcard of the route, two fields with the same name in a tag other than json, and,
// except with All, a struct without any field that has the tag of the source. If several routes share a struct and not all have the
// wildcard, make the field a pointer.
//
// Tags of other frameworks that bind would otherwise silently ignore are programming mistakes, too: uri, param and params without the tag
// path (gin, echo, fiber), reqHeader without the tag header, binding (gin's rules) without a Validator or the tag required, and gin's
// collection_format without the option comma, and time_format without the tag layout. They are allowed next to bind's own tags.
//
// A field keeps its value if the request doesn't contain its name, so you can set defaults before binding. A number, bool, time or
// duration also keeps its value if the text is empty, since forms send empty text for inputs that weren't filled in. In a slice of these
// types, an empty text adds no element. Strict refuses such empty texts. Bound values, except files, are copies that remain valid after
// the handler returns.
//
// # What must be there
//
// A field with the tag `required:"true"` must be in the input. Its value doesn't matter: 0, false and "" count as present. If the
// field is missing, the detail of its error is "is required", and the status is the same as for a wrong value: 422 in a body, 400 elsewhere.
//
//   - In JSON, null counts as missing. The required members of a nested object, or of an object in a slice or map, are checked
//     only if the object is present. A type that decodes itself must check its own members.
//   - In text, the name must be there. A number, bool, time or duration also needs text that isn't empty.
//   - A file must have been uploaded.
//   - All checks every source: a field with several tags must be in at least one of them. JSON, Form and so on check only
//     the fields that have the tag of their source.
//
// To require a value other than zero, use a Validator.
//
// # Which values
//
// The following tags restrict a value. They have the names and meanings of JSON Schema, and also describe fields in OpenAPI
// documents:
//
//   - of a number: minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf
//   - of a string: minLength and maxLength, in characters; pattern, a regular expression that must match somewhere (write ^ and $ for
//     the whole), with patternDescription, as in "must be two letters"
//   - of either: enum, with commas between the values
//   - of a list: minItems, maxItems, uniqueItems:"true". All other tags on a list apply to each element.
//
// They apply to the value that was sent, as in JSON Schema: a default, a JSON null and an omitted input violate none of them. In a
// query or form, a field that was sent empty is a string of length 0. A Validator can check other rules, such as those about several
// fields or about missing input.
//
// # Costs
//
// A struct type is analysed when it is first bound, and the result is cached. Without errors, binding text takes some 100 ns for each
// field and allocates only the bound values. JSON takes as long as encoding/json, and about a quarter more with Strict or with
// required fields or rules, because the document is then scanned a second time. A body with errors is also scanned a second time,
// however many errors it has. All errors of a body of up to 256 KB are reported, but only the first error of a larger one.
//
// # Errors
//
// An invalid request yields an *Error, which the server answers with problem details, or an *filo.HTTPError, such as 413 for a
// body over its limit. After any error the struct may be partly filled, and must not be used.
//
// Each FieldError has a code, by which clients and ErrorHandlers can translate its detail, and parameters for some:
//
//   - required, unknown, repeated (given twice), empty, misspelt (name: how it is written in JSON), name (of a map's member), nested (too
//     deeply for the rules of lists)
//   - string, boolean, float, integer (minimum, maximum), range (a number that is too large), duration, time (layout), base64, object,
//     array, utf8: what the value must be
//   - minimum, maxLength and so on: the tag of a rule, which is also the name of its parameter; an enum of more than 256 bytes is left out
//   - invalid: the type's own decoder has returned an error, whose text is the detail
//   - malformed (line, column), depth (maximum), coding, type: what is wrong with a whole body, or a value of a kind that the field can't hold
//
// If a field has several values, the parameter "value" is the position of the wrong one, counted from 1. A large body's only error has the
// parameters line and column. A Validator defines its own codes.
package bind
