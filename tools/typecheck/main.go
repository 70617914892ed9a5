// Command typecheck type-checks the packages of a module, and their tests, for other systems.
//
//	typecheck darwin/arm64 linux/386
//
// It checks the module in the working directory. It type-checks all dependencies from source, including the standard library. `go vet` would compile
// these for each system, which takes minutes.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	failed := false
	for _, system := range os.Args[1:] {
		problems, err := check(".", system)
		for _, problem := range problems {
			fmt.Fprintf(os.Stderr, "%s: %s\n", system, problem)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "typecheck: %s: %v\n", system, err)
		}
		failed = failed || err != nil || len(problems) > 0
	}
	if failed {
		os.Exit(1)
	}
}

// check returns the type errors in the packages of the module in a folder, for a system such as linux/386.
func check(folder, system string) (problems []string, err error) {
	name, processor, ok := strings.Cut(system, "/")
	if !ok {
		return nil, fmt.Errorf("a system is written as linux/386")
	}
	all, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes,
		Dir: folder, Tests: true,
		Env: append(os.Environ(), "GOOS="+name, "GOARCH="+processor, "CGO_ENABLED=0"),
	}, "./...")
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no packages in %s", folder)
	}
	for _, p := range all {
		for _, problem := range p.Errors {
			if text := problem.Error(); !slices.Contains(problems, text) { // a package occurs twice, with and without its tests
				problems = append(problems, text)
			}
		}
	}
	return problems, nil
}
