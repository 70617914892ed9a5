package check

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

var update = flag.Bool("update", false, "write docs/ERRORS.md, AGENTS.md and llms.txt anew")

const (
	errorsDocument = "docs/ERRORS.md"
	mistakesFile   = "mistakescases_test.go"
)

// topic is a section of the document: mistakes of one kind.
type topic struct {
	name, intro string
	mistakes    []mistake
}

// mistake is a mistake that people make. The document shows its code as it is in mistakesFile.
type mistake struct {
	title string
	// do makes the mistake before the server starts, with the router and the server that then serve the request.
	do func(r *router.Router, s *filo.Server) error
	// ask is a request, with fields, that is sent to the server if do succeeds; none if it is empty.
	ask  []string
	body string
	// apart makes the mistake in a separate process, because the mistake ends the process.
	apart bool
	// instead is what to write instead: Go, or a sentence that ends in a full stop.
	instead string
}

// docs/ERRORS.md has filo's messages for each mistake. With -update the test writes the document.
func TestErrorsDocument(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what the system says is Linux's")
	}
	codes := mistakeCodes(t)
	var b strings.Builder
	b.WriteString(errorsIntro)
	count := 0
	for _, topic := range topics {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", topic.name, topic.intro)
		for _, m := range topic.mistakes {
			fmt.Fprintf(&b, "\n### %s\n\n```go other\n%s\n```\n\n", m.title, codes[count])
			fmt.Fprintf(&b, "```text\n%s\n```\n\n", strings.Join(m.says(t), "\n"))
			if strings.HasSuffix(m.instead, ".") {
				fmt.Fprintf(&b, "%s\n", m.instead)
			} else {
				fmt.Fprintf(&b, "```go\n%s\n```\n", strings.TrimSpace(m.instead))
			}
			count++
		}
	}
	if count < 60 {
		t.Errorf("%d mistakes, want sixty at least", count)
	}
	name := filepath.Join(root, errorsDocument)
	if *update && !t.Failed() {
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("%s isn't what filo says (go test -run ErrorsDocument -update . writes it anew):\n%s", errorsDocument, firstDifference(got, string(want)))
	}
}

// firstDifference returns the first lines that differ.
func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("line %d: says %q, and the document has %q", i+1, a[i], strings.Join(b[min(i, len(b)):min(i+1, len(b))], ""))
		}
	}
	return fmt.Sprintf("the document has %d lines more", len(b)-len(a))
}

// mistakeCodes returns the code of each mistake, in the order of topics.
func mistakeCodes(t *testing.T) (codes []string) {
	text, err := os.ReadFile(mistakesFile)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, mistakesFile, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, ok := pair.Key.(*ast.Ident)
		if !ok || key.Name != "do" {
			return true
		}
		body := pair.Value.(*ast.FuncLit).Body
		codes = append(codes, dedent(string(text[fset.Position(body.Lbrace).Offset+1:fset.Position(body.Rbrace).Offset])))
		return false
	})
	return codes
}

// dedent returns a function's statements without their indentation, and without a last statement that returns nil.
func dedent(code string) string {
	lines := strings.Split(strings.TrimSpace(code), "\n")
	indent := code[len("\n"):strings.Index(code, lines[0])]
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], indent)
	}
	if last := len(lines) - 1; last > 0 && lines[last] == "return nil" {
		lines = lines[:last]
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// says makes the mistake, and returns filo's messages.
func (m mistake) says(t *testing.T) []string {
	t.Helper()
	var said []string
	if m.apart {
		said = m.saysApart(t)
	} else {
		said = m.saysHere(t)
	}
	if len(said) == 0 {
		t.Errorf("%s: filo says nothing", m.title)
	}
	for i := range said {
		said[i] = neutral(said[i])
	}
	return said
}

func (m mistake) saysHere(t *testing.T) []string {
	log := &recordLines{}
	r, s := router.New(), &filo.Server{Logger: slog.New(log), LogAllErrors: true}
	var err error
	if text := panicText(func() { err = m.do(r, s) }); text != "" {
		return []string{"panic: " + text}
	}
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	if len(m.ask) == 0 {
		return nil
	}
	if s.Handler == nil {
		s.Handler = r.Serve
	}
	var answer string
	t.Run(m.title, func(t *testing.T) { // at its end the server has ended, and has logged everything
		answer = answerLine(servertest.NewServer(t, s).Raw(t, servertest.Request(m.ask[0], m.body, append(m.ask[1:], "Connection: close")...)))
	})
	said := append(log.all(), answer)
	if f := afterwards; f != nil {
		afterwards = nil
		if m.apart {
			go f()
			select {} // until f has ended the process, or the parent process has
		}
		if err := f(); err != nil {
			said = append(said, "error, later: "+err.Error())
		}
	}
	return said
}

// saysApart makes the mistake in another process, and returns what that process prints at its end.
func (m mistake) saysApart(t *testing.T) []string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestMistakeApart$")
	command.Env = append(os.Environ(), "FILO_MISTAKE="+m.title)
	output, err := command.CombinedOutput()
	if err == nil {
		t.Errorf("%s: the process has survived:\n%s", m.title, output)
	}
	for line := range strings.Lines(string(output)) {
		if strings.HasPrefix(line, "panic: ") {
			return []string{strings.TrimSpace(line)}
		}
	}
	t.Errorf("%s: no panic in:\n%s", m.title, output)
	return nil
}

// TestMistakeApart runs in the process that saysApart starts.
func TestMistakeApart(t *testing.T) {
	title := os.Getenv("FILO_MISTAKE")
	if title == "" {
		t.Skip("it is run by TestErrorsDocument")
	}
	for _, topic := range topics {
		for _, m := range topic.mistakes {
			if m.title == title {
				m.saysHere(t)
			}
		}
	}
}

// answerLine returns status and body of an answer, and whether it breaks off.
func answerLine(raw string) string {
	if raw == "" {
		return "answer: none, the connection breaks off"
	}
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), nil)
	if err != nil {
		return "answer: " + raw
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	line := strings.TrimSpace("answer: " + response.Status + "\n" + string(bytes.TrimSpace(body)))
	if err != nil {
		line += "\n(the connection breaks off)"
	}
	return line
}

// recordLines keeps log records as lines, without the parts that differ each time.
type recordLines struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

// Enabled leaves out records up to level Info, such as that of a server's start.
func (l *recordLines) Enabled(_ context.Context, level slog.Level) bool {
	return level > slog.LevelInfo
}

func (l *recordLines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *recordLines) WithGroup(string) slog.Handler      { return l }

func (l *recordLines) Handle(_ context.Context, record slog.Record) error {
	line := "log: " + record.Message
	record.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" && a.Key != "remote" {
			line += fmt.Sprintf(" %s=%q", a.Key, a.Value.String())
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *recordLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines
}

func panicText(f func()) (text string) {
	defer func() {
		if value := recover(); value != nil {
			text = fmt.Sprint(value)
		}
	}()
	f()
	return ""
}

var (
	placeInFile = regexp.MustCompile(`[^\s("]*` + mistakesFile + `:(\d+)`)
	packageName = regexp.MustCompile(`(github\.com/filohttp/filo/docs/check|\bcheck)\.`)
	functionOf  = regexp.MustCompile(`main\.init(\.func\d+|\.\d+)*`)
	portNumber  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	tempFile    = regexp.MustCompile(`/\S*/(\w+\.pem)`)
)

// neutral removes from a sentence the parts that depend on the machine or the test.
func neutral(line string) string {
	line = placeInFile.ReplaceAllString(line, "main.go:12")
	line = packageName.ReplaceAllString(line, "main.")
	line = functionOf.ReplaceAllString(line, "main.main.func1")
	line = portNumber.ReplaceAllString(line, "127.0.0.1:8080")
	return tempFile.ReplaceAllString(line, "$1")
}
