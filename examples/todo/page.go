package main

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
)

//go:embed page
var files embed.FS

// policy allows the pages to load content from this server only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// addPage adds routes for the page and its assets.
func addPage(r *router.Router) error {
	for _, file := range []struct{ path, name, contentType string }{
		{"/{$}", "index.html", "text/html; charset=utf-8"},
		{"/todo.css", "todo.css", "text/css; charset=utf-8"},
		{"/todo.js", "todo.js", "text/javascript; charset=utf-8"},
		{"/favicon.svg", "favicon.svg", "image/svg+xml"},
	} {
		content, err := files.ReadFile("page/" + file.name)
		if err != nil {
			return err
		}
		r.GET(file.path, asset{file.contentType, content, etag(content)}.serve)
	}
	return nil
}

// asset is a file that never changes while the program runs.
type asset struct {
	contentType string
	content     []byte
	etag        string
}

// etag returns a strong validator for a file's content.
func etag(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

func (a asset) serve(c *filo.Ctx) error {
	h := &c.Response.Header
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("ETag", a.etag)
	// With no-cache a browser checks on each use whether its copy is still current.
	h.Set("Cache-Control", "no-cache")
	if string(c.Request.Header.GetBytes("If-None-Match")) == a.etag {
		c.Response.SetStatus(http.StatusNotModified)
		return nil
	}
	return c.BytesNoCopy(http.StatusOK, a.contentType, a.content)
}
