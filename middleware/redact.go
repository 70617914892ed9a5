package middleware

import (
	"bytes"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/filohttp/filo/internal/syntax"
)

// secretEndings are the endings of names of parameters whose values are usually secret, in lower case and without "-" and "_".
var secretEndings = []string{"token", "apikey", "accesskey", "accesskeyid", "password", "passwd", "passphrase", "secret", "signature", "credential", "assertion"}

// secretNames are whole names of further parameters whose values are usually secret. As endings, they would match harmless names, too.
var secretNames = []string{"code", "sig", "pwd", "jwt", "otp", "samlresponse", "authorization"}

// redacted are the names that RedactParameter was called with, in lower case.
var redacted sync.Map

// RedactParameter makes IsRedacted return true for a query parameter, in upper and lower case, in the whole program. KeyAuth and contrib/jwt
// call it for the parameter that they read; call it for your program's own secret parameters.
func RedactParameter(name string) { redacted.Store(strings.ToLower(name), true) }

// IsRedacted reports whether the values of a query parameter must be kept out of logs and traces. AccessLog and contrib/otel call it. It
// returns true if RedactParameter was called with the name, if the name is code, sig, pwd, jwt, otp, SAMLResponse or Authorization, or if it
// ends with token, api_key, access_key, AccessKeyId, password, passwd, passphrase, secret, signature, credential or assertion. Case, "-" and
// "_" don't matter. In names such as "user[password]" the last part decides.
func IsRedacted(name string) bool {
	name = strings.ToLower(name)
	if _, found := redacted.Load(name); found {
		return true
	}
	name = strings.TrimRight(name, "[]")
	name = notInNames.Replace(name[strings.LastIndexByte(name, '[')+1:])
	return slices.Contains(secretNames, name) || slices.ContainsFunc(secretEndings, func(ending string) bool { return strings.HasSuffix(name, ending) })
}

var notInNames = strings.NewReplacer("-", "", "_", "")

// maxNested is how many times a value is percent-decoded, since it may be a URL inside another URL.
const maxNested = 4

// HoldsSecret reports whether a parameter's value is itself a URL or a query with a secret parameter, even if it is encoded several times:
// next=%2Fcallback%3Ftoken%3Dabc for instance. isSecret decides by a parameter's name. AccessLog and contrib/otel hide such values as a
// whole.
func HoldsSecret(value string, isSecret func(name string) bool) bool {
	for range maxNested {
		for rest := value; ; {
			i := strings.IndexByte(rest, '=')
			if i < 0 {
				break
			}
			if isSecret(rest[strings.LastIndexAny(rest[:i], "?&;#/")+1 : i]) {
				return true
			}
			rest = rest[i+1:]
		}
		if !strings.Contains(value, "%") {
			return false // most values return here
		}
		decoded := string(syntax.AppendPercentDecoded(nil, []byte(value))) // accepts a value that was cut in the middle of an escape
		if len(decoded) == len(value) {
			return false
		}
		value = decoded
	}
	return strings.ContainsRune(value, '%') // it is still encoded, so it may hold anything
}

// appendURL appends a request target or a URL as appendEscaped does, but replaces the values of secret parameters in its query by "REDACTED".
// It appends at most syntax.MaxLogged bytes.
func appendURL(line, text []byte, secrets []string) []byte {
	start := len(line)
	return cutEscaped(appendWholeURL(line, text[:min(len(text), syntax.MaxLogged+1)], secrets), start, syntax.MaxLogged)
}

// cutEscaped truncates the bytes from start on, which appendEscaped has appended, to limit bytes. It never cuts within an escape.
func cutEscaped(line []byte, start, limit int) []byte {
	if len(line) <= start+limit {
		return line
	}
	line = line[:start+limit]
	if i := bytes.LastIndexByte(line[len(line)-3:], '\\'); i >= 0 {
		line = line[:len(line)-3+i]
	}
	return append(line, "..."...)
}

func appendWholeURL(line, text []byte, secrets []string) []byte {
	path, query, found := bytes.Cut(text, []byte{'?'})
	line = appendEscaped(line, path, '"')
	if !found {
		return line
	}
	line = append(line, '?')
	for len(query) > 0 {
		pair, end := query, bytes.IndexAny(query, "&;") // some upstreams end a pair at ";", too
		if end >= 0 {
			pair = query[:end]
		}
		name, value, valued := bytes.Cut(pair, []byte{'='})
		line = appendEscaped(line, name, '"')
		if valued {
			line = append(line, '=')
			if isSecret(name, secrets) || HoldsSecret(string(value), func(name string) bool { return isSecret([]byte(name), secrets) }) {
				value = []byte("REDACTED")
			}
			line = appendEscaped(line, value, '"')
		}
		if end < 0 {
			break
		}
		line = append(line, query[end])
		query = query[end+1:]
	}
	return line
}

// isSecret decodes a parameter's name, and reports whether IsRedacted or the list of secrets makes it secret.
func isSecret(name []byte, secrets []string) bool {
	if bytes.ContainsAny(name, "%+") {
		if decoded, err := url.QueryUnescape(string(name)); err == nil {
			name = []byte(decoded)
		}
	}
	return IsRedacted(string(name)) || slices.ContainsFunc(secrets, func(secret string) bool { return syntax.EqualFold(name, secret) })
}
