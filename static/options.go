package static

import "fmt"

// check panics with the message, which says what is allowed, unless ok. What is wrong with options is found when Files are
// made, not when they serve.
func check(ok bool, format string, args ...any) {
	if !ok {
		panic("static: " + fmt.Sprintf(format, args...))
	}
}
