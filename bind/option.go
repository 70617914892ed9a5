package bind

// Option changes how one call binds.
type Option struct {
	strict    bool
	validator Validator
}

// Strict refuses what is mostly a client's mistake, and what different parsers understand differently: in JSON, names that the
// struct doesn't have or has in another case, and names that are twice in an object; in queries and forms, names that the
// struct doesn't have; anywhere, two values for a field that holds one, and empty text for a number, bool, time or duration.
// JSON is decoded by encoding/json then, even if Server.JSON is set.
func Strict() Option { return Option{strict: true} }

// Validator checks what was bound.
//
// Its error becomes the answer: an *Error, whose FieldErrors need nothing but Field and Detail, or an *filo.HTTPError, as they
// are. Any other is the server's own trouble, and so a 500 whose text the client doesn't see.
type Validator interface {
	Validate(v any) error
}

// With checks what was bound by validator. It is asked as well when values were refused, so that the client hears of everything at
// once: a field whose value was refused, or is missing, is what it was before, and what the validator says of a refused one is
// dropped. It isn't asked about a body that is malformed, or that is too large for all of its errors to be looked for.
func With(validator Validator) Option { return Option{validator: validator} }

// merge makes one option of all. Options are plain values, so that giving some costs nothing.
func merge(options []Option) (merged Option) {
	for _, option := range options {
		merged.strict = merged.strict || option.strict
		if option.validator != nil {
			merged.validator = option.validator
		}
	}
	return merged
}
