package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newRepository creates a repository with a module that has one function, and a module in contrib that uses the function.
func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{t.TempDir()}
	git(t, r, "init", "--quiet", "--initial-branch=main")
	for _, setting := range [][2]string{{"user.name", "test"}, {"user.email", "test@test.invalid"}, {"commit.gpgsign", "false"}, {"tag.gpgsign", "false"}} {
		git(t, r, "config", setting[0], setting[1])
	}
	write(t, r, "go.mod", "module example.test/a\n\ngo 1.25.0\n")
	write(t, r, "a.go", "package a\n\nfunc A() {}\n")
	write(t, r, "contrib/b/go.mod", "module example.test/a/contrib/b\n\ngo 1.25.0\n\nrequire example.test/a v0.0.0\n\nreplace example.test/a => ../..\n")
	write(t, r, "contrib/b/b.go", "package b\n\nimport \"example.test/a\"\n\nfunc B() { a.A() }\n")
	write(t, r, "tools/go.mod", "module example.test/a/tools\n\ngo 1.25.0\n")
	write(t, r, "README.md", "# a\n\n    one\n    two   # until v0.1.0 is tagged\n    three\n\nText.\n")
	write(t, r, "contrib/b/README.md", "# b\n\n\tone\n\nUntil v0.1.0 is tagged, write:\n\n\ttwo    # until v0.1.0 is tagged\n\tthree    # until v0.1.0 is tagged\n\nText.\n")
	write(t, r, "CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- All of it.\n")
	commit(t, r)
	return r
}

func git(t *testing.T, r *repository, arguments ...string) {
	t.Helper()
	if err := r.git(arguments...); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, r *repository, name, text string) {
	t.Helper()
	name = r.join(name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, r *repository) {
	t.Helper()
	git(t, r, "add", "--all")
	git(t, r, "commit", "--quiet", "--message", "Change")
}

// change adds a line to the changelog, and commits it together with the changes that the caller has made.
func change(t *testing.T, r *repository) {
	t.Helper()
	text := read(t, r, "CHANGELOG.md")
	write(t, r, "CHANGELOG.md", strings.Replace(text, "[Unreleased]\n", "[Unreleased]\n\n- A change.\n", 1))
	commit(t, r)
}

func read(t *testing.T, r *repository, name string) string {
	t.Helper()
	text, err := os.ReadFile(r.join(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// prove runs the examples of each published module, which are in a separate file. The examples must use neither internal packages nor the module's
// other test files.
func TestPublishedModulesHaveExamples(t *testing.T) {
	r, err := open(".")
	if err != nil {
		t.Skipf("no git repository: %v", err)
	}
	modules, err := r.modules()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		if !m.published() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(r.join(m.dir), "example_test.go"))
		if err != nil || strings.Contains(string(text), "/internal/") {
			t.Errorf("%s: its example_test.go is missing or imports something internal: %v", m.path, err)
			continue
		}
		missing, err := undeclared(text)
		if err != nil || len(missing) > 0 {
			t.Errorf("%s: its example_test.go uses names of other files: %q, %v", m.path, missing, err)
		}
	}
}

// undeclared returns the names that a Go file uses without declaring or importing them.
func undeclared(text []byte) (names []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	if err != nil {
		return nil, err
	}
	elsewhere := make(map[*ast.Ident]bool) // names of packages, and keys of composite literals, which may be fields
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if name, isName := n.X.(*ast.Ident); isName {
				elsewhere[name] = true
			}
		case *ast.KeyValueExpr:
			if name, isName := n.Key.(*ast.Ident); isName {
				elsewhere[name] = true
			}
		}
		return true
	})
	for _, name := range file.Unresolved {
		if !elsewhere[name] && types.Universe.Lookup(name.Name) == nil {
			names = append(names, name.Name)
		}
	}
	return names, nil
}

func TestUndeclared(t *testing.T) {
	const file = "package a_test\n\nimport \"log\"\n\ntype s struct{ f int }\n\nfunc g(p any) error {\n\tv := s{f: 1}\n\tlog.Print(v, len(\"\"), p, h)\n\treturn nil\n}\n"
	if names, err := undeclared([]byte(file)); err != nil || !slices.Equal(names, []string{"h"}) {
		t.Errorf("%q, %v", names, err)
	}
}

// readFirstProgram finds the commands that prove runs.
func TestReadFirstProgram(t *testing.T) {
	const program = "# a\n\n## First program\n\n```go\npackage main\n```\n\nThen:\n\n"
	for _, test := range []struct{ about, readme, commands, fails string }{
		{"commands", program + "    one\n    three\n    curl http://a/    # meanwhile\n\n    none\n", "one|three", ""},
		{"no program", "# a\n\n## First program\n\n    one\n    curl http://a/\n\n## Next\n\n```go\n```\n", "", "no program"},
		{"no commands", program + "## Next\n\n    one\n    curl http://a/\n", "", "no commands"},
		{"no curl", program + "    one\n\nThat is all.\n", "", "don't end with one of curl"},
	} {
		p, err := readFirstProgram(test.readme)
		if test.fails != "" {
			if err == nil || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("%s: %v, want %q", test.about, err, test.fails)
			}
			continue
		}
		if err != nil || p.code != "package main\n" || strings.Join(p.commands, "|") != test.commands || p.url != "http://a/" {
			t.Errorf("%s: %+v, %v", test.about, p, err)
		}
	}

	r, err := open(".")
	if err != nil {
		t.Skipf("no git repository: %v", err)
	}
	if _, err := readFirstProgram(read(t, r, "README.md")); err != nil {
		t.Error(err)
	}
}

// If the README's program doesn't answer, the error of follow says why.
func TestFollow(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	p := firstProgram{commands: []string{"echo started", "false"}, url: other.URL}
	if err := p.follow(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "another program answers") {
		t.Errorf("where another program answers: %v", err)
	}
	other.Close()
	if err := p.follow(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "ended before the program answered\nstarted\n") {
		t.Errorf("commands that end: %v", err)
	}
}

func TestRelease(t *testing.T) {
	if toolDir == "" {
		toolDir = t.TempDir()
		t.Cleanup(func() { toolDir = "" })
	}
	if err := run(".", nil, "go", "build", "-o", toolDir+string(filepath.Separator), "golang.org/x/exp/cmd/apidiff"); err != nil {
		t.Fatal(err)
	}

	t.Run("sets versions and tags each module for users", func(t *testing.T) {
		r := newRepository(t)
		if err := release(r.root, "v0.1.0"); err != nil {
			t.Fatal(err)
		}
		tags, err := output(r.root, "git", "tag", "--points-at", "HEAD")
		if err != nil || tags != "contrib/b/v0.1.0\nv0.1.0" {
			t.Errorf("tags %q, %v", tags, err)
		}
		if text := read(t, r, "contrib/b/go.mod"); !strings.Contains(text, "require example.test/a v0.1.0\n") {
			t.Errorf("contrib/b requires no released version:\n%s", text)
		}
		if text := read(t, r, "CHANGELOG.md"); !strings.Contains(text, "## [Unreleased]\n\n## [0.1.0] - 2") {
			t.Errorf("changelog:\n%s", text)
		}
		for name, want := range map[string]string{"README.md": "# a\n\n    one\n    three\n\nText.\n", "contrib/b/README.md": "# b\n\n\tone\n\nText.\n"} {
			if text := read(t, r, name); text != want {
				t.Errorf("%s has lines for readers before the release:\n%s", name, text)
			}
		}
	})

	for _, refused := range []struct {
		name, version, says string
		prepare             func(t *testing.T, r *repository)
	}{
		{"a version that isn't one", "0.1.0", "isn't a version", func(*testing.T, *repository) {}},
		{"what isn't committed", "v0.2.0", "aren't committed", func(t *testing.T, r *repository) { write(t, r, "a.go", "package a\n") }},
		{"an old version", "v0.1.0", "doesn't come after v0.1.0", change},
		{"no word of what has changed", "v0.2.0", "nothing under", func(*testing.T, *repository) {}},
		{"a patch that breaks users", "v0.1.1", "v0.1.1 breaks users of example.test/a", func(t *testing.T, r *repository) {
			write(t, r, "a.go", "package a\n\nfunc A(...int) {}\n")
			change(t, r)
		}},
	} {
		t.Run("refuses "+refused.name, func(t *testing.T) {
			r := newRepository(t)
			if err := release(r.root, "v0.1.0"); err != nil {
				t.Fatal(err)
			}
			refused.prepare(t, r)
			if err := release(r.root, refused.version); err == nil || !strings.Contains(err.Error(), refused.says) {
				t.Errorf("error %v, not one that says %q", err, refused.says)
			}
			if tags, err := output(r.root, "git", "tag", "--list", refused.version); err != nil || refused.version != "v0.1.0" && tags != "" {
				t.Errorf("it was tagged all the same: %q, %v", tags, err)
			}
		})
	}

	t.Run("a minor version before 1.0 may break users", func(t *testing.T) {
		r := newRepository(t)
		if err := release(r.root, "v0.1.0"); err != nil {
			t.Fatal(err)
		}
		write(t, r, "a.go", "package a\n\nfunc A(...int) {}\n")
		change(t, r)
		if err := release(r.root, "v0.2.0"); err != nil {
			t.Error(err)
		}
	})
}

// The changelog must name a breaking change in a section for such changes.
func TestBreaks(t *testing.T) {
	toolDir = t.TempDir()
	if err := run(".", nil, "go", "build", "-o", toolDir+string(filepath.Separator), "golang.org/x/exp/cmd/apidiff"); err != nil {
		t.Fatal(err)
	}
	const changelog = "# Changelog\n\n## [Unreleased]\n\n"
	for _, test := range []struct{ about, file, text, changelog, says string }{
		{"something new", "a.go", "package a\n\nfunc A() {}\n\nfunc New() {}\n", "", ""},
		{"a break that isn't named", "a.go", "package a\n\nfunc A(...int) {}\n", "### Changed\n\n- All: another.\n", "Security of what is unreleased: A"},
		{"a break that is named elsewhere", "a.go", "package a\n\nfunc A(...int) {}\n", "### Fixed\n\n- `A` is faster.\n", "unreleased: A"},
		{"a break that is named", "a.go", "package a\n\nfunc A(...int) {}\n", "### Added\n\n- B.\n\n### Changed\n\n- `A` has arguments.\n\n### Fixed\n", ""},
		{"one in another module", "contrib/b/b.go", "package b\n", "", "unreleased: B"},
	} {
		r := newRepository(t)
		git(t, r, "checkout", "--quiet", "-b", "change")
		write(t, r, test.file, test.text)
		write(t, r, "CHANGELOG.md", changelog+test.changelog)
		commit(t, r)
		// A change that was made on main after the branch began doesn't count as one of the branch.
		git(t, r, "checkout", "--quiet", "main")
		write(t, r, "c.go", "package a\n\nfunc C() {}\n")
		commit(t, r)
		git(t, r, "checkout", "--quiet", "change")
		err := checkBreaks(r.root, "main")
		if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.HasSuffix(err.Error(), test.says)) {
			t.Errorf("%s: error %v, want %q", test.about, err, test.says)
		}
	}
}

func TestChangedName(t *testing.T) {
	for line, want := range map[string]string{
		"- A: changed from func() to func(...int)": "A",
		"- T.M: removed":                                    "T.M",
		"- (*T).M: removed":                                 "T.M",
		"- ./middleware/session.(*U).P: removed":            "U.P",
		"- ./middleware/session.New: removed":               "session.New",
		"- package example.test/a/middleware/gone: removed": "middleware/gone",
		"- module example.test/a/contrib/b: removed":        "contrib/b",
		"- T: old is comparable, new is not":                "T",
	} {
		if got := changedName("example.test/a", line); got != want {
			t.Errorf("%q is about %q, want %q", line, got, want)
		}
	}
	if names("`Token` and x.New", "Tok") || !names("`Token` and x.New", "Token") || !names("`Token` and x.New", "New") {
		t.Error("a part of a word is taken for a name, or a name isn't found")
	}
}

// For each published module, writeFiles writes a zip and a bill of materials, which names the module's version.
func TestFiles(t *testing.T) {
	toolDir = t.TempDir()
	// standIn replaces cyclonedx-gomod. It reads the versions that it writes from the files that VERSION_FILE and OTHERS_FILE name.
	const standIn = `#!/bin/sh
[ "$*" = "mod -json -type library -output $6 ." ] || exit 2
echo "{\"metadata\": {\"component\": {\"name\": \"$(sed -n 's/^module //p' go.mod)\", \"version\": \"$(cat "$VERSION_FILE")\"}},` +
		` \"components\": [{\"name\": \"example.test/a\", \"version\": \"$(cat "$OTHERS_FILE")\"}]}" >"$6"
`
	if err := os.WriteFile(filepath.Join(toolDir, "cyclonedx-gomod"), []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRepository(t)
	if err := release(r.root, "v0.1.0"); err != nil {
		t.Fatal(err)
	}
	versions := t.TempDir()
	t.Setenv("VERSION_FILE", filepath.Join(versions, "own"))
	t.Setenv("OTHERS_FILE", filepath.Join(versions, "others"))
	for _, test := range []struct{ about, own, others, version, says string }{
		{"the tagged version", "v0.1.0", "v0.1.0", "v0.1.0", ""},
		{"a bill without a version", "", "v0.1.0", "v0.1.0", "is about example.test/a/contrib/b "},
		{"a bill without another's version", "v0.1.0", "", "v0.1.0", `has version "" of example.test/a`},
		{"a version that isn't tagged", "v0.2.0", "v0.2.0", "v0.2.0", "v0.2.0^{commit}"},
	} {
		for name, text := range map[string]string{"own": test.own, "others": test.others} {
			if err := os.WriteFile(filepath.Join(versions, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		folder := filepath.Join(t.TempDir(), "files")
		err := writeFiles(r.root, test.version, folder)
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: error %v, want one that says %q", test.about, err, test.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.about, err)
		}
		files, err := os.ReadDir(folder)
		var names []string
		for _, file := range files {
			names = append(names, file.Name())
		}
		if got := strings.Join(names, " "); err != nil || got != "a-contrib-b-v0.1.0.cdx.json a-contrib-b-v0.1.0.zip a-v0.1.0.cdx.json a-v0.1.0.zip" {
			t.Errorf("%s: %q, %v", test.about, got, err)
		}
	}
	change(t, r)
	if err := writeFiles(r.root, "v0.1.0", filepath.Join(t.TempDir(), "files")); err == nil || !strings.Contains(err.Error(), "isn't what is checked out") {
		t.Errorf("behind the tag: %v", err)
	}
}
