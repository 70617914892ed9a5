package bind

import (
	"reflect"
	"slices"
	"strings"
)

// locate sets the place in the request from which the value of a Go field was bound, if the place can be found.
func (b *binding) locate(f *FieldError, root reflect.Type) {
	var pointer strings.Builder
	t := root
	index := []int{} // the index of the field in root; nil once the path has left root and its embedded structs
	for rest := f.Field; rest != ""; {
		var name string
		name, rest = firstStep(rest, t)
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t != nil && t.Kind() == reflect.Struct {
			if field, ok := t.FieldByName(name); ok {
				if index != nil {
					index = append(index, field.Index...)
					if b.locateText(f, root, index) {
						return
					}
				}
				var flat bool
				if name, flat = memberName(field); !flat {
					index = nil
					pointer.WriteString("/" + pointerEscape.Replace(name))
				}
				t = field.Type
				continue
			}
		}
		index = nil
		pointer.WriteString("/" + pointerEscape.Replace(name))
		t = elementOf(t)
	}
	// A field that wasn't bound from a source of text belongs to the JSON body, even if the request has no body, but not if the
	// body is a form.
	if b.bound[inBody] || b.all && !b.bound[inForm] && !b.bound[inMultipart] {
		f.In, f.Pointer = inBody.String(), pointer.String()
		return
	}
	f.Name = f.Field
}

// locateText sets the location of a field of root that was bound from a source of text. If several sources have bound the field,
// the last one is its location, since it has set the value.
func (b *binding) locateText(f *FieldError, root reflect.Type, index []int) bool {
	for in := sources - 1; in > inBody; in-- {
		if !b.bound[in] {
			continue
		}
		for _, candidate := range plansOf(root)[in].fields {
			if slices.Equal(candidate.index, index) {
				f.In, f.Name = in.String(), candidate.name
				return true
			}
		}
	}
	return false
}

// firstStep cuts the first step off a path such as "Items[2].Name", which begins at a value of type t.
func firstStep(way string, t reflect.Type) (name, rest string) {
	if way[0] != '[' {
		end := strings.IndexAny(way, ".[")
		if end < 0 {
			return way, ""
		}
		return way[:end], strings.TrimPrefix(way[end:], ".")
	}
	// The key of a map may contain brackets, so it ends at the first closing bracket after which the path ends or continues with
	// "." or "[".
	for i := 1; i < len(way); i++ {
		if way[i] == ']' && (i+1 == len(way) || way[i+1] == '.' || way[i+1] == '[') {
			return way[1:i], strings.TrimPrefix(way[i+1:], ".")
		}
	}
	return way[1:], ""
}

// memberName returns a field's name in JSON, and whether the field is an embedded struct without a name of its own in JSON.
func memberName(field reflect.StructField) (name string, flat bool) {
	tag := field.Tag.Get(inBody.tag())
	if name, _, _ = strings.Cut(tag, ","); tag != "-" && validName(name) {
		return name, false
	}
	t := field.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return field.Name, field.Anonymous && t.Kind() == reflect.Struct
}

// elementOf returns the element type of t, nil if t isn't a slice, array or map.
func elementOf(t reflect.Type) reflect.Type {
	if t != nil {
		switch t.Kind() {
		case reflect.Slice, reflect.Array, reflect.Map:
			return t.Elem()
		}
	}
	return nil
}
