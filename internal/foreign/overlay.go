package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// detours are statements, inserted at the beginning of methods of http.Server. The functions that they call are in
// inserted/replaced_server.go.txt, which writeOverlay adds to package net/http.
var detours = map[string]string{
	"Serve(l net.Listener) error":         "if Replaced != nil { return replacedServe(s, l) }",
	"Shutdown(ctx context.Context) error": "if Replaced != nil { return replacedShutdown(s, ctx) }",
	"Close() error":                       "if Replaced != nil { return replacedClose(s) }",
	"SetKeepAlivesEnabled(v bool)":        "if Replaced != nil { Replaced.SetKeepAlivesEnabled(s, v); return }",
	"setupHTTP2_ServeTLS() error":         "if Replaced != nil { return nil }",
}

// internals are the internal packages that Go's tests import. The copied tests import copies of these packages.
var internals = []string{"internal/testenv", "net/http/internal", "net/http/internal/ascii", "net/http/internal/testcert"}

// aliases are internal packages that can't be copied, because the tests must use the real package. The directory inserted has packages that
// give them access to it.
var aliases = []string{"internal/nettrace", "internal/synctest", "internal/godebug"}

// foreignName returns the import path of the copy or replacement of an internal package.
func foreignName(internal string) string { return strings.Replace(internal, "internal", "foreign", 1) }

// reimport changes the imports of internal packages in one of Go's files to their foreignName.
func reimport(source []byte) []byte {
	for _, name := range slices.Concat(internals, aliases) {
		source = bytes.ReplaceAll(source, []byte("\t\""+name+"\"\n"), []byte("\t"+path.Base(name)+" \""+foreignName(name)+"\"\n"))
	}
	return source
}

// writeOverlay writes the file for the go command's flag -overlay, and returns its name. The overlay has a net/http whose server can be
// replaced and which exports its internals for its own tests, and copies of internal packages.
func writeOverlay(dir string, o *options) (string, error) {
	src := filepath.Join(o.goroot, "src")
	server := filepath.Join(dir, "server.go")
	if err := detour(server, filepath.Join(src, "net/http/server.go")); err != nil {
		return "", err
	}
	replace := map[string]string{
		filepath.Join(src, "net/http/server.go"):          server,
		filepath.Join(src, "net/http/replaced_server.go"): o.inserted("replaced_server.go.txt"),
		filepath.Join(src, "net/http/exported_hooks.go"):  filepath.Join(src, "net/http/export_test.go"),
	}
	for _, name := range internals {
		files, err := filepath.Glob(filepath.Join(src, name, "*.go"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				replace[filepath.Join(src, foreignName(name), filepath.Base(file))] = file
			}
		}
	}
	for _, name := range aliases {
		replace[filepath.Join(src, foreignName(name), "alias.go")] = o.inserted(path.Base(name) + ".go.txt")
	}
	text, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o644)
}

// detour copies net/http's server.go, and inserts the detours. Each detour follows the method's opening brace on the same line, so that line
// numbers don't change.
func detour(to, from string) error {
	source, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	for method, statement := range detours {
		begin := "\nfunc (s *Server) " + method + " {"
		if source, err = replaceOne(source, begin, begin+" "+statement); err != nil {
			return err
		}
	}
	return os.WriteFile(to, source, 0o644)
}
