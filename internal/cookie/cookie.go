// Package cookie has the syntax of cookies (RFC 6265bis): it renders the Set-Cookie fields of responses, and parses the Cookie fields of requests.
package cookie

import (
	"bytes"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/syntax"
)

const (
	// Browsers silently ignore a cookie (name and value together) or an attribute beyond these lengths (RFC 6265bis, section 5.6).
	maxBytes          = 4096
	maxAttributeBytes = 1024
)

// Values of Set.SameSite.
const (
	SameSiteDefault = iota
	SameSiteLax
	SameSiteStrict
	SameSiteNone
)

// Set is a cookie that a response sets. See filo.Cookie for the fields.
type Set struct {
	Name, Value, Path, Domain     string
	Expires                       time.Time
	MaxAge                        int
	Secure, HttpOnly, Partitioned bool
	SameSite                      int
}

// octets are defined by RFC 6265bis, section 4.1.1: "US-ASCII characters excluding CTLs, whitespace, DQUOTE, comma, semicolon,
// and backslash".
var octets = func() (set [256]bool) {
	for c := byte(0x21); c < 0x7f; c++ {
		set[c] = c != '"' && c != ',' && c != ';' && c != '\\'
	}
	return set
}()

// Check returns nil if the cookie can be sent and browsers accept it; otherwise the error says what is wrong.
func (c *Set) Check() error {
	if !syntax.IsToken(c.Name) {
		return fmt.Errorf("filo: cookie name %q must be a token", c.Name)
	}
	if problem := c.problem(); problem != "" {
		return fmt.Errorf("filo: cookie %q: %s", c.Name, problem)
	}
	return nil
}

// problem returns what is wrong with a cookie whose name is a token, or "" if the cookie is valid.
func (c *Set) problem() string {
	switch {
	case !validValue(c.Value):
		return "the value must be visible ASCII without quotes, comma, semicolon and backslash"
	case len(c.Name)+len(c.Value) > maxBytes:
		return "name and value together may have 4096 bytes at most"
	case c.Path != "" && !validPath(c.Path):
		return `the path must start with "/" and be visible ASCII without semicolon, 1024 bytes at most`
	case c.Domain != "" && !validDomain(c.Domain):
		return "the domain must be a domain name"
	case !c.Expires.IsZero() && !validTime(c.Expires):
		return "the year of expiry must be 1601 to 9999"
	case c.SameSite < SameSiteDefault || c.SameSite > SameSiteNone:
		return "unknown SameSite"
	}
	return c.missingProtection()
}

// missingProtection describes an attribute that the cookie lacks although its name or its other attributes require it. It returns "" if there is
// none.
func (c *Set) missingProtection() string {
	const securePrefix, hostPrefix = "__Secure-", "__Host-"
	if !c.Secure {
		switch {
		case c.SameSite == SameSiteNone:
			return "SameSite=None needs Secure"
		case c.Partitioned:
			return "Partitioned needs Secure"
		case hasPrefixFold(c.Name, securePrefix), hasPrefixFold(c.Name, hostPrefix):
			return "the prefix of the name needs Secure"
		}
	}
	if hasPrefixFold(c.Name, hostPrefix) && (c.Path != "/" || c.Domain != "") {
		return `the prefix of the name needs the path "/" and no domain`
	}
	return ""
}

// hasPrefixFold ignores case, as browsers do for the prefixes of cookie names (RFC 6265bis, section 5.6).
func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && syntax.EqualFold(s[:len(prefix)], prefix)
}

// validValue reports whether s is a cookie-value: "cookie-value = *cookie-octet / ( DQUOTE *cookie-octet DQUOTE )" (RFC 6265bis, section 4.1.1).
func validValue(s string) bool {
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	for i := 0; i < len(s); i++ {
		if !octets[s[i]] {
			return false
		}
	}
	return true
}

// validPath reports whether s is a valid Path. It also refuses a space, though the grammar of path-value allows it: no request path contains a space,
// and browsers strip a trailing space.
func validPath(s string) bool {
	if s[0] != '/' || len(s) > maxAttributeBytes {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] >= 0x7f || s[i] == ';' {
			return false
		}
	}
	return true
}

// validDomain reports whether s, after a leading dot, if any, is a domain name: labels of 1 to 63 letters, digits and inner
// hyphens, 253 bytes in all (RFC 1034, section 3.5, as RFC 1123, section 2.1, changed it). An IPv4 address also has this syntax.
func validDomain(s string) bool {
	if s[0] == '.' {
		s = s[1:]
	}
	if len(s) > 253 {
		return false
	}
	label := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case syntax.IsLetter(c), c >= '0' && c <= '9', c == '-' && label > 0:
			label++
		case c == '.' && label > 0 && s[i-1] != '-':
			label = 0
		default:
			return false
		}
		if label > 63 {
			return false
		}
	}
	return label > 0 && s[len(s)-1] != '-'
}

// validTime reports whether t can be sent. Browsers don't accept a year before 1601 (RFC 6265bis, section 5.1.1), and HTTP-date has four digits for a
// year.
func validTime(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1601 && year <= 9999
}

// AppendTo appends the value of a Set-Cookie field. If the cookie is invalid, it appends nothing and returns the error of Check.
func (c *Set) AppendTo(dst []byte) ([]byte, error) {
	if err := c.Check(); err != nil {
		return dst, err
	}
	dst = append(dst, c.Name...)
	dst = append(dst, '=')
	dst = append(dst, c.Value...)
	if c.Path != "" {
		dst = append(dst, "; Path="...)
		dst = append(dst, c.Path...)
	}
	if c.Domain != "" {
		dst = append(dst, "; Domain="...)
		dst = append(dst, strings.TrimPrefix(c.Domain, ".")...)
	}
	if !c.Expires.IsZero() {
		dst = append(dst, "; Expires="...)
		dst = c.Expires.UTC().AppendFormat(dst, syntax.TimeFormat)
	}
	switch {
	case c.MaxAge > 0:
		dst = append(dst, "; Max-Age="...)
		dst = strconv.AppendInt(dst, int64(c.MaxAge), 10)
	case c.MaxAge < 0:
		dst = append(dst, "; Max-Age=0"...)
	}
	if c.Secure {
		dst = append(dst, "; Secure"...)
	}
	if c.HttpOnly {
		dst = append(dst, "; HttpOnly"...)
	}
	dst = append(dst, sameSiteAttributes[c.SameSite]...)
	if c.Partitioned {
		dst = append(dst, "; Partitioned"...)
	}
	return dst, nil
}

var sameSiteAttributes = [...]string{
	SameSiteDefault: "",
	SameSiteLax:     "; SameSite=Lax",
	SameSiteStrict:  "; SameSite=Strict",
	SameSiteNone:    "; SameSite=None",
}

// Value returns the value of the first cookie with the name in header, the value of a Cookie field. A request can
// have several such fields (RFC 9113, section 8.2.3).
func Value(header []byte, name string) ([]byte, bool) {
	for key, value := range Pairs(header) {
		if string(key) == name {
			return value, true
		}
	}
	return nil, false
}

// Pairs returns the names and values in header, the value of a Cookie field, in order. Like net/http, Pairs is more lenient than a server has to be,
// since other software sets cookies too. It drops white space around a pair and quotes around a value. A value may contain spaces and commas. A pair
// without "=" has an empty value. A pair is skipped if its name isn't a token, or if its value contains any other byte that isn't a cookie-octet.
// Names and values are borrowed from header.
func Pairs(header []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for rest := header; len(rest) > 0; {
			pair := rest
			if i := bytes.IndexByte(rest, ';'); i >= 0 {
				pair, rest = rest[:i], rest[i+1:]
			} else {
				rest = nil
			}
			name, value, ok := splitPair(syntax.TrimSpace(pair))
			if ok && !yield(name, value) {
				return
			}
		}
	}
}

func splitPair(pair []byte) (name, value []byte, ok bool) {
	name, value = pair, pair[len(pair):]
	if i := bytes.IndexByte(pair, '='); i >= 0 {
		name, value = syntax.TrimSpace(pair[:i]), pair[i+1:]
	}
	if !syntax.IsToken(name) {
		return nil, nil, false
	}
	if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1]
	}
	for _, c := range value {
		if !octets[c] && c != ' ' && c != ',' {
			return nil, nil, false
		}
	}
	return name[:len(name):len(name)], value[:len(value):len(value)], true
}
