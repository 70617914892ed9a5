// Command echo serves some of the resources of package site by echo on net/http.
package main

import (
	"io"
	"log"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/labstack/echo/v5"
)

func main() {
	flags := site.Parse()
	e := echo.New()
	e.GET("/", greet)
	e.GET("/json", func(c *echo.Context) error { return answer(c, site.JSONType, site.SmallJSON()) })
	e.POST("/echo-length", length)
	e.GET("/middleware", greetUser, stack()...)
	for route, names := range flags.GitHub(true) {
		e.Add(route.Method, route.Path, func(c *echo.Context) error {
			if slices.ContainsFunc(names, func(name string) bool { return c.Param(name) == "" }) {
				return echo.ErrBadRequest
			}
			return greet(c)
		})
	}
	log.Fatal((&http.Server{Handler: e}).Serve(flags.Listen()))
}

var server = []string{site.Server}

func answer(c *echo.Context, contentType string, body []byte) error {
	c.Response().Header()["Server"] = server
	return c.Blob(http.StatusOK, contentType, body)
}

func greet(c *echo.Context) error { return answer(c, site.TextType, site.GreetingBytes) }

func length(c *echo.Context) error {
	body, err := io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, site.MaxBody))
	if err != nil {
		return echo.ErrBadRequest
	}
	return answer(c, site.TextType, strconv.AppendInt(nil, int64(len(body)), 10))
}

// stack has the ten middlewares of package site.
func stack() []echo.MiddlewareFunc {
	middlewares := []echo.MiddlewareFunc{recovered, timed}
	steps := site.Steps(
		func(c *echo.Context, name string) string { return c.Request().Header.Get(name) },
		func(c *echo.Context, name, value string) { c.Response().Header().Set(name, value) },
	)
	for _, step := range steps {
		middlewares = append(middlewares, func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				if status := step(c); status != 0 {
					return echo.NewHTTPError(status, "refused")
				}
				return next(c)
			}
		})
	}
	return append(middlewares, func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set(site.UserKey, site.User)
			return next(c)
		}
	})
}

func recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) (err error) {
		defer func() {
			if recover() != nil {
				err = echo.ErrInternalServerError
			}
		}()
		return next(c)
	}
}

func timed(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		defer site.Timed(time.Now())
		return next(c)
	}
}

func greetUser(c *echo.Context) error {
	if user, ok := c.Get(site.UserKey).(string); !ok || user != site.User {
		return echo.ErrInternalServerError
	}
	return greet(c)
}
