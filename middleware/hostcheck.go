package middleware

import "github.com/filohttp/filo"

// HostCheckOptions are options of HostCheck.
type HostCheckOptions struct {
	// Hosts are the hosts that the server is for: "example.com", "*.example.com" for those with one label more, such as
	// "www.example.com" but neither "a.b.example.com" nor "example.com", or an IP address, with brackets if it is of IPv6. Ports don't
	// count, nor does case. Required.
	Hosts []string
}

// errHost is shared: nothing may change it.
var errHost = filo.Error(421, "this host isn't served here")

// HostCheck refuses requests for other hosts with 421 (Misdirected Request): those of DNS rebinding, where a page of another
// site reaches a server that trusts its network, and those that put a host of their choice into links that a handler makes.
//
// Its place is inside of RealIP, the Host of which it checks, and outside of all that makes use of hosts.
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
