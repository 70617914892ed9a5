package main

import (
	"time"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/labstack/echo/v5"
)

// These are the ten middlewares of site.Stack.

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

func requestID(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		id := c.Request().Header.Get(site.RequestID)
		if id == "" {
			id = site.NoRequestID
		}
		c.Response().Header().Set(site.RequestID, id)
		return next(c)
	}
}

func counted(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		site.Stack.Requests.Add(1)
		return next(c)
	}
}

func timed(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		begin := time.Now()
		err := next(c)
		site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
		return err
	}
}

func field(nameValue [2]string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Response().Header().Set(nameValue[0], nameValue[1])
			return next(c)
		}
	}
}

func authorized(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		if given := c.Request().Header.Get("Authorization"); given != "" && given != site.Authorization {
			return echo.ErrUnauthorized
		}
		return next(c)
	}
}

func forwarded(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		if site.TooMany(c.Request().Header.Get("X-Forwarded-For")) {
			return echo.ErrBadRequest
		}
		return next(c)
	}
}

func withUser(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		c.Set(site.UserKey, site.User)
		return next(c)
	}
}

func greetUser(c *echo.Context) error {
	if user, ok := c.Get(site.UserKey).(string); !ok || user != site.User {
		return echo.ErrInternalServerError
	}
	return greet(c)
}
