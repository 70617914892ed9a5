package conns

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// stateServers lists the ways to serve a socket, each with a function that dials the server.
var stateServers = map[string]struct {
	serve func(testing.TB, *filo.Server) *filotest.Server
	dial  func(*filotest.Server, testing.TB) *filotest.Client
}{
	"plain": {func(t testing.TB, config *filo.Server) *filotest.Server { return filotest.Serve(t, config) },
		(*filotest.Server).Dial},
	"listener's TLS": {filotest.ServeTLS, (*filotest.Server).DialTLS},
	"server's TLS":   {filotest.ListenTLS, (*filotest.Server).DialTLS},
}

// stateConns holds the arguments of a call of ConnState.
type stateConns struct {
	conn  net.Conn
	state filo.ConnState
}

// ConnState gets the same net.Conn in all states of a connection. This net.Conn has the connection's addresses. Methods that only the server
// may call return errors.
func TestConnStateConn(t *testing.T) {
	for name, server := range stateServers {
		t.Run(name, func(t *testing.T) {
			told := make(chan stateConns, 100)
			gate := filotest.NewGate()
			s := server.serve(t, &filo.Server{Handler: gate.Handle, ConnState: func(conn net.Conn, state filo.ConnState) {
				told <- stateConns{conn, state}
			}})
			t.Cleanup(gate.Open)
			c := server.dial(s, t)
			c.Get("/")
			c.Want(200, "quick", false)
			var conn net.Conn
			for conn == nil || conn.RemoteAddr().String() != c.LocalAddr().String() { // skip connections that only checked whether the server listens
				conn = filotest.Recv(t, told, "the new connection").conn
			}
			if got, want := conn.LocalAddr().String(), c.RemoteAddr().String(); got != want {
				t.Errorf("LocalAddr is %s, want %s", got, want)
			}
			for what, err := range map[string]error{
				"Read":             stateSecond(conn.Read(make([]byte, 1))),
				"Write":            stateSecond(conn.Write([]byte("mine"))),
				"SetDeadline":      conn.SetDeadline(time.Now().Add(-time.Hour)),
				"SetReadDeadline":  conn.SetReadDeadline(time.Now().Add(-time.Hour)),
				"SetWriteDeadline": conn.SetWriteDeadline(time.Now().Add(-time.Hour)),
			} {
				if err == nil || !strings.Contains(err.Error(), "Hijack") {
					t.Errorf("%s: %v", what, err)
				}
			}
			c.Get("/")
			c.Want(200, "quick", false)
			c.Close()
			for state := filo.StateNew; state != filo.StateClosed; {
				next := filotest.Recv(t, told, "the connection to be closed")
				if next.conn.RemoteAddr().String() != c.LocalAddr().String() {
					continue // ConnState may be called late for the end of such a connection
				}
				if next.conn != conn {
					t.Errorf("in state %v it is another connection", next.state)
				}
				state = next.state
			}
			filotest.Await(t, "its socket to be closed", func() bool { return conn.Close() != nil })
			if got, want := conn.RemoteAddr().String(), c.LocalAddr().String(); got != want {
				t.Errorf("at last RemoteAddr is %s, want %s", got, want)
			}
		})
	}
}

func stateSecond(_ int, err error) error { return err }

// Closing the net.Conn that ConnState has received ends the connection at once, whatever the server is doing with the connection.
func TestConnStateClose(t *testing.T) {
	for name, server := range stateServers {
		t.Run(name, func(t *testing.T) {
			gate, news := filotest.NewGate(), make(chan net.Conn, 100)
			s := server.serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
				switch c.Path() {
				case "/hijack":
					conn, _, err := c.Hijack()
					if err == nil {
						fmt.Fprint(conn, "HTTP/1.1 204 No Content\r\n\r\n")
						io.Copy(io.Discard, conn)
						conn.Close()
					}
					return err
				case "/park":
					_, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
					return err
				case "/body":
					_, err := c.Body()
					return err
				}
				return gate.Handle(c)
			}, ConnState: func(conn net.Conn, state filo.ConnState) {
				if state == filo.StateNew {
					news <- conn
				}
			}})
			t.Cleanup(gate.Open)
			for what, request := range map[string]string{
				"idle":                  "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
				"hijacked":              "GET /hijack HTTP/1.1\r\nHost: a\r\n\r\n",
				"parked":                "GET /park HTTP/1.1\r\nHost: a\r\n\r\n",
				"in a handler":          "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n",
				"waiting for a body":    "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\nthe beginning",
				"in the midst of heads": "GET / HTTP/1.1\r\nHo",
			} {
				c := server.dial(s, t)
				c.Send(request)
				switch what {
				case "in a handler":
					filotest.Recv(t, gate.Entered, "the handler")
				case "idle", "hijacked", "parked":
					if response, err := c.Reader.Peek(9); err != nil || string(response) != "HTTP/1.1 " {
						t.Errorf("%s: got %q, %v", what, response, err)
					}
				}
				var conn net.Conn
				for conn == nil || conn.RemoteAddr().String() != c.LocalAddr().String() { // skip connections that only checked whether the server listens
					conn = filotest.Recv(t, news, "the new connection")
				}
				if err := conn.Close(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if _, err := io.Copy(io.Discard, c.Reader); err != nil && !filotest.IsReset(err) && err != io.ErrUnexpectedEOF {
					t.Errorf("%s: %v", what, err) // the client's deadline has passed, so the connection hasn't ended
				}
				c.Close()
			}
			gate.Open()
			filotest.Await(t, "the connections to go", func() bool { return s.Stats().ConnsOpen == 0 })
		})
	}
}

// If another goroutine closes a connection, the descriptor stays open until the connection's owner, or the lingerer, no longer uses it,
// because the kernel may assign the number of a closed descriptor to another connection at once. (The race detector reports a descriptor that
// is closed too early.)
func TestCloseWhileItLingers(t *testing.T) {
	for name, server := range stateServers {
		t.Run(name, func(t *testing.T) {
			var clients sync.WaitGroup
			over := make(chan net.Conn, 100)
			s := server.serve(t, &filo.Server{Handler: lifeLingering, ConnState: func(conn net.Conn, state filo.ConnState) {
				if state == filo.StateClosed {
					over <- conn
				}
			}})
			for len(over) > 0 {
				<-over
			}
			for range 20 {
				c := server.dial(s, t)
				c.Send("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
				clients.Go(func() {
					for block := make([]byte, 32<<10); ; {
						if _, err := c.Write(block); err != nil {
							return
						}
					}
				})
				conn := filotest.Recv(t, over, "the connection to linger")
				for range 3 {
					go conn.Close()
				}
				clients.Wait() // long before the lingering would end by itself
				c.Close()
			}
		})
	}
}

// A panic in ConnState ends the new connection alone, even if the goroutine that waits in the program's listener has accepted it, which it
// does once no connection has arrived for a second.
func TestPanicInStateNew(t *testing.T) {
	const quiet = 1300 * time.Millisecond
	var news atomic.Int32
	s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "served") }, ConnState: func(_ net.Conn, state filo.ConnState) {
		if state == filo.StateNew && news.Add(1) == 1 {
			panic("on purpose")
		}
	}})
	time.Sleep(quiet)
	s.Dial(t).WantEnd()
	c := s.Dial(t)
	c.Get("/")
	c.Want(200, "served", false)
}
