package router

import (
	"errors"
	"regexp"
	"strconv"
)

// constraint restricts the values that a wildcard matches.
type constraint struct {
	text  string // the type's name or the expression: two constraints with the same text are equivalent
	match func(decoded []byte) bool
}

// types maps the name of each built-in constraint to its check.
var types = map[string]func([]byte) bool{
	"int":   isInt,
	"uint":  isUint,
	"uuid":  isUUID,
	"alpha": isAlpha,
}

func newConstraint(text string) (*constraint, error) {
	if match := types[text]; match != nil {
		return &constraint{text, match}, nil
	}
	if text == "" {
		return nil, errors.New("empty constraint: it must be int, uint, uuid, alpha or a regular expression")
	}
	// The expression is compiled alone first, to refuse one such as "a)(b", which is valid only inside the parentheses below.
	if _, err := regexp.Compile(text); err != nil {
		return nil, err
	}
	expression, err := regexp.Compile(`\A(?:` + text + `)\z`)
	if err != nil {
		return nil, err
	}
	return &constraint{text, expression.Match}, nil
}

// isInt reports whether b is a decimal number that fits an int64, perhaps with a minus sign.
func isInt(b []byte) bool {
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	if !areDigits(digits) {
		return false
	}
	if len(digits) < len("9223372036854775807") {
		return true
	}
	_, err := strconv.ParseInt(string(b), 10, 64)
	return err == nil
}

// isUint reports whether b is a decimal number that fits a uint64.
func isUint(b []byte) bool {
	if !areDigits(b) {
		return false
	}
	if len(b) < len("18446744073709551615") {
		return true
	}
	_, err := strconv.ParseUint(string(b), 10, 64)
	return err == nil
}

func areDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// isUUID reports whether b is a UUID of any version in the form of RFC 9562, section 4, in upper or lower case.
func isUUID(b []byte) bool {
	if len(b) != len("00000000-0000-0000-0000-000000000000") {
		return false
	}
	for i, c := range b {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
			continue
		}
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

// isAlpha reports whether b consists of ASCII letters only.
func isAlpha(b []byte) bool {
	for _, c := range b {
		if c|0x20 < 'a' || c|0x20 > 'z' {
			return false
		}
	}
	return len(b) > 0
}
