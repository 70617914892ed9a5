package websocket

import "strings"

// list is the value of a field while it is parsed (RFC 6455, section 9.1). A field whose value doesn't follow the grammar exactly fails the
// handshake, so that both ends agree on its meaning.
type list struct{ rest string }

// skip skips white space, and reports whether anything is left.
func (l *list) skip() bool {
	l.rest = strings.TrimLeft(l.rest, " \t")
	return l.rest != ""
}

// take consumes a separator if it comes next.
func (l *list) take(separator byte) bool {
	if !l.skip() || l.rest[0] != separator {
		return false
	}
	l.rest = l.rest[1:]
	return true
}

// element advances to the next element of the list, and skips empty elements (RFC 9110, section 5.6.1.2). After the last element, more is
// false. ok reports whether the list is valid at this point.
func (l *list) element(first bool) (more, ok bool) {
	if !first && !l.take(',') {
		return false, !l.skip()
	}
	for l.take(',') {
	}
	return l.skip(), true
}

// token consumes a token, and returns "" if there is none.
func (l *list) token() string {
	l.skip()
	end := 0
	for end < len(l.rest) && isToken(l.rest[end:end+1]) {
		end++
	}
	token := l.rest[:end]
	l.rest = l.rest[end:]
	return token
}

// value consumes a token, or a quoted string that contains one.
func (l *list) value() (value string, ok bool) {
	if !l.take('"') {
		value = l.token()
		return value, value != ""
	}
	var unquoted []byte
	for i := 0; i < len(l.rest); i++ {
		switch c := l.rest[i]; {
		case c == '"':
			l.rest = l.rest[i+1:]
			return string(unquoted), isToken(string(unquoted))
		case c == '\\' && i+1 < len(l.rest):
			i++
			fallthrough
		default:
			unquoted = append(unquoted, l.rest[i])
		}
	}
	return "", false
}

// each parses the elements of the list one by one. An element begins with a token; take parses the rest of the element, and reports whether
// the element is valid. each reports whether the whole list is valid. An empty list is valid: some clients send the field without a value,
// and RFC 9110, section 5.6.1.2, requires recipients to accept that.
func (l *list) each(take func(token string) bool) (valid bool) {
	for first := true; ; first = false {
		more, ok := l.element(first)
		if !more {
			return ok
		}
		if token := l.token(); token == "" || !take(token) {
			return false
		}
	}
}

// eachToken yields the tokens of a list. It reports whether the whole list is valid.
func eachToken(s string, yield func(token string)) (valid bool) {
	l := list{s}
	return l.each(func(token string) bool {
		yield(token)
		return true
	})
}

// extension is an element of Sec-WebSocket-Extensions.
type extension struct {
	name   string
	params []param
}

type param struct {
	name, value string
	hasValue    bool
}

// eachExtension yields the elements of a list of extensions. It reports whether the whole list is valid.
func eachExtension(s string, yield func(extension)) (valid bool) {
	l := list{s}
	return l.each(func(token string) bool {
		e := extension{name: token}
		for l.take(';') {
			p := param{name: l.token()}
			if p.name == "" {
				return false
			}
			if l.take('=') {
				var ok bool
				if p.value, ok = l.value(); !ok {
					return false
				}
				p.hasValue = true
			}
			e.params = append(e.params, p)
		}
		yield(e)
		return true
	})
}
