package overload

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// Most tests here use these time-outs, which all differ.
const (
	lifeHeadTime  = 1 * time.Second
	lifeReadTime  = 2 * time.Second
	lifeWriteTime = 3 * time.Second
	lifeIdleTime  = 5 * time.Second
	lifeRate      = 1000

	// lifeHour is longer than any test takes.
	lifeHour = time.Hour
	lifeTick = time.Millisecond
)

func lifeTimeouts() *filo.Server {
	return &filo.Server{
		ReadHeaderTimeout: lifeHeadTime, ReadTimeout: lifeReadTime, WriteTimeout: lifeWriteTime,
		IdleTimeout: lifeIdleTime, MinTransferRate: lifeRate, Handler: lifeTimed,
	}
}

// lifeLarge is an answer larger than the buffers of an in-memory connection.
var lifeLarge = bytes.Repeat([]byte("x"), 1<<20)

// lifeTimed is a handler with one behaviour for each path. If it sleeps, it sleeps for longer than any time-out.
func lifeTimed(c *filo.Ctx) error {
	const long = time.Minute
	switch c.Path() {
	case "/large":
		return c.BytesNoCopy(200, "text/plain", lifeLarge)
	case "/ignore":
		return c.Text(200, "ignored")
	case "/slow":
		time.Sleep(long)
		return c.Text(200, "slow")
	case "/between":
		reader, total := c.BodyReader(), 0
		for buffer := make([]byte, 4); ; time.Sleep(long) {
			n, err := reader.Read(buffer)
			if total += n; err == io.EOF {
				return c.Text(200, strings.Repeat("y", total))
			} else if err != nil {
				return err
			}
		}
	case "/events":
		stream := c.Stream()
		for range 5 {
			stream.WriteString("event\n")
			if err := stream.Flush(); err != nil {
				return err
			}
			time.Sleep(long)
		}
		return nil
	}
	body, err := c.Body()
	if err != nil {
		return err
	}
	return c.Bytes(200, "text/plain", body)
}

// lifeTrickle writes text in pieces, one after each pause, until the connection ends.
func lifeTrickle(c *servertest.Conn, text string, size int, pause time.Duration) {
	for len(text) > 0 {
		n := min(size, len(text))
		if _, err := io.WriteString(c, text[:n]); err != nil {
			return
		}
		text = text[n:]
		time.Sleep(pause)
	}
}

const lifePost = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n"

// lifeTimeoutTests are the cases of TestTimeouts. Each name is the sentence that the case tests.
var lifeTimeoutTests = []struct {
	name   string
	send   func(*servertest.Conn)
	status []string      // of the answers
	after  time.Duration // the earliest time of the connection's end
	within time.Duration // how much later the end may be
}{
	{
		"ReadHeaderTimeout is how long a new connection may stay silent: it is closed without an answer",
		func(*servertest.Conn) {},
		nil, lifeHeadTime, 300 * lifeTick,
	}, {
		"… and is how long a head may take: 408 after that",
		func(c *servertest.Conn) { io.WriteString(c, "GET / HT") },
		[]string{"408"}, lifeHeadTime, 300 * lifeTick,
	}, {
		"… counted from its first byte, however it trickles",
		func(c *servertest.Conn) {
			time.Sleep(900 * lifeTick)
			lifeTrickle(c, "GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 1000), 1, 100*lifeTick)
		},
		[]string{"408"}, 900*lifeTick + lifeHeadTime, 600 * lifeTick,
	}, {
		"… on a kept-alive connection too",
		func(c *servertest.Conn) {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			time.Sleep(4 * time.Second)
			lifeTrickle(c, "GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 1000), 1, 100*lifeTick)
		},
		[]string{"200", "408"}, 4*time.Second + lifeHeadTime, 600 * lifeTick,
	}, {
		"… and for a head that follows a pipelined request",
		func(c *servertest.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET") },
		[]string{"200", "408"}, lifeHeadTime, 300 * lifeTick,
	}, {
		"IdleTimeout is how long a connection may wait between requests: it is closed without an answer",
		func(c *servertest.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") },
		[]string{"200"}, lifeIdleTime, 300 * lifeTick,
	}, {
		"an empty line before a request is none (RFC 9112, section 2.2): the connection stays idle",
		func(c *servertest.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n") },
		[]string{"200"}, lifeIdleTime, 300 * lifeTick,
	}, {
		"ReadTimeout is how long a client may keep the server waiting for a body: 408",
		func(c *servertest.Conn) { io.WriteString(c, lifePost) },
		[]string{"408"}, lifeReadTime, 300 * lifeTick,
	}, {
		"… before the average rate must be MinTransferRate: 100 B/s are too few",
		func(c *servertest.Conn) {
			io.WriteString(c, lifePost)
			lifeTrickle(c, strings.Repeat("x", 30000), 10, 100*lifeTick)
		},
		[]string{"408"}, lifeReadTime, 1000 * lifeTick,
	}, {
		"… also when it comes in chunks",
		func(c *servertest.Conn) {
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
			lifeTrickle(c, strings.Repeat("1\r\nx\r\n", 5000), 6, 100*lifeTick)
		},
		[]string{"408"}, lifeReadTime, 1000 * lifeTick,
	}, {
		"… and when its trailer section does",
		func(c *servertest.Conn) {
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
			lifeTrickle(c, "X: "+strings.Repeat("x", 5000), 1, 100*lifeTick)
		},
		[]string{"408"}, lifeReadTime, 1000 * lifeTick,
	}, {
		"… and of a body that its handler didn't read, after the answer",
		func(c *servertest.Conn) {
			io.WriteString(c, strings.Replace(lifePost, " / ", " /ignore ", 1))
			lifeTrickle(c, strings.Repeat("x", 30000), 10, 100*lifeTick)
		},
		[]string{"200"}, lifeReadTime, 1000 * lifeTick,
	}, {
		"a body over MinTransferRate survives",
		func(c *servertest.Conn) {
			lifeTrickle(c, lifePost+strings.Repeat("x", 30000), 150, 100*lifeTick)
		},
		[]string{"200"}, 20 * time.Second, 6 * time.Second,
	}, {
		"time that the handler takes doesn't count",
		func(c *servertest.Conn) {
			io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		},
		[]string{"200"}, time.Minute, 300 * lifeTick,
	}, {
		"… nor between its reads of the body",
		func(c *servertest.Conn) {
			io.WriteString(c, "POST /between HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nConnection: close\r\n\r\n")
			lifeTrickle(c, "abcdefghijkl", 4, time.Minute+500*lifeTick)
		},
		[]string{"200"}, 3 * time.Minute, 2 * time.Second,
	}, {
		"… nor between what it streams",
		func(c *servertest.Conn) {
			io.WriteString(c, "GET /events HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		},
		[]string{"200"}, 5 * time.Minute, 300 * lifeTick,
	},
}

// Each time-out ends its kind of wait, with the right answer or none. The sweep runs every 250 ms, and finds the end one sweep later if a
// byte arrived just before.
func TestTimeouts(t *testing.T) {
	for _, test := range lifeTimeoutTests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servertest.NewServer(t, lifeTimeouts())
				c := s.Dial(t)
				start := time.Now()
				c.SetDeadline(start.Add(lifeHour))
				sent := make(chan struct{})
				go func() {
					test.send(c)
					close(sent)
				}()
				answer, err := io.ReadAll(c)
				took := time.Since(start)
				if err != nil {
					t.Errorf("reading: %v", err)
				}
				if got := filotest.Statuses(string(answer)); got != strings.Join(test.status, " ") {
					t.Errorf("got %q, want %v", answer, test.status)
				}
				// The coarse clock may lag by a twentieth of the shortest time-out.
				if early := lifeHeadTime / 20; took < test.after-early || took > test.after+test.within {
					t.Errorf("the connection ended after %v, want %v and at most %v more", took, test.after, test.within)
				}
				c.Close()
				<-sent
				// Stats also counts the server's own answers.
				var want [6]uint64
				for _, status := range test.status {
					want[status[0]-'0']++
				}
				if got := s.Config.Stats().Requests; got != want {
					t.Errorf("requests by status class: %v, want %v", got, want)
				}
			})
		})
	}
}

// WriteTimeout limits each wait for a client that doesn't read an answer, and the sum of these waits. Bytes that the client reads earn time
// back according to MinTransferRate, at most one WriteTimeout in advance.
func TestWriteTimeout(t *testing.T) {
	const sweep = lifeHeadTime / 4
	for _, test := range []struct {
		name  string
		rate  int // MinTransferRate
		take  int // bytes that the client reads
		every time.Duration
		want  bool // whether the whole answer arrives
		// limit is the time after which the server must have ended the connection.
		limit time.Duration
	}{
		{"a client that never reads", lifeRate, 0, 0, false, 2*lifeWriteTime + 64<<10/lifeRate*time.Second},
		{"… with no rate", -1, 0, 0, false, 2 * (lifeWriteTime + sweep)}, // during the first wait, the buffers have accepted some bytes
		{"a client that takes 500 of 1,000 bytes a second", lifeRate, 500, time.Second, false, 2 * 131 * time.Second},
		{"a client that takes 1,500 of 1,000 bytes a second", lifeRate, 1500, time.Second, true, 0},
		{"a client that takes 64 KB every 2 s, with no rate", -1, 64 << 10, 2 * time.Second, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := lifeTimeouts()
				config.MinTransferRate = test.rate
				start, ended := time.Now(), make(chan time.Duration, 1)
				config.ConnState = func(_ net.Conn, state filo.ConnState) {
					if state == filo.StateClosed {
						ended <- time.Since(start)
					}
				}
				c := servertest.NewServer(t, config).Dial(t)
				io.WriteString(c, "GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				received := 0
				if test.take > 0 {
					received = lifeTake(c, test.take, test.every)
				}
				took := lifeHour
				select {
				case took = <-ended:
				case <-time.After(lifeHour):
				}
				if whole := received > len(lifeLarge); whole != test.want {
					t.Errorf("the client got %d bytes of %d", received, len(lifeLarge))
				}
				if !test.want && (took < lifeWriteTime-lifeHeadTime/20 || took > test.limit) {
					t.Errorf("the connection ended after %v, want %v at the earliest, %v at the latest", took, lifeWriteTime, test.limit)
				}
			})
		})
	}
}

// lifeTake reads at most size bytes at a time until the end, and returns the number of all bytes.
func lifeTake(c net.Conn, size int, every time.Duration) (received int) {
	for buffer := make([]byte, size); ; time.Sleep(every) {
		n, err := c.Read(buffer)
		received += n
		if err != nil {
			return received
		}
	}
}

// A client never times out if each of its waits is slightly shorter than the time-out.
func TestTimeoutsLeaveHealthyConnectionsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.NewServer(t, lifeTimeouts())
		var clients sync.WaitGroup
		for i := range 8 {
			clients.Go(func() {
				c := s.Dial(t)
				for range 100 {
					// The pauses differ, so that the sweep finds each connection at a different moment of its wait.
					lifeTrickle(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n", 25, (400+time.Duration(i))*time.Millisecond)
					lifeTrickle(c, "body", 2, (900+time.Duration(i))*time.Millisecond)
					if !lifeAnswered(t, c) {
						return
					}
					time.Sleep(lifeIdleTime - lifeHeadTime - (300+time.Duration(i))*time.Millisecond)
				}
			})
		}
		clients.Wait()
	})
}

// lifeAnswered reads an answer, which must be a 200 with the body "body".
func lifeAnswered(t *testing.T, c net.Conn) bool {
	t.Helper()
	buffer := make([]byte, 4<<10)
	n, err := c.Read(buffer)
	if answer := string(buffer[:n]); err != nil || filotest.Statuses(answer) != "200" || !strings.HasSuffix(answer, "\r\n\r\nbody") {
		t.Errorf("got %q, %v", answer, err)
		return false
	}
	return true
}

// "A negative value means no limit".
func TestNoTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.NewServer(t, &filo.Server{Handler: lifeTimed, ReadHeaderTimeout: -1, ReadTimeout: -1, WriteTimeout: -1, IdleTimeout: -1})
		c := s.Dial(t)
		for _, piece := range []string{"", "POST / HT", "TP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n", "bo", "dy"} {
			time.Sleep(2 * time.Hour)
			io.WriteString(c, piece)
		}
		lifeAnswered(t, c)
		time.Sleep(2 * time.Hour)
		io.WriteString(c, "GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		time.Sleep(2 * time.Hour)
		if answer, err := io.ReadAll(c); err != nil || len(answer) < len(lifeLarge) {
			t.Errorf("got %d bytes, %v", len(answer), err)
		}
	})
}

// A Server without configured time-outs has these defaults.
func TestDefaultTimeouts(t *testing.T) {
	for _, test := range []struct {
		name, send, want string
		after            time.Duration
	}{
		{"ReadHeaderTimeout, 10 s: silent", "", "", 10 * time.Second},
		{"ReadHeaderTimeout, 10 s: a head", "GET / HT", "408", 10 * time.Second},
		{"ReadTimeout, 30 s", lifePost, "408", 30 * time.Second},
		{"IdleTimeout, 60 s", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "200", 60 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servertest.New(t, lifeTimed)
				c := s.Dial(t)
				start := time.Now()
				io.WriteString(c, test.send)
				answer, err := io.ReadAll(c)
				if got := filotest.Statuses(string(answer)); err != nil || got != test.want {
					t.Errorf("got %q, %v", answer, err)
				}
				if took := time.Since(start); took < test.after-100*time.Millisecond || took > test.after+1100*time.Millisecond {
					t.Errorf("the connection ended after %v, want %v", took, test.after)
				}
			})
		})
	}
}

// Thousands of connections that send nothing don't affect other connections, and leave nothing behind when they end.
func TestSilentConnections(t *testing.T) {
	const silent = 4000
	s, _ := filotest.ServeGated(t, &filo.Server{ReadHeaderTimeout: time.Hour, MaxIdleWorkerDuration: 50 * time.Millisecond})
	other := s.Dial(t)
	other.Get("/")
	other.Want(200, "quick", false)
	before := filotest.HeapInUse()
	conns := make(chan net.Conn, silent)
	var dialers sync.WaitGroup
	for range 8 {
		dialers.Go(func() {
			for range silent / 8 {
				conn, err := net.Dial("tcp", s.Addr)
				if err != nil {
					t.Error(err)
					return
				}
				conns <- conn
			}
		})
	}
	dialers.Wait()
	close(conns)
	filotest.Await(t, "the connections to be served", func() bool { return s.Stats().ConnsIdle == silent+1 })
	for range 10 {
		other.Get("/")
		other.Want(200, "quick", false)
		fresh := s.Dial(t)
		fresh.Get("/")
		fresh.Want(200, "quick", false)
		fresh.Close()
	}
	for conn := range conns {
		conn.Close()
	}
	filotest.Await(t, "the workers to retire", func() bool {
		stats := s.Stats()
		return stats.ConnsOpen == 1 && stats.WorkersRunning == filotest.WorkersOf(1) && stats.WorkersReady == 0
	})
	other.Get("/")
	other.Want(200, "quick", false)
	// The runtime keeps the g structures of goroutines that have ended, each of half a KB or more.
	filotest.Await(t, "the memory to be free", func() bool { return filotest.HeapInUse() < before+silent*2<<10 })
}

// "ReadHeaderTimeout limits … how long a TLS handshake may take", and how long a connection may stay silent after it.
func TestTLSTimeouts(t *testing.T) {
	for name, handshake := range map[string]bool{"no handshake": false, "nothing after the handshake": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := servertest.NewListener()
				s := lifeTimeouts()
				s.Logger = slog.New(slog.DiscardHandler)
				served := make(chan error, 1)
				go func() {
					served <- s.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}}))
				}()
				conn, err := listener.Dial()
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				if handshake {
					conn = tls.Client(conn, filotest.ClientTLS())
					if err := conn.(*tls.Conn).Handshake(); err != nil {
						t.Fatal(err)
					}
				} else {
					io.WriteString(conn, "\x16\x03\x01\x02\x00") // the beginning of a handshake
				}
				rest, err := io.ReadAll(conn)
				if took := time.Since(start); len(rest) > 0 || err != nil || took < lifeHeadTime*19/20 || took > lifeHeadTime*13/10 {
					t.Errorf("after %v: %q, %v; want EOF after %v", took, rest, err, lifeHeadTime)
				}
				want := filo.Timeouts{Handshake: 1}
				if handshake {
					want = filo.Timeouts{Silent: 1}
				}
				synctest.Wait()
				if got := s.Stats(); got.Timeouts != want || got.HandshakeErrors != 0 {
					t.Errorf("%+v and %d errors, want %+v", got.Timeouts, got.HandshakeErrors, want)
				}
				conn.Close()
				s.Close()
				<-served
			})
		})
	}
}
