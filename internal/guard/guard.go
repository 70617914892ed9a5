// Package guard lets only those at the pages about a server who may see them: the handlers of packages debug and dashboard, and
// what is inside of middleware.Guard.
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

// Options say who is let in: one of Allow and Token, or else clients on the same machine, of a server that is the operator's.
type Options struct {
	// Allow decides alone, if set.
	Allow func(*filo.Ctx) bool
	// Token is what a request must bring, if set: as "Authorization: Bearer TOKEN", or as the password of Basic, whatever the
	// user is called. It has 16 to 512 bytes of visible ASCII.
	Token string
	// Hosts are further hosts by which the machine may be asked for where neither is set: see local.
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
	errAllow     = errors.New("guard: Allow says no")
	errToken     = &filo.HTTPError{Status: 401, Detail: "the token is missing or wrong"}
	errFound     = map[error]*filo.HTTPError{}
)

func init() {
	// Made once, so that a flood of requests makes none.
	for _, reason := range []error{errCrossSite, errAllow, errUndeclared, errPeer, errProxied, errForwarded, errOldVersion, errHost} {
		errFound[reason] = &filo.HTTPError{Status: 404, Err: reason}
	}
}

// New returns a middleware that lets through what the options allow. Others get the 404 that they would get without the
// handler inside, so that nobody learns that it is there; the reason is the error's cause, which is logged and not shown. With
// a Token it is a 401, by which a browser asks for it. New panics with a message that begins with the name of the package
// that it works for if the options are wrong.
//
// What is let through is answered with fields that keep it out of caches and out of pages of others.
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

// newAdmit returns what says why a request isn't let through, nil if it is.
func newAdmit(pkg string, options Options) func(*filo.Ctx) error {
	check := setup.Checker(pkg)
	check(options.Allow == nil || options.Token == "", "Allow and Token are both set: Allow decides alone")
	check(len(options.Hosts) == 0 || options.Allow == nil && options.Token == "", "Hosts are for neither Allow nor Token")
	switch {
	case options.Allow != nil:
		return func(c *filo.Ctx) error {
			if !options.Allow(c) {
				return errAllow
			}
			return nil
		}
	case options.Token != "":
		check(isToken(options.Token), "Token: it has %d to %d bytes of visible ASCII", minToken, maxToken)
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

// token admits who brings it.
type token struct{ hash [sha256.Size]byte }

func newToken(text string) *token { return &token{sha256.Sum256([]byte(text))} }

func (t *token) admit(c *filo.Ctx) error {
	// A browser adds the password that it knows by itself, for a page of any site.
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
	// The hashes have the same length, and their comparison takes the same time, whatever was guessed.
	given := sha256.Sum256(credentials)
	if subtle.ConstantTimeCompare(given[:], t.hash[:]) != 1 {
		return errToken
	}
	return nil
}

// crossSite reports whether a browser says that the page of another site, or one of another port, makes it ask. A link that
// is followed is no such request, unless what it leads to is shown within a page; a form that is sent is one.
func crossSite(c *filo.Ctx) bool {
	method := c.Request.MethodBytes()
	page := (string(method) == "GET" || string(method) == "HEAD") && string(c.Request.Header.GetBytes("Sec-Fetch-Dest")) == "document"
	return fromElsewhere(c) && !page
}

// fromElsewhere reports whether a browser says that a page of another site, or of another port, has made it ask, be it by a link
// that was followed; what is typed in isn't from elsewhere. Browsers send the field to machines that they trust, such as
// themselves (Fetch Metadata, section 2). To others, asked by plain HTTP, they send no more than the Origin of forms and scripts.
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

// OwnPages keeps pages of other sites from leading a browser to what isn't only looked at, such as a profile that takes the
// processor's time. It is for inside of New.
func OwnPages(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		if fromElsewhere(c) {
			return errElsewhere
		}
		return next(c)
	}
}
