package check

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// givenTypes are the types of the variables with which inline code may begin; it may also begin with a package.
var givenTypes = map[string]string{"c": "filo.Ctx", "r": "router.Router", "s": "filo.Server"}

var (
	span  = regexp.MustCompile("`([^`]+)`")
	chain = regexp.MustCompile(`\b([a-z]+)((?:\.[A-Z]\w*)+)`)
	call  = regexp.MustCompile(`\([^()]*\)`)
)

// names returns the names in the inline code of a text, such as c.Request.Query.Int. Calls are left out.
func names(text string) []string {
	var found []string
	for _, match := range span.FindAllStringSubmatch(text, -1) {
		for _, name := range chain.FindAllString(call.ReplaceAllString(match[1], ""), -1) {
			base, _, _ := strings.Cut(name, ".")
			if known[base] != "" || givenTypes[base] != "" {
				found = append(found, name)
			}
		}
	}
	return found
}

// Each name in inline code is the name of an existing package, function, method or field. In tables that compare frameworks, only the last
// column is checked.
func TestNames(t *testing.T) {
	c, err := newCompiler(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range documents {
		text := fenced.ReplaceAllStringFunc(read(t, document), func(block string) string {
			return strings.Repeat("\n", strings.Count(block, "\n")) // lines keep their numbers
		})
		found := 0
		for i, line := range strings.Split(text, "\n") {
			if document == "docs/MIGRATING.md" {
				cells := strings.Split(strings.TrimSuffix(line, " |"), " | ")
				line = cells[len(cells)-1]
				if len(cells) < 2 {
					continue
				}
			}
			for _, name := range names(line) {
				found++
				if err := c.lookUp(name); err != nil {
					t.Errorf("%s:%d: %v", document, i+1, err)
				}
			}
		}
		if found == 0 {
			t.Errorf("%s has no names in inline code", document)
		}
	}
	for name, want := range map[string]string{
		"c.Request.Query.Int":        "",
		"filo.Server.Renderer":       "",
		"middleware.RealIPOptions":   "",
		"c.Qery":                     "c.Qery: there is no Qery",
		"c.Response.Header.Sett":     "c.Response.Header.Sett: there is no Sett",
		"middleware.RealIp":          "middleware.RealIp: there is no RealIp",
		"filo.Server.Concurrency.To": "filo.Server.Concurrency.To: there is no To",
	} {
		got := ""
		if err := c.lookUp(name); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// lookUp checks that a name such as c.Request.Query.Int exists. The name after a method is looked up in the method's first result.
func (c *compiler) lookUp(name string) error {
	base, rest, _ := strings.Cut(name, ".")
	if of := givenTypes[base]; of != "" {
		var typeName string
		base, typeName, _ = strings.Cut(of, ".")
		rest = typeName + "." + rest
	}
	pkg, err := c.importer.Import(known[base])
	if err != nil {
		return err
	}
	var in types.Type // where to look up the next name; nil: in the package
	for part := range strings.SplitSeq(rest, ".") {
		var object types.Object
		if in == nil {
			object = pkg.Scope().Lookup(part)
		} else {
			object, _, _ = types.LookupFieldOrMethod(in, true, pkg, part)
		}
		if object == nil {
			return fmt.Errorf("%s: there is no %s", name, part)
		}
		in = object.Type()
		if signature, ok := in.(*types.Signature); ok && signature.Results().Len() > 0 {
			in = signature.Results().At(0).Type()
		}
	}
	return nil
}

// The documentation of Ctx lists each of its methods, by purpose. A method that is left out is found only by those who know its name.
func TestMethodsOfCtx(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	server, err := doc.NewFromFiles(fset, files, known["filo"])
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(server.Types, func(each *doc.Type) bool { return each.Name == "Ctx" })
	if i < 0 {
		t.Fatal("package filo has no type Ctx")
	}
	linked := map[string]bool{}
	for _, match := range regexp.MustCompile(`\[Ctx\.(\w+)\]`).FindAllStringSubmatch(server.Types[i].Doc, -1) {
		linked[match[1]] = true
	}
	for _, method := range server.Types[i].Methods {
		if !linked[method.Name] {
			t.Errorf("the documentation of Ctx has no link to [Ctx.%s]", method.Name)
		}
		delete(linked, method.Name)
	}
	for name := range linked {
		t.Errorf("the documentation of Ctx has a link to [Ctx.%s], which doesn't exist", name)
	}
}

// Every exported function and method of the root package can be called by users: none has a parameter of a type of internal/, which users
// can't name.
func TestCallable(t *testing.T) {
	c, err := newCompiler(nil)
	if err != nil {
		t.Fatal(err)
	}
	server, err := c.importer.Import(known["filo"])
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	check := func(f types.Object) {
		if _, isFunc := f.(*types.Func); !isFunc || !f.Exported() {
			return
		}
		checked++
		for parameter := range f.Type().(*types.Signature).Params().Variables() {
			if text := types.TypeString(parameter.Type(), nil); strings.Contains(text, "/internal/") {
				t.Errorf("%s has a parameter of the type %s", f.Name(), text)
			}
		}
	}
	for _, name := range server.Scope().Names() {
		object := server.Scope().Lookup(name)
		check(object)
		if !object.Exported() {
			continue
		}
		methods := types.NewMethodSet(types.NewPointer(object.Type()))
		for method := range methods.Methods() {
			check(method.Obj())
		}
	}
	if checked == 0 {
		t.Error("no function was checked")
	}
}
