package adaptor_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// ask prints what a handler answers.
func ask(h filo.Handler, path string) {
	ln := servertest.NewListener()
	s := &filo.Server{Handler: h}
	go s.Serve(ln)
	defer s.Shutdown(context.Background())
	client := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext}}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://filo.test" + path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	fmt.Println(response.StatusCode, string(body))
}

func ExampleFromHTTP() {
	r := router.New()
	r.GET("/hello/{name}", adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "Hello, %s!", r.PathValue("name"))
	})))
	ask(r.Serve, "/hello/gopher")
	// Output: 200 Hello, gopher!
}

func ExampleToHTTP() {
	mux := http.NewServeMux()
	mux.Handle("/filo/", adaptor.ToHTTP(func(c *filo.Ctx) error { return c.Text(200, "from filo: "+c.Path()) }))
	s := httptest.NewServer(mux)
	defer s.Close()
	response, err := http.Get(s.URL + "/filo/page")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	fmt.Println(response.StatusCode, string(body))
	// Output: 200 from filo: /filo/page
}

func ExampleMiddleware() {
	r := router.New()
	r.Use(adaptor.Middleware(func(next http.Handler) http.Handler { return http.StripPrefix("/v1", next) }))
	r.GET("/v1/where", func(c *filo.Ctx) error { return c.Text(200, c.Path()) })
	ask(r.Serve, "/v1/where")
	// Output: 200 /where
}

func ExampleFail() {
	// With Fail, a handler of net/http lets filo's ErrorHandler write the answer.
	h := adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		adaptor.Fail(r, filo.Error(409, "somebody else was faster"))
	}))
	ask(h, "/")
	// Output: 409 Conflict: somebody else was faster
}
