// Package setup checks the arguments of constructors. Constructors panic on wrong arguments, so a mistake shows when the server is set up and not
// when it serves.
package setup

import (
	"fmt"

	"golang.org/x/net/http/httpguts"
)

// One returns the options from a constructor's variadic last parameter, or the zero value if there are none. If there are several, it panics with a
// message that begins with the constructor, such as "cache: New".
func One[Options any](constructor string, options []Options) (o Options) {
	if len(options) > 1 {
		panic(fmt.Sprintf("%s takes one %T at most, and was given %d: set all of them in one", constructor, o, len(options)))
	}
	if len(options) == 1 {
		return options[0]
	}
	return o
}

// Checker returns a function that panics unless ok, with a message that begins with the name of the package and says what is
// allowed.
func Checker(pkg string) func(ok bool, format string, args ...any) {
	return func(ok bool, format string, args ...any) {
		if !ok {
			panic(pkg + ": " + fmt.Sprintf(format, args...))
		}
	}
}

// CheckMethods checks that all methods are valid. A method is a token, as a field name is (RFC 9110, section 9.1).
func CheckMethods(check func(ok bool, format string, args ...any), option string, methods []string) {
	for _, method := range methods {
		check(httpguts.ValidHeaderFieldName(method), "%s: %q isn't a method", option, method)
	}
}
