package bind

import (
	"cmp"
	"fmt"
	"mime/multipart"
	"reflect"
	"strings"
	"sync"
)

// plan says how to bind a struct from a source of text. It is computed once, and is immutable, apart from what seen points to.
type plan struct {
	fields []field
	byName map[string]int
	// required are the fields that must be in the input, from any source.
	required []requirement
	err      error // a mistake of the programmer
	// none is the error of a call that binds from this source alone, if the struct has fields but none with the source's tag.
	none error
	// unchecked is the error of a call without a validator, if a field has rules that only a validator checks.
	unchecked error
	// formOnly has the names of the fields that only a form can fill. It is set in the plan for inMultipart. If there are such fields, seen
	// has the routes for GET for which All has logged them.
	formOnly []string
	seen     *seenRoutes
}

// field is a struct's field that is bound from text, or from files.
type field struct {
	name   string
	index  []int
	decode decoder // nil for files
	slice  bool
	comma  bool
	// optional says that empty text means that there is no value.
	optional bool
	// required is the field's position in plan.required, -1 if the field isn't required.
	required int
	// rules is nil if the field has no rules. The field number says that the rules apply to a number.
	rules  *rules
	number bool
	// wildcard says that the request's route must have a wildcard with the field's name.
	wildcard bool
}

func (f *field) file() bool { return f.decode == nil }

var (
	fileType  = reflect.TypeFor[*multipart.FileHeader]()
	filesType = reflect.TypeFor[[]*multipart.FileHeader]()

	// plans holds a *[sources]plan for each reflect.Type of a struct. Its size is bounded by the number of struct types that the
	// program binds.
	plans sync.Map
)

// plansOf returns the plans of a struct for the sources of text.
func plansOf(t reflect.Type) *[sources]plan {
	if known, ok := plans.Load(t); ok {
		return known.(*[sources]plan)
	}
	var all [sources]plan
	required, err := requirementsOf(t)
	for in := inForm; in < sources; in++ {
		all[in] = newPlan(t, in, required, err)
	}
	known, _ := plans.LoadOrStore(t, &all)
	return known.(*[sources]plan)
}

// newPlan computes a plan. err is a programming mistake in the struct's required tags.
func newPlan(t reflect.Type, in source, required []requirement, err error) plan {
	p := plan{byName: make(map[string]int), required: required, err: err}
	for _, m := range membersOf(t, in.tag(), true) {
		f, err := newField(m, in)
		if err != nil {
			p.err = fmt.Errorf("bind: %s, %w", fieldOf(t, m.field.Name), err)
		}
		if tag, instead := foreignFormat(m, f, in); tag != "" {
			p.err = fmt.Errorf("bind: %s has gin's tag %s:%q, which isn't read here: %s", fieldOf(t, m.field.Name), tag, m.field.Tag.Get(tag), instead)
		}
		f.required = find(p.required, m.index)
		f.wildcard = in == inPath && needsWildcard(m.field)
		p.byName[f.name] = len(p.fields)
		p.fields = append(p.fields, f)
		p.unchecked = cmp.Or(p.unchecked, uncheckedIn(t, m.field))
		if in == inMultipart && onlyIn(m.field, inMultipart) {
			p.formOnly, p.seen = append(p.formOnly, m.field.Name), new(seenRoutes)
		}
	}
	if a, b, found := conflictOf(t, in.tag()); found {
		p.err = fmt.Errorf("bind: %s and %s both have the tag %s:%q, so neither would be bound", pathOf(t, a.index), pathOf(t, b.index), in.tag(), a.name)
	}
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get(in.tag()); name != "" && name != "-" && !f.IsExported() && !f.Anonymous {
			p.err = fmt.Errorf("bind: %s has the tag %s, and must be exported to be bound: write it with a capital", fieldOf(t, f.Name), in.tag())
		}
		if tag, name := foreignTag(f, in); tag != "" {
			p.err = fmt.Errorf("bind: %s has the tag %s:%q of another framework, which isn't read here: write %s:%q instead, or as well",
				fieldOf(t, f.Name), tag, name, in.tag(), name)
		}
	}
	if len(p.fields) == 0 && p.err == nil {
		p.none = untagged(t, in)
	}
	return p
}

// foreignTags are the tags that gin, echo and fiber use for a source, where these differ from bind's tag.
var foreignTags = [sources][]string{inPath: {"uri", "param", "params"}, inHeader: {"reqHeader"}}

// foreignTag returns the tag of another framework that would bind the field from the source, "" if there is none, or if the field has the
// source's own tag as well.
func foreignTag(f reflect.StructField, in source) (tag, name string) {
	if _, has := f.Tag.Lookup(in.tag()); has {
		return "", ""
	}
	for _, tag := range foreignTags[in] {
		if name, _, _ := strings.Cut(f.Tag.Get(tag), ","); name != "" && name != "-" {
			return tag, name
		}
	}
	return "", ""
}

// foreignFormat returns gin's tag for the format of a field's values, if the field doesn't say the same in bind's way, and what to write
// instead.
func foreignFormat(m member, f field, in source) (tag, instead string) {
	const collection, moment = "collection_format", "time_format"
	switch format := m.field.Tag.Get(collection); {
	case format == "", format == "multi", f.comma: // multi is what bind does
	case format == "csv":
		return collection, fmt.Sprintf("write %s:%q instead, or as well", in.tag(), m.name+",comma")
	default:
		return collection, "make the field a string, and split it"
	}
	switch layout := m.field.Tag.Get(moment); {
	case layout == "", m.field.Tag.Get("layout") != "":
	case strings.HasPrefix(strings.ToLower(layout), "unix"):
		return moment, "make the field an int64"
	default:
		return moment, fmt.Sprintf("write layout:%q instead, or as well", layout)
	}
	return "", ""
}

// isNumber reports whether text is decoded to t as a number, or as a list of numbers.
func isNumber(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64 && t != durationType && !reflect.PointerTo(t).Implements(textType)
}

// uncheckedIn returns the error for a field with rules in the tag binding. gin itself checks these rules; here only a validator
// can, so without a validator the rules would be ignored.
func uncheckedIn(t reflect.Type, f reflect.StructField) error {
	rules := f.Tag.Get("binding")
	if _, own := f.Tag.Lookup("required"); own || rules == "" || rules == "-" {
		return nil
	}
	return fmt.Errorf("bind: %s has the tag binding:%q, and no validator is given, so nothing would follow it: write validate:%q with "+
		"bind.With(validate.New()) of contrib/validate, or required:\"true\" alone", fieldOf(t, f.Name), rules, rules)
}

// needsWildcard reports whether a field with the tag path gets a value only if the route has its wildcard, because no other source
// can set the field. A pointer field may stay nil, so that routes with different wildcards can share a struct.
func needsWildcard(field reflect.StructField) bool {
	if field.Type.Kind() == reflect.Pointer && field.Tag.Get("required") != "true" {
		return false
	}
	for in := inBody; in < inPath; in++ {
		if name, has := field.Tag.Lookup(in.tag()); has && name != "-" {
			return false
		}
	}
	return true
}

// untagged returns the error for a struct in which no field has the source's tag, nil if no field could have it. The error contains an
// example of a tagged field; the name in its tag is taken from another tag of the field, if it has one.
func untagged(t reflect.Type, in source) error {
	for _, f := range reflect.VisibleFields(t) {
		if !f.IsExported() || f.Anonymous {
			continue
		}
		name := strings.ToLower(f.Name)
		for _, tag := range [...]string{"form", "query", "uri", "param", "params", "path", "header", "reqHeader", "json"} {
			if other, _, _ := strings.Cut(f.Tag.Get(tag), ","); other != "" && other != "-" {
				name = other
				break
			}
		}
		return fmt.Errorf("bind: %s has no tag %s, and no other field has one, so nothing would be bound: write %s %v `%s:%q`, and so on",
			fieldOf(t, f.Name), in.tag(), f.Name, f.Type, in.tag(), name)
	}
	return nil
}

// fieldOf returns a field's name for errors. It leaves out an unnamed type, whose text would be the whole definition of the
// struct.
func fieldOf(t reflect.Type, name string) string {
	if t.Name() == "" {
		return "the field " + name
	}
	return t.String() + "." + name
}

// pathOf is like fieldOf, for a field that may be within embedded structs.
func pathOf(t reflect.Type, index []int) string {
	names := make([]string, len(index))
	for i := range index {
		names[i] = t.FieldByIndex(index[:i+1]).Name
	}
	return fieldOf(t, strings.Join(names, "."))
}

func newField(m member, in source) (f field, err error) {
	f = field{name: m.name, index: m.index}
	for option := range strings.SplitSeq(m.option, ",") {
		switch option {
		case "":
		case "comma":
			f.comma = true
		default:
			return f, fmt.Errorf("tag %s: unknown option %q", in.tag(), option)
		}
	}
	t := m.field.Type
	if t == fileType || t == filesType {
		f.slice = t == filesType
		if in != inForm && in != inMultipart {
			return f, fmt.Errorf("tag %s: files come in forms only", in.tag())
		}
		return f, nil
	}
	f.rules, err = rulesOf(m.field)
	if err != nil {
		return f, err
	}
	layout := m.field.Tag.Get("layout")
	f.decode, f.optional = decoderOf(t, layout)
	if f.decode == nil && t.Kind() == reflect.Slice {
		f.slice = true
		f.decode, f.optional = decoderOf(t.Elem(), layout)
	}
	if f.decode == nil {
		return f, fmt.Errorf("tag %s: text can't become a %v", in.tag(), t)
	}
	f.number = isNumber(t)
	return f, nil
}
