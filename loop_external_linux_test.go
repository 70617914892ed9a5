package filo_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/handshakes"
	"github.com/filohttp/filo/internal/inside"
)

// deafConn is a client that sends its hello, and never receives the answer.
type deafConn struct {
	net.Conn
	ended chan struct{}
}

func (c *deafConn) Read([]byte) (int, error) {
	<-c.ended
	return 0, net.ErrClosed
}

// Each stalled handshake ends at its own time-out, however many there are, and neither Close nor Shutdown waits for any of them.
func TestStalledHandshakes(t *testing.T) {
	filotest.NeedLoops(t)
	for name, end := range map[string]func(s *filotest.Server) error{
		"they end by themselves": func(s *filotest.Server) error { return nil },
		"Close": func(s *filotest.Server) error {
			s.Close()
			return s.Shutdown(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := &filo.Server{Leaders: 1, ReadHeaderTimeout: time.Second / 2, Handler: filotest.NewGate().Handle}
			config.SetMaxHandshakes(2)
			s := filotest.ListenTLS(t, config)
			ended := make(chan struct{})
			defer close(ended)
			const clients = 20
			for range clients {
				c := s.Dial(t)
				s.Go(func() {
					tls.Client(&deafConn{c.Conn, ended}, &tls.Config{InsecureSkipVerify: true}).Handshake()
				})
			}
			filotest.Await(t, "the clients to come", func() bool { return s.Stats().ConnsAccepted > clients/2 })
			if err := end(s); err != nil {
				t.Error(err)
			}
			filotest.Await(t, "all of them to be gone", func() bool { return s.Stats().ConnsOpen == 0 })
			if name != "Close" {
				s.WantServesTLS(t)
			}
		})
	}
}

// pausedConn is a client that reads the server's answer to its hello, and goes on with the handshake only when the test lets it.
type pausedConn struct {
	net.Conn
	once     sync.Once
	answered chan struct{} // closed when the answer arrives
	goOn     chan struct{}
}

func (c *pausedConn) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	c.once.Do(func() {
		close(c.answered)
		<-c.goOn
	})
	return n, err
}

// dialPaused begins a handshake from an address, and returns the connection when the server waits for the client's part.
func dialPaused(s *filotest.Server, t *testing.T, from string) (c *pausedConn, secure *tls.Conn, done <-chan error) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	c = &pausedConn{Conn: filotest.NewClient(t, conn), answered: make(chan struct{}), goOn: make(chan struct{})}
	secure = tls.Client(c, filotest.ClientTLS())
	result := make(chan error, 1)
	go func() { result <- secure.Handshake() }()
	filotest.Recv(t, c.answered, "the answer to a hello")
	return c, secure, result
}

// Clients that begin handshakes and never end them keep no other client out, whether that client has the same address or another one.
// They hold no more workers than there is room for. The handshake that has waited for the longest at the same address gives way first.
// The connection of that handshake is closed only when its client goes on or its time has run out: if it were closed at once, the client
// would connect again.
func TestSilentHandshakes(t *testing.T) {
	filotest.NeedLoops(t)
	const most, clients = 4, 16
	config := &filo.Server{Leaders: 1, ReadHeaderTimeout: time.Hour, Handler: filotest.NewGate().Handle}
	config.SetMaxHandshakes(most)
	s := filotest.ListenTLS(t, config)
	slow, secure, completed := dialPaused(s, t, "127.0.0.2")
	var silent []*pausedConn
	var ended []<-chan error
	for range clients {
		c, _, done := dialPaused(s, t, "127.0.0.1")
		silent, ended = append(silent, c), append(ended, done)
	}
	for range most {
		c := s.DialTLS(t)
		c.Get("/")
		c.Want(200, "quick", false)
		c.Close()
	}
	filotest.Await(t, "those who made room to hold no worker", func() bool { return s.Stats().WorkersRunning <= most })
	if stats := s.Stats(); stats.Timeouts.Handshake < clients-most || stats.ConnsOpen < clients {
		t.Errorf("%d handshakes were ousted, and %d connections are open", stats.Timeouts.Handshake, stats.ConnsOpen)
	}
	close(slow.goOn)
	if err := filotest.Recv(t, completed, "the end of the other address's handshake"); err != nil {
		t.Errorf("the other address: %v", err)
	}
	c := filotest.NewClient(t, secure)
	c.Get("/")
	c.Want(200, "quick", false)
	c.Close()
	for i, each := range silent {
		close(each.goOn)
		filotest.Recv(t, ended[i], "the end of a handshake")
		each.Close()
	}
	s.WantServesTLS(t)
}

// A hello that arrives in pieces holds no worker until it is complete, whatever its size and its records.
func TestPartsOfAHello(t *testing.T) {
	filotest.NeedLoops(t)
	s := filotest.ListenTLS(t, &filo.Server{Handler: filotest.NewGate().Handle})
	for _, test := range []struct{ protocols, record, piece int }{
		{0, 1, 1 << 20}, {0, 100, 50}, {0, 1 << 14, 7}, {30, 1 << 14, 3000}, {110, 3000, 1000}, {110, 1 << 14, 1 << 14}, {250, 1 << 14, 5000},
	} {
		config := filotest.ClientTLS()
		config.NextProtos = []string{"http/1.1"}
		for i := range test.protocols {
			config.NextProtos = append(config.NextProtos, fmt.Sprintf("%200d", i))
		}
		hello := &helloConn{Conn: s.Dial(t), record: test.record, piece: test.piece}
		c := filotest.NewClient(t, tls.Client(hello, config))
		c.Get("/")
		c.Want(200, "quick", false)
		c.Close()
		for n := range hello.sent {
			if n%max(1, len(hello.sent)/300) == 0 && handshakes.IsWholeHello(hello.sent[:n]) {
				t.Errorf("%+v: %d of %d bytes are whole", test, n, len(hello.sent))
			}
		}
		if !handshakes.IsWholeHello(hello.sent) {
			t.Errorf("%+v: all %d bytes aren't whole", test, len(hello.sent))
		}
	}
}

// helloConn sends its hello in records of that size, in pieces.
type helloConn struct {
	net.Conn
	record, piece int
	sent          []byte
	read          bool
}

func (c *helloConn) Write(p []byte) (int, error) {
	if c.read {
		return c.Conn.Write(p)
	}
	for rest := p; len(rest) > 0; {
		size := int(binary.BigEndian.Uint16(rest[3:]))
		for record := range slices.Chunk(rest[5:5+size], c.record) {
			c.sent = append(binary.BigEndian.AppendUint16(append(c.sent, rest[:3]...), uint16(len(record))), record...)
		}
		rest = rest[5+size:]
	}
	return len(p), nil
}

func (c *helloConn) Read(p []byte) (int, error) {
	if !c.read {
		c.read = true
		for piece := range slices.Chunk(c.sent, c.piece) {
			if _, err := c.Conn.Write(piece); err != nil {
				return 0, err
			}
		}
	}
	return c.Conn.Read(p)
}

// heldHandshakes lets handshakes for the server name "slow" wait in a function of the program until gate is closed.
type heldHandshakes struct {
	gate    chan struct{}
	running atomic.Int32
	peak    atomic.Int32
}

func (h *heldHandshakes) listen(t *testing.T, config *filo.Server) *filotest.Server {
	t.Helper()
	h.gate = make(chan struct{})
	config.TLSConfig = &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}}
	config.TLSConfig.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName != "slow" {
			return nil, nil
		}
		running := h.running.Add(1)
		for peak := h.peak.Load(); running > peak && !h.peak.CompareAndSwap(peak, running); peak = h.peak.Load() {
		}
		<-h.gate
		h.running.Add(-1)
		return nil, nil
	}
	return filotest.ListenTLS(t, config)
}

// dial begins n slow handshakes. The channel delivers their results.
func (h *heldHandshakes) dial(t *testing.T, s *filotest.Server, n int) <-chan error {
	ended := make(chan error, n)
	for range n {
		c := s.Dial(t)
		s.Go(func() {
			config := filotest.ClientTLS()
			config.ServerName, config.InsecureSkipVerify = "slow", true
			ended <- tls.Client(c, config).Handshake()
		})
	}
	return ended
}

// No more handshakes compute at once than the processors can take, however many clients come.
func TestHandshakesAtOnce(t *testing.T) {
	filotest.NeedLoops(t)
	var held heldHandshakes
	config := &filo.Server{Handler: filotest.NewGate().Handle}
	config.SetLongHandshake(time.Hour)
	s := held.listen(t, config)
	most := handshakes.PerProc * runtime.GOMAXPROCS(0)
	clients := 4 * most
	ended := held.dial(t, s, clients)
	filotest.Await(t, "the clients to come", func() bool { return s.Stats().ConnsOpen == clients })
	filotest.Await(t, "as many as may to compute", func() bool { return held.running.Load() >= int32(most) })
	close(held.gate)
	for range clients {
		if err := filotest.Recv(t, ended, "the end of a handshake"); err != nil {
			t.Error(err)
		}
	}
	if peak := int(held.peak.Load()); peak != most {
		t.Errorf("%d handshakes computed at once, want %d", peak, most)
	}
}

// Handshakes that wait for a function of the program keep other handshakes waiting only briefly.
func TestHandshakesHeldByTheProgram(t *testing.T) {
	filotest.NeedLoops(t)
	var held heldHandshakes
	s := held.listen(t, &filo.Server{Handler: filotest.NewGate().Handle})
	clients := 4 * handshakes.PerProc * runtime.GOMAXPROCS(0)
	ended := held.dial(t, s, clients)
	filotest.Await(t, "all of them to begin", func() bool { return held.running.Load() == int32(clients) })
	c := s.DialTLS(t)
	c.Get("/")
	c.Want(200, "quick", false)
	c.Close()
	close(held.gate)
	for range clients {
		if err := filotest.Recv(t, ended, "the end of a handshake"); err != nil {
			t.Error(err)
		}
	}
}

// While its loop has nothing else to do, a handler that computes for at most class.Brief runs directly in the loop. The next such handler
// doesn't run there if answers to earlier requests would wait for it, or if the leader has already run handlers for too long. A handler that
// takes the same time because it waits never runs there.
func TestHandlersThatCompute(t *testing.T) {
	filotest.NeedLoops(t)
	spin := func() {
		for begin := time.Now(); time.Since(begin) < 50*time.Microsecond; {
		}
	}
	computing, waiting := class.Class{Name: "computing"}, class.Class{Name: "waiting"}
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/wait" {
			waiting.Median.Store(int64(class.Brief) / 2)
			if err := inside.Enter(c, &waiting); err != nil {
				return err
			}
			for left := (syscall.Timespec{Nsec: 50_000}); syscall.Nanosleep(&left, &left) == syscall.EINTR; {
			}
			return c.Text(200, "fine")
		}
		if err := inside.Enter(c, &computing); err != nil {
			return err
		}
		spin()
		return c.Text(200, "fine")
	}})
	plain := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error { // enters no class
		spin()
		return c.Text(200, "fine")
	}})
	for _, test := range []struct {
		s           *filotest.Server
		path, class string
	}{{s, "/", "computing"}, {plain, "/", ""}} {
		c := test.s.Dial(t)
		filotest.Await(t, "calls of the class \""+test.class+"\" to stay", func() bool {
			for range 100 {
				filo.TrainClass(test.s.Server, test.class) // on a busy machine it may seem to wait
				c.Get(test.path)
				c.Want(200, "fine", false)
			}
			return filotest.ClassOf(test.s.Server, test.class).Inline > 0
		})
		handoffs := filotest.ClassOf(test.s.Server, test.class).Handoffs
		filotest.Await(t, "one of many pipelined calls to be handed off", func() bool {
			filo.TrainClass(test.s.Server, test.class)
			c.Send(strings.Repeat("GET "+test.path+" HTTP/1.1\r\nHost: a\r\n\r\n", 50))
			for range 50 {
				c.Want(200, "fine", false)
			}
			return filotest.ClassOf(test.s.Server, test.class).Handoffs > handoffs
		})
	}
	c := s.Dial(t)
	for range 1000 {
		c.Get("/wait")
		c.Want(200, "fine", false)
	}
	if n := filotest.ClassOf(s.Server, "waiting").Inline; n > 0 {
		t.Errorf("%d calls that wait stayed", n)
	}
}

// If the function of a parked connection computes for at most class.Brief, the loop's leader calls it, while nothing else is ready in the
// loop.
func TestParkedThatComputes(t *testing.T) {
	filotest.NeedLoops(t)
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		_, err := c.Park("", func(p *filo.ParkedConn, why filo.Wake) error {
			b := make([]byte, 64)
			n, err := p.Read(b)
			for begin := time.Now(); time.Since(begin) < 50*time.Microsecond; {
			}
			if err == nil {
				_, err = p.Write(b[:n])
			}
			return err
		})
		return err
	}})
	c := s.Dial(t)
	c.Get("/park")
	filotest.Await(t, "calls where the loop runs", func() bool {
		for range 100 {
			filo.TrainClass(s.Server, "(parked)") // on a busy machine it may seem to wait
			c.Send("x")
			if b, err := c.Reader.ReadByte(); err != nil || b != 'x' {
				t.Fatalf("got %q, %v", b, err)
			}
		}
		return filotest.ClassOf(s.Server, "(parked)").Inline > 0
	})
}
