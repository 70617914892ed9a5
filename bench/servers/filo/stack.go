package main

import (
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bench/internal/site"
)

// stack puts the ten middlewares of site.Stack around h.
func stack(h filo.Handler) filo.Handler {
	all := []filo.Middleware{
		recovered, requestID, counted, timed,
		field(site.SecurityFields[0]), field(site.SecurityFields[1]), field(site.SecurityFields[2]),
		authorized, forwarded, withUser,
	}
	for i := len(all) - 1; i >= 0; i-- {
		h = all[i](h)
	}
	return h
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

func requestID(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		if id := c.Request.Header.GetBytes(site.RequestID); id != nil {
			c.Response.Header.SetBytes(site.RequestID, id)
		} else {
			c.Response.Header.Set(site.RequestID, site.NoRequestID)
		}
		return next(c)
	}
}

func counted(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		site.Stack.Requests.Add(1)
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

func field(nameValue [2]string) filo.Middleware {
	field := filo.NewField(nameValue[0], nameValue[1])
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.Response.Header.SetField(&field)
			return next(c)
		}
	}
}

func authorized(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		if given := c.Request.Header.GetBytes("Authorization"); len(given) > 0 && string(given) != site.Authorization {
			return filo.Error(401, "not authorized")
		}
		return next(c)
	}
}

func forwarded(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		if site.TooMany(c.Request.Header.GetBytes("X-Forwarded-For")) {
			return filo.Error(400, "forwarded too often")
		}
		return next(c)
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
