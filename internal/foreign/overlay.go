package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// replacedServer is a file that is added to package net/http. It lets another take the place of its server.
//
//go:embed inserted/replaced_server.go.txt
var replacedServer []byte

// detours are put at the beginning of methods of http.Server. The parameters have the names that they have in net/http.
var detours = map[string]string{
	"Serve": `if replaced(s) {
		if hook := testHookServerServe; hook != nil {
			hook(s, l)
		}
		return Replaced.Serve(s, l)
	}`,
	"Shutdown": `if replaced(s) {
		s.inShutdown.Store(true)
		s.runOnShutdown()
		return Replaced.Shutdown(s, ctx)
	}`,
	"Close": `if replaced(s) {
		s.inShutdown.Store(true)
		return Replaced.Close(s)
	}`,
	"setupHTTP2_ServeTLS": `if Replaced != nil {
		return nil
	}`,
	"SetKeepAlivesEnabled": `if replaced(s) {
		Replaced.SetKeepAlivesEnabled(s, v)
		return
	}`,
}

// internals are packages that Go keeps for itself, and under which name its tests find a copy.
var internals = map[string]string{
	"internal/testenv":           "foreign/testenv",
	"net/http/internal":          "foreign/httpinternal",
	"net/http/internal/ascii":    "foreign/ascii",
	"net/http/internal/testcert": "foreign/testcert",
}

// aliases stand for internal packages that can't be copied, since the real one must be used.
var aliases = map[string]string{
	"internal/nettrace": "package nettrace\n\nimport \"internal/nettrace\"\n\n" +
		"type (\n\tTraceKey = nettrace.TraceKey\n\tLookupIPAltResolverKey = nettrace.LookupIPAltResolverKey\n\tTrace = nettrace.Trace\n)\n",
	"internal/synctest": "package synctest\n\nimport \"testing/synctest\"\n\nfunc Wait() { synctest.Wait() }\n",
	"internal/godebug":  "package godebug\n\nimport \"internal/godebug\"\n\ntype Setting = godebug.Setting\n\nfunc New(name string) *Setting { return godebug.New(name) }\n",
}

// writeOverlay writes what the go command's -overlay takes: net/http whose server can be replaced and that shows its own
// tests what they look into, and copies of internal packages. It returns the file's name.
func writeOverlay(dir, goroot string) (string, error) {
	src := filepath.Join(goroot, "src")
	replace := map[string]string{}
	add := func(path string, content []byte) error {
		file := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		replace[filepath.Join(src, filepath.FromSlash(path))] = file
		return os.WriteFile(file, content, 0o644)
	}
	server, err := detour(filepath.Join(src, "net/http/server.go"))
	if err != nil {
		return "", err
	}
	exports, err := os.ReadFile(filepath.Join(src, "net/http/export_test.go"))
	if err != nil {
		return "", err
	}
	for path, content := range map[string][]byte{
		"net/http/server.go":          server,
		"net/http/replaced_server.go": replacedServer,
		"net/http/exported_hooks.go":  exports,
	} {
		if err := add(path, content); err != nil {
			return "", err
		}
	}
	for from, to := range internals {
		files, err := filepath.Glob(filepath.Join(src, from, "*.go"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				replace[filepath.Join(src, to, filepath.Base(file))] = file
			}
		}
	}
	for from, content := range aliases {
		name := foreignName(from)
		if err := add(name+"/alias.go", []byte(content)); err != nil {
			return "", err
		}
	}
	text, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o644)
}

// foreignName is under which name tests find an internal package.
func foreignName(path string) string {
	if name, ok := internals[path]; ok {
		return name
	}
	return "foreign/" + filepath.Base(path)
}

// reimport changes the imports of internal packages in a file of Go's.
func reimport(source []byte) []byte {
	for _, names := range []map[string]string{internals, aliases} {
		for path := range names { // in any order: none is the whole of another's import
			source = bytes.ReplaceAll(source, []byte("\t\""+path+"\"\n"), []byte("\t"+filepath.Base(path)+" \""+foreignName(path)+"\"\n"))
		}
	}
	return source
}

// detour returns net/http's server.go with the detours.
func detour(name string) ([]byte, error) {
	source, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	type insertion struct {
		offset int
		text   string
	}
	var insertions []insertion
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv == nil || f.Body == nil || len(f.Recv.List[0].Names) == 0 {
			continue
		}
		pointer, ok := f.Recv.List[0].Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		if receiver, ok := pointer.X.(*ast.Ident); !ok || receiver.Name != "Server" {
			continue
		}
		if text, ok := detours[f.Name.Name]; ok {
			insertions = append(insertions, insertion{files.Position(f.Body.Lbrace).Offset + 1, text})
		}
	}
	if len(insertions) != len(detours) {
		return nil, fmt.Errorf("%s has %d of the %d methods of Server that are replaced", name, len(insertions), len(detours))
	}
	slices.SortFunc(insertions, func(a, b insertion) int { return b.offset - a.offset })
	for _, in := range insertions {
		// On the same line, so that line numbers stay.
		text := strings.Join(strings.Fields(strings.ReplaceAll(strings.ReplaceAll(in.text, "\n", "; "), "{;", "{")), " ")
		source = slices.Insert(source, in.offset, []byte(" "+text+"; ")...)
	}
	return source, nil
}
