package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/filohttp/filo"
)

// bufferedEcho is the largest announced length of a body that is read whole before it is sent back. Longer bodies and chunked ones are streamed: the
// answer begins while the request is still arriving. Streaming holds one buffer, so its memory doesn't depend on the body's length.
const bufferedEcho = 64 << 10

// newHandler returns the example's whole site. scheme is the URL scheme in the commands that the page shows.
func newHandler(scheme string) filo.Handler {
	page := newPage(scheme)
	return func(c *filo.Ctx) error {
		// Comparing the borrowed bytes costs no allocation; Path would allocate a string.
		switch string(c.PathBytes()) {
		case "/hello":
			return only(c, hello, http.MethodGet, http.MethodHead)
		case "/echo":
			return only(c, echo, http.MethodPost)
		case "/":
			return only(c, page.serve, http.MethodGet, http.MethodHead)
		}
		return filo.Error(http.StatusNotFound, "there is GET /, GET /hello and POST /echo")
	}
}

// only runs h for the allowed methods, and answers other methods with 405 and the list of allowed ones (RFC 9110, 15.5.6).
func only(c *filo.Ctx, h filo.Handler, allowed ...string) error {
	method := c.Method()
	allow := ""
	for i, m := range allowed {
		if m == method {
			return h(c)
		}
		if i > 0 {
			allow += ", "
		}
		allow += m
	}
	c.Response.Header.Set("Allow", allow)
	return filo.Error(http.StatusMethodNotAllowed, "allowed here: "+allow)
}

func hello(c *filo.Ctx) error {
	return c.Text(http.StatusOK, "Hello, World!")
}

// echo answers with the request's body under its own Content-Type.
func echo(c *filo.Ctx) error {
	contentType := cmp.Or(c.Request.ContentType(), "application/octet-stream")
	// The sender controls the answer's content, so a browser must not guess another type for it, such as HTML.
	c.Response.Header.Set("X-Content-Type-Options", "nosniff")

	length := c.Request.ContentLength()
	if length >= 0 && length <= bufferedEcho {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(http.StatusOK, contentType, body)
	}

	c.SetMaxBodyBytes(-1)
	c.Response.Header.Set("Content-Type", contentType)
	if length >= 0 {
		// Without Content-Length the answer would be chunked or, for an HTTP/1.0 client, end with the connection.
		c.Response.Header.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	// The first Read sends a 100 to a client that expects it. It comes before the first Write, so the 100 precedes the answer's head.
	if _, err := io.Copy(c.Stream(), c.BodyReader()); err != nil {
		return fmt.Errorf("echo: %w", err)
	}
	return nil
}
