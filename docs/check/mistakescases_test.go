package check

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing/fstest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/contrib/jwt"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/middleware/session"
	"github.com/filohttp/filo/proxy"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/sse"
	"github.com/filohttp/filo/static"
	"github.com/filohttp/filo/templates"
	gojwt "github.com/golang-jwt/jwt/v5"
)

const errorsIntro = `# What filo says to mistakes

This page lists mistakes of people who come from gin, echo, fiber, chi or net/http. Each entry shows the wrong code, what filo says about it, and
what to write instead. A test makes all of these mistakes, and checks that filo says what this page shows.

- **panic**: the program panics at its start, where a route is registered or a middleware is made, unless the entry says otherwise.
- **error**: a function returns this error.
- **log**: ` + "`s.Logger`" + ` gets this record; if the mistake is a client's, only with ` + "`s.LogAllErrors`" + `. **answer**: the client gets this answer. Both are
  for the request in the comment.

The [guide](GUIDE.md) shows the right code, and [MIGRATING](MIGRATING.md) how to move from another framework.
`

// Names that the mistakes take for granted.

func showUser(c *filo.Ctx) error   { return c.Text(200, c.Param("id")) }
func createUser(c *filo.Ctx) error { return c.NoContent() }
func listUsers(c *filo.Ctx) error  { return c.NoContent() }
func home(c *filo.Ctx) error       { return c.NoContent() }

type User struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

// certificates returns the files of a certificate, its key, and another key.
var certificates = sync.OnceValue(func() (files [3]string) {
	dir, err := os.MkdirTemp("", "filo")
	if err != nil {
		panic(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			panic(err)
		}
		return path
	}
	for i, name := range []string{"key.pem", "other.pem"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			panic(err)
		}
		files[i+1] = write(name, "EC PRIVATE KEY", der)
		if i == 0 {
			template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
			if der, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key); err != nil {
				panic(err)
			}
			files[0] = write("cert.pem", "CERTIFICATE", der)
		}
	}
	return files
})

func sendMail(ctx context.Context, to string) error { return ctx.Err() }

// later runs a function like a goroutine that takes longer than the request.
func later(f func() error) { afterwards = f }

// afterwards runs when the request and its server have ended.
var afterwards func() error

var topics = []topic{
	{"Patterns", "Patterns follow net/http's ServeMux. The router refuses syntax of other frameworks where it would match next to nothing.", []mistake{
		{
			title: "gin, echo, fiber: a colon",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/:id", showUser)
				return nil
			},
			instead: `r.GET("/users/{id}", showUser)`,
		},
		{
			title: "gin: a star with a name",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/files/*path", home)
				return nil
			},
			instead: `r.GET("/files/{path...}", home)`,
		},
		{
			title: "chi, echo, fiber: a star",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/files/*", home)
				return nil
			},
			instead: `r.GET("/files/{path...}", home)`,
		},
		{
			title: "fiber: a parameter that may be missing",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/:id?", showUser)
				return nil
			},
			instead: "r.GET(\"/users\", listUsers)\nr.GET(\"/users/{id}\", showUser)",
		},
		{
			title: "fiber: a type in angle brackets",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/:id<int>", showUser)
				return nil
			},
			instead: `r.GET("/users/{id:int}", showUser)`,
		},
		{
			title: "A type by Go's name",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/{id:int64}", showUser)
				return nil
			},
			instead: `r.GET("/users/{id:int}", showUser)`,
		},
		{
			title: "An unknown type",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/{name:string}", showUser)
				return nil
			},
			instead: `r.GET("/users/{name}", showUser)`,
		},
		{
			title: "gorilla: an expression for the rest of the path",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/files/{path:.*}", home)
				return nil
			},
			instead: `r.GET("/files/{path...}", home)`,
		},
		{
			title: "An invalid expression",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/{id:[0-9+}", showUser)
				return nil
			},
			instead: `r.GET("/users/{id:[0-9]+}", showUser)`,
		},
		{
			title: "chi: a wildcard in a part of a segment",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/{id}.json", showUser)
				return nil
			},
			instead: `r.GET("/users/{file}", showUser) // and strings.CutSuffix(c.Param("file"), ".json") in the handler`,
		},
		{
			title: "A name with a hyphen",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/{user-id}", showUser)
				return nil
			},
			instead: `r.GET("/users/{userID}", showUser)`,
		},
		{
			title: "A brace that isn't closed",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/{id", showUser)
				return nil
			},
			instead: `r.GET("/users/{id}", showUser)`,
		},
		{
			title: "A segment after the rest of the path",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/files/{path...}/edit", home)
				return nil
			},
			instead: `r.GET("/edit/{path...}", home)`,
		},
		{
			title: "A name twice",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/{id}/posts/{id}", showUser)
				return nil
			},
			instead: `r.GET("/users/{user}/posts/{post}", showUser)`,
		},
		{
			title: "net/http: a method for GET",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("GET /users", listUsers)
				return nil
			},
			instead: `r.Handle("GET /users", listUsers) // or r.GET("/users", listUsers)`,
		},
		{
			title: "A method for Any",
			do: func(r *router.Router, s *filo.Server) error {
				r.Any("POST /users", createUser)
				return nil
			},
			instead: `r.POST("/users", createUser)`,
		},
		{
			title: "A method in lower case",
			do: func(r *router.Router, s *filo.Server) error {
				r.Handle("get /users", listUsers)
				return nil
			},
			instead: `r.Handle("GET /users", listUsers)`,
		},
		{
			title: "No space behind the method",
			do: func(r *router.Router, s *filo.Server) error {
				r.Handle("GET/users", listUsers)
				return nil
			},
			instead: `r.Handle("GET /users", listUsers)`,
		},
		{
			title: "Two methods",
			do: func(r *router.Router, s *filo.Server) error {
				r.Handle("GET POST /users", listUsers)
				return nil
			},
			instead: "r.GET(\"/users\", listUsers)\nr.POST(\"/users\", createUser)",
		},
		{
			title: "fiber: no slash in front",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("users/{id}", showUser)
				return nil
			},
			instead: `r.GET("/users/{id}", showUser)`,
		},
		{
			title: "No slash in a group",
			do: func(r *router.Router, s *filo.Server) error {
				api := r.Group("/api")
				api.GET("users", listUsers)
				return nil
			},
			instead: "api := r.Group(\"/api\")\napi.GET(\"/users\", listUsers)",
		},
		{
			title: "gin, echo, chi, fiber: a slash for the group itself",
			do: func(r *router.Router, s *filo.Server) error {
				users := r.Group("/users")
				users.POST("/", createUser)
				return nil
			},
			instead: "users := r.Group(\"/users\")\nusers.POST(\"\", createUser)",
		},
		{
			title: "A method for a group",
			do: func(r *router.Router, s *filo.Server) error {
				r.Group("GET /api")
				return nil
			},
			instead: `r.Group("/api")`,
		},
		{
			title: "A query",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users?page=1", listUsers)
				return nil
			},
			instead: `r.GET("/users", listUsers) // and c.Query("page") in the handler`,
		},
		{
			title: "A URL",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("https://example.com/users", listUsers)
				return nil
			},
			instead: `r.GET("example.com/users", listUsers)`,
		},
		{
			title: "A host with a port",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("example.com:8080/users", listUsers)
				return nil
			},
			instead: `r.GET("example.com/users", listUsers)`,
		},
		{
			title: "gorilla: a host with a wildcard",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("shop-*.example.com/users", listUsers)
				return nil
			},
			instead: `r.GET("/users", listUsers) // and c.Host() in the handler`,
		},
		{
			title: "A path that no request has",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users//{id}", showUser)
				return nil
			},
			instead: `r.GET("/users/{id}", showUser)`,
		},
		{
			title: "The same pattern twice",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/{id}", showUser)
				r.GET("/users/{name}", showUser)
				return nil
			},
			instead: "r.GET(\"/users/{id:int}\", showUser)\nr.GET(\"/users/{name}\", showUser) // what is no number",
		},
		{
			title: "Two patterns that overlap",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/posts/{id}", home)
				r.GET("/{kind}/latest", home)
				return nil
			},
			instead: "r.GET(\"/posts/{id}\", home)\nr.GET(\"/posts/latest\", home) // a literal is more specific\nr.GET(\"/{kind}/latest\", home)",
		},
		{
			title: "A name that another route has",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users", listUsers).Name("users")
				r.POST("/users", createUser).Name("users")
				return nil
			},
			instead: "r.GET(\"/users\", listUsers).Name(\"users\")\nr.POST(\"/users\", createUser)",
		},
		{
			title: "A URL without its values",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/{id}", showUser).Name("user")
				_, err := r.URL("user")
				return err
			},
			instead: "r.GET(\"/users/{id}\", showUser).Name(\"user\")\nlink, err := r.URL(\"user\", \"7\")",
		},
		{
			title: "No handler",
			do: func(r *router.Router, s *filo.Server) error {
				var show filo.Handler
				r.GET("/users", show)
				return nil
			},
			instead: `r.GET("/users", listUsers)`,
		},
		{
			title: "A route while the server runs",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error {
					r.GET("/users", listUsers) // GET /
					return nil
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: "r.GET(\"/\", home)\nr.GET(\"/users\", listUsers) // before the server starts",
		},
	}},
	{"Middleware", "A middleware is checked when it is made or given to a router. The message says what is missing or wrong.", []mistake{
		{
			title: "gin: nothing is returned",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", home) // GET /
				r.Use(func(next filo.Handler) filo.Handler { return nil })
				return nil
			},
			ask:     []string{"GET /"},
			instead: "r.Use(func(next filo.Handler) filo.Handler {\n\treturn func(c *filo.Ctx) error {\n\t\treturn next(c)\n\t}\n})",
		},
		{
			title: "No middleware",
			do: func(r *router.Router, s *filo.Server) error {
				var authenticate filo.Middleware
				r.Use(authenticate)
				return nil
			},
			instead: `r.Use(middleware.BasicAuth(middleware.BasicAuthOptions{Users: map[string]string{"ada": "secret"}}))`,
		},
		{
			title: "Use while the server runs",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error {
					r.Use(middleware.Recover()) // GET /
					return nil
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: "r.Use(middleware.Recover()) // before the server starts\nr.GET(\"/\", home)",
		},
		{
			title: "echo, fiber: MethodOverride in Use",
			do: func(r *router.Router, s *filo.Server) error {
				r.Use(middleware.MethodOverride())
				return nil
			},
			instead: `s.Handler = middleware.MethodOverride()(r.Serve)`,
		},
		{
			title: "echo, fiber: Rewrite in Use",
			do: func(r *router.Router, s *filo.Server) error {
				r.Use(middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{{Prefix: "/old", To: "/new"}}}))
				return nil
			},
			instead: `s.Handler = middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{{Prefix: "/old", To: "/new"}}})(r.Serve)`,
		},
		{
			title: "CORS for every site, with cookies",
			do: func(r *router.Router, s *filo.Server) error {
				r.Use(middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"*"}, AllowCredentials: true}))
				return nil
			},
			instead: `r.Use(middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://app.example.com"}, AllowCredentials: true}))`,
		},
		{
			title: "CORS for a host",
			do: func(r *router.Router, s *filo.Server) error {
				r.Use(middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"app.example.com"}}))
				return nil
			},
			instead: `r.Use(middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://app.example.com"}}))`,
		},
		{
			title: "A limit of zero",
			do: func(r *router.Router, s *filo.Server) error {
				r.Use(ratelimit.New(0, time.Minute))
				return nil
			},
			instead: `r.Use(ratelimit.New(100, time.Minute))`,
		},
		{
			title: "RealIP that trusts nobody",
			do: func(r *router.Router, s *filo.Server) error {
				r.Use(middleware.RealIP(middleware.RealIPOptions{}))
				return nil
			},
			instead: `r.Use(middleware.RealIP(middleware.RealIPOptions{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}))`,
		},
		{
			title: "A short secret for sessions",
			do: func(r *router.Router, s *filo.Server) error {
				r.Use(session.New(session.Options{Keys: [][]byte{[]byte("secret")}}))
				return nil
			},
			instead: "Make a key once, by `openssl rand -base64 32`, and keep it where the program's other secrets are.",
		},
		{
			title: "A session in front of its middleware",
			do: func(r *router.Router, s *filo.Server) error {
				logIn := func(next filo.Handler) filo.Handler {
					return func(c *filo.Ctx) error {
						if user, err := session.Get(c); err != nil || user.Get("user") == "" {
							return filo.Error(401, "log in first")
						}
						return next(c)
					}
				}
				r.Use(logIn, session.New(session.Options{Store: new(session.Memory)}))
				r.GET("/", home) // GET /
				return nil
			},
			ask:     []string{"GET /"},
			instead: "Name `session.New` in front of `logIn` in `Use`.",
		},
		{
			title: "Recover outside of AccessLog",
			do: func(r *router.Router, s *filo.Server) error {
				r.Use(middleware.Recover(), middleware.AccessLog())
				r.GET("/", func(c *filo.Ctx) error { panic("out of luck") }) // GET /
				return nil
			},
			ask:     []string{"GET /"},
			instead: "r.Use(middleware.AccessLog(), middleware.Recover())",
		},
		{
			title: "BasicAuth without users",
			do: func(r *router.Router, s *filo.Server) error {
				r.Use(middleware.BasicAuth(middleware.BasicAuthOptions{}))
				return nil
			},
			instead: `r.Use(middleware.BasicAuth(middleware.BasicAuthOptions{Users: map[string]string{"ada": "secret"}}))`,
		},
		{
			title: "A time-out of zero",
			do: func(r *router.Router, s *filo.Server) error {
				r.Use(middleware.Timeout(middleware.TimeoutOptions{}))
				return nil
			},
			instead: `r.Use(middleware.Timeout(middleware.TimeoutOptions{Timeout: 5 * time.Second}))`,
		},
		{
			title: "Tokens of any algorithm",
			do: func(r *router.Router, s *filo.Server) error {
				r.Use(jwt.New(jwt.Options[gojwt.RegisteredClaims]{Key: []byte("a secret of 32 bytes and a bit more")}))
				return nil
			},
			instead: `r.Use(jwt.New(jwt.Options[gojwt.RegisteredClaims]{Key: []byte("a secret of 32 bytes and a bit more"), Algorithms: []string{"HS256"}}))`,
		},
	}},
	{"Handlers and answers", "A handler returns its error, and the server logs errors that aren't the client's fault.", []mistake{
		{
			title: "A status that doesn't exist",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/{id}", func(c *filo.Ctx) error { // GET /users/7
					return c.Text(0, "hello")
				})
				return nil
			},
			ask:     []string{"GET /users/7"},
			instead: `return c.Text(200, "hello")`,
		},
		{
			title: "A redirect with another status",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					return c.Redirect(200, "/users")
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: `return c.Redirect(303, "/users")`,
		},
		{
			title: "An error with the status of a success",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					return filo.Error(200, "done")
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: `return c.Text(200, "done")`,
		},
		{
			title: "A value that JSON can't represent",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					return c.JSON(200, map[string]any{"done": make(chan bool)})
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: `return c.JSON(200, map[string]any{"done": true})`,
		},
		{
			title: "A page without a renderer",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					return c.Render(200, "home.html", nil)
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: "pages, err := templates.New(os.DirFS(\"templates\"))\nif err != nil {\n\treturn err\n}\ns.Renderer = pages",
		},
		{
			title: "A page that doesn't exist",
			do: func(r *router.Router, s *filo.Server) error {
				pages, err := templates.New(fstest.MapFS{"home.html": {Data: []byte("hello")}})
				s.Renderer = pages
				r.GET("/", func(c *filo.Ctx) error { // GET /
					return c.Render(200, "home", nil)
				})
				return err
			},
			ask:     []string{"GET /"},
			instead: `return c.Render(200, "home.html", nil)`,
		},
		{
			title: "Embedded pages without fs.Sub",
			do: func(r *router.Router, s *filo.Server) error {
				files := fstest.MapFS{"views/home.html": {Data: []byte("hello")}} // as an embed.FS of views
				pages, err := templates.New(files)
				s.Renderer = pages
				r.GET("/", func(c *filo.Ctx) error { // GET /
					return c.Render(200, "home.html", nil)
				})
				return err
			},
			ask:     []string{"GET /"},
			instead: "Give `templates.New` what `fs.Sub(files, \"views\")` returns.",
		},
		{
			title: "A Hub without NewHub",
			do: func(r *router.Router, s *filo.Server) error {
				var hub sse.Hub
				_, err := hub.Publish("news", sse.Event{Data: "hello"})
				return err
			},
			instead: "hub := sse.NewHub()",
		},
		{
			title: "A panic",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					var users []User
					return c.JSON(200, users[c.Request.Query().Len()])
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: "The server goes on. The log record has the stack as well.",
		},
		{
			title: "An error without a status",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					return errors.New("there is no such user")
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: `return filo.Error(404, "there is no such user")`,
		},
		{
			title: "A cookie with a space",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					return c.Response.SetCookie(&filo.Cookie{Name: "user", Value: "Ada Lovelace"})
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: `return c.Response.SetCookie(&filo.Cookie{Name: "user", Value: "Ada%20Lovelace"})`,
		},
		{
			title: "net/http: a Content-Length that isn't the body's",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					c.Response.Header.Set("Content-Length", "3")
					return c.Text(200, "hello")
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: `return c.Text(200, "hello") // the server adds the field`,
		},
		{
			title: "A stream beyond its Content-Length",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					c.Response.Header.Set("Content-Length", "3")
					_, err := c.Stream().WriteString("hello")
					return err
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: "_, err := c.Stream().WriteString(\"hello\") // goes in chunks, or with its length if it is short\nreturn err",
		},
		{
			title: "A stream that is less than its Content-Length",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					c.Response.Header.Set("Content-Length", "8")
					w := c.Stream()
					w.WriteString("hello")
					return w.Flush()
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: "w := c.Stream()\nw.WriteString(\"hello\")\nreturn w.Flush()",
		},
		{
			title: "A body with 204",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					c.Response.SetStatus(204)
					_, err := c.Stream().WriteString("hello")
					return err
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: `return c.Text(200, "hello") // or c.NoContent()`,
		},
		{
			title: "An error after a part of the answer",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					w := c.Stream()
					w.WriteString("hello")
					if err := w.Flush(); err != nil {
						return err
					}
					return filo.Error(500, "the rest isn't there")
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: "Do everything that may fail before the first Flush. After it the server can report an error only by breaking the answer off.",
		},
		{
			title: "Early hints after the head",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					if err := c.Stream().Flush(); err != nil {
						return err
					}
					return c.EarlyHints()
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: "if err := c.EarlyHints(); err != nil {\n\treturn err\n}\nreturn c.Stream().Flush()",
		},
		{
			title: "A write after the handler has returned",
			do: func(r *router.Router, s *filo.Server) error {
				var w *filo.StreamWriter
				r.GET("/", func(c *filo.Ctx) error { // GET /
					w = c.Stream()
					return nil
				})
				later(func() error {
					_, err := w.WriteString("hello")
					return err
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: "Write in the handler, which may take as long as it likes, or use `Ctx.ParkStream` or package sse.",
		},
		{
			title: "gin: a Ctx that is kept",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					later(func() error {
						return sendMail(c.Context(), c.Query("to"))
					})
					return c.Text(200, "hello")
				})
				return nil
			},
			ask:     []string{"GET /"},
			apart:   true,
			instead: "to := c.Query(\"to\") // a string is yours\nreturn c.Go(func(ctx context.Context) { sendMail(ctx, to) })",
		},
		{
			title: "No context",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					var ctx context.Context
					c.SetContext(ctx)
					return nil
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: `c.SetContext(context.WithoutCancel(c.Context()))`,
		},
		{
			title: "The connection twice",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					conn, _, err := c.Hijack()
					if err != nil {
						return err
					}
					defer conn.Close()
					if _, _, err := c.Hijack(); err != nil {
						c.Logger().Error("taking over", "error", err)
					}
					return nil
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: "conn, received, err := c.Hijack() // once; from then on the connection is yours",
		},
		{
			title: "An answer after the connection was taken over",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", func(c *filo.Ctx) error { // GET /
					conn, _, err := c.Hijack()
					if err != nil {
						return err
					}
					defer conn.Close()
					return c.Text(200, "done")
				})
				return nil
			},
			ask:     []string{"GET /"},
			instead: "return nil // Hijack, Upgrade, Park, and Serve of a hub or an upgrader leave nothing to answer",
		},
		{
			title: "A WebSocket by a plain request",
			do: func(r *router.Router, s *filo.Server) error {
				echo := func(conn *websocket.Conn, kind websocket.MessageType, message []byte) error { return nil }
				r.GET("/socket", websocket.New(websocket.Options{OnMessage: echo}).Serve) // GET /socket
				return nil
			},
			ask:     []string{"GET /socket"},
			instead: "Connect by `new WebSocket(\"wss://…/socket\")`, and let a proxy in front pass the fields Upgrade and Connection on.",
		},
		{
			title: "net/http: a status that doesn't exist",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/", adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // GET /
					w.WriteHeader(1000)
				})))
				return nil
			},
			ask:     []string{"GET /"},
			instead: "r.GET(\"/\", adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {\n\tw.WriteHeader(200)\n})))",
		},
	}},
	{"Binding", "For a mistake of the client, binding returns an error with a status. For a mistake in the program it returns one without a status: the error is logged, and the client gets a 500.", []mistake{
		{
			title: "A struct instead of a pointer",
			do: func(r *router.Router, s *filo.Server) error {
				r.POST("/users", func(c *filo.Ctx) error { // POST /users
					var u User
					return bind.JSON(c, u)
				})
				return nil
			},
			ask: []string{"POST /users", "Content-Type: application/json"}, body: `{"id":7}`,
			instead: "var u User\nreturn bind.JSON(c, &u)",
		},
		{
			title: "gin: the tag form for a query",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users", func(c *filo.Ctx) error { // GET /users?page=2
					var in struct {
						Page int `form:"page"`
					}
					return bind.Query(c, &in)
				})
				return nil
			},
			ask:     []string{"GET /users?page=2"},
			instead: "var in struct {\n\tPage int `query:\"page\"`\n}\nreturn bind.Query(c, &in)",
		},
		{
			title: "gin, echo: the tags uri and param for a path",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users/{id}", func(c *filo.Ctx) error { // GET /users/7
					var in struct {
						ID int `uri:"id"`
					}
					return bind.Path(c, &in)
				})
				return nil
			},
			ask:     []string{"GET /users/7"},
			instead: "var in struct {\n\tID int `path:\"id\"`\n}\nreturn bind.Path(c, &in)",
		},
		{
			title: "gin: the tag binding",
			do: func(r *router.Router, s *filo.Server) error {
				r.POST("/users", func(c *filo.Ctx) error {
					var in struct {
						Name string `json:"name" binding:"required"`
					}
					return bind.JSON(c, &in)
				})
				return nil
			},
			ask: []string{"POST /users", "Content-Type: application/json"}, body: `{}`,
			instead: "var validated = bind.With(validate.New()) // contrib/validate\n\nvar in struct {\n\tName string `json:\"name\" validate:\"required\"`\n}\nreturn bind.JSON(c, &in, validated)",
		},
		{
			title: "A wildcard that no field reads",
			do: func(r *router.Router, s *filo.Server) error {
				type showUser struct {
					ID int `json:"id"`
				}
				r.GET("/users/{id}", bind.Handler(func(c *filo.Ctx, in showUser) (User, error) { // GET /users/7
					return User{Name: "Ada"}, nil
				}))
				return nil
			},
			ask:     []string{"GET /users/7"},
			instead: "type showUser struct {\n\tID int `path:\"id\"`\n}",
		},
		{
			title: "A tag path with a name other than the wildcard",
			do: func(r *router.Router, s *filo.Server) error {
				type showUser struct {
					ID int `path:"user"`
				}
				r.GET("/users/{id}", bind.Handler(func(c *filo.Ctx, in showUser) (User, error) { // GET /users/7
					return User{Name: "Ada"}, nil
				}))
				return nil
			},
			ask:     []string{"GET /users/7"},
			instead: "type showUser struct {\n\tID int `path:\"id\"`\n}",
		},
		{
			title: "A field in lower case",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users", func(c *filo.Ctx) error { // GET /users?page=2
					var in struct {
						page int `query:"page"`
					}
					return bind.Query(c, &in)
				})
				return nil
			},
			ask:     []string{"GET /users?page=2"},
			instead: "var in struct {\n\tPage int `query:\"page\"`\n}\nreturn bind.Query(c, &in)",
		},
		{
			title: "An option of encoding/json",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users", func(c *filo.Ctx) error { // GET /users?page=2
					var in struct {
						Page int `query:"page,omitempty"`
					}
					return bind.Query(c, &in)
				})
				return nil
			},
			ask:     []string{"GET /users?page=2"},
			instead: "var in struct {\n\tPage int `query:\"page\"` // stays as it is if there is none\n}\nreturn bind.Query(c, &in)",
		},
		{
			title: "A type that text can't become",
			do: func(r *router.Router, s *filo.Server) error {
				r.GET("/users", func(c *filo.Ctx) error { // GET /users?filter[name]=ada
					var in struct {
						Filter map[string]string `query:"filter"`
					}
					return bind.Query(c, &in)
				})
				return nil
			},
			ask:     []string{"GET /users?filter[name]=ada"},
			instead: "var in struct {\n\tName string `query:\"filter[name]\"`\n}\nreturn bind.Query(c, &in)",
		},
		{
			title: "JSON without its Content-Type",
			do: func(r *router.Router, s *filo.Server) error {
				r.POST("/users", func(c *filo.Ctx) error { // curl -d '{"id":7}' …/users
					var u User
					return bind.JSON(c, &u)
				})
				return nil
			},
			ask: []string{"POST /users", "Content-Type: application/x-www-form-urlencoded"}, body: `{"id":7}`,
			instead: "The client must send `Content-Type: application/json`; curl sends it with --json.",
		},
		{
			title: "A form with another Content-Type",
			do: func(r *router.Router, s *filo.Server) error {
				r.POST("/users", func(c *filo.Ctx) error { // POST /users with JSON
					form, err := c.Request.Form()
					if err != nil {
						return err
					}
					return c.Text(200, form.Get("name"))
				})
				return nil
			},
			ask: []string{"POST /users", "Content-Type: application/json"}, body: `{"name":"Ada"}`,
			instead: "var u User\nreturn bind.All(c, &u) // by the Content-Type, JSON or a form",
		},
		{
			title: "A body over the limit",
			do: func(r *router.Router, s *filo.Server) error {
				r.POST("/photos", func(c *filo.Ctx) error { // POST /photos with 5 MB
					photo, err := c.Body()
					if err != nil {
						return err
					}
					return c.Text(200, http.DetectContentType(photo))
				})
				return nil
			},
			ask: []string{"POST /photos"}, body: strings.Repeat("x", 5<<20),
			instead: "c.SetMaxBodyBytes(20 << 20) // before the body is read; Server.MaxBodyBytes is for all\nphoto, err := c.Body()",
		},
	}},
	{"Servers, ports and certificates", "If a server can't start, the call that starts it returns the reason as an error.", []mistake{
		{
			title: "No handler for a server",
			do: func(r *router.Router, s *filo.Server) error {
				return s.ListenAndServe("127.0.0.1:0")
			},
			instead: "s.Handler = r.Serve\nreturn s.ListenAndServe(\":8080\")",
		},
		{
			title: "A port in use",
			do: func(r *router.Router, s *filo.Server) error {
				other, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				defer other.Close()
				return filo.ListenAndServe(other.Addr().String(), r.Serve)
			},
			instead: "`ss -ltnp` shows which process has the port. Two processes can share a port if both set `SocketOptions.ReusePort`.",
		},
		{
			title: "gin, fiber: an address without a colon",
			do: func(r *router.Router, s *filo.Server) error {
				return filo.ListenAndServe("8080", r.Serve)
			},
			instead: `return filo.ListenAndServe(":8080", r.Serve)`,
		},
		{
			title: "An address that isn't this machine's",
			do: func(r *router.Router, s *filo.Server) error {
				return filo.ListenAndServe("192.0.2.1:8080", r.Serve)
			},
			instead: `return filo.ListenAndServe(":8080", r.Serve)`,
		},
		{
			title: "A URL for an address",
			do: func(r *router.Router, s *filo.Server) error {
				return filo.ListenAndServe("http://localhost:8080", r.Serve)
			},
			instead: `return filo.ListenAndServe("localhost:8080", r.Serve)`,
		},
		{
			title: "A certificate that isn't there",
			do: func(r *router.Router, s *filo.Server) error {
				return filo.ListenAndServeTLS("127.0.0.1:0", "none.pem", "key.pem", r.Serve)
			},
			instead: `return filo.ListenAndServeTLS(":8443", "/etc/tls/cert.pem", "/etc/tls/key.pem", r.Serve)`,
		},
		{
			title: "Certificate and key in the wrong order",
			do: func(r *router.Router, s *filo.Server) error {
				cert, key := certificates()[0], certificates()[1]
				return filo.ListenAndServeTLS("127.0.0.1:0", key, cert, r.Serve)
			},
			instead: `return filo.ListenAndServeTLS(":8443", "cert.pem", "key.pem", r.Serve)`,
		},
		{
			title: "Another certificate's key",
			do: func(r *router.Router, s *filo.Server) error {
				cert, other := certificates()[0], certificates()[2]
				return filo.ListenAndServeTLS("127.0.0.1:0", cert, other, r.Serve)
			},
			instead: `return filo.ListenAndServeTLS(":8443", "cert.pem", "key.pem", r.Serve)`,
		},
		{
			title: "TLS without a certificate",
			do: func(r *router.Router, s *filo.Server) error {
				s.Handler = r.Serve
				return s.ListenAndServeTLS("127.0.0.1:0", "", "")
			},
			instead: "s.TLSConfig = &tls.Config{GetCertificate: getCertificate} // such as autocert's, or name the files\nreturn s.ListenAndServeTLS(\":8443\", \"\", \"\")",
		},
		{
			title: "A server that was shut down",
			do: func(r *router.Router, s *filo.Server) error {
				s.Handler = r.Serve
				if err := s.Shutdown(context.Background()); err != nil {
					return err
				}
				return s.ListenAndServe("127.0.0.1:0")
			},
			instead: "A server serves once: make another one.",
		},
		{
			title: "A directory that isn't there",
			do: func(r *router.Router, s *filo.Server) error {
				files, err := static.Dir("no-such-directory")
				if err != nil {
					return err
				}
				r.GET("/{path...}", files.Serve)
				return nil
			},
			instead: "A relative path is relative to the directory in which the program was started. Write an absolute path, or use package embed and `static.New`.",
		},
		{
			title: "A proxy to a host without a scheme",
			do: func(r *router.Router, s *filo.Server) error {
				p := proxy.New(proxy.Options{Upstreams: []string{"localhost:9000"}})
				r.Any("/{path...}", p.Serve)
				return nil
			},
			instead: "p := proxy.New(proxy.Options{Upstreams: []string{\"http://localhost:9000\"}})\nr.Any(\"/{path...}\", p.Serve)",
		},
	}},
}
