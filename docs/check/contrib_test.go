package check

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
	index := "# contrib\n\nModules that need a dependency which most programs don't have. Each is a Go module of its own, released\nwith filo under the same version.\n\n" +
		"| module | |\n| --- | --- |\n"
	for _, folder := range contribModules(t) {
		pkg, name := modulePackage(t, folder), filepath.Base(folder)
		markdown := pkg.Printer()
		markdown.HeadingLevel, markdown.HeadingID = 2, func(*comment.Heading) string { return "" }
		text := markdown.Markdown(pkg.Parser().Parse(pkg.Doc))
		is(t, "contrib/"+name+"/README.md", fmt.Sprintf("# %s\n\n%s\n[All of its API, with examples](https://pkg.go.dev/%s)\n", name, text, pkg.ImportPath))
		synopsis := strings.TrimPrefix(pkg.Synopsis(pkg.Doc), "Package "+pkg.Name+" ")
		index += fmt.Sprintf("| [%s](%s) | %s |\n", name, name, synopsis)
	}
	index += "\nUntil v0.1.0 is tagged, they come from the clone of [the first program](../README.md#first-program), by a line for each one that is used,\n" +
		"before `go mod tidy`:\n\n"
	for _, folder := range contribModules(t) {
		name := filepath.Base(folder)
		index += fmt.Sprintf("    go mod edit -replace %s=../filo/contrib/%s\n", modulePackage(t, folder).ImportPath, name)
	}
	is(t, "contrib/README.md", index)
}

// The page of each module for users has the command that installs it.
func TestInstallLines(t *testing.T) {
	for _, folder := range append(contribModules(t), root) {
		pkg := modulePackage(t, folder)
		if want := "\n\tgo get " + pkg.ImportPath + "@latest\n"; !strings.Contains(pkg.Doc, want) {
			t.Errorf("no package comment in %s has%s", folder, want)
		}
	}
}

// contribModules returns the folders of the modules in contrib.
func contribModules(t *testing.T) (folders []string) {
	t.Helper()
	modules, err := filepath.Glob(root + "/contrib/*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatalf("no modules in contrib: %v", err)
	}
	for _, module := range modules {
		folders = append(folders, filepath.Dir(module))
	}
	return folders
}

// modulePackage reads the package in the folder of a module.
func modulePackage(t *testing.T, folder string) *doc.Package {
	t.Helper()
	module, err := os.ReadFile(folder + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(module), "\n")
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
	pkg, err := doc.NewFromFiles(fileSet, files, strings.TrimPrefix(line, "module "))
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}
