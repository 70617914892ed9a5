package middleware

import "github.com/filohttp/filo"

// HostCheckOptions configures HostCheck.
type HostCheckOptions struct {
	// Hosts are the hosts that the server serves: "example.com"; "*.example.com" for names with one more label, such as
	// "www.example.com" but neither "a.b.example.com" nor "example.com"; or an IP address, in brackets if it is IPv6. Ports and
	// case are ignored. Required.
	Hosts []string
}

// errHost is shared by all requests: nothing may change it.
var errHost = filo.Error(421, "this host isn't served here")

// HostCheck refuses requests for hosts that aren't in Hosts with 421 (Misdirected Request). It prevents DNS rebinding, by which a page of
// another site reaches a server that trusts its local network. It also keeps made-up hosts out of links that a handler generates.
//
// Put it inside of RealIP, whose Host it checks, and outside of everything that uses the host.
func HostCheck(options HostCheckOptions) filo.Middleware {
	check(len(options.Hosts) > 0, "HostCheck: no Hosts")
	set := newHostSet("HostCheckOptions.Hosts", options.Hosts)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if !set.has(HostBytes(c)) {
				return errHost
			}
			return next(c)
		}
	}
}
