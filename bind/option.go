package bind

import "github.com/filohttp/filo"

// Option changes how one call binds.
type Option struct {
	strict    bool
	validator Validator
}

// Strict refuses likely mistakes of clients, and input that different parsers understand differently. In JSON these are names
// that the struct doesn't have, or has in another case, and names that occur twice in an object. In queries and forms these are
// names that the struct doesn't have. In every source it refuses two values for a field that holds one, and, in text, an empty number,
// bool, time or duration. With Strict, encoding/json decodes JSON even if Server.JSON is set.
func Strict() Option { return Option{strict: true} }

// Validator checks a bound value.
//
// Its error becomes the answer if it is an *Error, whose FieldErrors need only Field and Detail, or an *filo.HTTPError. Any other
// error is a server error: the client gets a 500 without its text.
type Validator interface {
	Validate(v any) error
}

// RequestValidator is a Validator that is given the request as well, for example for errors in the client's language. ValidateRequest is
// called instead of Validate.
type RequestValidator interface {
	Validator
	ValidateRequest(c *filo.Ctx, v any) error
}

// With checks the bound value with validator. The validator runs even if some values were refused, so that the client learns of
// all errors at once. A refused or missing field then holds its previous value, and bind drops the validator's errors about
// refused fields. The validator doesn't run for a malformed body, or for one too large to search for all of its errors.
func With(validator Validator) Option { return Option{validator: validator} }

// merge makes one option of all. Options are plain values, so that passing them costs nothing.
func merge(options []Option) (merged Option) {
	for _, option := range options {
		merged.strict = merged.strict || option.strict
		if option.validator != nil {
			merged.validator = option.validator
		}
	}
	return merged
}
