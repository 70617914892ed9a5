package otel

import (
	"bytes"
	"net/url"
	"strings"

	"github.com/filohttp/filo/middleware"
)

const redacted = "REDACTED"

// secretParameters returns the set of the names in Options.Redact, in lower case. middleware.IsRedacted recognizes other secrets.
func secretParameters(names []string) map[string]bool {
	set := make(map[string]bool)
	for _, name := range names {
		set[strings.ToLower(name)] = true
	}
	return set
}

// appendRedacted appends a query in which "REDACTED" replaces the values of secret parameters.
func (t *telemetry) appendRedacted(text, query []byte) []byte {
	for len(query) > 0 {
		pair, end := query, bytes.IndexAny(query, "&;") // some upstreams end a pair at ";", too
		if end >= 0 {
			pair = query[:end]
		}
		name, value, valued := bytes.Cut(pair, []byte{'='})
		text = append(text, name...)
		if valued {
			text = append(text, '=')
			if t.isSecret(name) || middleware.HoldsSecret(string(value), func(name string) bool { return t.isSecret([]byte(name)) }) {
				value = []byte(redacted)
			}
			text = append(text, value...)
		}
		if end < 0 {
			break
		}
		text = append(text, query[end])
		query = query[end+1:]
	}
	return text
}

// isSecret reports whether a parameter, whose name may be encoded, is secret.
func (t *telemetry) isSecret(name []byte) bool {
	text := string(name)
	if decoded, err := url.QueryUnescape(text); err == nil {
		text = decoded
	}
	return t.secret[strings.ToLower(text)] || middleware.IsRedacted(text)
}
