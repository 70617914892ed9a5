//go:build linux || darwin

package static_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/static"
)

// Every path that names no file in the tree is 404, and no answer shows a path on the server.
func TestNothingLeadsOut(t *testing.T) {
	outside := tree(t, map[string]string{"secret.txt": "secret", "dir/index.html": "secret"})
	dir := tree(t, map[string]string{"in.txt": "inside", "sub/in.txt": "inside", "back\\slash": "secret", ".hidden/x": "secret"})
	for name, target := range map[string]string{
		"out.txt":          filepath.Join(outside, "secret.txt"),
		"out":              outside,
		"up.txt":           "../" + filepath.Base(outside) + "/secret.txt",
		"sub/up":           "../../" + filepath.Base(outside),
		"link.txt":         "sub/in.txt",
		"linked":           "sub",
		"loop":             "loop",
		"dangling":         "none",
		"index.html":       filepath.Join(outside, "secret.txt"),
		"sub/index.html":   "../.hidden/x2",
		"in.txt.gz":        filepath.Join(outside, "secret.txt"),
		"sub/device":       "/dev/zero",
		"sub/in.txt.br":    "loop",
		"sub/process":      "/proc/self/environ",
		"sub/absolute.txt": filepath.Join(dir, "in.txt"),
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, dir, static.Options{Precompressed: true, Listing: true})
	for _, path := range []string{
		"/out.txt", "/out/secret.txt", "/out/dir/", "/out/", "/out", "/up.txt", "/sub/up/secret.txt", "/loop", "/loop/x", "/dangling",
		"/sub/device", "/sub/process", "/sub/absolute.txt",
		"/../secret.txt", "/..", "/../", "/sub/../../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/sub/..", "/sub/.", "/.",
		"/%2e", "/%2e/", "/..%5csecret.txt", "/back%5cslash", "/back\\slash", "/in.txt%00", "/%00", "/in.txt%00.png", "/sub%00/in.txt",
		"//in.txt", "/sub//in.txt", "///", "/sub//", "/in.txt//", "/%ff", "/in.txt/x", "/in.txt%2f", "/%2fetc/passwd", "//etc/passwd",
		"/" + strings.Repeat("a", 300), "/" + strings.Repeat("a/", 3000), "/" + strings.Repeat("../", 500) + "etc/passwd",
		"/.hidden/x", "/.hidden/", "/.hidden", "/c:/in.txt", "/in.txt:stream", "/in.txt::$DATA", "/CON", "/in.txt.", "/IN.TXT%20",
	} {
		for range 2 {
			a := s.Do(t, "GET "+path, "Accept-Encoding: gzip, br")
			if a.Status != 404 && a.Status != 400 || strings.Contains(a.Body, "secret") || strings.Contains(a.Body, dir) {
				t.Errorf("%.60s: %d %.60q", path, a.Status, a.Body)
			}
		}
	}
	for _, path := range []string{"/in.txt", "/link.txt", "/linked/in.txt"} {
		if a := s.Do(t, "GET "+path, "Accept-Encoding: gzip, br"); a.Body != "inside" {
			t.Errorf("%s: %d %q", path, a.Status, a.Body)
		}
	}
}

// Anything but a regular file is 404 at once: opening it doesn't wait.
func TestSpecialFiles(t *testing.T) {
	dir := tree(t, map[string]string{"a.txt": "a"})
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "a.txt.gz"), 0o644); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	paths := []string{"/fifo", "/socket", "/fifo/", "/socket/"}
	const zero = 1<<8 | 5
	if err := syscall.Mknod(filepath.Join(dir, "device"), syscall.S_IFCHR|0o644, zero); err == nil {
		paths = append(paths, "/device")
	} else if !errors.Is(err, syscall.EPERM) {
		t.Fatal(err)
	}
	options := static.Options{Precompressed: true, Hidden: true, Listing: true}
	for name, files := range map[string]*static.Files{"Dir": open(t, dir, options), "os.DirFS": static.New(os.DirFS(dir), options)} {
		s := servertest.New(t, files.Serve)
		for _, path := range paths {
			if a := s.Do(t, "GET "+path); a.Status != 404 {
				t.Errorf("%s: %s: %d", name, path, a.Status)
			}
		}
		if a := s.Do(t, "GET /a.txt", "Accept-Encoding: gzip"); a.Body != "a" || a.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: a file whose encoding is a FIFO: %q", name, a.Body)
		}
	}
}

// brokenFS fails with the test's errors.
type brokenFS struct {
	fstest.MapFS
	openErr, readErr, statErr error
}

func (b *brokenFS) Open(name string) (fs.File, error) {
	if b.openErr != nil {
		return nil, &fs.PathError{Op: "open", Path: "/srv/www/" + name, Err: b.openErr}
	}
	file, err := b.MapFS.Open(name)
	return &brokenFile{file, b}, err
}

func (b *brokenFS) Stat(name string) (fs.FileInfo, error) {
	return b.MapFS.Stat(name)
}

type brokenFile struct {
	fs.File
	fs *brokenFS
}

func (b *brokenFile) Read(p []byte) (int, error) {
	if b.fs.readErr != nil {
		return 0, &fs.PathError{Op: "read", Path: "/srv/www", Err: b.fs.readErr}
	}
	return b.File.Read(p)
}

func (b *brokenFile) Stat() (fs.FileInfo, error) {
	if b.fs.statErr != nil {
		return nil, &fs.PathError{Op: "stat", Path: "/srv/www", Err: b.fs.statErr}
	}
	return b.File.Stat()
}

// Errors of the file system have a status, and their answers show no path. They aren't cached for the next request.
func TestErrors(t *testing.T) {
	cases := []struct {
		why    string
		broken brokenFS
		status int
	}{
		{"it isn't there", brokenFS{openErr: fs.ErrNotExist}, 404},
		{"it isn't a name", brokenFS{openErr: fs.ErrInvalid}, 404},
		{"it is too long", brokenFS{openErr: syscall.ENAMETOOLONG}, 404},
		{"a loop of links", brokenFS{openErr: syscall.ELOOP}, 404},
		{"it may not be read", brokenFS{openErr: fs.ErrPermission}, 403},
		{"by the system's rules", brokenFS{openErr: syscall.EACCES}, 403},
		{"too many files are open", brokenFS{openErr: syscall.EMFILE}, 500},
		{"the disk is broken", brokenFS{readErr: syscall.EIO}, 500},
		{"and tells nothing", brokenFS{statErr: syscall.EIO}, 500},
		{"an error with a status", brokenFS{openErr: filo.Error(503, "later")}, 503},
	}
	for _, tc := range cases {
		broken := tc.broken
		broken.MapFS = fstest.MapFS{"a.txt": {Data: []byte("a"), ModTime: longAgo}}
		files := static.New(&broken, static.Options{CacheControl: func(string) string { return "max-age=60" }})
		s := servertest.New(t, func(c *filo.Ctx) error {
			err := files.Serve(c)
			if e := (*filo.HTTPError)(nil); errors.As(err, &e) && e.Status < 500 && e.Err == nil {
				t.Errorf("%s: the error has no cause", tc.why)
			}
			return err
		})
		a := s.Do(t, "GET /a.txt")
		if a.Status != tc.status || strings.Contains(a.Body, "srv") || a.Header.Get("Cache-Control") != "" {
			t.Errorf("%s: %d %q, Cache-Control %q", tc.why, a.Status, a.Body, a.Header.Get("Cache-Control"))
		}
		broken.openErr, broken.readErr, broken.statErr = nil, nil, nil
		if a := s.Do(t, "GET /a.txt"); a.Status != 200 || a.Body != "a" {
			t.Errorf("%s: when it is over: %d %q", tc.why, a.Status, a.Body)
		}
	}
}

// A value that an option's function returns can't add a header field.
func TestHeaderInjection(t *testing.T) {
	mapped := fstest.MapFS{"a.txt": {Data: []byte("a")}, "dir\r\nX-Evil: 1/index.html": {Data: []byte("x")}}
	for _, value := range []string{"max-age=1\r\nX-Evil: 1", "a\nb", "a\x00b"} {
		s := servertest.New(t, static.New(mapped, static.Options{CacheControl: func(string) string { return value }}).Serve)
		if a := s.Do(t, "GET /a.txt"); a.Status != 500 || a.Header.Get("X-Evil") != "" {
			t.Errorf("Cache-Control %q: %d %v", value, a.Status, a.Header)
		}
	}
	s := servertest.New(t, static.New(mapped).Serve)
	a := s.Do(t, "GET /dir%0d%0aX-Evil:%201?a=%0d%0aX-Evil:1")
	if want := "./dir%0D%0AX-Evil:%201/?a=%0d%0aX-Evil:1"; a.Status != 301 || a.Header.Get("Location") != want || a.Header.Get("X-Evil") != "" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
}

// The parts of a multipart answer come from where they lie in the file, in any order, also if the file has a position of its own.
func TestPartsOfSeekers(t *testing.T) {
	content := noise(1000)
	s := servertest.New(t, static.New(fstest.MapFS{"a.bin": {Data: content}}, static.Options{CacheBytes: -1}).Serve)
	part := func(begin, end int) string {
		return fmt.Sprintf("bytes %d-%d/1000 application/octet-stream %s", begin, end-1, content[begin:end])
	}
	for _, test := range []struct {
		ranges string
		want   []string
	}{
		{"500-599,0-99", []string{part(500, 600), part(0, 100)}},
		{"0-1,0-1", []string{part(0, 2), part(0, 2)}},
		{"-300,0-199", []string{part(700, 1000), part(0, 200)}},
		{"900-,0-9", []string{part(900, 1000), part(0, 10)}},
	} {
		a := s.Do(t, "GET /a.bin", "Range: bytes="+test.ranges)
		if a.Status != 206 {
			t.Errorf("%s: status %d", test.ranges, a.Status)
			continue
		}
		if got := parts(t, a.Header.Get("Content-Type"), a.Body); !slices.Equal(got, test.want) {
			t.Errorf("%s: parts %.300q, want %.300q", test.ranges, got, test.want)
		}
	}
}

// shortFile reports a greater size than it has, like a file that is truncated while it is sent.
type shortFile struct{ fs.File }

type shortInfo struct{ fs.FileInfo }

func (f shortFile) Stat() (fs.FileInfo, error) {
	info, err := f.File.Stat()
	return shortInfo{info}, err
}
func (f shortFile) Seek(offset int64, whence int) (int64, error) {
	return f.File.(io.Seeker).Seek(offset, whence)
}
func (i shortInfo) Size() int64 { return i.FileInfo.Size() + 1000 }

type shortFS struct{ fstest.MapFS }

func (s shortFS) Open(name string) (fs.File, error) {
	file, err := s.MapFS.Open(name)
	if err != nil {
		return nil, err
	}
	return shortFile{file}, nil
}

func (s shortFS) Stat(name string) (fs.FileInfo, error) { return s.MapFS.Stat(name) }

// If a file is shorter than announced, the connection is aborted, so that the client can't mistake the received part for the
// whole file.
func TestShortFile(t *testing.T) {
	for _, size := range []int{0, 100, 300 << 10} {
		s := servertest.New(t, static.New(shortFS{fstest.MapFS{"a.bin": {Data: noise(size)}}}).Serve)
		for _, field := range []string{"X: y", "Range: bytes=50-", "Range: bytes=0-9,50-"} {
			answer := s.Raw(t, "GET /a.bin HTTP/1.1\r\nHost: a\r\n"+field+"\r\n\r\nGET /a.bin HTTP/1.1\r\nHost: a\r\n\r\n")
			head, body, _ := strings.Cut(answer, "\r\n\r\n")
			switch {
			case strings.HasPrefix(head, "HTTP/1.1 500 "): // nothing was sent
			case !strings.HasPrefix(head, "HTTP/1.1 20") || len(body) >= size+1000 || strings.Contains(body, "HTTP/1.1"):
				t.Errorf("%d bytes, %s: %.200q…, %d bytes of body", size, field, head, len(body))
			}
		}
	}
}
