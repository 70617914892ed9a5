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

// maxScrapes is how many scrapes are answered at once: each asks all collectors and holds all their metrics in memory.
const maxScrapes = 8

// HandlerOptions are the options of Handler. The zero value gives access to clients of a server that is the operator's
// (filo.Server.ForOperator), and to nobody else.
type HandlerOptions struct {
	// Allow, if set, alone decides which requests have access.
	Allow func(c *filo.Ctx) bool
	// Token, if set, gives access to every client that sends it, from any address. A client sends it as
	// "Authorization: Bearer TOKEN", or as the password of Basic authentication with any user. Prometheus sends the Bearer form if
	// its scrape_config has "authorization: {credentials: TOKEN}". Clients without the token get 401. It has 16 to 512 bytes of visible
	// ASCII; "openssl rand -hex 16" makes one. Without TLS others can read it in transit.
	Token string
	// Hosts are further host names of the machine, without ports, such as "devbox". They apply only if neither Allow nor Token
	// is set.
	Hosts []string
}

// Handler answers with the metrics of the gatherer, such as a client_golang Registry: as OpenMetrics, Prometheus's text or its
// protocol buffers, whichever the client prefers, and compressed if the client accepts that. A query such as "name[]=filo_workers" selects
// metrics. Handler returns the gatherer's error, so the server logs it and the client gets a 500 without the text. More than 8 requests at
// once get 503.
//
// The page shows the server's routes and the results of its requests, so access is restricted. As with package debug, by default only a
// server that the program has declared as the operator's by filo.Server.ForOperator gives access. Its clients must be on the same machine,
// use one of its host names and no proxy. Others get 404. A Prometheus on another machine needs a Token or an Allow, and so does a page on
// a server that others reach, too. Handler panics if the options are invalid.
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
				adaptor.Fail(r, value) // the value with which promhttp panics is the error to return
			default:
				panic(value)
			}
		}()
		page.ServeHTTP(w, r)
	})))
}
