package static

import (
	"bytes"
	"io/fs"
	"runtime"
	"strings"

	"github.com/filohttp/filo"
)

// requestName returns the part of the path that names a file, decoded, without a slash in front. It reports false if that part has an
// encoded slash. It makes no other checks: a name with an entry in memory is valid, and validName checks all other names.
func requestName(c *filo.Ctx) (name []byte, ok bool) {
	uri := c.Request.URI()
	rest := uri.RawPathBytes()
	for range prefixSegments(c.Route()) {
		i := bytes.IndexByte(rest[min(1, len(rest)):], '/')
		if i < 0 {
			return nil, true
		}
		rest = rest[1+i:]
	}
	rest = bytes.TrimPrefix(rest, slash)
	encoded := 0
	for i, b := range rest {
		if b != '%' {
			continue
		}
		if len(rest)-i > 2 && rest[i+1] == '2' && rest[i+2]|0x20 == 'f' {
			return nil, false
		}
		encoded++
	}
	path := uri.PathBytes()
	size := len(rest) - 2*encoded
	if size < 0 || size > len(path) {
		return nil, false
	}
	return path[len(path)-size:], true
}

var slash = []byte("/")

// prefixSegments returns how many segments of a path match the part of a router's pattern before the final {name...} or slash. It
// returns 0 for patterns without such an end.
func prefixSegments(pattern string) int {
	if !strings.HasSuffix(pattern, "/") && !strings.HasSuffix(pattern, "...}") {
		return 0
	}
	slashes, depth := 0, 0
	for i := range len(pattern) {
		switch pattern[i] {
		case '{':
			depth++
		case '}':
			depth--
		case '/':
			if depth == 0 {
				slashes++
			}
		}
	}
	return max(slashes-1, 0)
}

// namesDirectory reports whether the name in a request denotes a directory.
func namesDirectory(name []byte) bool { return len(name) == 0 || name[len(name)-1] == '/' }

// validName reports whether a name stays inside the tree, and is the only spelling of its path.
func validName(name string) bool {
	return name != "." && fs.ValidPath(name) && !strings.ContainsAny(name, "\\\x00") && (runtime.GOOS != "windows" || !isAlias(name))
}

// isAlias reports whether Windows may take a part of the name for another name: a short name such as "GIT~1", which stands for ".git", or a
// name with dots or spaces at its end, which Windows ignores.
func isAlias(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if last := part[len(part)-1]; last == '.' || last == ' ' {
			return true
		}
		base, _, _ := strings.Cut(part, ".")
		if number := strings.TrimRight(base, "0123456789"); len(number) < len(base) && strings.HasSuffix(number, "~") {
			return true
		}
	}
	return false
}

// hidden reports whether a segment of the name begins with a dot, except .well-known as the first segment.
func hidden(name string) bool {
	if name == ".well-known" {
		return false
	}
	name = strings.TrimPrefix(name, ".well-known/")
	return name[0] == '.' || strings.Contains(name, "/.")
}
