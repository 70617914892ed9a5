package templates_test

import (
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/templates"
)

// files returns a file system of paths and contents.
func files(pairs ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		fsys[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return fsys
}

func render(t testing.TB, pages *templates.Templates, name string, data any) string {
	t.Helper()
	var b strings.Builder
	if err := pages.Render(&b, name, data); err != nil {
		return "error: " + err.Error()
	}
	return b.String()
}

// Pages find layouts, partials, functions and blocks, but not the blocks of other pages.
func TestRender(t *testing.T) {
	layout := `<title>{{block "title" .}}Site{{end}}</title>{{template "partials/nav.html" .}}{{template "content" .}}`
	site := []string{
		"layouts/main.html", layout, "partials/nav.html", `<nav>{{.}}</nav>`,
		"index.html", `{{define "title"}}Home{{end}}<p>{{.}}</p>`,
		"users/show.html", `<b>{{.}}</b>`,
		"users/deep/own.html", `{{define "title"}}Own{{end}}{{define "content"}}<i>{{.}}</i>{{end}}not shown`,
		"notes.txt", `{{broken`,
	}
	for _, c := range []struct {
		rule, name string
		options    templates.Options
		files      []string
		want       string
	}{
		{"a page is the layout's content, and overrides its blocks", "index.html", templates.Options{Layout: "layouts/main.html"}, site,
			`<title>Home</title><nav>&lt;x&gt;</nav><p>&lt;x&gt;</p>`},
		{"another page doesn't see that", "users/show.html", templates.Options{Layout: "layouts/main.html"}, site,
			`<title>Site</title><nav>&lt;x&gt;</nav><b>&lt;x&gt;</b>`},
		{"a page may define its content", "users/deep/own.html", templates.Options{Layout: "layouts/main.html"}, site,
			`<title>Own</title><nav>&lt;x&gt;</nav><i>&lt;x&gt;</i>`},
		{"what is shared is rendered as it is", "partials/nav.html", templates.Options{Layout: "layouts/main.html"}, site, `<nav>&lt;x&gt;</nav>`},
		{"a layout alone misses the content", "layouts/main.html", templates.Options{Layout: "layouts/main.html"}, site,
			`error: templates: html/template:layouts/main.html:1:90: no such template "content"`},
		{"without a layout a page is all", "users/show.html", templates.Options{}, []string{"users/show.html", `<b>{{.}}</b>`}, `<b>&lt;x&gt;</b>`},
		{"a page may name its layout", "a.html", templates.Options{}, []string{"layouts/l.html", `[{{block "main" .}}{{end}}]`,
			"a.html", `{{template "layouts/l.html" .}}{{define "main"}}a{{end}}`, "b.html", `{{template "layouts/l.html" .}}`}, `[a]`},
		{"a layout's own content is a default", "a.html", templates.Options{Layout: "layouts/l.html"},
			[]string{"layouts/l.html", `[{{block "content" .}}default{{end}}]`, "a.html", "a"}, `[a]`},
		{"functions", "a.html", templates.Options{Funcs: template.FuncMap{"upper": strings.ToUpper}}, []string{"a.html", `{{upper .}}`}, `&lt;X&gt;`},
		{"delimiters", "a.html", templates.Options{LeftDelim: "[[", RightDelim: "]]"}, []string{"a.html", `{{a}}[[.]]`}, `{{a}}&lt;x&gt;`},
		{"patterns", "views/a.tmpl", templates.Options{Pages: []string{"views/*.tmpl"}, Shared: []string{"_*.tmpl"}},
			[]string{"views/a.tmpl", `{{template "views/_b.tmpl"}}`, "views/_b.tmpl", "b", "other/c.tmpl", "{{broken"}, `b`},
		{"a name that isn't there", "none.html", templates.Options{}, nil, `error: templates: there is no "none.html"`},
		{"a file that isn't matched", "notes.txt", templates.Options{}, []string{"notes.txt", ""}, `error: templates: there is no "notes.txt"`},
	} {
		pages, err := templates.New(files(c.files...), c.options)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
			continue
		}
		for range 2 {
			if got := render(t, pages, c.name, "<x>"); got != c.want {
				t.Errorf("%s: %q, want %q", c.rule, got, c.want)
			}
		}
	}
}

// New finds templates that can't work, before a client asks for them.
func TestNewErrors(t *testing.T) {
	for _, c := range []struct {
		rule    string
		options templates.Options
		files   []string
		want    string
	}{
		{"syntax", templates.Options{}, []string{"x/a.html", "\n{{if}}"}, "x/a.html:2: missing value for if"},
		{"syntax of what is shared", templates.Options{}, []string{"partials/a.html", "{{end}}"}, "partials/a.html:1: unexpected {{end}}"},
		{"functions", templates.Options{}, []string{"a.html", "{{nothing}}"}, `a.html:1: function "nothing" not defined`},
		{"a template that isn't there", templates.Options{}, []string{"a.html", `{{template "b"}}`}, `no such template "b"`},
		{"what can't be escaped", templates.Options{}, []string{"a.html", "\n<a href='{{if .}}'{{end}}>"}, `a.html:2`},
		{"a layout that isn't there", templates.Options{Layout: "layouts/x.html"}, nil, `the Layout "layouts/x.html" is none of the shared files`},
		{"a pattern", templates.Options{Pages: []string{"[a"}}, []string{"a.html", ""}, "syntax error in pattern"},
	} {
		if _, err := templates.New(files(c.files...), c.options); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "templates: ") {
			t.Errorf("%s: %v, want %s", c.rule, err, c.want)
		}
	}
}

// countingWriter counts calls.
type countingWriter struct {
	calls int
	strings.Builder
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.calls++
	return w.Builder.Write(p)
}

// A page is written with a single call of Write, or not written if there is an error.
func TestNoHalfPage(t *testing.T) {
	boom := errors.New("boom")
	pages, err := templates.New(files("a.html", `before {{fail .}} after`), templates.Options{Funcs: template.FuncMap{
		"fail": func(fail bool) (string, error) {
			if fail {
				return "", boom
			}
			return "fine", nil
		}}})
	if err != nil {
		t.Fatal(err)
	}
	w := new(countingWriter)
	if err := pages.Render(w, "a.html", true); !errors.Is(err, boom) || w.calls != 0 {
		t.Errorf("%v, %d calls", err, w.calls)
	}
	if err := pages.Render(w, "a.html", false); err != nil || w.calls != 1 || w.String() != "before fine after" {
		t.Errorf("%v, %d calls, %q", err, w.calls, w.String())
	}
	read, write := io.Pipe()
	read.CloseWithError(boom)
	if err := pages.Render(write, "a.html", false); !errors.Is(err, boom) {
		t.Errorf("a writer that fails: %v", err)
	}
}

// With Reload, changed, new and removed files are noticed at once. The error for a broken file shows where the mistake is, and
// disappears once the file is fixed.
func TestReload(t *testing.T) {
	fsys := files("layouts/l.html", `[{{template "content" .}}]`, "a.html", "one")
	pages, err := templates.New(fsys, templates.Options{Layout: "layouts/l.html", Reload: true})
	if err != nil {
		t.Fatal(err)
	}
	moment := time.Unix(1, 0)
	put := func(name, text string) {
		moment = moment.Add(time.Second)
		fsys[name] = &fstest.MapFile{Data: []byte(text), ModTime: moment}
	}
	expect := func(rule, name string, want ...string) {
		t.Helper()
		got := render(t, pages, name, nil)
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q, want %q in it", rule, got, part)
			}
		}
	}
	expect("at first", "a.html", "[one]")
	put("a.html", "two")
	expect("a page of the same size", "a.html", "[two]")
	put("layouts/l.html", `({{template "content" .}})`)
	expect("a layout", "a.html", "(two)")
	put("b.html", "new")
	expect("a new page", "b.html", "(new)")
	put("a.html", "line 1\nline 2 {{.}\nline 3")
	expect("a broken page", "a.html", "error: 500", "a.html:2", ">    2  line 2 {{.}\n", "     3  line 3\n")
	expect("as long as it is broken", "b.html", "error: 500", "a.html:2")
	put("a.html", "x\n{{.Missing.Deeper}}")
	expect("an error of execution", "a.html", "(x")
	put("a.html", "x\n{{index . 1}}")
	expect("an error of execution", "a.html", "error: 500", ">    2  {{index . 1}}")
	put("a.html", "mended")
	expect("a mended page", "a.html", "(mended)")
	delete(fsys, "b.html")
	expect("a removed page", "b.html", `there is no "b.html"`)
}

// A link that leads nowhere, such as Emacs' locks, or to a directory, doesn't count as a template. For any other link, changes of
// its target are noticed.
func TestLinks(t *testing.T) {
	directory := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("page.html", "page")
	write("other.txt", "first")
	for name, to := range map[string]string{".#page.html": "user@host.1234:1700000000", "linked.html": "other.txt", "directory.html": "."} {
		if err := os.Symlink(to, filepath.Join(directory, name)); err != nil {
			t.Skip(err)
		}
	}
	pages, err := templates.New(os.DirFS(directory), templates.Options{Reload: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := render(t, pages, "page.html", nil) + " " + render(t, pages, "linked.html", nil); got != "page first" {
		t.Errorf("%q", got)
	}
	write("other.txt", "then something else")
	if got := render(t, pages, "linked.html", nil); got != "then something else" {
		t.Errorf("%q", got)
	}
}

// With Reload a program starts even with broken files, to show the mistakes.
func TestReloadFromBroken(t *testing.T) {
	fsys := files("a.html", "{{")
	pages, err := templates.New(fsys, templates.Options{Reload: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := render(t, pages, "a.html", nil); !strings.Contains(got, "a.html:1") {
		t.Error(got)
	}
	fsys["a.html"] = &fstest.MapFile{Data: []byte("mended")}
	if got := render(t, pages, "a.html", nil); got != "mended" {
		t.Error(got)
	}
}

// Without Reload files are read once, and a client doesn't see the text of an error.
func TestProduction(t *testing.T) {
	fsys := files("a.html", "{{index . 1}}")
	pages, err := templates.New(fsys)
	if err != nil {
		t.Fatal(err)
	}
	delete(fsys, "a.html")
	server := servertest.NewServer(t, &filo.Server{Renderer: pages, Handler: func(c *filo.Ctx) error {
		return c.Render(200, "a.html", map[string]string{"secret": "x"})
	}})
	raw := server.Raw(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(raw, "HTTP/1.1 500 ") || !strings.HasSuffix(raw, "\r\n\r\nInternal Server Error\n") {
		t.Errorf("%q", raw)
	}
}

// With Reload, an error is answered with a 500 that shows where the mistake is.
func TestDevelopmentAnswer(t *testing.T) {
	pages, err := templates.New(files("a.html", "\n{{index . 1}}"), templates.Options{Reload: true})
	if err != nil {
		t.Fatal(err)
	}
	server := servertest.NewServer(t, &filo.Server{Renderer: pages, Handler: func(c *filo.Ctx) error { return c.Render(200, "a.html", nil) }})
	raw := server.Raw(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(raw, "HTTP/1.1 500 ") || !strings.Contains(raw, "text/plain") || !strings.Contains(raw, ">    2  {{index . 1}}") {
		t.Errorf("%q", raw)
	}
}

// Many goroutines render at once, while files change.
func TestConcurrent(t *testing.T) {
	for _, reload := range []bool{false, true} {
		fsys := new(lockedFS)
		fsys.put("a.html", "{{.}}")
		pages, err := templates.New(fsys, templates.Options{Reload: reload})
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				for j := range 100 {
					if reload && i == 0 {
						fsys.put("a.html", "{{.}}"+strings.Repeat(" ", j%3))
					}
					want := fmt.Sprint(i, j)
					if got := render(t, pages, "a.html", want); strings.TrimSpace(got) != want {
						t.Errorf("%q, want %q", got, want)
					}
				}
			})
		}
		group.Wait()
	}
}

// If New gets a parent of the templates' directory, as with an embed.FS, the error says where the files are and what to do.
func TestWithoutSub(t *testing.T) {
	files := fstest.MapFS{
		"views/users/show.html":   {Data: []byte("user")},
		"views/layouts/main.html": {Data: []byte("main")},
	}
	pages, err := templates.New(files)
	if err != nil {
		t.Fatal(err)
	}
	const remedy = `, but there is "views/users/show.html": give New what fs.Sub(files, "views") returns`
	if err := pages.Render(io.Discard, "users/show.html", nil); err == nil || !strings.HasSuffix(err.Error(), remedy) {
		t.Errorf("Render: %v", err)
	}
	_, err = templates.New(files, templates.Options{Layout: "layouts/main.html"})
	if err == nil || !strings.HasSuffix(err.Error(), `give New what fs.Sub(files, "views") returns`) {
		t.Errorf("a Layout: %v", err)
	}
	files["views/users/list.html"] = &fstest.MapFile{Data: []byte(`{{template "users/show.html" .}}`)}
	if _, err = templates.New(files); err == nil || !strings.HasSuffix(err.Error(), remedy) {
		t.Errorf("a template in a page: %v", err)
	}
}
