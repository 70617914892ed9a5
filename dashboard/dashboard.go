// Package dashboard is a page that shows what a server is doing while it does it: requests and their latencies, the stack of
// workers, connections, handlers and memory.
//
//	d := dashboard.New(server)
//	r.Use(d.Middleware())
//	r.Mount("/dashboard", d.Serve)
//
// The page, its style and its scripts are part of the program, and nothing comes from anywhere else. What it shows is sent once
// a second, as server-sent events, to all who watch. For that one goroutine runs while somebody does, and for as long afterwards
// as Options.History keeps the past, so that a page that is opened again isn't empty. Without Middleware there are no latencies
// and no routes.
//
// # Who may see it
//
// As for package debug: who has set up nothing else, processes on the same machine, that ask for it by a name that says so and not
// through a proxy. Others get 404. Behind a proxy, set Options.Token: a browser asks for it as a password.
package dashboard

import (
	"fmt"
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

// Options are options of New. The zero value lets in processes on the same machine.
type Options struct {
	// Title is what the page calls the server. The default is the program's name.
	Title string
	// Allow, if set, decides alone who is let in.
	Allow func(c *filo.Ctx) bool
	// Token, if set, lets in who brings it, from wherever: as the password of Basic with any user, or as
	// "Authorization: Bearer TOKEN". Others get 401. It has 16 to 512 bytes of visible ASCII. Without TLS it can be read on
	// its way.
	Token string
	// Hosts are further hosts, without ports, by which the machine may be asked for, such as "devbox". They are only for where
	// neither Allow nor Token is set.
	Hosts []string
	// History is how much of the past is kept, at about 0.5 KB a second. Default 5 minutes; at most an hour.
	History time.Duration
	// Always has the past kept also while nobody watches, from New until the server's Shutdown or Close.
	Always bool
	// MaxRoutes is how many routes are measured apart; further ones are together. Default 100.
	MaxRoutes int
	// MaxWatchers is how many pages may be open at once; further ones get 503. Default 100.
	MaxWatchers int
}

// Dashboard measures a server and shows it. Its methods may be called by several goroutines at once.
type Dashboard struct {
	server   *filo.Server
	options  Options
	recorder *recorder
	hub      *sse.Hub
	router   *router.Router
	own      map[string]bool // the names of its own classes

	mu sync.Mutex
	// past holds the samples that are kept, the oldest first. Guarded by mu.
	past []*sample
	// latest is what was sent last. Guarded by mu.
	latest *snapshot
	// sampling says that the sampler runs. Guarded by mu.
	sampling bool
	// lastSeen is when somebody watched. Guarded by mu.
	lastSeen time.Time
}

const topic = "samples"

// New returns a dashboard of a server, which needn't serve it itself. It panics if the options are wrong.
func New(server *filo.Server, options ...Options) *Dashboard {
	o := setup.One("dashboard: New", options)
	must(server != nil, "New without a server")
	must(o.History >= 0 && o.History <= time.Hour, "History is 0 to 1h, and not %v", o.History)
	must(o.MaxRoutes >= 0, "MaxRoutes is negative")
	must(o.MaxWatchers >= 0, "MaxWatchers is negative")
	if o.Title == "" {
		o.Title = filepath.Base(os.Args[0])
	}
	if o.History == 0 {
		o.History = DefaultHistory
	}
	if o.MaxRoutes == 0 {
		o.MaxRoutes = DefaultMaxRoutes
	}
	if o.MaxWatchers == 0 {
		o.MaxWatchers = DefaultMaxWatchers
	}
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

// Serve answers requests for the page and what belongs to it. A Router mounts it; as a server's own handler it has the page at
// the root.
func (d *Dashboard) Serve(c *filo.Ctx) error {
	err := d.router.Serve(c)
	d.recorder.disown(c.Route())
	return err
}

func must(ok bool, format string, args ...any) {
	if !ok {
		panic("dashboard: " + fmt.Sprintf(format, args...))
	}
}
