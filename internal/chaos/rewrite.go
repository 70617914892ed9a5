package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/filohttp/filo/internal/gotool"
)

// The rewritten files import pausePackage under the name pauseName.
const (
	pausePackage = gotool.Filo + "/internal/chaos/pause"
	pauseName    = "chaospause"
)

// sites has the file, line and function of each rewritten statement. Its index is the statement's number.
type sites []string

// rewritten lists the files of those packages in the program whose goroutines share memory: filo's root package, and the packages below it
// that import sync, sync/atomic or internal/race. It skips the packages in spared.
func rewritten(repository, program string) (files []string, err error) {
	out, err := gotool.Output(repository, "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports", program)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var p struct {
			ImportPath, Dir  string
			GoFiles, Imports []string
		}
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(p.ImportPath, gotool.Filo+"/")
		if !strings.HasPrefix(p.ImportPath, gotool.Filo) || slices.Contains(spared, name) {
			continue
		}
		shares := func(path string) bool {
			return path == "sync" || path == "sync/atomic" || path == gotool.Filo+"/internal/race"
		}
		if p.ImportPath == gotool.Filo || slices.ContainsFunc(p.Imports, shares) {
			for _, file := range p.GoFiles {
				files = append(files, filepath.Join(p.Dir, file))
			}
		}
	}
	return files, nil
}

// spared lists the packages that get no pauses: those of the test program itself, and those in which pauses would only cost time.
var spared = []string{
	"internal/soak", "internal/soak/kit", "internal/conformance", "internal/filotest", "internal/mwtest", "servertest", "internal/chaos/pause", "internal/race",
}

// writeOverlay writes the rewritten files to dir, and returns the name of the file for the go command's flag -overlay.
func writeOverlay(dir string, files []string) (overlay string, all sites, err error) {
	replace := map[string]string{}
	for i, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			return "", nil, err
		}
		changed, err := rewrite(name, source, &all)
		if err != nil {
			return "", nil, err
		}
		copied := filepath.Join(dir, fmt.Sprintf("%d_%s", i, filepath.Base(name)))
		if err := os.WriteFile(copied, changed, 0o644); err != nil {
			return "", nil, err
		}
		replace[name] = copied
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, all, os.WriteFile(overlay, b, 0o644)
}

// An insertion is text to insert into a file.
type insertion struct {
	at   int // an offset
	text string
}

// rewrite inserts a pause before each statement of a file, and replaces time.Now with package pause's Now. Line numbers don't change.
func rewrite(name string, source []byte, all *sites) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	r := rewriter{set: set, all: all}
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Doc == nil || !strings.Contains(f.Doc.Text()+comments(f.Doc), "go:nosplit") {
			r.function = ""
			if ok {
				r.function = f.Name.Name
			}
			ast.Inspect(declaration, r.visit)
		}
	}
	if len(r.insertions) == 0 {
		return source, nil
	}
	r.insert(file.Name.End(), fmt.Sprintf("; import %s %q", pauseName, pausePackage))
	slices.SortStableFunc(r.insertions, func(a, b insertion) int { return a.at - b.at })
	var out bytes.Buffer
	from := 0
	for _, each := range r.insertions {
		out.Write(source[from:each.at])
		out.WriteString(each.text)
		from = each.at
	}
	out.Write(source[from:])
	if r.asksTime {
		out.WriteString("\nvar _ = time.Now\n") // otherwise the import might be unused
	}
	return out.Bytes(), nil
}

// comments returns a comment's text including directives, which the method Text omits.
func comments(group *ast.CommentGroup) string {
	var all strings.Builder
	for _, each := range group.List {
		all.WriteString(each.Text)
	}
	return all.String()
}

type rewriter struct {
	set        *token.FileSet
	all        *sites
	function   string
	insertions []insertion
	asksTime   bool
}

func (r *rewriter) insert(at token.Pos, text string) {
	r.insertions = append(r.insertions, insertion{r.set.Position(at).Offset, text})
}

func (r *rewriter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BlockStmt:
		r.before(n.List)
	case *ast.CaseClause:
		r.before(n.Body)
	case *ast.CommClause:
		r.before(n.Body)
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && n.Sel.Name == "Now" {
			r.asksTime = true
			r.insert(x.Pos(), pauseName+".Now /*")
			r.insert(n.End(), "*/")
		}
	}
	return true
}

// before inserts a pause before each statement of a list, but not before the clauses of a switch or a select.
func (r *rewriter) before(list []ast.Stmt) {
	for _, statement := range list {
		switch statement.(type) {
		case *ast.CaseClause, *ast.CommClause, *ast.EmptyStmt:
			continue
		}
		r.insert(statement.Pos(), fmt.Sprintf("%s.At(%d); ", pauseName, len(*r.all)))
		at := r.set.Position(statement.Pos())
		*r.all = append(*r.all, fmt.Sprintf("%s:%d %s", filepath.Base(at.Filename), at.Line, r.function))
	}
}
