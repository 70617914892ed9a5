package middleware

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// KeyAuthOptions configures KeyAuth. Either Keys or Check is required.
type KeyAuthOptions struct {
	// Keys are the valid keys. Each must be long and random; its length isn't secret. KeyAuth compares all of them for each
	// request, in constant time. For more than a few keys, use Check and look up a hash of the key.
	Keys []string
	// Check reports whether a key is valid. The key is borrowed until the handler returns. Check may store the key's owner with Ctx.Set.
	// EqualSecret compares in constant time. If Check returns an error, the request fails with that error.
	Check func(c *filo.Ctx, key []byte) (bool, error)

	// Header, Query and Cookie name the only place where KeyAuth looks for the key; set at most one of them. Header is a header field, by default
	// Authorization. Query is a parameter, which RedactParameter keeps out of filo's logs; the keys still end up in other programs' logs,
	// and in browsers' histories. Cookie must be combined with CSRF.
	Header, Query, Cookie string
	// Scheme is the word in front of the key in a header field. Default "Bearer" in Authorization, none in other fields.
	Scheme string
	// Realm names what the key protects. Default "Restricted".
	Realm string
}

// maxKey is the maximum length of a key in bytes.
const maxKey = 4 << 10

// KeyAuth admits requests with a valid key, and answers all other requests with 401. If the key is in a cookie or in a header field other
// than Authorization, answers get a Vary field, so that a cache doesn't give one client the answer to another client's key. For
// Authorization, caches need no Vary. Put KeyAuth where BasicAuth belongs.
func KeyAuth(options KeyAuthOptions) filo.Middleware {
	check((len(options.Keys) > 0) != (options.Check != nil), "KeyAuth: either Keys or Check is required")
	if options.Query != "" {
		RedactParameter(options.Query)
	}
	k := newKeyAuth(&options)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if k.vary != nil {
				c.Response.Header.AddField(k.vary)
			}
			key := k.key(c)
			if len(key) == 0 || len(key) > maxKey {
				setPrepared(c, k.missing)
				return errUnauthorized
			}
			ok, err := k.check(c, key)
			if err != nil {
				return err
			}
			if !ok {
				setPrepared(c, k.invalid)
				return errUnauthorized
			}
			return next(c)
		}
	}
}

type keyAuth struct {
	check                 func(c *filo.Ctx, key []byte) (bool, error)
	keys                  [][]byte // never changed
	header, query, cookie string   // exactly one is set
	scheme                string
	missing, invalid      *filo.Field // the challenges for requests without a key, and with a wrong key
	vary                  *filo.Field // the Vary field of answers; nil if caches need none
}

func newKeyAuth(options *KeyAuthOptions) *keyAuth {
	k := &keyAuth{check: options.Check, header: options.Header, query: options.Query, cookie: options.Cookie, scheme: options.Scheme}
	places := 0
	for _, place := range [...]string{k.header, k.query, k.cookie} {
		if place != "" {
			places++
		}
	}
	check(places <= 1, "KeyAuth: set only one of Header, Query and Cookie")
	if places == 0 {
		k.header = "Authorization"
	}
	if syntax.EqualFold(k.header, "Authorization") && k.scheme == "" {
		k.scheme = "Bearer"
	}
	if k.header != "" {
		checkFieldName("KeyAuthOptions.Header", k.header)
	}
	switch {
	case k.cookie != "":
		k.vary = prepare("Vary", "Cookie")
	case k.header != "" && !syntax.EqualFold(k.header, "Authorization"): // RFC 9111, section 3.5
		k.vary = prepare("Vary", k.header)
	}
	check(k.scheme == "" || k.header != "", "KeyAuth: a Scheme needs a Header")
	for _, key := range options.Keys {
		check(key != "" && len(key) <= maxKey, "KeyAuth: a key must have 1 to %d bytes", maxKey)
		k.keys = append(k.keys, []byte(key))
	}
	if k.check == nil {
		k.check = k.has
	}
	k.setChallenges(options.Realm)
	return k
}

// setChallenges makes the challenges that a 401 must have (RFC 9110, section 15.5.2).
func (k *keyAuth) setChallenges(realm string) {
	realm = cmp.Or(realm, "Restricted")
	checkFieldValue("KeyAuthOptions.Realm", realm)
	scheme := cmp.Or(k.scheme, "ApiKey")
	checkFieldName("KeyAuthOptions.Scheme", scheme) // a scheme is a token, as a field name is
	challenge := scheme + " realm=" + quoted(realm)
	k.missing = prepare("WWW-Authenticate", challenge)
	if syntax.EqualFold(scheme, "Bearer") {
		// RFC 6750, section 3.1: the answer to a request without a token must have no error code.
		challenge += `, error="invalid_token"`
	}
	k.invalid = prepare("WWW-Authenticate", challenge)
}

// key returns the key of a request, nil if there is none.
func (k *keyAuth) key(c *filo.Ctx) []byte {
	switch {
	case k.query != "":
		return c.Request.Query().GetBytes(k.query)
	case k.cookie != "":
		return c.Request.CookieBytes(k.cookie)
	}
	value := c.Request.Header.GetBytes(k.header)
	if k.scheme != "" {
		value, _ = cutScheme(value, k.scheme)
	}
	return value
}

// has reports whether a key is one of Keys.
func (k *keyAuth) has(_ *filo.Ctx, key []byte) (bool, error) {
	found := 0
	for _, each := range k.keys { // compares with all keys, so that the time doesn't reveal which key matched
		found |= subtle.ConstantTimeCompare(key, each)
	}
	return found == 1, nil
}

// EqualSecret reports whether two secrets are equal. The time that it takes reveals neither where they differ nor the length of expected.
func EqualSecret[A, B []byte | string](given A, expected B) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(expected))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
