package http2

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/middleware"
)

// differentialRequests are sent over HTTP/1.1 and HTTP/2. Each lists method, path, body and fields.
var differentialRequests = [][]string{
	{"GET", "/", ""}, {"HEAD", "/", ""}, {"OPTIONS", "/", ""}, {"DELETE", "/", ""}, {"PUT", "/echo", "content"}, {"POST", "/echo", ""},
	{"POST", "/echo", strings.Repeat("long ", 10_000)}, {"POST", "/unread", strings.Repeat("x", 5000)}, {"POST", "/form", "a=1&b=2&a=3",
		"Content-Type", "application/x-www-form-urlencoded"},
	{"GET", "/file", ""}, {"HEAD", "/file", ""}, {"GET", "/file", "", "Range", "bytes=100-199"}, {"GET", "/file", "", "Range", "bytes=-10"},
	{"GET", "/file", "", "Range", "bytes=0-1,5-6"}, {"GET", "/file", "", "Range", "bytes=999999-"},
	{"GET", "/file", "", "If-Modified-Since", "Fri, 01 Jan 2038 00:00:00 GMT"}, {"GET", "/status/204", ""}, {"GET", "/status/304", ""},
	{"GET", "/status/404", ""}, {"GET", "/status/500", ""}, {"HEAD", "/status/404", ""}, {"GET", "/nothing", ""}, {"POST", "/status/205", ""},
	{"GET", "/redirect", ""}, {"GET", "/cookies", "", "Cookie", "a=1; b=2", "Cookie", "c=3"}, {"GET", "/stream", ""}, {"HEAD", "/stream", ""},
	{"GET", "/trailer", ""}, {"POST", "/trailers", "body"}, {"GET", "/hints", ""}, {"GET", "/query?a=b%20c&d=%C3%A9&e", ""}, {"GET", "/length", ""},
	{"HEAD", "/length", ""}, {"GET", "/fields", "", "X-Many", "1", "X-Many", "2", "X-Empty", "", "Accept", "text/*;q=0.5, */*"},
	{"GET", "/large", ""}, {"GET", "/compressed", "", "Accept-Encoding", "gzip"}, {"HEAD", "/compressed", "", "Accept-Encoding", "gzip"},
	{"GET", "/compressed", ""}, {"GET", "/panic", ""}, {"GET", "/error", ""}, {"GET", "/aborts", ""}, {"GET", "/cut", ""}, {"GET", "/timeout", ""},
	{"POST", "/toolarge", strings.Repeat("x", 70_000)},
}

// differentialSkips lists fields that aren't compared: those that the two protocols define differently, and Date.
var differentialSkips = []string{"Date", "Connection", "Transfer-Encoding", "Keep-Alive"}

// exchangeOf makes a request, and describes everything that the client receives.
func exchangeOf(client *http.Client, url string, r []string) string {
	var seen strings.Builder
	ctx, cancel := context.WithTimeout(context.Background(), filotest.Bound)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		fmt.Fprintf(&seen, "interim %d %v\n", code, header["Link"])
		return nil
	}})
	var body io.Reader
	if r[2] != "" {
		body = strings.NewReader(r[2])
	}
	if r[1] == "/trailers" {
		body = unknownLength(body)
	}
	request, err := http.NewRequestWithContext(ctx, r[0], url+r[1], body)
	if err != nil {
		return err.Error()
	}
	request.Host = "example.com"
	if r[1] == "/trailers" {
		request.Trailer = http.Header{"X-After": {"the body"}}
	}
	for i := 3; i < len(r); i += 2 {
		request.Header.Add(r[i], r[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		return "no answer"
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Sprintf("%s%d, and the body is cut", &seen, response.StatusCode)
	}
	fmt.Fprintf(&seen, "%d, length %d\n", response.StatusCode, response.ContentLength)
	for _, name := range slices.Sorted(maps.Keys(response.Header)) {
		if !slices.Contains(differentialSkips, name) {
			fmt.Fprintf(&seen, "%s: %q\n", name, response.Header[name])
		}
	}
	fmt.Fprintf(&seen, "trailer %v\n%q", response.Trailer, b)
	if _, boundary, ok := strings.Cut(response.Header.Get("Content-Type"), "boundary="); ok {
		return strings.ReplaceAll(seen.String(), boundary, "boundary") // each answer has another boundary
	}
	return seen.String()
}

// differ makes the same requests with two clients, and compares the answers.
func differ(t *testing.T, requests [][]string, names [2]string, clients [2]*http.Client, urls [2]string) {
	t.Helper()
	for _, r := range requests {
		first, second := exchangeOf(clients[0], urls[0], r), exchangeOf(clients[1], urls[1], r)
		if first != second {
			t.Errorf("%.100q:\n%s: %.600s\n%s: %.600s", r, names[0], first, names[1], second)
		}
	}
}

func differentialFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "file.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("0123456789", 3000)), 0o600); err != nil {
		t.Fatal(err)
	}
	modified := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := os.Chtimes(path, modified, modified); err != nil {
		t.Fatal(err)
	}
	return path
}

func plainClient(t *testing.T) *http.Client {
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// The same requests get the same answers over HTTP/1.1 and HTTP/2.
func TestHTTP2AnswersAsHTTP1(t *testing.T) {
	path, large := differentialFile(t), strings.Repeat("large ", 100_000)
	compressed := middleware.Compress()(func(c *filo.Ctx) error { return c.Text(200, large) })
	handler := func(c *filo.Ctx) error {
		switch target := c.Path(); target {
		case "/", "/unread":
			return c.Text(200, c.Method())
		case "/echo", "/toolarge":
			return echoBody(c)
		case "/form":
			form, err := c.Request.Form()
			if err != nil {
				return err
			}
			return c.Text(200, fmt.Sprint(form.Get("a"), form.Get("b")))
		case "/file":
			return c.File(path)
		case "/redirect":
			return c.Redirect(302, "/elsewhere")
		case "/cookies":
			for name, value := range c.Request.Cookies() {
				c.Response.Header.Add("X-Got", string(name)+"="+string(value))
			}
			c.Response.Header.Add("Set-Cookie", "x=1")
			c.Response.Header.Add("Set-Cookie", "y=2; Path=/")
			return c.NoContent()
		case "/stream", "/cut", "/trailer":
			w := c.Stream()
			for i := range 3 {
				fmt.Fprintf(w, "part %d,", i)
				if err := w.Flush(); err != nil {
					return err
				}
			}
			if target == "/cut" {
				return io.ErrUnexpectedEOF
			}
			if target == "/trailer" {
				c.Response.Trailer.Set("X-Sum", "42")
			}
			return nil
		case "/trailers":
			b, err := c.Body()
			if err != nil {
				return err
			}
			return c.Text(200, fmt.Sprintf("%s, %s", b, c.Request.Trailer.Get("X-After")))
		case "/hints":
			c.Response.Header.Set("Link", "</a.css>; rel=preload")
			if err := c.EarlyHints(); err != nil {
				return err
			}
			return c.Text(200, "hinted")
		case "/query":
			return c.Text(200, c.Query("a")+c.Query("d")+c.Host())
		case "/length":
			c.Response.SetBodyStream(strings.NewReader("twelve bytes"), 12)
			return nil
		case "/fields":
			return c.Text(200, fmt.Sprint(c.Request.Header.Get("X-Many"), c.Request.Header.Get("X-Empty"), c.Request.Header.Get("Accept")))
		case "/large":
			return c.Text(200, large)
		case "/compressed":
			return compressed(c)
		case "/panic":
			panic("on purpose")
		case "/error":
			return filo.Error(418, "no coffee")
		case "/aborts":
			return filo.ErrAbort
		case "/timeout":
			c.SetTimeout(time.Millisecond, nil)
			<-c.Context().Done()
			return c.Context().Err()
		case "/status/204", "/status/205", "/status/304", "/status/404", "/status/500":
			status := 0
			fmt.Sscanf(target, "/status/%d", &status)
			c.Response.Header.Set("ETag", `"tag"`)
			c.Response.SetStatus(status)
			return nil
		}
		return filo.Error(404, "")
	}
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, two := serve(&filo.Server{Handler: handler, MaxBodyBytes: 65_000})
		one := filotest.Serve(t, &filo.Server{Handler: handler, MaxBodyBytes: 65_000})
		differ(t, differentialRequests, [2]string{"HTTP/1.1", "HTTP/2"}, [2]*http.Client{plainClient(t), two.Client},
			[2]string{"http://" + one.Addr, two.URL})
	})
}

// Over both protocols, a net/http handler gives the same answers on filo as on net/http's server.
func TestHTTP2AnswersAsNetHTTP(t *testing.T) {
	path := differentialFile(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/", "/unread":
			io.WriteString(w, r.Method)
		case "/echo":
			b, err := io.ReadAll(r.Body)
			if err != nil {
				panic(err)
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Write(b)
		case "/form":
			r.ParseForm()
			fmt.Fprint(w, r.Form)
		case "/file":
			http.ServeFile(w, r, path)
		case "/redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case "/cookies":
			for _, cookie := range r.Cookies() {
				w.Header().Add("X-Got", cookie.String())
			}
			http.SetCookie(w, &http.Cookie{Name: "x", Value: "1"})
			w.WriteHeader(204)
		case "/stream":
			for i := range 3 {
				fmt.Fprintf(w, "part %d,", i)
				w.(http.Flusher).Flush()
			}
		case "/trailer":
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, "content")
			w.Header().Set("X-Sum", "42")
		case "/trailers":
			b, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, string(b), r.Trailer)
		case "/hints":
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(103)
			io.WriteString(w, "hinted")
		case "/query":
			fmt.Fprint(w, r.URL.Query(), r.Host)
		case "/length":
			w.Header().Set("Content-Length", "12")
			io.WriteString(w, "twelve bytes")
		case "/fields":
			fmt.Fprint(w, r.Header["X-Many"], r.Header["X-Empty"], r.Header["Accept"])
		case "/large":
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, strings.Repeat("large ", 100_000))
		case "/aborts", "/panic":
			panic(http.ErrAbortHandler)
		case "/status/204", "/status/304", "/status/404", "/status/500":
			status := 0
			fmt.Sscanf(r.URL.Path, "/status/%d", &status)
			w.Header().Set("ETag", `"tag"`)
			w.WriteHeader(status)
		default:
			http.NotFound(w, r)
		}
	})
	theirs := httptest.NewServer(handler)
	defer theirs.Close()
	// These requests aren't compared, because they test features that net/http's server lacks, or documented differences. With trailers,
	// HTTP/1.1 can't send the Content-Length that HTTP/2 sends.
	requests := slices.DeleteFunc(slices.Clone(differentialRequests), func(r []string) bool {
		return slices.Contains([]string{"/compressed", "/error", "/cut", "/trailer", "/timeout", "/toolarge", "/status/205"}, r[1])
	})
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, two := serve(&filo.Server{Name: "-", Handler: adaptor.FromHTTP(handler)})
		differ(t, requests, [2]string{"net/http", "HTTP/2"}, [2]*http.Client{plainClient(t), two.Client}, [2]string{theirs.URL, two.URL})
	})
}
