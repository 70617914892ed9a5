package http2

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"golang.org/x/net/http2"
)

// bodyServer has handlers that wait for the test before they use their request's body: "/hold" then reads it, "/drop" returns without reading
// it, and "/panic" panics. "/echo" reads the body at once.
type bodyServer struct {
	*filotest.Server
	begun, release chan struct{}
}

func serveBodies(t *testing.T, config *filo.Server) *bodyServer {
	s := &bodyServer{begun: make(chan struct{}, 10), release: make(chan struct{})}
	hold := func(c *filo.Ctx) {
		s.begun <- struct{}{}
		<-s.release
	}
	config.Handler = route(map[string]filo.Handler{
		"/echo": echoReader,
		"/hold": func(c *filo.Ctx) error {
			hold(c)
			return echoReader(c)
		},
		"/drop": func(c *filo.Ctx) error {
			hold(c)
			return c.NoContent()
		},
		"/panic": func(c *filo.Ctx) error {
			hold(c)
			panic("of the test")
		},
	})
	s.Server = serveRaw(t, config)
	return s
}

// begin sends a request without its body, and waits until the handler runs.
func (s *bodyServer) begin(c *http2Raw, path string) uint32 {
	c.t.Helper()
	id := c.ask(path, true)
	filotest.Recv(c.t, s.begun, "the handler")
	return id
}

// awaitBuffered waits until more than n bytes are buffered, or until none are if n is 0.
func (s *bodyServer) awaitBuffered(t *testing.T, n int64) {
	t.Helper()
	filotest.Await(t, "bodies to be buffered", func() bool { return n == 0 && s.Stats().BodiesBuffered == 0 || n > 0 && s.Stats().BodiesBuffered > n })
}

// fill makes a request whose body takes half of the budget of 2,000 bytes. From then on, no client may use more than 1/32 of the budget.
func (s *bodyServer) fill(t *testing.T, c *http2Raw) uint32 {
	t.Helper()
	id := s.begin(c, "/hold")
	c.WriteData(id, false, make([]byte, 800))
	s.awaitBuffered(t, 799)
	c.WriteData(id, false, make([]byte, 100)) // still less than half, but more than half with the unused capacity of the growing buffer
	s.awaitBuffered(t, 1_000)
	return id
}

func (c *http2Raw) refused(id uint32, code http2.ErrCode) {
	c.t.Helper()
	c.await("RST_STREAM", func(f http2.Frame) bool {
		reset, ok := f.(*http2.RSTStreamFrame)
		if ok && reset.StreamID == id && reset.ErrCode != code {
			c.t.Errorf("RST_STREAM(%v), want %v", reset.ErrCode, code)
		}
		return ok && reset.StreamID == id
	})
}

// answer waits for the head of a stream's answer, and returns the status.
func (c *http2Raw) answer(id uint32) (status string) {
	c.t.Helper()
	c.await("an answer", func(f http2.Frame) bool {
		h, ok := f.(*http2.HeadersFrame)
		if !ok || h.StreamID != id {
			return false
		}
		status = "200"
		if b := h.HeaderBlockFragment(); b[0] != 0x88 { // :status 200 has an index; the others are literals with three digits
			status = string(b[2:5])
		}
		return true
	})
	return status
}

// Beyond the limit, the server refuses new requests. A handler that hasn't read the buffered part of its body gets a 503 as the error, but a
// handler that is waiting for its body doesn't. The memory of bytes is released when they have been read.
func TestHTTP2BodiesLimit(t *testing.T) {
	config := &filo.Server{MaxBufferedBodies: 2_000}
	s := serveBodies(t, config)
	c := newHTTP2Raw(t, s.Server)
	waits := c.ask("/echo", true)
	filotest.Await(t, "a handler to wait for its body", func() bool { return strings.Contains(s.Goroutines(), "awaitLocked") })
	behind := s.begin(c, "/hold")
	full := s.fill(t, c)

	c.refused(c.ask("/echo", true), http2.ErrCodeRefusedStream)
	c.WriteData(waits, true, []byte(strings.Repeat("x", 5_000)))
	if status := c.answer(waits); status != "200" {
		t.Errorf("a handler that waited for its body: %s", status)
	}
	c.WriteData(behind, false, make([]byte, 1_000))
	c.WriteData(behind, true, make([]byte, 1_000))
	c.WriteData(full, true, nil)
	filotest.Await(t, "both refusals", func() bool { return s.Stats().RequestsRefused >= 2 })
	close(s.release)
	got := map[uint32]string{}
	c.await("the answers", func(f http2.Frame) bool {
		if h, ok := f.(*http2.HeadersFrame); ok {
			got[h.StreamID] = "200"
			if b := h.HeaderBlockFragment(); b[0] != 0x88 {
				got[h.StreamID] = string(b[2:5])
			}
		}
		return len(got) == 2
	})
	if refusals := s.Stats().Refusals; refusals.BufferedBodies < 2 || refusals.BufferedBodies != s.Stats().RequestsRefused {
		t.Errorf("%+v", refusals)
	}
	if got[behind] != "503" || got[full] != "200" {
		t.Errorf("the handler that was behind answered %s, and the one that had its body %s", got[behind], got[full])
	}
	s.awaitBuffered(t, 0)
	again := c.ask("/echo", true)
	c.WriteData(again, true, []byte("x"))
	if status := c.answer(again); status != "200" {
		t.Errorf("a request afterwards: %s", status)
	}
}

// If the server is still waiting for a request's body before it calls the handler, it refuses the request in a way that allows the client to
// retry. It doesn't call the handler.
func TestHTTP2BodiesAwaited(t *testing.T) {
	config := &filo.Server{MaxBufferedBodies: 2_000}
	s := serveBodies(t, config)
	c := newHTTP2Raw(t, s.Server)
	awaited := c.askWith("/echo", true, "content-length", "2000")
	s.fill(t, c)
	c.WriteData(awaited, false, make([]byte, 1_000))
	c.refused(awaited, http2.ErrCodeRefusedStream)
	close(s.release)
}

// A client's share of the budget applies to its connection, or to its address if MaxConnsPerIP is set.
func TestHTTP2BodiesOfOneClient(t *testing.T) {
	for name, perAddress := range map[string]int{"connection": 0, "address": 10} {
		t.Run(name, func(t *testing.T) {
			config := &filo.Server{MaxConnsPerIP: perAddress, MaxBufferedBodies: 2_000}
			s := serveBodies(t, config)
			s.fill(t, newHTTP2Raw(t, s.Server))
			other := newHTTP2Raw(t, s.Server)
			id := other.ask("/echo", true)
			if perAddress > 0 {
				other.refused(id, http2.ErrCodeRefusedStream)
			} else if other.WriteData(id, true, []byte("x")); other.answer(id) != "200" {
				t.Error("another client suffers")
			}
			close(s.release)
		})
	}
}

// However a request ends, the memory of its body is released.
func TestHTTP2BodiesComeBack(t *testing.T) {
	for name, test := range map[string]struct {
		path string
		end  func(*bodyServer, *http2Raw, uint32)
	}{
		"unread":             {"/drop", func(s *bodyServer, c *http2Raw, id uint32) { close(s.release) }},
		"panic":              {"/panic", func(s *bodyServer, c *http2Raw, id uint32) { close(s.release) }},
		"read":               {"/hold", func(s *bodyServer, c *http2Raw, id uint32) { c.WriteData(id, true, nil); close(s.release) }},
		"reset, then read":   {"/hold", func(s *bodyServer, c *http2Raw, id uint32) { c.WriteRSTStream(id, 8); c.ping(); close(s.release) }},
		"reset, then unread": {"/drop", func(s *bodyServer, c *http2Raw, id uint32) { c.WriteRSTStream(id, 8); c.ping(); close(s.release) }},
		"connection":         {"/drop", func(s *bodyServer, c *http2Raw, id uint32) { c.Close(); close(s.release) }},
		"awaited and reset": {"", func(s *bodyServer, c *http2Raw, id uint32) {
			c.WriteRSTStream(id, 8)
			c.ping()
			close(s.release)
		}},
		"awaited, connection": {"", func(s *bodyServer, c *http2Raw, id uint32) { c.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveBodies(t, &filo.Server{})
			c := newHTTP2Raw(t, s.Server)
			var id uint32
			if test.path == "" {
				id = c.askWith("/echo", true, "content-length", "10000")
			} else {
				id = s.begin(c, test.path)
			}
			c.WriteData(id, false, make([]byte, 5_000))
			s.awaitBuffered(t, 4_999)
			test.end(s, c, id)
			s.awaitBuffered(t, 0)
		})
	}
}

// ping sends a PING and waits for the answer. By then, the server has read everything that was sent before.
func (c *http2Raw) ping() {
	c.t.Helper()
	c.WritePing(false, [8]byte{1})
	c.await("the answer to PING", func(f http2.Frame) bool { return f.Header().Type == http2.FramePing })
}

// A handler that waits for its body is woken even while another handler runs in the worker that reads the connection.
func TestHTTP2BodyBesideHandler(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		waits, read := make(chan struct{}), make(chan string, 1)
		s, dial := serve(&filo.Server{Handler: route(map[string]filo.Handler{
			"/body": func(c *filo.Ctx) error {
				piece := make([]byte, 100)
				n, err := c.BodyReader().Read(piece)
				read <- string(piece[:n])
				if err != nil {
					return err
				}
				<-waits
				return c.NoContent()
			},
			"/beside": func(c *filo.Ctx) error {
				defer close(waits)
				return c.Text(200, <-read)
			},
		})})
		c := dial().Request(1, "/body", false, ":method", "POST").Send()
		filotest.Await(t, "a handler to wait for its body", func() bool { return strings.Contains(s.Goroutines(), "awaitBodyLocked") })
		c.Data(1, false, []byte("piece")).Request(3, "/beside", true).Send()
		c.WantAnswer(3, "200 piece")
		c.Data(1, true, nil).Send()
		c.WantAnswer(1, "204 ")
	})
}

// A body that its handler reads with Body arrives slowly, but faster than the minimum rate. The arriving bytes count toward the rate although
// they don't wake the handler.
func TestHTTP2GatheredSlowly(t *testing.T) {
	t.Parallel()
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		const size = 20_000
		config := &filo.Server{ReadTimeout: filotest.Bound, MinTransferRate: 1, Handler: func(c *filo.Ctx) error {
			body, err := c.Body()
			if err != nil {
				return err
			}
			return c.Text(200, fmt.Sprint(len(body), bytes.Count(body, []byte("x"))))
		}}
		s, dial := serve(config)
		c := dial().Request(1, "/", false, ":method", "POST", "content-length", fmt.Sprint(size)).Send()
		filotest.Await(t, "the handler to wait", func() bool { return strings.Contains(s.Goroutines(), "awaitBodyLocked") })
		c.Data(1, false, bytes.Repeat([]byte("x"), size/10)).Send()
		time.Sleep(3 * time.Second) // so that some checks, one each second, find no new bytes
		c.Data(1, false, bytes.Repeat([]byte("x"), size/2)).Data(1, true, bytes.Repeat([]byte("x"), size*4/10)).Send()
		c.WantAnswer(1, fmt.Sprintf("200 %d %[1]d", size))
	})
}

// If a client only announces a body, the server doesn't allocate a buffer for it. A connection may have many such requests, and no budget
// counts small buffers.
func TestHTTP2AnnouncedBodiesTakeNoBuffer(t *testing.T) {
	const requests = 100
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		var running atomic.Int32
		proceed := make(chan struct{}, requests)
		_, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			running.Add(1)
			defer running.Add(-1)
			if c.Path() == "/body" {
				body, err := c.Body()
				if err != nil {
					return err
				}
				return c.Text(200, strconv.Itoa(len(body)))
			}
			<-proceed
			return c.Text(200, "ok")
		}})
		c, next := dial(), uint32(1)
		// ask makes requests. grown returns by how much memory has grown while their handlers wait.
		ask := func(path string, end bool, fields ...string) (first uint32, grown func() int64) {
			before := filotest.HeapInUse()
			first = next
			for range requests {
				c.Request(next, path, end, fields...)
				next += 2
			}
			c.Send()
			filotest.Await(t, "the handlers", func() bool { return running.Load() == requests })
			return first, func() int64 { return int64(filotest.HeapInUse()) - int64(before) }
		}
		first, _ := ask("/other", true) // start the workers, so that they aren't measured
		for range requests {
			proceed <- struct{}{}
		}
		for i := range uint32(requests) {
			c.WantAnswer(first+2*i, "200 ok")
		}
		first, grown := ask("/body", false, ":method", "POST", "content-length", "20000")
		if !filotest.Try(func() bool { return grown() <= requests*3<<10 }) {
			t.Errorf("%d handlers that wait for the first byte of a body hold %d KB", requests, grown()>>10)
		}
		for i := range uint32(10) {
			c.Data(first+2*i, false, make([]byte, 10_000)).Data(first+2*i, true, make([]byte, 10_000)).Send()
			c.WantAnswer(first+2*i, "200 20000")
		}
	})
}

// The server counts the refusal of streams beyond MaxConcurrentStreams, and of connections with too many glitches.
func TestHTTP2RefusalCounts(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	config := &filo.Server{Handler: filo.Offload(func(c *filo.Ctx) error {
		begun <- struct{}{}
		<-release
		return c.NoContent()
	})}
	config.HTTP2.Unencrypted, config.HTTP2.MaxConcurrentStreams, config.HTTP2.MaxGlitches = true, 1, 5
	s := filotest.Serve(t, config)
	defer close(release)
	c := newHTTP2Raw(t, s)
	c.ask("/", false)
	filotest.Recv(t, begun, "the handler")
	c.refused(c.ask("/", false), http2.ErrCodeRefusedStream)
	if got := s.Stats().Refusals; got != (filo.Refusals{HTTP2Streams: 1}) {
		t.Errorf("after a request too many: %+v", got)
	}
	for range 100 {
		c.WriteWindowUpdate(1, 0) // an error of stream 1, which the first WINDOW_UPDATE has already ended
		c.ask("/", false)
	}
	filotest.Await(t, "the connection to be ended", func() bool { return s.Stats().Refusals.HTTP2Calm == 1 })
}
