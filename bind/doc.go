// Package bind reads a request into a struct, and says of every value that doesn't fit where it is and what was expected.
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
// Handler does that for a function with an input and an output, and makes a handler of it that describes itself:
//
//	r.POST("/shops/{shop}/orders", bind.Handler(func(c *filo.Ctx, in Order) (Receipt, error) { … }, bind.Strict(), bind.Status(201)))
//
// # Which fields
//
// JSON goes by the rules of encoding/json: the name is that of the json tag, or the Go name.
//
// The others bind exported fields that have their tag (path, query, header, cookie or form), and no others, so that no client can set
// what wasn't meant for it. The tag holds the name, the Go name if that is empty, and "-" is as no tag; names are
// case-sensitive but for those of header fields. The option comma, as in `query:"ids,comma"`, splits each value at its commas,
// as lists in header fields are written. A field may have several tags. Fields of embedded structs without a tag count as the
// outer struct's own.
//
// # Which types
//
// Text, which is all that paths, queries, header fields, cookies and forms have, becomes:
//
//   - a string, if it is UTF-8; []byte, whatever it is (in JSON that is base64)
//   - an integer, in decimal, or a floating-point number, if it is in the type's range and finite
//   - a bool: true, false, 1, 0, on, off, and what else strconv.ParseBool takes
//   - a time.Duration such as 1m30s; a time.Time as in RFC 3339, or as the tag layout says: `layout:"2006-01-02"`
//   - any type with encoding.TextUnmarshaler
//   - a pointer to one of these, which is nil if there is no value
//   - a slice of these, with all values of the name; anything else gets the first value
//
// A *multipart.FileHeader or a []*multipart.FileHeader with a form tag gets the files of that name, which can be read until
// the handler returns.
//
// What is the programmer's mistake is an error without a status: another type, a tag on a field that isn't exported, and, but for
// All, a struct none of whose fields has the tag of the source that it is bound from.
//
// A field whose name the request doesn't have stays as it is, so defaults can be set before. So does a number, bool, time or
// duration whose text is empty, as forms send it for inputs that weren't filled in, unless Strict is given. Nothing that is
// bound is borrowed, but files.
//
// # What must be there
//
// A field with the tag `required:"true"` must be in the input, whatever its value: 0, false and "" are there. If it isn't, the
// detail of its error is "is required", and the status that of a wrong value: 422 in a body, 400 elsewhere.
//
//   - In JSON, null is no value. The members of an object are asked for if the object is there, also in slices and maps; a
//     type that decodes itself sees to its own.
//   - In text, the name must be there. A number, bool, time or duration also needs text that isn't empty.
//   - A file must have been sent.
//   - All asks every source: a field with several tags must come from one of them. JSON, Form and the others ask for the
//     fields of their own tag.
//
// That a value isn't zero is another rule, and a Validator's.
//
// # Costs
//
// What there is to know of a struct is worked out when it is first bound, and kept. Without errors, to bind text takes some 100 ns
// for each field and allocates nothing but what is bound; JSON takes what encoding/json takes, and about a quarter more with
// Strict, or if something in it is required, since the document is gone through once more. A body with errors is gone through once more too, however many it has, and up
// to 256 KB all of them are told; of a larger one the first.
//
// # Errors
//
// What the client did wrong is an *Error, which the server answers with problem details, or an *filo.HTTPError such as 413 for
// a body over its limit. After any error the struct may hold some of the values, and mustn't be used.
package bind
