package internal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// decisions are the names, used in the root package, that stand for decisions which are taken in one place each, and the functions that may
// use them. Another use is mostly a second place for the same decision: it belongs into the first one.
var decisions = []struct {
	what  string
	names []string // of functions, methods and constants
	users []string // functions and methods, as "name" or "type.name"
}{
	{"where a handler runs", []string{"mayStay", "queueUp"}, []string{
		"scratch.admit",
		"carried.enterServer", // no loop has read its request
		"carried.queueUp",     // a part waits in the request around it
	}},
	{"who waits for a place", []string{"JoinQueue", "AwaitPlace"}, []string{"Server.joinQueue", "exchange.awaitPlace"}},
}

func TestDecisions(t *testing.T) {
	files, err := filepath.Glob("../*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	found := make(map[string][]string) // the users of each name
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && !slices.Contains(found[id.Name], funcName(f)) {
					found[id.Name] = append(found[id.Name], funcName(f))
				}
				return true
			})
		}
	}
	for _, d := range decisions {
		used := make(map[string]bool)
		for _, name := range d.names {
			if len(found[name]) == 0 {
				t.Errorf("%s: nothing uses %s", d.what, name)
			}
			for _, user := range found[name] {
				if used[user] = true; !slices.Contains(d.users, user) {
					t.Errorf("%s is decided in %v: %s uses %s, too", d.what, d.users, user, name)
				}
			}
		}
		for _, user := range d.users {
			if !used[user] {
				t.Errorf("%s: %s uses none of %v", d.what, user, d.names)
			}
		}
	}
}

// funcName returns "name", or "type.name" for a method.
func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
