package static_test

import (
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/static"
)

// site stands for an embed.FS.
var site fs.FS = fstest.MapFS{
	"index.html":                {Data: []byte("<h1>Home</h1>")},
	"assets/app.3f9c2b7a.js":    {Data: []byte("start()")},
	"assets/app.3f9c2b7a.js.br": {Data: []byte("(brotli)")},
	"manual.txt":                {Data: []byte("Read me first.")},
}

// show sends h a GET for path with a field such as "Name: value". It prints the answer, with those of its fields that are named.
func show(h filo.Handler, path, field string, names ...string) {
	ln := servertest.NewListener()
	s := &filo.Server{Handler: h}
	go s.Serve(ln)
	defer s.Close()
	request, err := http.NewRequest("GET", "http://filo.test"+path, nil)
	if err != nil {
		log.Fatal(err)
	}
	if name, value, ok := strings.Cut(field, ": "); ok {
		request.Header.Set(name, value)
	}
	transport := http.Transport{DialContext: ln.DialContext, DisableCompression: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d %s\n", response.StatusCode, strings.TrimSpace(string(body)))
	for _, name := range names {
		fmt.Printf("%s: %s\n", name, response.Header.Get(name))
	}
}

func Example() {
	files := static.New(site, static.Options{
		Precompressed: true,
		Fallback:      "index.html",
		CacheControl:  static.CacheFingerprinted,
	})
	r := router.New()
	r.GET("/{path...}", files.Serve)
	r.GET("/api/time", func(c *filo.Ctx) error { return c.Text(200, "12:00") })

	show(r.Serve, "/", "", "Content-Type", "Cache-Control")
	show(r.Serve, "/assets/app.3f9c2b7a.js", "Accept-Encoding: gzip, br", "Content-Encoding", "Cache-Control")
	show(r.Serve, "/users/1", "Accept: text/html, */*;q=0.8")
	show(r.Serve, "/manual.txt", "Range: bytes=0-6", "Content-Range")
	show(r.Serve, "/api/time", "")
	// Output:
	// 200 <h1>Home</h1>
	// Content-Type: text/html; charset=utf-8
	// Cache-Control: no-cache
	// 200 (brotli)
	// Content-Encoding: br
	// Cache-Control: public, max-age=31536000, immutable
	// 200 <h1>Home</h1>
	// 206 Read me
	// Content-Range: bytes 0-6/14
	// 200 12:00
}

func ExampleDir() {
	dir, err := os.MkdirTemp("", "site")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "hello.txt"), []byte("Hello!"), 0o644); err != nil {
		log.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "passwd")); err != nil {
		log.Fatal(err)
	}

	files, err := static.Dir(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer files.Close()
	show(files.Serve, "/hello.txt", "", "Accept-Ranges")
	show(files.Serve, "/passwd", "")
	// Output:
	// 200 Hello!
	// Accept-Ranges: bytes
	// 404 Not Found
}

// A route can serve a single file.
func ExampleFiles_ServeFile() {
	files := static.New(site)
	r := router.New()
	r.GET("/help", func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Language", "en")
		return files.ServeFile(c, "manual.txt")
	})
	show(r.Serve, "/help", "", "Content-Language", "Content-Type")
	// Output:
	// 200 Read me first.
	// Content-Language: en
	// Content-Type: text/plain; charset=utf-8
}

// Build tools often put files with fingerprints into a directory of their own.
func ExampleOptions_cacheControl() {
	files := static.New(site, static.Options{CacheControl: func(name string) string {
		if strings.HasPrefix(name, "assets/") {
			return "public, max-age=31536000, immutable"
		}
		return "no-cache"
	}})
	show(files.Serve, "/assets/app.3f9c2b7a.js", "", "Cache-Control")
	show(files.Serve, "/manual.txt", "", "Cache-Control")
	// Output:
	// 200 start()
	// Cache-Control: public, max-age=31536000, immutable
	// 200 Read me first.
	// Cache-Control: no-cache
}

func ExampleFingerprinted() {
	for _, name := range []string{"app.3f9c2b7a.js", "app.js", "photo-20240131.jpg"} {
		fmt.Println(name, static.Fingerprinted(name))
	}
	// Output:
	// app.3f9c2b7a.js true
	// app.js false
	// photo-20240131.jpg false
}
