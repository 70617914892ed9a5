package check

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/static"
)

// Where other frameworks silently behave differently, filo behaves as docs/MIGRATING.md says.
func TestDifferences(t *testing.T) {
	r := router.New()
	r.POST("/json", func(c *filo.Ctx) error {
		var in struct{ Name string }
		if err := bind.JSON(c, &in); err != nil {
			return err
		}
		return c.Text(200, in.Name)
	})
	r.GET("/escaped", func(c *filo.Ctx) error { return c.JSON(200, "<&>") })
	r.POST("/both", func(c *filo.Ctx) error {
		var in struct {
			Name string `json:"name" form:"name"`
			Age  string `json:"age"`
		}
		if err := bind.All(c, &in); err != nil {
			return err
		}
		return c.Text(200, in.Name+in.Age)
	})
	r.POST("/raw", func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(200, "text/plain", body)
	})
	r.GET("/param/{id}", func(c *filo.Ctx) error { return c.Text(200, c.Param("id")) })
	r.GET("/docs/{path...}", static.New(fstest.MapFS{"index.html": {Data: []byte("index")}}).Serve)
	limited := r.Group("/limited", ratelimit.New(1, 15*time.Minute))
	limited.GET("", func(c *filo.Ctx) error { return c.Text(200, "") })
	r.GET("/int", func(c *filo.Ctx) error {
		n, err := c.Request.Query().Int("n")
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(n))
	})
	r.GET("/field", func(c *filo.Ctx) error {
		in := struct {
			N int `query:"n"`
		}{1}
		if err := bind.Query(c, &in); err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(in.N))
	})
	r.GET("/cookie", func(c *filo.Ctx) error {
		if err := c.Response.SetCookie(&filo.Cookie{Name: "a", Value: "b c"}); err == nil {
			return errors.New("a value with a space is sent")
		}
		if err := c.Response.SetCookie(&filo.Cookie{Name: "a", Value: "b"}); err != nil {
			return err
		}
		return c.Text(200, "")
	})
	r.POST("/all", func(c *filo.Ctx) error {
		in := struct {
			Name string `json:"name" form:"name"`
			Part struct {
				City string `json:"city" form:"city"`
			} `json:"part"`
		}{Name: "default"}
		if err := bind.All(c, &in); err != nil {
			return err
		}
		return c.Text(200, in.Name+in.Part.City)
	})
	r.GET("/default", func(c *filo.Ctx) error {
		var in struct {
			N int `query:"n,default=1"`
		}
		return bind.Query(c, &in)
	})
	r.GET("/query", func(c *filo.Ctx) error { return c.Text(200, c.Query("q")) })
	r.GET("/answer", func(c *filo.Ctx) error { return c.JSON(200, []int{1}) })
	r.GET("/segment/{id}", func(c *filo.Ctx) error { return c.Text(200, c.Param("id")) })
	r.GET("/nothing", func(c *filo.Ctx) error { return c.Text(200, "") }, func(filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error { return nil }
	})
	slash := r.Group("/slash")
	slash.GET("/{$}", func(c *filo.Ctx) error { return c.Text(200, "slash") })
	slash.POST("/{$}", func(c *filo.Ctx) error { return c.Text(200, "slash") })
	r.Group("/bare").GET("", func(c *filo.Ctx) error { return c.Text(200, "bare") })
	admin := r.Group("/admin", func(filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error { return filo.Error(401, "who are you?") }
	})
	admin.GET("/users", func(c *filo.Ctx) error { return c.Text(200, "") })
	covered := r.Group("/covered", func(filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error { return filo.Error(401, "who are you?") }
	})
	covered.GET("/users", func(c *filo.Ctx) error { return c.Text(200, "") })
	covered.Any("/{path...}", func(c *filo.Ctx) error { return filo.Error(404, "") })
	r.Use(middleware.Secure(), middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"*"}}))
	s := servertest.NewServer(t, &filo.Server{Handler: r.Serve, MaxBodyBytes: 10_000, ErrorHandler: func(c *filo.Ctx, err error) {
		var known *filo.HTTPError
		if !errors.As(err, &known) {
			known = &filo.HTTPError{Status: 500, Detail: err.Error()}
		}
		c.Text(known.Status, "detail: "+known.Detail)
	}})

	const whatever = "*"
	const preflight = "Access-Control-Request-Method: POST"
	for _, test := range []struct {
		request, body string
		fields        []string
		status        int
		want          string
		field, value  string
	}{
		{"POST /json", `{"name":"Ada"}`, []string{"Content-Type: application/json"}, 200, "Ada", "", ""},
		{"POST /json", `{"name":"Ada"} {}`, []string{"Content-Type: application/json"}, 400, "detail: body: line 1, column 16: invalid character '{' after top-level value", "", ""},
		{"POST /json", "", []string{"Content-Type: application/json"}, 400, "detail: body: must be JSON, and is empty", "", ""},
		{"POST /json", "{\"name\":\"\xff\"}", []string{"Content-Type: application/json"}, 400, "detail: body: must be UTF-8", "", ""},
		{"POST /json", `{}`, nil, 415, `detail: header "Content-Type": must be application/json, or end in +json`, "", ""},
		{"POST /all", "", []string{"Content-Type: application/json"}, 200, "default", "", ""},
		{"POST /all", `{"part":{"city":"Ulm"}}`, []string{"Content-Type: application/json"}, 200, "defaultUlm", "", ""},
		{"POST /all?name=Bob", "city=Ulm", []string{"Content-Type: application/x-www-form-urlencoded"}, 200, "default", "", ""},
		{"GET /default", "", nil, 500, `detail: bind: the field N, tag query: unknown option "default=1"`, "", ""},
		{"GET /query?q=100%", "", nil, 200, "100%", "", ""},
		{"GET /query?q=a;b&q=c", "", nil, 200, "a;b", "", ""},
		{"GET /answer", "", nil, 200, "[1]\n", "Content-Type", "application/json"},
		{"GET /answer", "", nil, 200, "[1]\n", "Server", "filo"},
		{"HEAD /answer", "", nil, 200, "", "Content-Type", "application/json"},
		{"OPTIONS /answer", "", nil, 204, "", "Allow", "GET, HEAD, OPTIONS"},
		{"GET /segment/a%2Fb", "", nil, 200, "a/b", "", ""},
		{"GET /nothing", "", nil, 200, "", "", ""},
		{"GET /slash/", "", nil, 200, "slash", "", ""},
		{"GET /slash", "", nil, 301, "", "Location", "/slash/"},
		{"POST /slash", "", nil, 308, "", "Location", "/slash/"},
		{"GET /slash/more", "", nil, 404, "detail: ", "", ""},
		{"GET /bare/", "", nil, 404, "detail: ", "", ""},
		{"POST /json", strings.Repeat("[", 1001) + strings.Repeat("]", 1001), []string{"Content-Type: application/json"}, 400, whatever, "", ""},
		{"POST /json", "\x1f\x8b\x08", []string{"Content-Type: application/json", "Content-Encoding: gzip"}, 415, whatever, "", ""},
		{"POST /json", `"` + strings.Repeat("a", 10_000) + `"`, []string{"Content-Type: application/json"}, 413, whatever, "", ""},
		{"POST /admin/users", strings.Repeat("a", 10_001), nil, 405, "detail: ", "", ""},
		{"POST /both", "name=Ada&age=36", []string{"Content-Type: application/x-www-form-urlencoded"}, 200, "Ada", "", ""},
		{"POST /both", "<a/>", []string{"Content-Type: application/xml"}, 415, whatever, "", ""},
		{"POST /raw", "zipped", []string{"Content-Encoding: gzip"}, 200, "zipped", "", ""},
		{"GET /escaped", "", nil, 200, `"\u003c\u0026\u003e"` + "\n", "Server", "filo"},
		{"GET /escaped", "", nil, 200, whatever, "Referrer-Policy", "strict-origin-when-cross-origin"},
		{"GET /escaped", "", nil, 200, whatever, "Cross-Origin-Embedder-Policy", ""},
		{"GET /param/%41b", "", nil, 200, "Ab", "", ""},
		{"GET /p%61ram/a", "", nil, 200, "a", "", ""},
		{"GET /x//../escaped", "", nil, 301, "", "Location", "/escaped"},
		{"GET /escaped/", "", nil, 404, "detail: ", "", ""},
		{"GET /Escaped", "", nil, 404, "detail: ", "", ""},
		{"GET /docs/index.html", "", nil, 301, "", "Location", "./"},
		{"GET /param/%zz", "", nil, 400, "Bad Request: invalid request target\n", "Referrer-Policy", ""},
		{"GET /limited", "", nil, 200, whatever, "RateLimit", `"default";r=0;t=900`},
		{"GET /limited", "", []string{"Origin: https://a.test"}, 429, whatever, "Access-Control-Allow-Origin", "*"},
		{"GET /int?n=7", "", nil, 200, "7", "", ""},
		{"GET /int", "", nil, 400, `detail: parameter "n" is missing`, "", ""},
		{"GET /int?n=", "", nil, 400, `detail: parameter "n" must be an integer`, "", ""},
		{"GET /field", "", nil, 200, "1", "", ""},
		{"GET /field?n=", "", nil, 200, "1", "", ""},
		{"GET /field?n=x", "", nil, 400, `detail: query "n": must be an integer`, "", ""},
		{"GET /cookie", "", nil, 200, "", "Set-Cookie", "a=b"},
		{"OPTIONS /json", "", []string{"Origin: https://a.test", preflight}, 204, "", "Access-Control-Allow-Origin", "*"},
		{"OPTIONS /json", "", []string{"Origin: https://a.test", preflight, "Access-Control-Request-Headers: content-type"}, 204, "", "Access-Control-Allow-Origin", ""},
		{"GET /none", "", nil, 404, "detail: ", "", ""},
		{"PUT /json", "", nil, 405, "detail: ", "Allow", "OPTIONS, POST"},
		{"GET /admin/users", "", nil, 401, "detail: who are you?", "", ""},
		{"GET /admin/none", "", nil, 404, "detail: ", "", ""},
		{"GET /covered/users", "", nil, 401, "detail: who are you?", "", ""},
		{"GET /covered/none", "", nil, 401, "detail: who are you?", "", ""},
	} {
		got := s.DoBody(t, test.request, test.body, test.fields...)
		if got.Status != test.status || test.want != whatever && got.Body != test.want || test.field != "" && got.Header.Get(test.field) != test.value {
			t.Errorf("%s %s: %v, want %d %q and %s %q", test.request, test.body, got, test.status, test.want, test.field, test.value)
		}
	}
}

// The answer to a page of another origin has no field that would let the page read it. middleware.CSRF refuses requests of such a page
// that could change something.
func TestDifferencesOfOrigins(t *testing.T) {
	r := router.New()
	r.Use(middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://a.test"}}))
	home := func(c *filo.Ctx) error { return c.Text(200, "home") }
	r.Any("/", home)
	r.POST("/guarded", home, middleware.CSRF())
	s := servertest.New(t, r.Serve)
	for _, test := range []struct {
		request string
		status  int
	}{{"GET /", 200}, {"POST /", 200}, {"POST /guarded", 403}} {
		if got := s.Do(t, test.request, "Origin: https://b.test"); got.Status != test.status || got.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", test.request, got)
		}
	}
}
