package middleware

import (
	"fmt"
	"strings"

	"github.com/filohttp/filo"
	"golang.org/x/net/http/httpguts"
)

// What is wrong with options is found when a middleware is made, and panics: a server that starts has none of it.

// check panics with the message, which says what is allowed, unless ok.
func check(ok bool, format string, args ...any) {
	if !ok {
		panic("middleware: " + fmt.Sprintf(format, args...))
	}
}

// checkFieldName checks the name of a header field that an option holds.
func checkFieldName(option, name string) {
	check(httpguts.ValidHeaderFieldName(name), "%s: %q is no name of a header field", option, name)
}

// checkFieldValue checks the value of a header field that an option holds. Header would make spaces of line breaks; an option
// that has some is a mistake.
func checkFieldValue(option, value string) {
	check(httpguts.ValidHeaderFieldValue(value) && strings.TrimSpace(value) == value,
		"%s: %q is no value of a header field", option, value)
}

// checkMethods checks that all of them are methods, which are tokens as field names are (RFC 9110, section 9.1).
func checkMethods(option string, methods []string) {
	for _, method := range methods {
		check(httpguts.ValidHeaderFieldName(method), "%s: %q is no method", option, method)
	}
}

// quoted returns s as a quoted-string (RFC 9110, section 5.6.4). It must be a field value.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// prepare returns a field for all responses, nil without a value.
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
