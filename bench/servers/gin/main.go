// Command gin serves some of the resources of package site by gin on net/http.
package main

import (
	"io"
	"log"
	"net/http"
	"slices"
	"strconv"
	"time"

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
	r.GET("/middleware", stack()...)
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

// stack has the ten middlewares of package site, and the handler.
func stack() []gin.HandlerFunc {
	handlers := []gin.HandlerFunc{gin.Recovery(), timed}
	steps := site.Steps((*gin.Context).GetHeader, func(c *gin.Context, name, value string) { c.Header(name, value) })
	for _, step := range steps {
		handlers = append(handlers, func(c *gin.Context) {
			if status := step(c); status != 0 {
				c.AbortWithStatus(status)
			}
		})
	}
	return append(handlers, func(c *gin.Context) { c.Set(site.UserKey, site.User) }, greetUser)
}

func timed(c *gin.Context) {
	defer site.Timed(time.Now())
	c.Next()
}

func greetUser(c *gin.Context) {
	if c.GetString(site.UserKey) != site.User {
		c.AbortWithStatus(http.StatusInternalServerError)
		return
	}
	greet(c)
}
