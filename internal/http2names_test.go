package internal

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// HTTP/2's connections and streams are to go below the root: neither their fields nor their methods name what is the handler's or the workers'.
// That belongs to http2Exchange.
func TestHTTP2Names(t *testing.T) {
	above := []string{"Ctx", "Request", "scratch", "workerPool", "class", "http2Exchange"}
	// What is still to be done.
	left := map[string][]string{}
	types := []string{"http2Conn", "http2Stream", "http2Request", "http2Pending", "http2Filling", "http2Reading", "http2Turn"}
	names := make(map[string][]string)
	for _, declared := range rootDecls(t) {
		for what, node := range declarationsOf(declared) {
			if owner, _, _ := strings.Cut(what, "."); !slices.Contains(types, owner) {
				continue
			}
			for id := range identsIn(node) {
				if slices.Contains(above, id) && !slices.Contains(names[what], id) {
					names[what] = append(names[what], id)
				}
			}
		}
	}
	for what, found := range names {
		for _, name := range found {
			if !slices.Contains(left[what], name) {
				t.Errorf("%s names %s", what, name)
			}
		}
	}
	for what, listed := range left {
		for _, name := range listed {
			if !slices.Contains(names[what], name) {
				t.Errorf("%s doesn't name %s any more: take it off the list", what, name)
			}
		}
	}
}

// declarationsOf returns what declares types and methods: a type by its name, a method by those of its type and its own.
func declarationsOf(declared ast.Decl) map[string]ast.Node {
	found := make(map[string]ast.Node)
	switch d := declared.(type) {
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if named, ok := spec.(*ast.TypeSpec); ok {
				found[named.Name.Name] = named
			}
		}
	case *ast.FuncDecl:
		if d.Recv != nil {
			found[funcName(d)] = d
		}
	}
	return found
}
