// Package validate checks the values that package bind has bound, by the tags of github.com/go-playground/validator. Its errors
// name the broken rule and the field's place in the request.
//
//	go get github.com/filohttp/filo/contrib/validate@latest
//
// The package is a separate module, so that filo doesn't depend on validator.
//
//	type User struct {
//		Name  string `json:"name" validate:"required,max=100"`
//		Email string `json:"email" validate:"required,email"`
//	}
//
// To use rules in gin's tag binding, set Options.Validate to a validator whose SetTagName("binding") was called. With any other validator,
// a field that has the tag binding but not the tag validate is an error, answered with 500, since its rules would be ignored.
//
// The rule required refuses zero values: 0, false, "". Package bind's own tag, required:"true", only requires that the field is present in
// the request, with any value.
//
//	var validated = bind.With(validate.New())
//
//	func create(c *filo.Ctx) error {
//		var u User
//		if err := bind.JSON(c, &u, validated); err != nil {
//			return err // 422 with the error {"in": "body", "pointer": "/email", "detail": "must be an e-mail address", "code": "email"}
//		}
//		…
//	}
package validate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/go-playground/validator/v10"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
)

// Options are the options of New. The zero value has defaults.
type Options struct {
	// Validate checks the values. Set it to use your own rules, aliases or struct-level functions. Default a new one with
	// validator.WithRequiredStructEnabled.
	Validate *validator.Validate
	// Message returns the detail of an error that the client sees. It may read the request, for example for the client's language. c is nil
	// if Validator.Validate is called directly. Default the function Message.
	Message func(c *filo.Ctx, rule validator.FieldError) string
}

// Validator is a bind.Validator: see bind.With. It is safe for use by many goroutines. Make it once, since it caches its
// analysis of each type.
type Validator struct {
	validate *validator.Validate
	message  func(c *filo.Ctx, rule validator.FieldError) string
	// asksContext says that rules may need the request's context. Otherwise it isn't created, which saves an allocation.
	asksContext bool
	// unread maps each reflect.Type that was checked to its error, or to nil if it has none: see unreadRules.
	unread sync.Map
}

var _ bind.RequestValidator = (*Validator)(nil)

// New makes a Validator. It accepts at most one Options.
func New(options ...Options) *Validator {
	o := one(options)
	v := &Validator{validate: o.Validate, message: o.Message, asksContext: o.Validate != nil}
	if v.validate == nil {
		v.validate = validator.New(validator.WithRequiredStructEnabled())
	}
	if v.message == nil {
		v.message = func(_ *filo.Ctx, rule validator.FieldError) string { return Message(rule) }
	}
	return v
}

// one returns the options that were passed to New, or the zero value if there are none. It panics if there are two.
func one(options []Options) (o Options) {
	if len(options) > 1 {
		panic("validate: New takes one Options at most: set all of them in one")
	}
	if len(options) == 1 {
		o = options[0]
	}
	return o
}

// Validate checks a struct, or a slice, array or map of structs, to which value points. Other values have no rules. The error is a
// *bind.Error with a FieldError for each broken rule. Its Code is the rule's name, and its Params contain the rule's parameter under that
// name, such as {"max": "20"}. If the rule can apply to several kinds of quantities, the parameter "of" names the kind: number, characters,
// elements or time.
func (v *Validator) Validate(value any) error { return v.ValidateRequest(nil, value) }

// ValidateRequest is Validate for values that were bound from a request. Rules that were registered with a context get the request's context.
func (v *Validator) ValidateRequest(c *filo.Ctx, value any) error {
	ctx := context.Background()
	if c != nil && v.asksContext {
		ctx = c.Context()
	}
	target := reflect.ValueOf(value)
	for target.Kind() == reflect.Pointer && !target.IsNil() {
		target = target.Elem()
	}
	var err error
	switch target.Kind() {
	case reflect.Struct:
		if err = v.unreadRules(target.Type()); err == nil {
			err = v.validate.StructCtx(ctx, value)
		}
	case reflect.Slice, reflect.Array, reflect.Map:
		if target.Len() > 0 && isStruct(target.Type().Elem()) {
			if err = v.unreadRules(target.Type().Elem()); err == nil {
				err = v.validate.VarCtx(ctx, target.Interface(), "dive")
			}
		}
	}
	if err == nil {
		return nil
	}
	var broken validator.ValidationErrors
	if !errors.As(err, &broken) {
		return &filo.HTTPError{Status: 500, Err: err}
	}
	// The validator puts the name of the struct's type in front of the path of a field; the name of a generic type contains dots.
	prefix := target.Type().Name() + "."
	fields := make([]bind.FieldError, len(broken))
	for i, rule := range broken {
		fields[i] = bind.FieldError{Field: strings.TrimPrefix(rule.StructNamespace(), prefix), Detail: v.message(c, rule),
			Code: rule.ActualTag(), Params: paramsOf(rule)}
	}
	return &bind.Error{Status: 422, Fields: fields, Err: err}
}

func isStruct(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

// unreadRules returns the error for rules in gin's tag binding that the validator doesn't read. The validator has no method that tells which
// tag it reads, so unreadRules tries the tag out when it finds such a rule.
func (v *Validator) unreadRules(t reflect.Type) error {
	if known, ok := v.unread.Load(t); ok {
		err, _ := known.(error)
		return err
	}
	err := ginRules(t, make(map[reflect.Type]bool))
	if err != nil && v.validate.Struct(struct {
		Tried string `binding:"required"`
	}{}) != nil {
		err = nil
	}
	v.unread.Store(t, err)
	return err
}

// ginRules returns the error for the first field, in t and all types in it, that has rules only in the tag binding.
func ginRules(t reflect.Type, seen map[reflect.Type]bool) error {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}
	seen[t] = true
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && !f.Anonymous {
			continue // neither bound nor checked
		}
		rules := f.Tag.Get("binding")
		_, own := f.Tag.Lookup("validate")
		_, required := f.Tag.Lookup("required")
		if rules != "" && rules != "-" && !own && !required {
			field := "the field " + f.Name
			if t.Name() != "" {
				field = t.String() + "." + f.Name
			}
			return fmt.Errorf("validate: %s has the tag binding:%q, which this validator doesn't read: write validate:%q, or give New a "+
				"validator of your own after its SetTagName(\"binding\")", field, rules, rules)
		}
		if err := ginRules(f.Type, seen); err != nil {
			return err
		}
	}
	return nil
}
