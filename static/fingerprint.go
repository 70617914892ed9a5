package static

import (
	"path"
	"regexp"
	"strings"
)

// CacheFingerprinted is a function for Options.CacheControl, for sites whose build puts a hash of the content into file names.
// Clients cache such files permanently (RFC 8246), and check other files before each use, which costs a 304. See Fingerprinted.
func CacheFingerprinted(name string) string {
	if Fingerprinted(name) {
		return "public, max-age=31536000, immutable"
	}
	return "no-cache"
}

// Fingerprinted reports whether the last segment of a name contains a hash of eight characters or more before its extension:
//
//   - in hexadecimal digits of one case, some of them letters and some not, after a ".", "-" or "_", as webpack and Parcel write it:
//     app.3f9c2b7a.js
//   - in base64url after a "." or "-", as Vite and Rollup write it: index-BXk2P0aQ.js. It must have capitals, small letters and
//     digits, and must not look like words, such as those of Html5Player or IPhone6S.
//
// A file whose name is mistaken for a hash stays in caches for a year, while an unrecognized hash costs only a 304. Therefore a doubtful
// text doesn't count as a hash. About half of all hashes of eight characters in base64url, such as DiwrgTda, aren't recognized. If all
// files of a directory have hashes, as in Vite's assets, decide by the directory's name, or let Rollup write hexadecimal digits
// (output.hashCharacters: "hex").
func Fingerprinted(name string) bool {
	name = path.Base(name)
	name = strings.TrimSuffix(name, path.Ext(name))
	for {
		i := strings.IndexAny(name, ".-_")
		if i < 0 {
			return false
		}
		separator := name[i]
		name = name[i+1:]
		if whole, _, _ := strings.Cut(name, "."); separator != '_' && isBase64Hash(whole) {
			return true
		}
		part := name
		if end := strings.IndexAny(part, ".-_"); end >= 0 {
			part = part[:end]
		}
		if isHash(part) {
			return true
		}
	}
}

func isHash(s string) bool {
	digits, lower, upper := 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			digits++
		case 'a' <= c && c <= 'f':
			lower++
		case 'A' <= c && c <= 'F':
			upper++
		default:
			return false
		}
	}
	return len(s) >= 8 && digits > 0 && (lower > 0) != (upper > 0)
}

// words finds the parts of a name that may be words: capitals, or small letters, perhaps with a capital in front.
var words = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

// camelCase matches names whose words all begin with a capital, except the first one.
var camelCase = regexp.MustCompile(`^[a-zA-Z]?[a-z0-9]*([A-Z][a-z0-9]+)*$`)

// isBase64Hash reports whether s is a hash in base64url. A word has several letters, and all except the first have the same case. A letter
// that can't be part of such a word indicates a hash: one is enough, but two are needed if s has a separator or could be words in camel
// case.
func isBase64Hash(s string) bool {
	lower, upper, digits, separators, run := 0, 0, 0, 0, 0
	for i := range len(s) {
		run++
		switch c := s[i]; {
		case 'a' <= c && c <= 'z':
			if lower++; run > 3 {
				return false
			}
			continue
		case 'A' <= c && c <= 'Z':
			upper++
		case '0' <= c && c <= '9':
			digits++
		case c == '-', c == '_':
			separators++
		default:
			return false
		}
		run = 0
	}
	if len(s) < 8 || lower == 0 || upper == 0 || digits == 0 {
		return false
	}
	single := 0
	for _, word := range words.FindAllString(s, -1) {
		if len(word) == 1 {
			single++
		}
	}
	return single > 1 || single == 1 && separators == 0 && !camelCase.MatchString(s)
}
