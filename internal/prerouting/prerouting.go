// Package prerouting knows the middleware that changes what a router looks at, and which is therefore useless inside of a router.
package prerouting

import (
	"reflect"
	"sync"

	"github.com/filohttp/filo"
)

// names has the names of such middleware, by its code. All middleware that a constructor returns has the same code.
var names sync.Map

// Mark returns m. From then on, routers refuse m and all other middleware with the same code; their message contains the name.
func Mark(name string, m filo.Middleware) filo.Middleware {
	names.Store(reflect.ValueOf(m).Pointer(), name)
	return m
}

// NameOf returns the name that m was marked with, "" if it wasn't.
func NameOf(m filo.Middleware) string {
	name, _ := names.Load(reflect.ValueOf(m).Pointer())
	text, _ := name.(string)
	return text
}
