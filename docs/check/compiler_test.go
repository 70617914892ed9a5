package check

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// compiler checks snippets as Go's compiler would. It imports the packages that the go command has compiled.
type compiler struct {
	fset     *token.FileSet
	importer types.Importer
}

// newCompiler returns a compiler for these snippets, and for further snippets that import only packages of the table known.
func newCompiler(all []snippet) (*compiler, error) {
	packages, err := imports(all)
	if err != nil {
		return nil, err
	}
	const format = "{{if .Export}}{{.ImportPath}}\t{{.Export}}{{end}}"
	command := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", format, "--"}, packages...)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	list, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", command, err, &stderr)
	}
	exports := make(map[string]string)
	for line := range strings.Lines(string(list)) {
		path, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		exports[path] = file
	}
	fset := token.NewFileSet()
	return &compiler{fset, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		file, ok := exports[path]
		if !ok {
			return nil, errors.New("not compiled")
		}
		return os.Open(file)
	})}, nil
}

// check returns the mistakes in a snippet, each with its place in the document.
func (c *compiler) check(s snippet) []error {
	var names []string
	for {
		file, err := parser.ParseFile(c.fset, s.document, s.complete(names), parser.SkipObjectResolution)
		if list, ok := err.(scanner.ErrorList); ok {
			return []error{list[0]} // the first mistake usually causes the others
		}
		missing, errs := c.types(file)
		missing = slices.DeleteFunc(missing, func(name string) bool {
			return known[name] == "" && assumed[name] == "" || slices.Contains(names, name)
		})
		if s.whole() {
			return append(errs, s.format()...)
		}
		if len(missing) == 0 {
			errs = slices.DeleteFunc(errs, unused)
			return append(errs, s.format()...)
		}
		names = append(names, missing...)
	}
}

// unused reports whether err is about a declared name that isn't used. In a snippet that isn't a whole file, code after the snippet may use
// the name.
func unused(err error) bool {
	typeError, ok := err.(types.Error)
	return ok && typeError.Soft
}

// types checks the types of a file. It returns the names that are used but declared nowhere, and the errors.
func (c *compiler) types(file *ast.File) (missing []string, errs []error) {
	info := types.Info{Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: c.importer, Error: func(err error) { errs = append(errs, err) }}
	config.Check("snippet", c.fset, []*ast.File{file}, &info) // config.Error receives all errors, including the one that Check returns

	selected := make(map[*ast.Ident]bool) // the names after a dot: if such a name is unknown, the name in front of the dot is missing
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			selected[n.Sel] = true
		case *ast.Ident:
			if info.Defs[n] == nil && info.Uses[n] == nil && !selected[n] {
				missing = append(missing, n.Name)
			}
		}
		return true
	})
	slices.Sort(missing)
	return slices.Compact(missing), errs
}

// format checks that the code is formatted as by gofmt.
func (s snippet) format() []error {
	parts := []part{{"", s.line, s.code}}
	if !s.whole() {
		parts = s.parts()
	}
	var errs []error
	for _, p := range parts {
		code := strings.TrimSpace(p.code) // blank lines between parts are up to the document
		formatted, err := format.Source([]byte(code))
		if err == nil && strings.TrimSpace(string(formatted)) != code {
			err = errors.New("not as gofmt has it")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", s.document, p.line, err))
		}
	}
	return errs
}

// imports returns the packages that snippets may import: those that they import themselves, and those of the table known.
func imports(all []snippet) ([]string, error) {
	var paths []string
	for _, path := range known {
		paths = append(paths, path)
	}
	for _, s := range all {
		file, err := parser.ParseFile(token.NewFileSet(), s.document, s.complete(nil), parser.ImportsOnly)
		if err != nil {
			return nil, err
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return nil, err
			}
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}
