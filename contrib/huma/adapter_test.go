package humafilo_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/autopatch"
	"github.com/danielgtaylor/huma/v2/humatest"

	"github.com/filohttp/filo"
	humafilo "github.com/filohttp/filo/contrib/huma"
	"github.com/filohttp/filo/router"
)

type mailInput struct {
	Group   string `path:"group-name" minLength:"2"`
	Copies  int    `query:"copies" minimum:"1" default:"1"`
	Auth    string `header:"Authorization"`
	Session string `cookie:"session"`
	Body    struct {
		Name  string `json:"name" maxLength:"10"`
		Email string `json:"email" format:"email"`
	}
}

type mailOutput struct {
	Mark   string   `header:"X-Mark"`
	Cookie []string `header:"Set-Cookie"`
	Body   struct {
		Message string `json:"message"`
	}
}

func mail(_ context.Context, input *mailInput) (*mailOutput, error) {
	output := &mailOutput{Mark: input.Auth, Cookie: []string{"a=1", "b=2"}}
	output.Body.Message = fmt.Sprintf("%s <%s> %s %d %s", input.Body.Name, input.Body.Email, input.Group, input.Copies, input.Session)
	return output, nil
}

func TestOperation(t *testing.T) {
	r, api := newAPI()
	huma.Put(api, "/mail/{group-name}", mail)
	s := serve(t, r.Serve)
	const whole = `{"name":"Go","email":"go@example.com"}`
	for _, tc := range []struct {
		sentence, request, body string
		status                  int
		want                    string // a part of the body
	}{
		{"every kind of input arrives", "PUT /mail/a%20b?copies=3", whole, 200, `{"message":"Go <go@example.com> a b 3 s1"}`},
		{"a default is one", "PUT /mail/ab", whole, 200, `"Go <go@example.com> ab 1 s1"`},
		{"a wrong value is told with its place", "PUT /mail/ab?copies=0", whole, 422, `"location":"query.copies"`},
		{"a value of another type too", "PUT /mail/ab?copies=many", whole, 422, `"location":"query.copies"`},
		{"a short path parameter too", "PUT /mail/a", whole, 422, `"location":"path.group-name"`},
		{"a missing member too", "PUT /mail/ab", `{"name":"Go"}`, 422, `expected required property email to be present`},
		{"all wrong members are told", "PUT /mail/ab", `{"name":"12345678901","email":"x"}`, 422, `"location":"body.email"`},
		{"an unknown member too", "PUT /mail/ab", `{"name":"Go","email":"go@example.com","x":1}`, 422, `"location":"body.x"`},
		{"what isn't JSON is malformed", "PUT /mail/ab", `{"name":`, 400, `unexpected`},
		{"no body is an error", "PUT /mail/ab", "", 400, `request body is required`},
		{"another method is the router's to refuse", "POST /mail/ab", whole, 405, ""},
		{"another path too", "PUT /mail/ab/c", whole, 404, ""},
	} {
		t.Run(tc.sentence, func(t *testing.T) {
			got := ask(t, s, tc.request, tc.body, "Content-Type: application/json", "Authorization: me", "Cookie: session=s1; x=y")
			if got.status != tc.status || !strings.Contains(got.body, tc.want) {
				t.Errorf("got %d %q", got.status, got.body)
			}
			contentType := "application/problem+json"
			if tc.status == 200 {
				contentType = "application/json"
				if got.header.Get("X-Mark") != "me" || fmt.Sprint(got.header["Set-Cookie"]) != "[a=1 b=2]" || got.length != int64(len(got.body)) {
					t.Errorf("the header is %v", got.header)
				}
			}
			if tc.status != 404 && tc.status != 405 && got.header.Get("Content-Type") != contentType {
				t.Errorf("the Content-Type is %q", got.header.Get("Content-Type"))
			}
		})
	}
}

func TestPaths(t *testing.T) {
	r, api := newAPI()
	for _, path := range []string{"/", "/dir/", "/files/{path...}", "/x/{a-b}/{c}"} {
		operation(api, "GET", path, func(ctx context.Context) (string, error) {
			c, _ := humafilo.FromContext(ctx)
			return c.Route() + " " + c.Param("path") + c.Param("a_b") + c.Param("c"), nil
		})
	}
	s := serve(t, r.Serve)
	for request, want := range map[string]string{
		"GET /":             "200 GET /{$} ",
		"GET /other":        "404",
		"GET /dir/":         "200 GET /dir/{$} ",
		"GET /dir/x":        "404",
		"GET /files/a/b":    "200 GET /files/{path...} a/b",
		"GET /x/1/2":        "200 GET /x/{a_b}/{c} 12",
		"GET /x/1%2F3/%C3":  "200 GET /x/{a_b}/{c} 1/3\xc3",
		"HEAD /":            "200",
		"OPTIONS /":         "204",
		"GET //dir/../dir/": "301",
	} {
		if got := ask(t, s, request, ""); strings.TrimSuffix(fmt.Sprintf("%d %s", got.status, got.body), " ") != strings.TrimSuffix(want, " ") &&
			!(len(want) == 3 && fmt.Sprint(got.status) == want) {
			t.Errorf("%s: got %d %q, want %q", request, got.status, got.body, want)
		}
	}
}

// Each method of huma.Context returns its own value, for a request in which similar values differ.
func TestContext(t *testing.T) {
	r, api := newAPI()
	var got []string
	add := func(name string, value any) { got = append(got, fmt.Sprintf("%s: %v", name, value)) }
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		u := ctx.URL()
		add("operation", ctx.Operation().OperationID)
		add("method", ctx.Method())
		add("host", ctx.Host())
		add("remote", ctx.RemoteAddr() != "")
		add("url", u.String())
		add("path", u.Path)
		add("param", ctx.Param("id"))
		add("query", ctx.Query("q"))
		add("no query", ctx.Query("none") == "")
		add("header", ctx.Header("X-ONE"))
		add("version", ctx.Version())
		add("tls", ctx.TLS() != nil)
		ctx.EachHeader(func(name, value string) {
			if strings.HasPrefix(name, "X-") {
				add("each", name+"="+value)
			}
		})
		ctx.SetHeader("X-A", "1")
		ctx.SetHeader("X-A", "2")
		ctx.AppendHeader("X-A", "3")
		next(huma.WithValue(ctx, "k", "v"))
		add("status", ctx.Status())
	})
	huma.Register(api, huma.Operation{OperationID: "read", Method: "GET", Path: "/things/{id}", DefaultStatus: 203},
		func(ctx context.Context, _ *struct{}) (*text, error) {
			c, ok := humafilo.FromContext(ctx)
			add("values", fmt.Sprintf("%v %v %v", ctx.Value("k"), ok, c.Path()))
			return &text{[]byte("done")}, nil
		})
	s := serve(t, r.Serve)
	for _, tc := range []struct{ request, url, path, version string }{
		{"GET /things/a%2Fb?q=x+y&q=2", "/things/a%2Fb?q=x+y&q=2", "/things/a/b", "{HTTP/1.1 1 1}"},
		{"GET http://other.test/things/a%2Fb?q=x+y", "http://other.test/things/a%2Fb?q=x+y", "/things/a/b", "{HTTP/1.1 1 1}"},
	} {
		got = nil
		answer := ask(t, s, tc.request, "", "x-one: 1", "X-Two: 2", "x-two: 3")
		host := "filo.test"
		if strings.Contains(tc.request, "other") {
			host = "other.test"
		}
		want := []string{"operation: read", "method: GET", "host: " + host, "remote: true", "url: " + tc.url, "path: " + tc.path,
			"param: a/b", "query: x y", "no query: true", "header: 1", "version: " + tc.version, "tls: false",
			"each: X-One=1", "each: X-Two=2", "each: X-Two=3", "values: v true /things/a/b", "status: 203"}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if answer.status != 203 || answer.body != "done" || fmt.Sprint(answer.header["X-A"]) != "[2 3]" {
			t.Errorf("got %d %q %v", answer.status, answer.body, answer.header)
		}
	}
	got = nil
	if raw := s.Raw(t, "GET /things/1 HTTP/1.0\r\nHost: x\r\n\r\n"); !strings.Contains(strings.Join(got, "\n"), "version: {HTTP/1.0 1 0}") {
		t.Errorf("HTTP/1.0: got %q, %q", got, raw)
	}
}

// An operation gets the URL of every request that filo accepts, however odd its target is.
func TestOddURLs(t *testing.T) {
	r, api := newAPI()
	var u url.URL
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) { u = ctx.URL(); next(ctx) })
	path := ""
	operation(api, "GET", "/{rest...}", func(ctx context.Context) (string, error) {
		c, _ := humafilo.FromContext(ctx)
		path = c.Path() + "?" + c.Request.URI().RawQuery()
		return "", nil
	})
	s := serve(t, r.Serve)
	for _, target := range []string{"/a%00b?%zz", "/a?b?c#", "/%ff", "http://a:/x?y", "http://a;b/%2F", "http://%ff/", "http://a'b?q", "http://a!"} {
		u, path = url.URL{}, ""
		if got := ask(t, s, "GET "+target, ""); got.status == 200 && max(u.Path, "/")+"?"+u.RawQuery != path {
			t.Errorf("%s: got %q, %q; the Ctx has %q", target, u.Path, u.RawQuery, path)
		}
	}
	if ask(t, s, "GET /a%2Fb|?q", ""); u.RequestURI() != "/a%2Fb%7C?q" {
		t.Errorf("an encoded slash beside a byte that a URI can't hold: got %s", u.RequestURI())
	}
}

func TestTLS(t *testing.T) {
	r, api := newAPI()
	secure := make(chan bool, 1)
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		secure <- ctx.TLS() != nil && ctx.TLS().HandshakeComplete
		next(ctx)
	})
	operation(api, "GET", "/", func(context.Context) (string, error) { return "", nil })
	lender := httptest.NewTLSServer(nil)
	defer lender.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &filo.Server{Handler: r.Serve}
	go server.Serve(tls.NewListener(ln, &tls.Config{Certificates: lender.TLS.Certificates}))
	defer server.Close()
	response, err := lender.Client().Get("https://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if !<-secure {
		t.Error("TLS() isn't the connection's state")
	}
}

func TestUnwrap(t *testing.T) {
	r, api := newAPI()
	user := filo.NewKey[string]("user")
	r.Use(func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error { user.Set(c, "gopher"); return next(c) }
	})
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		ctx = huma.WithValue(huma.WithValue(ctx, 1, 1), 2, 2)
		name, _ := user.Get(humafilo.Unwrap(ctx))
		ctx.SetHeader("X-User", name)
		next(ctx)
	})
	operation(api, "GET", "/", func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c, _ := humafilo.FromContext(ctx)
		name, _ := user.Get(c)
		return name, nil
	})
	if got := ask(t, serve(t, r.Serve), "GET /", ""); got.header.Get("X-User") != "gopher" || got.body != "gopher" {
		t.Errorf("got %v %q", got.header, got.body)
	}
	if _, ok := humafilo.FromContext(context.Background()); ok {
		t.Error("there is a Ctx in a context of another kind")
	}
	defer func() {
		if fmt.Sprint(recover()) != "humafilo: not a context of this adapter" {
			t.Error("it doesn't panic with another adapter's context")
		}
	}()
	humafilo.Unwrap(humatest.NewContext(nil, httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()))
}

func TestErrorsOfOperations(t *testing.T) {
	r, api := newAPI()
	operation(api, "GET", "/teapot", func(context.Context) (string, error) { return "", huma.NewError(418, "short and stout") })
	operation(api, "GET", "/any", func(context.Context) (string, error) { return "", errors.New("no text") })
	operation(api, "GET", "/panic", func(context.Context) (string, error) { panic("no text") })
	operation(api, "GET", "/header", func(context.Context) (string, error) {
		return "", huma.ErrorWithHeaders(huma.Error503ServiceUnavailable(""), http.Header{"Retry-After": {"1\r\nX-Evil: 1"}})
	})
	s := serve(t, r.Serve)
	for path, want := range map[string]int{"/teapot": 418, "/any": 500, "/panic": 500, "/header": 503} {
		got := ask(t, s, "GET "+path, "")
		if got.status != want || got.header.Get("X-Evil") != "" {
			t.Errorf("%s: got %d %q %v", path, got.status, got.body, got.header)
		}
	}
}

func TestGroup(t *testing.T) {
	r := router.New()
	g := r.Group("/v1", func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error { c.Response.Header.Set("X-Group", "v1"); return next(c) }
	})
	config := huma.DefaultConfig("Test", "1.0.0")
	config.Servers = []*huma.Server{{URL: "/v1"}}
	api := humafilo.NewWithGroup(r, g, config)
	operation(api, "GET", "/a", func(context.Context) (string, error) { return "a", nil })
	s := serve(t, r.Serve)
	if got := ask(t, s, "GET /v1/a", ""); got.body != "a" || got.header.Get("X-Group") != "v1" {
		t.Errorf("got %q %v", got.body, got.header)
	}
	if got := ask(t, s, "GET /a", ""); got.status != 404 {
		t.Errorf("without the prefix: got %d", got.status)
	}
	if got := ask(t, s, "GET /v1/docs", ""); !strings.Contains(got.body, `"/v1/openapi.yaml"`) {
		t.Errorf("the documentation doesn't know the prefix: %q", got.body)
	}
}

func TestDocuments(t *testing.T) {
	r := router.New()
	api := humafilo.New(r, huma.DefaultConfig("Test", "1.0.0"))
	huma.Put(api, "/mail/{group-name}", mail)
	s := serve(t, r.Serve)
	got := ask(t, s, "GET /openapi.json", "")
	var document struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	if err := json.Unmarshal([]byte(got.body), &document); err != nil || got.header.Get("Content-Type") != "application/openapi+json" {
		t.Fatalf("got %q: %v", got.body, err)
	}
	if put, ok := document.Paths["/mail/{group-name}"]["put"]; !ok || len(put.Parameters) != 4 || document.OpenAPI != "3.1.0" {
		t.Errorf("the document is %+v", document)
	}
	for path, want := range map[string]string{"/openapi.yaml": "openapi: 3.1.0", "/openapi-3.0.json": `"3.0.3"`, "/docs": "<!doctype html>",
		"/schemas/MailOutputBody.json": `"message"`} {
		if got := ask(t, s, "GET "+path, ""); got.status != 200 || !strings.Contains(got.body, want) {
			t.Errorf("%s: got %d %q", path, got.status, got.body)
		}
	}
}

func TestDocument(t *testing.T) {
	r, api := newAPI()
	humafilo.Document[mailInput, mailOutput](api, huma.Operation{OperationID: "mail", Method: "PUT", Path: "/mail/{group-name}"})
	humafilo.Document[struct{}, text](api, huma.Operation{OperationID: "secret", Method: "GET", Path: "/secret", Hidden: true})
	grouped := huma.NewGroup(api, "/v1")
	humafilo.Document[struct{}, text](grouped, huma.Operation{OperationID: "grouped", Method: "GET", Path: "/text"})
	paths := api.OpenAPI().Paths
	if put := paths["/mail/{group-name}"]; put == nil || put.Put == nil || len(put.Put.Parameters) != 4 || put.Put.RequestBody == nil {
		t.Errorf("the operation is %+v", put)
	}
	if len(paths) != 2 || paths["/v1/text"] == nil {
		t.Errorf("there are %d paths", len(paths))
	}
	if routes := r.Routes(); len(routes) > 0 {
		t.Errorf("there are routes: %v", routes)
	}
}

// Requests that don't come from the network pass through the same router: requests of humatest, and those that autopatch makes for PATCH.
func TestServeHTTP(t *testing.T) {
	r, api := newAPI()
	type thing struct {
		Body struct {
			Name string `json:"name"`
			Size int    `json:"size"`
		}
	}
	var stored thing
	stored.Body.Name, stored.Body.Size = "box", 1
	huma.Get(api, "/thing", func(context.Context, *struct{}) (*thing, error) { copied := stored; return &copied, nil })
	huma.Put(api, "/thing", func(_ context.Context, input *thing) (*thing, error) { stored = *input; return input, nil })
	autopatch.AutoPatch(api)
	test := humatest.Wrap(t, api)
	if got := test.Get("/thing"); got.Code != 200 || strings.TrimSpace(got.Body.String()) != `{"name":"box","size":1}` {
		t.Errorf("humatest: got %d %q", got.Code, got.Body)
	}
	got := ask(t, serve(t, r.Serve), "PATCH /thing", `{"size":2}`, "Content-Type: application/merge-patch+json")
	if got.status != 200 || stored.Body.Name != "box" || stored.Body.Size != 2 {
		t.Errorf("autopatch: got %d %q, and %+v is stored", got.status, got.body, stored)
	}
}

// resolved is an input with a resolver, which reads and writes through huma's context.
type resolved struct {
	text string
}

func (r *resolved) Resolve(ctx huma.Context) []error {
	body, err := io.ReadAll(ctx.BodyReader())
	r.text = string(body)
	if err != nil {
		return []error{err}
	}
	return nil
}

func TestResolverReadsTheBody(t *testing.T) {
	r, api := newAPI()
	huma.Post(api, "/", func(_ context.Context, input *resolved) (*text, error) { return &text{[]byte(input.text)}, nil })
	if got := ask(t, serve(t, r.Serve), "POST /", "so long"); got.body != "so long" {
		t.Errorf("got %d %q", got.status, got.body)
	}
}
