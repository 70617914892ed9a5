package middleware

import (
	"bytes"
	"net/url"
	"slices"
	"strings"

	"github.com/filohttp/filo/internal/syntax"
)

// secretParameters are the query parameters whose values aren't logged, in lower case: those that contrib/otel redacts, too.
var secretParameters = []string{
	"access_token", "awsaccesskeyid", "sig", "signature", "x-amz-credential", "x-amz-security-token", "x-amz-signature",
	"x-goog-signature",
}

// redactedParameters returns the names of parameters whose values aren't logged, with more of them.
func redactedParameters(more []string) []string {
	names := secretParameters[:len(secretParameters):len(secretParameters)]
	for _, name := range more {
		names = append(names, strings.ToLower(name))
	}
	return names
}

// appendURL appends a request target or a URL as appendEscaped does, but in the place of the values of secret parameters of its
// query "REDACTED".
func appendURL(line, text []byte, secrets []string) []byte {
	path, query, found := bytes.Cut(text, []byte{'?'})
	line = appendEscaped(line, path, '"')
	if !found {
		return line
	}
	line = append(line, '?')
	for len(query) > 0 {
		pair, rest, more := bytes.Cut(query, []byte{'&'})
		query = rest
		name, value, valued := bytes.Cut(pair, []byte{'='})
		line = appendEscaped(line, name, '"')
		if valued {
			line = append(line, '=')
			if isSecret(name, secrets) {
				value = []byte("REDACTED")
			}
			line = appendEscaped(line, value, '"')
		}
		if more {
			line = append(line, '&')
		}
	}
	return line
}

// isSecret compares a parameter's name as it is meant, whatever of it is encoded.
func isSecret(name []byte, secrets []string) bool {
	if bytes.ContainsAny(name, "%+") {
		if decoded, err := url.QueryUnescape(string(name)); err == nil {
			name = []byte(decoded)
		}
	}
	return slices.ContainsFunc(secrets, func(secret string) bool { return syntax.EqualFold(name, secret) })
}
