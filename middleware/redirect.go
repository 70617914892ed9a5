package middleware

import (
	"bytes"
	"strconv"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/asked"
	"github.com/filohttp/filo/internal/syntax"
)

// WWW says how Redirect treats "www." in front of hosts.
type WWW int

const (
	// KeepWWW leaves the host unchanged.
	KeepWWW WWW = iota
	// AddWWW redirects clients from example.com to www.example.com. It doesn't affect IP addresses, names without a dot, or names of more
	// than two labels, such as api.example.com.
	AddWWW
	// StripWWW redirects clients from www.example.com to example.com.
	StripWWW
)

// RedirectOptions configures Redirect. One of HTTPS, Host and WWW is required.
type RedirectOptions struct {
	// HTTPS redirects clients from http to https: see Scheme.
	HTTPS bool
	// HTTPSPort is the port for HTTPS, if it isn't 443.
	HTTPSPort int
	// Host is the site's only host, perhaps with a port: requests for all other hosts are redirected to it. It requires WWW to be
	// KeepWWW.
	Host string
	// WWW adds "www." to hosts or removes it.
	WWW WWW
	// Temporary redirects with 307, which caches don't store. Otherwise the status is 301 for GET and HEAD, and 308, which keeps the method,
	// for other methods.
	Temporary bool
	// Skip, if set, exempts the requests for which it returns true: for example, health checks, or those of a certificate
	// authority under /.well-known/acme-challenge/.
	Skip func(c *filo.Ctx) bool
}

// errNoHost is shared by all requests: nothing may change it.
var errNoHost = filo.Error(400, "the request doesn't say which host it is for")

// Redirect sends clients to the site's canonical scheme and host, with the same path and query. It needs only one redirect, even if scheme,
// host and port all change.
//
// The host of the redirect's target is the option Host, or the host that the client asked for, perhaps with "www." added or removed. The
// request's path can't change this host. Without the option Host, put HostCheck outside of Redirect, so that caches can't store redirects to
// made-up hosts.
//
// Put it inside of RealIP, on which Scheme and Host depend, and outside of everything that does work for a request.
func Redirect(options RedirectOptions) filo.Middleware {
	check(options.HTTPS || options.Host != "" || options.WWW != KeepWWW, "Redirect: set HTTPS, Host or WWW")
	check(options.WWW >= KeepWWW && options.WWW <= StripWWW, "Redirect: WWW must be KeepWWW, AddWWW or StripWWW")
	check(options.Host == "" || options.WWW == KeepWWW, "Redirect: set either Host or WWW, not both")
	check(options.Host == "" || isHost(options.Host), "Redirect: Host is %q, which is not a host", options.Host)
	check(options.HTTPSPort == 0 || options.HTTPS && options.Host == "" && options.HTTPSPort > 0 && options.HTTPSPort < 1<<16,
		"Redirect: HTTPSPort must be a port, and needs HTTPS; with Host, write the port behind the host")
	r := &redirect{options: options}
	if options.HTTPSPort != 0 && options.HTTPSPort != 443 {
		r.port = ":" + strconv.Itoa(options.HTTPSPort)
	}
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if options.Skip != nil && options.Skip(c) || string(c.Request.MethodBytes()) == "CONNECT" {
				return next(c)
			}
			return r.serve(c, next)
		}
	}
}

type redirect struct {
	options RedirectOptions
	port    string // for https, with its colon
}

func (r *redirect) serve(c *filo.Ctx, next filo.Handler) error {
	scheme, host := Scheme(c), HostBytes(c)
	if len(host) == 0 {
		return errNoHost
	}
	toHTTPS := r.options.HTTPS && scheme != "https"
	prefix, name, same := r.host(host, scheme)
	if same && !toHTTPS {
		return next(c)
	}
	var memory [512]byte
	location := memory[:0]
	if toHTTPS {
		location = append(location, "https://"...)
	} else {
		location = append(append(location, scheme...), "://"...)
	}
	location = append(location, prefix...)
	if toHTTPS && r.options.Host == "" {
		location = append(append(location, hostname(name)...), r.port...) // without the host's port, which is for http
	} else {
		location = append(location, name...)
	}
	if target := c.Request.TargetBytes(); target[0] == '/' {
		location = append(location, target...)
	} else {
		location = appendQuery(append(location, c.Request.URI().RawPathBytes()...), c.Request.URI().RawQueryBytes())
	}
	return c.Redirect(r.status(c), string(location))
}

func (r *redirect) status(c *filo.Ctx) int {
	method := string(c.Request.MethodBytes())
	switch {
	case r.options.Temporary:
		return 307
	case method == "GET" || method == "HEAD":
		return 301 // more clients know 301 than 308
	}
	return 308 // RFC 9110, section 15.4.2: after 301 clients may change POST to GET
}

// host returns, in two parts, the canonical host for a request's host, and whether the request's host is canonical already.
func (r *redirect) host(host []byte, scheme string) (prefix string, name []byte, same bool) {
	switch {
	case r.options.Host != "":
		return r.options.Host, nil, syntax.EqualFold(host, r.options.Host) || r.isDefaultPort(host, scheme)
	case r.options.WWW == StripWWW && hasWWW(host) && bytes.IndexByte(host[len("www."):], '.') > 0:
		return "", host[len("www."):], false
	case r.options.WWW == AddWWW && isBare(hostname(host)):
		return "www.", host, false
	}
	return "", host, true
}

// isDefaultPort reports whether the host is Options.Host with the default port of the scheme, as some proxies send it.
func (r *redirect) isDefaultPort(host []byte, scheme string) bool {
	var memory, other [256]byte
	return bytes.IndexByte(host, ':') >= 0 &&
		bytes.Equal(asked.AppendHost(memory[:0], host, scheme), asked.AppendHost(other[:0], []byte(r.options.Host), scheme))
}

func hasWWW(host []byte) bool {
	return len(host) > len("www.") && syntax.EqualFold(host[:len("www.")], "www.")
}

// isBare reports whether a host name has just one dot, and isn't an IP address: IPv4 addresses end in a number, and IPv6 addresses are in
// brackets.
func isBare(name []byte) bool {
	name = bytes.TrimSuffix(name, []byte{'.'})
	dot := bytes.IndexByte(name, '.')
	if dot <= 0 || dot == len(name)-1 || bytes.IndexByte(name[dot+1:], '.') >= 0 || hasWWW(name) || name[0] == '[' {
		return false
	}
	last := name[dot+1]
	return last < '0' || last > '9'
}
