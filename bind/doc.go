// Package bind reads a request into a struct, and tells the client for each invalid value where it is and what was expected.
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
// JSON follows the rules of encoding/json: a member's name is the json tag's, or the Go name. But in the struct itself, JSON fills no field
// that has only tags of other sources, and no file. Inside of other types the tags of other sources mean nothing.
//
// The other sources bind only exported fields that have their tag (path, query, header, cookie or form), so that no client can
// set a field that wasn't meant for it. The tag holds the name; an empty tag means the Go name, and "-" counts as no tag. Names
// are case-sensitive, except those of header fields. The option comma, as in `query:"ids,comma"`, splits each value at its
// commas, as in header fields that hold lists. A field may have several tags. Fields of embedded structs without a tag count as
// fields of the outer struct.
//
// # Which types
//
// Paths, queries, header fields, cookies and forms contain only text. It is converted to:
//
//   - a string, if the text is UTF-8; []byte takes any bytes (in JSON, []byte is base64)
//   - an integer in decimal, or a finite floating-point number, if it is in the type's range
//   - a bool: true, false, 1, 0, on, off, and the other forms of strconv.ParseBool
//   - a time.Duration such as 1m30s; a time.Time as in RFC 3339, or in the format of the tag layout: `layout:"2006-01-02"`
//   - any type with encoding.TextUnmarshaler
//   - a pointer to one of these, which is nil if there is no value
//   - a slice of these, with all values of the name; every other type gets the first value
//
// A *multipart.FileHeader or a []*multipart.FileHeader with a form tag gets the files of that name, which can be read until the
// handler returns.
//
// Programming mistakes are errors without a status: an unsupported type, a file inside a type other than the struct itself, a tag on an
// unexported field, a tag path whose name no wildcard of the route has, two fields with the same name in a tag other than json, and, except
// with All, a struct without any field that has the tag of the source. If several routes share a struct and not all have the wildcard, make
// the field a pointer.
//
// Tags of other frameworks are such mistakes, too, where bind would silently ignore them: uri, param and params without the tag path (gin,
// echo, fiber), reqHeader without the tag header, and binding (gin's rules) without a Validator or the tag required. They may stay beside
// bind's own tags.
//
// A field keeps its value if the request doesn't have its name, so you can set defaults before binding. The same holds for a number, bool,
// time or duration whose text is empty, as forms send it for inputs that weren't filled in. A slice of such values gets no element for an
// empty text. Strict refuses the empty text. Bound values are copies, not borrowed, except files.
//
// # What must be there
//
// A field with the tag `required:"true"` must be in the input. Its value doesn't matter: 0, false and "" count as present. If the
// field is missing, the detail of its error is "is required", and the status is the same as for a wrong value: 422 in a body, 400 elsewhere.
//
//   - In JSON, null counts as missing. The members of an object are required only if the object is there, also in slices and maps.
//     A type that decodes itself must check its own members.
//   - In text, the name must be there. A number, bool, time or duration also needs text that isn't empty.
//   - A file must have been sent.
//   - All looks at every source: a field with several tags must come from at least one of them. JSON, Form and the others require
//     only the fields that have their own tag.
//
// To require a value other than zero, use a Validator.
//
// # Which values
//
// These tags, which also describe fields in OpenAPI documents, say what a value must be, in the words of JSON Schema:
//
//   - of a number: minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf
//   - of a string: minLength and maxLength, in characters; pattern, a regular expression that must match somewhere (write ^ and $ for
//     the whole), with patternDescription, as in "must be two letters"
//   - of either: enum, with commas between the values
//   - of a list: minItems, maxItems, uniqueItems:"true". All other tags are for each element of a list.
//
// They apply to what was sent, as in JSON Schema: a default, JSON's null and an input that is left out break none. In a query or form a
// field that was sent empty is a string of length 0. Other rules, such as those about several fields or about missing input, are for a
// Validator.
//
// # Costs
//
// A struct type is analysed when it is first bound, and the result is kept. Without errors, binding text takes some 100 ns for
// each field and allocates only the bound values. JSON takes as long as encoding/json, and about a quarter more with Strict or
// with required fields or rules, because the document is then scanned a second time. A body with errors is also scanned a second time,
// however many errors it has. Up to 256 KB all errors are reported; of a larger body only the first.
//
// # Errors
//
// An invalid request yields an *Error, which the server answers with problem details, or an *filo.HTTPError, such as 413 for a
// body over its limit. After any error the struct may be partly filled, and must not be used.
//
// Each FieldError has a code, by which clients and ErrorHandlers can translate its detail, and parameters for some:
//
//   - required, unknown, repeated (given twice), empty, misspelt (name: how it is written in JSON), name (of a map's member)
//   - string, boolean, float, integer (minimum, maximum), range (a number that is too large), duration, time (layout), base64, object,
//     array, utf8: what the value must be
//   - minimum, maxLength and so on: the tag of a rule, which is also the name of its parameter; an enum of more than 256 bytes isn't in it
//   - invalid: the error of a type's own decoder, as it is
//   - malformed (line, column), depth (maximum), coding, type: what is wrong with a whole body, or a value of a kind that the field can't hold
//
// If a field has several values, the parameter value is the number of the wrong one. A large body's only error has the parameters line and
// column. A Validator has codes of its own.
package bind
