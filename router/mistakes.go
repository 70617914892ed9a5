package router

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/filohttp/filo/internal/syntax"
)

// Some patterns are valid but match no real request, because they use another framework's syntax. The functions below refuse them, and
// name the pattern to write instead.

// mistakenPath refuses a path that begins with a method, which only Handle accepts, or that lacks the leading slash.
func mistakenPath(text string) error {
	if i := strings.IndexAny(text, " \t/"); i > 0 && text[i] != '/' && syntax.IsToken(text[:i]) {
		return fmt.Errorf("the method %q doesn't belong here: it is Handle that takes one with the path", text[:i])
	}
	host, _, _ := strings.Cut(text, "/")
	if host != "" && !strings.ContainsAny(host, ".:{}*") && !strings.EqualFold(host, "localhost") {
		return fmt.Errorf("the path must begin with a slash: write %q (for a host called %q use Handle)", "/"+text, host)
	}
	return nil
}

// mistakenSubtree refuses the path "/" in a group that has a prefix.
func (g *group) mistakenSubtree(text string) error {
	if i := strings.IndexAny(text, " \t/"); g.path == "" || i < 0 || strings.TrimLeft(text[i:], " \t") != "/" {
		return nil
	}
	return fmt.Errorf("in a group this is every path below %s: write \"\" for that path itself, \"/{$}\" for it with a slash, "+
		"or \"/{rest...}\" if all of them are meant", g.path)
}

// mistakenMethod refuses a known method in another case: methods are case-sensitive (RFC 9110, section 9.1).
func mistakenMethod(method string) error {
	upper := strings.ToUpper(method)
	if method != upper && slices.Contains(knownMethods[:], upper) {
		return fmt.Errorf("methods are case-sensitive, and clients send %s: write %q instead of %q", upper, upper, method)
	}
	return nil
}

// mistakenHost refuses a text before the first slash that can't be a host. path is the text from the slash on.
func mistakenHost(host, path string) error {
	switch {
	case strings.ContainsAny(host, " \t"):
		return fmt.Errorf("a pattern has one method, or none for all of them, and behind it a path, or a host and a path: not %q", host+path)
	case slices.Contains(knownMethods[:], host):
		return fmt.Errorf("a space is missing between method and path: write %q", host+" "+path)
	case strings.HasSuffix(host, ":") && strings.HasPrefix(path, "//"):
		return fmt.Errorf("a pattern has no scheme: write %q", path[len("//"):])
	case strings.ContainsAny(host, "{}"):
		return errors.New("a host can have no such wildcard; perhaps the slash before the path is missing")
	case host == "*":
		return errors.New("a pattern without a host is for all of them")
	case strings.Contains(strings.TrimPrefix(host, "*."), "*") || host == "*.":
		return errors.New("a star in a host stands for its first label: *.example.com")
	case strings.ContainsAny(host, `^()|\"<>?#@,;`):
		return fmt.Errorf("%q isn't a host; perhaps the slash before the path is missing", host)
	}
	return nil
}

// mistakenSegment refuses a literal that is a wildcard in other frameworks, or that contains a query. The parameter last says whether
// the literal is the last segment, which decides which wildcard the error proposes.
func mistakenSegment(raw string, last bool) error {
	switch name := wordIn(raw); {
	case raw[0] == ':':
		return fmt.Errorf("%q isn't a wildcard here: write {%s} (a literal colon in front is %%3A)", raw, name)
	case raw[0] == '*' && last:
		return fmt.Errorf("%q isn't a wildcard here: write {%s...}, which matches the rest of the path (a literal star in front is %%2A)", raw, name)
	case raw[0] == '*':
		return fmt.Errorf("%q isn't a wildcard here: write {%s}, or {%s...} as the last segment (a literal star in front is %%2A)", raw, name, name)
	case strings.ContainsAny(raw, "?#"):
		return fmt.Errorf("%q has a query or a fragment, which no path has: ask Ctx.Query in the handler (a literal ? is %%3F, a # %%23)", raw)
	case strings.TrimSpace(raw) != raw:
		return fmt.Errorf("%q begins or ends with a space (a literal one is %%20)", raw)
	}
	return nil
}

// wordIn returns the name of another framework's wildcard, without the ":" or "*" in front of it, or "name" if the wildcard has
// none.
func wordIn(raw string) string {
	name := raw[1:]
	for i := range name {
		if !validName(name[:i+1]) {
			name = name[:i]
			break
		}
	}
	return cmp.Or(name, "name")
}

// mistakenConstraint refuses an expression that is another framework's type, or that excludes nothing.
func mistakenConstraint(name, expression string) error {
	switch {
	case expression == ".*" || expression == ".+":
		return fmt.Errorf("{%s:%s} is one segment, as {%s} is: write that, or {%s...} at the end for the rest of the path",
			name, expression, name, name)
	case expression == "" || types[expression] != nil || strings.Trim(expression, wordBytes) != "":
		return nil
	}
	instead := fmt.Sprintf("{%s:int}, {%s:uint}, {%s:uuid} or {%s:alpha}, or {%s:(%s)} for this word alone",
		name, name, name, name, name, expression)
	switch known := strings.TrimRight(strings.ToLower(expression), "0123456789"); known {
	case "int", "integer", "number", "num", "digits", "long":
		instead = fmt.Sprintf("{%s:int}", name)
	case "uint":
		instead = fmt.Sprintf("{%s:uint}", name)
	case "guid", "uuid", "uuidv":
		instead = fmt.Sprintf("{%s:uuid}", name)
	case "alpha", "letters":
		instead = fmt.Sprintf("{%s:alpha}", name)
	case "string", "str", "any":
		instead = fmt.Sprintf("{%s}", name)
	case "path":
		instead = fmt.Sprintf("{%s...}", name)
	}
	return fmt.Errorf("%q isn't a type here, and as a regular expression it matches only itself: write %s", expression, instead)
}

// wordBytes are the bytes that match only themselves in an expression. Together with the hyphen they are the bytes of a host's label.
const wordBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
