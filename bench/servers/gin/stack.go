package main

import (
	"net/http"
	"time"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/gin-gonic/gin"
)

// These are the ten middlewares of site.Stack.

func recovered(c *gin.Context) {
	defer func() {
		if recover() != nil {
			c.AbortWithStatus(http.StatusInternalServerError)
		}
	}()
	c.Next()
}

func requestID(c *gin.Context) {
	id := c.GetHeader(site.RequestID)
	if id == "" {
		id = site.NoRequestID
	}
	c.Header(site.RequestID, id)
	c.Next()
}

func counted(c *gin.Context) {
	site.Stack.Requests.Add(1)
	c.Next()
}

func timed(c *gin.Context) {
	begin := time.Now()
	c.Next()
	site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
}

func field(nameValue [2]string) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Header(nameValue[0], nameValue[1])
		c.Next()
	}
}

func authorized(c *gin.Context) {
	if given := c.GetHeader("Authorization"); given != "" && given != site.Authorization {
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.Next()
}

func forwarded(c *gin.Context) {
	if site.TooMany(c.GetHeader("X-Forwarded-For")) {
		c.AbortWithStatus(http.StatusBadRequest)
		return
	}
	c.Next()
}

func withUser(c *gin.Context) {
	c.Set(site.UserKey, site.User)
	c.Next()
}

func greetUser(c *gin.Context) {
	if c.GetString(site.UserKey) != site.User {
		c.AbortWithStatus(http.StatusInternalServerError)
		return
	}
	greet(c)
}
