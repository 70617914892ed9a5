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

// The README of each module in contrib is its package comment, and contrib/README.md lists all modules. While README.md has lines for readers
// before the first release, so has the README of each module. The command release removes all these lines.
func TestContribDocuments(t *testing.T) {
	tagged := !strings.Contains(read(t, "README.md"), untilTagged)
	index := "# contrib\n\nModules that need a dependency which most programs don't have. Each is a Go module of its own, released\nwith filo under the same version. Its README has the commands that install it.\n\n" +
		"| module | |\n| --- | --- |\n"
	for _, folder := range contribModules(t) {
		pkg, name := modulePackage(t, folder), filepath.Base(folder)
		markdown := pkg.Printer()
		markdown.HeadingLevel, markdown.HeadingID = 2, func(*comment.Heading) string { return "" }
		text := string(markdown.Markdown(pkg.Parser().Parse(pkg.Doc)))
		if !tagged {
			text = strings.Replace(text, installLine(pkg), installLine(pkg)+instead(pkg, name), 1)
		}
		is(t, "contrib/"+name+"/README.md", fmt.Sprintf("# %s\n\n%s\n[All of its API, with examples](https://pkg.go.dev/%s)\n", name, text, pkg.ImportPath))
		synopsis := strings.TrimPrefix(pkg.Synopsis(pkg.Doc), "Package "+pkg.Name+" ")
		index += fmt.Sprintf("| [%s](%s) | %s |\n", name, name, synopsis)
	}
	is(t, "contrib/README.md", index)
}

// untilTagged is in each line for readers before the first release.
const untilTagged = "ntil v0.1.0 is tagged"

// installLine is the command that installs a module, in the form in which its package comment contains it.
func installLine(pkg *doc.Package) string { return "\n\tgo get " + pkg.ImportPath + "@latest\n" }

// instead returns the lines that a reader writes in place of the install line until a version is tagged.
func instead(pkg *doc.Package, name string) string {
	text := "\nUntil v0.1.0 is tagged, write these lines instead, use the package in your program, and call `go mod tidy`:\n\n"
	for _, command := range []string{
		"git clone https://github.com/filohttp/filo ../filo",
		"go mod edit -replace github.com/filohttp/filo=../filo",
		"go mod edit -replace " + pkg.ImportPath + "=../filo/contrib/" + name,
	} {
		text += "\t" + command + "    # u" + untilTagged + "\n"
	}
	return text
}

// The page of each module for users has the command that installs it.
func TestInstallLines(t *testing.T) {
	for _, folder := range append(contribModules(t), root) {
		pkg := modulePackage(t, folder)
		if !strings.Contains(pkg.Doc, installLine(pkg)) {
			t.Errorf("no package comment in %s has%s", folder, installLine(pkg))
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
