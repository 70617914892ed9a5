package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/servertest"
	"golang.org/x/net/http2"
)

// These are environment variables. The first makes a run repeat the plan of a failed run, and the second makes runs longer.
const (
	http2ModelSeed  = "FILO_TEST_SEED"
	http2ModelSteps = "FILO_TEST_STEPS" // the steps of each connection
)

const (
	http2ModelClients = 8
	http2ModelConns   = 4 // of each client, one after the other
	http2ModelMost    = 1 << 15
)

var http2ModelContent = randomBytes(300_000)

// http2Model is a server with clients that act at random.
type http2Model struct {
	t       *testing.T
	s       *filotest.Server
	dial    func() (net.Conn, error)
	seed    uint64
	steps   int
	small   bool // Concurrency is small, so a request may be refused
	classes map[string]*class.Class
	next    atomic.Uint32
	calls   [http2ModelMost]atomic.Int32
	ending  atomic.Bool // Shutdown or Close was called
	cuts    bool        // the test ends the server with Close
}

// http2ModelRequest is a request, with the expected answer.
type http2ModelRequest struct {
	id     uint32
	path   string
	work   string
	want   string
	upload []byte // not sent yet
	sent   int64
	whole  bool // END_STREAM was sent
	reset  bool // by the client
	stream *filotest.RawStream
}

// http2ModelWorks lists the behaviours of handlers. Usual ones occur more often.
var http2ModelWorks = []string{
	"quick", "quick", "quick", "sleep", "spin", "large", "stream", "body", "body", "reader", "duplex", "unread", "hints", "trailer", "empty",
	"panic", "Goexit", "abort", "cut", "timeout", "context", "park",
}

func newHTTP2Model(t *testing.T, memory bool, concurrency int) *http2Model {
	m := &http2Model{t: t, seed: uint64(time.Now().UnixNano()), steps: 60, small: concurrency < 100, classes: make(map[string]*class.Class)}
	if text := os.Getenv(http2ModelSeed); text != "" {
		m.seed, _ = strconv.ParseUint(text, 10, 64)
	}
	if text := os.Getenv(http2ModelSteps); text != "" {
		m.steps, _ = strconv.Atoi(text)
	}
	for _, work := range http2ModelWorks {
		m.classes[work] = &class.Class{Name: work}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d", http2ModelSeed, m.seed)
		}
	})
	log := new(filotest.Log)
	t.Cleanup(func() { // the handlers' own panics are "on purpose"
		for _, line := range log.Lines("panic in ") {
			if !strings.Contains(line, "on purpose") {
				t.Error(strings.ReplaceAll(line, `\n`, "\n"))
			}
		}
	})
	config := &filo.Server{Leaders: 2, Logger: log.Logger(), Concurrency: concurrency, Handler: m.handle, HTTP2: filo.HTTP2Options{Unencrypted: true, MaxGlitches: -1}}
	if memory {
		listener := servertest.NewListener()
		m.s, m.dial = filotest.Serve(t, config, listener), listener.Dial
		return m
	}
	m.s = filotest.Serve(t, config)
	m.dial = func() (net.Conn, error) { return net.Dial("tcp", m.s.Addr) }
	return m
}

// handle behaves as the path says. The path consists of the mode (how the handler is classed), the work, its amount, and the request's number.
func (m *http2Model) handle(c *filo.Ctx) error {
	part := strings.Split(c.Path(), "/")
	work := part[2]
	amount, _ := strconv.Atoi(part[3])
	number, _ := strconv.Atoi(part[4])
	if n := m.calls[number].Add(1); n > 1 {
		m.t.Errorf("the handler of %s was called %d times", c.Path(), n)
	}
	handler := func(c *filo.Ctx) error { return m.work(c, work, amount) }
	switch part[1] {
	case "inline":
		return filo.Inline(handler)(c)
	case "offload":
		return filo.Offload(handler)(c)
	case "learned":
		if err := inside.Enter(c, m.classes[work]); err != nil {
			return err
		}
	}
	return handler(c)
}

func (m *http2Model) work(c *filo.Ctx, work string, amount int) error {
	content := http2ModelContent[:amount]
	switch work {
	case "sleep":
		time.Sleep(time.Duration(amount) * time.Microsecond)
	case "spin":
		for begin := time.Now(); time.Since(begin) < time.Duration(amount)*time.Microsecond; {
		}
	case "large":
		return c.BytesNoCopy(200, "application/octet-stream", content)
	case "empty":
		return c.NoContent()
	case "stream", "cut", "trailer":
		w := c.Stream()
		for len(content) > 0 {
			n := min(len(content), 9<<10)
			if _, err := w.Write(content[:n]); err != nil {
				return err
			}
			content = content[n:]
			if amount%3 == 0 {
				if err := w.Flush(); err != nil {
					return err
				}
			}
		}
		if work == "cut" {
			w.Flush()
			panic(filo.ErrAbort)
		}
		if work == "trailer" {
			c.Response.Trailer.Set("X-Amount", fmt.Sprint(amount))
		}
		return nil
	case "body":
		return echoBody(c)
	case "reader":
		return echoReader(c)
	case "duplex":
		w, b := c.Stream(), make([]byte, 1+amount%5000)
		for {
			n, err := c.BodyReader().Read(b)
			if n > 0 {
				if _, err := w.Write(b[:n]); err != nil {
					return err
				}
				if err := w.Flush(); err != nil {
					return err
				}
			}
			if err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
	case "hints":
		c.Response.Header.Set("Link", "</a.css>; rel=preload")
		if err := c.EarlyHints(); err != nil {
			return err
		}
	case "panic":
		panic("on purpose")
	case "Goexit":
		runtime.Goexit()
	case "abort":
		return filo.ErrAbort
	case "timeout":
		c.SetTimeout(time.Duration(1+amount)*time.Microsecond, nil) // 0 is none
		io.Copy(io.Discard, c.BodyReader())
		<-c.Context().Done()
		return c.Context().Err()
	case "context":
		<-c.Context().Done()
		return nil
	case "park":
		p, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error {
			if why == filo.WakeShutdown {
				return nil
			}
			_, err := p.Read(make([]byte, 100))
			if err == nil {
				err = errors.New("the client has sent something")
			}
			return err
		})
		if err != nil {
			return err
		}
		text := []byte(c.Path() + "\n")
		go func() {
			for range 3 {
				p.Write(text)
			}
			p.End()
		}()
		return nil
	}
	return c.Text(200, c.Path())
}

// request returns a random request.
func (m *http2Model) request(random *rand.Rand, id uint32) *http2ModelRequest {
	work := http2ModelWorks[random.IntN(len(http2ModelWorks))]
	mode := []string{"plain", "inline", "offload", "learned", "learned"}[random.IntN(5)]
	amount := random.IntN(3000)
	switch work {
	case "large", "stream", "cut", "trailer":
		if amount *= 1; random.IntN(3) == 0 {
			amount *= 100
		}
	case "panic", "Goexit", "quick", "abort":
	case "sleep", "spin", "timeout", "context", "park":
		if mode == "inline" {
			mode = "plain" // an inline handler mustn't wait
		}
	}
	r := &http2ModelRequest{id: id, work: work, path: fmt.Sprintf("/%s/%s/%d/%d", mode, work, amount, m.next.Add(1))}
	switch work {
	case "body", "reader", "duplex", "unread", "timeout":
		n := random.IntN(2000)
		if random.IntN(4) == 0 {
			n *= 60
		}
		r.upload = http2ModelContent[:n]
	}
	switch work {
	case "large", "stream", "trailer":
		r.want = string(http2ModelContent[:amount])
	case "body", "reader", "duplex":
		r.want = string(r.upload)
	case "park":
		r.want = strings.Repeat(r.path+"\n", 3)
	case "empty":
	default:
		r.want = r.path
	}
	return r
}

// run starts the clients, and returns the group that waits for them.
func (m *http2Model) run() *sync.WaitGroup {
	clients := new(sync.WaitGroup)
	for i := range http2ModelClients {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(m.seed, uint64(i)))
			for range http2ModelConns {
				conn, err := m.dial()
				if err != nil {
					if !m.ending.Load() {
						m.t.Error(err)
					}
					return
				}
				conn.SetDeadline(time.Now().Add(filotest.Bound))
				m.connection(random, filotest.NewRawHTTP2(m.t, conn))
				conn.Close()
			}
		})
	}
	return clients
}

// http2ModelConn is a client's connection, with its requests.
type http2ModelConn struct {
	*filotest.RawHTTP2
	m        *http2Model
	random   *rand.Rand
	requests []*http2ModelRequest
	sent     int64         // bytes of bodies
	progress chan struct{} // receives a value after a frame has arrived; capacity 1
	over     chan struct{} // closed when reading has ended with err
	err      error
	refused  bool
}

// connection uses one connection of a client.
func (m *http2Model) connection(random *rand.Rand, raw *filotest.RawHTTP2) {
	c := &http2ModelConn{RawHTTP2: raw, m: m, random: random, progress: make(chan struct{}, 1), over: make(chan struct{})}
	go c.read()
	if random.IntN(2) == 0 {
		c.SetWindow(int64(random.IntN(2000)))
	}
	end := []string{"answers", "answers", "answers", "close", "reset", "GOAWAY", "error"}[random.IntN(7)]
	steps := m.steps
	if end != "answers" {
		steps = random.IntN(steps + 1)
	}
	for range steps {
		c.step()
	}
	switch end {
	case "GOAWAY":
		c.Add(func(f *http2.Framer) { f.WriteGoAway(0, http2.ErrCodeNo, nil) })
		fallthrough
	case "answers":
		c.finish()
	case "error":
		c.Data(0, false, []byte("an error of the connection"))
		c.cut()
		<-c.over
		return
	case "reset":
		if tcp, ok := raw.Conn.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
	}
	raw.Close()
	<-c.over
}

// read reads and checks frames until the connection ends.
func (c *http2ModelConn) read() {
	defer close(c.over)
	for c.err == nil {
		c.err = c.Take()
		select {
		case c.progress <- struct{}{}:
		default:
		}
	}
	var netErr net.Error
	// If no worker is free for a connection, or if the server is ending, the server refuses the connection with an HTTP/1.1 answer.
	c.refused = (c.m.small || c.m.ending.Load()) && strings.Contains(c.err.Error(), "looked like an HTTP/1.1 header")
	if !c.refused && c.err != io.EOF && !filotest.IsReset(c.err) && !errors.Is(c.err, net.ErrClosed) && !errors.Is(c.err, io.ErrUnexpectedEOF) &&
		!errors.Is(c.err, io.ErrClosedPipe) && !errors.As(c.err, &netErr) {
		c.m.t.Errorf("the server breaks a rule: %v", c.err)
	}
}

// step performs a random action of a client.
func (c *http2ModelConn) step() {
	random := c.random
	var r *http2ModelRequest
	if n := len(c.requests); n > 0 {
		r = c.requests[n-1-random.IntN(min(n, 10))]
	}
	switch n := random.IntN(20); {
	case n < 8 || r == nil:
		if c.running() < 60 {
			c.begin()
		}
	case n < 12:
		c.push(r, 1+random.IntN(20_000), false)
	case n == 12:
		c.resetIt(r)
	case n == 13:
		c.Open(r.id, uint32(1+random.IntN(100_000)))
	case n == 14:
		c.Add(func(f *http2.Framer) { f.WritePing(false, [8]byte{1}) })
	case n == 15:
		c.SetWindow(int64(random.IntN(70_000)))
	case n == 16:
		c.Books.Lock()
		c.Lowered = append(c.Lowered, filotest.RawLowered{})
		c.Books.Unlock()
		size := uint32([]int{0, 100, 4096}[random.IntN(3)])
		c.Add(func(f *http2.Framer) { f.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: size}) })
	case n == 17:
		priority := []string{"u=1", "u=3, i", "u=7", "i"}[random.IntN(4)]
		c.Add(func(f *http2.Framer) {
			f.WriteRawFrame(0x10, 0, 0, append([]byte{0, 0, byte(r.id >> 8), byte(r.id)}, priority...))
		})
	case n == 18:
		c.Add(func(f *http2.Framer) { f.WriteRawFrame(0xfa, 0xff, r.id, []byte("unknown")) })
	default:
		c.cut()
	}
	if random.IntN(3) == 0 {
		c.cut()
	}
}

// running returns how many streams may be open in the server.
func (c *http2ModelConn) running() (n int) {
	c.Books.Lock()
	defer c.Books.Unlock()
	for _, r := range c.requests {
		if !r.stream.Ended && !r.stream.Reset {
			n++ // also a stream that the client has reset: its handler may still run
		}
	}
	return n
}

// begin sends a request, or only its head if it has a body.
func (c *http2ModelConn) begin() {
	r := c.m.request(c.random, uint32(2*len(c.requests)+1))
	fields := []string{":method", "GET"}
	if r.upload != nil {
		fields[1] = "POST"
		if c.random.IntN(2) == 0 {
			fields = append(fields, "content-length", fmt.Sprint(len(r.upload)))
		}
	}
	r.whole = r.upload == nil
	c.RawHTTP2.Request(r.id, r.path, r.whole, fields...)
	c.Books.Lock()
	r.stream = c.Streams[r.id]
	c.Books.Unlock()
	c.requests = append(c.requests, r)
	if !r.whole && c.random.IntN(2) == 0 {
		c.push(r, len(r.upload), false)
	}
}

// push sends as many bytes of a request's body as the windows allow, but no more than a maximum (most), and returns their number. If last
// is true, the body's last bytes also end the stream.
func (c *http2ModelConn) push(r *http2ModelRequest, most int, last bool) (n int) {
	c.Books.Lock()
	n = int(min(int64(most), int64(len(r.upload)), 65535+r.stream.Grown-r.sent, 65535+c.Grown-c.sent, 16<<10))
	over := r.stream.Reset
	c.Books.Unlock()
	if r.whole || r.reset || over || n < 0 {
		return 0
	}
	piece := r.upload[:n]
	r.upload, r.sent, c.sent = r.upload[n:], r.sent+int64(n), c.sent+int64(n)
	r.whole = len(r.upload) == 0 && (last || c.random.IntN(3) > 0)
	c.Data(r.id, r.whole, piece)
	return n
}

func (c *http2ModelConn) resetIt(r *http2ModelRequest) {
	c.Books.Lock()
	over := r.stream.Ended || r.stream.Reset
	c.Books.Unlock()
	if r.reset || over {
		return
	}
	r.reset = true
	c.Add(func(f *http2.Framer) { f.WriteRSTStream(r.id, http2.ErrCodeCancel) })
}

// cut sends the added frames, in pieces.
func (c *http2ModelConn) cut() {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	b := bytes.Clone(c.Out.Bytes())
	c.Out.Reset()
	for pieces := c.random.IntN(4); pieces > 0 && len(b) > 0; pieces-- {
		n := c.random.IntN(len(b) + 1)
		c.Conn.Write(b[:n])
		if b = b[n:]; c.random.IntN(2) == 0 {
			time.Sleep(time.Duration(c.random.IntN(500)) * time.Microsecond)
		}
	}
	c.Conn.Write(b)
}

// finish sends the rest, waits for all answers, and checks them.
func (c *http2ModelConn) finish() {
	c.SetWindow(1 << 24)
	c.Open(0, 1<<30)
	for {
		left, pushed := 0, 0
		for _, r := range c.requests {
			if r.work == "context" {
				c.resetIt(r)
			}
			pushed += c.push(r, len(r.upload), true)
			c.Books.Lock()
			if !r.reset && !r.stream.Ended && !r.stream.Reset {
				left++
			}
			c.Books.Unlock()
		}
		c.cut()
		if left == 0 {
			break
		}
		if pushed > 0 {
			continue // the windows may allow more, even if no frame arrives from the server
		}
		select {
		case <-c.progress:
			continue
		case <-c.over:
		}
		break
	}
	var ended error
	select {
	case <-c.over:
		ended = c.err
	default:
	}
	c.Books.Lock()
	defer c.Books.Unlock()
	for _, r := range c.requests {
		if err := c.wrong(r, ended); err != nil {
			c.m.t.Errorf("%s, stream %d: %v; the connection: %v", r.path, r.id, err, ended)
		}
	}
}

// wrong returns an error that describes what is wrong with an answer. ended is the reason for the connection's end, or nil.
func (c *http2ModelConn) wrong(r *http2ModelRequest, ended error) error {
	s, status := r.stream, 200
	switch {
	case r.reset, ended != nil && c.refused, c.GoneAll && r.id > c.LastID, c.m.cuts && c.m.ending.Load():
		return nil
	case c.m.small && s.Ended && s.Status == 503:
		return nil
	case c.m.ending.Load() && !c.GoneAll && s.Status == 0 && ended != nil:
		return nil // the request arrived after the server's last read
	case c.m.ending.Load() && r.work == "park":
		return nil
	}
	switch r.work {
	case "abort", "cut":
		if s.Reset && s.Code == http2.ErrCodeInternal && !s.Ended {
			return nil
		}
		return fmt.Errorf("got %v", s)
	case "panic", "Goexit":
		status = 500
	case "timeout":
		status = 503
	case "empty":
		status = 204
	}
	if c.m.small && s.Reset && s.Code == http2.ErrCodeInternal {
		switch r.work {
		case "stream", "trailer", "reader", "duplex":
			return nil // the handler had to wait for the client, but no place was free
		}
	}
	if s.Status != status || !s.Ended {
		return fmt.Errorf("got %v, want %d", s, status)
	}
	if status == 200 && string(s.Body) != r.want {
		return fmt.Errorf("got %d bytes, want %d: %v", len(s.Body), len(r.want), s)
	}
	if r.work == "trailer" && len(r.want) > 0 && s.Trailer["x-amount"] != fmt.Sprint(len(r.want), "\n") {
		return fmt.Errorf("the trailers are %v", s.Trailer)
	}
	return nil
}

// checkRest checks that the server has released all resources of the clients.
func (m *http2Model) checkRest() {
	m.t.Helper()
	var stats filo.Stats
	if !filotest.Try(func() bool {
		stats = m.s.Stats()
		return stats.ConnsOpen == 0 && stats.Streams == 0 && stats.WorkersRunning == 0 && stats.TasksRunning == 0
	}) {
		m.t.Errorf("left: %+v", stats)
	}
}

func eachHTTP2Model(t *testing.T, concurrency []int, test func(t *testing.T, m *http2Model)) {
	for _, memory := range []bool{false, true} {
		for _, n := range concurrency {
			t.Run(fmt.Sprintf("memory %t, Concurrency %d", memory, n), func(t *testing.T) { test(t, newHTTP2Model(t, memory, n)) })
		}
	}
}

// Whatever clients and handlers do, each request that isn't reset gets the right answer, and the server releases all resources after the
// clients have disconnected.
func TestHTTP2Model(t *testing.T) {
	eachHTTP2Model(t, []int{2, 1000}, func(t *testing.T, m *http2Model) {
		m.run().Wait()
		m.checkRest()
		if err := m.s.ShutdownInTime(); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

// If the server is shut down while clients act, each request gets a complete answer, or the server says that it hasn't served the request.
func TestHTTP2ModelShutdown(t *testing.T) {
	eachHTTP2Model(t, []int{1000}, func(t *testing.T, m *http2Model) {
		clients := m.run()
		filotest.Await(t, "requests", func() bool { return m.next.Load() > 150 })
		m.ending.Store(true)
		if err := m.s.ShutdownInTime(); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		clients.Wait()
		m.checkRest()
	})
}

// If the server is closed while clients act, it ends every connection, and releases all resources.
func TestHTTP2ModelClose(t *testing.T) {
	eachHTTP2Model(t, []int{1000}, func(t *testing.T, m *http2Model) {
		m.cuts = true
		clients := m.run()
		filotest.Await(t, "requests", func() bool { return m.next.Load() > 150 })
		m.ending.Store(true)
		m.s.Close()
		clients.Wait()
		m.checkRest()
	})
}
