package main

import (
	"time"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/labstack/echo/v5"
)

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
	return append(middlewares, withUser)
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
		begin := time.Now()
		err := next(c)
		site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
		return err
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
