package main

import (
	"slices"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bench/internal/site"
)

// stack puts the ten middlewares of package site around greetUser.
func stack() filo.Handler {
	steps := site.Steps(
		func(c *filo.Ctx, name string) []byte { return c.Request.Header.GetBytes(name) },
		func(c *filo.Ctx, name string, value []byte) { c.Response.Header.SetBytes(name, value) },
	)
	h := withUser(greetUser)
	for _, step := range slices.Backward(steps) {
		next := h
		h = func(c *filo.Ctx) error {
			if status := step(c); status != 0 {
				return filo.Error(status, "refused")
			}
			return next(c)
		}
	}
	return recovered(timed(h))
}

func recovered(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) (err error) {
		defer func() {
			if recover() != nil {
				err = filo.Error(500, "the handler panicked")
			}
		}()
		return next(c)
	}
}

func timed(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		begin := time.Now()
		err := next(c)
		site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
		return err
	}
}

var userKey = filo.NewKey[string](site.UserKey)

func withUser(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		userKey.Set(c, site.User)
		return next(c)
	}
}

func greetUser(c *filo.Ctx) error {
	if user, ok := userKey.Get(c); !ok || user != site.User {
		return filo.Error(500, "no user")
	}
	return greet(c)
}
