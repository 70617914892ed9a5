package overload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// A client that doesn't read its answer keeps no room for its request's body, so others' bodies have room. The answer is complete when the client reads
// it after all, also if a part of the body is the answer.
func TestSlowReaderHoldsNoBody(t *testing.T) {
	const size = 32 << 20 // more than the buffers between the server and its client
	large := bytes.Repeat([]byte("filo"), size/4)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, large, 0o600); err != nil {
		t.Fatal(err)
	}
	const form = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n%s\r\n--b--\r\n"
	for name, test := range map[string]struct {
		keeps  bool // the answer is a part of the body
		answer func(c *filo.Ctx) error
	}{
		"copied": {false, func(c *filo.Ctx) error { return c.Bytes(200, "a/b", large) }},
		"shared": {false, func(c *filo.Ctx) error { return c.BytesNoCopy(200, "a/b", large) }},
		"string": {false, func(c *filo.Ctx) error { return c.Text(200, string(large)) }},
		"file":   {false, func(c *filo.Ctx) error { return c.File(file) }},
		"form": {false, func(c *filo.Ctx) error {
			_, err := c.Request.MultipartForm()
			return errors.Join(err, c.Bytes(200, "a/b", large))
		}},
		"decoded": {false, func(c *filo.Ctx) error {
			c.Request.SetBodyReader(c.BodyReader())
			_, err := c.Body()
			return errors.Join(err, c.Bytes(200, "a/b", large))
		}},
		"echoed": {true, func(c *filo.Ctx) error {
			body, err := c.Body()
			return errors.Join(err, c.BytesNoCopy(200, "a/b", body[:size]))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			returned := make(chan error, 1)
			s := filotest.Serve(t, &filo.Server{MaxBodyBytes: 2 * size, MaxBufferedBodies: 2*size - 1, Handler: func(c *filo.Ctx) (err error) {
				if c.Path() == "/other" {
					_, err = c.Body()
					return errors.Join(err, c.Text(200, "read"))
				}
				defer func() { returned <- err }()
				if name != "form" && name != "decoded" {
					if _, err := c.Body(); err != nil {
						return err
					}
				}
				return test.answer(c)
			}})
			slow, other := s.Dial(t), s.Dial(t)
			body := fmt.Sprintf(form, large)
			if test.keeps {
				body = string(large)
			}
			post := "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s"
			slow.Send(fmt.Sprintf(post, "/", len(body), body))
			if err := filotest.Recv(t, returned, "the handler to return"); err != nil {
				t.Fatal(err)
			}
			if !test.keeps {
				filotest.Await(t, "the body's room to be free", func() bool { return s.Stats().BodiesBuffered == 0 })
			}
			status := 200
			if test.keeps {
				status = 503
			}
			other.Send(fmt.Sprintf(post, "/other", size, large))
			if response, _ := other.Answer(); response.StatusCode != status {
				t.Errorf("another body got %d", response.StatusCode)
			}
			response, err := http.ReadResponse(slow.Reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(response.Body); response.StatusCode != 200 || !bytes.Equal(got, large) {
				t.Errorf("got %d with %d bytes, %v", response.StatusCode, len(got), err)
			}
			filotest.Await(t, "the room to be free", func() bool { return s.Stats().BodiesBuffered == 0 })
		})
	}
}
