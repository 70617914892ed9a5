package parked

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// endsSize is larger than the buffers of a connection of endsPark whose client doesn't read.
const endsSize = 6 << 20

var (
	endsBody    = bytes.Repeat([]byte("y"), endsSize)
	endsMessage = filo.NewPreparedMessage(endsBody)
)

// endsPark runs a test over each transport. The client requests path, whose handler parks the connection.
func endsPark(t *testing.T, path string, config func() *filo.Server, parked <-chan *filo.ParkedConn,
	test func(t *testing.T, s *filotest.Server, c *filotest.Client, p *filo.ParkedConn)) {
	t.Helper()
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		s, c := serve(config())
		netConn := c.Conn
		if secure, ok := netConn.(*tls.Conn); ok {
			netConn = secure.NetConn()
		}
		// Otherwise the system may let the buffer grow, to 32 MB on some machines.
		if socket, ok := netConn.(*net.TCPConn); ok {
			if err := socket.SetReadBuffer(128 << 10); err != nil {
				t.Fatal(err)
			}
		}
		c.Send("GET " + path + " HTTP/1.1\r\nHost: filo.test\r\nConnection: upgrade\r\nUpgrade: frames\r\n\r\n")
		test(t, s, c, filotest.Recv(t, parked, "the connection to be parked"))
	})
}

// endsQueue queues a message that exceeds the connection's buffers.
func endsQueue(t *testing.T, p *filo.ParkedConn) {
	t.Helper()
	if err := p.Queue(endsMessage); err != nil {
		t.Fatal(err)
	}
	if p.Queued() == 0 {
		t.Fatal("nothing waits")
	}
}

// endsWrite writes the same bytes as endsQueue's message, on another goroutine.
func endsWrite(p *filo.ParkedConn) <-chan endsWritten {
	result := make(chan endsWritten, 1)
	go func() {
		n, err := p.Write(endsBody)
		result <- endsWritten{n, err}
	}()
	return result
}

// endsWritten has the results of a Write.
type endsWritten struct {
	n   int
	err error
}

// readHead reads the head of an answer.
func readHead(c *filotest.Client) *http.Response {
	c.T.Helper()
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		c.T.Fatal(err)
	}
	return response
}

// endsWantWhole reads the body, and checks that it consists of the queued message and the wanted text, and ends properly.
func endsWantWhole(t *testing.T, body io.Reader, want string) {
	t.Helper()
	var got bytes.Buffer
	got.Grow(endsSize + 64<<10) // allocate all at once, because growing in steps takes long
	_, err := got.ReadFrom(body)
	if rest, ok := bytes.CutPrefix(got.Bytes(), endsBody); !ok || string(rest) != want || err != nil {
		t.Errorf("got %d bytes, %v; want %d and %q", got.Len(), err, endsSize, want)
	}
}

// End ends the body properly, even during a call of the function, and whatever that call returns. The call can't read or write any more, but
// the messages that were queued before are sent.
func TestEndDuringACall(t *testing.T) {
	for name, fails := range map[string]func(p *filo.ParkedConn, ended <-chan struct{}) error{
		"it waits in Read": func(p *filo.ParkedConn, ended <-chan struct{}) error {
			_, err := p.Read(make([]byte, 1))
			return err
		},
		"it writes afterwards": func(p *filo.ParkedConn, ended <-chan struct{}) error {
			<-ended
			_, err := p.Write([]byte("too late"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
				parked, called := make(chan *filo.ParkedConn, 1), make(chan struct{})
				ended := make(chan struct{})
				failed := make(chan error, 1)
				s, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
					p, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error {
						if _, err := p.Read(make([]byte, 1)); err != nil {
							return err
						}
						close(called)
						err := fails(p, ended)
						failed <- err
						return err
					})
					parked <- p
					return err
				}})
				c.Get("/")
				p := filotest.Recv(t, parked, "the connection to be parked")
				endsQueue(t, p)
				c.Send("x")
				filotest.Recv(t, called, "the function to be called")
				p.End()
				close(ended)
				if err := filotest.Recv(t, failed, "the function to return"); err == nil {
					t.Error("it didn't fail")
				}
				endsWantWhole(t, readHead(c).Body, "")
				filotest.Await(t, "the connection to go", func() bool { return s.Stats().ConnsOpen == 0 })
			})
		})
	}
}

// The end of a connection waits for all queued bytes, including those of earlier writes. If a write fails at its deadline, no bytes are left
// to wait for, and the connection ends.
func TestEndOutlivesNoWrite(t *testing.T) {
	parked := make(chan *filo.ParkedConn, 1)
	endsPark(t, "/", parkedServer(parked), parked, func(t *testing.T, s *filotest.Server, c *filotest.Client, p *filo.ParkedConn) {
		result := endsWrite(p)
		if _, err := c.Reader.Peek(1); err != nil {
			t.Fatal(err)
		}
		p.End()
		filotest.Await(t, "the connection to wait for its end", func() bool {
			stats := s.Stats()
			return stats.ConnsOpen == 1 && stats.ConnsParked == 0 && stats.WorkersRunning == 0
		})
		p.SetWriteDeadline(time.Now())
		if got := filotest.Recv(t, result, "the write to end"); !errors.Is(got.err, os.ErrDeadlineExceeded) {
			t.Errorf("the write returned %v", got.err)
		}
		filotest.Await(t, "the connection to go", func() bool { return s.Stats().ConnsOpen == 0 })
		if n := p.Queued(); n != 0 {
			t.Errorf("%d bytes wait", n)
		}
	})
}

// If only a part of a chunk has been sent, the server sends nothing more, because the client would take it for the rest of the chunk. The
// same holds for a part of a Write in another protocol, to which the connection has switched.
func TestNothingBehindAPartOfAFrame(t *testing.T) {
	for _, path := range []string{"/stream", "/switched"} {
		testNothingBehindAPart(t, path, path == "/stream")
	}
}

func testNothingBehindAPart(t *testing.T, path string, chunked bool) {
	parked := make(chan *filo.ParkedConn, 1)
	endsPark(t, path, parkedServer(parked), parked, func(t *testing.T, s *filotest.Server, c *filotest.Client, p *filo.ParkedConn) {
		result := endsWrite(p)
		head := readHead(c)
		body := io.Reader(c.Reader)
		if chunked {
			body = head.Body
		}
		if _, err := io.ReadFull(body, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		p.SetWriteDeadline(time.Now())
		if got := filotest.Recv(t, result, "the write to end"); chunked && got.n != 0 || !errors.Is(got.err, os.ErrDeadlineExceeded) {
			t.Errorf("the write returned %d, %v", got.n, got.err)
		}
		p.SetWriteDeadline(time.Time{})
		if err := p.Queue(filo.NewPreparedMessage([]byte("another message"))); err == nil {
			t.Error("a message was queued")
		}
		if n, err := p.Write([]byte("another write")); n != 0 || err == nil {
			t.Errorf("another write returned %d, %v", n, err)
		}
		p.End()
		got, err := io.ReadAll(body)
		if other := bytes.TrimLeft(got, "y"); len(other) > 0 || len(got) >= endsSize || chunked && err == nil {
			t.Errorf("the client got %d bytes, then %.60q, %v", len(got)-len(other), other, err)
		}
	})
}

// A write whose deadline has passed sends nothing, and doesn't affect waiting messages.
func TestWriteAfterItsDeadline(t *testing.T) {
	parked := make(chan *filo.ParkedConn, 1)
	endsPark(t, "/stream", parkedServer(parked), parked, func(t *testing.T, s *filotest.Server, c *filotest.Client, p *filo.ParkedConn) {
		endsQueue(t, p)
		p.SetWriteDeadline(time.Now().Add(-time.Second))
		if n, err := p.Write([]byte("late")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the write returned %d, %v", n, err)
		}
		p.SetWriteDeadline(time.Time{})
		p.SetQueueLimit(2 * endsSize)
		if err := p.Queue(filo.NewPreparedMessage([]byte("in time"))); err != nil {
			t.Error(err)
		}
		p.End()
		endsWantWhole(t, readHead(c).Body, "in time")
	})
}

// The limit applies only to messages of Queue. A Write waits until earlier messages have been sent, even if they exceed the limit.
func TestQueueLimitIsNotForWrites(t *testing.T) {
	parked := make(chan *filo.ParkedConn, 1)
	endsPark(t, "/stream", parkedServer(parked), parked, func(t *testing.T, s *filotest.Server, c *filotest.Client, p *filo.ParkedConn) {
		endsQueue(t, p)
		began, result := make(chan struct{}), make(chan error, 1)
		go func() {
			close(began)
			_, err := io.WriteString(p, "written")
			if err != nil {
				p.Close() // unblock the client, which waits for the text
			}
			result <- err
		}()
		filotest.Recv(t, began, "the write to begin")
		body := readHead(c).Body
		endsWantWhole(t, io.LimitReader(body, endsSize+int64(len("written"))), "written")
		if err := filotest.Recv(t, result, "the write"); err != nil {
			t.Error(err)
		}
		p.End()
		if rest, err := io.ReadAll(body); len(rest) > 0 || err != nil {
			t.Errorf("the body ends with %q, %v", rest, err)
		}
	})
}

// If a message waits for the end of a long Write, the client has no less time: it keeps reading bytes, so it doesn't time out.
func TestQueueBehindALongWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parked := make(chan *filo.ParkedConn, 1)
		config := parkedServer(parked)()
		config.WriteTimeout = 5 * time.Second
		c := servertest.NewServer(t, config).Dial(t)
		if _, err := io.WriteString(c, parkRequest); err != nil {
			t.Fatal(err)
		}
		p := <-parked
		const size = 1 << 20
		result := make(chan error, 1)
		go func() {
			_, err := p.Write(make([]byte, size))
			result <- err
		}()
		synctest.Wait() // now Write waits for the client
		if err := p.Queue(filo.NewPreparedMessage([]byte("behind"))); err != nil {
			t.Fatal(err)
		}
		for taken := 0; taken < size; taken += 16 << 10 {
			time.Sleep(time.Second)
			if n, err := io.CopyN(io.Discard, c, 16<<10); err != nil {
				t.Fatalf("after %d bytes: %v", taken+int(n), err)
			}
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
		behind := make([]byte, len("behind"))
		if _, err := io.ReadFull(c, behind); string(behind) != "behind" || err != nil {
			t.Errorf("got %q, %v", behind, err)
		}
	})
}

// If the server hasn't read all bytes of a client, the client still gets everything that was sent before the end. Closing the socket at once
// would send a reset, which destroys bytes in transit (RFC 9112, section 9.6).
func TestEndWithUnreadInput(t *testing.T) {
	for name, end := range map[string]func(p *filo.ParkedConn) error{
		"EOF": func(*filo.ParkedConn) error { return io.EOF },
		"End": func(p *filo.ParkedConn) error { p.End(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
				endWithUnreadInput(t, serve, end)
			})
		})
	}
}

func endWithUnreadInput(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client), end func(p *filo.ParkedConn) error) {
	const size = 1 << 20 // the system buffers all of it, although the client doesn't read
	parked := make(chan *filo.ParkedConn, 1)
	called, unread := make(chan struct{}), make(chan struct{})
	s, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
		p, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error {
			close(called)
			<-unread
			return end(p)
		})
		parked <- p
		return err
	}})
	c.Get("/")
	p := filotest.Recv(t, parked, "the connection to be parked")
	if err := p.Queue(filo.NewPreparedMessage(endsBody[:size])); err != nil {
		t.Fatal(err)
	}
	c.Send("x")
	filotest.Recv(t, called, "the function to be called")
	c.Send(strings.Repeat("z", 2000))
	close(unread)
	filotest.Await(t, "the connection to be closed, or left to be", func() bool {
		stats := s.Stats()
		return stats.ConnsParked == 0 && stats.WorkersRunning == 0
	})
	if n, err := io.Copy(io.Discard, readHead(c).Body); n != size || err != nil {
		t.Errorf("got %d bytes of %d, %v", n, size, err)
	}
}

// A parked connection retains no memory of its request, in however many pieces the request arrived.
func TestParkedKeepsNoRequest(t *testing.T) {
	filotest.NeedLoops(t)
	const conns, headSize, bound = 200, 12 << 10, 8 << 10
	parked := make(chan *filo.ParkedConn, conns+1)
	s := filotest.Serve(t, parkedServer(parked)())
	s.Dial(t).Get("/stream") // so that one-time allocations aren't measured
	filotest.Recv(t, parked, "the first connection to be parked")
	before := filotest.HeapInUse()
	head := "GET /stream HTTP/1.1\r\nHost: a\r\nCookie: " + strings.Repeat("c", headSize)
	clients := make([]net.Conn, conns)
	sendAll := func(text string) {
		t.Helper()
		for _, c := range clients {
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range clients {
		clients[i] = s.Dial(t).Conn
	}
	sendAll(head)
	filotest.Await(t, "the first pieces to be read", func() bool {
		stats := s.Stats()
		return stats.ConnsActive == conns && stats.WorkersRunning == 0
	})
	sendAll("\r\n\r\n")
	filotest.Await(t, "the connections to be parked", func() bool { return s.Stats().ConnsParked == conns+1 })
	filotest.Await(t, "the requests to be forgotten", func() bool { return filotest.HeapInUse() < before+conns*bound })
}

// If a handler parks a connection while earlier answers are unread, Park waits for the client no longer than WriteTimeout.
func TestParkBehindAnswersThatAreNotTaken(t *testing.T) {
	const clients = 60
	var begun atomic.Int32
	config := &filo.Server{
		WriteTimeout:    50 * time.Millisecond,
		MinTransferRate: -1,
		SocketOptions:   filo.SocketOptions{WriteBuffer: 4 << 10},
		Handler: func(c *filo.Ctx) error {
			for start := time.Now(); time.Since(start) < 50*time.Microsecond; {
				// Spin, so that the handler isn't quick. Then earlier answers are sent before it is called.
			}
			if c.Path() != "/stream" {
				return c.Text(200, strings.Repeat("b", 1000))
			}
			begun.Add(1)
			_, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error {
				_, err := p.Read(make([]byte, 100))
				return err
			})
			return err
		},
	}
	listener, err := config.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := filotest.Serve(t, config, listener)
	// For one of these clients, the socket becomes full just when its connection is about to be parked.
	for n := range clients {
		c := s.Dial(t)
		if err := c.Conn.(*net.TCPConn).SetReadBuffer(1); err != nil {
			t.Fatal(err)
		}
		c.Send(strings.Repeat("GET /answer HTTP/1.1\r\nHost: a\r\n\r\n", n) + "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	filotest.Await(t, "each connection to be parked or gone, and the workers to be free", func() bool {
		stats := s.Stats()
		return stats.ConnsAccepted == clients && stats.ConnsOpen == stats.ConnsParked && stats.WorkersRunning == 0
	})
	if begun.Load() == 0 {
		t.Error("none was to be parked")
	}
}

// The function of a parked connection can read the bytes that its client has sent before it disconnected, and then the end. That also holds
// if sending a message has failed before the function has read these bytes.
func TestQueueToAClientThatHasLeft(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		parked, called, delayed := make(chan *filo.ParkedConn, 1), make(chan struct{}), make(chan struct{})
		ended, errClosed := make(chan error, 1), errors.New("closed")
		var got []byte
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			p, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error {
				b := make([]byte, 10)
				n, err := p.Read(b)
				if len(got) == 0 {
					close(called)
					<-delayed
				}
				got = append(got, b[:n]...)
				if err != nil {
					ended <- err
				}
				return err
			})
			if err == nil {
				p.OnClose(func() {
					select {
					case ended <- errClosed:
					default:
					}
				})
				parked <- p
			}
			return err
		}})
		c.Get("/")
		p := filotest.Recv(t, parked, "the connection to be parked")
		if got := readHead(c); got.StatusCode != 200 {
			t.Fatal(got)
		}
		c.Send("a")
		filotest.Recv(t, called, "the function to be called")
		c.Send("last")
		c.Close()
		message := filo.NewPreparedMessage([]byte("message"))
		filotest.Await(t, "a message to fail", func() bool { return p.Queue(message) != nil })
		close(delayed)
		if err := filotest.Recv(t, ended, "the end"); err == errClosed {
			t.Error("the function wasn't called again")
		} else if string(got) != "alast" {
			t.Errorf("got %q, then %v", got, err)
		}
	})
}
