package otel

import (
	"bytes"
	"net/url"
	"strings"
)

// secrets are the parameters that the conventions have redacted, others of the same services, and that of RFC 6750.
var secrets = [...]string{
	"access_token", "AWSAccessKeyId", "sig", "Signature", "X-Amz-Credential", "X-Amz-Security-Token", "X-Amz-Signature",
	"X-Goog-Signature",
}

const redacted = "REDACTED"

func secretParameters(more []string) map[string]bool {
	names := make(map[string]bool)
	for _, name := range append(secrets[:len(secrets):len(secrets)], more...) {
		names[strings.ToLower(name)] = true
	}
	return names
}

// appendRedacted appends a query without the values of the parameters that are secrets.
func (t *telemetry) appendRedacted(text, query []byte) []byte {
	for len(query) > 0 {
		pair, rest, more := bytes.Cut(query, []byte{'&'})
		query = rest
		name, value, valued := bytes.Cut(pair, []byte{'='})
		text = append(text, name...)
		if valued {
			text = append(text, '=')
			if t.isSecret(name) {
				value = []byte(redacted)
			}
			text = append(text, value...)
		}
		if more {
			text = append(text, '&')
		}
	}
	return text
}

// isSecret compares a name as it is meant, whatever of it is encoded.
func (t *telemetry) isSecret(name []byte) bool {
	text := string(name)
	if decoded, err := url.QueryUnescape(text); err == nil {
		text = decoded
	}
	return t.secret[strings.ToLower(text)]
}
