package bind

import "github.com/filohttp/filo"

// Option changes how a call of JSON, All and the other functions binds.
type Option struct {
	strict    bool
	validator Validator
}

// Strict refuses likely mistakes of clients, and input that different parsers understand differently. In JSON it refuses names that
// the struct doesn't have, or has in another case, and names that occur twice in an object. In queries and forms it refuses names that
// the struct doesn't have. In every source it refuses several values for a field that holds one, and in sources of text an empty
// number, bool, time or duration. With Strict, encoding/json decodes JSON even if Server.JSON is set.
func Strict() Option { return Option{strict: true} }

// Validator checks a bound value.
//
// If Validate returns an *Error, whose FieldErrors need only Field and Detail, or an *filo.HTTPError, that error determines the
// response. Any other error is a server error: the client gets a 500 without the error's text.
type Validator interface {
	Validate(v any) error
}

// RequestValidator is a Validator that also receives the request, for example to write errors in the client's language. ValidateRequest
// is called instead of Validate.
type RequestValidator interface {
	Validator
	ValidateRequest(c *filo.Ctx, v any) error
}

// With makes validator check the bound value. The validator runs even if some values were refused, so that the client learns of
// all errors at once. A refused or missing field then holds its previous value, and bind drops the validator's errors about
// refused fields. The validator doesn't run for a malformed body, nor for an invalid body that is too large to be searched for
// all errors.
func With(validator Validator) Option { return Option{validator: validator} }

// merge combines all options into one. Options are plain values, so that passing them allocates nothing.
func merge(options []Option) (merged Option) {
	for _, option := range options {
		merged.strict = merged.strict || option.strict
		if option.validator != nil {
			merged.validator = option.validator
		}
	}
	return merged
}
