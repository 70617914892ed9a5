package router

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/filohttp/filo/internal/syntax"
)

// pattern is a parsed pattern, [METHOD ][HOST]/PATH.
type pattern struct {
	text     string // as Ctx.Route returns it
	method   string // "" matches every method
	host     string // in lower case; "" matches every host
	path     string // as written
	segments []segment
	names    []string // of the wildcards that have a value, in their order
	location string   // file and line of the registration
}

// segment is the part of a pattern between two slashes, or after the last slash.
type segment struct {
	kind segmentKind
	// text is a literal in canonical form, or a wildcard's name. It is empty for a trailing slash, which is a wildcard without a
	// name.
	text       string
	constraint *constraint // of a wildcard of the kind single; nil if it has none
}

// segmentKind says what a segment matches. If two kinds match the same segment, the lower one is more specific.
type segmentKind uint8

const (
	literal segmentKind = iota // itself
	end                        // {$}: the end of the path, after a slash
	single                     // {name}: one segment that isn't empty
	rest                       // {name...} or a trailing slash: the rest of the path, which may be empty
)

func (p *pattern) last() segment { return p.segments[len(p.segments)-1] }

// String returns the pattern's text and the place where it was registered.
func (p *pattern) String() string {
	return fmt.Sprintf("pattern %q (registered at %s)", p.text, p.location)
}

// parsePattern parses the text of a pattern.
func parsePattern(text string) (*pattern, error) {
	p := &pattern{}
	target := text
	// A blank after the first slash belongs to the path, for example to a regular expression.
	if i := strings.IndexAny(text, " \t/"); i >= 0 && text[i] != '/' {
		p.method, target = text[:i], strings.TrimLeft(text[i:], " \t")
		if !syntax.IsToken(p.method) {
			return nil, fmt.Errorf("invalid method %q", p.method)
		}
		if err := mistakenMethod(p.method); err != nil {
			return nil, err
		}
	}
	slash := strings.IndexByte(target, '/')
	if slash < 0 {
		return nil, errors.New("there must be a path, which begins with a slash")
	}
	p.host, p.path = strings.ToLower(target[:slash]), target[slash:]
	if err := checkHost(target[:slash], p.path); err != nil {
		return nil, err
	}
	p.text = p.host + p.path
	if p.method != "" {
		p.text = p.method + " " + p.text
	}
	return p, p.parsePath()
}

func checkHost(host, path string) error {
	if err := mistakenHost(host, path); err != nil {
		return err
	}
	if strings.HasSuffix(host, ".") {
		return errors.New("a host must not end in a dot: the router ignores a final dot in a request's host")
	}
	if withoutPort(host) != host {
		return errors.New("a host must have no port: the router ignores the port of a request's host")
	}
	return nil
}

func (p *pattern) parsePath() error {
	for left := p.path; left != ""; {
		var s segment
		var err error
		s, left, err = parseSegment(left[1:])
		if err != nil {
			return err
		}
		if left != "" && (s.kind == end || s.kind == rest) {
			return errors.New("{$} and {name...} stand for the end and the rest of the path, so they must be the last segment")
		}
		if s.kind == single || s.kind == rest && s.text != "" {
			if slices.Contains(p.names, s.text) {
				return fmt.Errorf("two wildcards are called %q", s.text)
			}
			p.names = append(p.names, s.text)
		}
		p.segments = append(p.segments, s)
	}
	return nil
}

// parseSegment parses the segment at the start of text. It returns the rest of text, which is empty or begins with a slash.
func parseSegment(text string) (s segment, left string, err error) {
	if text == "" {
		return segment{kind: rest}, "", nil
	}
	if text[0] == '{' {
		return parseWildcard(text)
	}
	size := strings.IndexByte(text, '/')
	if size < 0 {
		size = len(text)
	}
	raw, left := text[:size], text[size:]
	switch {
	case raw == "" || raw == "." || raw == "..":
		return s, "", errors.New("a path with empty segments or dot segments can never match: the paths of requests are cleaned")
	case strings.IndexByte(raw, '{') >= 0:
		return s, "", errors.New("a wildcard must be a whole segment: write that, and take the value apart in the handler")
	}
	if err := mistakenSegment(raw, left == ""); err != nil {
		return s, "", err
	}
	decoded, err := url.PathUnescape(raw)
	if err != nil {
		decoded = raw
	}
	return segment{kind: literal, text: canonical(decoded)}, left, nil
}

func parseWildcard(text string) (s segment, left string, err error) {
	size := wildcardSize(text)
	if size < 0 {
		return s, "", errors.New("the braces of a wildcard must be balanced")
	}
	inner, left := text[1:size-1], text[size:]
	if left != "" && left[0] != '/' {
		return s, "", errors.New("a wildcard must be a whole segment: write that, and take the value apart in the handler")
	}
	if inner == "$" {
		return segment{kind: end}, left, nil
	}
	name, expression, constrained := strings.Cut(inner, ":")
	name, multi := strings.CutSuffix(name, "...")
	s = segment{kind: single, text: name}
	if multi {
		s.kind = rest
	}
	if !validName(name) {
		return s, "", fmt.Errorf("a wildcard's name must be a Go identifier, not %q", name)
	}
	if constrained && multi {
		return s, "", errors.New("a {name...} wildcard can have no constraint")
	}
	if !constrained {
		return s, left, nil
	}
	if err := mistakenConstraint(name, expression); err != nil {
		return s, "", err
	}
	s.constraint, err = newConstraint(expression)
	return s, left, err
}

// wildcardSize returns where the wildcard at the start of text ends, -1 if it doesn't end. Braces in a regular expression must be balanced,
// or escaped with a backslash.
func wildcardSize(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

func validName(name string) bool {
	for i, c := range name {
		if !unicode.IsLetter(c) && c != '_' && (i == 0 || !unicode.IsDigit(c)) {
			return false
		}
	}
	return name != ""
}

// canonicalEscape encodes the bytes that would make segments ambiguous in a path of decoded segments.
var canonicalEscape = strings.NewReplacer("/", "%2F", "%", "%25")

// canonicalDots holds the canonical forms of the decoded segments "." and "..", indexed by length. Their dots stay encoded,
// because unencoded ones would be dot segments, which lead to another path.
var canonicalDots = [...]string{1: "%2E", 2: "%2E%2E"}

// canonical returns the canonical form of a decoded segment, the form that the tree compares: only "/", "%" and the segments "."
// and ".." are percent-encoded. A clean path without "%" therefore is in canonical form as it was sent.
func canonical(decoded string) string {
	if isDots([]byte(decoded)) {
		return canonicalDots[len(decoded)]
	}
	return canonicalEscape.Replace(decoded)
}

// appendCanonical appends a path as sent, whose percent-encoding is well-formed, with its segments in canonical form. Dot
// segments that were sent unencoded stay unencoded.
func appendCanonical(dst, path []byte) []byte {
	segment, from := len(dst), 0 // where the current segment begins in dst and in path
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch c {
		case '/':
			dst = append(encodeDots(dst, segment, i-from), '/')
			segment, from = len(dst), i+1
			continue
		case '%':
			c, _ = syntax.PercentEscape(path[i:])
			i += 2
		}
		switch {
		case c == '%':
			dst = append(dst, "%25"...)
		case c == '/':
			dst = append(dst, "%2F"...)
		default:
			dst = append(dst, c)
		}
	}
	return encodeDots(dst, segment, len(path)-from)
}

// encodeDots encodes the last segment of dst if it is "." or ".." and at least one of its dots was sent percent-encoded. The
// parameter sent is the length of the segment in the request.
func encodeDots(dst []byte, segment, sent int) []byte {
	if last := dst[segment:]; len(last) < sent && isDots(last) {
		dst = append(dst[:segment], canonicalDots[len(last)]...)
	}
	return dst
}

// decodeCanonical decodes a segment, or several, in canonical form. The result reuses b's memory.
func decodeCanonical(b []byte) []byte {
	return slices.Clip(syntax.AppendPercentDecoded(b[:0], b))
}

// withoutPort returns host without a port. The brackets of an IPv6 address stay.
func withoutPort[T []byte | string](host T) T {
	for i := len(host) - 1; i >= 0; i-- {
		switch c := host[i]; {
		case c == ':':
			return host[:i]
		case c < '0' || c > '9':
			return host
		}
	}
	return host
}
