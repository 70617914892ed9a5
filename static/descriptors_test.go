//go:build linux

package static_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/static"
)

// descriptors counts the process's open descriptors of files in a directory, including deleted files.
func descriptors(t *testing.T, dir string) (n int) {
	t.Helper()
	links, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		// Other descriptors may be closed while this loop runs.
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", link.Name())); err == nil && strings.HasPrefix(target, dir+"/") {
			n++
		}
	}
	return n
}

// awaitDescriptors waits until the wanted number of descriptors is open, or fails the test: the server closes a file a moment after the client
// has received the answer.
func awaitDescriptors(t *testing.T, dir string, want int, why string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); descriptors(t, dir) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d files are open, want %d", why, descriptors(t, dir), want)
		}
	}
}

// fetch returns an answer with its whole body.
func fetch(t *testing.T, address, path string, fields ...string) (*http.Response, []byte) {
	t.Helper()
	response := request(t, address, path, fields...)
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, body
}

// Large files stay open from one request to the next, within the limit. No descriptor is lost, however the answers end.
func TestDescriptors(t *testing.T) {
	content := noise(600 << 10)
	drivers(t, func(t *testing.T, driver filo.Driver) {
		dir := tree(t, map[string]string{"a.bin": string(content), "b.bin": string(content), "c.bin": string(content)})
		sparse(t, dir, 64<<20)
		files, err := static.Dir(dir, static.Options{OpenFiles: 2, Frozen: true})
		if err != nil {
			t.Fatal(err)
		}
		address := tcptest.Serve(t, &filo.Server{Handler: files.Serve, Driver: driver})
		for range 3 {
			for _, path := range []string{"/a.bin", "/b.bin", "/c.bin"} {
				if _, body := fetch(t, address, path); !bytes.Equal(body, content) {
					t.Fatalf("%s: %d bytes, or others than the file's", path, len(body))
				}
			}
			awaitDescriptors(t, dir, 2, "after whole files")
		}
		var clients sync.WaitGroup
		for i := range 8 {
			clients.Go(func() {
				response := request(t, address, "/a.bin", fmt.Sprintf("Range: bytes=%d-", i*50_000))
				body, err := io.ReadAll(response.Body)
				if err != nil || !bytes.Equal(body, content[i*50_000:]) {
					t.Errorf("a range beside others: %d bytes, or others than the file's; %v", len(body), err)
				}
			})
		}
		clients.Wait()
		response, body := fetch(t, address, "/a.bin", "Range: bytes=5-9,500000-500009")
		got := parts(t, response.Header.Get("Content-Type"), string(body))
		if len(got) != 2 || !strings.HasSuffix(got[0], string(content[5:10])) || !strings.HasSuffix(got[1], string(content[500000:500010])) {
			t.Errorf("several ranges: %q", got)
		}
		fetch(t, address, "/a.bin", "If-None-Match: *")
		fetch(t, address, "/a.bin", "Range: bytes=700000-")
		awaitDescriptors(t, dir, 2, "after ranges and conditions")

		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET /sparse.bin HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := io.ReadFull(conn, make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		awaitDescriptors(t, dir, 2, "after a client that left")
		if err := files.Close(); err != nil {
			t.Fatal(err)
		}
		awaitDescriptors(t, dir, 0, "after Close")
	})
}

// A change of an open file is noticed at once, however long CacheCheck is. A deleted file doesn't stay open, so it occupies no space on
// the disk.
func TestDescriptorsOfFilesThatChange(t *testing.T) {
	const size = 600 << 10
	for what, test := range map[string]struct {
		change func(t *testing.T, dir string)
		status int
		length int
	}{
		"deleted":    {func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "a.bin"))) }, 404, -1},
		"replaced":   {func(t *testing.T, dir string) { replace(t, dir, "a.bin", strings.Repeat("b", size+1)) }, 200, size + 1},
		"written to": {func(t *testing.T, dir string) { write(t, dir, "a.bin", strings.Repeat("c", size-1)) }, 200, size - 1},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := tree(t, map[string]string{"a.bin": string(noise(size))})
			files := open(t, dir, static.Options{CacheCheck: time.Hour})
			address := tcptest.Serve(t, &filo.Server{Handler: files.Serve})
			// The file is kept open only once its last change is old enough: a further change right after that one couldn't be noticed.
			awaitSettled(t, filepath.Join(dir, "a.bin"))
			for range 2 {
				fetch(t, address, "/a.bin")
				awaitDescriptors(t, dir, 1, "before")
			}
			test.change(t, dir)
			response, body := fetch(t, address, "/a.bin")
			if response.StatusCode != test.status || test.length >= 0 && len(body) != test.length {
				t.Errorf("%d, %d bytes; want %d, %d", response.StatusCode, len(body), test.status, test.length)
			}
			awaitDescriptors(t, dir, 0, "afterwards")
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// awaitSettled waits until another change of the file is certain to have a different time.
func awaitSettled(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	changed := info.Sys().(*syscall.Stat_t).Ctim
	for time.Since(time.Unix(changed.Unix())) <= 2*time.Second {
		time.Sleep(10 * time.Millisecond)
	}
}

// openCounter counts the files that are opened.
type openCounter struct {
	fstest.MapFS
	opened atomic.Int32
}

func (c *openCounter) Open(name string) (fs.File, error) {
	c.opened.Add(1)
	return c.MapFS.Open(name)
}

// HEAD for a known file opens no file, and gets the same head as GET.
func TestHeadOpensNothing(t *testing.T) {
	counter := &openCounter{MapFS: fstest.MapFS{"a.bin": {Data: noise(600 << 10), ModTime: longAgo}}}
	s := servertest.New(t, static.New(counter).Serve)
	get := s.Do(t, "GET /a.bin")
	before := counter.opened.Load()
	head := s.Do(t, "HEAD /a.bin")
	if n := counter.opened.Load() - before; n != 0 {
		t.Errorf("%d files were opened", n)
	}
	if head.Status != 200 || head.Body != "" || head.Header.Get("Content-Length") != "614400" || head.Header.Get("ETag") != get.Header.Get("ETag") {
		t.Errorf("HEAD: %d %v, %d bytes; GET: %v", head.Status, head.Header, len(head.Body), get.Header)
	}
	delete(counter.MapFS, "a.bin")
	if head := s.Do(t, "HEAD /a.bin"); head.Status != 404 {
		t.Errorf("HEAD of what is gone: %d", head.Status)
	}
}
