// Command echo serves some of the resources of package site with echo on net/http.
package main

import (
	"io"
	"log"
	"net/http"
	"slices"
	"strconv"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/labstack/echo/v5"
)

func main() {
	flags := site.Parse()
	e := echo.New()
	e.GET("/", greet)
	e.GET("/json", func(c *echo.Context) error { return answer(c, site.JSONType, site.SmallJSON()) })
	e.POST("/echo-length", length)
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
