package exchange

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// sectionFile creates a file of random bytes, and opens it.
func sectionFile(t *testing.T, size int) (*os.File, []byte) {
	t.Helper()
	content := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(content)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, content
}

// sectionHosts runs a test over in-memory connections, and over TCP and Unix sockets with both drivers.
func sectionHosts(t *testing.T, handler filo.Handler, test func(t *testing.T, dial func() (net.Conn, error))) {
	t.Run("memory", func(t *testing.T) {
		s := servertest.NewServer(t, &filo.Server{Handler: handler, Logger: filotest.Quiet})
		test(t, func() (net.Conn, error) { return s.Listener.Dial() })
	})
	for name, driver := range map[string]filo.Driver{"blocking": filo.DriverBlocking, "auto": filo.DriverAuto} {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(network+" "+name, func(t *testing.T) {
				address := "127.0.0.1:0"
				if network == "unix" {
					address = filepath.Join(t.TempDir(), "socket")
				}
				listener, err := net.Listen(network, address)
				if err != nil {
					t.Fatal(err)
				}
				filotest.ServeOn(t, &filo.Server{Handler: handler, Logger: filotest.Quiet, Driver: driver}, listener)
				test(t, func() (net.Conn, error) { return net.Dial(network, listener.Addr().String()) })
			})
		}
	}
}

// sectionGet requests a path, and returns the body and the error that has ended it.
func sectionGet(dial func() (net.Conn, error), path string) ([]byte, error) {
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != 200 {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	return io.ReadAll(response.Body)
}

// closingSection is a user's type for a body that embeds a section.
type closingSection struct {
	*io.SectionReader
	closed *atomic.Int32
}

func (s closingSection) Close() error {
	s.closed.Add(1)
	return nil
}

// Sections of one open file can be sent to many clients at the same time. The file's position doesn't change.
func TestSectionsOfOneFile(t *testing.T) {
	const size = 5 << 20
	file, content := sectionFile(t, size)
	if _, err := file.Seek(7, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var closed atomic.Int32
	sectionHosts(t, func(c *filo.Ctx) error {
		begin, err := strconv.Atoi(c.Request.URI().Path()[1:])
		if err != nil {
			return err
		}
		section := io.NewSectionReader(file, int64(begin), size-int64(begin))
		if begin%2 == 0 {
			c.Response.SetBodyStream(closingSection{section, &closed}, section.Size())
			return nil
		}
		if _, err := section.Seek(10, io.SeekStart); err != nil {
			return err
		}
		c.Response.SetBodyStream(section, section.Size()-10) // the section is sent from its position on
		return nil
	}, func(t *testing.T, dial func() (net.Conn, error)) {
		closed.Store(0)
		var clients sync.WaitGroup
		for i := range 8 {
			clients.Go(func() {
				begin := i * 300_001
				body, err := sectionGet(dial, fmt.Sprint("/", begin))
				if begin%2 != 0 {
					begin += 10
				}
				if err != nil || !bytes.Equal(body, content[begin:]) {
					t.Errorf("from %d on: %d bytes, or others than the file's; %v", begin, len(body), err)
				}
			})
		}
		clients.Wait()
		filotest.Await(t, "the streams to be closed", func() bool { return closed.Load() == 4 })
		if at, err := file.Seek(0, io.SeekCurrent); at != 7 || err != nil {
			t.Errorf("the file is at %d, %v; it was at 7", at, err)
		}
	})
}

// After a StreamWriter has sent a section, the section's position follows the sent bytes. A section that extends beyond the end of the file
// ends there.
func TestStreamReadFromSection(t *testing.T) {
	file, content := sectionFile(t, 300_000)
	sectionHosts(t, func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Length", "200000")
		w := c.Stream()
		section := io.NewSectionReader(file, 100_000, 1<<40)
		if n, err := w.ReadFrom(io.LimitReader(section, 150_000)); n != 150_000 || err != nil {
			t.Errorf("a limited one: %d, %v", n, err)
		}
		if at, err := section.Seek(0, io.SeekCurrent); at != 150_000 || err != nil {
			t.Errorf("the section is at %d, %v", at, err)
		}
		if n, err := w.ReadFrom(section); n != 50_000 || err != nil {
			t.Errorf("the rest: %d, %v", n, err)
		}
		return nil
	}, func(t *testing.T, dial func() (net.Conn, error)) {
		if body, err := sectionGet(dial, "/"); err != nil || !bytes.Equal(body, content[100_000:]) {
			t.Errorf("%d bytes, %v", len(body), err)
		}
	})
}

// If a section or its file ends before the announced size, the server aborts the connection.
func TestSectionEndsEarly(t *testing.T) {
	file, _ := sectionFile(t, 300_000)
	for name, section := range map[string]*io.SectionReader{
		"the section": io.NewSectionReader(file, 0, 200_000),
		"the file":    io.NewSectionReader(file, 100_000, 1<<40),
	} {
		t.Run(name, func(t *testing.T) {
			sectionHosts(t, func(c *filo.Ctx) error {
				c.Response.SetBodyStream(io.NewSectionReader(section.Outer()), 250_000)
				return nil
			}, func(t *testing.T, dial func() (net.Conn, error)) {
				body, err := sectionGet(dial, "/")
				if err == nil || len(body) > 200_000 {
					t.Errorf("%d bytes, %v", len(body), err)
				}
			})
		})
	}
}

// The server copies a section whose source isn't a file, and a file that sendfile doesn't support.
func TestSectionsThatAreCopied(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 2000)
	sectionHosts(t, func(c *filo.Ctx) error {
		section := io.NewSectionReader(bytes.NewReader(content), 5, 15_000)
		c.Response.SetBodyStream(section, section.Size())
		return nil
	}, func(t *testing.T, dial func() (net.Conn, error)) {
		if body, err := sectionGet(dial, "/"); err != nil || !bytes.Equal(body, content[5:15_005]) {
			t.Errorf("%d bytes, %v", len(body), err)
		}
	})

	const unsendable, size = "/proc/self/smaps", 9000
	if found, err := os.ReadFile(unsendable); err != nil || len(found) < size {
		t.Skipf("%s has %d bytes, %v", unsendable, len(found), err)
	}
	sectionHosts(t, func(c *filo.Ctx) error {
		file, err := os.Open(unsendable)
		if err == nil {
			c.Response.SetBodyStream(file, size)
		}
		return err
	}, func(t *testing.T, dial func() (net.Conn, error)) {
		if body, err := sectionGet(dial, "/"); err != nil || len(body) != size || !bytes.Contains(body, []byte("Rss:")) {
			t.Errorf("%d bytes, %v", len(body), err)
		}
	})
}

// If a file is closed before its section is sent, sending fails. The server must not send another file that reuses the descriptor.
func TestSectionOfAClosedFile(t *testing.T) {
	file, _ := sectionFile(t, 100_000)
	file.Close()
	sectionHosts(t, func(c *filo.Ctx) error {
		c.Response.SetBodyStream(io.NewSectionReader(file, 0, 100_000), 100_000)
		return nil
	}, func(t *testing.T, dial func() (net.Conn, error)) {
		if body, err := sectionGet(dial, "/"); err == nil {
			t.Errorf("%d bytes came", len(body))
		}
	})
}

// shoutingFile and shoutingSection have a Read that changes the file's bytes.
type shoutingFile struct{ *os.File }

func (f shoutingFile) Read(p []byte) (int, error) { return shout(f.File, p) }

type shoutingSection struct{ *io.SectionReader }

func (s shoutingSection) Read(p []byte) (int, error) { return shout(s.SectionReader, p) }

func shout(r io.Reader, p []byte) (int, error) {
	n, err := r.Read(p)
	copy(p, bytes.ToUpper(p[:n]))
	return n, err
}

// If a type embeds a file and has its own Read, the server calls Read instead of sendfile, because Read may change the content, such as decrypt it.
func TestEmbeddedFilesAreRead(t *testing.T) {
	const size = 100_000
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
		t.Fatal(err)
	}
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			section := shoutingSection{io.NewSectionReader(file, 0, size)}
			switch c.Path() {
			case "/file":
				file, err := os.Open(path)
				c.Response.SetBodyStream(shoutingFile{file}, size)
				return err
			case "/stream/file":
				c.Response.Header.Set("Content-Length", strconv.Itoa(size))
				_, err := io.CopyN(c.Stream(), shoutingFile{file}, size) // io.Copy itself would call the file's WriteTo
				return err
			case "/stream/section":
				c.Response.Header.Set("Content-Length", strconv.Itoa(size))
				_, err := io.CopyN(c.Stream(), section, size)
				return err
			}
			other, err := os.Open(path)
			t.Cleanup(func() { other.Close() })
			c.Response.SetBodyStream(shoutingSection{io.NewSectionReader(other, 0, size)}, size)
			return err
		}}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		for _, path := range []string{"/file", "/section", "/stream/file", "/stream/section"} {
			c.Send(t, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
			if m := c.Receive(t, "GET"); m.Body != strings.Repeat("X", size) {
				t.Errorf("%s: %d bytes, %.20q", path, len(m.Body), m.Body)
			}
		}
	})
}

// A body reader that SetBodyReader has set is closed after the answer, which may be the same file.
func TestBodyReaderIsAnswer(t *testing.T) {
	const size = 100_000
	path := filepath.Join(t.TempDir(), "spool")
	s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		c.Request.SetBodyReader(f)
		f.WriteString(strings.Repeat("x", size))
		f.Seek(0, io.SeekStart)
		c.Response.SetBodyStream(io.NewSectionReader(f, 0, size), size)
		return nil
	}})
	client := s.Dial(t)
	for range 2 {
		client.Get("/")
		client.Want(200, strings.Repeat("x", size), false)
	}
}
