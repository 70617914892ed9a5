package bind

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"unicode/utf8"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// maxDepth is how many levels of arrays and objects a JSON body may have. Real documents stay far below that limit. Decoders, and code
// that walks the decoded value, recurse once for each level: 1000 levels need some 100 KB of stack. With the 10,000 levels that
// encoding/json allows, a body of 10 KB would need 1 MB.
const maxDepth = 1000

// maxExplained is the size in bytes of the largest body in which bind searches for all errors. The search takes several times as long
// as decoding, so without a limit clients could waste a server's time.
const maxExplained = 256 << 10

// mustBeJSON is the detail of the error for another Content-Type.
const mustBeJSON = "must be application/json, or end in +json"

// json binds all fields from a JSON body, except those that have only tags of other sources.
func (b *binding) json(v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("bind: the target must be a pointer, not a %T", v)
	}
	outermost := target.Type().Elem()
	for outermost.Kind() == reflect.Pointer && outermost.Name() == "" {
		outermost = outermost.Elem()
	}
	if outermost.Kind() != reflect.Struct {
		return b.jsonInto(v)
	}
	o := objectOf(outermost)
	if len(o.others) > 0 && !o.hasOwn() && !o.readsItself && !b.all {
		return fmt.Errorf("bind: each field of %v is for another source than JSON, so nothing would be bound: write json:\"name\" beside form:\"name\", and so on", outermost)
	}
	// encoding/json ignores the tags of other sources, so it may set these fields by their Go names. Their values are saved
	// before decoding and restored afterwards.
	before := make([]reflect.Value, len(o.others))
	for i, index := range o.others {
		if field, ok := reach(target, index); ok {
			before[i] = reflect.New(field.Type()).Elem()
			before[i].Set(field)
			field.SetZero() // otherwise the decoder would modify the slice, map or value that the field refers to
		}
	}
	err := b.jsonInto(v)
	for i, index := range o.others {
		field, ok := reach(target, index)
		switch {
		case !ok:
		case before[i].IsValid():
			field.Set(before[i])
		default:
			field.SetZero()
		}
	}
	return err
}

// reach follows target, a pointer to a struct, perhaps through several pointers, and returns the struct's field at index. It
// reports false if a pointer on the way is nil.
func reach(target reflect.Value, index []int) (field reflect.Value, ok bool) {
	for target.Kind() == reflect.Pointer {
		if target.IsNil() {
			return field, false
		}
		target = target.Elem()
	}
	field, err := target.FieldByIndexErr(index)
	return field, err == nil
}

// jsonInto binds from a JSON body, without the protection that json gives to fields of other sources.
func (b *binding) jsonInto(v any) error {
	needed := presenceOf(reflect.TypeOf(v).Elem())
	if needed.err != nil {
		return needed.err
	}
	if needed.unchecked != nil && b.option.validator == nil {
		return needed.unchecked
	}
	b.bound[inBody], b.required = true, needed.fields
	body, err := b.jsonBody()
	if err != nil {
		return err
	}
	if b.option.strict {
		err = json.Unmarshal(body, v)
	} else {
		err = b.c.DecodeJSON(body, v)
	}
	if err == nil && !b.option.strict && !needed.within {
		return nil
	}
	if err != nil {
		if wrong := malformation(body); wrong.code != "" {
			return b.malformed(wrong, err)
		}
	}
	w := walker{body: body, strict: b.option.strict, explain: err != nil && len(body) <= maxExplained}
	w.require = needed.within && (err == nil || w.explain)
	if w.strict || w.explain || w.require {
		// These capacities suffice for usual documents.
		w.path, w.seen = make([]step, 0, 8), make([]int, 0, 32)
		w.value(reflect.TypeOf(v).Elem(), nil)
	}
	// The body is bound before any other source, so this assignment overwrites no errors.
	b.problems, b.present = w.problems, w.present
	if err != nil && b.option.validator != nil {
		// A decoder may stop at the first error. But the validator must see all values except the refused ones, so the body is decoded
		// again with null in place of the refused values.
		b.partial = !w.explain || json.Unmarshal(w.withoutRefused(), v) != nil
	}
	if err != nil && (!w.explain || len(b.problems.Fields) == 0) {
		b.problems.Err = err
		b.problems.add(422, firstError(err, body).in(FieldError{In: "body"}))
	}
	return nil
}

// firstError returns the flaw that the decoder's error describes. The body is well-formed.
func firstError(err error, body []byte) flaw {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return flaw{code: "type", detail: "doesn't have the expected form"}
	}
	return expected(wrong.Type, nil, err).at(position(wrong.Offset, body))
}

// jsonBody returns the body, borrowed, after the checks that don't need decoding.
func (b *binding) jsonBody() ([]byte, error) {
	empty := flaw{code: "empty", detail: "must be JSON, and is empty"}
	if b.c.Request.ContentLength() == 0 {
		return nil, malformed(empty, nil)
	}
	if !syntax.IsJSON(b.c.Request.Header.GetBytes("Content-Type")) {
		return nil, unexpectedType(mustBeJSON)
	}
	body, err := b.c.Body()
	switch {
	case err != nil:
		return nil, err
	case len(body) == 0:
		return nil, malformed(empty, nil)
	case !utf8.Valid(body):
		return nil, b.malformed(mustBeUTF8, nil)
	case deeper(body, maxDepth):
		return nil, malformed(flaw{code: "depth", detail: fmt.Sprintf("must have at most %d levels of arrays and objects", maxDepth),
			params: map[string]any{"maximum": maxDepth}}, nil)
	}
	return body, nil
}

// malformed is like the function malformed, but if the body is compressed, the error says so.
func (b *binding) malformed(wrong flaw, cause error) error {
	if b.encoded() {
		return unsupportedCoding(b.c)
	}
	return malformed(wrong, cause)
}

// encoded reports whether the request declares a compressed body. Middleware that decompresses a body removes the
// Content-Encoding field.
func (b *binding) encoded() bool {
	coding := b.c.Request.Header.GetBytes("Content-Encoding")
	return len(coding) > 0 && !syntax.EqualFold(coding, "identity")
}

// unsupportedCoding returns the error for a body that nothing has decompressed, and tells the client to send it uncompressed.
func unsupportedCoding(c *filo.Ctx) error {
	c.Response.Header.Set("Accept-Encoding", "identity")
	return &Error{Status: 415, Fields: []FieldError{{In: "header", Name: "Content-Encoding", Detail: "isn't supported", Code: "coding"}}}
}

// malformed returns the error for a body that can't be parsed as its media type.
func malformed(wrong flaw, cause error) error {
	return &Error{Status: 400, Fields: []FieldError{wrong.in(FieldError{In: "body"})}, Err: cause}
}

// malformation says what is wrong with a document, and in which line and column. Columns count bytes.
func malformation(body []byte) flaw {
	var document json.RawMessage
	wrong, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(body, &document))
	if !ok {
		return flaw{}
	}
	return flaw{code: "malformed", detail: wrong.Error()}.at(position(wrong.Offset, body))
}

// at returns the flaw with a line and a column before its detail.
func (w flaw) at(line, column int) flaw {
	params := map[string]any{"line": line, "column": column}
	maps.Copy(params, w.params)
	return flaw{code: w.code, detail: fmt.Sprintf("line %d, column %d: %s", line, column, w.detail), params: params}
}

// position returns the line and the column of the byte before an offset.
func position(offset int64, body []byte) (line, column int) {
	before := body[:max(0, min(int(offset), len(body))-1)]
	return 1 + bytes.Count(before, []byte{'\n'}), len(before) - bytes.LastIndexByte(before, '\n')
}

// deeper reports whether a document, which may be malformed, has more levels than the argument limit allows.
func deeper(body []byte, limit int) bool {
	// This check suffices for almost every document, and runs at the speed of memory.
	if len(body) <= limit || bytes.Count(body, []byte{'{'})+bytes.Count(body, []byte{'['}) <= limit {
		return false
	}
	depth := 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			if depth++; depth > limit {
				return true
			}
		case '}', ']':
			depth--
		case '"':
			i = stringEnd(body, i) - 1
		}
	}
	return false
}

// stringEnd returns the offset after the closing quote of the string that begins at start.
func stringEnd(body []byte, start int) int {
	for i := start + 1; i < len(body); i++ {
		switch body[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(body)
}
