package jwt

import (
	"bytes"

	"github.com/filohttp/filo"
)

// find returns the request's token, or "" if it has none. It returns an error if there are several tokens, or if the text can't be a token.
func (v *verifier) find(c *filo.Ctx) (string, *filo.HTTPError) {
	token, err := bearer(&c.Request.Header)
	if err != nil {
		return "", err
	}
	if v.query != "" {
		parameter, err := queryToken(c.Request.Query(), v.query)
		if err != nil {
			return "", err
		}
		if parameter != nil {
			// RFC 6750, section 2: clients must not use more than one method in a request.
			if token != nil {
				return "", errTwoTokens
			}
			token = parameter
			c.Response.Header.Set("Cache-Control", "private")
		}
	}
	if token == nil && v.cookie != "" {
		// An empty cookie is treated as missing: a server has emptied it to delete it, and the browser hasn't dropped it yet.
		if token = c.Request.CookieBytes(v.cookie); len(token) == 0 {
			return "", nil
		}
	}
	if token == nil {
		return "", nil
	}
	if !isToken(token) {
		return "", errNotAToken
	}
	return string(token), nil
}

// bearer returns the text after "Bearer" in Authorization, or nil if the field is missing or has another scheme.
func bearer(header *filo.Header) (token []byte, err *filo.HTTPError) {
	seen := false
	for value := range header.Values("Authorization") {
		if seen {
			return nil, errTwoTokens
		}
		seen = true
		scheme, rest, _ := bytes.Cut(value, space)
		if bytes.EqualFold(scheme, bearerScheme) {
			token = bytes.TrimLeft(rest, " ")
			if token == nil {
				token = []byte{}
			}
		}
	}
	return token, nil
}

var (
	space        = []byte(" ")
	bearerScheme = []byte("Bearer")
)

// queryToken returns a parameter's value, or nil if the parameter is missing.
func queryToken(args *filo.Args, name string) (token []byte, err *filo.HTTPError) {
	for value := range args.Values(name) {
		if token != nil {
			return nil, errTwoTokens
		}
		token = value
		if token == nil {
			token = []byte{}
		}
	}
	return token, nil
}

// isToken reports whether b is a b64token (RFC 6750, section 2.1).
func isToken(b []byte) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/"
	b = bytes.TrimRight(b, "=")
	return len(b) > 0 && len(bytes.TrimLeft(b, allowed)) == 0
}

var varyCookie = filo.NewField("Vary", "Cookie")
