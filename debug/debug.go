// Package debug shows operators what a server is doing: profiles and traces as net/http/pprof serves them, figures of the
// runtime and the server, and the settings that the program was built with.
//
//	inside := &filo.Server{Handler: debug.Handler(debug.Options{Server: s}), ForOperator: true} // s is the server of the clients
//	go inside.Run(ctx, "localhost:6060")
//
//	go tool pprof http://localhost:6060/pprof/profile?seconds=10
//
// The package registers no handlers in other places. It doesn't import net/http/pprof and expvar, since their import adds
// handlers to http.DefaultServeMux, where any client may find them.
//
// # Who may see it
//
// By default only clients of a server that the program has declared as the operator's, by filo.Server.ForOperator, have access. On any
// other server no client has access, not even one on the same machine: a proxy on that machine connects from its own address for all
// its clients, and not every proxy adds a field by which it can be recognized. To admit clients on a server that the public can reach,
// set Options.Token or Options.Allow.
//
// On the operator's server a client must be on the same machine, and connect over TCP or a Unix socket. The request's host must
// be localhost, a name below it, a loopback address, or one of Options.Hosts: the owner of any other name could point it to
// 127.0.0.1 and let a page in a browser on this machine read the profiles (DNS rebinding). A request that seems to come through a
// proxy (X-Forwarded-For and similar fields, Via, HTTP/1.0, or the PROXY protocol) is refused as well.
//
// A page of another site can make the browser of an admitted user request these pages, but can't start a profile (403).
//
// Other clients get 404, as if nothing were there, so that strangers don't learn about the pages. (A router still redirects
// from the mount's path without a slash.) The first refusal is logged with its reason and a remedy; all refusals are logged if
// Server.LogAllErrors is set.
//
// # The level of the log
//
// A program whose logger has a slog.LevelVar can let operators change the level while it runs:
//
//	var level slog.LevelVar
//	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: &level})))
//	inside.Handler = debug.Handler(debug.Options{LogLevel: &level})
//
//	curl localhost:6060/loglevel                           # {"level":"INFO"}
//	curl -d level=debug -d for=10m localhost:6060/loglevel # INFO returns after 10 minutes
//	curl -d level=warn localhost:6060/loglevel             # stays
//
// A level is one of slog's, or an offset from one, such as INFO+2. An invalid level gets 400, and so does a duration over 24 hours. Each
// change is logged, as a warning.
//
// # Pages
//
//	pprof/profile?seconds=30     a CPU profile
//	pprof/trace?seconds=1        an execution trace, for go tool trace
//	pprof/heap                   a named profile: allocs, block, goroutine, heap, mutex, threadcreate and the program's own;
//	                             with debug=1 or 2 as text, with gc=1 after a garbage collection (heap), and with seconds=10
//	                             the difference over these seconds
//	pprof/cmdline, pprof/symbol  answers to go tool pprof
//	metrics                      runtime/metrics as JSON
//	stats                        filo.Stats of Options.Server as JSON, at most a second old
//	requests                     which requests are being handled, by route, with their clients and ages: a page, or with format=json
//	                             as JSON. Paths, queries and fields aren't shown
//	clients                      which clients have most connections, requests, bytes and refusals: a page, or with format=json as JSON
//	build                        the versions and settings that the program was built with
//	loglevel                     the level of Options.LogLevel, as JSON; PUT or POST a form to change it
//	vars                         the answer of Options.Vars
//
// At most one CPU profile and one trace run at a time; further requests get 409. Both end early when the client leaves or the
// server shuts down, and the client gets the data so far. A handler time-out that outer middleware has set doesn't apply to
// profiles and traces.
package debug

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/guard"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/router"
)

// DefaultMaxDuration is the default of Options.MaxDuration.
const DefaultMaxDuration = 2 * time.Minute

// Options are the options of Handler. The zero value gives access to clients of a server that is the operator's
// (filo.Server.ForOperator), and to nobody else.
type Options struct {
	// Allow, if set, alone decides which requests have access.
	Allow func(c *filo.Ctx) bool
	// Token, if set, gives access to every client that sends it, from any address: as "Authorization: Bearer TOKEN", or as the password of
	// Basic authentication with any user, for browsers and go tool pprof (http://any:TOKEN@host/…). Other clients get 401. It has 16 to 512
	// bytes of visible ASCII; "openssl rand -hex 16" makes one. Without TLS, it can be read in transit.
	Token string
	// Hosts are further host names of the machine, without ports, such as "devbox". They apply only if neither Allow nor Token
	// is set.
	Hosts []string
	// MaxDuration limits the duration of a profile or a trace; a request for more gets 400. Default 2 minutes.
	MaxDuration time.Duration
	// Server is the server whose figures "stats", "requests" and "clients" show. Set it to the server of the clients if the pages are on
	// a separate server for operators. Default the server that serves the pages.
	Server *filo.Server
	// LogLevel is the level that "loglevel" shows and changes. If it is nil, "loglevel" is 404.
	LogLevel *slog.LevelVar
	// Vars answers "vars", for the variables of package expvar: adaptor.FromHTTP(expvar.Handler()). The program has to import
	// expvar itself, since the import adds a handler to http.DefaultServeMux. If Vars is nil, "vars" is 404.
	Vars filo.Handler
}

type handler struct {
	maxDuration time.Duration
	server      *filo.Server // Options.Server
	stats       statsCache
	vars, level bool
}

// Handler returns a handler to mount on a Router: see the package documentation. As a server's own handler it serves its pages
// at the root. It panics if the options are invalid.
func Handler(options ...Options) filo.Handler {
	o := setup.One("debug: Handler", options)
	if o.MaxDuration < 0 {
		panic(fmt.Sprintf("debug: MaxDuration is %v, and must not be negative", o.MaxDuration))
	}
	o.MaxDuration = cmp.Or(o.MaxDuration, DefaultMaxDuration)
	h := &handler{maxDuration: o.MaxDuration, server: o.Server, vars: o.Vars != nil, level: o.LogLevel != nil}
	r := router.New()
	r.Use(guard.New("debug", guard.Options{Allow: o.Allow, Token: o.Token, Hosts: o.Hosts}))
	r.GET("/{$}", h.index).Always()
	r.GET("/style.css", serveStyle).Always()
	r.GET("/pprof/{$}", h.index).Always()
	r.GET("/pprof/cmdline", serveCmdline).Always()
	r.GET("/pprof/symbol", serveSymbol).Always()
	r.POST("/pprof/symbol", serveSymbol).Always()
	r.GET("/pprof/profile", h.cpuProfile, guard.OwnPages).Offload().Always()
	r.GET("/pprof/trace", h.trace, guard.OwnPages).Offload().Always()
	r.GET("/pprof/{name}", h.namedProfile, guard.OwnPages).Offload().Always()
	r.GET("/metrics", serveMetrics).Offload().Always()
	r.GET("/stats", h.serveStats).Offload().Always()
	r.GET("/requests", h.serveRequests).Offload().Always()
	r.GET("/clients", h.serveClients).Offload().Always()
	r.GET("/build", serveBuild).Always()
	if o.LogLevel != nil {
		l := &logLevel{level: o.LogLevel}
		r.GET("/loglevel", l.show).Always()
		r.PUT("/loglevel", l.change, guard.OwnPages).Always()
		r.POST("/loglevel", l.change, guard.OwnPages).Always()
	}
	if o.Vars != nil {
		r.GET("/vars", o.Vars).Always()
	}
	return r.Serve
}
