package brotli_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	abrotli "github.com/andybalholm/brotli"
	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/brotli"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

func Example() {
	compress := middleware.Compress(middleware.CompressOptions{Codings: []middleware.Coding{brotli.Coding()}})
	listener := servertest.NewListener()
	server := &filo.Server{Handler: compress(func(c *filo.Ctx) error {
		return c.JSON(200, strings.Repeat("a long answer ", 1_000))
	})}
	go server.Serve(listener)
	defer server.Close()

	client := http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
	request, _ := http.NewRequest("GET", "http://filo.test/", nil)
	request.Header.Set("Accept-Encoding", "gzip, br")
	response, err := client.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	text, err := io.ReadAll(abrotli.NewReader(response.Body))
	fmt.Println(response.Header.Get("Content-Encoding"), len(text), response.ContentLength < 100, err)
	// Output:
	// br 14003 true <nil>
}
