package middleware

import (
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
	"golang.org/x/net/http/httpguts"
)

var check = setup.Checker("middleware")

// checkFieldName checks the name of a header field that is given in an option.
func checkFieldName(option, name string) {
	check(httpguts.ValidHeaderFieldName(name), "%s: %q isn't a header field name", option, name)
}

// checkFieldValue checks the value of a header field that is given in an option. filo.Header would replace line breaks with spaces, but a
// line break in an option is a mistake.
func checkFieldValue(option, value string) {
	check(httpguts.ValidHeaderFieldValue(value) && strings.TrimSpace(value) == value,
		"%s: %q is no value of a header field", option, value)
}

// quoted returns s as a quoted-string (RFC 9110, section 5.6.4). s must be valid as a field value.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// prepare returns a field that all responses share, or nil if the value is empty.
func prepare(name, value string) *filo.Field {
	if value == "" {
		return nil
	}
	f := filo.NewField(name, value)
	return &f
}

// setPrepared sets a field that prepare has made.
func setPrepared(c *filo.Ctx, f *filo.Field) {
	if f != nil {
		c.Response.Header.SetField(f)
	}
}
