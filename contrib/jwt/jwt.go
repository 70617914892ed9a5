package jwt

import (
	"errors"
	"time"

	gojwt "github.com/golang-jwt/jwt/v5"

	"github.com/filohttp/filo"
)

// DefaultMaxTokenBytes is how long a token may be unless Options.MaxTokenBytes says otherwise.
const DefaultMaxTokenBytes = 8 << 10

// RegisteredClaims are the claims that RFC 7519 defines, for a type of claims to embed, or to be one.
type RegisteredClaims = gojwt.RegisteredClaims

// Options say which tokens are good. C is the type of the claims, a struct that embeds RegisteredClaims mostly: a pointer to
// it must be what golang-jwt calls Claims. If that also has a method Validate() error, its errors make tokens bad.
type Options[C any] struct {
	// Algorithms are those that are accepted, by their names in RFC 7518 and RFC 8037, such as "ES256". Required; "none"
	// isn't one.
	Algorithms []string

	// Key verifies all tokens, whatever their "kid". It is a []byte for HS256, HS384 and HS512, at least as long as the
	// hash (32, 48, 64); an *rsa.PublicKey of 2048 bits or more for RS… and PS…; an *ecdsa.PublicKey on the algorithm's
	// curve for ES…; and an ed25519.PublicKey for EdDSA. One of Key, Keys and KeyFunc is required.
	Key any
	// Keys are several keys, by the "kid" of the tokens that they verify, as while one takes another's place.
	Keys map[string]any
	// KeyFunc finds the key for a token that hasn't been verified yet, by its header: those of golang-jwt's users, such as
	// one that keeps a JWK set, fit. It is called by many requests at once. That there is no such key is an error of any
	// kind; that it couldn't find out, one that wraps a *filo.HTTPError, such as a 503, which the client is answered with. A
	// []byte that it returns is a shared secret only if Algorithms has one of HS…, so don't allow those beside others.
	KeyFunc gojwt.Keyfunc

	// Issuer is what "iss" must be. Empty: anything.
	Issuer string
	// Audience has what "aud" must name one of. Empty: anything, even nothing.
	Audience []string
	// Type is what "typ" must be, such as "at+jwt" (RFC 9068), so that tokens for another purpose, by the same issuer, are
	// refused. Empty: anything.
	Type string
	// Leeway is how far apart the issuer's clock and this one may be. Default 0.
	Leeway time.Duration
	// AllowNoExpiry accepts tokens that have no "exp", and so are good for ever.
	AllowNoExpiry bool
	// MaxTokenBytes is how long a token may be: it is decoded before it can be verified. Default 8 KB. The request's head as
	// a whole has the server's MaxHeaderBytes for a limit.
	MaxTokenBytes int

	// Cookie is the name of a cookie that may have the token, as browsers need it; it is looked at where Authorization has
	// none. Other sites can make a browser send it, so such routes need protection from forged requests.
	Cookie string
	// Query is the name of a query parameter that may have the token, by convention "access_token", for clients that can't
	// set fields, such as a browser's EventSource. URLs end up in logs and histories: let such tokens live briefly. Their
	// answers get a Cache-Control of "private" (RFC 6750, section 2.3).
	Query string

	// Optional lets requests without a token through, without claims. One that isn't good is refused all the same.
	Optional bool
	// Realm is told to clients that are refused. Default "api".
	Realm string
	// Check decides about a token that is good otherwise, as one that was revoked. The claims are those that handlers will
	// get. An error makes the token a bad one (401), unless it wraps a *filo.HTTPError: that is answered with, one of 403
	// as "insufficient_scope".
	Check func(c *filo.Ctx, claims *C) error
}

// claimsKey is what claims of type C are stored under.
type claimsKey[C any] struct{}

// Claims returns the claims of the request's token, and whether there is one: behind New that isn't Optional, there is. C is
// the type that New's Options have.
func Claims[C any](c *filo.Ctx) (*C, bool) {
	claims, ok := c.Get(claimsKey[C]{}).(*C)
	return claims, ok
}

// New returns middleware that lets only requests with a valid token through, or none if that is optional. It panics if the
// options are wrong: without an algorithm, with one that isn't known or "none", and with a key that doesn't fit.
func New[C any, P interface {
	*C
	gojwt.Claims
}](options Options[C]) filo.Middleware {
	v := newVerifier(&options)
	check := options.Check
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if v.cookie != "" {
				c.Response.Header.AddField(&varyCookie) // or else a cache would take the answer for everybody's
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

// asRefusal returns an error of the user's code as the one to answer with.
func asRefusal(err error) *filo.HTTPError {
	var refusal *filo.HTTPError
	if errors.As(err, &refusal) {
		return refusal
	}
	return invalidToken(err)
}
