package prometheus

import (
	"net/http"
	"runtime"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/promhttp/zstd" // so that zstd is offered beside gzip

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/middleware"
)

// maxScrapes is how many scrapes are answered at once: each asks all collectors and holds all of what they say.
const maxScrapes = 8

// HandlerOptions are options of Handler. The zero value lets in processes on the same machine.
type HandlerOptions struct {
	// Allow, if set, decides alone who is let in.
	Allow func(c *filo.Ctx) bool
	// Token, if set, lets in who brings it, from wherever: as "Authorization: Bearer TOKEN", which is what Prometheus sends for
	// "authorization: {credentials: TOKEN}" in a scrape_config, or as the password of Basic with any user. Others get 401. It has
	// 16 to 512 bytes of visible ASCII. Without TLS it can be read on its way.
	Token string
	// Hosts are further hosts, without ports, by which the machine may be asked for, such as "devbox". They are only for where
	// neither Allow nor Token is set.
	Hosts []string
}

// Handler answers with what the gatherer, such as a client_golang Registry, has: as OpenMetrics, Prometheus's text or its
// protocol buffers, whichever the client prefers, and compressed if it likes that. A query such as "name[]=filo_workers"
// asks for these metrics alone. An error of the gatherer is the handler's, so that it is logged and the client gets a 500
// that doesn't tell it; more than 8 requests at once get 503.
//
// Whoever reads the page knows the routes of the server and what becomes of its requests, so the options say who may: as for
// package debug, processes on the same machine that ask for it by a name that says so and not through a proxy, unless they say
// otherwise. Others get 404. A Prometheus on another machine needs a Token, or an Allow. Handler panics if the options are wrong.
func Handler(gatherer client.Gatherer, options ...HandlerOptions) filo.Handler {
	o := one("Handler", options)
	if gatherer == nil {
		panic("prometheus: Handler without a gatherer")
	}
	page := promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.PanicOnError,
	})
	admit := middleware.Guard(middleware.GuardOptions{Allow: o.Allow, Token: o.Token, Hosts: o.Hosts})
	return admit(adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch value := recover().(type) {
			case nil:
			case runtime.Error:
				panic(value)
			case error:
				adaptor.Fail(r, value) // what promhttp panics with is the error to return
			default:
				panic(value)
			}
		}()
		page.ServeHTTP(w, r)
	})))
}
