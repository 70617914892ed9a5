package proxy

import (
	"bytes"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// These errors are shared by all requests, so they must not be modified.
var (
	errTunnel     = filo.Error(501, "this proxy makes no tunnels")
	errTrace      = filo.Error(501, "this proxy doesn't show requests")
	errDotSegment = filo.Error(400, "the path has a dot segment")
	// errHiddenSlash refuses a path because of Options.EncodedSlashes.
	errHiddenSlash = filo.Error(400, "the path has an encoded slash, a backslash or NUL")
)

// hidesSlash reports whether a path as sent has bytes that some servers, but not a router, take for a slash or for the end of the path.
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

// checkQuery refuses a query with more parameters than Ctx.Query keeps.
func checkQuery(uri *filo.URI) error {
	const most = 1000
	if bytes.Count(uri.RawQueryBytes(), []byte{'&'}) < most {
		return nil
	}
	return uri.Query().Err()
}

// upstreamQuery returns the query for an upstream. Whether the upstream splits a query at ";" or not, it finds the same
// parameters as Ctx.Query.
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

// hasDotSegment reports whether a server that resolves dot segments (RFC 3986, section 5.2.4) could find one in a decoded path. Some
// servers resolve dot segments after they have decoded the whole path, including slashes, or after a proxy in front of them has already
// decoded the path once. Some take a backslash for a slash, ignore what follows a semicolon in a segment, or end a segment at a NUL.
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

// overlong has encodings of a dot, a slash and a backslash in more bytes than UTF-8 allows. Careless decoders take these bytes for the
// characters.
var overlong = [...]struct{ long, short []byte }{
	{[]byte("\xc0\xae"), []byte{'.'}}, {[]byte("\xc0\xaf"), []byte{'/'}}, {[]byte("\xc1\x9c"), []byte{'\\'}},
	{[]byte("\xe0\x80\xae"), []byte{'.'}}, {[]byte("\xe0\x80\xaf"), []byte{'/'}}, {[]byte("\xe0\x81\x9c"), []byte{'\\'}},
}

// decodeAll undoes percent-encoding until none is left, and then replaces overlong bytes. It doesn't change the given path. If a partly
// decoded path has a dot segment, the fully decoded path has one, too, since further decoding changes neither dots nor slashes.
func decodeAll(path []byte) []byte {
	if bytes.IndexByte(path, '%') >= 0 {
		// Each byte may complete an encoding together with bytes before it that are already decoded, so one pass undoes any number of
		// layers.
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
