package bind

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// walker compares a JSON document with the type that it was decoded into, and collects an error for each value that doesn't fit. It is
// needed only in three cases: when decoding has failed, because decoders report only one error; for Strict, because encoding/json ignores
// the case of names and accepts repeated ones; and for types with required fields or rules, because decoders don't report which members
// were present.
type walker struct {
	body []byte // is well-formed
	pos  int

	// explain says to search for values that the type can't hold, by decoding each value with encoding/json.
	explain bool
	// strict says to check the names of members.
	strict bool
	// require says to search for missing required fields, and for values that break rules.
	require bool

	path []step
	// seen are the members found so far in the objects around pos.
	seen     []int
	present  bits // the required fields that the outermost object has
	problems problems
	refused  [][2]int // where in the body the values are that the type can't hold, as start and end
	full     bool     // problems has reached its limit, or the work has reached its limit

	rescanned int // what the rules of lists have cost: see maxRescans
}

// step is one step of the path to a value: the name of a member, or an index if the name is nil.
type step struct {
	name  []byte
	index int
}

var (
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	anyType         = reflect.TypeFor[any]()
)

// value checks the value at pos against type t, and moves pos past the value. With quoted, the value belongs to a field with the
// tag option string: see objectMember.
func (w *walker) value(t, quoted reflect.Type) {
	w.space()
	c := w.body[w.pos]
	switch {
	case c == 'n' && t.Kind() == reflect.Pointer, !w.explain && c != '{' && c != '[':
		w.skip()
		return
	}
	for t.Kind() == reflect.Pointer && quoted == nil {
		t = t.Elem()
	}
	switch kind := t.Kind(); {
	case quoted != nil || c == 'n' || readsItself(t):
		w.leaf(t, quoted)
	case kind == reflect.Struct && c == '{':
		w.object(t)
	case kind == reflect.Map && c == '{':
		w.mapped(t)
	case (kind == reflect.Slice || kind == reflect.Array) && c == '[':
		w.array(t)
	default:
		w.leaf(t, quoted)
	}
}

// readsItself reports whether a type has its own decoder, so that the walker can't know what its parts should be.
func readsItself(t reflect.Type) bool {
	switch {
	case t.Kind() == reflect.Struct:
		return objectOf(t).readsItself
	case t.Name() == "":
		return false
	}
	return hasUnmarshaler(t)
}

func hasUnmarshaler(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(unmarshalerType) || reflect.PointerTo(t).Implements(textType)
}

// object checks the members of the JSON object at w.pos against the struct type t.
func (w *walker) object(t reflect.Type) {
	o, outer := objectOf(t), len(w.seen)
	outermost := len(w.path) == 0
	var present bits
	next := 0
	w.each('}', func(name []byte) {
		i, exact := o.find(name, next)
		next = i + 1
		switch {
		case !w.strict:
		case i < 0 || o.members[i].other && outermost:
			w.refuse(isUnknown)
			i = -1
		case slices.Contains(w.seen[outer:], i):
			w.refuse(isRepeated)
		case !exact:
			name := o.members[i].name
			w.refuse(flaw{code: "misspelt", detail: "must be written " + strconv.Quote(name), params: map[string]any{"name": name}})
		}
		if i < 0 {
			w.skip()
			return
		}
		m := &o.members[i]
		w.space()
		c := w.body[w.pos]
		switch {
		case m.required < 0:
		case c != 'n':
			present.set(m.required)
		case isNilable(m.typ): // a null after a value has set the field to nil
			present.clear(m.required)
		}
		ruled := w.require && m.rules != nil && !(m.other && outermost)
		if !w.strict && !w.explain && !ruled && (c != '{' && c != '[' || !presenceOf(m.typ).within) {
			w.skip()
			return
		}
		w.seen = append(w.seen, i)
		start, before := w.pos, len(w.problems.Fields)
		w.value(m.typ, m.quoted)
		if ruled && !w.full && len(w.problems.Fields) == before {
			w.rules(m.rules, w.body[start:w.pos], m.quoted != nil)
		}
	})
	w.seen = w.seen[:outer]
	switch {
	case outermost:
		w.present = present
	case w.require:
		w.missing(o, &present)
	}
}

// missing adds an error for each required member that an object lacks.
func (w *walker) missing(o *object, present *bits) {
	for i := range o.required {
		if name := o.required[i].names[inBody]; name != "" && !present.has(i) && !w.full {
			w.path = append(w.path, step{name: []byte(name)})
			w.refuse(isRequired)
			w.path = w.path[:len(w.path)-1]
		}
	}
}

// mapped checks the JSON object at pos against the map type t.
func (w *walker) mapped(t reflect.Type) {
	var names map[string]bool
	keys := reflect.MapOf(t.Key(), anyType)
	anyName := t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(textType)
	w.each('}', func(name []byte) {
		if w.strict {
			w.unique(&names, name)
		}
		if w.explain && !anyName {
			encoded, _ := json.Marshal(map[string]any{string(name): nil})
			if json.Unmarshal(encoded, reflect.New(keys).Interface()) != nil {
				w.refuse(flaw{code: "name", detail: "has a name that isn't allowed here"})
			}
		}
		w.value(t.Elem(), nil)
	})
}

// array checks the JSON array at pos against t, the type of a slice or an array.
func (w *walker) array(t reflect.Type) {
	i := 0
	w.each(']', func([]byte) {
		if t.Kind() == reflect.Array && i >= t.Len() {
			w.anything() // encoding/json drops elements for which an array has no room
		} else {
			w.value(t.Elem(), nil)
		}
		i++
	})
}

// anything moves pos past the value there. With strict, it refuses names that occur twice in an object of the value.
func (w *walker) anything() {
	w.space()
	switch c := w.body[w.pos]; {
	case !w.strict:
		w.skip()
	case c == '{':
		var names map[string]bool
		w.each('}', func(name []byte) {
			w.unique(&names, name)
			w.anything()
		})
	case c == '[':
		w.each(']', func([]byte) { w.anything() })
	default:
		w.skip()
	}
}

// unique records that an object has a member called name, and refuses a repeated one.
func (w *walker) unique(names *map[string]bool, name []byte) {
	if *names == nil {
		*names = make(map[string]bool)
	}
	if (*names)[string(name)] {
		w.refuse(isRepeated)
	}
	(*names)[string(name)] = true
}

// each calls visit for each member of the object, or element of the array, at pos. visit must move pos past the value. The name is valid
// until then.
func (w *walker) each(end byte, visit func(name []byte)) {
	w.pos++
	w.path = append(w.path, step{})
	for i := 0; ; i++ {
		w.space()
		switch w.body[w.pos] {
		case end:
			w.pos++
			w.path = w.path[:len(w.path)-1]
			return
		case ',':
			w.pos++
			w.space()
		}
		at := step{index: i}
		if end == '}' {
			at.name = w.name()
		}
		w.path[len(w.path)-1] = at
		visit(at.name)
		if w.full {
			// No further error can be added, so pos and path aren't used any more.
			w.pos = len(w.body)
			return
		}
	}
}

// name returns the decoded name of the member at pos, and moves pos past the colon.
func (w *walker) name() []byte {
	start := w.pos
	w.pos = stringEnd(w.body, start)
	quoted := w.body[start:w.pos]
	w.space()
	w.pos++ // the colon
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var name string
	_ = json.Unmarshal(quoted, &name) // the document is well-formed
	return append([]byte{}, name...)
}

// leaf checks a value that is decoded as a whole.
func (w *walker) leaf(t, quoted reflect.Type) {
	start := w.pos
	w.anything()
	// Whether an interface with methods can take a value depends on what the interface holds.
	if !w.explain || w.full || t.Kind() == reflect.Interface && t.NumMethod() > 0 {
		return
	}
	if wrong := refusal(t, quoted, w.body[start:w.pos]); wrong.code != "" {
		w.refused = append(w.refused, [2]int{start, w.pos})
		w.refuse(wrong)
	}
}

// refusal returns the flaw of the JSON value raw if type t can't hold it.
func refusal(t, quoted reflect.Type, raw []byte) flaw {
	if quoted != nil {
		raw = slices.Concat([]byte(`{"v":`), raw, []byte(`}`))
		if err := json.Unmarshal(raw, reflect.New(quoted).Interface()); err != nil {
			wrong := expected(t, nil, err)
			wrong.detail = "must be a string, which " + wrong.detail
			return wrong
		}
		return flaw{}
	}
	if fits(t, raw) {
		return flaw{}
	}
	if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
		return expected(t, raw, err)
	}
	return flaw{}
}

// withoutRefused returns the body with null in place of each refused value: null leaves a field as it is.
func (w *walker) withoutRefused() []byte {
	var b []byte
	end := 0
	for _, at := range w.refused {
		b = append(append(b, w.body[end:at[0]]...), "null"...)
		end = at[1]
	}
	return append(b, w.body[end:]...)
}

// fits reports whether a value obviously fits type t. Most values do, and decoding each of them separately would cost several
// times as much as decoding the whole body: see BenchmarkLargeErrors.
func fits(t reflect.Type, raw []byte) bool {
	if t.PkgPath() != "" { // it may have its own decoder
		return false
	}
	switch kind := t.Kind(); {
	case kind == reflect.String:
		return raw[0] == '"'
	case kind == reflect.Bool:
		return raw[0] == 't' || raw[0] == 'f'
	case kind >= reflect.Int && kind <= reflect.Int64:
		_, err := strconv.ParseInt(string(raw), 10, t.Bits())
		return err == nil
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		_, err := strconv.ParseUint(string(raw), 10, t.Bits())
		return err == nil
	case kind == reflect.Float32, kind == reflect.Float64:
		_, err := strconv.ParseFloat(string(raw), t.Bits())
		return err == nil
	}
	return false
}

// expected says what a value of type t must be. raw isn't such a value: decoding it has failed with err.
func expected(t reflect.Type, raw []byte, err error) flaw {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	pointer := reflect.PointerTo(t)
	switch {
	case t == timeType:
		return mustBeTime
	case pointer.Implements(unmarshalerType), pointer.Implements(textType) && len(raw) > 0 && raw[0] == '"':
		return refusedBy(err)
	case pointer.Implements(textType):
		return mustBeString
	}
	switch kind := t.Kind(); {
	case kind == reflect.Struct, kind == reflect.Map:
		return flaw{code: "object", detail: "must be an object"}
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return flaw{code: "base64", detail: "must be a string in base64"}
	case kind == reflect.Slice, kind == reflect.Array:
		return flaw{code: "array", detail: "must be an array"}
	case kind == reflect.String:
		return mustBeString
	case kind == reflect.Bool:
		return mustBeBool
	case kind >= reflect.Int && kind <= reflect.Uintptr:
		return mustBeInteger(t, raw)
	case kind == reflect.Interface:
		return flaw{code: outOfRange.code, detail: "has a number that is too large"}
	case (kind == reflect.Float32 || kind == reflect.Float64) && len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9'):
		return outOfRange
	case kind == reflect.Float32, kind == reflect.Float64:
		return mustBeNumber
	}
	return flaw{code: "type", detail: "can't be set"}
}

// skip moves pos past the value there.
func (w *walker) skip() {
	w.space()
	for depth := 0; w.pos < len(w.body); {
		switch w.body[w.pos] {
		case '"':
			w.pos = stringEnd(w.body, w.pos)
		case '{', '[':
			w.pos++
			depth++
			continue
		case '}', ']':
			w.pos++
			depth--
		case ',', ':', ' ', '\t', '\r', '\n':
			w.pos++
			continue
		default:
			w.literal()
		}
		if depth == 0 {
			return
		}
	}
}

// literal moves pos past the number or word there.
func (w *walker) literal() {
	for w.pos < len(w.body) {
		switch w.body[w.pos] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return
		}
		w.pos++
	}
}

// space moves pos past white space.
func (w *walker) space() {
	for w.pos < len(w.body) {
		switch w.body[w.pos] {
		case ' ', '\t', '\r', '\n':
			w.pos++
		default:
			return
		}
	}
}

// refuse adds an error for the value that path leads to.
func (w *walker) refuse(wrong flaw) {
	w.full = !w.problems.add(422, wrong.in(FieldError{In: "body", Pointer: w.pointer()}))
}

// pointer returns path as a JSON Pointer, which may be cut off after maxName bytes.
func (w *walker) pointer() string {
	var b strings.Builder
	for _, s := range w.path {
		if b.Len() > maxName {
			break
		}
		if s.name == nil {
			b.WriteString("/" + strconv.Itoa(s.index))
		} else {
			b.WriteString("/" + pointerEscape.Replace(string(s.name[:min(len(s.name), maxName+1)])))
		}
	}
	return b.String()
}

// pointerEscape escapes a name as in RFC 6901, section 4.
var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")
