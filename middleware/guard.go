package middleware

import (
	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/guard"
	"github.com/filohttp/filo/internal/setup"
)

// GuardOptions are options of Guard. The zero value lets in processes on the same machine.
type GuardOptions struct {
	// Allow, if set, decides alone who is let in.
	Allow func(c *filo.Ctx) bool
	// Token, if set, lets in who brings it, from wherever: as "Authorization: Bearer TOKEN", or as the password of Basic with any
	// user. Others get 401. It has 16 to 512 bytes of visible ASCII. Without TLS it can be read on its way.
	Token string
	// Hosts are further hosts, without ports, by which the machine may be asked for, such as "devbox". They are only for where
	// neither Allow nor Token is set.
	Hosts []string
}

// Guard lets in who runs the server, as packages debug and dashboard do, which have it of their own. It is for other pages about
// the server: figures, logs, an administrator's switches.
//
// With the zero options these are processes on the same machine, that ask for it by a name that says so and not through a proxy,
// and not for the page of another site. Others get the 404 that they would get if there were nothing. (A link on another
// site can still lead the browser of who is let in to a page: let a switch need a POST.) What is let through is kept
// out of caches, and out of pages of other sites. Guard panics if the options are wrong.
func Guard(options ...GuardOptions) filo.Middleware {
	o := setup.One("middleware: Guard", options)
	return guard.New("middleware: Guard", guard.Options{Allow: o.Allow, Token: o.Token, Hosts: o.Hosts})
}
