package main

import (
	"time"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/gofiber/fiber/v3"
)

// stack has the ten middlewares of package site.
func stack() []any {
	handlers := []any{recovered, timed}
	steps := site.Steps(
		func(c fiber.Ctx, name string) string { return c.Get(name) },
		func(c fiber.Ctx, name, value string) { c.Set(name, value) },
	)
	for _, step := range steps {
		handlers = append(handlers, func(c fiber.Ctx) error {
			if status := step(c); status != 0 {
				return fiber.NewError(status)
			}
			return c.Next()
		})
	}
	return append(handlers, func(c fiber.Ctx) error {
		c.Locals(site.UserKey, site.User)
		return c.Next()
	})
}

func recovered(c fiber.Ctx) (err error) {
	defer func() {
		if recover() != nil {
			err = fiber.ErrInternalServerError
		}
	}()
	return c.Next()
}

func timed(c fiber.Ctx) error {
	begin := time.Now()
	err := c.Next()
	site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
	return err
}

func greetUser(c fiber.Ctx) error {
	if user, ok := c.Locals(site.UserKey).(string); !ok || user != site.User {
		return fiber.ErrInternalServerError
	}
	return greet(c)
}
