package prometheus

import (
	"net/http"
	"runtime"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/promhttp/zstd" // so that zstd is offered in addition to gzip

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/middleware"
)

// maxScrapes is how many scrapes are answered at once: each scrape calls all collectors and holds all their metrics in memory.
const maxScrapes = 8

// HandlerOptions are the options of Handler. The zero value gives access only to clients of a server that the program has declared as its
// operator's (filo.Server.ForOperator).
type HandlerOptions struct {
	// Allow, if set, alone decides which requests have access.
	Allow func(c *filo.Ctx) bool
	// Token, if set, gives access to every client that sends it, from any address. A client sends it as "Authorization: Bearer TOKEN", or as
	// the password of Basic authentication with any user. Prometheus sends the Bearer form if its scrape_config has "authorization:
	// {credentials: TOKEN}". Clients without the token get 401. A token has 16 to 512 bytes of visible ASCII; "openssl rand -hex 16" prints
	// one. Without TLS, the token can be read in transit.
	Token string
	// Hosts are further host names of the machine, without ports, such as "devbox". They apply only if neither Allow nor Token
	// is set.
	Hosts []string
}

// Handler answers with the metrics of the gatherer, such as a client_golang Registry: as OpenMetrics, Prometheus's text or its protocol
// buffers, whichever the client prefers, and compressed if the client accepts that. A query such as "name[]=filo_workers" selects metrics.
// Handler returns the gatherer's error, so the server logs it and the client gets a 500 without the text. While 8 requests are being
// answered, further requests get 503.
//
// The page shows the server's routes and the results of its requests, so access is restricted. As with package debug, by default only a
// server that the program has declared as the operator's by filo.Server.ForOperator gives access. Its clients must be on the same machine,
// use one of the machine's host names, and use no proxy. Other clients get 404. For a Prometheus on another machine, or on a server that isn't only the
// operator's, set Token or Allow. Handler panics if the options are invalid.
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
