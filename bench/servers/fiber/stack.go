package main

import (
	"time"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/gofiber/fiber/v3"
)

// These are the ten middlewares of site.Stack.

func recovered(c fiber.Ctx) (err error) {
	defer func() {
		if recover() != nil {
			err = fiber.ErrInternalServerError
		}
	}()
	return c.Next()
}

func requestID(c fiber.Ctx) error {
	c.Set(site.RequestID, c.Get(site.RequestID, site.NoRequestID))
	return c.Next()
}

func counted(c fiber.Ctx) error {
	site.Stack.Requests.Add(1)
	return c.Next()
}

func timed(c fiber.Ctx) error {
	begin := time.Now()
	err := c.Next()
	site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
	return err
}

func field(nameValue [2]string) fiber.Handler {
	return func(c fiber.Ctx) error {
		c.Set(nameValue[0], nameValue[1])
		return c.Next()
	}
}

func authorized(c fiber.Ctx) error {
	if given := c.Get("Authorization"); given != "" && given != site.Authorization {
		return fiber.ErrUnauthorized
	}
	return c.Next()
}

func forwarded(c fiber.Ctx) error {
	if site.TooMany(c.Get("X-Forwarded-For")) {
		return fiber.ErrBadRequest
	}
	return c.Next()
}

func withUser(c fiber.Ctx) error {
	c.Locals(site.UserKey, site.User)
	return c.Next()
}

func greetUser(c fiber.Ctx) error {
	if user, ok := c.Locals(site.UserKey).(string); !ok || user != site.User {
		return fiber.ErrInternalServerError
	}
	return greet(c)
}
