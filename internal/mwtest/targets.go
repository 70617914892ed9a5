package mwtest

import (
	"math/rand/v2"
	"strings"
)

// targetParts are the parts of random targets: some that a URI can contain, some that only a request target can contain, and some that look alike.
var targetParts = []string{"a", "Z", "0", "-", "._~", "/", "//", "%2F", "%2f", "%5C", "%5c", "%00", "%25", "%252F", "%7C", "%41", "%e9", "%C3%BC",
	"%20", "%3F", "%23", "!", "$&'()*+,", ";", "=", ":", "@", "[", "]", `"`, "<", ">", `\`, "^", "`", "{", "|", "}"}

// Target returns a random request target in origin-form. About half of the targets have a query. No segment is "." or "..".
func Target(random *rand.Rand) string {
	var b strings.Builder
	b.WriteString("/")
	for range random.IntN(12) {
		b.WriteString(targetParts[random.IntN(len(targetParts))])
	}
	if random.IntN(2) == 0 {
		b.WriteString("?")
		for range random.IntN(8) {
			b.WriteString(append(targetParts, "%", "%zz", "?", "&", "&a=1", "%4")[random.IntN(len(targetParts)+6)])
		}
	}
	return b.String()
}

var escapes = strings.NewReplacer(`"`, "%22", "<", "%3C", ">", "%3E", `\`, "%5C", "^", "%5E", "`", "%60", "{", "%7B", "|", "%7C", "}", "%7D")

// EscapedTarget returns a target in the form that a url.URL can hold: it percent-encodes the bytes that a URI's path can't contain, and no others.
func EscapedTarget(target string) string {
	path, query, asked := strings.Cut(target, "?")
	if path = escapes.Replace(path); asked {
		path += "?" + query
	}
	return path
}
