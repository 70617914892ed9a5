package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing/fstest"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/static"
)

// newServer returns the application, whose code doesn't depend on which server serves it.
func newServer() *filo.Server {
	files := static.New(fstest.MapFS{"about.txt": {Data: []byte("An application that can leave.\n")}}, static.Options{})
	r := router.New()
	r.Use(middleware.Recover(), middleware.Secure())
	r.GET("/hello/{name}", func(c *filo.Ctx) error {
		return c.JSON(200, map[string]string{"hello": c.Param("name")})
	})
	r.POST("/users", func(c *filo.Ctx) error {
		var user struct {
			Name string `json:"name" required:"true"`
		}
		if err := bind.JSON(c, &user); err != nil {
			return err
		}
		return c.JSON(201, user)
	})
	r.POST("/upload", func(c *filo.Ctx) error {
		n, err := io.Copy(io.Discard, c.BodyReader())
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprintf("%d bytes\n", n))
	})
	r.GET("/stream", func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Type", "text/plain; charset=utf-8")
		w := c.Stream()
		for i := range 3 {
			fmt.Fprintf(w, "line %d\n", i)
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return nil
	})
	r.GET("/login", func(c *filo.Ctx) error {
		if err := c.Response.SetCookie(&filo.Cookie{Name: "user", Value: "ada", Path: "/", HttpOnly: true}); err != nil {
			return err
		}
		return c.Redirect(303, "/hello/ada")
	})
	r.GET("/secret", func(c *filo.Ctx) error { return filo.Error(403, "not for you") })
	r.GET("/broken", func(c *filo.Ctx) error { return errors.New("the database is gone") })
	r.GET("/panics", func(c *filo.Ctx) error { panic("a mistake") })
	r.GET("/files/{path...}", files.Serve)
	return &filo.Server{Handler: r.Serve, Logger: slog.New(slog.DiscardHandler)}
}
