package prometheus

import (
	"net/http"
	"runtime"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/promhttp/zstd" // so that zstd is offered beside gzip

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
)

// maxScrapes is how many scrapes are answered at once: each asks all collectors and holds all of what they say.
const maxScrapes = 8

// Handler answers with what the gatherer, such as a client_golang Registry, has: as OpenMetrics, Prometheus's text or its
// protocol buffers, whichever the client prefers, and compressed if it likes that. A query such as "name[]=filo_workers"
// asks for these metrics alone. An error of the gatherer is the handler's, so that it is logged and the client gets a 500
// that doesn't tell it; more than 8 requests at once get 503.
//
// Whoever reads the page knows the routes of the server and what becomes of its requests, so it is mostly served on another
// address than what is public, or behind authentication.
func Handler(gatherer client.Gatherer) filo.Handler {
	if gatherer == nil {
		panic("prometheus: Handler without a gatherer")
	}
	page := promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.PanicOnError,
	})
	return adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	}))
}
