package docs

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The README of each module in contrib is its package comment, and contrib/README.md lists all of them.
func TestContribDocuments(t *testing.T) {
	modules, err := filepath.Glob(root + "/contrib/*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatalf("no modules in contrib: %v", err)
	}
	index := "# contrib\n\nModules for what needs a dependency that most programs don't have. Each is versioned by itself.\n\n" +
		"| module | |\n| --- | --- |\n"
	for _, module := range modules {
		folder := filepath.Dir(module)
		text, err := os.ReadFile(module)
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		path, name := strings.TrimPrefix(line, "module "), filepath.Base(folder)
		pkg := packageOf(t, folder, path)
		markdown := pkg.Printer()
		markdown.HeadingLevel, markdown.HeadingID = 2, func(*comment.Heading) string { return "" }
		text = markdown.Markdown(pkg.Parser().Parse(pkg.Doc))
		is(t, "contrib/"+name+"/README.md", fmt.Sprintf("# %s\n\n%s\n[All of its API, with examples](https://pkg.go.dev/%s)\n", name, text, path))
		synopsis := strings.TrimPrefix(pkg.Synopsis(pkg.Doc), "Package "+pkg.Name+" ")
		index += fmt.Sprintf("| [%s](%s) | %s |\n", name, name, synopsis)
	}
	index += "\nUntil there is a tag, see [how the module comes from a clone](../README.md#first-program).\n"
	is(t, "contrib/README.md", index)
}

// packageOf reads the package in a folder.
func packageOf(t *testing.T, folder, path string) *doc.Package {
	t.Helper()
	names, err := filepath.Glob(folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	fileSet, files := token.NewFileSet(), []*ast.File(nil)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fileSet, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	pkg, err := doc.NewFromFiles(fileSet, files, path)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}
