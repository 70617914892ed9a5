package websocket

import "strings"

// list is the value of a field that has to be taken apart (RFC 6455, section 9.1). Fields whose value isn't exactly of the
// grammar fail the handshake, so that both ends have understood the same.
type list struct{ rest string }

// skip takes white space, and reports whether something is left.
func (l *list) skip() bool {
	l.rest = strings.TrimLeft(l.rest, " \t")
	return l.rest != ""
}

// take takes a separator if that comes next.
func (l *list) take(separator byte) bool {
	if !l.skip() || l.rest[0] != separator {
		return false
	}
	l.rest = l.rest[1:]
	return true
}

// element goes to the next element of the list, over empty ones (RFC 9110, section 5.6.1.2). Behind the last one it returns
// false; ok says whether what is there is an element or the end.
func (l *list) element(first bool) (more, ok bool) {
	if !first && !l.take(',') {
		return false, !l.skip()
	}
	for l.take(',') {
	}
	return l.skip(), true
}

// token takes a token, "" if there is none.
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

// value takes a token, or a quoted string that stands for one.
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

// each takes the elements of the list one by one, each of which begins with a token; take takes what is behind that, and
// reports whether it is valid. each reports whether there is nothing else. An empty list is valid: some clients send the field without a
// value, and RFC 9110, section 5.6.1.2, has recipients accept that.
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

// eachToken yields the tokens of a list. It reports whether there is nothing else.
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

// eachExtension yields the elements of a list of extensions. It reports whether there is nothing else.
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
