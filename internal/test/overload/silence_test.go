package overload

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

const (
	silenceTime  = 200 * time.Millisecond // ReadTimeout and WriteTimeout
	silencePause = silenceTime * 3 / 4    // the pauses of a client that sends or reads one byte at a time
	silenceShort = silenceTime / 10       // pauses so short that a sweep never finds an expired wait
	silenceRate  = 500                    // MinTransferRate: at this rate, the bytes that clients transfer at the beginning would allow minutes
	silenceWait  = 20 * time.Second       // the limit of a test's waits: much longer than allowed silence, and much shorter than those minutes
	silenceSlow  = 3 * time.Second        // ReadTimeout and WriteTimeout in tests whose clients must not time out
)

// silenceAnswer is much larger than the buffers between a server and its client. Nobody writes to it, so the system allocates no memory for it.
var silenceAnswer = sync.OnceValue(func() []byte { return make([]byte, 64<<20) })

// silenceServer serves handlers that wait for their clients in different ways. ended receives the errors that end these waits.
func silenceServer(t *testing.T, timeout time.Duration) (s *filotest.Server, ended chan error) {
	ended = make(chan error, 10)
	file := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 64<<20)); err != nil {
		t.Fatal(err)
	}
	return filotest.Serve(t, &filo.Server{
		ReadTimeout: timeout, WriteTimeout: timeout, MinTransferRate: silenceRate, MaxBodyBytes: 64 << 20,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}},
		Handler: func(c *filo.Ctx) (err error) {
			switch c.Path() {
			case "/whole":
				_, err = c.Body()
			case "/pieces":
				_, err = io.Copy(io.Discard, c.BodyReader())
			case "/unread":
				return c.Text(200, "unread")
			case "/stream":
				err = silenceStream(c)
			case "/large":
				return c.BytesNoCopy(200, "text/plain", silenceAnswer())
			case "/file":
				return c.File(file)
			}
			ended <- err
			return err
		},
	}), ended
}

// silenceStream writes an endless answer.
func silenceStream(c *filo.Ctx) (err error) {
	for stream := c.Stream(); err == nil; {
		_, err = stream.Write(silenceAnswer()[:64<<10])
	}
	return err
}

// A client that has sent or read many bytes may not be silent for longer than any other client, even if it occasionally sends or reads a byte.
func TestBoughtSilence(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	var all sync.WaitGroup
	defer all.Wait()
	for _, test := range []struct {
		path   string
		length int // the length of the body; 0: the client reads 256 KB of the answer
		sent   int
	}{
		{"/whole", size, size - 100},
		{"/whole", 2000, 1900}, // the loop driver waits for such a short body before it calls the handler
		{"/pieces", size, size - 100},
		{"/unread", 200_000, 100_000},
		{"/stream", 0, 0},
		{"/large", 0, 0},
		{"/file", 0, 0},
	} {
		for _, pause := range []time.Duration{0, silencePause, silenceShort} {
			for _, secure := range []bool{false, true} {
				s, ended := silenceServer(t, silenceTime)
				conn := silenceDial(t, s, secure, false)
				all.Go(func() {
					conn.SetDeadline(time.Now().Add(silenceWait))
					if test.length > 0 {
						fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", test.path, test.length)
						conn.Write(make([]byte, test.sent))
					} else {
						fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", test.path)
						io.ReadFull(conn, make([]byte, size))
					}
					over := make(chan struct{})
					defer close(over)
					if pause > 0 {
						go silenceTrickle(conn, test.length > 0, pause, over)
					}
					if err := silenceEnds(s, ended, test.path); err != nil {
						t.Errorf("%s %d, pause %v, TLS %t: %v", test.path, test.length, pause, secure, err)
					}
				})
			}
		}
	}
}

// silenceDial connects to a server. If secure is true, it uses TLS.
func silenceDial(t *testing.T, s *filotest.Server, secure, slow bool) net.Conn {
	addr := s.Addr
	if secure {
		l := filotest.Listen(t, "tcp", "127.0.0.1:0")
		s.Go(func() { s.ServeTLS(l, "", "") })
		addr = l.Addr().String()
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if slow {
		conn.(*net.TCPConn).SetReadBuffer(8 << 10) // otherwise the client's system receives many bytes at once, and then none for a long time
	}
	t.Cleanup(func() { conn.Close() })
	if secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	return conn
}

// silenceTrickle sends or reads a byte after each pause.
func silenceTrickle(conn net.Conn, sends bool, pause time.Duration, over chan struct{}) {
	var err error
	for err == nil {
		select {
		case <-over:
			return
		case <-time.After(pause):
		}
		if sends {
			_, err = conn.Write(make([]byte, 1))
		} else {
			_, err = conn.Read(make([]byte, 1))
		}
	}
}

// silenceEnds waits until the server no longer waits for its client: until the handler has ended, or the connection if no handler waits.
func silenceEnds(s *filotest.Server, ended chan error, path string) error {
	switch path {
	case "/unread", "/large", "/file":
		for limit := time.Now().Add(silenceWait); s.Stats().ConnsOpen > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(limit) {
				return errors.New("the connection of a silent client is still there")
			}
		}
	default:
		select {
		case err := <-ended:
			if err == nil || path == "/stream" && !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("the wait for a silent client has ended with %v", err)
			}
		case <-time.After(silenceWait):
			return errors.New("the handler still waits for a silent client")
		}
	}
	return nil
}

// The same holds for HTTP/2 streams: for a body that lacks a byte, and an answer whose window stays closed.
func TestBoughtSilenceHTTP2(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		var all sync.WaitGroup
		defer all.Wait()
		for _, pause := range []time.Duration{0, silencePause, silenceShort} {
			for _, path := range []string{"/whole", "/pieces", "/awaited", "/stream"} {
				ended := make(chan error, 1)
				_, dial := serve(&filo.Server{ReadTimeout: silenceTime, WriteTimeout: silenceTime, MinTransferRate: silenceRate,
					Handler: func(c *filo.Ctx) (err error) {
						switch c.Path() {
						case "/pieces":
							_, err = io.Copy(io.Discard, c.BodyReader())
						case "/stream":
							err = silenceStream(c)
						default:
							_, err = c.Body()
						}
						ended <- err
						return err
					}})
				c := dial()
				all.Go(func() {
					if err := silenceStreamEnds(c, path, pause, ended); err != nil {
						t.Errorf("%s, pause %v: %v", path, pause, err)
					}
				})
			}
		}
	})
}

// silenceStreamEnds sends a request, and then sends nothing, or one byte after each pause, until the handler ends.
func silenceStreamEnds(c *filotest.RawHTTP2, path string, pause time.Duration, ended chan error) error {
	if path == "/stream" {
		c.Open(0, 4<<20).Request(1, path, true).Send()
		c.Open(1, 256<<10).Send()
	} else {
		length := 65_000
		if path == "/awaited" {
			length = 10_000
		}
		c.Request(1, path, false, ":method", "POST", "content-length", fmt.Sprint(length))
		for left := length - 50; left > 0; left -= 10_000 {
			c.Data(1, false, make([]byte, min(left, 10_000)))
		}
		c.Send()
	}
	for limit := time.After(silenceWait); ; {
		var tick <-chan time.Time
		if pause > 0 {
			tick = time.After(pause)
		}
		select {
		case err := <-ended:
			if err == nil {
				return errors.New("the wait for a silent client has ended without an error")
			}
			return nil
		case <-tick:
			if path == "/stream" {
				c.Open(1, 1).Send()
			} else {
				c.Data(1, false, make([]byte, 1)).Send()
			}
		case <-limit:
			return errors.New("the handler still waits for a silent client")
		}
	}
}

// A slow client is served however long it takes, if it is faster than MinTransferRate, and never silent for as long as the time-out.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	const tick, piece, pieces = 40 * time.Millisecond, 200, 165 // 6.6 s at 5 KB a second
	var all sync.WaitGroup
	defer all.Wait()
	for _, secure := range []bool{false, true} {
		for _, path := range []string{"/whole", "/pieces"} {
			s, ended := silenceServer(t, silenceSlow)
			conn := silenceDial(t, s, secure, true)
			all.Go(func() {
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", path, piece*pieces)
				silencePaced(tick, pieces, func(n int) bool {
					conn.Write(make([]byte, n*piece))
					return true
				})
				select {
				case err := <-ended:
					if err != nil {
						t.Errorf("%s, TLS %t: the body of a slow client: %v", path, secure, err)
					}
				case <-time.After(silenceWait):
					t.Errorf("%s, TLS %t: the handler still waits for the body", path, secure)
				}
			})
		}
		for _, path := range []string{"/stream", "/large", "/file"} {
			s, _ := silenceServer(t, silenceSlow)
			conn := silenceDial(t, s, secure, true)
			all.Go(func() {
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
				silencePaced(tick, pieces, func(n int) bool {
					_, err := io.ReadFull(conn, make([]byte, n*4<<10))
					if err != nil {
						t.Errorf("%s, TLS %t: a slow client is cut off: %v", path, secure, err)
					}
					return err == nil
				})
			})
		}
	}
}

// silencePaced makes one piece due at each tick, and calls handle with the number of due pieces, until handle returns false. If the test is
// late, it catches up, because otherwise its client would be slower than intended.
func silencePaced(tick time.Duration, pieces int, handle func(n int) bool) {
	start := time.Now()
	for done := 0; done < pieces; time.Sleep(tick) {
		due := min(int(time.Since(start)/tick)+1, pieces)
		if !handle(due - done) {
			return
		}
		done = due
	}
}
