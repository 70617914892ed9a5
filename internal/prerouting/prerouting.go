// Package prerouting records middleware that changes what a router routes by, such as the path. Such middleware has no effect inside a router, which
// has already routed the request.
package prerouting

import (
	"reflect"
	"sync"

	"github.com/filohttp/filo"
)

// names maps the code pointer of such middleware to its name. All middleware that one constructor returns has the same code pointer.
var names sync.Map

// Mark records m under a name, and returns m. From then on, routers refuse m and all other middleware with the same code pointer, with a message that
// contains the name.
func Mark(name string, m filo.Middleware) filo.Middleware {
	names.Store(reflect.ValueOf(m).Pointer(), name)
	return m
}

// NameOf returns the name with which m was marked, or "" if it wasn't marked.
func NameOf(m filo.Middleware) string {
	name, _ := names.Load(reflect.ValueOf(m).Pointer())
	text, _ := name.(string)
	return text
}
