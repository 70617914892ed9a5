package docs

import (
	"errors"
	"fmt"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// What docs/MIGRATING.md says that filo does, where others do something else without a word.
func TestDifferences(t *testing.T) {
	r := router.New()
	r.POST("/json", func(c *filo.Ctx) error {
		var in struct{ Name string }
		if err := bind.JSON(c, &in); err != nil {
			return err
		}
		return c.Text(200, in.Name)
	})
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
	admin := r.Group("/admin", func(filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error { return filo.Error(401, "who are you?") }
	})
	admin.GET("/users", func(c *filo.Ctx) error { return c.Text(200, "") })
	covered := r.Group("/covered", func(filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error { return filo.Error(401, "who are you?") }
	})
	covered.GET("/users", func(c *filo.Ctx) error { return c.Text(200, "") })
	covered.Any("/{path...}", func(c *filo.Ctx) error { return filo.Error(404, "") })
	r.Use(middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"*"}}))
	s := servertest.NewServer(t, &filo.Server{Handler: r.Serve, ErrorHandler: func(c *filo.Ctx, err error) {
		var known *filo.HTTPError
		if !errors.As(err, &known) {
			known = &filo.HTTPError{Status: 500, Detail: err.Error()}
		}
		c.Text(known.Status, "detail: "+known.Detail)
	}})

	const preflight = "Access-Control-Request-Method: POST"
	for _, test := range []struct {
		request, body string
		fields        []string
		status        int
		want          string
		field, value  string
	}{
		{"POST /json", `{"name":"Ada"}`, []string{"Content-Type: application/json"}, 200, "Ada", "", ""},
		{"POST /json", `{"name":"Ada"} {}`, []string{"Content-Type: application/json"}, 400, "detail: body: line 1, column 16: unexpected '{' behind the document", "", ""},
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
		if got.Status != test.status || got.Body != test.want || test.field != "" && got.Header.Get(test.field) != test.value {
			t.Errorf("%s %s: %v, want %d %q and %s %q", test.request, test.body, got, test.status, test.want, test.field, test.value)
		}
	}
}
