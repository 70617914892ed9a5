// Command fiber serves some of the resources of package site with fiber.
package main

import (
	"log"
	"slices"
	"strconv"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/gofiber/fiber/v3"
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
