package bind

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// member is a field of a struct, or of a struct embedded in it, that has a name for clients.
type member struct {
	name   string
	option string // what follows the name in the tag
	tagged bool   // name is from the tag
	index  []int  // as reflect.Value.FieldByIndex takes it
	field  reflect.StructField
}

// embedded is a struct whose members candidatesOf has yet to collect.
type embedded struct {
	typ   reflect.Type
	index []int
	// twice says that the struct is embedded more than once at its depth. Its members then hide each other.
	twice bool
}

// membersOf returns the members of a struct by the rules of encoding/json: fields of embedded structs count as the outer struct's. If
// several members have the same name, the one at the smallest depth counts. Among members at the same depth, the one whose tag has the
// name counts. If several are left, none counts. With onlyTagged, only fields with the tag are members.
func membersOf(t reflect.Type, tag string, onlyTagged bool) []member {
	byName := candidatesOf(t, tag, onlyTagged)
	members := make([]member, 0, len(byName))
	for _, candidates := range byName {
		if found := dominant(candidates); len(found) == 1 {
			members = append(members, found[0])
		}
	}
	slices.SortFunc(members, func(a, b member) int { return slices.Compare(a.index, b.index) })
	return members
}

// conflictOf returns two members at the same depth whose tags have the same name, so that neither counts.
func conflictOf(t reflect.Type, tag string) (a, b member, found bool) {
	for _, candidates := range candidatesOf(t, tag, true) {
		if same := dominant(candidates); len(same) > 1 && (!found || slices.Compare(same[0].index, a.index) < 0) {
			a, b, found = same[0], same[1], true
		}
	}
	return a, b, found
}

// candidatesOf returns the members of each name, ordered by depth.
func candidatesOf(t reflect.Type, tag string, onlyTagged bool) map[string][]member {
	byName := make(map[string][]member)
	visited := make(map[reflect.Type]bool)
	for level := []embedded{{typ: t}}; len(level) > 0; {
		var next []embedded
		for _, e := range level {
			if visited[e.typ] {
				continue
			}
			visited[e.typ] = true
			for _, m := range e.members(tag, onlyTagged, &next) {
				byName[m.name] = append(byName[m.name], m)
				if e.twice {
					byName[m.name] = append(byName[m.name], m)
				}
			}
		}
		level = next
	}
	return byName
}

// members returns the fields of e's struct, and adds the structs embedded in it to *next.
func (e embedded) members(tag string, onlyTagged bool, next *[]embedded) []member {
	var members []member
	for i := range e.typ.NumField() {
		field := e.typ.Field(i)
		index := append(slices.Clone(e.index), i)
		value, has := field.Tag.Lookup(tag)
		name, option, _ := strings.Cut(value, ",")
		inner := field.Type
		if inner.Name() == "" && inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case value == "-", !field.IsExported() && !(field.Anonymous && inner.Kind() == reflect.Struct):
			continue
		case !validName(name):
			name = ""
		}
		if field.Anonymous && name == "" && inner.Kind() == reflect.Struct && !(onlyTagged && has) {
			// A pointer to a struct that isn't exported can't be set.
			if field.IsExported() || field.Type.Kind() != reflect.Pointer {
				*next = addEmbedded(*next, inner, index)
			}
			continue
		}
		if !field.IsExported() || onlyTagged && !has {
			continue
		}
		members = append(members, member{cmp.Or(name, field.Name), option, name != "", index, field})
	}
	return members
}

func addEmbedded(next []embedded, t reflect.Type, index []int) []embedded {
	for i := range next {
		if next[i].typ == t {
			next[i].twice = true
			return next
		}
	}
	return append(next, embedded{typ: t, index: index})
}

// dominant returns the member that counts among candidates, which have the same name and are sorted by depth. If it returns
// several, none counts.
func dominant(candidates []member) (found []member) {
	for _, m := range candidates {
		if len(m.index) > len(candidates[0].index) {
			break
		}
		found = append(found, m)
	}
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(m member) bool { return !m.tagged })
	}
	return found
}

// validName reports whether encoding/json accepts name as the name in a tag.
func validName(name string) bool {
	for _, r := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return name != ""
}

// fieldAt returns the field at index. It allocates embedded structs on the way whose pointers are nil.
func fieldAt(target reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		if target.Kind() == reflect.Pointer {
			if target.IsNil() {
				target.Set(reflect.New(target.Type().Elem()))
			}
			target = target.Elem()
		}
		target = target.Field(i)
	}
	return target
}
