package filo_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/filohttp/filo"
)

// A handler may use its buffer again when Write has returned, however little of it the client's windows have let through.
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
	eachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*lifeServer, *http2Client)) {
		_, client := serve(&filo.Server{Handler: handler})
		// Windows that are smaller than some of the pieces, and larger than others.
		client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 200 << 10, MaxReceiveBufferPerConnection: 500 << 10}
		var all sync.WaitGroup
		for _, size := range []int{5 << 10, 9 << 10, 40 << 10, 250 << 10, 300 << 10, 1 << 20} {
			all.Go(func() {
				response, err := client.Get(fmt.Sprintf("%s/%d", client.url, size))
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

// same returns how many bytes are the same from the beginning on.
func same(a, b []byte) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
