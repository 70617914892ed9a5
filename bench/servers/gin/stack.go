package main

import (
	"net/http"
	"time"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/gin-gonic/gin"
)

// stack has the ten middlewares of package site, and the handler.
func stack() []gin.HandlerFunc {
	handlers := []gin.HandlerFunc{recovered, timed}
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

func recovered(c *gin.Context) {
	defer func() {
		if recover() != nil {
			c.AbortWithStatus(http.StatusInternalServerError)
		}
	}()
	c.Next()
}

func timed(c *gin.Context) {
	begin := time.Now()
	c.Next()
	site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
}

func greetUser(c *gin.Context) {
	if c.GetString(site.UserKey) != site.User {
		c.AbortWithStatus(http.StatusInternalServerError)
		return
	}
	greet(c)
}
