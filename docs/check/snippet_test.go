package check

import (
	"fmt"
	"regexp"
	"strings"
)

// given are the parameters of the function that a snippet's statements are put into. That function returns an error.
const given = "c *filo.Ctx, r *router.Router, s *filo.Server, ctx context.Context, t *testing.T"

// known are the packages that snippets needn't import.
var known = map[string]string{
	"adaptor":     "github.com/filohttp/filo/adaptor",
	"attribute":   "go.opentelemetry.io/otel/attribute",
	"bind":        "github.com/filohttp/filo/bind",
	"bufio":       "bufio",
	"bytes":       "bytes",
	"cache":       "github.com/filohttp/filo/middleware/cache",
	"brotli":      "github.com/filohttp/filo/contrib/brotli",
	"client":      "github.com/prometheus/client_golang/prometheus",
	"context":     "context",
	"dashboard":   "github.com/filohttp/filo/dashboard",
	"debug":       "github.com/filohttp/filo/debug",
	"embed":       "embed",
	"errors":      "errors",
	"certs":       "github.com/filohttp/filo/certs",
	"expvar":      "expvar",
	"filepath":    "path/filepath",
	"filo":        "github.com/filohttp/filo",
	"fmt":         "fmt",
	"fs":          "io/fs",
	"gojwt":       "github.com/golang-jwt/jwt/v5",
	"health":      "github.com/filohttp/filo/health",
	"http":        "net/http",
	"huma":        "github.com/danielgtaylor/huma/v2",
	"humafilo":    "github.com/filohttp/filo/contrib/huma",
	"idempotency": "github.com/filohttp/filo/middleware/idempotency",
	"io":          "io",
	"jwt":         "github.com/filohttp/filo/contrib/jwt",
	"log":         "log",
	"middleware":  "github.com/filohttp/filo/middleware",
	"multipart":   "mime/multipart",
	"net":         "net",
	"netip":       "net/netip",
	"os":          "os",
	"otel":        "github.com/filohttp/filo/contrib/otel",
	"pool":        "github.com/filohttp/filo/pool",
	"prometheus":  "github.com/filohttp/filo/contrib/prometheus",
	"proxy":       "github.com/filohttp/filo/proxy",
	"ratelimit":   "github.com/filohttp/filo/middleware/ratelimit",
	"redis":       "github.com/redis/go-redis/v9",
	"redisfilo":   "github.com/filohttp/filo/contrib/redis",
	"restart":     "github.com/filohttp/filo/contrib/restart",
	"router":      "github.com/filohttp/filo/router",
	"servertest":  "github.com/filohttp/filo/servertest",
	"session":     "github.com/filohttp/filo/middleware/session",
	"signal":      "os/signal",
	"slog":        "log/slog",
	"sql":         "database/sql",
	"sse":         "github.com/filohttp/filo/sse",
	"static":      "github.com/filohttp/filo/static",
	"strconv":     "strconv",
	"strings":     "strings",
	"sync":        "sync",
	"syscall":     "syscall",
	"templates":   "github.com/filohttp/filo/templates",
	"testing":     "testing",
	"time":        "time",
	"tls":         "crypto/tls",
	"validate":    "github.com/filohttp/filo/contrib/validate",
	"websocket":   "github.com/filohttp/filo/contrib/websocket",
}

// assumed are the declarations of names that the documents take for granted.
var assumed = map[string]string{
	"User":           "type User struct { ID int64 `json:\"id\"`; Name string `json:\"name\"` }",
	"user":           "var user = User{7, \"Ada\"}",
	"users":          "var users = []User{user}",
	"authenticate":   "var authenticate filo.Middleware",
	"findUser":       "func findUser(ctx context.Context, id string) (User, error) { return user, ctx.Err() }",
	"home":           "func home(c *filo.Ctx) error { return nil }",
	"listUsers":      "func listUsers(c *filo.Ctx) error { return nil }",
	"createUser":     "func createUser(c *filo.Ctx) error { return nil }",
	"showUser":       "func showUser(c *filo.Ctx) error { return nil }",
	"deleteUser":     "func deleteUser(c *filo.Ctx) error { return nil }",
	"handler":        "func handler(c *filo.Ctx) error { return nil }",
	"checkPassword":  "func checkPassword(c *filo.Ctx) (user string, err error) { return c.Query(\"user\"), nil }",
	"sendMail":       "func sendMail(ctx context.Context, address string) error { return ctx.Err() }",
	"userKey":        "var userKey = filo.NewKey[User](\"user\")",
	"db":             "var db *sql.DB",
	"h":              "var h *health.Health",
	"pingMail":       "func pingMail(ctx context.Context) error { return ctx.Err() }",
	"site":           "var site fs.FS",
	"logo":           "var logo []byte",
	"rows":           "var rows io.Reader",
	"getCertificate": "func getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }",
	"newHandler":     "func newHandler() filo.Handler { return nil }",
}

// snippet is a block of Go in a document.
type snippet struct {
	document string
	line     int // of its first line, from 1
	code     string
}

// snippets returns the blocks of Go in a document. A fence that isn't at the beginning of its line, or isn't closed, is an
// error: it would leave code out unnoticed.
func snippets(document, text string) ([]snippet, error) {
	var found []snippet
	var info string
	opened := 0 // the line of the open fence
	var code strings.Builder
	for i, line := range strings.Split(text, "\n") {
		switch {
		case !strings.HasPrefix(line, "```"):
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				return nil, fmt.Errorf("%s:%d: a fence must be at the beginning of its line", document, i+1)
			}
			if opened > 0 {
				code.WriteString(line + "\n")
			}
		case opened == 0:
			info, opened = strings.TrimPrefix(line, "```"), i+1
			code.Reset()
		default:
			if info == "go" {
				found = append(found, snippet{document, opened + 1, code.String()})
			}
			opened = 0
		}
	}
	if opened > 0 {
		return nil, fmt.Errorf("%s:%d: the block isn't closed", document, opened)
	}
	return found, nil
}

var packageClause = regexp.MustCompile(`(?m)^package `)

// whole reports whether the snippet is a complete file.
func (s snippet) whole() bool { return packageClause.MatchString(s.code) }

// part is a declaration, or the statements between two of them.
type part struct {
	keyword string // "" for statements
	line    int    // of its first line, in the document
	code    string
}

// After "func", a method has a space in front of its receiver, and a function literal has none in front of its parameters.
var declaration = regexp.MustCompile(`^(func|type|var|const|import) `)

// parts takes the code apart. It relies on the layout of gofmt: a declaration of several lines ends with the first line that begins with a
// closing bracket.
func (s snippet) parts() []part {
	var all []part
	inside := false // inside of a declaration of several lines
	for i, line := range strings.SplitAfter(s.code, "\n") {
		match := declaration.FindStringSubmatch(line)
		opens := strings.HasSuffix(line, "{\n") || strings.HasSuffix(line, "(\n")
		switch {
		case inside:
			all[len(all)-1].code += line
			inside = opens || line == "" || !strings.Contains("})", line[:1])
		case match != nil:
			all = append(all, part{match[1], s.line + i, line})
			inside = opens
		case len(all) == 0 || all[len(all)-1].keyword != "":
			all = append(all, part{"", s.line + i, line})
		default:
			all[len(all)-1].code += line
		}
	}
	return all
}

// complete returns a file with the snippet's code, and with the imports and declarations that known and assumed have for the names. Line
// directives make the positions of errors refer to the document.
func (s snippet) complete(names []string) string {
	if s.whole() {
		return fmt.Sprintf("//line %s:%d\n%s", s.document, s.line, s.code)
	}
	var imports, declarations, statements strings.Builder
	for _, name := range names {
		switch {
		case known[name] != "":
			fmt.Fprintf(&imports, "import %s %q\n", name, known[name])
		case assumed[name] != "":
			declarations.WriteString(assumed[name] + "\n")
		}
	}
	for _, p := range s.parts() {
		out := &declarations
		switch p.keyword {
		case "":
			out = &statements
		case "import":
			out = &imports
		}
		fmt.Fprintf(out, "//line %s:%d\n%s", s.document, p.line, p.code)
	}
	return fmt.Sprintf("package snippet\n%s\n%s\nfunc _(%s) error {\n{\n%s\n}\nreturn nil\n}\n",
		&imports, &declarations, given, &statements)
}
