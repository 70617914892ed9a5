// Package fieldvalue reads what the values of several header fields have in common.
package fieldvalue

import (
	"bytes"
	"time"
)

// MaxQuality is the weight 1: one has at most three digits behind the point.
const MaxQuality = 1000

// Weight reads a weight (RFC 9110, section 12.4.2) with its name, such as "q=0.5", in thousandths. Without one it is 1, and one
// that is malformed is 0.
func Weight(weight []byte) int {
	if len(weight) == 0 {
		return MaxQuality
	}
	name, value, _ := bytes.Cut(weight, []byte{'='})
	if !EqualFold(name, "q") {
		return 0
	}
	return Quality(value)
}

// Quality reads the value of a weight: qvalue = ( "0" [ "." 0*3DIGIT ] ) / ( "1" [ "." 0*3("0") ] ). What isn't one is 0.
func Quality(q []byte) int {
	if len(q) == 0 || len(q) > 5 || q[0] != '0' && q[0] != '1' || len(q) > 1 && q[1] != '.' {
		return 0
	}
	quality, unit := int(q[0]-'0')*MaxQuality, MaxQuality/10
	for _, digit := range q[min(2, len(q)):] {
		if digit < '0' || digit > '9' {
			return 0
		}
		quality += int(digit-'0') * unit
		unit /= 10
	}
	if quality > MaxQuality {
		return 0
	}
	return quality
}

// EqualFold compares ASCII without regard to case. The second is in lower case.
func EqualFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// Seconds is a time in whole seconds, rounded up: a client that waits that long has waited long enough.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
