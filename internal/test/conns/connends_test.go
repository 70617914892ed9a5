package conns

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// connEnd is a way to end a connection.
type connEnd struct {
	config func(*filo.Server) // nil for none
	// end uses a client's connection until the connection ends.
	end    func(t *testing.T, s *filotest.Server, conn net.Conn)
	told   []filo.ConnState // the final states that ConnState must receive; nil: only StateClosed
	over   string           // "TLS": only tried over TLS; "server's": not tried with a listener that returns TLS connections
	early  bool             // end gets the socket, even over TLS
	leaves bool             // the client ends the connection, not the server
	last   bool             // this also ends the server
}

// connEndParked are the final states of a parked connection.
var connEndParked = []filo.ConnState{filo.StateHijacked, filo.StateClosed}

// connEndHandler is the handler of all tests. Its paths are the ways in which a handler can end the connection.
func connEndHandler(c *filo.Ctx) error {
	if c.Query("body") != "" {
		c.Response.SetBodyStream(connEndBody{}, -1)
	}
	how, isParked := strings.CutPrefix(c.Path(), "/park/")
	switch {
	case isParked:
		return connEndPark(c, how)
	case c.Path() == "/panic":
		panic("on purpose")
	case c.Path() == "/goexit":
		runtime.Goexit()
	case c.Path() == "/broken":
		w := c.Stream()
		io.WriteString(w, "the beginning")
		w.Flush()
		return errors.New("and no end")
	case c.Path() == "/refuse":
		return filo.Error(403, "no")
	case c.Path() == "/hold":
		<-c.Context().Done()
	case c.Path() == "/hijack":
		conn, _, err := c.Hijack()
		if err != nil {
			return err
		}
		return conn.Close()
	case c.Path() == "/hijack/goexit":
		if conn, _, err := c.Hijack(); err == nil {
			conn.Close()
		}
		runtime.Goexit()
	}
	return c.Text(200, "fine")
}

// connEndBody is an answer's body whose Close calls runtime.Goexit.
type connEndBody struct{}

func (connEndBody) Read([]byte) (int, error) { return 0, io.EOF }

func (connEndBody) Close() error {
	runtime.Goexit()
	return nil
}

// connEndPark parks a connection. When the client sends bytes, the connection ends. The parameter how says in which way.
func connEndPark(c *filo.Ctx, how string) error {
	serve := func(p *filo.ParkedConn, why filo.Wake) error {
		if why == filo.WakeShutdown {
			return nil
		}
		if _, err := p.Read(make([]byte, 1)); err != nil {
			return err
		}
		switch how {
		case "panic":
			panic("on purpose")
		case "goexit":
			runtime.Goexit()
		case "error":
			return errors.New("on purpose")
		case "close":
			p.Close()
			return nil
		case "end":
			p.End()
			return nil
		case "stays":
			return nil
		}
		return io.EOF
	}
	var p *filo.ParkedConn
	var err error
	if how == "stream" {
		p, err = c.ParkStream(serve)
	} else {
		p, err = c.Park("test", serve)
	}
	if err == nil {
		p.OnClose(func() {
			switch how {
			case "onclose panic":
				panic("on purpose")
			case "onclose goexit":
				runtime.Goexit()
			}
		})
	}
	return err
}

// connEndRead reads until the connection ends.
func connEndRead(t *testing.T, conn io.Reader) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server doesn't end the connection")
	}
}

// connEndAsk sends a request and reads until the connection ends.
func connEndAsk(text string) func(*testing.T, *filotest.Server, net.Conn) {
	return func(t *testing.T, _ *filotest.Server, conn net.Conn) {
		io.WriteString(conn, text)
		connEndRead(t, conn)
	}
}

// connEndAnswered sends a request and reads its answer. Then end ends the connection.
func connEndAnswered(end func(t *testing.T, s *filotest.Server, c *filotest.Client)) func(*testing.T, *filotest.Server, net.Conn) {
	return func(t *testing.T, s *filotest.Server, conn net.Conn) {
		c := filotest.NewClient(t, conn)
		c.Get("/")
		c.Want(200, "fine", false)
		end(t, s, c)
	}
}

// connEndParks returns a connEnd that parks the connection and wakes it.
func connEndParks(how string) connEnd {
	cuts := how == "close" // the client may notice the end before the server has processed it
	return connEnd{told: connEndParked, leaves: cuts || how == "stays", end: func(t *testing.T, s *filotest.Server, conn net.Conn) {
		c := filotest.NewClient(t, conn)
		c.Send("GET /park/" + strings.ReplaceAll(how, " ", "%20") + " HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
		if line, err := c.Reader.ReadString('\n'); err != nil {
			t.Errorf("got %q, %v", line, err)
		}
		if c.Send("x"); how == "stays" {
			return
		}
		connEndRead(t, c.Reader)
	}}
}

// connEnds lists the ways to end an HTTP/1 connection.
var connEnds = map[string]connEnd{
	"the client closes":                         {end: connEndAnswered(func(*testing.T, *filotest.Server, *filotest.Client) {}), leaves: true},
	"the client sends nothing":                  {end: func(*testing.T, *filotest.Server, net.Conn) {}, leaves: true},
	"the client resets":                         {end: func(_ *testing.T, _ *filotest.Server, conn net.Conn) { conn.(*net.TCPConn).SetLinger(0) }, early: true, leaves: true},
	"an answer ends it":                         {end: connEndAsk("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")},
	"a head is refused":                         {end: connEndAsk("GET / HTTP/1.1\r\n\r\n")},
	"it lingers":                                {end: connEndAsk("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nthe beginning")},
	"the handler panics":                        {end: connEndAsk("GET /panic HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")},
	"the handler's Goexit":                      {end: connEndAsk("GET /goexit HTTP/1.1\r\nHost: a\r\n\r\n")},
	"the handler's Goexit and its body's":       {end: connEndAsk("GET /goexit?body=1 HTTP/1.1\r\nHost: a\r\n\r\n")},
	"the handler's panic and its body's Goexit": {end: connEndAsk("GET /panic?body=1 HTTP/1.1\r\nHost: a\r\n\r\n")},
	"hijacked, Goexit":                          {end: connEndAsk("GET /hijack/goexit HTTP/1.1\r\nHost: a\r\n\r\n"), told: []filo.ConnState{filo.StateHijacked}},
	"hijacked, its body's Goexit":               {end: connEndAsk("GET /hijack?body=1 HTTP/1.1\r\nHost: a\r\n\r\n"), told: []filo.ConnState{filo.StateHijacked}},
	"hijacked, Goexit and its body's":           {end: connEndAsk("GET /hijack/goexit?body=1 HTTP/1.1\r\nHost: a\r\n\r\n"), told: []filo.ConnState{filo.StateHijacked}},
	"parked, its body's Goexit":                 connEndParks("goexit?body=1"),
	"an answer breaks off":                      {end: connEndAsk("GET /broken HTTP/1.1\r\nHost: a\r\n\r\n")},
	"a reset breaks off":                        {end: connEndAsk("GET /broken HTTP/1.0\r\n\r\n")},
	"parked":                                    connEndParks("eof"),
	"parked stream":                             connEndParks("stream"),
	"parked, panic":                             connEndParks("panic"),
	"parked, Goexit":                            connEndParks("goexit"),
	"parked, error":                             connEndParks("error"),
	"parked, Close":                             connEndParks("close"),
	"parked, End":                               connEndParks("end"),
	"parked, the client closes":                 connEndParks("stays"),
	"OnClose panics":                            connEndParks("onclose panic"),
	"OnClose's Goexit":                          connEndParks("onclose goexit"),
	"hijacked":                                  {end: connEndAsk("GET /hijack HTTP/1.1\r\nHost: a\r\n\r\n"), told: []filo.ConnState{filo.StateHijacked}},
	"a PROXY header is refused": {
		config: func(config *filo.Server) { config.ProxyProtocol = loopback },
		end:    connEndAsk("this is no header of the PROXY protocol\r\n\r\n"), over: "server's", early: true,
	},
	"a proxy's client has too many": {
		config: func(config *filo.Server) { config.ProxyProtocol, config.MaxConnsPerIP = loopback, 1 },
		end: func(t *testing.T, s *filotest.Server, conn net.Conn) {
			first := s.Dial(t)
			defer first.Close()
			if first.Send(proxied1); s.TLSConfig != nil {
				first = filotest.NewClient(t, tls.Client(first.Conn, filotest.ClientTLS()))
			}
			first.Get("/")
			first.Want(200, "fine", false)
			io.WriteString(conn, proxied1+"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			connEndRead(t, conn)
		}, over: "server's", early: true,
	},
	"a TLS handshake fails": {end: connEndAsk("\x16\x03\x01\x00\x05hello"), over: "TLS", early: true},
	"HTTP instead of TLS":   {end: connEndAsk("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), over: "TLS", early: true},
	"Shutdown": {end: connEndAnswered(func(t *testing.T, s *filotest.Server, c *filotest.Client) {
		if err := s.ShutdownInTime(); err != nil {
			t.Error(err)
		}
		connEndRead(t, c.Reader)
	}), last: true},
	"Close": {end: connEndAnswered(func(t *testing.T, s *filotest.Server, c *filotest.Client) {
		c.Get("/hold")
		filotest.Await(t, "the handler", func() bool { return s.Stats().ConnsActive == 1 })
		s.Close()
		connEndRead(t, c.Reader)
	}), last: true},
}

// connEndHTTP2 returns a connEnd that opens a stream for a path and reads its answer. Then end ends the connection.
func connEndHTTP2(path string, end func(t *testing.T, s *filotest.Server, c *filotest.RawHTTP2)) connEnd {
	return connEnd{leaves: true, end: func(t *testing.T, s *filotest.Server, conn net.Conn) {
		c := filotest.NewRawHTTP2(t, conn)
		switch how, parks := strings.CutPrefix(path, "/park/"); {
		case path == "/hold":
			c.Request(1, path, true).Send()
			filotest.Await(t, "the handler", func() bool { return s.Stats().Streams == 1 })
		case !parks:
			c.Request(1, path, true).Send().Answer(1)
		case how == "stream":
			c.Request(1, path, true).Send()
			filotest.Await(t, "the stream", func() bool { return s.Stats().Streams == 1 })
		default:
			c.Request(1, path, false, ":method", "CONNECT", ":protocol", "test").Data(1, false, []byte("x")).Send()
			if how != "stays" {
				c.Answer(1)
			}
		}
		end(t, s, c)
	}}
}

// connEndTake reads frames until an HTTP/2 connection ends.
func connEndTake(t *testing.T, _ *filotest.Server, c *filotest.RawHTTP2) {
	t.Helper()
	for {
		if err := c.Take(); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the server doesn't end the connection")
			return
		} else if err != nil {
			return
		}
	}
}

func connEndNot(*testing.T, *filotest.Server, *filotest.RawHTTP2) {}

// connEndsHTTP2 lists the ways to end an HTTP/2 connection.
var connEndsHTTP2 = map[string]connEnd{
	"the client closes": connEndHTTP2("/", connEndNot),
	"the client's GOAWAY": connEndHTTP2("/", func(t *testing.T, s *filotest.Server, c *filotest.RawHTTP2) {
		c.Add(func(f *http2.Framer) { f.WriteGoAway(0, http2.ErrCodeNo, nil) }).Send()
	}),
	"the server's GOAWAY": connEndHTTP2("/", func(t *testing.T, s *filotest.Server, c *filotest.RawHTTP2) {
		c.Data(0, false, []byte("x")).Send()
		connEndTake(t, s, c)
	}),
	"the handler panics":                  connEndHTTP2("/panic", connEndNot),
	"the handler's Goexit":                connEndHTTP2("/goexit", connEndNot),
	"an answer breaks off":                connEndHTTP2("/broken", connEndNot),
	"the client closes under a handler":   connEndHTTP2("/hold", connEndNot),
	"the client closes a parked stream":   connEndHTTP2("/park/stream", connEndNot),
	"the client closes a parked protocol": connEndHTTP2("/park/stays", connEndNot),
	"parked":                              connEndHTTP2("/park/eof", connEndNot),
	"parked, panic":                       connEndHTTP2("/park/panic", connEndNot),
	"parked, Goexit":                      connEndHTTP2("/park/goexit", connEndNot),
	"parked, error":                       connEndHTTP2("/park/error", connEndNot),
	"parked, Close":                       connEndHTTP2("/park/close", connEndNot),
	"parked, End":                         connEndHTTP2("/park/end", connEndNot),
	"OnClose panics":                      connEndHTTP2("/park/onclose%20panic", connEndNot),
	"OnClose's Goexit":                    connEndHTTP2("/park/onclose%20goexit", connEndNot),
	"Shutdown": connEndLast(connEndHTTP2("/", func(t *testing.T, s *filotest.Server, c *filotest.RawHTTP2) {
		shut := make(chan error, 1)
		go func() { shut <- s.ShutdownInTime() }()
		connEndTake(t, s, c)
		if err := filotest.Recv(t, shut, "Shutdown"); err != nil {
			t.Error(err)
		}
	})),
	"Close": connEndLast(connEndHTTP2("/hold", func(t *testing.T, s *filotest.Server, c *filotest.RawHTTP2) {
		s.Close()
		connEndTake(t, s, c)
	})),
}

func connEndLast(e connEnd) connEnd {
	e.last = true
	return e
}

// connTold records the calls of ConnState. It calls ended when a connection is closed, or when a handler takes it over.
type connTold struct {
	mu    sync.Mutex
	conns map[string]net.Conn           // new connections, by the client's address; guarded by mu
	told  map[net.Conn][]filo.ConnState // guarded by mu
	ended func()
}

func (c *connTold) changed(conn net.Conn, state filo.ConnState) {
	c.mu.Lock()
	if state == filo.StateNew {
		c.conns[conn.RemoteAddr().String()] = conn
	}
	c.told[conn] = append(c.told[conn], state)
	c.mu.Unlock()
	if state == filo.StateClosed || state == filo.StateHijacked {
		c.ended()
	}
}

// ends returns the final states of a connection: all states except StateNew, StateActive and StateIdle.
func (c *connTold) ends(address string) []filo.ConnState {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := slices.Clone(c.told[c.conns[address]])
	return slices.DeleteFunc(told, func(state filo.ConnState) bool { return state <= filo.StateIdle })
}

// ConnState is called exactly once for the end of a connection, however the connection ends and whatever ConnState does. When a client has
// noticed the end, a new connection can take the place. No descriptor or goroutine of the connection is left.
func TestConnEnds(t *testing.T) {
	if os.Getenv(filotest.DriverVariable) != "" {
		t.Skip("the test chooses its drivers")
	}
	ended := map[string]func(){
		"":                   func() {},
		"ConnState panics":   func() { panic("told on purpose") },
		"ConnState's Goexit": runtime.Goexit,
	}
	for _, driver := range []filo.Driver{filo.DriverLoop, filo.DriverBlocking} {
		if driver == filo.DriverLoop && (runtime.GOOS != "linux" || runtime.GOARCH == "386") {
			continue
		}
		for transport := range stateServers {
			if driver == filo.DriverLoop && transport == "listener's TLS" {
				continue // loops can't accept from such a listener
			}
			for what, ended := range ended {
				t.Run(fmt.Sprintf("%v/%s/%s", driver, transport, what), func(t *testing.T) {
					t.Setenv(filotest.DriverVariable, driver.String())
					for name, e := range connEnds {
						if e.over == "TLS" && transport == "plain" || e.over == "server's" && transport == "listener's TLS" {
							continue
						}
						t.Run(name, func(t *testing.T) { e.test(t, transport, false, ended) })
					}
					for name, e := range connEndsHTTP2 {
						if transport != "listener's TLS" {
							t.Run("HTTP2 "+name, func(t *testing.T) { e.test(t, transport, true, ended) })
						}
					}
				})
			}
		}
	}
}

// test opens a connection, ends it in this way, and checks the effects.
func (e *connEnd) test(t *testing.T, transport string, isHTTP2 bool, ended func()) {
	before := len(connEndSockets(t))
	var log filotest.Log
	told := &connTold{conns: make(map[string]net.Conn), told: make(map[net.Conn][]filo.ConnState), ended: ended}
	config := &filo.Server{Handler: connEndHandler, ConnState: told.changed, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	config.HTTP2.Unencrypted, config.HTTP2.ExtendedConnect = isHTTP2, true
	if e.config != nil {
		e.config(config)
	}
	reconnects := !e.leaves && !e.last && e.config == nil
	if reconnects {
		config.MaxConns = 1
	}
	server := stateServers[transport]
	s := server.serve(t, config)
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(filotest.Bound))
	address := conn.LocalAddr().String()
	client := conn
	if transport != "plain" && !e.early {
		config := filotest.ClientTLS()
		if isHTTP2 {
			config.NextProtos = []string{"h2"}
		}
		client = tls.Client(conn, config)
	}
	e.end(t, s, client)
	if reconnects {
		c := server.dial(s, t)
		c.Get("/")
		c.Want(200, "fine", false)
		c.Close()
	}
	conn.Close()
	want := e.told
	if want == nil {
		want = []filo.ConnState{filo.StateClosed}
	}
	filotest.Await(t, "the connection to go", func() bool { return s.Stats().ConnsOpen == 0 })
	filotest.Await(t, "ConnState to be told", func() bool { return len(told.ends(address)) >= len(want) })
	s.Close()
	s.WantServed(t, filo.ErrServerClosed)
	s.WantNoGoroutine(t)
	if got := told.ends(address); !slices.Equal(got, want) {
		t.Errorf("ConnState was told %v, want %v", got, want)
	}
	var left []string
	if !filotest.Try(func() bool { left = connEndSockets(t); return len(left) <= before }) {
		t.Errorf("%d sockets before and %d after: %v", before, len(left), left)
	}
	panics := strings.Count(log.String(), "told on purpose")
	wantPanics := strings.Count(fmt.Sprint(log.Lines("panic in ConnState")), "msg=")
	if panics != wantPanics {
		t.Errorf("a panic of ConnState was logged %d times elsewhere:\n%v", panics-wantPanics, log.String())
	}
}

// connEndSockets returns the process's open sockets.
func connEndSockets(t *testing.T) (sockets []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil // not on Linux
	}
	for _, entry := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && strings.HasPrefix(link, "socket:") {
			sockets = append(sockets, entry.Name()+" "+link)
		}
	}
	return sockets
}
