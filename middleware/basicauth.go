package middleware

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// BasicAuthOptions configures BasicAuth. Either Users or Check is required.
type BasicAuthOptions struct {
	// Users maps user names to passwords. It suits a few users with long random passwords: BasicAuth keeps only their SHA-256
	// sums, and compares all of them for each request.
	Users map[string]string
	// Check reports whether a password is the user's. It should take the same time whether or not the user exists; EqualSecret compares in
	// constant time. Check passwords that people have chosen with a slow hash such as bcrypt or argon2. If Check returns an error, the
	// request fails with that error.
	Check func(c *filo.Ctx, user, password string) (bool, error)
	// Realm names what the password protects; browsers show it. Default "Restricted".
	Realm string
}

// maxCredentials is the maximum length of credentials in bytes. Longer credentials are treated as missing.
const maxCredentials = 4 << 10

// BasicAuth admits requests with the name and password of a user (RFC 7617, in UTF-8), and answers all other requests with 401. BasicAuthUser
// returns the user's name. Use it only over TLS, since every request carries the password.
//
// Put it outside of everything that only users may reach, and inside of rate limits, which slow guessing, and of CORS, since a
// browser's preflight has no credentials.
func BasicAuth(options BasicAuthOptions) filo.Middleware {
	check((len(options.Users) > 0) != (options.Check != nil), "BasicAuth: either Users or Check is required")
	options.Realm = cmp.Or(options.Realm, "Restricted")
	checkFieldValue("BasicAuthOptions.Realm", options.Realm)
	a := &basicAuth{check: options.Check}
	a.challenge = prepare("WWW-Authenticate", "Basic realm="+quoted(options.Realm)+`, charset="UTF-8"`)
	for name, password := range options.Users {
		check(name != "" && !strings.ContainsFunc(name, isControl) && !strings.Contains(name, ":"),
			"BasicAuth: %q is not a user name: it must not be empty, and have no colon or control character", name)
		check(password != "", "BasicAuth: the user %q has an empty password", name)
		a.users = append(a.users, basicUser{name, sha256.Sum256([]byte(name)), sha256.Sum256([]byte(password))})
	}
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			ok, err := a.authenticate(c)
			if err != nil {
				return err
			}
			if !ok {
				c.Response.Header.SetField(a.challenge)
				return errUnauthorized
			}
			return next(c)
		}
	}
}

// errUnauthorized is shared by all requests: nothing may change it.
var errUnauthorized = filo.Error(401, "")

type basicAuth struct {
	users     []basicUser // never changed
	check     func(c *filo.Ctx, user, password string) (bool, error)
	challenge *filo.Field
}

type basicUser struct {
	name              string
	nameSum, password [sha256.Size]byte
}

type basicAuthKey struct{}

// BasicAuthUser returns the name of the user that BasicAuth has admitted, or "" if there is none.
func BasicAuthUser(c *filo.Ctx) string {
	if user, ok := c.Get(basicAuthKey{}).(*basicUser); ok {
		return user.name
	}
	return ""
}

func (a *basicAuth) authenticate(c *filo.Ctx) (bool, error) {
	var memory [256]byte
	user, password, ok := basicCredentials(memory[:0], c.Request.Header.GetBytes("Authorization"))
	if !ok {
		return false, nil
	}
	if a.check != nil {
		name := string(user)
		if ok, err := a.check(c, name, string(password)); !ok || err != nil {
			return false, err
		}
		c.Set(basicAuthKey{}, &basicUser{name: name})
		return true, nil
	}
	nameSum, passwordSum := sha256.Sum256(user), sha256.Sum256(password)
	found := -1
	for i := range a.users { // compares with all users, so that the time doesn't reveal which user matched
		each := &a.users[i]
		same := subtle.ConstantTimeCompare(nameSum[:], each.nameSum[:]) & subtle.ConstantTimeCompare(passwordSum[:], each.password[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return false, nil
	}
	c.Set(basicAuthKey{}, &a.users[found])
	return true, nil
}

// basicCredentials decodes the name and the password of an Authorization field, using the buffer memory if they fit into it.
func basicCredentials(memory, authorization []byte) (user, password []byte, ok bool) {
	encoded, ok := cutScheme(authorization, "Basic")
	if !ok || len(encoded) > maxCredentials {
		return nil, nil, false
	}
	credentials, err := base64.StdEncoding.AppendDecode(memory, encoded)
	if err != nil || bytes.ContainsFunc(credentials, isControl) { // RFC 7617, section 2: no control characters
		return nil, nil, false
	}
	return bytes.Cut(credentials, []byte{':'})
}

// cutScheme returns the part of a field value after the authentication scheme. It compares the scheme without regard to case.
func cutScheme(value []byte, scheme string) ([]byte, bool) {
	if len(value) <= len(scheme) || value[len(scheme)] != ' ' || !syntax.EqualFold(value[:len(scheme)], scheme) {
		return nil, false
	}
	return bytes.TrimLeft(value[len(scheme)+1:], " "), true
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
