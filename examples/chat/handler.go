package main

import (
	"embed"
	"io/fs"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/static"
)

// files is the page. It has no build step.
//
//go:embed page
var files embed.FS

// policy lets the page load what is served here, connect to here, and nothing else. That allows the WebSocket as well, since
// 'self' includes the same host with the schemes ws and wss.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// newHandler returns the whole application. Requests must name one of hosts.
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
		panic(err) // it is embedded
	}
	// A browser asks each time whether its copy is still the newest.
	assets := static.New(page, static.Options{CacheControl: func(string) string { return "no-cache" }})
	r.GET("/{path...}", assets.Serve)
	return r.Serve
}
