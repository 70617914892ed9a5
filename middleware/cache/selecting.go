package cache

import (
	"bytes"

	"github.com/filohttp/filo"
)

// appendSelecting appends the value of a field by which answers vary. In a list of preferences the white space around commas and semicolons
// is left out (RFC 9111, section 4.1). Everything else is kept, since handlers may depend on it: on the order, on the case of names, or on
// which values are in the first line.
func appendSelecting(dst []byte, h *filo.Header, name string) []byte {
	list := name == "accept" || name == "accept-charset" || name == "accept-encoding" || name == "accept-language"
	for value := range h.Values(name) {
		dst = append(dst, 1)
		if list {
			dst = appendList(dst, value)
		} else {
			dst = append(dst, value...)
		}
	}
	return dst
}

// appendList appends a list without the white space around its separators.
func appendList(dst, list []byte) []byte {
	quoted, separated := false, true
	for i := 0; i < len(list); i++ {
		c := list[i]
		switch {
		case quoted && c == '\\' && i+1 < len(list):
			dst = append(dst, c)
			i++
			c = list[i]
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\t'):
			rest := bytes.TrimLeft(list[i:], " \t")
			if separated || len(rest) == 0 || rest[0] == ',' || rest[0] == ';' {
				i = len(list) - len(rest) - 1
				continue
			}
		}
		separated = !quoted && (c == ',' || c == ';')
		dst = append(dst, c)
	}
	return dst
}
