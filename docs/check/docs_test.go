package check

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	// Packages that snippets import, so that go.mod requires their modules.
	_ "github.com/danielgtaylor/huma/v2"
	_ "github.com/filohttp/filo"
	_ "github.com/filohttp/filo/adaptor"
	_ "github.com/filohttp/filo/bind"
	_ "github.com/filohttp/filo/certs"
	_ "github.com/filohttp/filo/contrib/brotli"
	_ "github.com/filohttp/filo/contrib/grpc"
	_ "github.com/filohttp/filo/contrib/http3"
	_ "github.com/filohttp/filo/contrib/huma"
	_ "github.com/filohttp/filo/contrib/jwt"
	_ "github.com/filohttp/filo/contrib/otel"
	_ "github.com/filohttp/filo/contrib/prometheus"
	_ "github.com/filohttp/filo/contrib/redis"
	_ "github.com/filohttp/filo/contrib/restart"
	_ "github.com/filohttp/filo/contrib/validate"
	_ "github.com/filohttp/filo/contrib/websocket"
	_ "github.com/filohttp/filo/dashboard"
	_ "github.com/filohttp/filo/debug"
	_ "github.com/filohttp/filo/health"
	_ "github.com/filohttp/filo/middleware"
	_ "github.com/filohttp/filo/pool"
	_ "github.com/filohttp/filo/proxy"
	_ "github.com/filohttp/filo/router"
	_ "github.com/filohttp/filo/servertest"
	_ "github.com/filohttp/filo/sse"
	_ "github.com/filohttp/filo/static"
	_ "github.com/filohttp/filo/templates"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/redis/go-redis/v9"
	_ "go.opentelemetry.io/otel/attribute"
)

const root = "../.."

// documents are the documents with snippets, including the pages of the guide. guide are only the pages of the guide.
var (
	guide = []string{
		"docs/GUIDE.md", "docs/guide/handlers.md", "docs/guide/routes.md", "docs/guide/requests.md", "docs/guide/answers.md",
		"docs/guide/middleware.md", "docs/guide/files.md", "docs/guide/events.md", "docs/guide/production.md",
	}
	documents = append([]string{"README.md", "docs/MIGRATING.md", "docs/OPERATIONS.md", errorsDocument}, guide...)
)

func read(t *testing.T, document string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every snippet compiles, and is formatted as by gofmt.
func TestSnippets(t *testing.T) {
	var all []snippet
	for _, document := range documents {
		found, err := snippets(document, read(t, document))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			t.Errorf("%s has no snippets", document)
		}
		all = append(all, found...)
	}
	c, err := newCompiler(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for _, err := range c.check(s) {
			t.Error(err)
		}
	}
}

// The compiler finds mistakes in a snippet, and reports them with their line in the document.
func TestMistakes(t *testing.T) {
	c, err := newCompiler(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ about, text, want string }{
		{"a statement with what is given, known and assumed", "```go\nreturn c.JSON(200, user)\n```", ""},
		{"statements around declarations", "```go\nr.GET(\"/\", hello)\n\nfunc hello(c *filo.Ctx) error {\n\treturn nil\n}\n\nlog.Print(r.Routes())\n```", ""},
		{"what is given may be declared again", "```go\nr := router.New()\nr.GET(\"/\", home)\n```", ""},
		{"a program", "text\n```go\npackage main\n\nfunc main() {}\n```", ""},
		{"code of others", "```go other\nthis isn't Go\n```\n\n```\nnor this\n```", ""},
		{"an unknown method", "text\n\n```go\n\nreturn c.Txt(200, \"\")\n```", "a.md:5: c.Txt undefined (type *filo.Ctx has no field or method Txt)"},
		{"in a declaration", "```go\nhome(c)\n\nvar x int = \"\"\n```", "a.md:4: cannot use \"\" (untyped string constant) as int value in variable declaration"},
		{"behind a declaration", "```go\nvar x = 1\n\nx.y()\n```", "a.md:4: x.y undefined (type int has no field or method y)"},
		{"a name that nobody knows", "```go\nfrobnicate()\n```", "a.md:2: undefined: frobnicate"},
		{"a type that isn't assumed", "```go\nfunc f() Usr {\n\treturn Usr{}\n}\n```", "a.md:2: undefined: Usr\na.md:3: undefined: Usr"},
		{"a function without its return", "```go\nfunc f() error {\n}\n```", "a.md:3: missing return"},
		{"a result that is left for the reader", "```go\nerr := home(c)\n```", ""},
		{"a variable that isn't used in a program", "```go\npackage main\n\nfunc main() {\n\tx := 1\n}\n```", "a.md:5: declared and not used: x"},
		{"an import that isn't used", "```go\npackage main\n\nimport \"fmt\"\n\nfunc main() {}\n```", "a.md:4: \"fmt\" imported and not used"},
		{"a program without an import", "```go\npackage main\n\nfunc main() { fmt.Println() }\n```", "a.md:4: undefined: fmt"},
		{"no Go", "```go\nx := 1\nx = = 2\n```", "a.md:3: expected operand, found '='"},
		{"formatting", "```go\nhome( c )\n```", "a.md:2: not as gofmt has it"},
		{"a fence in a list", "- a\n  ```go\n  x\n  ```", "a.md:2: a fence must be at the beginning of its line"},
		{"a fence that is left open", "\n```go\nx", "a.md:2: the block isn't closed"},
	} {
		found, err := snippets("a.md", test.text)
		errs := []error{err}
		if err == nil {
			errs = nil
			for _, s := range found {
				errs = append(errs, c.check(s)...)
			}
		}
		var got []string
		for _, err := range errs {
			got = append(got, err.Error())
		}
		if got := strings.Join(got, "\n"); got != test.want {
			t.Errorf("%s:\n%s\nwant:\n%s", test.about, got, test.want)
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)|<img src="([^"]+)"`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	// code matches text that may look like a link without being one: inline code, and indented lines.
	code = regexp.MustCompile("`[^`\n]+`|(?m)^(?:    |\t).*$")
)

// Links to files, and to headings of the same document or another one, lead somewhere, in every Markdown file of the repository.
func TestLinks(t *testing.T) {
	for _, document := range markdown(t) {
		text := code.ReplaceAllString(fenced.ReplaceAllString(read(t, document), ""), "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			if err := follow(document, match[1]+match[2]); err != nil {
				t.Errorf("%s: %v", document, err)
			}
		}
	}
	for _, broken := range []string{"none.md", "GUIDE.md#no-such-heading", "#no-such-heading", "guide/none.md#routes"} {
		if follow("docs/GUIDE.md", broken) == nil {
			t.Errorf("%s seems to lead somewhere", broken)
		}
	}
}

// markdown returns the Markdown files of the repository, except in folders whose names begin with a dot, other than .github.
func markdown(t *testing.T) (documents []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (name[0] == '.' && name != ".github" || name == "node_modules"):
			return filepath.SkipDir
		case filepath.Ext(name) == ".md":
			document, err := filepath.Rel(root, path)
			documents = append(documents, filepath.ToSlash(document))
			return err
		}
		return nil
	})
	if err != nil || len(documents) < 30 {
		t.Fatal(documents, err)
	}
	return documents
}

// follow checks that the target of a link in a document exists. Links to other sites aren't followed.
func follow(document, target string) error {
	to, err := url.Parse(target)
	if err != nil || to.Scheme != "" {
		return err
	}
	name := filepath.Join(root, document)
	if to.Path != "" {
		name = filepath.Join(filepath.Dir(name), to.Path)
	}
	if to.Fragment == "" {
		_, err := os.Stat(name)
		return err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	found := 0
	for _, match := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
		if anchor(match[1]) == to.Fragment {
			found++
		}
	}
	if found != 1 {
		return fmt.Errorf("%s leads to %d headings", target, found)
	}
	return nil
}

// anchor returns the fragment by which a heading is known.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}
