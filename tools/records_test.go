package tools

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// Values in log records look the same in text and in JSON, as strings, numbers, booleans and errors do. Values of other types don't: in JSON a
// time.Duration is a number without a unit, a named number such as an enumeration loses its name, and a struct has another form. The test covers the
// code that users run.
func TestLoggedValues(t *testing.T) {
	modules := []string{"..", "../deploy"}
	contrib, err := filepath.Glob("../contrib/*/go.mod")
	if err != nil || len(contrib) == 0 {
		t.Fatal(contrib, err)
	}
	for _, name := range contrib {
		modules = append(modules, filepath.Dir(name))
	}
	checked := 0
	for _, module := range modules {
		patterns := withLogs(t, module)
		if len(patterns) == 0 {
			continue
		}
		// For dependencies only the types are needed, which are in the compiler's export data.
		all, err := packages.Load(&packages.Config{Dir: module, Mode: packages.NeedName | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedExportFile | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo}, patterns...)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if len(p.Errors) > 0 {
				t.Fatalf("%s: %v", p.PkgPath, p.Errors)
			}
			n, faults := loggedValues(p)
			checked += n
			for _, fault := range faults {
				t.Error(fault)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d values were found", checked)
	}
}

// withLogs returns patterns for the packages of a module that use package slog. Loading all packages would take minutes.
func withLogs(t *testing.T, module string) (patterns []string) {
	t.Helper()
	err := filepath.WalkDir(module, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != module {
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil || strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" {
				return fs.SkipDir
			}
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if pattern := "./" + filepath.Dir(strings.TrimPrefix(name, module+"/")); bytes.Contains(text, []byte(`"log/slog"`)) && !slices.Contains(patterns, pattern) {
			patterns = append(patterns, pattern)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return patterns
}

// loggedValues returns how many values for log records a package has, and which of them don't look the same in both formats. It finds them in the
// arguments of package slog's functions and of a *slog.Logger's methods, and in each []any that alternates names and values.
func loggedValues(p *packages.Package) (checked int, faults []string) {
	if p.Imports["log/slog"] == nil {
		return 0, nil
	}
	check := func(key, value ast.Expr) {
		checked++
		if t := p.TypesInfo.Types[value].Type; !sameInBoth(t) {
			faults = append(faults, fmt.Sprintf("%s: %s is logged as %s: log a string, a number or an error",
				p.Fset.Position(value.Pos()), types.ExprString(key), t))
		}
	}
	pairs := func(list []ast.Expr) {
		for len(list) > 1 {
			if key := p.TypesInfo.Types[list[0]]; key.Value == nil || !types.Identical(key.Type.Underlying(), types.Typ[types.String]) {
				list = list[1:] // list[0] isn't a name, but a nested list or a slog.Attr
				continue
			}
			check(list[0], list[1])
			list = list[2:]
		}
	}
	for _, file := range p.Syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if slice, ok := p.TypesInfo.Types[n].Type.Underlying().(*types.Slice); ok && isAny(slice.Elem()) {
					pairs(n.Elts)
				}
			case *ast.CallExpr:
				if at := firstLogged(p, n); at >= 0 && at < len(n.Args) {
					pairs(n.Args[at:])
				}
			}
			return true
		})
	}
	return checked, faults
}

// firstLogged returns the index of the first argument of a call that is, or may be, the name of a value in a log record, or -1 if there is none.
func firstLogged(p *packages.Package, call *ast.CallExpr) int {
	var name *ast.Ident
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		name = f
	case *ast.SelectorExpr:
		name = f.Sel
	default:
		return -1
	}
	switch object := p.TypesInfo.Uses[name].(type) {
	case *types.Builtin:
		if object.Name() != "append" {
			return -1
		}
		if slice, ok := p.TypesInfo.Types[call.Args[0]].Type.Underlying().(*types.Slice); ok && isAny(slice.Elem()) {
			return 1
		}
	case *types.Func:
		signature := object.Signature()
		if object.Pkg() == nil || object.Pkg().Path() != "log/slog" || signature.Params().Len() == 0 {
			return -1
		}
		if object.Name() == "Any" || object.Name() == "Duration" {
			return 0
		}
		last := signature.Params().At(signature.Params().Len() - 1).Type()
		if slice, ok := last.(*types.Slice); ok && signature.Variadic() && isAny(slice.Elem()) {
			return signature.Params().Len() - 1
		}
	}
	return -1
}

func isAny(t types.Type) bool {
	i, ok := t.Underlying().(*types.Interface)
	return ok && i.Empty()
}

// sameInBoth reports whether values of a type look the same in both formats.
func sameInBoth(t types.Type) bool {
	if methods := types.NewMethodSet(t); methods.Lookup(nil, "LogValue") != nil {
		return true
	} else if _, isInterface := t.Underlying().(*types.Interface); isInterface {
		return methods.Lookup(nil, "Error") != nil || isAny(t) // a result of LoggedError, or a parameter, whose argument is checked in the call
	}
	basic, ok := types.Unalias(t).(*types.Basic)
	return ok && basic.Info()&(types.IsBoolean|types.IsNumeric|types.IsString) != 0
}

// loggedValues finds values that don't look the same.
func TestLoggedValuesFindsSome(t *testing.T) {
	const source = `package p
import ("log/slog"; "time"; "errors")
type named int
type located struct{ error }
func (located) LogValue() slog.Value { return slog.Value{} }
func f(l *slog.Logger, d time.Duration, n named, err error) {
	l.Info("m", "a", d, "b", d.String(), "c", err, "d", 1, "e", located{err})
	known := append([]any{"f", n}, "g", struct{}{})
	l.With("h", d).Error("m", append(known, "i", d)...)
	slog.Warn("m", slog.Any("j", d), slog.Duration("k", d), slog.String("l", ""), "m", []string(nil))
	_ = errors.New("n")
}
`
	all, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Overlay: map[string][]byte{overlaid(t): []byte(source)}}, "file="+overlaid(t))
	if err != nil || len(all) != 1 || len(all[0].Errors) > 0 {
		t.Fatal(all, err)
	}
	_, faults := loggedValues(all[0])
	var found []string
	for _, fault := range faults {
		_, rest, _ := strings.Cut(fault, `: "`)
		found = append(found, rest[:1])
	}
	slices.Sort(found)
	if got := strings.Join(found, ""); got != "afghijkm" {
		t.Errorf("found %q: %q", got, faults)
	}
}

func overlaid(t *testing.T) string {
	t.Helper()
	name, err := filepath.Abs("overlaid/p.go")
	if err != nil {
		t.Fatal(err)
	}
	return name
}
