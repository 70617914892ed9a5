package router_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

func TestMatch(t *testing.T) {
	for _, group := range []struct {
		why      string
		patterns []string
		want     map[string]string // request: route and parameters, or a status and Location
	}{
		{"ServeMux: literals, methods and subtrees", []string{"/index.html", "GET /static/", "POST /static/{$}"}, map[string]string{
			"GET /index.html":     "/index.html",
			"DELETE /index.html":  "/index.html",
			"GET /INDEX.html":     "404",
			"GET /index.html/":    "404",
			"GET /static/":        "GET /static/",
			"GET /static/a/b.css": "GET /static/",
			"HEAD /static/a":      "GET /static/",
			"POST /static/":       "POST /static/{$}",
			"POST /static/a":      "405",
			"GET /static":         "301 /static/",
			"POST /static":        "308 /static/",
			"PUT /static":         "405",
		}},
		{"ServeMux: wildcards", []string{"/b/{bucket}/o/{objectname...}", "/{$}"}, map[string]string{
			"GET /b/x/o/y/z":  "/b/{bucket}/o/{objectname...} bucket=x objectname=y/z",
			"GET /b/x/o/":     "/b/{bucket}/o/{objectname...} bucket=x objectname=",
			"GET /b/x/o":      "301 /b/x/o/",
			"GET /b/x/o?q=%2": "301 /b/x/o/?q=%2",
			"GET /b/x/p":      "404",
			"GET /":           "/{$}",
			"GET /b":          "404",
		}},
		{"ServeMux: the more specific path wins", []string{"/images/thumbnails/", "/images/", "/{x...}", "/images/logo", "/i/{x}"}, map[string]string{
			"GET /images/thumbnails/a": "/images/thumbnails/",
			"GET /images/thumbnail":    "/images/",
			"GET /images/logo":         "/images/logo",
			"GET /a/logo":              "/{x...} x=a/logo",
			"GET /images/thumbnails":   "301 /images/thumbnails/",
		}},
		{"the search goes back from a literal that leads nowhere", []string{"/a/b/z", "/a/{x}/c", "/{w}/b/{y}/d", "/{rest...}"}, map[string]string{
			"GET /a/b/z":   "/a/b/z",
			"GET /a/b/c":   "/a/{x}/c x=b",
			"GET /a/b/c/d": "/{w}/b/{y}/d w=a y=c",
			"GET /a/b/q":   "/{rest...} rest=a/b/q",
			"GET /a/b/c/e": "/{rest...} rest=a/b/c/e",
		}},
		{"ServeMux: segments are decoded one by one", []string{"/a%2fb/", "/a/b/{x}", "/100%25/{x}", "/%7bx%7d", "/%61bc"}, map[string]string{
			"GET /a%2Fb/100%25":     "/a%2fb/",
			"GET /a/b/c%2Fd":        "/a/b/{x} x=c/d",
			"GET /a/b/%2525":        "/a/b/{x} x=%25",
			"GET /100%25/%e4%20%00": "/100%25/{x} x=\xe4 \x00",
			"GET /%31%30%30%25/y":   "/100%25/{x} x=y",
			"GET /{x}":              "/%7bx%7d",
			"GET /%7Bx%7D":          "/%7bx%7d",
			"GET /abc":              "/%61bc",
			"GET /a%62c":            "/%61bc",
			"GET /a/b%2Fc":          "404",
		}},
		{"dots that are encoded are values, as for ServeMux", []string{"/f/{x}", "/f/{x}/{y...}"}, map[string]string{
			"GET /f/%2e%2e":      "/f/{x} x=..",
			"GET /f/%2E/a/%2e./": "/f/{x}/{y...} x=. y=a/../",
		}},
		{"paths are cleaned", []string{"/a/{x}", "/b/", "/c/{rest...}"}, map[string]string{
			"GET /a/../a/b":      "301 /a/b",
			"POST /a//b?c=//":    "308 /a/b?c=//",
			"GET //a/b":          "301 /a/b",
			"GET /a/.":           "301 /a",
			"GET /a/..":          "301 /",
			"GET /a/../../..":    "301 /",
			"GET /b/./c/":        "301 /b/c/",
			"GET /c/a//b":        "301 /c/a/b",
			"GET /c/%41/../b":    "301 /c/b",
			"GET /x/../b":        "301 /b/",
			"GET /no//where":     "301 /no/where",
			"GET /a/.../":        "404",
			"GET /a/...":         "/a/{x} x=...",
			"GET /c/..a/.b":      "/c/{rest...} rest=..a/.b",
			"GET //evil.test/..": "301 /",
			`GET /x/../\evil/`:   "301 /%5Cevil/",
		}},
		{"a redirect never leads to another host", []string{"/{x}/", "/{x}/{y}/"}, map[string]string{
			`GET /\evil.test`:    "301 /%5Cevil.test/",
			`GET /%5cevil.test`:  "301 /%5cevil.test/",
			`GET /%2fevil.test`:  "301 /%2fevil.test/",
			`GET /%2f/evil.test`: "301 /%2f/evil.test/",
			`GET ///evil.test`:   "301 /evil.test/",
		}},
		{"ServeMux: hosts come first, without their port", []string{"example.com/", "/a", "GET example.com/{$}", "[::1]/six", "api.EXAMPLE.com/v1"}, map[string]string{
			"GET http://example.com/a":              "example.com/",
			"GET http://EXAMPLE.com:8080/a":         "example.com/",
			"GET http://example.com:80/":            "GET example.com/{$}",
			"GET http://example.org/a":              "/a",
			"GET http://example.com.evil.org/b":     "404",
			"GET http://[::1]:8080/six":             "[::1]/six",
			"GET http://[::1]/six":                  "[::1]/six",
			"GET http://api.example.com/v1":         "api.example.com/v1",
			"GET http://API.example.com:443/v1":     "api.example.com/v1",
			"GET http://example.com:8080/x/../b":    "301 /b",
			"GET http://api.example.com:8080/v1/..": "301 /",
		}},
		{"constraints: the constrained comes before the unconstrained", []string{"/u/{id:int}", "/u/{name}", "/u/me", "/u/{id:int}/posts", "/u/{name}/{what}"}, map[string]string{
			"GET /u/7":                   "/u/{id:int} id=7",
			"GET /u/%37":                 "/u/{id:int} id=7",
			"GET /u/-7":                  "/u/{id:int} id=-7",
			"GET /u/+7":                  "/u/{name} name=+7",
			"GET /u/me":                  "/u/me",
			"GET /u/bob":                 "/u/{name} name=bob",
			"GET /u/7/posts":             "/u/{id:int}/posts id=7",
			"GET /u/7/friends":           "/u/{name}/{what} name=7 what=friends",
			"GET /u/bob/posts":           "/u/{name}/{what} name=bob what=posts",
			"GET /u/9223372036854775807": "/u/{id:int} id=9223372036854775807",
			"GET /u/9223372036854775808": "/u/{name} name=9223372036854775808",
			"GET /u/-":                   "/u/{name} name=-",
		}},
		{"constraints: types", []string{"/i/{x:uint}", "/a/{x:alpha}", "/g/{x:uuid}"}, map[string]string{
			"GET /i/0":                            "/i/{x:uint} x=0",
			"GET /i/18446744073709551615":         "/i/{x:uint} x=18446744073709551615",
			"GET /i/18446744073709551616":         "404",
			"GET /i/" + strings.Repeat("1", 4000): "404",
			"GET /i/-1":                           "404",
			"GET /a/Abz":                          "/a/{x:alpha} x=Abz",
			"GET /a/A1":                           "404",
			"GET /g/01234567-89ab-CDEF-0123-456789abcdef":   "/g/{x:uuid} x=01234567-89ab-CDEF-0123-456789abcdef",
			"GET /g/01234567-89ab-CDEF-0123-456789abcdeg":   "404",
			"GET /g/0123456789abCDEF0123456789abcdef":       "404",
			"GET /g/01234567-89ab-CDEF-0123-456789abcdef0":  "404",
			"GET /g/01234567%2d89ab-CDEF-0123-456789abcdef": "/g/{x:uuid} x=01234567-89ab-CDEF-0123-456789abcdef",
		}},
		{"constraints: anchored expressions, braces, slashes and blanks", []string{"/s/{slug:[a-z-]+}", "/y/{year:[0-9]{4}}/{month:[0-9]{2}}", "/o/{x:a|b}", "/p/{x:a/b}", "/q/{x:a b}", `/r/{x:\{}`}, map[string]string{
			"GET /s/a-b":     "/s/{slug:[a-z-]+} slug=a-b",
			"GET /s/a-B":     "404",
			"GET /s/a%0a":    "404",
			"GET /y/2024/05": "/y/{year:[0-9]{4}}/{month:[0-9]{2}} year=2024 month=05",
			"GET /y/2024/5":  "404",
			"GET /o/a":       "/o/{x:a|b} x=a",
			"GET /o/ab":      "404",
			"GET /p/a%2Fb":   "/p/{x:a/b} x=a/b",
			"GET /q/a%20b":   "/q/{x:a b} x=a b",
			"GET /r/%7b":     `/r/{x:\{} x={`,
		}},
		{"constraints that differ may stand where no request matches both", []string{"GET /x/{a:int}", "POST /x/{a:alpha}", "/x/{a:int}/b", "/x/{a:alpha}/c"}, map[string]string{
			"GET /x/1":   "GET /x/{a:int} a=1",
			"POST /x/a":  "POST /x/{a:alpha} a=a",
			"POST /x/1":  "405",
			"GET /x/1/b": "/x/{a:int}/b a=1",
			"GET /x/a/c": "/x/{a:alpha}/c a=a",
			"GET /x/1/c": "404",
		}},
		{"methods: GET is HEAD's too, others are compared as they are", []string{"GET /a", "HEAD /b", "GET /b", "/c", "PROPFIND /d", "purge /e"}, map[string]string{
			"HEAD /a":     "GET /a",
			"HEAD /b":     "HEAD /b",
			"GET /b":      "GET /b",
			"PROPFIND /c": "/c",
			"PROPFIND /d": "PROPFIND /d",
			"PURGE /e":    "405",
			"purge /e":    "purge /e",
			"OPTIONS /c":  "/c",
			"OPTIONS /a":  "204",
			"OPTIONS /x":  "404",
		}},
	} {
		t.Run(group.why, func(t *testing.T) {
			s := servertest.New(t, with(group.patterns...).Serve)
			for request, want := range group.want {
				got := s.Do(t, request)
				text := got.Header.Get("Route")
				if got.Status != 200 {
					text = strings.TrimSpace(strings.Join([]string{strconv.Itoa(got.Status), got.Header.Get("Location")}, " "))
				}
				// A field's value can't have control characters, so compare the body.
				if got.Status == 200 && !strings.HasPrefix(request, "HEAD") {
					text = got.Body
				}
				if text != want {
					t.Errorf("%.100s: %q, want %q", request, text, want)
				}
			}
		})
	}
}

// A route may have any number of parameters, for handlers of filo and of net/http, and in a mounted router.
func TestManyParameters(t *testing.T) {
	var pattern, path strings.Builder
	for i := range 100 {
		pattern.WriteString("/{p" + strconv.Itoa(i) + "}")
		path.WriteString("/v%2F" + strconv.Itoa(i))
	}
	r := router.New()
	r.GET(pattern.String(), func(c *filo.Ctx) error {
		for i := range 100 {
			if got, want := c.Param("p"+strconv.Itoa(i)), "v/"+strconv.Itoa(i); got != want {
				t.Errorf("parameter %d: %q, want %q", i, got, want)
			}
		}
		return adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i := range 100 {
				if got, want := r.PathValue("p"+strconv.Itoa(i)), "v/"+strconv.Itoa(i); got != want {
					t.Errorf("path value %d: %q, want %q", i, got, want)
				}
			}
		}))(c)
	})
	outer := router.New()
	outer.Mount("/", r.Serve)
	for _, r := range []*router.Router{r, outer} {
		if got := do(t, r, "GET "+path.String()); got.Status != 200 {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	}
}
