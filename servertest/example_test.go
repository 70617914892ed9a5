package servertest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

// To test a handler, New is all that you need.
func ExampleNew() {
	TestGreeting := func(t *testing.T) {
		s := servertest.New(t, func(c *filo.Ctx) error {
			return c.Text(200, "Hello, "+c.Path())
		})

		answer, err := s.Client().Get(s.URL + "/gopher")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != 200 {
			t.Errorf("status %d, want 200", answer.StatusCode)
		}

		// Bytes that no client would send: a header field with a space before its colon.
		raw := s.Raw(t, "GET / HTTP/1.1\r\nHost : a\r\n\r\n")
		if raw[:len("HTTP/1.1 400")] != "HTTP/1.1 400" {
			t.Errorf("answer %q, want status 400", raw)
		}
	}
	_ = TestGreeting // go test calls it
}

// A listener can be used alone where there is no *testing.T.
func ExampleListener() {
	ln := servertest.NewListener()
	s := &filo.Server{Handler: func(c *filo.Ctx) error {
		return c.Text(200, "Hello, World!")
	}}
	go s.Serve(ln)

	client := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext}}
	answer, err := client.Get("http://filo.test/")
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	fmt.Println(answer.Status, string(body))

	client.CloseIdleConnections()
	fmt.Println(s.Shutdown(context.Background()))
	// Output:
	// 200 OK Hello, World!
	// <nil>
}
