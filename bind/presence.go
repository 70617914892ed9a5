package bind

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// requirement is a field of a struct, or of a struct embedded in it, that has the tag required:"true".
type requirement struct {
	index []int
	// names has the field's name in each source, "" if the field isn't bound from that source.
	names [sources]string
}

// requirementsOf returns the struct's own required fields in their order, without the required fields of nested structs. An error is
// a programming mistake.
func requirementsOf(t reflect.Type) (all []requirement, err error) {
	for in := inBody; in < sources; in++ {
		if in == inBody && hasUnmarshaler(t) {
			continue
		}
		for _, m := range membersOf(t, in.tag(), in != inBody) {
			switch value, has := m.field.Tag.Lookup("required"); {
			case !has, value == "false", in == inBody && isElsewhere(m.field):
				continue
			case value != "true":
				return nil, fmt.Errorf("bind: %s has the tag required:%q: write required:\"true\", or leave it out", fieldOf(t, m.field.Name), value)
			}
			i := find(all, m.index)
			if i < 0 {
				i = len(all)
				all = append(all, requirement{index: m.index})
			}
			all[i].names[in] = m.name
		}
	}
	slices.SortFunc(all, func(a, b requirement) int { return slices.Compare(a.index, b.index) })
	return all, nil
}

// isElsewhere reports whether no JSON body may fill a field: the field has only tags of other sources, or holds files, which only
// forms contain.
func isElsewhere(field reflect.StructField) bool {
	if t := field.Type; t == fileType || t == filesType || t == fileType.Elem() {
		return true
	}
	if _, tagged := field.Tag.Lookup(inBody.tag()); tagged {
		return false
	}
	for in := inForm; in < sources; in++ {
		if _, has := field.Tag.Lookup(in.tag()); has {
			return true
		}
	}
	return false
}

// find returns the position of the field at index, -1 if it isn't required.
func find(all []requirement, index []int) int {
	return slices.IndexFunc(all, func(r requirement) bool { return slices.Equal(r.index, index) })
}

// source returns the source that is reported for a missing field: the last of the bound sources in which the field has a name. For All,
// the body counts as bound even if the request has none. source reports false if the call doesn't bind the field.
func (r *requirement) source(b *binding) (in source, ok bool) {
	for in := sources - 1; in > inBody; in-- {
		if b.bound[in] && r.names[in] != "" {
			return in, true
		}
	}
	switch {
	case r.names[inBody] != "" && (b.all || b.bound[inBody]):
		return inBody, true
	case r.names[inForm] != "" && b.all: // there is no body, or it is JSON
		return inForm, true
	}
	return 0, false
}

// missing adds an error for each of the struct's own required fields that isn't in the input.
func (b *binding) missing() {
	for i := range b.required {
		if b.present.has(i) {
			continue
		}
		r := &b.required[i]
		in, asked := r.source(b)
		if !asked {
			continue
		}
		f := isRequired.in(FieldError{In: in.String(), Name: r.names[in]})
		if in == inBody {
			f.Name, f.Pointer = "", "/"+pointerEscape.Replace(r.names[in])
		}
		if slices.ContainsFunc(b.problems.Fields, func(other FieldError) bool { return other.covers(f) }) {
			continue
		}
		if !b.problems.add(in.status(), f) {
			return
		}
	}
}

// presence says which fields a type that is decoded from JSON requires.
type presence struct {
	fields []requirement // the required fields of the type itself, if it is a struct
	within bool          // a JSON document must be scanned, because some member of it is required or has rules
	err    error         // a mistake of the programmer
	// unchecked is the error of a call without a validator: see plan.unchecked.
	unchecked error
}

// presences holds a *presence for each reflect.Type.
var presences sync.Map

func presenceOf(t reflect.Type) *presence {
	if known, ok := presences.Load(t); ok {
		return known.(*presence)
	}
	p := &presence{}
	outermost := t
	for outermost.Kind() == reflect.Pointer {
		outermost = outermost.Elem()
	}
	if outermost.Kind() == reflect.Struct {
		p.fields = objectOf(outermost).required
	}
	p.look(t, false, make(map[reflect.Type]bool))
	known, _ := presences.LoadOrStore(t, p)
	return known.(*presence)
}

// look searches t, and the types that t consists of, for requirements. The argument inside says that t is nested in the outermost struct, so
// that a JSON body can fill all fields of t. In the outermost struct a JSON body doesn't fill fields that have only tags of other sources.
func (p *presence) look(t reflect.Type, inside bool, seen map[reflect.Type]bool) {
	if before, ok := seen[t]; ok && (before || !inside) {
		return
	}
	seen[t] = inside
	switch t.Kind() {
	case reflect.Pointer:
		if !readsItself(t) {
			p.look(t.Elem(), inside, seen)
		}
	case reflect.Slice, reflect.Array, reflect.Map:
		if !readsItself(t) {
			p.look(t.Elem(), true, seen)
		}
	case reflect.Struct:
		o := objectOf(t)
		if o.readsItself {
			return
		}
		if o.err != nil {
			p.err = o.err
		}
		p.unchecked = cmp.Or(p.unchecked, o.unchecked)
		if t == fileType.Elem() {
			p.err = errFileInJSON
		}
		for i := range o.members {
			if m := &o.members[i]; inside || !m.other {
				p.within = p.within || m.required >= 0 || m.rules != nil
				p.look(m.typ, true, seen)
			}
		}
	}
}

var errFileInJSON = errors.New("bind: a JSON body would fill a *multipart.FileHeader, and files come in forms only: " +
	"put it into the outermost struct, as a field with the tag form")

// bits is a set of small numbers.
type bits struct {
	low  uint64   // the first 64
	high []uint64 // the numbers from 64 on
}

func (b *bits) set(i int) {
	if i < 64 {
		b.low |= 1 << i
		return
	}
	for len(b.high) < i/64 {
		b.high = append(b.high, 0)
	}
	b.high[i/64-1] |= 1 << (i % 64)
}

func (b *bits) clear(i int) {
	switch {
	case i < 64:
		b.low &^= 1 << i
	case i/64 <= len(b.high):
		b.high[i/64-1] &^= 1 << (i % 64)
	}
}

// isNilable reports whether encoding/json sets a field of the type to nil for a null. It leaves fields of other types as they are.
func isNilable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return true
	}
	return false
}

func (b *bits) has(i int) bool {
	if i < 64 {
		return b.low&(1<<i) != 0
	}
	return i/64 <= len(b.high) && b.high[i/64-1]&(1<<(i%64)) != 0
}
