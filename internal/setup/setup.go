// Package setup checks the arguments of constructors. Wrong arguments panic when a server is set up, so a server that starts has none.
package setup

import (
	"fmt"

	"golang.org/x/net/http/httpguts"
)

// One returns the options that a constructor has received as its last, variadic argument: the zero value if there are none. It panics if
// there are two, with a message that begins with the constructor, such as "cache: New".
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

// CheckMethods checks that all of them are valid methods, which are tokens like field names (RFC 9110, section 9.1).
func CheckMethods(check func(ok bool, format string, args ...any), option string, methods []string) {
	for _, method := range methods {
		check(httpguts.ValidHeaderFieldName(method), "%s: %q isn't a method", option, method)
	}
}
