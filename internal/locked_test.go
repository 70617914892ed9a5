package internal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// A method whose name ends in Locked must be called with its receiver's lock held, and must begin by asserting that (see race.Mutex). The test checks
// the root and the packages below it.
func TestLockedMethodsAssert(t *testing.T) {
	folders := []string{".."}
	for _, layer := range layers {
		folders = append(folders, strings.TrimPrefix(layer, "internal/"))
	}
	found := 0
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, declared := range file.Decls {
				f, ok := declared.(*ast.FuncDecl)
				if !ok || !strings.HasSuffix(f.Name.Name, "Locked") {
					continue
				}
				if found++; !beginsWithAssertion(f) {
					t.Errorf("%s: %s doesn't begin with AssertHeld of its lock", name, f.Name.Name)
				}
			}
		}
	}
	if found == 0 {
		t.Error("there are no such methods")
	}
}

func beginsWithAssertion(f *ast.FuncDecl) bool {
	if len(f.Body.List) == 0 {
		return false
	}
	statement, ok := f.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "AssertHeld"
}
