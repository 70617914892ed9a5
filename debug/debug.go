// Package debug shows what a server is doing to those who look after it: profiles and traces as net/http/pprof serves them,
// what the runtime and the server count, and how the program was built.
//
//	r.Mount("/debug", debug.Handler())
//
//	go tool pprof http://localhost:8080/debug/pprof/profile?seconds=10
//
// Nothing is registered anywhere else: net/http/pprof and expvar, whose import adds handlers to http.DefaultServeMux, where
// anybody may find them, aren't imported.
//
// # Who may see it
//
// Who has set up nothing else, only processes on the same machine: the peer must have a loopback address, and must ask for
// a host that says so (localhost, a name below it, a loopback address, or one of Options.Hosts), since the owner of any other
// name could give it the address 127.0.0.1, and have his page in a browser on this machine read what is here (DNS rebinding).
// A request that bears a trace of a proxy, X-Forwarded-For and its like, Via, or HTTP/1.0, is refused as well: with a proxy
// on the machine the whole world has a loopback address. What such fields say is never trusted. A proxy that adds none of
// them can't be told from a client of this machine: behind one, set Options.Token.
//
// A page of another site can have a browser open what is here, if that browser's user may, but start no profile (403).
//
// Others get 404, as if nothing were there: that a server can be looked into is something that a stranger needn't know. (A
// router redirects from the mount's path without a slash all the same.) The reason is logged if Server.LogAllErrors is set.
//
// # What there is
//
//	pprof/profile?seconds=30     a CPU profile
//	pprof/trace?seconds=1        an execution trace, for go tool trace
//	pprof/heap                   a named profile: allocs, block, goroutine, heap, mutex, threadcreate and the program's own;
//	                             with debug=1 or 2 as text, with gc=1 after a garbage collection (heap), and with seconds=10
//	                             the difference that these seconds make
//	pprof/cmdline, pprof/symbol  what go tool pprof asks for
//	metrics                      runtime/metrics as JSON
//	stats                        filo.Stats as JSON, at most a second old
//	build                        the versions and settings that the program was built with
//	vars                         what Options.Vars answers
//
// There is one CPU profile at a time, and one trace: 409 to others. Both end early when the client leaves, and when the server
// shuts down; the client then gets what there is. They may take longer than a time-out for handlers that was set outside.
package debug

import (
	"fmt"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/guard"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/router"
)

// DefaultMaxDuration is for how long a profile or a trace may run unless Options say otherwise.
const DefaultMaxDuration = 2 * time.Minute

// Options are options of Handler. The zero value lets in processes on the same machine.
type Options struct {
	// Allow, if set, decides alone who is let in.
	Allow func(c *filo.Ctx) bool
	// Token, if set, lets in who brings it, from wherever: as "Authorization: Bearer TOKEN", or as the password of Basic with any
	// user, which is how browsers and go tool pprof (http://any:TOKEN@host/…) can. Others get 401. It has 16 to 512 bytes of
	// visible ASCII. Without TLS it can be read on its way.
	Token string
	// Hosts are further hosts, without ports, by which the machine may be asked for, such as "devbox". They are only for where
	// neither Allow nor Token is set.
	Hosts []string
	// MaxDuration is for how long a profile or a trace may run (400). Default 2 minutes.
	MaxDuration time.Duration
	// Vars answers "vars", for the variables of package expvar: adaptor.FromHTTP(expvar.Handler()). To import expvar is left to
	// the program, since that adds a handler to http.DefaultServeMux. Default 404.
	Vars filo.Handler
}

type handler struct {
	maxDuration time.Duration
	stats       statsCache
	vars        bool
}

// Handler returns a handler that a Router mounts: see the package's documentation. As a server's own handler it has its pages
// at the root. It panics if the options are wrong.
func Handler(options ...Options) filo.Handler {
	o := setup.One("debug: Handler", options)
	if o.MaxDuration < 0 {
		panic(fmt.Sprintf("debug: MaxDuration is %v, and must not be negative", o.MaxDuration))
	}
	if o.MaxDuration == 0 {
		o.MaxDuration = DefaultMaxDuration
	}
	h := &handler{maxDuration: o.MaxDuration, vars: o.Vars != nil}
	r := router.New()
	r.Use(guard.New("debug", guard.Options{Allow: o.Allow, Token: o.Token, Hosts: o.Hosts}))
	r.GET("/{$}", h.index)
	r.GET("/style.css", serveStyle)
	r.GET("/pprof/{$}", h.index)
	r.GET("/pprof/cmdline", serveCmdline)
	r.GET("/pprof/symbol", serveSymbol)
	r.POST("/pprof/symbol", serveSymbol)
	r.GET("/pprof/profile", h.cpuProfile, guard.OwnPages).Offload()
	r.GET("/pprof/trace", h.trace, guard.OwnPages).Offload()
	r.GET("/pprof/{name}", h.namedProfile, guard.OwnPages).Offload()
	r.GET("/metrics", serveMetrics).Offload()
	r.GET("/stats", h.serveStats).Offload()
	r.GET("/build", serveBuild)
	if o.Vars != nil {
		r.GET("/vars", o.Vars)
	}
	return r.Serve
}
