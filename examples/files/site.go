package main

import (
	"embed"
	"errors"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/sse"
	"github.com/filohttp/filo/static"
)

//go:embed page
var pages embed.FS

const (
	// pagePolicy allows the page to load content from this server only.
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	// filePolicy allows a browser to show pictures, videos and text of an uploaded file, but not to run scripts, which anyone may have uploaded.
	filePolicy = "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"
)

// site is the whole site: the page, its API and the files.
type site struct {
	handler filo.Handler
	files   *store
	content *static.Files // serves the files
	hub     *sse.Hub      // tells the open pages that files have changed
}

// newSite returns the site for the files in dir. It refuses requests for a host that isn't in the list hosts.
func newSite(files *store, dir string, hosts []string) (*site, error) {
	page, err := fs.Sub(pages, "page")
	if err != nil {
		return nil, err
	}
	// A file may be deleted and uploaded again with other content at any time, so each request checks the file on the disk.
	content, err := static.Dir(dir, static.Options{Index: "-", Listing: true, CacheCheck: -1, CacheControl: always})
	if err != nil {
		return nil, err
	}
	s := &site{files: files, content: content, hub: sse.NewHub()}
	files.changed = func() { s.hub.Publish("files", sse.Event{Data: "changed"}) }

	r := router.New()
	// Pages of other sites must not read or change the files: neither through a host name of theirs that resolves to this server (HostCheck), nor
	// with cross-origin requests (CSRF).
	r.Use(middleware.HostCheck(middleware.HostCheckOptions{Hosts: hosts}), middleware.CSRF())
	addTus(r, files)
	r.GET("/api/files", s.list)
	r.GET("/api/events", func(c *filo.Ctx) error { return s.hub.Serve(c, "files") })
	r.PUT("/files/{name}", s.put)
	r.DELETE("/files/{name}", s.remove)
	r.GET("/files/{path...}", content.Serve, middleware.Secure(middleware.SecureOptions{ContentSecurityPolicy: filePolicy}))
	r.GET("/{path...}", static.New(page, static.Options{Frozen: true, CacheControl: always}).Serve,
		middleware.Secure(middleware.SecureOptions{ContentSecurityPolicy: pagePolicy, ReferrerPolicy: "no-referrer"}))
	// In tus, a client that can't send PATCH sends POST with the field X-HTTP-Method-Override.
	s.handler = middleware.MethodOverride()(r.Serve)
	return s, nil
}

// always returns a Cache-Control with which a browser checks on each use whether its copy is still current.
func always(string) string { return "no-cache" }

func (s *site) close() error { return errors.Join(s.hub.Close(), s.content.Close()) }

func (s *site) list(c *filo.Ctx) error {
	files, err := s.files.list()
	if err != nil {
		return err
	}
	c.Response.Header.Set("Cache-Control", "no-store")
	return c.JSON(http.StatusOK, files)
}

// put stores a file that is sent in one request, as curl -T does.
func (s *site) put(c *filo.Ctx) error {
	if c.Request.Header.Get("Content-Range") != "" {
		return filo.Error(http.StatusBadRequest, "PUT stores whole files: a part can't be added to one") // RFC 9110, section 14.5
	}
	length := c.Request.ContentLength()
	if length < 0 {
		return filo.Error(http.StatusLengthRequired, "the file's size must be announced")
	}
	c.SetMaxBodyBytes(length)
	f, err := s.files.put(record{Name: c.Param("name"), Length: length}, patience{c, c.BodyReader(), s.files.limits.stall})
	if err != nil {
		return err
	}
	c.Response.Header.Set("Location", "/files/"+url.PathEscape(f.Name))
	return c.JSON(http.StatusCreated, f)
}

func (s *site) remove(c *filo.Ctx) error {
	if err := s.files.remove(c.Param("name")); err != nil {
		return err
	}
	return c.NoContent()
}
