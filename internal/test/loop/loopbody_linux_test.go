package loop

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

const gatheredSize = 3 << 20

// gatheringServer serves a handler that reads bodies with Body.
func gatheringServer(t *testing.T, config *filo.Server, body []byte) *filotest.Server {
	filotest.NeedLoops(t)
	config.Handler = func(c *filo.Ctx) error {
		got, err := c.Body()
		if err == nil && c.Method() == "POST" && !bytes.Equal(got, body) {
			err = fmt.Errorf("got %d bytes, which aren't those that were sent, or not all", len(got))
		}
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(len(got)))
	}
	return filotest.Serve(t, config)
}

// While a handler waits for a large body, the server may wait for many bytes at a time. It must also deliver the last bytes, however few they
// are. The next request is served, whether it arrives together with the body's end or when the connection is idle.
func TestGatheredBodies(t *testing.T) {
	body := make([]byte, gatheredSize)
	rand.NewChaCha8([32]byte{}).Read(body)
	s := gatheringServer(t, &filo.Server{}, body)
	const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", gatheredSize)
	for _, cuts := range [][]int{{}, {1}, {gatheredSize - 1}, {200_000, 300_000}, {1, gatheredSize / 2, gatheredSize - 10}, {gatheredSize}} {
		t.Run(fmt.Sprint(cuts), func(t *testing.T) {
			t.Parallel()
			c := s.Dial(t)
			for range 2 {
				c.Send(head)
				rest, at := append(body[:gatheredSize:gatheredSize], get...), 0
				for _, cut := range cuts {
					c.Send(string(rest[at:cut]))
					at = cut
					time.Sleep(20 * time.Millisecond) // let the handler wait for more
				}
				c.Send(string(rest[at:]))
				c.Want(200, fmt.Sprint(gatheredSize), false)
				c.Want(200, "0", false)
				c.Send(get[:10])
				time.Sleep(20 * time.Millisecond) // let the connection become idle
				c.Send(get[10:])
				c.Want(200, "0", false)
			}
		})
	}
}

// A client that sends the body in small pieces, but fast enough, doesn't time out. A client that stops sending does.
func TestGatheredBodyIsSlow(t *testing.T) {
	body := bytes.Repeat([]byte("x"), gatheredSize)
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", gatheredSize)
	t.Run("quick enough", func(t *testing.T) {
		t.Parallel()
		c := gatheringServer(t, &filo.Server{ReadTimeout: 2 * time.Second, MinTransferRate: 1}, body).Dial(t)
		c.Send(head)
		c.Send(string(body[:500_000]))
		at := 500_000
		for range 50 { // takes more than twice ReadTimeout
			c.Send(string(body[at : at+100]))
			at += 100
			time.Sleep(100 * time.Millisecond)
		}
		c.Send(string(body[at:]))
		c.Want(200, fmt.Sprint(gatheredSize), false)
	})
	t.Run("too slow", func(t *testing.T) {
		t.Parallel()
		c := gatheringServer(t, &filo.Server{ReadTimeout: 100 * time.Millisecond, MinTransferRate: 1 << 30}, body).Dial(t)
		c.Send(head)
		c.Send(string(body[:500_000]))
		c.Want(408, "Request Timeout: the request body arrived too slowly\n", true)
	})
	t.Run("a byte now and then", func(t *testing.T) {
		t.Parallel()
		c := gatheringServer(t, &filo.Server{ReadTimeout: 100 * time.Millisecond, MinTransferRate: 1 << 30}, body).Dial(t)
		c.Send(head)
		c.Send(string(body[:500_000]))
		refused := make(chan struct{})
		go func() {
			for {
				select {
				case <-refused:
					return
				case <-time.After(10 * time.Millisecond):
					c.Write(body[:1])
				}
			}
		}()
		c.Want(408, "Request Timeout: the request body arrived too slowly\n", true)
		close(refused)
	})
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		s := gatheringServer(t, &filo.Server{}, body)
		c := s.Dial(t)
		c.Send(head)
		c.Send(string(body[:500_000]))
		filotest.Await(t, "the handler", func() bool { return s.Stats().WorkersRunning == 1 })
		c.Reset()
		filotest.Await(t, "the handler's end", func() bool { return s.Stats().WorkersRunning == 0 && s.Stats().ConnsOpen == 0 })
	})
}

// A small body that comes too late for its own handler, but before that handler returns, doesn't make the next request time out.
func TestLateBody(t *testing.T) {
	filotest.NeedLoops(t)
	running, released := make(chan struct{}), make(chan struct{})
	s := filotest.Serve(t, &filo.Server{ReadTimeout: time.Second, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/late" {
			close(running)
			<-released
			return filo.Error(401, "no")
		}
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(200, "text/plain", body)
	}})
	const head = "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
	c := s.Dial(t)
	c.Send(fmt.Sprintf(head, "/late") + "he")
	filotest.Recv(t, running, "the handler")
	c.Send("llo")
	close(released)
	response, _ := c.Answer()
	if response.StatusCode != 401 || response.Close {
		t.Fatalf("the late body got %d, and the connection closes: %v", response.StatusCode, response.Close)
	}
	c.Send(fmt.Sprintf(head, "/"))
	time.Sleep(20 * time.Millisecond) // so that the server has read the head
	c.Send("world")
	c.Want(200, "world", false)
}
