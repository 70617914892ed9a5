package bind

import (
	"strconv"
	"strings"

	"github.com/filohttp/filo"
)

const (
	// maxErrors is how many errors are collected. A developer fixes a few at a time, and the limit keeps the answer to a few KB even if
	// an attacker sends a body full of errors.
	maxErrors = 50
	// maxName is the maximum number of bytes of a pointer or a name in an answer, since a client may have made it up. maxDetail is the
	// maximum for a detail, which may be the error of a type's own decoder.
	maxName   = 256
	maxDetail = 256
)

// FieldError describes one invalid value of a request. The client sees it.
type FieldError struct {
	// In is the value's source: "body", "form" (of either media type), "query", "path", "header" or "cookie".
	In string `json:"in,omitempty"`
	// Pointer is the value's place in a JSON body as a JSON Pointer (RFC 6901), such as "/items/0/name". For the whole body it is
	// "", which is omitted.
	Pointer string `json:"pointer,omitempty"`
	// Name is the name of the parameter, header field or form field.
	Name string `json:"name,omitempty"`
	// Detail says in English what was expected, such as "must be an integer from 0 to 255".
	Detail string `json:"detail"`
	// Code names the rule that the value breaks, for programs and translations, such as "integer": see the package's documentation. It
	// is "" if a Validator sets none. The codes of bind itself are stable across versions.
	Code string `json:"code,omitempty"`
	// Params holds the values that occur in Detail, by name, such as {"minimum": 0, "maximum": 255}. The map may be shared, and must not be
	// modified.
	Params map[string]any `json:"params,omitempty"`

	// Field is the path of the Go field, such as "Address.Street", "Items[2].Name" or "Labels[colour]". It isn't sent. A
	// Validator sets Field and leaves In, Pointer and Name empty: bind fills them in from the field's source.
	Field string `json:"-"`
}

// flaw describes why a value is invalid: see FieldError. Its code is "" if the value is valid.
type flaw struct {
	code, detail string
	params       map[string]any
}

// in returns f, which says where the value is, completed with the flaw.
func (w flaw) in(f FieldError) FieldError {
	f.Code, f.Detail, f.Params = w.code, w.detail, w.params
	return f
}

// The flaws that don't depend on the value's type.
var (
	isRequired = flaw{code: "required", detail: "is required"}
	isUnknown  = flaw{code: "unknown", detail: "isn't known here"}
	isRepeated = flaw{code: "repeated", detail: "is there more than once"}
)

// String returns the value's place and the detail in one line.
func (f FieldError) String() string {
	text := f.In
	if place := f.Name + f.Pointer; place != "" {
		text = strings.TrimSpace(text + " " + strconv.Quote(place))
	}
	if text == "" {
		return f.Detail
	}
	return text + ": " + f.Detail
}

// covers reports whether f is about the same value as other, or about a value that contains it. It ignores the case of JSON's names.
func (f FieldError) covers(other FieldError) bool {
	if f.In != other.In || f.Name != other.Name || len(other.Pointer) < len(f.Pointer) {
		return false
	}
	pointer, below := other.Pointer[:len(f.Pointer)], other.Pointer[len(f.Pointer):]
	return strings.EqualFold(pointer, f.Pointer) && (below == "" || below[0] == '/')
}

// Error holds all errors in a client's request. The server treats it as an *filo.HTTPError, whose problem details contain Fields
// as the member errors:
//
//	{"status": 422, "title": "Unprocessable Content", "detail": "body \"/age\": must be an integer from 0 to 255", "errors":
//	[{"in": "body", "pointer": "/age", "detail": "must be an integer from 0 to 255", "code": "integer", "params": {"minimum": 0, "maximum": 255}}]}
type Error struct {
	// Status is 400 for a malformed body and for invalid values in the path, the query, header fields and cookies, 415 for an
	// unexpected media type, and 422 for invalid values in a well-formed body and for errors of a Validator.
	Status int
	// Fields are the errors, at most 50, in the order of the document or of the struct's fields.
	Fields []FieldError
	// More reports that there are further errors.
	More bool
	// Err is the cause, if there is one. The server logs it and never shows it to the client.
	Err error
}

// Error returns the status and the first field error in one line, with the number of further errors.
func (e *Error) Error() string { return e.HTTPError().Error() }

// Unwrap returns the result of HTTPError, so that errors.As finds it.
func (e *Error) Unwrap() error { return e.HTTPError() }

// HTTPError returns the error that the server turns into the response.
func (e *Error) HTTPError() *filo.HTTPError {
	return &filo.HTTPError{
		Status:     e.Status,
		Detail:     e.detail(),
		Extensions: map[string]any{"errors": e.Fields},
		Err:        e.Err,
	}
}

// detail returns the first error, for clients that are answered in text, and the number of further errors.
func (e *Error) detail() string {
	if len(e.Fields) == 0 {
		return ""
	}
	text := e.Fields[0].String()
	switch more := len(e.Fields) - 1; {
	case e.More:
		text += " (and more errors)"
	case more == 1:
		text += " (and 1 more error)"
	case more > 1:
		text += " (and " + strconv.Itoa(more) + " more errors)"
	}
	return text
}

// problems collects errors.
type problems struct{ Error }

// add adds an error. The argument status is the response's status if this is the only error. add reports whether there was room: if not, the
// caller needn't look for further errors. If errors have different statuses, the lowest wins, so 400, for input that can't be parsed, comes
// before 422.
func (p *problems) add(status int, field FieldError) bool {
	if p.Status == 0 || status < p.Status {
		p.Status = status
	}
	if len(p.Fields) == maxErrors {
		p.More = true
		return false
	}
	field.Pointer, field.Name, field.Detail = cut(field.Pointer, maxName), cut(field.Name, maxName), cut(field.Detail, maxDetail)
	p.Fields = append(p.Fields, field)
	return true
}

// err returns the collected errors, nil if there are none.
func (p *problems) err() error {
	if len(p.Fields) == 0 {
		return nil
	}
	e := p.Error
	return &e
}

// cut shortens a text that is longer than size bytes, and adds an ellipsis. Bytes that aren't UTF-8 become U+FFFD, including those
// of a character that was cut in two.
func cut(text string, size int) string {
	if len(text) > size {
		text = text[:size] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
