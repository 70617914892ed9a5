package proxy

import (
	"bytes"

	"github.com/filohttp/filo"
)

// They are shared: nothing may change them.
var (
	errTunnel     = filo.Error(501, "no tunnels are made here")
	errDotSegment = filo.Error(400, "the path has a dot segment")
)

// hasDotSegment reports whether a server that resolves dot segments (RFC 3986, section 5.2.4) could find one in a decoded path.
// Some do so when they have decoded all, slashes too; some take a backslash for a slash, and what is behind a semicolon for
// no part of the segment.
func hasDotSegment(path []byte) bool {
	for len(path) > 0 {
		segment := path
		if end := bytes.IndexAny(path, `/\`); end >= 0 {
			segment, path = path[:end], path[end+1:]
		} else {
			path = nil
		}
		segment, _, _ = bytes.Cut(segment, []byte{';'})
		if string(segment) == "." || string(segment) == ".." {
			return true
		}
	}
	return false
}
