package jwt

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/filohttp/filo"
)

// Errors with which requests without a valid token are answered. All requests share them, so nothing may change them.
var (
	errNoToken   = filo.Error(401, "an access token is needed")
	errTwoTokens = filo.Error(400, "more than one access token")
	errNotAToken = filo.Error(400, "malformed access token")
)

// invalidToken returns the error for an invalid token. The client gets the same answer for every cause; only the log contains the cause.
func invalidToken(cause error) *filo.HTTPError {
	return &filo.HTTPError{Status: 401, Detail: "the access token is invalid or has expired", Err: cause}
}

// challenges are the values of WWW-Authenticate (RFC 6750, section 3).
type challenges struct {
	noToken, invalidRequest, invalidToken, insufficientScope string
}

func newChallenges(realm string) challenges {
	realm = cmp.Or(realm, "api")
	for i := range len(realm) {
		if realm[i] < ' ' || realm[i] > '~' {
			panic(fmt.Sprintf("jwt: the Realm %q has a character that isn't printable ASCII", realm))
		}
	}
	// A quoted-string (RFC 9110, section 5.6.4).
	plain := `Bearer realm="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(realm) + `"`
	return challenges{
		noToken:           plain,
		invalidRequest:    plain + `, error="invalid_request"`,
		invalidToken:      plain + `, error="invalid_token"`,
		insufficientScope: plain + `, error="insufficient_scope"`,
	}
}

// refuse adds the challenge that belongs to an error, and returns the error. Errors that aren't about the token, such as a 503 that the
// user's code returns, have no challenge.
func (v *verifier) refuse(c *filo.Ctx, err *filo.HTTPError) error {
	challenge := ""
	switch {
	case err == errNoToken:
		challenge = v.challenges.noToken
	case err.Status == 400:
		challenge = v.challenges.invalidRequest
	case err.Status == 401:
		challenge = v.challenges.invalidToken
	case err.Status == 403:
		challenge = v.challenges.insufficientScope
	}
	if challenge != "" {
		c.Response.Header.Add("WWW-Authenticate", challenge)
	}
	return err
}
