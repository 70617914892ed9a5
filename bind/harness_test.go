package bind_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// post returns a request with a body.
func post(contentType, body string) string {
	return fmt.Sprintf("POST /?q=1 HTTP/1.1\r\nHost: filo.test\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(body), body)
}

func postJSON(body string) string { return post("application/json", body) }

// get returns a request without a body, with fields such as "Name: value".
func get(target string, fields ...string) string {
	head := "GET " + target + " HTTP/1.1\r\nHost: filo.test\r\n"
	for _, field := range fields {
		head += field + "\r\n"
	}
	return head + "\r\n"
}

// bound runs bindTo for a request, and returns the bound value and the error.
func bound[T any](t testing.TB, request string, bindTo func(*filo.Ctx, any, ...bind.Option) error, options ...bind.Option) (v T, err error) {
	t.Helper()
	return v, boundTo(t, request, &v, bindTo, options...)
}

func boundTo(t testing.TB, request string, v any, bindTo func(*filo.Ctx, any, ...bind.Option) error, options ...bind.Option) (err error) {
	t.Helper()
	called := false
	r := router.New()
	r.Handle("/{shop...}", func(c *filo.Ctx) error {
		called = true
		err = bindTo(c, v, options...)
		return nil
	})
	servertest.New(t, r.Serve).Raw(t, request)
	if !called {
		t.Fatalf("the server refused %q", request)
	}
	return err
}

// answerTo returns the status and problem details with which a server answers the error of bindTo.
func answerTo(t testing.TB, request string, v any, bindTo func(*filo.Ctx, any, ...bind.Option) error, options ...bind.Option) (status int, problem map[string]any) {
	t.Helper()
	raw := servertest.New(t, func(c *filo.Ctx) error { return bindTo(c, v, options...) }).Raw(t, request)
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.Header.Get("Content-Type") == "application/problem+json" {
		if err := json.Unmarshal(body, &problem); err != nil {
			t.Fatalf("%v in %q", err, body)
		}
	}
	return response.StatusCode, problem
}

// inShort formats an error as "400 body /a: detail; query b: detail", and nil as "".
func inShort(t testing.TB, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	e, ok := err.(*bind.Error)
	if !ok {
		return err.Error()
	}
	var parts []string
	for _, f := range e.Fields {
		if f.Pointer != "" && f.Name != "" {
			t.Errorf("%v has a pointer and a name", f)
		}
		parts = append(parts, strings.TrimSpace(f.In+" "+f.Pointer+f.Name)+": "+f.Detail)
	}
	text := fmt.Sprint(e.Status, " ", strings.Join(parts, "; "))
	if e.More {
		text += "; …"
	}
	return text
}
