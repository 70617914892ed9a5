// Package prerouting knows the middleware that changes what a router looks at, and so is of no use inside of one.
package prerouting

import (
	"reflect"
	"sync"

	"github.com/filohttp/filo"
)

// names has what middleware is called, by the code that it runs. All that a constructor returns shares that.
var names sync.Map

// Mark returns m, and has routers refuse it and all middleware of the same code by the name.
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
