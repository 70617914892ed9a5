package middleware_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/middleware/idempotency"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/middleware/session"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/static"
)

// BenchmarkTogether measures a handler without middleware, and with ten middlewares that a public service uses. The difference is the cost of
// the ten together.
func BenchmarkTogether(b *testing.B) {
	ten := []filo.Middleware{
		middleware.Recover(), middleware.RequestID(),
		middleware.RealIP(middleware.RealIPOptions{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}),
		middleware.HostCheck(middleware.HostCheckOptions{Hosts: []string{"filo.test"}}),
		middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 1000}),
		middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: 1 << 20}),
		middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://filo.test"}}),
		middleware.CSRF(), middleware.Secure(), middleware.CacheControl(),
	}
	all := filo.Handler(mwtest.Hello)
	for _, each := range slices.Backward(ten) {
		all = each(all)
	}
	for name, h := range map[string]filo.Handler{"none": mwtest.Hello, "ten": all} {
		b.Run(name, func(b *testing.B) {
			mwtest.Benchmark(b, h, "GET http://filo.test/users/7?page=2", "X-Forwarded-For: 203.0.113.7", "Origin: https://filo.test")
		})
	}
}

// agreeing are middlewares that either don't change answers to GET, HEAD and conditional requests, or change all of them in the same way.
func agreeing() map[string]func() filo.Middleware {
	return map[string]func() filo.Middleware{
		"none":     func() filo.Middleware { return func(next filo.Handler) filo.Handler { return next } },
		"Compress": func() filo.Middleware { return middleware.Compress() }, "ETag": func() filo.Middleware { return middleware.ETag() },
		"cache": func() filo.Middleware { return cache.New(cache.Options{TTL: time.Minute}) },
		"CORS": func() filo.Middleware {
			return middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://a.test"}})
		},
		"Secure": func() filo.Middleware { return middleware.Secure() }, "CacheControl": func() filo.Middleware { return middleware.CacheControl() },
		"CSRF": func() filo.Middleware { return middleware.CSRF() }, "Recover": func() filo.Middleware { return middleware.Recover() },
		"AccessLog": func() filo.Middleware { return middleware.AccessLog(middleware.AccessLogOptions{Combined: io.Discard}) },
		"HostCheck": func() filo.Middleware {
			return middleware.HostCheck(middleware.HostCheckOptions{Hosts: []string{"filo.test"}})
		},
		"BodyLimit":  func() filo.Middleware { return middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: 10}) },
		"Decompress": func() filo.Middleware { return middleware.Decompress() },
		"Timeout":    func() filo.Middleware { return middleware.Timeout(middleware.TimeoutOptions{Timeout: time.Minute}) },
		"Concurrency": func() filo.Middleware {
			return middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 10})
		},
		"RealIP": func() filo.Middleware {
			return middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.0/24")})
		},
		"ratelimit": func() filo.Middleware { return ratelimit.New(1000, time.Minute, ratelimit.Options{HideFields: true}) },
		"idempotency": func() filo.Middleware {
			return idempotency.New(idempotency.Options{Scope: idempotency.AuthorizationScope})
		},
		"session": func() filo.Middleware {
			sessions := session.New(session.Options{Keys: [][]byte{[]byte(strings.Repeat("k", 32))}, Insecure: true})
			return func(next filo.Handler) filo.Handler {
				return sessions(func(c *filo.Ctx) error {
					values, err := session.Get(c)
					if err != nil {
						return err
					}
					values.Set("seen", "yes")
					return next(c)
				})
			}
		},
		"BasicAuth": func() filo.Middleware {
			return middleware.BasicAuth(middleware.BasicAuthOptions{Users: map[string]string{"ann": agreedPassword}})
		},
		"KeyAuth": func() filo.Middleware {
			return middleware.KeyAuth(middleware.KeyAuthOptions{Header: "X-Key", Keys: []string{agreedPassword}})
		},
		"Guard": func() filo.Middleware {
			return middleware.Guard(middleware.GuardOptions{Allow: func(*filo.Ctx) bool { return true }})
		},
		"Redirect": func() filo.Middleware {
			return middleware.Redirect(middleware.RedirectOptions{Host: "filo.test"})
		},
		"Rewrite": func() filo.Middleware {
			return middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{{Prefix: "/old", To: "/"}}})
		},
		"MethodOverride": func() filo.Middleware { return middleware.MethodOverride() },
		"RequestID":      func() filo.Middleware { return middleware.RequestID() },
	}
}

const agreedPassword = "0123456789abcdef0123456789abcdef"

// HEAD, 206 and 304 agree with GET (RFC 9110, sections 8.6, 9.3.2, 15.3.7 and 15.4.5) through each middleware and each pair. An answer's ETag
// can be used in If-Match.
func TestAgreement(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.txt")
	if err := os.WriteFile(name, []byte(longText), 0o600); err != nil {
		t.Fatal(err)
	}
	for handlerName, h := range map[string]filo.Handler{
		"whole": func(c *filo.Ctx) error {
			c.Response.Header.Set("ETag", `"v7"`)
			c.Response.Header.Set("Cache-Control", "max-age=60")
			c.Response.Header.Set("Vary", "Origin")
			if status := middleware.Precondition(c, `"v7"`, time.Time{}); status == 304 {
				c.Response.SetStatus(304)
				return nil
			} else if status != 0 {
				return filo.Error(status, "")
			}
			return c.Text(200, longText)
		},
		"without a tag": func(c *filo.Ctx) error { return c.Text(200, longText) },
		"announced": func(c *filo.Ctx) error {
			if c.Method() == "HEAD" {
				c.Response.Header.Set("Content-Type", "text/plain; charset=utf-8")
				c.Response.Header.Set("Content-Length", strconv.Itoa(len(longText)))
				return nil
			}
			return c.Text(200, longText)
		},
		"stream": func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "text/plain")
			_, err := io.WriteString(c.Stream(), strings.Repeat(longText, 20))
			return err
		},
		"file":   func(c *filo.Ctx) error { return c.File(name) },
		"static": static.New(os.DirFS(filepath.Dir(name))).Serve,
	} {
		all := agreeing()
		for outer := range all {
			for inner := range all {
				if inner == "cache" && outer == "ETag" { // by the documentation's order, ETag is inside of the cache
					continue
				}
				t.Run(fmt.Sprintf("%s/%s in %s", handlerName, inner, outer), func(t *testing.T) {
					s := servertest.NewServer(t, &filo.Server{Handler: mwtest.Wrap(h, all[outer](), all[inner]()), Logger: slog.New(slog.DiscardHandler)})
					for _, accept := range []string{"gzip", "identity"} {
						if accept == "identity" && outer != "Compress" && inner != "Compress" {
							continue
						}
						agree(t, "Accept-Encoding: "+accept, func(request string, fields ...string) servertest.Answer {
							return s.Do(t, request, append(fields, "Accept-Encoding: "+accept, "Origin: https://a.test", "X-Key: "+agreedPassword,
								"Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("ann:"+agreedPassword)))...)
						})
					}
				})
			}
		}
	}
}

func agree(t *testing.T, what string, do func(request string, fields ...string) servertest.Answer) {
	t.Helper()
	fieldsOf := func(a servertest.Answer, names ...string) string {
		var list strings.Builder
		for _, name := range names {
			fmt.Fprintf(&list, "%s: %q; ", name, a.Header.Values(name))
		}
		return list.String()
	}
	head := do("HEAD /page.txt") // first, so that the cache has no stored answer to GET
	get := do("GET /page.txt")
	if get.Status != 200 {
		t.Fatalf("%s: GET: %d", what, get.Status)
	}
	described := []string{"Content-Type", "Content-Encoding", "Vary", "Cache-Control", "Last-Modified", "Accept-Ranges", "Access-Control-Allow-Origin", "X-Frame-Options"}
	if head.Header.Get("ETag") != "" { // the tag may be made from the body, which HEAD may lack
		described = append(described, "ETag")
	}
	if h, g := fieldsOf(head, described...), fieldsOf(get, described...); head.Status != 200 || h != g {
		t.Errorf("%s: HEAD: %d %s\nGET: %s", what, head.Status, h, g)
	}
	if length := head.Header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(get.Body)) {
		t.Errorf("%s: HEAD: Content-Length %s, and GET sends %d bytes", what, length, len(get.Body))
	}
	kept := []string{"Cache-Control", "Vary", "Access-Control-Allow-Origin"} // as sections 15.3.7 and 15.4.5 require
	if part := do("GET /page.txt", "Range: bytes=0-9"); part.Status == 206 {
		if p, g := fieldsOf(part, kept...), fieldsOf(get, kept...); p != g {
			t.Errorf("%s: 206: %s\nGET: %s", what, p, g)
		}
	}
	tag := get.Header.Get("ETag")
	if tag == "" {
		return
	}
	none := do("GET /page.txt", "If-None-Match: "+tag)
	if n, g := fieldsOf(none, append(kept, "ETag")...), fieldsOf(get, append(kept, "ETag")...); none.Status != 304 || n != g {
		t.Errorf("%s: If-None-Match: %s: %d %s\nGET: %s", what, tag, none.Status, n, g)
	}
	if match := do("GET /page.txt", "If-Match: "+tag); match.Status != 200 && !strings.HasPrefix(tag, "W/") {
		t.Errorf("%s: If-Match: %s: %d", what, tag, match.Status)
	}
}
