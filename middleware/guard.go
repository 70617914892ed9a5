package middleware

import (
	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/guard"
	"github.com/filohttp/filo/internal/setup"
)

// GuardOptions configures Guard. The zero value admits only requests to a server that the program has declared as its operator's
// (filo.Server.ForOperator).
type GuardOptions struct {
	// Allow, if set, alone decides which requests are admitted.
	Allow func(c *filo.Ctx) bool
	// Token, if set, admits requests that carry it, to any server and from anywhere, as "Authorization: Bearer TOKEN" or as the Basic
	// password of any user. Other requests get 401. A token is 16 to 512 bytes of visible ASCII. Without TLS, it can be read in transit. filo
	// doesn't generate a token: "openssl rand -hex 16" prints one that you can store with the program's other secrets.
	Token string
	// Hosts are further host names of the machine, without ports, such as "devbox". Set them only if neither Allow nor Token is
	// set.
	Hosts []string
}

// Guard admits only the operator of the server. Packages debug and dashboard have it built in; use Guard for other pages about
// the server: figures, logs, an administrator's switches.
//
// With zero options, Guard admits requests to a server that the program has declared as the operator's (filo.Server.ForOperator). The client
// must be on the same machine, by TCP or a Unix socket. The request must name that machine as its host, must show no trace of a proxy, and
// must not come from a page of another site. On any other server nobody is admitted, whatever the client's address, since all clients of a
// proxy on the same machine have that machine's address.
//
// Other requests get 404, as if there were no such page. The first request that a guard refuses is logged, as a warning that names Token.
// (A link on another site can still lead an admitted user's browser to a page, so a switch should need a POST.) Guard keeps admitted
// answers out of caches and out of pages of other sites. It panics if the options are wrong.
func Guard(options ...GuardOptions) filo.Middleware {
	o := setup.One("middleware: Guard", options)
	return guard.New("middleware: Guard", guard.Options{Allow: o.Allow, Token: o.Token, Hosts: o.Hosts})
}
