package recipes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
	"github.com/getsentry/sentry-go"
)

// The code in docs/RECIPES.md is also in the files of this package, with other indentation.
func TestDocument(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(flat(string(content)))
	}
	document, err := os.ReadFile("../../docs/RECIPES.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(document), -1)
	if len(blocks) == 0 {
		t.Fatal("no blocks of Go")
	}
	for _, block := range blocks {
		if !strings.Contains(all.String(), flat(block[1])) {
			t.Errorf("this isn't in any file:\n%s", block[1])
		}
	}
}

// flat removes the indentation and whole-line comments.
func flat(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func TestProblems(t *testing.T) {
	r := router.New()
	for path, err := range map[string]error{
		"/missing":  fmt.Errorf("user 7: %w", ErrNotFound),
		"/late":     fmt.Errorf("ask the bank: %w", context.DeadlineExceeded),
		"/conflict": filo.Error(409, "taken"),
		"/failure":  errors.New("secret"),
	} {
		r.GET(path, func(*filo.Ctx) error { return err })
	}
	s := servertest.NewServer(t, &filo.Server{Handler: r.Serve, ErrorHandler: Problems, Logger: slog.New(slog.DiscardHandler)})
	for path, want := range map[string]int{"/missing": 404, "/late": 504, "/conflict": 409, "/failure": 500, "/nowhere": 404} {
		got := s.Do(t, "GET "+path)
		var problem struct{ Status int }
		err := json.Unmarshal([]byte(got.Body), &problem)
		if got.Status != want || err != nil || problem.Status != want || got.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s, %v", path, got.Status, got.Body, err)
		}
		if strings.Contains(got.Body, "secret") {
			t.Errorf("%s shows its cause: %s", path, got.Body)
		}
	}
}

func TestPasswords(t *testing.T) {
	p := NewPasswords()
	stored, err := p.Hash(t.Context(), "correct horse")
	if err != nil {
		t.Fatal(err)
	}
	for password, want := range map[string]bool{"correct horse": true, "correct hors": false, "": false} {
		if got, err := p.Matches(t.Context(), stored, password); got != want || err != nil {
			t.Errorf("%q: %v, %v", password, got, err)
		}
	}
	for _, broken := range []string{"", "x", "$argon2id$v=18$m=1,t=1,p=1$AA$AA", "$argon2id$v=19$m=a$AA$AA", "$argon2id$v=19$m=64,t=1,p=1$!$AA", "$argon2id$v=19$m=64,t=1,p=1$AAAA$"} {
		if got, err := p.Matches(t.Context(), broken, "correct horse"); got || err == nil {
			t.Errorf("%q: %v, %v", broken, got, err)
		}
	}
	// A login whose client has left doesn't wait for a slot.
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	gone, leave := context.WithCancelCause(t.Context())
	leave(filo.ErrClientGone)
	if _, err := p.Hash(gone, "x"); !errors.Is(err, filo.ErrClientGone) {
		t.Error(err)
	}
}

func TestAudit(t *testing.T) {
	var log bytes.Buffer
	r := router.New()
	r.Use(Audit(slog.New(slog.NewJSONHandler(&log, nil)), func(*filo.Ctx) string { return "ada" }))
	r.PUT("/users/{id}", func(c *filo.Ctx) error {
		var in map[string]string
		if err := bind.JSON(c, &in); err != nil {
			return err
		}
		return c.JSON(200, in)
	})
	s := servertest.New(t, r.Serve)
	if got := s.DoBody(t, "PUT /users/7", `{"name":"Ada"}`, "Content-Type: application/json"); got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	var record struct{ User, Route, Request, Response string }
	if err := json.Unmarshal(log.Bytes(), &record); err != nil {
		t.Fatal(err)
	}
	if record.User != "ada" || record.Route != "PUT /users/{id}" || record.Request != `{"name":"Ada"}` || strings.TrimSpace(record.Response) != `{"name":"Ada"}` {
		t.Errorf("%s", log.Bytes())
	}
	log.Reset()
	long := `{"name":"` + strings.Repeat("a", 2*maxAuditBytes) + `"}`
	if got := s.DoBody(t, "PUT /users/7", long, "Content-Type: application/json"); got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	if log.Len() > 3*maxAuditBytes {
		t.Errorf("%d bytes were logged", log.Len())
	}
}

// Audit records refusals, failures and panics with the statuses that the clients get.
func TestAuditOfFailures(t *testing.T) {
	var log bytes.Buffer
	r := router.New()
	r.Use(Audit(slog.New(slog.NewJSONHandler(&log, nil)), func(*filo.Ctx) string { return "ada" }))
	r.PUT("/refused", func(*filo.Ctx) error { return filo.Error(403, "no") })
	r.PUT("/failed", func(*filo.Ctx) error { return errors.New("secret") })
	r.PUT("/panic", func(*filo.Ctx) error { panic("a panic") })
	s := servertest.NewServer(t, &filo.Server{Handler: r.Serve, Logger: slog.New(slog.DiscardHandler)})
	for path, want := range map[string]int{"/refused": 403, "/failed": 500, "/panic": 500} {
		log.Reset()
		got := s.DoBody(t, "PUT "+path, "{}", "Content-Type: application/json", "Accept: application/json")
		var record struct {
			Status            int
			Request, Response string
		}
		if err := json.Unmarshal(log.Bytes(), &record); err != nil {
			t.Errorf("%s: %v in %q", path, err, log.Bytes())
		}
		if got.Status != want || record.Status != want || record.Request != "{}" || path != "/panic" && record.Response != got.Body {
			t.Errorf("%s: the client got %d %q, the record is %s", path, got.Status, got.Body, log.Bytes())
		}
	}
}

func TestPages(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		page, err := PageOf(c)
		if err != nil {
			return err
		}
		page.SetNext(c, page.After+int64(page.Size))
		return c.Text(200, fmt.Sprint(page.After, page.Size))
	})
	next := "/?limit=7"
	for _, want := range []string{"0 7", "7 7", "14 7"} {
		got := s.Do(t, "GET "+next)
		if got.Body != want {
			t.Fatalf("%d %s, want %s", got.Status, got.Body, want)
		}
		link, ok := strings.CutSuffix(got.Header.Get("Link"), `>; rel="next"`)
		if !ok {
			t.Fatal(link)
		}
		next = "/" + strings.TrimPrefix(link, "<")
	}
	for _, wrong := range []string{"limit=0", "limit=201", "limit=x", "cursor=!", "cursor=eA"} {
		if got := s.Do(t, "GET /?"+wrong); got.Status != 400 {
			t.Errorf("%s: %d", wrong, got.Status)
		}
	}
}

func TestSentry(t *testing.T) {
	sent := new(sentEvents)
	if err := sentry.Init(sentry.ClientOptions{Dsn: "https://key@sentry.example.com/1", Transport: sent}); err != nil {
		t.Fatal(err)
	}
	r := router.New()
	Sentry(r)
	r.GET("/panic/{id}", func(*filo.Ctx) error { panic("a panic") })
	r.GET("/failure/{id}", func(*filo.Ctx) error { return errors.New("a failure") })
	r.GET("/mistake", func(*filo.Ctx) error { return filo.Error(400, "no") })
	s := servertest.NewServer(t, &filo.Server{Handler: r.Serve, Logger: slog.New(slog.DiscardHandler)})
	for path, want := range map[string]int{"/panic/1": 500, "/failure/1": 500, "/mistake": 400} {
		if got := s.Do(t, "GET "+path); got.Status != want {
			t.Errorf("%s: %d", path, got.Status)
		}
	}
	if len(sent.events) != 2 {
		t.Fatalf("%d events", len(sent.events))
	}
	for _, event := range sent.events {
		if event.Request == nil || !strings.Contains(event.Request.URL, "/1") {
			t.Errorf("an event without its request: %+v", event.Request)
		}
		if len(event.Exception) > 0 && event.Exception[0].Value == "a failure" && event.Tags["route"] != "GET /failure/{id}" {
			t.Errorf("tags %v", event.Tags)
		}
	}
}

// sentEvents is a transport for Sentry that keeps the events instead of sending them.
type sentEvents struct {
	mu     sync.Mutex
	events []*sentry.Event // guarded by mu
}

func (s *sentEvents) SendEvent(event *sentry.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, event)
}
func (s *sentEvents) Configure(sentry.ClientOptions)        {}
func (s *sentEvents) Flush(time.Duration) bool              { return true }
func (s *sentEvents) FlushWithContext(context.Context) bool { return true }
func (s *sentEvents) Close()                                {}

func TestUsers(t *testing.T) {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		t.Skip("DATABASE_URL is not set: this test needs a PostgreSQL server")
	}
	users, err := OpenUsers(t.Context(), url, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer users.Pool.Close()
	if _, err := users.Pool.Exec(t.Context(), `DROP TABLE IF EXISTS users;
		CREATE TABLE users (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, email text NOT NULL UNIQUE)`); err != nil {
		t.Fatal(err)
	}
	r := router.New()
	users.Routes(r)
	s := servertest.New(t, r.Serve)
	for _, step := range []struct {
		target, body string
		status       int
		answer       string
	}{
		{"GET /users", "", 200, `[]`},
		{"POST /users", `{"email":"a@example.com"}`, 201, `{"id":1,"email":"a@example.com"}`},
		{"POST /users", `{"email":"a@example.com"}`, 409, "account"},
		{"POST /users", `{}`, 422, "email"},
		{"POST /users", `{"email":"b@example.com"}`, 201, `"id":3`},
		{"GET /users/1", "", 200, `"a@example.com"`},
		{"GET /users/2", "", 404, ""},
		{"GET /users?limit=1", "", 200, `[{"id":1,"email":"a@example.com"}]`},
	} {
		got := s.DoBody(t, step.target, step.body, "Content-Type: application/json")
		if got.Status != step.status || !strings.Contains(got.Body, step.answer) {
			t.Errorf("%s: %d %s, want %d %s", step.target, got.Status, got.Body, step.status, step.answer)
		}
	}
}
