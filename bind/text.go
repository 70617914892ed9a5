package bind

import (
	"bytes"
	"fmt"
	"maps"
	"mime/multipart"
	"reflect"
	"slices"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
)

// text binds a struct from a source of text. An error that it returns concerns the whole source; it collects the errors of single
// values in b.problems.
func (b *binding) text(in source, p *plan, target reflect.Value) error {
	if p.err != nil {
		return p.err
	}
	if p.unchecked != nil && b.option.validator == nil {
		return p.unchecked
	}
	b.bound[in], b.required = true, p.required
	if len(p.fields) == 0 && in > inMultipart && !b.option.strict {
		return nil // no field needs the source, and only Strict would refuse something in it
	}
	values, err := read(b.c, in)
	if err != nil {
		return err
	}
	var room [8][]byte
	for i := range p.fields {
		f := &p.fields[i]
		if f.file() {
			found := values.files(f.name)
			if f.required >= 0 && len(found) > 0 {
				b.present.set(f.required)
			}
			b.files(f, found, target)
			continue
		}
		found := values.get(room[:0], f.name)
		if f.required >= 0 && f.given(found) {
			b.present.set(f.required)
		}
		if f.comma {
			found = splitAtCommas(found)
		}
		if len(found) == 0 && f.wildcard && !hasWildcard(b.c, f.name) {
			return withoutWildcard(b.c, target.Type(), f)
		}
		if len(found) > 0 {
			b.field(in, f, found, target)
		}
	}
	if b.option.strict {
		for _, name := range values.unknown(p) {
			if !b.problems.add(in.status(), isUnknown.in(FieldError{In: in.String(), Name: name})) {
				break
			}
		}
	}
	return nil
}

// hasWildcard reports whether the request's route has a wildcard called name.
func hasWildcard(c *filo.Ctx, name string) bool {
	match := inside.Match(c)
	for i := range match.Len() {
		if each, _ := match.At(i); each == name {
			return true
		}
	}
	return false
}

// withoutWildcard returns the error for a field whose wildcard the route lacks, which is a programming mistake.
func withoutWildcard(c *filo.Ctx, t reflect.Type, f *field) error {
	name := fieldOf(t, t.FieldByIndex(f.index).Name)
	if c.Route() == "" {
		return fmt.Errorf("bind: %s has the tag path:%q, and the request has no route: only a router's patterns have wildcards", name, f.name)
	}
	return fmt.Errorf("bind: %s has the tag path:%q, and the route %q has no wildcard {%s}: give both the same name, or make the field a pointer if "+
		"only some of its routes have the wildcard", name, f.name, c.Route(), f.name)
}

// given reports whether the field counts as present with the values that were found.
func (f *field) given(found [][]byte) bool {
	switch {
	case len(found) == 0:
		return false
	case f.slice:
		return f.comma || !f.optional || slices.ContainsFunc(found, notEmpty)
	}
	return !f.optional || len(found[0]) > 0
}

func notEmpty(text []byte) bool { return len(text) > 0 }

// field binds a field from the values with its name. There is at least one value.
func (b *binding) field(in source, f *field, found [][]byte, target reflect.Value) {
	refuse := func(wrong flaw) {
		b.problems.add(in.status(), wrong.in(FieldError{In: in.String(), Name: f.name}))
	}
	if f.slice {
		if f.optional && !b.option.strict {
			if found = slices.DeleteFunc(found, func(text []byte) bool { return len(text) == 0 }); len(found) == 0 {
				return
			}
		}
		dst := fieldAt(target, f.index)
		elements := reflect.MakeSlice(dst.Type(), len(found), len(found))
		for i, text := range found {
			if wrong := f.decode(elements.Index(i), text); wrong.code != "" {
				refuse(wrong.ofValue(i + 1))
			} else if wrong := f.broken(text); wrong.code != "" {
				refuse(wrong.ofValue(i + 1))
			}
		}
		if f.rules != nil {
			if wrong := f.rules.ofLength(len(found)); wrong.code != "" {
				refuse(wrong)
			}
			if f.rules.unique && hasRepeated(found) {
				refuse(isRepeatedItem)
			}
		}
		dst.Set(elements)
		return
	}
	switch {
	case len(found) > 1 && b.option.strict:
		refuse(flaw{code: isRepeated.code, detail: "must be given once"})
		return
	case len(found[0]) == 0 && f.optional:
		if b.option.strict {
			refuse(flaw{code: "empty", detail: "must not be empty"})
		}
		return
	}
	if wrong := f.decode(fieldAt(target, f.index), found[0]); wrong.code != "" {
		refuse(wrong)
	} else if wrong := f.broken(found[0]); wrong.code != "" {
		refuse(wrong)
	}
}

// broken returns the flaw of text that violates a rule.
func (f *field) broken(text []byte) flaw {
	if f.rules == nil {
		return flaw{}
	}
	return f.rules.ofText(string(text), f.number)
}

func hasRepeated(texts [][]byte) bool {
	seen := make(map[string]bool, len(texts))
	for _, text := range texts {
		if seen[string(text)] {
			return true
		}
		seen[string(text)] = true
	}
	return false
}

// ofValue returns the flaw with the position of the wrong value among the field's values.
func (w flaw) ofValue(number int) flaw {
	params := map[string]any{"value": number}
	maps.Copy(params, w.params)
	return flaw{code: w.code, detail: fmt.Sprintf("value %d %s", number, w.detail), params: params}
}

// files binds a field from the files with its name.
func (b *binding) files(f *field, found []*multipart.FileHeader, target reflect.Value) {
	switch {
	case len(found) == 0:
	case f.slice:
		fieldAt(target, f.index).Set(reflect.ValueOf(found))
	case len(found) > 1 && b.option.strict:
		b.problems.add(422, flaw{code: isRepeated.code, detail: "must be one file"}.in(FieldError{In: "form", Name: f.name}))
	default:
		fieldAt(target, f.index).Set(reflect.ValueOf(found[0]))
	}
}

// splitAtCommas splits values that are lists into their elements. It drops empty elements (RFC 9110, section 5.6.1.2).
func splitAtCommas(values [][]byte) (elements [][]byte) {
	for _, value := range values {
		for element := range bytes.SplitSeq(value, []byte{','}) {
			if element = bytes.Trim(element, " \t"); len(element) > 0 {
				elements = append(elements, element)
			}
		}
	}
	return elements
}
