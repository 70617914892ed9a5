package cache

import (
	"bytes"

	"github.com/filohttp/filo"
)

// appendSelecting appends the value of a field by which answers vary. What means the same in a list of preferences is written alike (RFC 9111,
// section 4.1): white space beside commas and semicolons is left out, lines are joined, and codings and languages are in lower case. Other
// fields are left as they are, since what is the same in them isn't known, and so is the order: handlers may go by it.
func appendSelecting(dst []byte, h *filo.Header, name string) []byte {
	list, fold := false, false
	switch name {
	case "accept", "accept-charset":
		list = true
	case "accept-encoding", "accept-language":
		list, fold = true, true
	}
	separator := byte(1)
	for value := range h.Values(name) {
		dst = append(dst, separator)
		if !list {
			dst = append(dst, value...)
			continue
		}
		dst = appendList(dst, value, fold)
		separator = ','
	}
	return dst
}

// appendList appends a list without the white space beside its separators, in lower case if fold is set.
func appendList(dst, list []byte, fold bool) []byte {
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
		if fold && 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}
