package bind

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// object describes the JSON members that fill a struct. It is computed once for each type, and is immutable.
type object struct {
	members []objectMember
	exact   map[string]int
	folded  map[string]int // by folded name, since encoding/json ignores case
	// others are the indexes of fields that have only tags of other sources: see All.
	others [][]int
	// required are the fields that must be in the input. err is a programming mistake in the struct's tags.
	required []requirement
	err      error
	// unchecked is like plan.unchecked, for the struct's own fields only.
	unchecked error
	// readsItself says that the type has its own decoder, so that the other fields of object don't matter.
	readsItself bool
}

type objectMember struct {
	name string
	typ  reflect.Type
	// quoted is set if the member's tag has the option string: a struct type with one field of the member's type and this option,
	// for decoding a single value. Otherwise it is nil.
	quoted reflect.Type
	other  bool
	// required is the member's position in object.required, -1 if the member isn't required.
	required int
	rules    *rules // nil for none
}

// objects holds an *object for each reflect.Type.
var objects sync.Map

func objectOf(t reflect.Type) *object {
	if known, ok := objects.Load(t); ok {
		return known.(*object)
	}
	o := &object{exact: make(map[string]int), folded: make(map[string]int), readsItself: hasUnmarshaler(t)}
	o.required, o.err = requirementsOf(t)
	for i, m := range membersOf(t, inBody.tag(), false) {
		member := objectMember{name: m.name, typ: m.field.Type, other: isElsewhere(m.field), required: find(o.required, m.index)}
		if hasOption(m.option, "string") && quotable(m.field.Type) {
			member.quoted = reflect.StructOf([]reflect.StructField{{Name: "Quoted", Type: m.field.Type, Tag: `json:"v,string"`}})
		}
		rules, err := rulesOf(m.field)
		if err != nil && !member.other {
			o.err = fmt.Errorf("bind: %s, %w", fieldOf(t, m.field.Name), err)
		}
		member.rules = rules
		if member.other {
			member.required = -1
			o.others = append(o.others, m.index)
		} else {
			o.unchecked = cmp.Or(o.unchecked, uncheckedIn(t, m.field))
		}
		o.members = append(o.members, member)
		o.exact[m.name] = i
		name := fold(m.name)
		if _, taken := o.folded[name]; !taken {
			o.folded[name] = i
		}
	}
	known, _ := objects.LoadOrStore(t, o)
	return known.(*object)
}

// hasOwn reports whether the object has a member that only a JSON body can fill: see All.
func (o *object) hasOwn() bool {
	return slices.ContainsFunc(o.members, func(m objectMember) bool { return !m.other })
}

// find returns the member that a name in a document refers to, -1 if there is none, and whether the name has the member's exact
// case. It tries the guess first: most documents list the members in the struct's order.
func (o *object) find(name []byte, guess int) (member int, exact bool) {
	if guess < len(o.members) && o.members[guess].name == string(name) {
		return guess, true
	}
	if i, ok := o.exact[string(name)]; ok {
		return i, true
	}
	if i, ok := o.folded[fold(string(name))]; ok {
		return i, false
	}
	return -1, false
}

// fold replaces each rune of name with the least rune that differs from it in case only.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}

func hasOption(options, name string) bool {
	return slices.Contains(strings.Split(options, ","), name)
}

// quotable reports whether encoding/json heeds the tag option string for the type.
func quotable(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	switch kind := t.Kind(); kind {
	case reflect.Complex64, reflect.Complex128:
		return false
	default:
		return kind == reflect.String || kind >= reflect.Bool && kind <= reflect.Float64
	}
}
