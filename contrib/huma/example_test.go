package humafilo_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/filohttp/filo"
	humafilo "github.com/filohttp/filo/contrib/huma"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

func ExampleNew() {
	type Greeting struct {
		Body struct {
			Message string `json:"message"`
		}
	}
	config := huma.DefaultConfig("Greetings", "1.0.0")
	config.SchemasPath, config.CreateHooks = "", nil // no links to schemas in the answers
	r := router.New()
	api := humafilo.New(r, config)
	huma.Get(api, "/greeting/{name}", func(_ context.Context, input *struct {
		Name string `path:"name" maxLength:"10"`
	}) (*Greeting, error) {
		greeting := &Greeting{}
		greeting.Body.Message = "Hello, " + input.Name + "!"
		return greeting, nil
	})

	ln := servertest.NewListener()
	server := &filo.Server{Handler: r.Serve}
	go server.Serve(ln)
	defer server.Shutdown(context.Background())
	client := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext, DisableKeepAlives: true}}
	for _, path := range []string{"/greeting/gopher", "/greeting/everybody-out-there"} {
		response, err := client.Get("http://filo.test" + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		fmt.Print(response.StatusCode, " ", string(body))
	}
	// Output:
	// 200 {"message":"Hello, gopher!"}
	// 422 {"title":"Unprocessable Entity","status":422,"detail":"validation failed","errors":[{"message":"expected length <= 10","location":"path.name","value":"everybody-out-there"}]}
}
