package main

import (
	"slices"
	"time"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/valyala/fasthttp"
)

// stack puts the ten middlewares of package site around greetUser.
func stack() fasthttp.RequestHandler {
	steps := site.Steps(
		func(ctx *fasthttp.RequestCtx, name string) []byte { return ctx.Request.Header.Peek(name) },
		func(ctx *fasthttp.RequestCtx, name string, value []byte) { ctx.Response.Header.SetBytesV(name, value) },
	)
	h := withUser(greetUser)
	for _, step := range slices.Backward(steps) {
		next := h
		h = func(ctx *fasthttp.RequestCtx) {
			if status := step(ctx); status != 0 {
				ctx.Error("refused", status)
				return
			}
			next(ctx)
		}
	}
	return recovered(timed(h))
}

func recovered(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		defer func() {
			if recover() != nil {
				ctx.Error("the handler panicked", 500)
			}
		}()
		next(ctx)
	}
}

func timed(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		begin := time.Now()
		next(ctx)
		site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
	}
}

func withUser(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		ctx.SetUserValue(site.UserKey, site.User)
		next(ctx)
	}
}

func greetUser(ctx *fasthttp.RequestCtx) {
	if user, ok := ctx.UserValue(site.UserKey).(string); !ok || user != site.User {
		ctx.Error("no user", 500)
		return
	}
	greet(ctx)
}
