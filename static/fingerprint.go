package static

import (
	"path"
	"strings"
)

// CacheFingerprinted is a function for Options.CacheControl, for sites whose build puts a hash of the content into file names.
// Clients keep such files for good (RFC 8246), and check other files before each use, which costs a 304. See Fingerprinted.
func CacheFingerprinted(name string) string {
	if Fingerprinted(name) {
		return "public, max-age=31536000, immutable"
	}
	return "no-cache"
}

// Fingerprinted reports whether the last segment of a name contains a hash in hexadecimal digits, such as app.3f9c2b7a.js. The
// hash follows a ".", "-" or "_", stands before the extension, and has at least eight digits, some of which are letters and some
// not. Hashes in other forms can't be told from words: for these, go by the directory that contains them.
func Fingerprinted(name string) bool {
	name = path.Base(name)
	name = strings.TrimSuffix(name, path.Ext(name))
	for {
		i := strings.IndexAny(name, ".-_")
		if i < 0 {
			return false
		}
		name = name[i+1:]
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
