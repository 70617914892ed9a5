package main

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
)

// addWork adds routes that do work of the kinds that are typical of servers.
func (a *app) addWork(g *router.Group) {
	g.GET("/quick", quick)
	g.GET("/users/{id:int}", a.user)
	g.GET("/orders/{id:int}", a.order)
	g.GET("/export", a.export)
}

// quick answers at once.
func quick(c *filo.Ctx) error { return c.Text(200, "hello\n") }

// user sends the backend one query.
func (a *app) user(c *filo.Ctx) error {
	if err := a.backend.query(c.Context(), "find user", 5*time.Millisecond); err != nil {
		return err
	}
	return c.JSON(200, map[string]string{"user": c.Param("id")})
}

// order sends the backend two queries at the same time, and then another one. One order in ten is broken, and some don't exist.
func (a *app) order(c *filo.Ctx) error {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil {
		return filo.Error(404, "there is no such order")
	}
	ctx := c.Context()
	var both sync.WaitGroup
	both.Go(func() { err = a.backend.query(ctx, "find order", 6*time.Millisecond) })
	both.Go(func() { a.backend.query(ctx, "find prices", 9*time.Millisecond) })
	both.Wait()
	switch {
	case err != nil:
		return err
	case id%10 == 0:
		return a.backend.fail(ctx, "add up prices", fmt.Errorf("order %d has no prices", id))
	case id%7 == 0:
		return filo.Error(404, "there is no such order")
	}
	if err := a.backend.query(ctx, "add up prices", 2*time.Millisecond); err != nil {
		return err
	}
	return c.JSON(200, map[string]int64{"order": id, "total": id * 7})
}

// export sends each line as soon as it is available.
func (a *app) export(c *filo.Ctx) error {
	ctx := c.Context()
	c.Response.Header.Set("Content-Type", "text/csv; charset=utf-8")
	w := c.Stream()
	for i := range 5 {
		if err := a.backend.query(ctx, "next page", 4*time.Millisecond); err != nil {
			return err
		}
		fmt.Fprintf(w, "%d,%d\n", i, i*i)
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}
