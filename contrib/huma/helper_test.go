package humafilo_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/filohttp/filo"
	humafilo "github.com/filohttp/filo/contrib/huma"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// newAPI returns an API without documents, and its router.
func newAPI() (*router.Router, huma.API) {
	r := router.New()
	return r, humafilo.New(r, plainConfig())
}

func plainConfig() huma.Config {
	config := huma.DefaultConfig("Test", "1.0.0")
	config.OpenAPIPath, config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", "", nil
	return config
}

// serve starts a server that doesn't log, since tests provoke errors.
func serve(t testing.TB, h filo.Handler) *servertest.Server {
	t.Helper()
	return servertest.NewServer(t, &filo.Server{Handler: h, Logger: slog.New(slog.DiscardHandler)})
}

type answer struct {
	status int
	header http.Header
	body   string
	length int64 // -1: chunked
}

// ask sends a request, such as "GET /path", with a body and fields such as "Name: value".
func ask(t testing.TB, s *servertest.Server, request, body string, fields ...string) answer {
	t.Helper()
	text := request + " HTTP/1.1\r\nHost: filo.test\r\n"
	for _, field := range fields {
		text += field + "\r\n"
	}
	if body != "" {
		text += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return parse(t, request, s.Raw(t, text+"\r\n"+body))
}

func parse(t testing.TB, request, raw string) answer {
	t.Helper()
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s: %v in %q", request, err, raw)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v in %q", request, err, raw)
	}
	return answer{response.StatusCode, response.Header, string(content), response.ContentLength}
}

type text struct {
	Body []byte
}

// operation registers an operation without input that answers with text.
func operation(api huma.API, method, path string, f func(ctx context.Context) (string, error)) {
	huma.Register(api, huma.Operation{Method: method, Path: path}, func(ctx context.Context, _ *struct{}) (*text, error) {
		s, err := f(ctx)
		return &text{[]byte(s)}, err
	})
}
