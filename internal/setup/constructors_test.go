package setup_test

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/dashboard"
	"github.com/filohttp/filo/debug"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/sse"
	"github.com/filohttp/filo/static"
	"github.com/filohttp/filo/templates"
)

// Each constructor with optional options accepts one options value, and panics if it gets two.
func TestConstructors(t *testing.T) {
	files := fstest.MapFS{}
	for name, twice := range map[string]func(){
		"middleware: AccessLog":      func() { middleware.AccessLog(middleware.AccessLogOptions{}, middleware.AccessLogOptions{}) },
		"middleware: CacheControl":   func() { middleware.CacheControl(middleware.CacheControlOptions{}, middleware.CacheControlOptions{}) },
		"middleware: Compress":       func() { middleware.Compress(middleware.CompressOptions{}, middleware.CompressOptions{}) },
		"middleware: CSRF":           func() { middleware.CSRF(middleware.CSRFOptions{}, middleware.CSRFOptions{}) },
		"middleware: Decompress":     func() { middleware.Decompress(middleware.DecompressOptions{}, middleware.DecompressOptions{}) },
		"middleware: ETag":           func() { middleware.ETag(middleware.ETagOptions{}, middleware.ETagOptions{}) },
		"middleware: Guard":          func() { middleware.Guard(middleware.GuardOptions{}, middleware.GuardOptions{}) },
		"middleware: MethodOverride": func() { middleware.MethodOverride(make([]middleware.MethodOverrideOptions, 2)...) },
		"middleware: Recover":        func() { middleware.Recover(middleware.RecoverOptions{}, middleware.RecoverOptions{}) },
		"middleware: RequestID":      func() { middleware.RequestID(middleware.RequestIDOptions{}, middleware.RequestIDOptions{}) },
		"middleware: Secure":         func() { middleware.Secure(middleware.SecureOptions{}, middleware.SecureOptions{}) },
		"cache: New":                 func() { cache.New(cache.Options{}, cache.Options{}) },
		"ratelimit: New":             func() { ratelimit.New(1, time.Minute, ratelimit.Options{}, ratelimit.Options{}) },
		"dashboard: New":             func() { dashboard.New(new(filo.Server), dashboard.Options{}, dashboard.Options{}) },
		"debug: Handler":             func() { debug.Handler(debug.Options{}, debug.Options{}) },
		"health: New":                func() { health.New(health.Options{}, health.Options{}) },
		"sse: NewHub":                func() { sse.NewHub(sse.HubOptions{}, sse.HubOptions{}) },
		"sse: Open":                  func() { sse.Open(nil, sse.Options{}, sse.Options{}) },
		"static: New":                func() { static.New(files, static.Options{}, static.Options{}) },
		"static: Dir":                func() { static.Dir(".", static.Options{}, static.Options{}) },
		"templates: New":             func() { templates.New(files, templates.Options{}, templates.Options{}) },
	} {
		if message := mwtest.PanicOf(twice); !strings.HasPrefix(message, name+" takes one ") {
			t.Errorf("%s, given options twice, panics with %q", name, message)
		}
	}
}
