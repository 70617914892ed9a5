package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/filohttp/filo/examples/internal/sitetest"
	"github.com/filohttp/filo/router"
)

// asProgram makes the test binary behave as the example itself, for the test that sends a signal.
const asProgram = "FILO_TODO_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start runs the example on a free port, with its database at db, and returns its address. It ends with the test, or
// when stop is called.
func start(t *testing.T, db string) (base string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stdout, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-addr", "127.0.0.1:0", "-db", db}, out)
		out.CloseWithError(err)
		done <- err
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("run ended before it listened: %v", err)
	}
	go io.Copy(io.Discard, stdout)
	stop = sync.OnceFunc(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), stop
}

func startNew(t *testing.T) (base string) {
	base, _ = start(t, filepath.Join(t.TempDir(), "todo.db"))
	return base
}

// send sends a request with a JSON body, unless it is "", and with fields given as names and values.
func send(t *testing.T, method, url, body string, fields ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json")
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(answer)
}

// call sends a request to the API, checks the status, and checks the answer against the document. It returns the body.
func call(t *testing.T, base, method, path, body string, status int, fields ...string) string {
	t.Helper()
	response, answer := send(t, method, base+path, body, fields...)
	if response.StatusCode != status {
		t.Fatalf("%s %s %s: got %d %s, want %d", method, path, body, response.StatusCode, answer, status)
	}
	for _, fault := range faults(response, method, path, answer) {
		t.Errorf("%s %s: %d %s is not what the document says: %v", method, path, status, answer, fault)
	}
	return answer
}

var theDocument = sync.OnceValue(func() *huma.OpenAPI {
	r := router.New()
	addAPI(r, nil) // no handler runs
	document, err := newDocument(r)
	if err != nil {
		panic(err)
	}
	for _, schema := range document.Components.Schemas.Map() {
		schema.PrecomputeMessages() // huma calls this only for routes that it serves itself
	}
	return document
})

// faults returns the differences between an answer and the document.
func faults(response *http.Response, method, path, answer string) []error {
	path, _, _ = strings.Cut(path, "?")
	item := theDocument().Paths[regexp.MustCompile(`^/api/todos/[^/]+$`).ReplaceAllString(path, "/api/todos/{id}")]
	if item == nil {
		return []error{fmt.Errorf("there is no path %s", path)}
	}
	op := map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PATCH": item.Patch, "DELETE": item.Delete}[method]
	if op == nil {
		return []error{fmt.Errorf("there is no method %s", method)}
	}
	described := op.Responses[strconv.Itoa(response.StatusCode)]
	if described == nil {
		return []error{fmt.Errorf("there is no status %d", response.StatusCode)}
	}
	if answer == "" && len(described.Content) == 0 {
		return nil
	}
	media := described.Content[response.Header.Get("Content-Type")]
	if media == nil {
		return []error{fmt.Errorf("there is no content of type %q", response.Header.Get("Content-Type"))}
	}
	var value any
	if err := json.Unmarshal([]byte(answer), &value); err != nil {
		return []error{err}
	}
	schemas := theDocument().Components.Schemas
	result := &huma.ValidateResult{}
	huma.Validate(schemas, media.Schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, value, result)
	return result.Errors
}

func parse[T any](t *testing.T, answer string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		t.Fatalf("%v in %q", err, answer)
	}
	return v
}

// titles formats the list in one line.
func titles(p page) string {
	var b strings.Builder
	for _, todo := range p.Todos {
		mark := ""
		if todo.Done {
			mark = "✓"
		}
		fmt.Fprintf(&b, "%s%s ", mark, todo.Title)
	}
	return fmt.Sprintf("%s(%d open, %d done)", b.String(), p.Open, p.Done)
}

// A user uses the application, from the first todo to the next start of the program.
func TestFromTheFirstTodo(t *testing.T) {
	db := filepath.Join(t.TempDir(), "with ?, # and %41.db")
	base, stop := start(t, db)
	expect := func(query, want string) {
		t.Helper()
		if got := titles(parse[page](t, call(t, base, "GET", "/api/todos"+query, "", 200))); got != want {
			t.Errorf("the list%s is %s, want %s", query, got, want)
		}
	}
	expect("", "(0 open, 0 done)")

	response, answer := send(t, "POST", base+"/api/todos", `{"title":"  Water the plants "}`)
	plants := parse[todo](t, answer)
	location := fmt.Sprintf("/api/todos/%d", plants.ID)
	if response.StatusCode != 201 || response.Header.Get("Location") != location || plants.Title != "Water the plants" || plants.Created.IsZero() {
		t.Fatalf("got %d %v %s", response.StatusCode, response.Header, answer)
	}
	call(t, base, "POST", "/api/todos", `{"title":"Call grandma"}`, 201)
	call(t, base, "POST", "/api/todos", `{"title":"<b>\"Quotes\"'; DROP TABLE todos; --</b> ☂"}`, 201)
	expect("", `<b>"Quotes"'; DROP TABLE todos; --</b> ☂ Call grandma Water the plants (3 open, 0 done)`)

	if got := parse[todo](t, call(t, base, "PATCH", location, `{"done":true}`, 200)); !got.Done || got.Title != plants.Title {
		t.Errorf("ticked: %+v", got)
	}
	if got := parse[todo](t, call(t, base, "PATCH", "/api/todos/2", `{"title":"Visit grandma"}`, 200)); got.Done || got.Title != "Visit grandma" {
		t.Errorf("renamed: %+v", got)
	}
	if got := parse[todo](t, call(t, base, "PATCH", "/api/todos/2", `{}`, 200)); got.Title != "Visit grandma" {
		t.Errorf("not changed at all: %+v", got)
	}
	call(t, base, "DELETE", "/api/todos/3", "", 204)
	call(t, base, "DELETE", "/api/todos/3", "", 404)
	call(t, base, "GET", "/api/todos/3", "", 404)
	call(t, base, "PATCH", "/api/todos/3", `{"done":true}`, 404)
	expect("", "Visit grandma ✓Water the plants (1 open, 1 done)")
	expect("?filter=open", "Visit grandma (1 open, 1 done)")
	expect("?filter=done", "✓Water the plants (1 open, 1 done)")

	// After a restart all todos still exist, and no id is used again.
	stop()
	for _, left := range []string{db + "-wal", db + "-shm"} {
		if _, err := os.Stat(left); err == nil {
			t.Errorf("the database wasn't closed: %s is left", left)
		}
	}
	base, _ = start(t, db)
	expect("", "Visit grandma ✓Water the plants (1 open, 1 done)")
	if got := parse[todo](t, call(t, base, "POST", "/api/todos", `{"title":"Sleep"}`, 201)); got.ID != 4 {
		t.Errorf("the next id is %d, want 4", got.ID)
	}
	call(t, base, "PATCH", location, `{"done":false}`, 200)
	expect("", "Sleep Visit grandma Water the plants (3 open, 0 done)")
}

func TestPages(t *testing.T) {
	base := startNew(t)
	for n := range 120 {
		added := parse[todo](t, call(t, base, "POST", "/api/todos", fmt.Sprintf(`{"title":"%d"}`, n+1), 201))
		if n%2 == 1 {
			call(t, base, "PATCH", fmt.Sprintf("/api/todos/%d", added.ID), `{"done":true}`, 200)
		}
	}
	for query, sizes := range map[string][]int{"": {50, 50, 20}, "limit=100": {100, 20}, "limit=60": {60, 60}, "filter=done&limit=50": {50, 10}} {
		var got []int
		last := int64(121)
		for before := int64(0); ; {
			path := "/api/todos?" + query
			if before > 0 {
				path += fmt.Sprintf("&before=%d", before)
			}
			p := parse[page](t, call(t, base, "GET", path, "", 200))
			for _, todo := range p.Todos {
				if todo.ID >= last {
					t.Fatalf("%q: %d comes behind %d", query, todo.ID, last)
				}
				last = todo.ID
			}
			got = append(got, len(p.Todos))
			if before = p.Next; before == 0 {
				break
			}
		}
		if !slices.Equal(got, sizes) {
			t.Errorf("%q: the pages have %v, want %v", query, got, sizes)
		}
	}
}

func TestBadInput(t *testing.T) {
	base := startNew(t)
	call(t, base, "POST", "/api/todos", `{"title":"Stay as you are"}`, 201)
	long := strings.Repeat("ä", 201)
	for _, tc := range []struct {
		sentence, method, path, body string
		status                       int
		want                         string // a part of the answer
	}{
		{"a title is needed", "POST", "/api/todos", `{}`, 422, `"pointer":"/title"`},
		{"it isn't empty", "POST", "/api/todos", `{"title":""}`, 422, `"pointer":"/title"`},
		{"nor all blank", "POST", "/api/todos", `{"title":" \t\n"}`, 422, "must not be blank"},
		{"nor too long", "POST", "/api/todos", `{"title":"` + long + `"}`, 422, "must have at most 200 characters"},
		{"it is one line", "POST", "/api/todos", `{"title":"a\nb"}`, 422, "one line"},
		{"and has no NUL", "POST", "/api/todos", `{"title":"a\u0000b"}`, 422, "one line"},
		{"it is text", "POST", "/api/todos", `{"title":7}`, 422, `"pointer":"/title"`},
		{"it is there once", "POST", "/api/todos", `{"title":"a","title":"b"}`, 422, "/title"},
		{"nothing else can be set", "POST", "/api/todos", `{"title":"a","id":7}`, 422, `"pointer":"/id"`},
		{"the body is JSON", "POST", "/api/todos", `{"title":`, 400, ""},
		{"and an object", "POST", "/api/todos", `["a"]`, 422, ""},
		{"and nothing behind it", "POST", "/api/todos", `{"title":"a"}{}`, 400, ""},
		{"and UTF-8", "POST", "/api/todos", "{\"title\":\"\xff\"}", 400, ""},
		{"and not nested without end", "POST", "/api/todos", `{"title":` + strings.Repeat("[", 8000), 400, ""},
		{"and not large", "POST", "/api/todos", `{"title":"` + strings.Repeat("x", maxBody) + `"}`, 413, ""},
		{"a change has the same rules", "PATCH", "/api/todos/1", `{"title":" "}`, 422, `"pointer":"/title"`},
		{"done is true or false", "PATCH", "/api/todos/1", `{"done":"yes"}`, 422, `"pointer":"/done"`},
		{"an id is a number", "GET", "/api/todos/one", "", 400, `"name":"id"`},
		{"an id is above 0", "GET", "/api/todos/0", "", 400, "must be at least 1"},
		{"nor below it", "DELETE", "/api/todos/-1", "", 400, "must be at least 1"},
		{"an id fits", "DELETE", "/api/todos/9223372036854775808", "", 400, `"name":"id"`},
		{"an id is no SQL", "DELETE", "/api/todos/1%20OR%201=1", "", 400, `"name":"id"`},
		{"nor a path", "GET", "/api/todos/%2e%2e%2fetc", "", 400, `"name":"id"`},
		{"an unknown todo isn't there", "GET", "/api/todos/9223372036854775807", "", 404, "no such todo"},
		{"a filter is a known one", "GET", "/api/todos?filter=some", "", 400, "must be one of: all, open, done"},
		{"a page has a limit", "GET", "/api/todos?limit=101", "", 400, "must be at most 100"},
		{"a page isn't empty", "GET", "/api/todos?limit=0", "", 400, "must be at least 1"},
		{"a page begins somewhere", "GET", "/api/todos?before=0", "", 400, "must be at least 1"},
		{"a parameter is a known one", "GET", "/api/todos?sort=title", "", 400, "sort"},
		{"a parameter is there once", "GET", "/api/todos?limit=1&limit=2", "", 400, "limit"},
	} {
		t.Run(tc.sentence, func(t *testing.T) {
			if answer := call(t, base, tc.method, tc.path, tc.body, tc.status); !strings.Contains(answer, tc.want) {
				t.Errorf("got %s", answer)
			}
		})
	}
	for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		// The server refuses requests that a page of another site can make a browser send without a preflight.
		call(t, base, "POST", "/api/todos", `{"title":"a"}`, 415, "Content-Type", contentType)
	}
	for request, status := range map[string]int{"PUT /api/todos": 405, "POST /api/todos/1": 405, "POST /": 405, "GET /api": 404, "GET /page/": 404} {
		method, path, _ := strings.Cut(request, " ")
		if response, answer := send(t, method, base+path, ""); response.StatusCode != status {
			t.Errorf("%s: got %d %s", request, response.StatusCode, answer)
		}
	}
	if got := titles(parse[page](t, call(t, base, "GET", "/api/todos", "", 200))); got != "Stay as you are (1 open, 0 done)" {
		t.Errorf("bad input has changed the list to %s", got)
	}
}

func TestManyAtOnce(t *testing.T) {
	base := startNew(t)
	t.Run("clients", func(t *testing.T) {
		for client := range 8 {
			t.Run(fmt.Sprint(client), func(t *testing.T) {
				t.Parallel()
				for n := range 10 {
					added := parse[todo](t, call(t, base, "POST", "/api/todos", fmt.Sprintf(`{"title":"%d %d"}`, client, n), 201))
					call(t, base, "PATCH", fmt.Sprintf("/api/todos/%d", added.ID), `{"done":true}`, 200)
					call(t, base, "GET", "/api/todos?limit=5", "", 200)
				}
			})
		}
	})
	if got := parse[page](t, call(t, base, "GET", "/api/todos?limit=1", "", 200)); got.Done != 80 || got.Open != 0 {
		t.Errorf("%d are done and %d open, want 80 and 0", got.Done, got.Open)
	}
}

// The document has each route of the API, and nothing else.
func TestDocumentHasAllRoutes(t *testing.T) {
	var described, routes []string
	for path, item := range theDocument().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op != nil {
				described = append(described, op.Method+" "+path)
			}
		}
	}
	r := router.New()
	addAPI(r, nil)
	for _, route := range r.Routes() {
		routes = append(routes, route.Pattern)
	}
	slices.Sort(described)
	slices.Sort(routes)
	if len(routes) != 5 || !slices.Equal(described, routes) {
		t.Errorf("there are %q, and described are %q", routes, described)
	}

	base := startNew(t)
	response, answer := send(t, "GET", base+"/openapi.json", "")
	if got := parse[struct{ OpenAPI string }](t, answer).OpenAPI; got != "3.1.0" || response.Header.Get("Content-Type") != "application/openapi+json" {
		t.Errorf("got OpenAPI %q of type %q", got, response.Header.Get("Content-Type"))
	}
	_, html := send(t, "GET", base+"/docs", "")
	for _, route := range routes {
		method, path, _ := strings.Cut(route, " ")
		if !strings.Contains(html, `<span class="method">`+method+"</span> "+path+"<") {
			t.Errorf("the page doesn't show %s", route)
		}
	}
}

func TestPage(t *testing.T) {
	base := startNew(t)
	for path, want := range map[string]struct{ contentType, text string }{
		"/":            {"text/html; charset=utf-8", `<form id="add"`},
		"/docs":        {"text/html; charset=utf-8", "/openapi.json"},
		"/todo.css":    {"text/css; charset=utf-8", "prefers-color-scheme"},
		"/todo.js":     {"text/javascript; charset=utf-8", "/api/todos"},
		"/favicon.svg": {"image/svg+xml", "<svg"},
	} {
		response, answer := send(t, "GET", base+path, "")
		h := response.Header
		if response.StatusCode != 200 || h.Get("Content-Type") != want.contentType || !strings.Contains(answer, want.text) {
			t.Errorf("%s: got %d %s %q", path, response.StatusCode, h.Get("Content-Type"), answer)
		}
		if h.Get("Content-Security-Policy") != policy || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: its header is %v", path, h)
		}
		// Nothing is loaded from another server: the only URL is the name of an XML namespace.
		for _, url := range regexp.MustCompile(`(https?:)?//[\w.-]+\.\w+[^\s"']*`).FindAllString(answer, -1) {
			if url != "http://www.w3.org/2000/svg" {
				t.Errorf("%s has the URL %s", path, url)
			}
		}
		again, body := send(t, "GET", base+path, "", "If-None-Match", h.Get("ETag"))
		if again.StatusCode != 304 || body != "" {
			t.Errorf("%s again: got %d %q", path, again.StatusCode, body)
		}
	}
}

func TestWrongArguments(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"an argument":        {[]string{"todo.db"}, `unexpected argument "todo.db"`},
		"an unknown flag":    {[]string{"-database", "x"}, "not defined"},
		"a folder as a file": {[]string{"-db", dir}, "opening " + dir},
		"another file":       {[]string{"-db", text}, "opening " + text + ": file is not a database"},
		"no such folder":     {[]string{"-db", filepath.Join(dir, "none", "x.db")}, "opening "},
		"a wrong address":    {[]string{"-db", filepath.Join(dir, "x.db"), "-addr", "127.0.0.1:x"}, "unknown port"},
	} {
		err := run(t.Context(), tc.args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

// SIGTERM ends the program without an error. Of the database's files, only the main one is left.
func TestSignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals")
	}
	db := filepath.Join(t.TempDir(), "todo.db")
	cmd := exec.Command(os.Args[0], "-addr", "127.0.0.1:0", "-db", db)
	// A build with the race detector sleeps for a second before it exits, unless told otherwise.
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	call(t, strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), "POST", "/api/todos", `{"title":"a"}`, 201)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, lines)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if left, err := filepath.Glob(db + "*"); err != nil || !slices.Equal(left, []string{db}) {
		t.Errorf("it leaves %q, %v", left, err)
	}
}

// A page of another site whose name was made to resolve to this server can't read from it (DNS rebinding).
func TestHosts(t *testing.T) {
	base := startNew(t)
	sitetest.Hosts(t, base+"/api/todos")
}
