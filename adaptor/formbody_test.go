package adaptor_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
)

// eachAround calls f with each way by which middleware of net/http can stand around a handler of filo: by Middleware over HTTP/1.1 and
// HTTP/2, and around ToHTTPServer in a server of net/http.
func eachAround(t *testing.T, f func(t *testing.T, start func(m func(http.Handler) http.Handler, h filo.Handler) *front)) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run("filo by "+proto, func(t *testing.T) {
			f(t, func(m func(http.Handler) http.Handler, h filo.Handler) *front {
				url, client := startSocket(t, adaptor.Middleware(m)(h), proto == "HTTP/2.0")
				return &front{url, client}
			})
		})
		t.Run("net/http by "+proto, func(t *testing.T) {
			f(t, func(m func(http.Handler) http.Handler, h filo.Handler) *front {
				server := httptest.NewUnstartedServer(m(adaptor.ToHTTPServer(&filo.Server{Handler: h, Logger: quiet})))
				server.EnableHTTP2 = proto == "HTTP/2.0"
				server.StartTLS()
				t.Cleanup(server.Close)
				return &front{server.URL, server.Client()}
			})
		})
	}
}

// A form that middleware has parsed, as packages against cross-site requests do, is the handler's form, too.
func TestMiddlewareParsesForm(t *testing.T) {
	const large = 64 << 10
	parsers := map[string]func(r *http.Request) *http.Request{
		"value":    func(r *http.Request) *http.Request { r.PostFormValue("token"); return r },
		"override": func(r *http.Request) *http.Request { r.Method = r.FormValue("method"); return r },
		"field":    func(r *http.Request) *http.Request { r.FormValue("token"); r.Header.Set("X-New", "1"); return r },
		"disk":     func(r *http.Request) *http.Request { r.ParseMultipartForm(1); r.ParseForm(); return r },
		"limited": func(r *http.Request) *http.Request {
			r.Body = http.MaxBytesReader(nil, r.Body, 3*large)
			r.FormValue("token")
			return r
		},
		"twice": func(r *http.Request) *http.Request {
			r.ParseForm()
			r = r.WithContext(r.Context())
			r.FormValue("token")
			return r
		},
	}
	eachAround(t, func(t *testing.T, start func(func(http.Handler) http.Handler, filo.Handler) *front) {
		s := start(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, parsers[r.URL.Query().Get("by")](r))
			})
		}, func(c *filo.Ctx) error {
			form, err := c.Request.Form()
			if err == nil {
				return c.Text(200, fmt.Sprint(c.Method(), " ", form.Get("token"), " ", len(form.Get("text"))))
			}
			parts, err := c.Request.MultipartForm()
			if err != nil {
				return err
			}
			file := parts.File["file"][0]
			open, err := file.Open()
			if err != nil {
				return err
			}
			defer open.Close()
			content, err := io.ReadAll(open)
			return c.Text(200, fmt.Sprint(c.Method(), " ", parts.Value["token"][0], " ", len(parts.Value["text"][0]), " ",
				file.Filename, " ", file.Header.Get("Content-Type"), " ", strings.Count(string(content), "f"), " ", err))
		})
		for by := range parsers {
			for _, chunked := range []bool{false, true} {
				for _, kind := range []string{"urlencoded", "multipart"} {
					text := strings.Repeat("x", large)
					body, contentType := "token=a%26b&text="+text+"&method=PUT", "application/x-www-form-urlencoded"
					want := "POST a&b 65536"
					if by == "override" {
						want = "PUT a&b 65536"
					}
					if kind == "multipart" {
						var form bytes.Buffer
						w := multipart.NewWriter(&form)
						w.WriteField("token", "a&b")
						w.WriteField("text", text)
						w.WriteField("method", "PUT")
						file, _ := w.CreateFormFile("file", `a"b.bin`)
						io.WriteString(file, strings.Repeat("f", large))
						w.Close()
						body, contentType = form.String(), w.FormDataContentType()
						want += ` a"b.bin application/octet-stream 65536 <nil>`
					}
					var reader io.Reader = strings.NewReader(body)
					if chunked {
						reader = struct{ io.Reader }{reader}
					}
					r, _ := http.NewRequest("POST", s.url+"/?by="+by, reader)
					r.Header.Set("Content-Type", contentType)
					response, err := s.client.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					got, _ := io.ReadAll(response.Body)
					response.Body.Close()
					if string(got) != want {
						t.Errorf("%s, %s, chunked %v: %d %.100q, want %q", by, kind, chunked, response.StatusCode, got, want)
					}
				}
			}
		}
	})
}

// Middleware that replaces the body, by a longer one or a shorter one, rarely changes ContentLength.
func TestMiddlewareReplacesBody(t *testing.T) {
	long := strings.Repeat("long ", 1000)
	eachAround(t, func(t *testing.T, start func(func(http.Handler) http.Handler, filo.Handler) *front) {
		s := start(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/gzip":
					body, err := gzip.NewReader(r.Body)
					if err != nil {
						t.Error(err)
					}
					r.Body = io.NopCloser(http.MaxBytesReader(w, body, 1<<20))
				case "/short":
					io.Copy(io.Discard, r.Body)
					r.Body = io.NopCloser(strings.NewReader("short"))
				}
				next.ServeHTTP(w, r)
			})
		}, func(c *filo.Ctx) error {
			body, err := c.Request.Body()
			if err != nil {
				return err
			}
			return c.Bytes(200, "text/plain", body)
		})
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		io.WriteString(w, long)
		w.Close()
		for _, test := range [][3]string{{"/gzip", zipped.String(), long}, {"/short", long, "short"}, {"/same", long, long}} {
			response, err := s.client.Post(s.url+test[0], "text/plain", strings.NewReader(test[1]))
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if string(got) != test[2] {
				t.Errorf("%s: %d %.100q, want %.100q", test[0], response.StatusCode, got, test[2])
			}
		}
	})
}

// Over HTTP/2, Hijack fails with the error for which handlers of net/http test.
func TestHijackHTTP2(t *testing.T) {
	url, client := startHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		_, _, err := http.NewResponseController(w).Hijack()
		fmt.Fprint(w, r.Proto, errors.Is(err, http.ErrNotSupported))
	})
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got, _ := io.ReadAll(response.Body); string(got) != "HTTP/2.0true" {
		t.Errorf("%q", got)
	}
}

// The server's refusal keeps the fields of middleware around it, but none that describe another content.
func TestRefusalDropsContent(t *testing.T) {
	h := adaptor.ToHTTPServer(&filo.Server{MaxHeaderFields: 2, Logger: quiet, Handler: func(c *filo.Ctx) error { return c.Text(200, "") }})
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	r.Header = http.Header{"A": {""}, "B": {""}, "C": {""}}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	for _, name := range []string{"Content-Disposition", "Content-Language", "Etag", "Content-Range", "Content-Encoding"} {
		w.Header().Set(name, "x")
	}
	h.ServeHTTP(w, r)
	if got := w.Result().Header; w.Code != 431 || got.Get("Access-Control-Allow-Origin") == "" || got.Get("Content-Disposition") != "" ||
		got.Get("Content-Language") != "" || got.Get("Etag") != "" || got.Get("Content-Range") != "" || got.Get("Content-Encoding") != "" {
		t.Errorf("%d %v", w.Code, got)
	}
}
