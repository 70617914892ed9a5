package syntax

// Dictionary parses a structured field that is a dictionary (RFC 9651, section 3.2), member by member. It checks the value and the parameters of each
// member, but ignores what the parameters say.
type Dictionary struct {
	b   []byte
	bad bool
}

// NewDictionary returns the dictionary of a field's value.
func NewDictionary(value []byte) Dictionary { return Dictionary{b: TrimSpace(value)} }

var valueless = []byte("?1")

// Next returns the next member's name. item is the text of the member's value if that is a number or a boolean, and otherwise nil. A member without a
// value has the value "?1". Next reports false at the end, and at the first syntax error.
func (d *Dictionary) Next() (key, item []byte, ok bool) {
	if len(d.b) == 0 || d.bad {
		return nil, nil, false
	}
	key, item = d.key(), valueless
	if d.skip('=') {
		item = d.value()
	}
	d.parameters()
	d.b = TrimSpace(d.b)
	if len(d.b) > 0 {
		d.bad = d.bad || !d.skip(',')
		d.b = TrimSpace(d.b)
		d.bad = d.bad || len(d.b) == 0
	}
	return key, item, !d.bad
}

// Bad reports whether Next has found a syntax error. Then the whole field is invalid, including the members before the error.
func (d *Dictionary) Bad() bool { return d.bad }

// skip consumes c if it is the next byte, and reports whether it was.
func (d *Dictionary) skip(c byte) bool {
	if len(d.b) == 0 || d.b[0] != c {
		return false
	}
	d.b = d.b[1:]
	return true
}

// take consumes bytes as long as accepts returns true for them.
func (d *Dictionary) take(accepts func(byte) bool) []byte {
	n := 0
	for n < len(d.b) && accepts(d.b[n]) {
		n++
	}
	taken := d.b[:n]
	d.b = d.b[n:]
	return taken
}

// takeTo consumes the bytes up to and including the next c, searching from the second byte on.
func (d *Dictionary) takeTo(c byte) {
	for i := 1; i < len(d.b); i++ {
		switch {
		case d.b[i] == '\\' && c == '"':
			i++
		case d.b[i] == c:
			d.b = d.b[i+1:]
			return
		}
	}
	d.bad = true
}

func (d *Dictionary) key() []byte {
	if len(d.b) == 0 || d.b[0] != '*' && (d.b[0] < 'a' || d.b[0] > 'z') {
		d.bad = true
		return nil
	}
	return d.take(func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' || c == '*'
	})
}

// value consumes an item or an inner list.
func (d *Dictionary) value() []byte {
	if !d.skip('(') {
		return d.item()
	}
	for d.skipSpaces(); !d.bad && !d.skip(')'); d.skipSpaces() {
		d.item()
		d.parameters()
		if len(d.b) > 0 && d.b[0] != ' ' && d.b[0] != ')' {
			d.bad = true
		}
	}
	return nil
}

func (d *Dictionary) skipSpaces() {
	for d.skip(' ') {
	}
}

// item consumes an item without parameters. It returns the text only for a number or a boolean.
func (d *Dictionary) item() []byte {
	if len(d.b) == 0 {
		d.bad = true
		return nil
	}
	switch c := d.b[0]; {
	case c == '"' || c == ':':
		d.takeTo(c)
	case c == '%' && len(d.b) > 1 && d.b[1] == '"': // a Display String, in which a backslash escapes nothing
		d.b = d.b[2:]
		d.take(func(c byte) bool { return c != '"' })
		d.bad = d.bad || !d.skip('"')
	case c == '@' && len(d.b) > 1 && (d.b[1] == '-' || d.b[1] >= '0' && d.b[1] <= '9'): // a Date
		d.b = d.b[1:]
		d.item()
	case c == '?':
		if len(d.b) >= 2 && (d.b[1] == '0' || d.b[1] == '1') {
			item := d.b[:2]
			d.b = d.b[2:]
			return item
		}
		d.bad = true
	case c == '-' || c >= '0' && c <= '9':
		return d.number()
	case c == '*' || IsLetter(c):
		d.take(func(c byte) bool { return IsTokenByte(c) || c == ':' || c == '/' })
	default:
		d.bad = true
	}
	return nil
}

// number consumes an integer of at most 15 digits, or a decimal of at most 12 digits before the point and 3 after it.
func (d *Dictionary) number() []byte {
	text := d.b
	d.skip('-')
	whole, point := len(d.digits()), d.skip('.')
	fraction := 0
	if point {
		fraction = len(d.digits())
	}
	d.bad = d.bad || whole == 0 || whole > 15 || point && (whole > 12 || fraction == 0 || fraction > 3)
	return text[:len(text)-len(d.b)]
}

func (d *Dictionary) digits() []byte {
	return d.take(func(c byte) bool { return c >= '0' && c <= '9' })
}

// parameters consumes the parameters of an item.
func (d *Dictionary) parameters() {
	for !d.bad && d.skip(';') {
		d.skipSpaces()
		d.key()
		if d.skip('=') {
			d.item()
		}
	}
}
