package adaptor_test

import (
	"net/http"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/router"
)

// An Always route is answered under overload even behind a middleware of net/http, and even if its handler is marked with
// filo.Offload.
func TestAlwaysBehindMiddleware(t *testing.T) {
	wraps := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&wrapper{w}, r) })
	})
	eachServer(t, func(t *testing.T, start func(*filo.Server) *front) {
		holds := newHeld()
		r := router.New()
		r.GET("/held", holds.serve).Offload()
		ops := r.Group("/ops", wraps)
		ops.GET("/health", filo.Offload(func(c *filo.Ctx) error { return c.Text(200, "fine") })).Always()
		s := &filo.Server{Concurrency: 1, Handler: r.Serve}
		f := start(s)
		for range 50 {
			f.ask(t, "GET", "/ops/health", "")
		}
		held := holds.begin(t, f, "/held")
		for range 5 {
			if got := f.ask(t, "GET", "/ops/health", ""); got.StatusCode != 200 {
				t.Errorf("always: %v %q", got.Status, got.body)
			}
		}
		close(holds.release)
		<-held
	})
}
