// Command fiber serves some of the resources of package site by fiber.
package main

import (
	"log"
	"slices"
	"strconv"
	"time"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"
)

func main() {
	flags := site.Parse()
	app := fiber.New(fiber.Config{ServerHeader: site.Server, BodyLimit: site.MaxBody})
	app.Get("/", greet)
	app.Get("/json", func(c fiber.Ctx) error {
		c.Set(fiber.HeaderContentType, site.JSONType)
		return c.Send(site.SmallJSON())
	})
	app.Post("/echo-length", length)
	stacked := app.Group("/middleware", stack()...)
	stacked.Get("/", greetUser)
	for route, names := range flags.GitHub(true) {
		app.Add([]string{route.Method}, route.Path, func(c fiber.Ctx) error {
			if slices.ContainsFunc(names, func(name string) bool { return c.Params(name) == "" }) {
				return fiber.ErrBadRequest
			}
			return greet(c)
		})
	}
	log.Fatal(app.Listener(flags.Listen(), fiber.ListenConfig{DisableStartupMessage: true}))
}

func greet(c fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, site.TextType)
	return c.SendString(site.Greeting)
}

func length(c fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, site.TextType)
	return c.SendString(strconv.Itoa(len(c.Body())))
}

// stack has the ten middlewares of package site.
func stack() []any {
	handlers := []any{recover.New(), timed}
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

func timed(c fiber.Ctx) error {
	defer site.Timed(time.Now())
	return c.Next()
}

func greetUser(c fiber.Ctx) error {
	if user, ok := c.Locals(site.UserKey).(string); !ok || user != site.User {
		return fiber.ErrInternalServerError
	}
	return greet(c)
}
