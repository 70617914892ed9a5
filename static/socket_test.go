//go:build linux || darwin

package static_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/static"
)

// hasLoops says whether this system has a loop driver.
const (
	hasLoops = runtime.GOOS == "linux" && runtime.GOARCH != "386"
	noLoops  = "the loop driver is for Linux, but not on 386"
)

// drivers runs a test on a socket with each driver that this system has.
func drivers(t *testing.T, test func(t *testing.T, driver filo.Driver)) {
	t.Run("blocking", func(t *testing.T) { test(t, filo.DriverBlocking) })
	t.Run("loop", func(t *testing.T) {
		if !hasLoops {
			t.Skip(noLoops)
		}
		test(t, filo.DriverLoop)
	})
}

// request sends a request on a new connection, and reads only the head of the answer.
func request(t *testing.T, address, path string, fields ...string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n", path, strings.Join(append(fields, ""), "\r\n"))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// drain reads the rest of an answer.
func drain(response *http.Response) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{io.Discard}, response.Body, make([]byte, 1<<20))
}

// A whole file and parts of it arrive through a socket as they are on the disk.
func TestFromTheDisk(t *testing.T) {
	content := noise(3<<20 + 17)
	dir := tree(t, map[string]string{"file.bin": string(content)})
	drivers(t, func(t *testing.T, driver filo.Driver) {
		address := tcptest.Serve(t, &filo.Server{Handler: open(t, dir).Serve, Driver: driver})
		for _, tc := range []struct {
			field string
			want  []byte
		}{
			{"X: y", content},
			{"Range: bytes=0-0", content[:1]},
			{"Range: bytes=1000000-", content[1000000:]},
			{"Range: bytes=5-2999999", content[5:3000000]},
			{"Range: bytes=-20000", content[len(content)-20000:]},
		} {
			response := request(t, address, "/file.bin", tc.field)
			got, err := io.ReadAll(response.Body)
			if err != nil || !bytes.Equal(got, tc.want) {
				t.Errorf("%s: %d bytes, want %d; %v", tc.field, len(got), len(tc.want), err)
			}
		}
		response := request(t, address, "/file.bin", "Range: bytes=2000000-2999999, 7-9,-1000")
		body, err := io.ReadAll(response.Body)
		if err != nil || int64(len(body)) != response.ContentLength {
			t.Fatalf("several ranges: %d bytes of %d; %v", len(body), response.ContentLength, err)
		}
		got := parts(t, response.Header.Get("Content-Type"), string(body))
		size, mediaType := len(content), "application/octet-stream "
		for i, want := range []string{
			fmt.Sprintf("bytes 2000000-2999999/%d ", size) + mediaType + string(content[2000000:3000000]),
			fmt.Sprintf("bytes 7-9/%d ", size) + mediaType + string(content[7:10]),
			fmt.Sprintf("bytes %d-%d/%d ", size-1000, size-1, size) + mediaType + string(content[size-1000:]),
		} {
			if len(got) != 3 || got[i] != want {
				t.Errorf("several ranges: part %d of %d isn't as it should be", i, len(got))
			}
		}
	})
}

// sparse makes a file that is larger than a socket's buffers.
func sparse(t *testing.T, dir string, size int64) (path string) {
	t.Helper()
	path = filepath.Join(dir, "sparse.bin")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// If a file shrinks while it is sent, the connection is aborted.
func TestShrinks(t *testing.T) {
	const size = 64 << 20
	drivers(t, func(t *testing.T, driver filo.Driver) {
		for _, field := range []string{"X: y", "Range: bytes=1000-", "Range: bytes=0-9,1000-60000000"} {
			dir := t.TempDir()
			path := sparse(t, dir, size)
			address := tcptest.Serve(t, &filo.Server{Handler: open(t, dir).Serve, Driver: driver})
			response := request(t, address, "/sparse.bin", field)
			if response.StatusCode/100 != 2 || response.ContentLength < size/2 {
				t.Fatalf("%s: %d, %d bytes", field, response.StatusCode, response.ContentLength)
			}
			if err := os.Truncate(path, 5000); err != nil {
				t.Fatal(err)
			}
			n, err := drain(response)
			if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) || n >= response.ContentLength {
				t.Errorf("%s: %d of %d bytes came, and then %v", field, n, response.ContentLength, err)
			}
		}
	})
}

// A file that is removed or replaced while it is sent is still sent to its end.
func TestVanishes(t *testing.T) {
	const size = 64 << 20
	drivers(t, func(t *testing.T, driver filo.Driver) {
		dir := t.TempDir()
		path := sparse(t, dir, size)
		address := tcptest.Serve(t, &filo.Server{Handler: open(t, dir, static.Options{CacheCheck: -1}).Serve, Driver: driver})
		response := request(t, address, "/sparse.bin")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if n, err := drain(response); n != size || err != nil {
			t.Errorf("%d bytes came; %v", n, err)
		}
		if response := request(t, address, "/sparse.bin"); response.StatusCode != 404 {
			t.Errorf("what is gone is still %d", response.StatusCode)
		}
	})
}

// Many clients request files of all kinds while the files change. Each answer is a whole file as it was at some moment.
func TestManyClientsOfChangingFiles(t *testing.T) {
	dir := tree(t, map[string]string{"still.txt": strings.Repeat("s", 1000), "changing.txt": "a", "changing.bin": strings.Repeat("a", 400<<10)})
	drivers(t, func(t *testing.T, driver filo.Driver) {
		options := static.Options{CacheCheck: -1, CacheBytes: 64 << 10, CacheFileBytes: 8 << 10}
		address := tcptest.Serve(t, &filo.Server{Handler: open(t, dir, options).Serve, Driver: driver})
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport, Timeout: time.Minute}
		get := func(path string) (string, error) {
			response, err := client.Get("http://" + address + path)
			if err != nil {
				return "", err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err == nil && response.StatusCode != 200 {
				err = fmt.Errorf("%s: %d", path, response.StatusCode)
			}
			return string(body), err
		}
		var clients sync.WaitGroup
		for range 4 {
			clients.Go(func() {
				for range 20 {
					for _, path := range []string{"/still.txt", "/changing.txt", "/changing.bin"} {
						body, err := get(path)
						if err != nil || len(body) == 0 || strings.Trim(body, body[:1]) != "" {
							t.Errorf("%s: %d bytes of different files; %v", path, len(body), err)
							return
						}
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { clients.Wait(); close(done) }()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			letter := string(rune('a' + i%26))
			replace(t, dir, "changing.txt", strings.Repeat(letter, 1+i%5000))
			replace(t, dir, "changing.bin", strings.Repeat(letter, 300<<10+i%5000))
		}
	})
}

// replace puts a new file in the place of another one by renaming it, as files that are served should be changed.
func replace(t *testing.T, dir, name, content string) {
	t.Helper()
	write(t, dir, ".new", content)
	if err := os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, name)); err != nil {
		t.Error(err)
	}
}

// A file in memory is sent in the loop that has read its request. A file that must be looked up or opened never is sent there.
func TestClasses(t *testing.T) {
	if !hasLoops {
		t.Skip(noLoops)
	}
	dir := tree(t, map[string]string{"small.txt": "small", "large.bin": string(noise(300 << 10))})
	server := &filo.Server{Handler: open(t, dir, static.Options{CacheCheck: time.Hour, OpenFiles: -1}).Serve, Driver: filo.DriverLoop, Leaders: 1}
	address := tcptest.Serve(t, server)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	reader := bufio.NewReader(conn)
	ask := func(path string, times int) (handoffs uint64) {
		t.Helper()
		before := server.Stats().Handoffs
		for range times {
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Fatal(err)
			}
		}
		return server.Stats().Handoffs - before
	}
	ask("/small.txt", 1)
	// On a busy machine the handler may look slow for a while.
	for deadline := time.Now().Add(50 * time.Second); ; {
		n := ask("/small.txt", 200)
		if n <= 20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of 200 requests for a file in memory were handed off", n)
		}
	}
	// A worker that has left its loop may also serve the connection's next request, so not each call is a handoff.
	for _, path := range []string{"/large.bin", "/none"} {
		conn.SetDeadline(time.Now().Add(time.Minute))
		for deadline := time.Now().Add(50 * time.Second); ask(path, 20) == 0; {
			if time.Now().After(deadline) {
				t.Fatalf("no request for %s was handed off", path)
			}
		}
	}
}

// hasPart is a fast bytes.Contains for a part whose first 32 bytes occur nowhere else.
func hasPart(body, part []byte) bool {
	begin := bytes.Index(body, part[:32])
	return begin >= 0 && bytes.HasPrefix(body[begin:], part)
}

// While a handler that waits has the only place, a large file is sent whole or refused. This holds also over TLS and HTTP/2, and for
// ranges, which a loop's leader can't send itself.
func TestLargeFilesWithoutPlace(t *testing.T) {
	const size = 2 << 20
	content := noise(size)
	dir := tree(t, map[string]string{"large.bin": string(content), "small.txt": "small"})
	parts := fmt.Sprintf("bytes=10-%d,%d-", size/2, size/2+10)
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	for name, test := range map[string]struct{ tls, http2 bool }{"plain": {}, "TLS": {tls: true}, "HTTP/2": {tls: true, http2: true}} {
		t.Run(name, func(t *testing.T) {
			files := open(t, dir, static.Options{Frozen: true}) // otherwise a file that has just changed wouldn't stay open
			occupied, release := make(chan struct{}), make(chan struct{})
			wait := filo.Offload(func(c *filo.Ctx) error {
				close(occupied)
				<-release
				return c.Text(200, "waited")
			})
			server := &filo.Server{Concurrency: 1, Leaders: 1, Handler: func(c *filo.Ctx) error {
				if c.Path() == "/wait" {
					return wait(c)
				}
				return files.Serve(c)
			}}
			scheme, transport := "http://", &http.Transport{ForceAttemptHTTP2: test.http2}
			defer transport.CloseIdleConnections()
			if test.tls {
				server.TLSConfig = &tls.Config{Certificates: certified.TLS.Certificates}
				scheme, transport.TLSClientConfig = "https://", certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			}
			address := scheme + tcptest.Serve(t, server)
			client := &http.Client{Transport: transport, Timeout: time.Minute}
			get := func(path, ranges string) (status int, body []byte) {
				t.Helper()
				request, err := http.NewRequest("GET", address+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if ranges != "" {
					request.Header.Set("Range", ranges)
				}
				response, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				if test.http2 != (response.ProtoMajor == 2) {
					t.Fatalf("the answer came by %s", response.Proto)
				}
				body, err = io.ReadAll(response.Body)
				if err != nil {
					t.Errorf("%d with %d of %d bytes: %v", response.StatusCode, len(body), response.ContentLength, err)
				}
				return response.StatusCode, body
			}
			check := func() (whole int) {
				for range 3 {
					for range 10 {
						get("/small.txt", "") // so that the handler counts as quick
					}
					switch status, body := get("/large.bin", ""); {
					case status == 200 && bytes.Equal(body, content):
						whole++
					case status != 503:
						t.Errorf("%d with %d bytes of another content", status, len(body))
					}
					switch status, body := get("/large.bin", parts); {
					case status == 206 && hasPart(body, content[10:size/2+1]) && hasPart(body, content[size/2+10:]):
						whole++
					case status != 503:
						t.Errorf("%d with %d bytes that aren't the parts", status, len(body))
					}
				}
				return whole
			}
			if check() == 0 {
				t.Error("a file was never sent")
			}
			waited := make(chan error, 1)
			go func() {
				status := 503 // possible while the worker that sent the last file still has the place
				var err error
				for err == nil && status == 503 {
					var response *http.Response
					if response, err = client.Get(address + "/wait"); err == nil {
						status = response.StatusCode
						response.Body.Close()
					}
				}
				waited <- err
			}()
			select {
			case <-occupied:
			case err := <-waited:
				t.Fatalf("no answer came from a handler that waits: %v", err)
			}
			check()
			close(release)
			if err := <-waited; err != nil {
				t.Error(err)
			}
			for deadline := time.Now().Add(time.Minute); check() < 6; {
				if time.Now().After(deadline) {
					t.Fatal("not all are sent, although the place is free")
				}
			}
		})
	}
}
