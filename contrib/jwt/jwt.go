package jwt

import (
	"errors"
	"time"

	gojwt "github.com/golang-jwt/jwt/v5"

	"github.com/filohttp/filo"
)

// DefaultMaxTokenBytes is the default of Options.MaxTokenBytes.
const DefaultMaxTokenBytes = 8 << 10

// RegisteredClaims are the claims that RFC 7519 defines. Embed them in your type of claims, or use them as the type of claims.
type RegisteredClaims = gojwt.RegisteredClaims

// Options set which tokens are valid. C is the type of the claims, usually a struct that embeds RegisteredClaims. A pointer to C must
// implement golang-jwt's Claims. If C also has a method Validate() error, a token for which Validate returns an error is invalid.
type Options[C any] struct {
	// Algorithms are the accepted algorithms, by their names in RFC 7518 and RFC 8037, such as "ES256". Required; "none" isn't
	// allowed.
	Algorithms []string

	// Key verifies all tokens, whatever their "kid". It is a []byte for HS256, HS384 and HS512, at least as long as the
	// hash (32, 48, 64); an *rsa.PublicKey of 2048 bits or more for RS… and PS…; an *ecdsa.PublicKey on the algorithm's
	// curve for ES…; and an ed25519.PublicKey for EdDSA. One of Key, Keys and KeyFunc is required.
	Key any
	// Keys are several keys, by the "kid" of the tokens that they verify, for example while a new key replaces an old one.
	Keys map[string]any
	// KeyFunc returns the key for a token that hasn't been verified yet, by its header. It has golang-jwt's type, so key functions for
	// golang-jwt can be used, such as one that caches a JWK set (see the package's doc for how often it should be fetched). Many requests
	// call it at once, including requests with tokens that an attacker has made up. If there is no such key, KeyFunc must return an error of
	// any kind. If it can't find out whether there is such a key, it must return an error that wraps a *filo.HTTPError, such as a 503, which
	// becomes the client's answer. If Algorithms contains one of HS…, a []byte that KeyFunc returns is a shared secret; don't allow HS…
	// together with other algorithms.
	KeyFunc gojwt.Keyfunc

	// Issuer is the required value of "iss". If empty, any value is valid.
	Issuer string
	// Audience are the accepted audiences: "aud" must name one of them. If empty, any value is valid, even none.
	Audience []string
	// Type is the required value of "typ", such as "at+jwt" (RFC 9068), so that tokens of the same issuer for another purpose
	// are refused. If empty, any value is valid.
	Type string
	// Leeway is the allowed difference between the issuer's clock and this server's clock. Default 0.
	Leeway time.Duration
	// AllowNoExpiry accepts tokens without "exp", which never expire.
	AllowNoExpiry bool
	// MaxTokenBytes limits the length of a token, which is decoded before it can be verified. Default 8 KB. The server's
	// MaxHeaderBytes limits the whole head of the request.
	MaxTokenBytes int

	// Cookie is the name of a cookie that may contain the token, for browsers. It is read if Authorization has no token. Other sites can
	// make a browser send it, so such routes need protection from forged requests (CSRF).
	Cookie string
	// Query is the name of a query parameter that may contain the token, by convention "access_token", for clients that can't set fields,
	// such as a browser's EventSource. URLs end up in logs and histories, so give such tokens a short lifetime. Their answers get a
	// Cache-Control of "private" (RFC 6750, section 2.3).
	Query string

	// Optional admits requests without a token; these have no claims. An invalid token is still refused.
	Optional bool
	// Realm is the realm that refused clients see. Default "api".
	Realm string
	// Check, if set, makes the last decision about a valid token, for example whether it was revoked. Handlers get the same claims. If Check
	// returns an error, the token is invalid (401), unless the error wraps a *filo.HTTPError. The client then gets that error, and for a 403
	// the challenge has the error code "insufficient_scope".
	Check func(c *filo.Ctx, claims *C) error
}

// claimsKey is the key of claims of type C.
type claimsKey[C any] struct{}

// Claims returns the claims of the request's token, and whether there is a token. If Optional isn't set, there is always a token in handlers
// inside of the middleware. C must be the type in New's Options.
func Claims[C any](c *filo.Ctx) (*C, bool) {
	claims, ok := c.Get(claimsKey[C]{}).(*C)
	return claims, ok
}

// New returns middleware that admits only requests with a valid token, and requests without a token if Optional is set. It panics if the
// options are invalid, for example if Algorithms is empty or contains "none" or an unknown algorithm, or if a key fits none of the algorithms.
func New[C any, P interface {
	*C
	gojwt.Claims
}](options Options[C]) filo.Middleware {
	v := newVerifier(&options)
	check := options.Check
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if v.cookie != "" {
				c.Response.Header.AddField(&varyCookie) // otherwise a cache would give the answer to other clients, too
			}
			token, err := v.find(c)
			if err != nil {
				return v.refuse(c, err)
			}
			if token == "" {
				if v.optional {
					return next(c)
				}
				return v.refuse(c, errNoToken)
			}
			claims := new(C)
			if err := v.verify(token, P(claims)); err != nil {
				return v.refuse(c, err)
			}
			if check != nil {
				if err := check(c, claims); err != nil {
					return v.refuse(c, asRefusal(err))
				}
			}
			c.Set(claimsKey[C]{}, claims)
			return next(c)
		}
	}
}

// asRefusal turns an error of the user's code into the error for the client.
func asRefusal(err error) *filo.HTTPError {
	if refusal, ok := errors.AsType[*filo.HTTPError](err); ok {
		return refusal
	}
	return invalidToken(err)
}
