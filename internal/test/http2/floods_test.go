package http2

import (
	"net"
	"runtime/metrics"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// A SETTINGS frame counts as more glitches while thousands of streams are open, since it may change the window of each stream.
func TestHTTP2SettingsOfManyStreams(t *testing.T) {
	const streams, floods = 1280, 200 // without open streams, only 500 SETTINGS would be too many
	s, dial := filotest.ServeRawHTTP2(t, &filo.Server{
		Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }, HTTP2: filo.HTTP2Options{MaxConcurrentStreams: streams},
	}, false)
	c := dial(shut)
	for i := range uint32(streams) {
		c.Request(1+2*i, "/", true)
	}
	readBegun(c.Send(), streams)
	if calm := s.Stats().Refusals.HTTP2Calm; calm > 0 {
		t.Fatal("the connection has ended before")
	}
	for i := range floods {
		c.Add(func(f *http2.Framer) {
			f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: uint32(16<<10 + i)})
		})
	}
	c.Send()
	filotest.Await(t, "the connection to be ended", func() bool { return s.Stats().Refusals.HTTP2Calm == 1 })
}

// The server returns the bytes of a body to the connection's window exactly once, whether the handler reads them before or after the client
// has reset the stream.
func TestHTTP2CreditedOnce(t *testing.T) {
	const streams, size = 8, 8 << 10
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		begun, reset, read := make(chan struct{}, streams), make(chan struct{}), make(chan int, streams)
		_, dial := serve(&filo.Server{
			// The windows don't grow, so the increments add up to the number of bytes that have arrived.
			HTTP2: filo.HTTP2Options{MaxStreamWindow: 1, MaxConnWindow: 1},
			Handler: func(c *filo.Ctx) error {
				if c.Path() == "/last" {
					return c.Text(200, "ok")
				}
				begun <- struct{}{}
				<-reset
				n, buffer := 0, make([]byte, 1000)
				for {
					k, err := c.Request.BodyReader().Read(buffer)
					if n += k; err != nil {
						read <- n
						return err
					}
				}
			},
		})
		c, piece := dial(), []byte(strings.Repeat("x", size))
		for i := range uint32(streams) {
			c.Request(1+2*i, "/", false, ":method", "POST", "content-length", "100000").Data(1+2*i, false, piece).Send()
			filotest.Recv(t, begun, "the handler")
		}
		for i := range uint32(streams) {
			c.Add(func(f *http2.Framer) { f.WriteRSTStream(1+2*i, http2.ErrCodeCancel) })
		}
		c.Request(1+2*streams, "/last", true).Send().WantAnswer(1+2*streams, "200 ok")
		close(reset)
		for range streams {
			if n := filotest.Recv(t, read, "the body to be read"); n > size {
				t.Errorf("%d bytes were read of %d", n, size)
			}
		}
		c.Request(3+2*streams, "/last", true).Send().WantAnswer(3+2*streams, "200 ok")
		if c.Grown > streams*size || c.Grown < streams*size-65535/8 {
			t.Errorf("%d bytes were credited, and %d have come", c.Grown, streams*size)
		}
	})
}

// While handlers answer on other goroutines, the client changes the size of HPACK's table. It must be able to decode each block.
func TestHTTP2TableSizeWhileAnswering(t *testing.T) {
	const requests = 150
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		_, dial := serve(&filo.Server{Handler: route(map[string]filo.Handler{
			"/apart":  filo.Offload(func(c *filo.Ctx) error { return c.JSON(200, 1) }),
			"/inline": filo.Inline(func(c *filo.Ctx) error { return c.JSON(200, 1) }),
		})})
		c := dial()
		for i := range uint32(requests) {
			c.Books.Lock()
			c.Lowered = append(c.Lowered, filotest.RawLowered{}) // the client expects another acknowledgement
			c.Books.Unlock()
			c.Add(func(f *http2.Framer) {
				f.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: [...]uint32{0, 4096, 100}[i%3]})
			})
			c.Request(1+4*i, "/apart", true).Request(3+4*i, "/inline", true).Send()
			if i >= 30 {
				c.WantAnswer(1+4*(i-30), "200 1\n")
				c.WantAnswer(3+4*(i-30), "200 1\n")
			}
		}
		for i := uint32(requests - 30); i < requests; i++ {
			c.WantAnswer(1+4*i, "200 1\n")
			c.WantAnswer(3+4*i, "200 1\n")
		}
	})
}

// If ConnState is set, a request whose handler runs in the leader still starts no goroutine. The connection becomes idle after each request.
func TestHTTP2IdleWithoutGoroutine(t *testing.T) {
	filotest.NeedLoops(t) // with the blocking driver, a goroutine sends each answer
	const requests = 200
	idle := make(chan struct{}, 2*requests)
	_, dial := filotest.ServeRawHTTP2(t, &filo.Server{
		Handler: filo.Inline(func(c *filo.Ctx) error { return c.Text(200, "ok") }),
		ConnState: func(_ net.Conn, state filo.ConnState) {
			if state == filo.StateIdle {
				idle <- struct{}{}
			}
		},
	}, false)
	c := dial()
	created := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(created)
	if created[0].Value.Kind() != metrics.KindUint64 {
		t.Skip("this version of Go doesn't count goroutines")
	}
	before := created[0].Value.Uint64()
	for i := range uint32(requests) {
		c.Request(1+2*i, "/", true).Send().WantAnswer(1+2*i, "200 ok")
		filotest.Recv(t, idle, "the connection to be idle")
	}
	metrics.Read(created)
	if n := created[0].Value.Uint64() - before; n > requests/2 {
		t.Errorf("%d goroutines were started for %d requests", n, requests)
	}
}
