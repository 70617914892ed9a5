package humafilo

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// This file translates the rules in the tag validate of contrib/validate to JSON Schema, so that rules needn't be written a second time for
// the document. Rules that JSON Schema can't express are left out: the document then allows more than the server does, never less.

// formats are JSON Schema's names for rules about the format of a string.
var formats = map[string]string{
	"email": "email", "url": "uri", "http_url": "uri", "uri": "uri", "uuid": "uuid", "uuid4": "uuid", "hostname": "hostname",
	"ipv4": "ipv4", "ipv6": "ipv6",
}

// patterns are the regular expressions that the validator itself uses for rules about a string's characters.
var patterns = map[string]string{"alpha": "^[a-zA-Z]+$", "alphanum": "^[a-zA-Z0-9]+$", "number": "^[0-9]+$"}

// oneOfValues splits the values of a oneof as the validator does: values with spaces are in quotes.
var oneOfValues = regexp.MustCompile(`'[^']*'|\S+`)

// rulesOf returns a field's rules, such as "min=3". Alternatives such as "hexcolor|rgb" aren't included.
func rulesOf(f reflect.StructField) (rules []string) {
	for rule := range strings.SplitSeq(f.Tag.Get("validate"), ",") {
		if rule == "-" || rule == "" || strings.Contains(rule, "|") {
			continue
		}
		rules = append(rules, rule)
	}
	return rules
}

// demanded reports whether the validator refuses the field's zero value, and therefore a request without it.
func demanded(f reflect.StructField) bool {
	t := f.Type
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, rule := range rulesOf(f) {
		switch name, parameter, _ := strings.Cut(rule, "="); name {
		case "omitempty", "omitzero", "omitnil", "dive": // the rules after it don't apply to the zero value, or apply to the elements
			return false
		case "required":
			return true
		default:
			if refusesZero(t, f.Type.Kind() == reflect.Pointer, name, parameter) {
				return true
			}
		}
	}
	return false
}

// refusesZero reports whether a rule refuses the zero value of a type, or the nil of a pointer to it.
func refusesZero(t reflect.Type, pointer bool, name, parameter string) bool {
	switch {
	case name == "oneof" && !pointer:
		zero := "0"
		if t.Kind() == reflect.String {
			zero = "''"
		}
		return !slices.Contains(oneOfValues.FindAllString(parameter, -1), zero)
	case name == "oneof", formats[name] != "", patterns[name] != "":
		return true
	case name == "eq" && t.Kind() == reflect.String:
		return pointer || parameter != ""
	case t == reflect.TypeFor[time.Time](), t == reflect.TypeFor[time.Duration]():
		return false
	}
	n, err := strconv.ParseFloat(parameter, 64)
	if err != nil {
		return false
	}
	switch name {
	case "min", "gte":
		return pointer || n > 0
	case "gt":
		return pointer || n >= 0
	case "max", "lte":
		return pointer || n < 0
	case "lt":
		return pointer || n <= 0
	case "len", "eq":
		return pointer || n != 0
	}
	return false
}

// describeRules adds the rules of a field to its schema.
func describeRules(schema *huma.Schema, f reflect.StructField) {
	t := f.Type
	inKeys, pointer := false, false
	for _, rule := range rulesOf(f) {
		for t.Kind() == reflect.Pointer {
			t, pointer = t.Elem(), true
		}
		switch rule {
		case "dive":
			switch {
			case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
				schema, t = schema.Items, t.Elem()
			case t.Kind() == reflect.Map:
				values, _ := schema.AdditionalProperties.(*huma.Schema)
				schema, t = values, t.Elem()
			default:
				return
			}
			if schema == nil {
				return
			}
			pointer = false
		case "keys", "endkeys":
			inKeys = rule == "keys"
		default:
			if !inKeys {
				describeRule(schema, t, pointer, rule)
			}
		}
	}
}

// describeRule adds one rule for a value of type t. It doesn't change a schema that is a reference, since all values of its type share the
// schema to which the reference points.
func describeRule(schema *huma.Schema, t reflect.Type, pointer bool, rule string) {
	name, parameter, _ := strings.Cut(rule, "=")
	if schema.Ref != "" {
		return
	}
	switch {
	case name == "required":
		schema.Nullable = false
		switch {
		case pointer: // any value but null
		case schema.Type == huma.TypeString && len(schema.Enum) == 0:
			least(&schema.MinLength, 1)
		case schema.Type == huma.TypeBoolean:
			schema.Enum = []any{true}
		}
	case name == "oneof":
		schema.Enum = nil
		for _, text := range oneOfValues.FindAllString(parameter, -1) {
			if value := valueOf(schema, strings.ReplaceAll(text, "'", "")); value != nil {
				schema.Enum = append(schema.Enum, value)
			}
		}
	case name == "eq" && valueOf(schema, parameter) != nil:
		schema.Enum = []any{valueOf(schema, parameter)}
	case name == "unique" && parameter == "" && schema.Type == huma.TypeArray:
		schema.UniqueItems = true
	case name == "datetime" && parameter == "2006-01-02" && schema.Type == huma.TypeString:
		schema.Format = "date"
	case formats[name] != "" && schema.Type == huma.TypeString:
		schema.Format = formats[name]
	case patterns[name] != "" && schema.Type == huma.TypeString && schema.Pattern == "":
		schema.Pattern = patterns[name]
	default:
		describeComparison(schema, t, name, parameter)
	}
}

// valueOf returns the value of a rule's parameter, or nil if the schema's type isn't known.
func valueOf(schema *huma.Schema, text string) any {
	switch schema.Type {
	case huma.TypeString:
		return text
	case huma.TypeInteger:
		if n, err := strconv.ParseInt(text, 0, 64); err == nil {
			return n
		}
	case huma.TypeNumber:
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	}
	return nil
}

// describeComparison adds a rule about a number, or about a length.
func describeComparison(schema *huma.Schema, t reflect.Type, name, parameter string) {
	if t == reflect.TypeFor[time.Duration]() || t == reflect.TypeFor[time.Time]() {
		return // the parameter is a duration, or the value is compared with the present time
	}
	isNumber := schema.Type == huma.TypeInteger || schema.Type == huma.TypeNumber
	var lower, upper **int
	switch {
	case schema.Type == huma.TypeString && t.Kind() == reflect.String:
		lower, upper = &schema.MinLength, &schema.MaxLength
	case schema.Type == huma.TypeArray:
		lower, upper = &schema.MinItems, &schema.MaxItems
	case schema.Type == huma.TypeObject && t.Kind() == reflect.Map:
		lower, upper = &schema.MinProperties, &schema.MaxProperties
	case !isNumber:
		return
	}
	if isNumber {
		n, err := strconv.ParseFloat(parameter, 64)
		if i, ok := valueOf(&huma.Schema{Type: huma.TypeInteger}, parameter).(int64); ok && schema.Type == huma.TypeInteger {
			n, err = float64(i), nil
		}
		if err != nil {
			return
		}
		switch name {
		case "min", "gte":
			schema.Minimum = &n
		case "max", "lte":
			schema.Maximum = &n
		case "gt":
			schema.ExclusiveMinimum = &n
		case "lt":
			schema.ExclusiveMaximum = &n
		case "len":
			schema.Enum = []any{valueOf(schema, parameter)}
		}
		return
	}
	n, err := strconv.Atoi(parameter)
	if err != nil {
		return
	}
	switch name {
	case "min", "gte":
		least(lower, n)
	case "gt":
		least(lower, n+1)
	case "max", "lte":
		*upper = &n
	case "lt":
		n--
		*upper = &n
	case "len":
		*lower, *upper = &n, &n
	}
}

// least raises a bound to at least n.
func least(bound **int, n int) {
	if *bound == nil || **bound < n {
		*bound = &n
	}
}
