package validate

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/go-playground/validator/v10"
)

// messages are the texts of rules whose text depends only on their parameter, which replaces %s.
var messages = map[string]string{
	"required":         "is required",
	"required_if":      "is required",
	"required_unless":  "is required",
	"required_with":    "is required",
	"required_without": "is required",
	"excluded_if":      "must not be given",
	"excluded_with":    "must not be given",
	"eq":               "must be %s",
	"ne":               "must not be %s",
	"eqfield":          "must be the same as %s",
	"nefield":          "must not be the same as %s",
	"gtfield":          "must be more than %s",
	"gtefield":         "must be at least %s",
	"ltfield":          "must be less than %s",
	"ltefield":         "must be at most %s",
	"alpha":            "must have letters only",
	"alphanum":         "must have letters and digits only",
	"ascii":            "must have ASCII characters only",
	"numeric":          "must be a number",
	"number":           "must have digits only",
	"boolean":          "must be true or false",
	"lowercase":        "must be in lower case",
	"uppercase":        "must be in upper case",
	"contains":         "must contain %s",
	"excludes":         "must not contain %s",
	"startswith":       "must start with %s",
	"endswith":         "must end with %s",
	"email":            "must be an e-mail address",
	"url":              "must be a URL",
	"http_url":         "must be a URL with http or https",
	"uri":              "must be a URI",
	"hostname":         "must be a host name",
	"fqdn":             "must be a fully qualified domain name",
	"ip":               "must be an IP address",
	"ipv4":             "must be an IPv4 address",
	"ipv6":             "must be an IPv6 address",
	"cidr":             "must be an address range in CIDR notation",
	"uuid":             "must be a UUID",
	"uuid4":            "must be a UUID of version 4",
	"base64":           "must be in base64",
	"hexadecimal":      "must be in hexadecimal",
	"json":             "must be JSON",
	"datetime":         "must be a time written as %s",
	"timezone":         "must be the name of a time zone",
	"e164":             "must be a telephone number as in E.164",
	"iso3166_1_alpha2": "must be a country's code of two letters",
	"iso4217":          "must be the code of a currency",
	"unique":           "must not have anything twice",
}

// comparisons are the texts of rules that compare a number, a length or a time.
var comparisons = map[string]string{
	"min": "at least",
	"max": "at most",
	"len": "exactly",
	"gte": "at least",
	"lte": "at most",
	"gt":  "more than",
	"lt":  "less than",
}

// oneOfValues splits the values of a oneof as the validator does: values with spaces are in quotes.
var oneOfValues = regexp.MustCompile(`'[^']*'|\S+`)

// Message says in English which values a rule allows, such as "must be at least 3" or "must have at most 10 characters". For an
// unknown rule it returns the rule's name and parameter.
func Message(rule validator.FieldError) string {
	tag, parameter := rule.ActualTag(), rule.Param()
	if text, ok := messages[tag]; ok {
		return strings.Replace(text, "%s", parameter, 1)
	}
	if comparison, ok := comparisons[tag]; ok {
		return compared(rule, comparison)
	}
	if tag == "oneof" {
		values := oneOfValues.FindAllString(parameter, -1)
		for i, value := range values {
			values[i] = strings.ReplaceAll(value, "'", "")
		}
		return "must be one of: " + strings.Join(values, ", ")
	}
	if parameter != "" {
		tag += "=" + parameter
	}
	return fmt.Sprintf("breaks the rule %q", tag)
}

// paramsOf returns the parameters that a translation of the rule needs, or nil if it needs none.
func paramsOf(rule validator.FieldError) map[string]any {
	if comparisons[rule.ActualTag()] != "" && rule.Kind() == reflect.Struct {
		return map[string]any{"of": "time"} // the value is compared with the present time
	}
	if rule.Param() == "" {
		return nil
	}
	params := map[string]any{rule.ActualTag(): rule.Param()}
	if comparisons[rule.ActualTag()] == "" {
		return params
	}
	switch rule.Kind() {
	case reflect.String:
		params["of"] = "characters"
	case reflect.Slice, reflect.Array, reflect.Map:
		params["of"] = "elements"
	default:
		params["of"] = "number"
	}
	return params
}

// compared returns the message for a rule about a number, a length or a time.
func compared(rule validator.FieldError, comparison string) string {
	unit := ""
	switch rule.Kind() {
	case reflect.String:
		unit = "character"
	case reflect.Slice, reflect.Array, reflect.Map:
		unit = "element"
	case reflect.Struct: // a time, which is compared with the present time
		return map[string]string{"at least": "must be now or later", "more than": "must be later than now",
			"at most": "must be now or earlier", "less than": "must be earlier than now"}[comparison]
	default:
		return "must be " + comparison + " " + rule.Param()
	}
	if rule.Param() != "1" {
		unit += "s"
	}
	return fmt.Sprintf("must have %s %s %s", comparison, rule.Param(), unit)
}
