package http2

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/filotest"
)

// A client that sends many requests, and reads the answers later, gets all of them. Until it reads, the server makes only as many answers as
// may wait.
func TestHTTP2AnswersNotTaken(t *testing.T) {
	const requests, size = 3000, 15 << 10
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		var handled atomic.Int64
		text := strings.Repeat("x", size)
		c := dial(&filo.Server{HTTP2: filo.HTTP2Options{MaxConcurrentStreams: requests}, Handler: func(c *filo.Ctx) error {
			handled.Add(1)
			return c.Text(200, text)
		}}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		c.done(c.WriteWindowUpdate(0, 1<<30))
		written := make(chan struct{})
		go func() {
			defer close(written)
			for i := range uint32(requests) {
				c.request(2*i+1, "GET", "/", true)
			}
		}()
		time.Sleep(200 * time.Millisecond) // the longer this is, the more answers a server without a limit would make
		if n := handled.Load(); n == requests {
			t.Errorf("all %d answers were made while the client took none", n)
		}
		ended, content := 0, 0
		for ended < requests {
			frame, err := c.ReadFrame()
			if err != nil {
				t.Fatalf("after %d answers: %v", ended, err)
			}
			switch f := frame.(type) {
			case *http2.DataFrame:
				content += len(f.Data())
				if f.StreamEnded() {
					ended++
				}
			case *http2.RSTStreamFrame, *http2.GoAwayFrame:
				t.Fatalf("after %d answers: %v", ended, f)
			}
		}
		if content != requests*size {
			t.Errorf("%d bytes of content, want %d", content, requests*size)
		}
		<-written
	})
}

// A request that is refused before its body has arrived occupies its stream no longer than any other. The bytes of its body that arrive later
// aren't an error.
func TestHTTP2RefusedBeforeItsBody(t *testing.T) {
	t.Parallel()
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		c := dial(&filo.Server{HTTP2: filo.HTTP2Options{MaxConcurrentStreams: 1}, Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }})
		c.request(1, "HEAD", "/", false, "expect", "something")
		c.want("HEADERS 1 417 END", "RST_STREAM 1 NO_ERROR")
		c.request(3, "POST", "/", false, "expect", "something")
		c.done(c.WriteData(3, false, []byte("a part")))
		c.done(c.WriteData(3, true, []byte("the rest")))
		c.ping(1)
		c.want("HEADERS 3 417")
		for answered, ponged := false, false; !answered || !ponged; {
			switch got := c.next(); {
			case got == "PING 1":
				ponged = true
			case strings.HasPrefix(got, "DATA 3 ") && strings.HasSuffix(got, " END"):
				answered = true
			case got != "RST_STREAM 3 NO_ERROR": // sent if the rest of the body is late, on a slow machine
				t.Fatalf("got %s", got)
			}
		}
		c.request(5, "GET", "/", true)
		c.want("HEADERS 5 200", `DATA 5 "ok" END`)
		c.request(7, "HEAD", "/", false, "expect", "something")
		c.done(c.WriteData(7, true, []byte("a body")))
		c.want("HEADERS 7 417 END")
		c.ping(2)
		c.await("PING 2")
		c.request(9, "GET", "/", true)
		c.want("HEADERS 9 200", `DATA 9 "ok" END`)
	})
}

// Concurrency also limits the handlers that were quick, and are taken from their connection because they hang.
func TestHangingQuickHandlersNeedPlaces(t *testing.T) {
	const places, requests, leaders = 2, 40, 2
	for _, test := range []struct {
		driver filo.Driver
		routed bool
	}{{filo.DriverBlocking, false}, {filo.DriverBlocking, true}, {filo.DriverAuto, false}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			var hangs atomic.Bool
			var running atomic.Int32
			release := make(chan struct{})
			ok := func(c *filo.Ctx) error { return c.Text(200, "ok") }
			inner := ok
			if test.routed { // the handler hangs before the route's class is entered
				inner = filo.Inline(ok)
			}
			s, dial := filotest.ServeRawHTTP2(t, &filo.Server{Driver: test.driver, Leaders: leaders, Concurrency: places, Handler: func(c *filo.Ctx) error {
				if hangs.Load() {
					running.Add(1)
					<-release
				}
				return inner(c)
			}}, false)
			c := dial()
			id := uint32(1)
			for range 100 {
				c.Request(id, "/", true).Send()
				c.WantAnswer(id, "200 ok")
				id += 2
			}
			hangs.Store(true)
			first := id
			for range requests {
				c.Request(id, "/", true)
				id += 2
			}
			c.Send()
			filotest.Await(t, "each request to run or to be refused", func() bool {
				return s.Stats().RequestsRefused+uint64(running.Load()) == requests
			})
			most := int32(places + 1 + leaders) // each leader may lose its loop once more
			if test.routed {
				most += admit.MaxQuick
			}
			if n := running.Load(); n < places || n > most {
				t.Errorf("%d handlers run", n)
			}
			close(release)
			for ; first < id; first += 2 {
				c.Answer(first)
			}
		})
	}
}
