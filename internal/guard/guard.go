// Package guard admits only permitted clients to pages about a server: the handlers of packages debug and dashboard, and the handlers that
// middleware.Guard wraps.
package guard

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/asked"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/unshared"
)

// Options say who is admitted. Either Allow or Token decides. If neither is set, only clients on the same machine are admitted, and only if
// Server.ForOperator is set.
type Options struct {
	// Allow decides alone, if set.
	Allow func(*filo.Ctx) bool
	// Token, if set, is the token that a request must contain: as "Authorization: Bearer TOKEN", or as the password of Basic authentication, with any
	// user name. It has 16 to 512 bytes of visible ASCII.
	Token string
	// Hosts are further host names by which the machine may be addressed if neither Allow nor Token is set: see local.
	Hosts []string
}

const minToken, maxToken = 16, 512

var (
	noStore      = filo.NewField("Cache-Control", "no-store")
	noSniff      = filo.NewField("X-Content-Type-Options", "nosniff")
	ownReferrer  = filo.NewField("Referrer-Policy", "same-origin") // with no-referrer, browsers would send "Origin: null" with forms: see fromElsewhere
	sameOrigin   = filo.NewField("Cross-Origin-Resource-Policy", "same-origin")
	noFrames     = filo.NewField("X-Frame-Options", "DENY")
	authenticate = filo.NewField("WWW-Authenticate", `Basic realm="filo", charset="UTF-8"`)
)

var (
	errCrossSite = errors.New("guard: a page of another site has sent the request")
	errAllow     = errors.New("guard: Allow has refused the request")
	errToken     = &filo.HTTPError{Status: 401, Detail: "the token is missing or wrong"}
	errFound     = map[error]*filo.HTTPError{}
)

func init() {
	// The errors are created once, so that a flood of refused requests doesn't allocate any.
	for _, reason := range []error{errCrossSite, errAllow, errUndeclared, errPeer, errProxied, errForwarded, errOldVersion, errHost} {
		errFound[reason] = &filo.HTTPError{Status: 404, Err: reason}
	}
}

// New returns a middleware that admits requests as the options say. Other requests get the same 404 as if the wrapped handler didn't exist, so that
// strangers don't learn that it does. The cause of the 404 error is the reason for the refusal, which is logged but not sent. If Token is set,
// refused requests get a 401 instead, so that a browser asks the user for the token. New panics if the options are wrong. The message begins with
// pkg, the name of the calling package.
//
// The answers to admitted requests have header fields that keep these answers out of caches and out of pages of other sites.
func New(pkg string, options Options) filo.Middleware {
	admit := newAdmit(pkg, options)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			unshared.Mark(c) // SetField below isn't enough, since a handler may set another Cache-Control
			if err := admit(c); err != nil {
				if err == error(errToken) {
					c.Response.Header.SetField(&authenticate)
					c.Response.Header.SetField(&noStore)
					return err
				}
				return errFound[err]
			}
			header := &c.Response.Header
			header.SetField(&noStore)
			header.SetField(&noSniff)
			header.SetField(&ownReferrer)
			header.SetField(&sameOrigin)
			header.SetField(&noFrames)
			return next(c)
		}
	}
}

// newAdmit returns a function that returns nil for a request that is admitted, and otherwise the reason for the refusal.
func newAdmit(pkg string, options Options) func(*filo.Ctx) error {
	check := setup.Checker(pkg)
	check(options.Allow == nil || options.Token == "", "Allow and Token are both set: Allow decides alone")
	check(len(options.Hosts) == 0 || options.Allow == nil && options.Token == "", "Hosts can't be combined with Allow or Token")
	switch {
	case options.Allow != nil:
		return func(c *filo.Ctx) error {
			if !options.Allow(c) {
				return errAllow
			}
			return nil
		}
	case options.Token != "":
		check(isToken(options.Token), "Token: it must have %d to %d bytes of visible ASCII", minToken, maxToken)
		return newToken(options.Token).admit
	}
	l, err := newLocal(pkg, options.Hosts)
	check(err == nil, "%v", err)
	return l.admit
}

func isToken(s string) bool {
	visible := !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
	return visible && len(s) >= minToken && len(s) <= maxToken
}

// token admits requests that contain the token.
type token struct{ hash [sha256.Size]byte }

func newToken(text string) *token { return &token{sha256.Sum256([]byte(text))} }

func (t *token) admit(c *filo.Ctx) error {
	// A browser that has stored the password adds it automatically, even to requests that pages of other sites make.
	if crossSite(c) {
		return errCrossSite
	}
	scheme, credentials, _ := bytes.Cut(c.Request.Header.GetBytes("Authorization"), []byte{' '})
	credentials = bytes.TrimLeft(credentials, " ")
	var memory [2 * maxToken]byte
	switch {
	case bytes.EqualFold(scheme, []byte("Bearer")):
	case bytes.EqualFold(scheme, []byte("Basic")):
		if base64.StdEncoding.DecodedLen(len(credentials)) > len(memory) {
			return errToken
		}
		n, err := base64.StdEncoding.Decode(memory[:], credentials)
		_, password, found := bytes.Cut(memory[:n], []byte{':'})
		if err != nil || !found {
			return errToken
		}
		credentials = password
	default:
		return errToken
	}
	// The hashes have the same length, so their comparison takes the same time for every guess.
	given := sha256.Sum256(credentials)
	if subtle.ConstantTimeCompare(given[:], t.hash[:]) != 1 {
		return errToken
	}
	return nil
}

// crossSite reports whether the browser's header fields say that a page of another site or port has caused the request. A link that the user follows
// doesn't count, unless the target is embedded in a page. Sending a form counts.
func crossSite(c *filo.Ctx) bool {
	method := c.Request.MethodBytes()
	page := (string(method) == "GET" || string(method) == "HEAD") && string(c.Request.Header.GetBytes("Sec-Fetch-Dest")) == "document"
	return fromElsewhere(c) && !page
}

// fromElsewhere reports whether the browser's header fields say that a page of another site or port has caused the request. Following a link on such
// a page counts, typing the address doesn't. Browsers send Sec-Fetch-Site only to origins that they trust, such as their own machine (Fetch Metadata,
// section 2). To other origins, those over plain HTTP, browsers send at most Origin, with requests that forms and scripts make.
func fromElsewhere(c *filo.Ctx) bool {
	if site := c.Request.Header.GetBytes("Sec-Fetch-Site"); len(site) > 0 {
		return string(site) != "same-origin" && string(site) != "none"
	}
	for origin := range c.Request.Header.Values("Origin") {
		if !asked.SameOrigin(c, origin) {
			return true
		}
	}
	return false
}

var errElsewhere = filo.Error(403, "a page of another site leads here: open this from a page of this server, or type it in")

// OwnPages keeps pages of other sites from leading a browser to pages with effects, such as a profile that takes the processor's time. The middleware
// that New returns must wrap it.
func OwnPages(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		if fromElsewhere(c) {
			return errElsewhere
		}
		return next(c)
	}
}
