package http2

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// A goroutine can wait in the reader of DuplexReader while the handler answers on its own goroutine. After the handler has returned, the
// reader fails.
func TestHTTP2DuplexReader(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		late := make(chan io.Reader, 1)
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			reader, ok := c.Request.DuplexReader()
			if !ok {
				return filo.Error(500, "no reader")
			}
			if _, again := c.Request.DuplexReader(); again {
				t.Error("the body is given twice")
			}
			if _, err := c.Body(); err == nil {
				t.Error("Body reads what DuplexReader has given")
			}
			lines := make(chan string)
			go func() {
				defer close(lines)
				for s := bufio.NewScanner(reader); s.Scan(); {
					lines <- s.Text()
				}
			}()
			w := c.Stream()
			w.WriteString("begin\n") // while the other goroutine waits in Read
			w.Flush()
			for line := range lines {
				w.WriteString(strings.ToUpper(line) + "\n")
				w.Flush()
			}
			late <- reader
			return nil
		}})
		body, send := io.Pipe()
		response, err := c.Fetch(context.Background(), "POST", "/", body)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answers := bufio.NewReader(response.Body)
		for _, step := range []struct{ send, want string }{{"", "begin\n"}, {"one\n", "ONE\n"}, {"two\n", "TWO\n"}} {
			io.WriteString(send, step.send)
			if got, err := answers.ReadString('\n'); got != step.want || err != nil {
				t.Fatalf("%q, %v, want %q", got, err, step.want)
			}
		}
		send.Close()
		if rest, err := io.ReadAll(answers); len(rest) > 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		if n, err := (<-late).Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("a Read behind the end: %d, %v", n, err)
		}
	})
}

// SetReadDeadline ends a Read of DuplexReader's reader.
func TestHTTP2DuplexReaderDeadline(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			reader, _ := c.Request.DuplexReader()
			failed := make(chan error)
			go func() {
				_, err := reader.Read(make([]byte, 1))
				failed <- err
			}()
			c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the read failed with %v", err)
			}
			return c.NoContent()
		}})
		body, send := io.Pipe()
		defer send.Close()
		if response, err := c.Fetch(context.Background(), "POST", "/", body); err != nil || response.StatusCode != 204 {
			t.Errorf("%v, %v", response, err)
		}
	})
}

// Over HTTP/1.1, DuplexReader returns no reader, and the handler can still read the body.
func TestDuplexReaderHTTP1(t *testing.T) {
	server := servertest.New(t, func(c *filo.Ctx) error {
		if _, ok := c.Request.DuplexReader(); ok {
			t.Error("there is one")
		}
		b, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(200, "text/plain", b)
	})
	if got := server.DoBody(t, "POST /", "body"); got.Status != 200 || got.Body != "body" {
		t.Errorf("%+v", got)
	}
}
