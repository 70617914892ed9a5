package main

import (
	"context"
	"embed"
	"io/fs"
	"syscall"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/static"
)

// files has the page, which needs no build step.
//
//go:embed page
var files embed.FS

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// routes returns the supervisor's handler: the page, and the actions that the page starts. A restart in progress ends when ctx ends.
func (c *cluster) routes(ctx context.Context) filo.Handler {
	page, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the folder is embedded, so it exists
	}
	assets := static.New(page, static.Options{CacheControl: func(string) string { return "no-cache" }})
	r := router.New()
	r.Use(middleware.Secure(middleware.SecureOptions{ContentSecurityPolicy: policy, FrameOptions: "DENY", ReferrerPolicy: "no-referrer"}), middleware.CSRF())
	r.GET("/", func(c *filo.Ctx) error { return assets.ServeFile(c, "index.html") })
	r.GET("/page/{path...}", assets.Serve)
	r.GET("/cluster/status", c.status)
	r.POST("/cluster/restart", func(request *filo.Ctx) error {
		return c.begin(request, func() error { return c.restart(ctx, syscall.SIGTERM, names...) })
	})
	r.POST("/cluster/kill", func(request *filo.Ctx) error {
		return c.begin(request, func() error { return c.restart(ctx, syscall.SIGKILL, c.victim()) })
	})
	return r.Serve
}

// begin begins a restart, unless another one is still in progress.
func (c *cluster) begin(request *filo.Ctx, restart func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.restarting {
		return filo.Error(409, "a restart goes on")
	}
	c.restarting = true
	go func() {
		err := restart()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.restarting, c.failed = false, err
		c.rounds++
	}()
	return request.Text(202, "begun\n")
}

// victim returns the instance to kill next.
func (c *cluster) victim() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	return names[c.next%len(names)]
}

// status answers with the state of the instances.
func (c *cluster) status(request *filo.Ctx) error {
	type instance struct {
		Name   string `json:"name"`
		State  string `json:"state"`
		PID    int    `json:"pid"`
		Starts int    `json:"starts"`
	}
	var answer struct {
		Instances  []instance `json:"instances"`
		Restarting bool       `json:"restarting"`
		Rounds     int        `json:"rounds"`
		Failed     string     `json:"failed,omitempty"`
	}
	c.mu.Lock()
	for _, name := range names {
		p := c.instances[name]
		answer.Instances = append(answer.Instances, instance{name, p.state, p.Process.Pid, p.starts})
	}
	answer.Restarting, answer.Rounds = c.restarting, c.rounds
	if c.failed != nil {
		answer.Failed = c.failed.Error()
	}
	c.mu.Unlock()
	request.Response.Header.Set("Cache-Control", "no-store")
	return request.JSON(200, answer)
}
