package docs

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page of each module for users says by which command it is installed.
func TestInstallLines(t *testing.T) {
	const root = "../.."
	modules, err := filepath.Glob(root + "/contrib/*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatalf("no modules in contrib: %v", err)
	}
	for _, module := range append(modules, root+"/go.mod") {
		text, err := os.ReadFile(module)
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		want := "\n\tgo get " + strings.TrimPrefix(line, "module ") + "@latest\n"
		packages, err := filepath.Glob(filepath.Dir(module) + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, name := range packages {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			found = found || file.Doc != nil && strings.Contains(file.Doc.Text(), want)
		}
		if !found {
			t.Errorf("no package comment in %s has%s", filepath.Dir(module), want)
		}
	}
}
