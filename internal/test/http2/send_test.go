package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// A handler may reuse its buffer when Write has returned, however little of it the client's windows have allowed the server to send.
func TestHTTP2WritesFromOneBuffer(t *testing.T) {
	content := randomBytes(3 << 20)
	handler := func(c *filo.Ctx) error {
		var size int
		fmt.Sscan(c.Path()[1:], &size)
		w, buffer := c.Stream(), make([]byte, size)
		for r := bytes.NewReader(content); r.Len() > 0; {
			n, _ := r.Read(buffer)
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			clear(buffer)
		}
		return nil
	}
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, client := serve(&filo.Server{Handler: handler})
		// The windows are smaller than some of the pieces, and larger than others.
		client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 200 << 10, MaxReceiveBufferPerConnection: 500 << 10}
		var all sync.WaitGroup
		for _, size := range []int{5 << 10, 9 << 10, 40 << 10, 250 << 10, 300 << 10, 1 << 20} {
			all.Go(func() {
				response, err := client.Get(fmt.Sprintf("%s/%d", client.URL, size))
				if err != nil {
					t.Error(err)
					return
				}
				defer response.Body.Close()
				if got, err := io.ReadAll(response.Body); err != nil || !bytes.Equal(got, content) {
					t.Errorf("by %d bytes: %d bytes came, the same as %d of the content's, %v", size, len(got), same(got, content), err)
				}
			})
		}
		all.Wait()
	})
}

// same returns the length of the common beginning of a and b.
func same(a, b []byte) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// If the server has ended a stream because the client has read too slowly, the error of Write says so, whether the window or the socket was full.
func TestHTTP2WriteErrorOfSlowClient(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		for _, window := range []uint32{100_000, 1 << 30} {
			failed := make(chan error, 1)
			_, dial := serve(&filo.Server{WriteTimeout: 50 * time.Millisecond, Handler: func(c *filo.Ctx) error {
				w, piece := c.Stream(), make([]byte, 1<<20)
				for {
					if _, err := w.Write(piece); err != nil {
						failed <- err
						return err
					}
				}
			}})
			dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}).Open(0, window).Request(1, "/", true).Send()
			if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("with a window of %d: %v", window, err)
			}
		}
	})
}
