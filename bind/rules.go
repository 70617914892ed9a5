package bind

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// rules holds the restrictions that a field's tags put on its value, in the terms of JSON Schema. They apply to the text that was sent,
// not to defaults, and not to null.
type rules struct {
	scalar []scalarRule // of a string or number, or of each element of a list
	least  *listRule
	most   *listRule
	unique bool
	// numeric says that the field's type decodes itself from a text that may be a number: json.Number, big.Int, a decimal.
	numeric bool
}

// scalarRule is a rule about a string, or about a number: the function for the other kind is nil.
type scalarRule struct {
	flaw   flaw
	text   func(text string) bool
	number func(n number) bool
}

type listRule struct {
	flaw  flaw
	limit int
}

// isRepeatedItem is the flaw of a list whose elements must differ.
var isRepeatedItem = flaw{code: "uniqueItems", detail: "must not have anything twice"}

// isNested is the flaw of a document whose lists are nested so deeply that checking their rules would take long.
var isNested = flaw{code: "nested", detail: "is nested too deeply"}

// maxRescans limits the work for the rules of lists. Rules read a list again after the walker has read it, so a byte is read once for each list
// with rules around it. Reading costs 1 for each byte, and 5 if the elements must differ, since they are decoded then. The whole may cost 8 for
// each byte of the document, and freeRescans besides.
const maxRescans, freeRescans = 8, 1 << 20

// number is a number as it was sent. Integers are compared as such, because a float64 can't hold all of them exactly.
type number struct {
	float   float64
	integer int64
	exact   bool // integer holds the number's exact value
}

func numberOf(text string) (n number, ok bool) {
	integer, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		return number{float64(integer), integer, true}, true
	}
	n.float, err = strconv.ParseFloat(text, 64)
	return n, err == nil || math.IsInf(n.float, 0) // a number that is too large for a float64 counts as infinite
}

// takesNumberAsText reports whether t, or the element of a list t, decodes itself from texts that may be numbers.
func takesNumberAsText(t reflect.Type) bool {
	for (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) && !reflect.PointerTo(t).Implements(textType) {
		t = t.Elem()
	}
	pointer := reflect.PointerTo(t)
	return t == reflect.TypeFor[json.Number]() || pointer.Implements(textType) || pointer.Implements(unmarshalerType)
}

// compare returns -1, 0 or 1.
func (n number) compare(other number) int {
	switch {
	case n.exact && other.exact && n.integer < other.integer, !(n.exact && other.exact) && n.float < other.float:
		return -1
	case n.exact && other.exact && n.integer > other.integer, !(n.exact && other.exact) && n.float > other.float:
		return 1
	}
	return 0
}

func (n number) isMultipleOf(other number) bool {
	if n.exact && other.exact {
		return n.integer%other.integer == 0
	}
	quotient := n.float / other.float
	return math.Abs(quotient-math.Round(quotient)) < 1e-9*max(1, math.Abs(quotient))
}

// rulesOf returns a field's rules, nil if it has none. An error is a programming mistake.
func rulesOf(f reflect.StructField) (*rules, error) {
	r := rules{numeric: takesNumberAsText(f.Type)}
	for _, each := range [...]struct {
		tag, words string
		allows     func(n, limit number) bool
	}{
		{"minimum", "must be at least ", func(n, limit number) bool { return n.compare(limit) >= 0 }},
		{"maximum", "must be at most ", func(n, limit number) bool { return n.compare(limit) <= 0 }},
		{"exclusiveMinimum", "must be more than ", func(n, limit number) bool { return n.compare(limit) > 0 }},
		{"exclusiveMaximum", "must be less than ", func(n, limit number) bool { return n.compare(limit) < 0 }},
		{"multipleOf", "must be a multiple of ", number.isMultipleOf},
	} {
		if text := f.Tag.Get(each.tag); text != "" {
			limit, ok := numberOf(text)
			if !ok || math.IsInf(limit.float, 0) || each.tag == "multipleOf" && limit.float <= 0 {
				return nil, mistakenRule(each.tag, text)
			}
			r.scalar = append(r.scalar, scalarRule{flaw: ruleFlaw(each.tag, each.words+text, json.Number(text)),
				number: func(n number) bool { return each.allows(n, limit) }})
		}
	}
	for _, each := range [...]struct {
		tag, words, unit string
		sign             int
	}{
		{"minLength", "at least", "character", 1}, {"maxLength", "at most", "character", -1},
		{"minItems", "at least", "element", 1}, {"maxItems", "at most", "element", -1},
	} {
		text := f.Tag.Get(each.tag)
		if text == "" {
			continue
		}
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 0 {
			return nil, mistakenRule(each.tag, text)
		}
		if limit != 1 {
			each.unit += "s"
		}
		wrong := ruleFlaw(each.tag, fmt.Sprintf("must have %s %d %s", each.words, limit, each.unit), limit)
		switch each.tag {
		case "minItems":
			r.least = &listRule{wrong, limit}
		case "maxItems":
			r.most = &listRule{wrong, limit}
		default:
			r.scalar = append(r.scalar, scalarRule{flaw: wrong, text: func(text string) bool { return (utf8.RuneCountInString(text)-limit)*each.sign >= 0 }})
		}
	}
	if text := f.Tag.Get("pattern"); text != "" {
		pattern, err := regexp.Compile(text)
		if err != nil {
			return nil, mistakenRule("pattern", text)
		}
		words := "must match " + text
		if description := f.Tag.Get("patternDescription"); description != "" {
			words = "must be " + description
		}
		r.scalar = append(r.scalar, scalarRule{flaw: ruleFlaw("pattern", words, text), text: pattern.MatchString})
	}
	if text := f.Tag.Get("enum"); text != "" {
		values := strings.Split(text, ",")
		r.scalar = append(r.scalar, scalarRule{flaw: ruleFlaw("enum", "must be one of: "+strings.Join(values, ", "), text),
			text: func(text string) bool { return slices.Contains(values, text) },
			number: func(n number) bool {
				return slices.ContainsFunc(values, func(value string) bool {
					other, ok := numberOf(value)
					return ok && n.compare(other) == 0
				})
			}})
	}
	r.unique = f.Tag.Get("uniqueItems") == "true"
	if len(r.scalar) == 0 && r.least == nil && r.most == nil && !r.unique {
		return nil, nil
	}
	return &r, nil
}

// ruleFlaw returns the flaw of a value that breaks a rule. It leaves out a parameter that is too long for an answer.
func ruleFlaw(tag, detail string, parameter any) flaw {
	wrong := flaw{code: tag, detail: detail}
	if text, ok := parameter.(string); !ok || len(text) <= maxDetail {
		wrong.params = map[string]any{tag: parameter}
	}
	return wrong
}

func mistakenRule(tag, text string) error {
	expected := map[string]string{"pattern": "a regular expression", "multipleOf": "a number above 0", "minLength": "a length", "maxLength": "a length",
		"minItems": "a length", "maxItems": "a length"}[tag]
	if expected == "" {
		expected = "a number"
	}
	return fmt.Errorf("tag %s:%q: it must be %s", tag, text, expected)
}

// ofText returns the flaw for the first rule that a string, or a number, breaks.
func (r *rules) ofText(text string, isNumber bool) flaw {
	n, ok := number{}, false
	if isNumber || r.numeric {
		n, ok = numberOf(text)
	}
	for i := range r.scalar {
		rule := &r.scalar[i]
		asNumber := ok && rule.number != nil && (isNumber || rule.text == nil)
		if asNumber && !rule.number(n) || !isNumber && rule.text != nil && !rule.text(text) {
			return rule.flaw
		}
	}
	return flaw{}
}

// ofJSON is like ofText, for a JSON value.
func (r *rules) ofJSON(raw []byte) flaw {
	switch c := raw[0]; {
	case c == '"':
		var text string
		_ = json.Unmarshal(raw, &text) // the document is well-formed
		return r.ofText(text, false)
	case c == '-', c >= '0' && c <= '9':
		return r.ofText(string(raw), true)
	}
	return flaw{}
}

// ofLength returns the flaw of a list that has length elements.
func (r *rules) ofLength(length int) flaw {
	switch {
	case r.least != nil && length < r.least.limit:
		return r.least.flaw
	case r.most != nil && length > r.most.limit:
		return r.most.flaw
	}
	return flaw{}
}

// rules adds an error for each rule that a JSON value breaks. The caller has checked that the field's type can hold the value.
func (w *walker) rules(r *rules, raw []byte, quoted bool) {
	if quoted && raw[0] == '"' {
		var text string
		_ = json.Unmarshal(raw, &text)
		raw = []byte(text)
	}
	if len(raw) == 0 {
		return
	}
	if raw[0] != '[' {
		if wrong := r.ofJSON(raw); wrong.code != "" {
			w.refuse(wrong)
		}
		return
	}
	cost := len(raw)
	if r.unique {
		cost *= 5
	}
	if w.rescanned += cost; w.rescanned > maxRescans*len(w.body)+freeRescans {
		w.refuse(isNested)
		w.full = true
		return
	}
	var seen map[string]bool
	length, repeated := 0, false
	list := walker{body: raw}
	list.each(']', func([]byte) {
		list.space()
		start := list.pos
		list.skip()
		element := raw[start:list.pos]
		w.path = append(w.path, step{index: length})
		length++
		if wrong := r.ofJSON(element); wrong.code != "" && !w.full {
			w.refuse(wrong)
		}
		w.path = w.path[:len(w.path)-1]
		if r.unique && !repeated {
			if seen == nil {
				seen = make(map[string]bool)
			}
			key := canonical(element)
			repeated = seen[key]
			seen[key] = true
		}
		list.full = w.full
	})
	if wrong := r.ofLength(length); wrong.code != "" && !w.full {
		w.refuse(wrong)
	}
	if repeated && !w.full {
		w.refuse(isRepeatedItem)
	}
}

// canonical returns a JSON value in a uniform spelling, so that equal values compare equal. A number outside of an object or
// array keeps its spelling.
func canonical(raw []byte) string {
	if raw[0] != '"' && raw[0] != '{' && raw[0] != '[' {
		return string(raw)
	}
	var value any
	_ = json.Unmarshal(raw, &value)
	text, _ := json.Marshal(value)
	return string(text)
}
