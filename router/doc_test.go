package router_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/filohttp/filo/router"
)

// "go doc" shows each method of a Router and of a Group with its type.
func TestDocumented(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	documented, err := doc.NewFromFiles(set, files, "github.com/filohttp/filo/router")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []reflect.Type{reflect.TypeFor[*router.Router](), reflect.TypeFor[*router.Group]()} {
		at := slices.IndexFunc(documented.Types, func(each *doc.Type) bool { return each.Name == of.Elem().Name() })
		if at < 0 {
			t.Fatalf("%v isn't documented", of)
		}
		for i := range of.NumMethod() {
			method := of.Method(i)
			if !slices.ContainsFunc(documented.Types[at].Methods, func(f *doc.Func) bool { return f.Name == method.Name && f.Doc != "" }) {
				t.Errorf("%v has a method %s that isn't documented", of, method.Name)
			}
		}
	}
}
