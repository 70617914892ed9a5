package main

import (
	"embed"
	"io/fs"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/static"
)

// files has the page, which needs no build step.
//
//go:embed page
var files embed.FS

// policy allows the page to load resources from this server and connect to it, and nothing else. That allows the WebSocket as well, since 'self'
// includes the same host with the schemes ws and wss.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// newHandler returns the whole application. It refuses requests for a host that isn't in the list hosts.
func newHandler(c *chat, hosts []string) filo.Handler {
	r := router.New()
	r.Use(middleware.HostCheck(middleware.HostCheckOptions{Hosts: hosts}), middleware.Secure(middleware.SecureOptions{
		ContentSecurityPolicy: policy,
		FrameOptions:          "DENY",
		ReferrerPolicy:        "no-referrer",
		PermissionsPolicy:     "camera=(), geolocation=(), microphone=()",
	}))
	r.GET("/rooms/{room}/socket", newSocket(c))
	r.GET("/rooms/{room}/messages", c.serveMessages)
	r.GET("/feed", c.serveFeed)

	page, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the folder is embedded, so it exists
	}
	// With no-cache a browser checks on each use whether its copy is still current.
	assets := static.New(page, static.Options{CacheControl: func(string) string { return "no-cache" }})
	r.GET("/{path...}", assets.Serve)
	return r.Serve
}
