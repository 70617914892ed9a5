package proxy

import (
	"bytes"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// They are shared: nothing may change them.
var (
	errTunnel     = filo.Error(501, "no tunnels are made here")
	errDotSegment = filo.Error(400, "the path has a dot segment")
	// errHiddenSlash refuses a path because of Options.EncodedSlashes.
	errHiddenSlash = filo.Error(400, "the path has an encoded slash, a backslash or NUL")
)

// hidesSlash reports whether a path as sent has what some servers take for a slash, or for the end of the path, and a router doesn't.
func hidesSlash(path []byte) bool {
	for i, c := range path {
		escaped := false
		if c == '%' {
			c, escaped = syntax.PercentEscape(path[i:])
		}
		if c == '\\' || escaped && (c == '/' || c == 0) {
			return true
		}
	}
	return false
}

// checkQuery refuses a query with parameters that Ctx.Query doesn't have, since it has as many as it keeps.
func checkQuery(uri *filo.URI) error {
	const most = 1000
	if bytes.Count(uri.RawQueryBytes(), []byte{'&'}) < most {
		return nil
	}
	return uri.Query().Err()
}

// upstreamQuery returns a query as an upstream gets it: whatever splits queries finds the same parameters in it as Ctx.Query.
func upstreamQuery(query string) string {
	if !strings.ContainsAny(query, ";%") {
		return query
	}
	clean := make([]byte, 0, len(query)+8)
	for i := range len(query) {
		c := query[i]
		if c == ';' {
			clean = append(clean, "%3B"...)
			continue
		}
		if clean = append(clean, c); c == '%' {
			if _, ok := syntax.PercentEscape([]byte(query[i:min(i+3, len(query))])); !ok {
				clean = append(clean, "25"...)
			}
		}
	}
	return string(clean)
}

// hasDotSegment reports whether a server that resolves dot segments (RFC 3986, section 5.2.4) could find one in a decoded path.
// Some do so when they have decoded all, slashes too, or decode once more behind another proxy; some take a backslash for a slash,
// what is behind a semicolon for no part of the segment, or a NUL for the end of it.
func hasDotSegment(path []byte) bool {
	path = decodeAll(path)
	for len(path) > 0 {
		segment := path
		if end := bytes.IndexAny(path, `/\`); end >= 0 {
			segment, path = path[:end], path[end+1:]
		} else {
			path = nil
		}
		if end := bytes.IndexAny(segment, ";\x00"); end >= 0 {
			segment = segment[:end]
		}
		if string(segment) == "." || string(segment) == ".." {
			return true
		}
	}
	return false
}

// overlong are a dot, a slash and a backslash in more bytes than UTF-8 allows, which careless decoders take for them.
var overlong = [...]struct{ long, short []byte }{
	{[]byte("\xc0\xae"), []byte{'.'}}, {[]byte("\xc0\xaf"), []byte{'/'}}, {[]byte("\xc1\x9c"), []byte{'\\'}},
	{[]byte("\xe0\x80\xae"), []byte{'.'}}, {[]byte("\xe0\x80\xaf"), []byte{'/'}}, {[]byte("\xe0\x81\x9c"), []byte{'\\'}},
}

// decodeAll undoes percent-encoding until there is none left, and then what is overlong. It changes no path in place. Where a
// path decoded in part has a dot segment, so has the whole, since neither dots nor slashes change any more.
func decodeAll(path []byte) []byte {
	if bytes.IndexByte(path, '%') >= 0 {
		// Each byte may complete an encoding with those before it that are decoded: one pass undoes any number of layers.
		decoded := make([]byte, 0, len(path))
		for _, c := range path {
			decoded = append(decoded, c)
			for n := len(decoded); n >= 3 && decoded[n-3] == '%'; n = len(decoded) {
				c, ok := syntax.PercentEscape(decoded[n-3:])
				if !ok {
					break
				}
				decoded = append(decoded[:n-3], c)
			}
		}
		path = decoded
	}
	for _, o := range overlong {
		if bytes.Contains(path, o.long) {
			path = bytes.ReplaceAll(path, o.long, o.short)
		}
	}
	return path
}
