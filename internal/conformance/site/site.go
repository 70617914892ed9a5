// Package site has the routes that the tables of packages conformance and http2conf request from a server.
package site

import (
	"cmp"
	"io"
	"net/http"
	"strings"

	"github.com/filohttp/filo"
)

const (
	greeting = "Hello, World!"
	page     = "<!DOCTYPE html><title>filo</title>"
	pageType = "text/html; charset=utf-8"
)

// allowed returns the methods of a path, or "" if there is no such path.
func allowed(path string) string {
	switch path {
	case "/", "/hello":
		return "GET, HEAD"
	case "/echo", "/hold":
		return "POST"
	}
	return ""
}

func isAllowed(method, allow string) bool { return strings.Contains(", "+allow+",", ", "+method+",") }

// Serve is the handler of the site for filo's server.
func Serve(c *filo.Ctx) error {
	path := c.Path()
	allow := allowed(path)
	switch {
	case allow == "":
		return filo.Error(404, "no such page")
	case !isAllowed(c.Method(), allow):
		c.Response.Header.Set("Allow", allow)
		return filo.Error(405, "allowed here: "+allow)
	}
	switch path {
	case "/hello":
		return c.Text(200, greeting)
	case "/echo":
		c.SetMaxBodyBytes(-1)
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(200, c.Request.ContentType(), body)
	case "/hold":
		<-c.Context().Done()
		return filo.ErrAbort
	}
	return c.Bytes(200, pageType, []byte(page))
}

// ServeHTTP is the handler of the site for net/http's server.
func ServeHTTP(w http.ResponseWriter, r *http.Request) {
	allow := allowed(r.URL.Path)
	switch {
	case allow == "":
		w.WriteHeader(404)
		return
	case !isAllowed(r.Method, allow):
		w.Header().Set("Allow", allow)
		w.WriteHeader(405)
		return
	}
	switch r.URL.Path {
	case "/hello":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, greeting)
	case "/echo":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(400)
			return
		}
		w.Header().Set("Content-Type", cmp.Or(r.Header.Get("Content-Type"), "application/octet-stream"))
		w.Write(body)
	case "/hold":
		<-r.Context().Done()
	default:
		w.Header().Set("Content-Type", pageType)
		io.WriteString(w, page)
	}
}
