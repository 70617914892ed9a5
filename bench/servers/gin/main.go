// Command gin serves some of the resources of package site with gin on net/http.
package main

import (
	"io"
	"log"
	"net/http"
	"slices"
	"strconv"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/gin-gonic/gin"
)

func main() {
	flags := site.Parse()
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.GET("/", greet)
	r.GET("/json", func(c *gin.Context) { answer(c, site.JSONType, site.SmallJSON()) })
	r.POST("/echo-length", length)
	for route, names := range flags.GitHub(true) {
		r.Handle(route.Method, route.Path, func(c *gin.Context) {
			if slices.ContainsFunc(names, func(name string) bool { return c.Param(name) == "" }) {
				c.AbortWithStatus(http.StatusBadRequest)
				return
			}
			greet(c)
		})
	}
	log.Fatal((&http.Server{Handler: r}).Serve(flags.Listen()))
}

var server = []string{site.Server}

func answer(c *gin.Context, contentType string, body []byte) {
	c.Writer.Header()["Server"] = server
	c.Data(http.StatusOK, contentType, body)
}

func greet(c *gin.Context) { answer(c, site.TextType, site.GreetingBytes) }

func length(c *gin.Context) {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, site.MaxBody))
	if err != nil {
		c.AbortWithStatus(http.StatusBadRequest)
		return
	}
	answer(c, site.TextType, strconv.AppendInt(nil, int64(len(body)), 10))
}
