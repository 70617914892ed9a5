package router_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// get prints what a router answers to GET requests.
func get(r *router.Router, paths ...string) {
	ln := servertest.NewListener()
	s := &filo.Server{Handler: r.Serve}
	go s.Serve(ln)
	client := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext}}
	for _, path := range paths {
		response, err := client.Get("http://filo.test" + path)
		if err != nil {
			fmt.Println(err)
			continue
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		fmt.Println(path, response.StatusCode, string(body))
	}
	client.CloseIdleConnections()
	s.Shutdown(context.Background())
}

func Example() {
	r := router.New()
	r.GET("/{$}", func(c *filo.Ctx) error { return c.Text(200, "home") })
	r.GET("/users/{id:int}", func(c *filo.Ctx) error { return c.Text(200, "user "+c.Param("id")) })
	r.GET("/users/{name}", func(c *filo.Ctx) error { return c.Text(200, "name "+c.Param("name")) })
	r.Handle("GET /files/{path...}", func(c *filo.Ctx) error { return c.Text(200, "file "+c.Param("path")) })

	// filo.ListenAndServe(":8080", r.Serve) would serve it.
	get(r, "/", "/users/7", "/users/gopher", "/files/a/b.txt")
	// Output:
	// / 200 home
	// /users/7 200 user 7
	// /users/gopher 200 name gopher
	// /files/a/b.txt 200 file a/b.txt
}

func ExampleRouter_Use() {
	r := router.New()
	r.GET("/", func(c *filo.Ctx) error { return filo.Error(403, "not for you") })
	r.Use(func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			err := next(c)
			fmt.Println(c.Route(), c.Status(), err)
			return err
		}
	})
	get(r, "/")
	// Output:
	// GET / 403 403 Forbidden: not for you
	// / 403 Forbidden: not for you
}

func ExampleRouter_Group() {
	r := router.New()
	onlyJSON := func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "application/json")
			return next(c)
		}
	}
	v1 := r.Group("/v1", onlyJSON)
	team := v1.Group("/teams/{team}")
	team.GET("/members", func(c *filo.Ctx) error { return c.Text(200, "the members of "+c.Param("team")) })
	get(r, "/v1/teams/red/members")
	// Output:
	// /v1/teams/red/members 200 the members of red
}

func ExampleRouter_Mount() {
	admin := router.New()
	admin.GET("/log/{day}", func(c *filo.Ctx) error { return c.Text(200, c.Route()+": "+c.Param("day")) })
	r := router.New()
	r.Mount("/admin", admin.Serve)
	get(r, "/admin/log/monday")
	// Output:
	// /admin/log/monday 200 GET /admin/log/{day}: monday
}

func ExampleRouter_URL() {
	r := router.New()
	r.GET("/posts/{year:[0-9]{4}}/{title}", func(c *filo.Ctx) error { return nil }).Name("post")
	fmt.Println(r.URL("post", "2024", "Q&A: 50/50"))
	_, err := r.URL("post", "24", "Q&A")
	fmt.Println(err)
	// Output:
	// /posts/2024/Q&A:%2050%2F50 <nil>
	// router: the value "24" for {year} of "GET /posts/{year:[0-9]{4}}/{title}" isn't [0-9]{4}
}

func ExampleRouter_Routes() {
	r := router.New()
	r.GET("/", func(c *filo.Ctx) error { return nil }).Name("home")
	r.POST("/users", func(c *filo.Ctx) error { return nil })
	for _, route := range r.Routes() {
		fmt.Println(route.Pattern, route.Name)
	}
	// Output:
	// GET / home
	// POST /users
}

// A probe is answered even when the server has no place left. A slow report never blocks the other connections of its loop.
func ExampleRoute_Inline() {
	r := router.New()
	r.GET("/livez", func(c *filo.Ctx) error { return c.Text(200, "ok") }).Inline()
	r.GET("/report", func(c *filo.Ctx) error { return c.Text(200, "all is well") }).Offload()
	get(r, "/livez", "/report")
	// Output:
	// /livez 200 ok
	// /report 200 all is well
}
