package caching

import (
	"bytes"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// HasToken reports whether a list has the token, in any case.
func HasToken(h *filo.Header, name, token string) bool {
	for list := range h.Values(name) {
		if syntax.ListHasToken(list, token) {
			return true
		}
	}
	return false
}

// Directive returns the argument of a directive of Cache-Control, without quotes, and whether the field has the directive. If the directive occurs
// more than once, the first occurrence counts (RFC 9111, section 4.2.1).
func Directive(h *filo.Header, name string) (argument []byte, ok bool) {
	for list := range h.Values("Cache-Control") {
		for len(list) > 0 {
			var element []byte
			element, list = syntax.CutQuoted(list, ',')
			directive, argument, _ := bytes.Cut(element, []byte{'='})
			if syntax.EqualFold(bytes.TrimSpace(directive), name) {
				return bytes.Trim(argument, " \t\""), true
			}
		}
	}
	return nil, false
}

// HasDirective reports whether Cache-Control has the directive.
func HasDirective(h *filo.Header, name string) bool {
	_, ok := Directive(h, name)
	return ok
}

// DirectiveSeconds returns the argument of a directive such as max-age as a duration, and whether there is a valid one.
func DirectiveSeconds(h *filo.Header, name string) (time.Duration, bool) {
	argument, ok := Directive(h, name)
	if !ok {
		return 0, false
	}
	return Seconds(argument)
}

// Age returns the number in the field Age, and whether there is one. In a list the first number counts (RFC 9111, section 5.1).
func Age(h *filo.Header) (time.Duration, bool) {
	first, _, _ := bytes.Cut(h.GetBytes("Age"), []byte{','})
	return Seconds(syntax.TrimSpace(first))
}

// Seconds parses delta-seconds (RFC 9111, section 1.2.2). It reduces a larger number to 2^31.
func Seconds(value []byte) (time.Duration, bool) {
	if len(value) == 0 {
		return 0, false
	}
	n := int64(0)
	for _, b := range value {
		if b < '0' || b > '9' {
			return 0, false
		}
		n = min(10*n+int64(b-'0'), 1<<31)
	}
	return time.Duration(n) * time.Second, true
}

// DropTargeted removes the fields that some caches, such as those of a CDN, obey instead of Cache-Control.
func DropTargeted(h *filo.Header) {
	for {
		targeted := ""
		for name := range h.All() {
			if syntax.IsTargeted(name) {
				targeted = string(name)
			}
		}
		if targeted == "" {
			return
		}
		h.Del(targeted)
	}
}
