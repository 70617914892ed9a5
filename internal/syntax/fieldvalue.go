package syntax

import (
	"bytes"
	"time"
)

// MaxQuality is the weight 1 in thousandths: a weight has at most three digits after the point.
const MaxQuality = 1000

// Weight reads a weight with its name, such as "q=0.5" (RFC 9110, section 12.4.2), in thousandths. An empty weight counts as 1,
// and a malformed one as 0.
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

// Quality reads the value of a weight, in thousandths: qvalue = ( "0" [ "." 0*3DIGIT ] ) / ( "1" [ "." 0*3("0") ] ). A malformed one
// counts as 0.
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

// CutQuoted splits a list at the first separator that isn't in a quoted string (RFC 9110, section 5.6.4).
func CutQuoted[S []byte | string](list S, separator byte) (before, after S) {
	quoted := false
	for i := 0; i < len(list); i++ {
		switch {
		case list[i] == '"':
			quoted = !quoted
		case quoted && list[i] == '\\':
			i++
		case !quoted && list[i] == separator:
			return list[:i], list[i+1:]
		}
	}
	return list, list[len(list):]
}

// ListHasToken reports whether a comma-separated list contains the token, ignoring case (RFC 9110, section 5.6.1).
func ListHasToken(list []byte, token string) bool {
	for len(list) > 0 {
		var element []byte
		element, list, _ = bytes.Cut(list, []byte{','})
		if EqualFold(TrimSpace(element), token) {
			return true
		}
	}
	return false
}

// MediaType returns the media type of a Content-Type, without its parameters (RFC 9110, section 8.3.1).
func MediaType(contentType []byte) []byte {
	mediaType, _, _ := bytes.Cut(contentType, []byte{';'})
	return TrimSpace(mediaType)
}

// IsJSON reports whether a Content-Type means JSON (RFC 6839, section 3.1).
func IsJSON(contentType []byte) bool {
	const suffix = "+json"
	mediaType := MediaType(contentType)
	return EqualFold(mediaType, "application/json") ||
		len(mediaType) > len(suffix) && EqualFold(mediaType[len(mediaType)-len(suffix):], suffix)
}

// Seconds returns d in whole seconds, rounded up, so that a client that waits for that many seconds waits for at least d.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// IsTargeted reports whether the name belongs to a field that replaces Cache-Control in certain caches: a name of the form that RFC 9213, section
// 2.2, recommends, or the older Surrogate-Control.
func IsTargeted(name []byte) bool {
	const end = "-Cache-Control"
	return len(name) > len(end) && EqualFold(name[len(name)-len(end):], end) || EqualFold(name, "Surrogate-Control")
}

// TimeFormat is IMF-fixdate (RFC 9110, section 5.6.7); the time must be in UTC.
const TimeFormat = "Mon, 02 Jan 2006 15:04:05 GMT"
