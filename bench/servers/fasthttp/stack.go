package main

import (
	"time"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/valyala/fasthttp"
)

type middleware func(fasthttp.RequestHandler) fasthttp.RequestHandler

// stack puts the ten middlewares of site.Stack around h.
func stack(h fasthttp.RequestHandler) fasthttp.RequestHandler {
	all := []middleware{
		recovered, requestID, counted, timed,
		field(site.SecurityFields[0]), field(site.SecurityFields[1]), field(site.SecurityFields[2]),
		authorized, forwarded, withUser,
	}
	for i := len(all) - 1; i >= 0; i-- {
		h = all[i](h)
	}
	return h
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

func requestID(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if id := ctx.Request.Header.Peek(site.RequestID); id != nil {
			ctx.Response.Header.SetBytesV(site.RequestID, id)
		} else {
			ctx.Response.Header.Set(site.RequestID, site.NoRequestID)
		}
		next(ctx)
	}
}

func counted(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		site.Stack.Requests.Add(1)
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

func field(nameValue [2]string) middleware {
	return func(next fasthttp.RequestHandler) fasthttp.RequestHandler {
		return func(ctx *fasthttp.RequestCtx) {
			ctx.Response.Header.Set(nameValue[0], nameValue[1])
			next(ctx)
		}
	}
}

func authorized(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if given := ctx.Request.Header.Peek("Authorization"); len(given) > 0 && string(given) != site.Authorization {
			ctx.Error("not authorized", 401)
			return
		}
		next(ctx)
	}
}

func forwarded(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if site.TooMany(ctx.Request.Header.Peek("X-Forwarded-For")) {
			ctx.Error("forwarded too often", 400)
			return
		}
		next(ctx)
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
