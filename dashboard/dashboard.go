// Package dashboard serves a page that shows a running server live: requests and their latencies, the stack of workers,
// connections, handlers and memory.
//
//	d := dashboard.New(server)
//	r.Use(d.Middleware())
//	inside := &filo.Server{Handler: d.Serve, ForOperator: true} // beside the server that is shown
//	go inside.Run(ctx, "localhost:6060")
//
// The page, its style and its scripts are part of the program, and load nothing from other hosts. Once a second the server
// sends the figures to all open pages, as server-sent events. One goroutine runs for this while a page is open, and for Options.History
// after that, so that a reopened page isn't empty. Without Middleware there are no latencies and no routes.
//
// # Who may see it
//
// As with package debug, by default the page must be on a server that the program has declared as the operator's (filo.Server.ForOperator).
// Only clients on the same machine, which use one of its host names and no proxy, have access. Other clients get 404. To show the page on a
// server that the public can reach, set Options.Token: a browser asks for it as a password.
package dashboard

import (
	"cmp"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/guard"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/sse"
)

// Defaults of Options.
const (
	DefaultHistory     = 5 * time.Minute
	DefaultMaxRoutes   = 100
	DefaultMaxWatchers = 100
)

// Options are the options of New. The zero value gives access to clients of a server that is the operator's
// (filo.Server.ForOperator), and to nobody else.
type Options struct {
	// Title is the server's name on the page. Default the program's name.
	Title string
	// Allow, if set, alone decides which requests have access.
	Allow func(c *filo.Ctx) bool
	// Token, if set, gives access to every client that sends it, from any address: as the password of Basic authentication with any user,
	// or as "Authorization: Bearer TOKEN". Other clients get 401. It has 16 to 512 bytes of visible ASCII; "openssl rand -hex 16" makes
	// one. Without TLS, it can be read in transit.
	Token string
	// Hosts are further host names of the machine, without ports, such as "devbox". They apply only if neither Allow nor Token
	// is set.
	Hosts []string
	// History is the period for which figures are kept, at a cost of about 0.5 KB of memory for each second. Default 5 minutes;
	// at most an hour.
	History time.Duration
	// Always records the history even while no page is open, from New until the server's Shutdown or Close.
	Always bool
	// MaxRoutes limits how many routes are measured separately; all further routes share an entry. Default 100.
	MaxRoutes int
	// MaxWatchers limits how many pages may be open at once; further pages get 503. Default 100.
	MaxWatchers int
}

// Dashboard measures a server and shows it. Its methods may be called by several goroutines at once.
type Dashboard struct {
	server   *filo.Server
	options  Options
	recorder *recorder
	hub      *sse.Hub
	router   *router.Router
	own      map[string]bool // the names of the dashboard's own classes

	mu sync.Mutex
	// past holds the samples that are kept, the oldest first. Guarded by mu.
	past []*sample
	// latest is the snapshot that was sent last. Guarded by mu.
	latest *snapshot
	// sampling says that the sampler runs. Guarded by mu.
	sampling bool
	// lastSeen is when a page was last open. Guarded by mu.
	lastSeen time.Time
}

// must panics if an argument of New is wrong.
var must = setup.Checker("dashboard")

const topic = "samples"

// New returns a dashboard of a server. Another server may serve the dashboard. New panics if the options are invalid.
func New(server *filo.Server, options ...Options) *Dashboard {
	o := setup.One("dashboard: New", options)
	must(server != nil, "New without a server")
	must(o.History >= 0 && o.History <= time.Hour, "History must be 0 to 1h, not %v", o.History)
	must(o.MaxRoutes >= 0, "MaxRoutes is negative")
	must(o.MaxWatchers >= 0, "MaxWatchers is negative")
	o.Title = cmp.Or(o.Title, filepath.Base(os.Args[0]))
	o.History = cmp.Or(o.History, DefaultHistory)
	o.MaxRoutes = cmp.Or(o.MaxRoutes, DefaultMaxRoutes)
	o.MaxWatchers = cmp.Or(o.MaxWatchers, DefaultMaxWatchers)
	d := &Dashboard{server: server, options: o, recorder: newRecorder(o.MaxRoutes), own: make(map[string]bool)}
	d.hub = sse.NewHub(sse.HubOptions{
		Retry: 2 * time.Second, HistoryEvents: -1, MaxSubscribers: o.MaxWatchers,
		MaxEventBytes: maxEvent, MaxQueueBytes: 4 * maxEvent,
	})
	d.router = router.New()
	d.router.Use(guard.New("dashboard", guard.Options{Allow: o.Allow, Token: o.Token, Hosts: o.Hosts}))
	d.routes()
	if o.Always {
		over := make(chan struct{})
		server.RegisterOnShutdown(sync.OnceFunc(func() { close(over) }))
		d.watched(over)
	}
	return d
}

// Serve answers requests for the page and its resources. Mount it on a Router. As a server's own handler it serves the page at
// the root.
func (d *Dashboard) Serve(c *filo.Ctx) error {
	err := d.router.Serve(c)
	d.recorder.disown(c.Route())
	return err
}
