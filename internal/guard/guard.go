// Package guard admits only permitted clients to the pages about a server: to the handlers of packages debug and dashboard, and to handlers
// inside of middleware.Guard.
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
// the server is declared as the operator's.
type Options struct {
	// Allow decides alone, if set.
	Allow func(*filo.Ctx) bool
	// Token, if set, is what a request must contain: as "Authorization: Bearer TOKEN", or as the password of Basic, with any user name. It
	// has 16 to 512 bytes of visible ASCII.
	Token string
	// Hosts are further host names by which the machine may be addressed if neither Allow nor Token is set: see local.
	Hosts []string
}

const minToken, maxToken = 16, 512

var (
	noStore      = filo.NewField("Cache-Control", "no-store")
	noSniff      = filo.NewField("X-Content-Type-Options", "nosniff")
	ownReferrer  = filo.NewField("Referrer-Policy", "same-origin") // with no-referrer, forms would have the origin null: see fromElsewhere
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
	// The errors are made once, so that a flood of requests allocates none.
	for _, reason := range []error{errCrossSite, errAllow, errUndeclared, errPeer, errProxied, errForwarded, errOldVersion, errHost} {
		errFound[reason] = &filo.HTTPError{Status: 404, Err: reason}
	}
}

// New returns a middleware that admits requests as the options say. Other requests get the same 404 as if the handler inside didn't exist,
// so that strangers don't learn of it. The error's cause is the reason, which is logged but not sent. With a Token they get a 401, so that
// a browser asks the user for the token. New panics if the options are wrong. The message begins with pkg, the name of the calling package.
//
// Admitted requests are answered with fields that keep the answer out of caches and out of pages of other sites.
func New(pkg string, options Options) filo.Middleware {
	admit := newAdmit(pkg, options)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			unshared.Mark(c) // a handler may set another Cache-Control
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

// newAdmit returns a function that returns the reason why a request isn't admitted, nil if it is.
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
	// A browser that knows the password adds it by itself, even to requests that pages of other sites make.
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

// crossSite reports whether, by the browser's fields, a page of another site or of another port has caused the request. Following a link
// doesn't count, unless its target is shown within a page; sending a form does.
func crossSite(c *filo.Ctx) bool {
	method := c.Request.MethodBytes()
	page := (string(method) == "GET" || string(method) == "HEAD") && string(c.Request.Header.GetBytes("Sec-Fetch-Dest")) == "document"
	return fromElsewhere(c) && !page
}

// fromElsewhere reports whether, by the browser's fields, a page of another site or of another port has caused the request, including by a
// link that was followed; an address that the user has typed isn't from elsewhere. Browsers send Sec-Fetch-Site only to origins that they
// trust, such as their own machine (Fetch Metadata, section 2). Other origins, over plain HTTP, get at most the field Origin, in requests
// that forms and scripts make.
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

// OwnPages keeps pages of other sites from leading a browser to pages with effects, such as a profile that takes the processor's time. Use
// it inside of New.
func OwnPages(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		if fromElsewhere(c) {
			return errElsewhere
		}
		return next(c)
	}
}
