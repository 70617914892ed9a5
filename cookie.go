package filo

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/syntax"
)

// SameSite tells a browser with which cross-site requests to send a cookie (RFC 6265bis, section 4.1.2.7).
type SameSite int

const (
	SameSiteDefault SameSite = iota // no attribute: the browser decides, mostly as for Lax
	SameSiteLax                     // with same-site requests, and when the user follows a link from another site
	SameSiteStrict                  // with same-site requests only
	SameSiteNone                    // with all requests; needs Secure
)

const (
	// Browsers silently ignore a cookie (name and value together) or an attribute beyond these lengths (RFC 6265bis, section 5.6).
	maxCookieBytes          = 4096
	maxCookieAttributeBytes = 1024
)

// Cookie is a cookie that a response sets (RFC 6265bis, section 4.1). Name is required; the other fields may be zero. An
// invalid cookie is never sent, not even in part: see Valid.
type Cookie struct {
	// Name is a token. Special rules apply to the prefixes "__Secure-" and "__Host-": see Valid.
	Name string
	// Value is visible ASCII without quotes, comma, semicolon and backslash, optionally all within one pair of quotes. Encode
	// other values, for example with base64 or url.QueryEscape.
	Value string
	// Path limits the cookie to that path and the paths below it. It starts with "/". If empty, the browser uses the directory
	// of the request's path; "/" is the usual choice.
	Path string
	// Domain shares the cookie with that domain and all hosts below it. If empty, only the host that sets the cookie gets it. A
	// leading dot has no meaning and isn't sent.
	Domain string
	// Expires is when the browser deletes the cookie. If Expires and MaxAge are zero, it does so at the end of its session.
	Expires time.Time
	// MaxAge is how many seconds the browser keeps the cookie: 0 omits the attribute, and a negative value deletes the cookie
	// now. MaxAge overrides Expires. Browsers keep no cookie for more than 400 days.
	MaxAge int
	// Secure restricts the cookie to TLS.
	Secure bool
	// HttpOnly hides the cookie from scripts.
	HttpOnly bool
	// Partitioned keeps a separate cookie for each top-level site that embeds this one. It needs Secure.
	Partitioned bool
	// SameSite tells the browser with which cross-site requests to send the cookie.
	SameSite SameSite
}

// cookieOctets are defined by RFC 6265bis, section 4.1.1: "US-ASCII characters excluding CTLs, whitespace, DQUOTE, comma, semicolon,
// and backslash".
var cookieOctets = func() (set [256]bool) {
	for c := byte(0x21); c < 0x7f; c++ {
		set[c] = c != '"' && c != ',' && c != ';' && c != '\\'
	}
	return set
}()

// Valid returns nil if the cookie can be sent and browsers accept it; otherwise the error says what is wrong.
//
// Beyond the syntax of each field, Valid rejects what browsers reject or ignore according to RFC 6265bis: SameSiteNone or Partitioned
// without Secure; a "__Secure-" name without Secure; a "__Host-" name without Secure, with a Path other than "/", or with a Domain;
// name and value of more than 4096 bytes together; an attribute of more than 1024 bytes; and a Path that isn't absolute.
func (c *Cookie) Valid() error {
	if c == nil {
		return errors.New("filo: nil Cookie")
	}
	if !syntax.IsToken(c.Name) {
		return fmt.Errorf("filo: cookie name %q must be a token", c.Name)
	}
	if problem := c.problem(); problem != "" {
		return fmt.Errorf("filo: cookie %q: %s", c.Name, problem)
	}
	return nil
}

// problem returns what is wrong with a cookie whose name is a token, or "" if the cookie is valid.
func (c *Cookie) problem() string {
	switch {
	case !validCookieValue(c.Value):
		return "the value must be visible ASCII without quotes, comma, semicolon and backslash"
	case len(c.Name)+len(c.Value) > maxCookieBytes:
		return "name and value together may have 4096 bytes at most"
	case c.Path != "" && !validCookiePath(c.Path):
		return `the path must start with "/" and be visible ASCII without semicolon, 1024 bytes at most`
	case c.Domain != "" && !validCookieDomain(c.Domain):
		return "the domain must be a domain name"
	case !c.Expires.IsZero() && !validCookieTime(c.Expires):
		return "the year of expiry must be 1601 to 9999"
	case c.SameSite < SameSiteDefault || c.SameSite > SameSiteNone:
		return "unknown SameSite"
	}
	return c.missingProtection()
}

// missingProtection says which attribute the cookie lacks that its other attributes or its name require, or "" if it lacks none.
func (c *Cookie) missingProtection() string {
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

// validCookieValue: "cookie-value = *cookie-octet / ( DQUOTE *cookie-octet DQUOTE )" (RFC 6265bis, section 4.1.1).
func validCookieValue(s string) bool {
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	for i := 0; i < len(s); i++ {
		if !cookieOctets[s[i]] {
			return false
		}
	}
	return true
}

// validCookiePath also refuses a space, though the grammar of path-value allows it: no request path matches one, and browsers strip a
// trailing one.
func validCookiePath(s string) bool {
	if s[0] != '/' || len(s) > maxCookieAttributeBytes {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] >= 0x7f || s[i] == ';' {
			return false
		}
	}
	return true
}

// validCookieDomain reports whether s, after a leading dot, if any, is a domain name: labels of 1 to 63 letters, digits and inner
// hyphens, 253 bytes in all (RFC 1034, section 3.5, as RFC 1123, section 2.1, changed it). An IPv4 address also has this syntax.
func validCookieDomain(s string) bool {
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

// validCookieTime: browsers don't accept a year before 1601 (RFC 6265bis, section 5.1.1), and HTTP-date has four digits for a year.
func validCookieTime(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1601 && year <= 9999
}

// AppendTo appends the value of a Set-Cookie field and returns the extended slice. If the cookie is invalid, it appends nothing
// and returns the error of Valid.
func (c *Cookie) AppendTo(dst []byte) ([]byte, error) {
	if err := c.Valid(); err != nil {
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
		dst = c.Expires.UTC().AppendFormat(dst, timeFormat)
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

// String returns the value of a Set-Cookie field, or "" if the cookie is invalid.
func (c *Cookie) String() string {
	value, _ := c.AppendTo(nil)
	return string(value)
}

// cookieValue returns the value of the first cookie with the name in header, the value of a Cookie field. A request can
// have several such fields (RFC 9113, section 8.2.3).
func cookieValue(header []byte, name string) ([]byte, bool) {
	for key, value := range cookiePairs(header) {
		if string(key) == name {
			return value, true
		}
	}
	return nil, false
}

// cookiePairs returns the names and values in header, the value of a Cookie field, in order. Like net/http it is more
// lenient than a server has to be, as other software sets cookies too: white space around a pair is dropped, as are
// quotes around a value; a value may hold spaces and commas; a pair without "=" has an empty value. A pair whose name
// isn't a token, or whose value holds other bytes, is skipped. Names and values are borrowed from header.
func cookiePairs(header []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for rest := header; len(rest) > 0; {
			pair := rest
			if i := bytes.IndexByte(rest, ';'); i >= 0 {
				pair, rest = rest[:i], rest[i+1:]
			} else {
				rest = nil
			}
			name, value, ok := cookiePair(syntax.TrimSpace(pair))
			if ok && !yield(name, value) {
				return
			}
		}
	}
}

func cookiePair(pair []byte) (name, value []byte, ok bool) {
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
		if !cookieOctets[c] && c != ' ' && c != ',' {
			return nil, nil, false
		}
	}
	return name[:len(name):len(name)], value[:len(value):len(value)], true
}
