package overload

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// lifeStates records the states that ConnState has received, by connection.
type lifeStates struct {
	mu    sync.Mutex
	conns []net.Conn                    // in the order of their first state; guarded by mu
	seen  map[net.Conn][]filo.ConnState // guarded by mu
}

func (l *lifeStates) changed(conn net.Conn, state filo.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = make(map[net.Conn][]filo.ConnState)
	}
	if l.seen[conn] == nil {
		l.conns = append(l.conns, conn)
	}
	l.seen[conn] = append(l.seen[conn], state)
}

// String returns a line with the states of each connection.
func (l *lifeStates) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, conn := range l.conns {
		lines = append(lines, strings.Trim(fmt.Sprint(l.seen[conn]), "[]"))
	}
	return strings.Join(lines, "\n")
}

// lifeStateful is a handler that ends its requests in various ways.
func lifeStateful(c *filo.Ctx) error {
	switch c.Path() {
	case "/hijack":
		conn, _, err := c.Hijack()
		if err != nil {
			return err
		}
		return conn.Close()
	case "/upgrade":
		conn, _, err := c.Upgrade("echo")
		if err != nil {
			return err
		}
		return conn.Close()
	case "/abort":
		return filo.ErrAbort
	case "/panic":
		panic("on purpose")
	case "/hints":
		if err := c.EarlyHints(); err != nil {
			return err
		}
	case "/stream":
		stream := c.Stream()
		stream.WriteString("begun")
		if err := stream.Flush(); err != nil {
			return err
		}
	case "/redirect":
		return c.Redirect(303, "/")
	case "/missing":
		return filo.Error(404, "")
	case "/body":
		if _, err := c.Body(); err != nil {
			return err
		}
	}
	return c.Text(200, "quick")
}

// "A connection begins as new. It is active from the first byte of a request until its answer is written, idle between
// requests, and closed or hijacked at the end."
func TestConnStates(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	type piece struct {
		send    string
		answers int // the number of answers to read before the next piece is sent
	}
	for _, test := range []struct {
		name   string
		pieces []piece
		want   string
	}{
		{"silent", nil, "new closed"},
		{"one request", []piece{{get, 1}}, "new active idle closed"},
		{"kept alive", []piece{{get, 1}, {get, 1}, {get, 1}}, "new active idle active idle active idle closed"},
		{"pipelined", []piece{{get + get + get, 3}}, "new active idle closed"},
		{"the last answer closes", []piece{{get, 1}, {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 1}}, "new active idle active closed"},
		{"half a head and its rest", []piece{{get[:7], 0}, {get[7:], 1}}, "new active idle closed"},
		{"half a head", []piece{{get[:7], 0}}, "new active closed"},
		{"a malformed request", []piece{{"GET /\r\n\r\n", 1}}, "new active closed"},
		{"hijacked", []piece{{get, 1}, {"GET /hijack HTTP/1.1\r\nHost: a\r\n\r\n", 0}}, "new active idle active hijacked"},
		{"upgraded", []piece{{"GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", 1}}, "new active hijacked"},
		{"aborted", []piece{{"GET /abort HTTP/1.1\r\nHost: a\r\n\r\n", 0}}, "new active closed"},
		{"a panic", []piece{{"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n", 1}}, "new active idle closed"},
		{"a body in pieces", []piece{{"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo", 0}, {"dy", 1}}, "new active idle closed"},
		{"a body that isn't read, in pieces", []piece{{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo", 1}, {"dy", 0}}, "new active idle closed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var states lifeStates
				s := servertest.NewServer(t, &filo.Server{Handler: lifeStateful, ConnState: states.changed, Logger: slog.New(slog.DiscardHandler)})
				c := s.Dial(t)
				synctest.Wait()
				for _, piece := range test.pieces {
					io.WriteString(c, piece.send)
					synctest.Wait()
					if piece.answers > 0 {
						buffer := make([]byte, 4<<10)
						n, err := c.Read(buffer)
						if got := len(strings.Fields(filotest.Statuses(string(buffer[:n])))); err != nil || got != piece.answers {
							t.Fatalf("got %q, %v; want %d answers", buffer[:n], err, piece.answers)
						}
					}
				}
				c.Close()
				synctest.Wait()
				if got := states.String(); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		})
	}
}

// A refused connection is never served, so ConnState isn't called for it.
func TestConnStatesRefused(t *testing.T) {
	for name, config := range map[string]*filo.Server{
		"Concurrency":   {Concurrency: 1, Driver: filo.DriverBlocking},
		"MaxConns":      {MaxConns: 1},
		"MaxConnsPerIP": {MaxConnsPerIP: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var states lifeStates
			config.ConnState = states.changed
			s, gate := filotest.ServeGated(t, config)
			gate.Hold(t, s.Dial(t))
			status := 503
			if name == "MaxConnsPerIP" {
				status = 429
			}
			s.Dial(t).WantRefusal(status)
			if got := states.String(); got != "new active" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// During Shutdown and Close, ConnState is called exactly once for each connection's end.
func TestConnStatesAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*filotest.Server) error{
		"Shutdown": (*filotest.Server).ShutdownInTime,
		"Close":    func(s *filotest.Server) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			var states lifeStates
			s, _ := filotest.ServeGated(t, &filo.Server{ConnState: states.changed})
			s.Dial(t)
			filotest.Await(t, "the first connection", func() bool { return states.String() == "new" })
			idle := s.Dial(t)
			idle.Get("/")
			idle.Want(200, "quick", false)
			filotest.Await(t, "the second one to be idle", func() bool { return strings.HasSuffix(states.String(), "idle") })
			if err := end(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			s.WantNoGoroutine(t)
			if got := states.String(); got != "new closed\nnew active idle closed" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// String returns the name of each ConnState.
func TestConnStateString(t *testing.T) {
	for state, want := range map[filo.ConnState]string{
		filo.StateNew: "new", filo.StateActive: "active", filo.StateIdle: "idle", filo.StateHijacked: "hijacked",
		filo.StateClosed: "closed", -1: "unknown", 5: "unknown",
	} {
		if got := state.String(); got != want {
			t.Errorf("ConnState(%d) is %q, want %q", int(state), got, want)
		}
	}
}

// Stats counts connections by their state: "ConnsIdle of them wait for a request (new ones too), ConnsActive have a
// request"; workers "serve a connection" or "wait for one".
func TestStatsOfStates(t *testing.T) {
	type counts struct{ idle, active, running, ready int }
	for _, test := range []struct {
		name string
		send string
		want counts
	}{
		{"new", "", counts{1, 0, 1, 0}},
		{"idle", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", counts{1, 0, 1, 0}},
		{"in a head", "GET / HT", counts{0, 1, 1, 0}},
		{"in a body", "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo", counts{0, 1, 1, 0}},
		{"in a handler", "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n", counts{0, 1, 1, 0}},
		{"in an answer", "GET /large HTTP/1.1\r\nHost: a\r\n\r\n", counts{0, 1, 1, 0}},
		{"in the rest of a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo", counts{0, 1, 1, 0}},
		{"closed", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", counts{0, 0, 0, 1}},
		{"hijacked", "GET /hijack HTTP/1.1\r\nHost: a\r\n\r\n", counts{0, 0, 0, 1}},
		{"lingering", "GET /\r\n\r\n", counts{0, 0, 0, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				s := servertest.NewServer(t, &filo.Server{Handler: func(c *filo.Ctx) error {
					switch c.Path() {
					case "/hold":
						<-release
					case "/large":
						return lifeTimed(c)
					}
					return lifeStateful(c)
				}})
				c := s.Dial(t)
				io.WriteString(c, test.send)
				synctest.Wait()
				stats := s.Config.Stats()
				if got := (counts{stats.ConnsIdle, stats.ConnsActive, stats.WorkersRunning, stats.WorkersReady}); got != test.want {
					t.Errorf("got %+v, want %+v", got, test.want)
				}
				if stats.ConnsOpen != stats.ConnsIdle+stats.ConnsActive || stats.ConnsAccepted != 1 || stats.ConnsRefused != 0 || stats.WorkersSpawned != 1 {
					t.Errorf("got %+v", stats)
				}
				close(release)
				c.Close()
			})
		})
	}
}

// "Requests counts the answers by status class", including the server's own answers, and those on connections that have ended.
func TestStatsRequests(t *testing.T) {
	for _, test := range []struct {
		request string
		want    [6]uint64
	}{
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{2: 1}},
		{"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{2: 1}},
		{"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{2: 1}},
		{"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{2: 1}},
		{strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 7), [6]uint64{2: 7}},
		{"GET /hints HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{2: 1}},
		{"GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", [6]uint64{1: 1}},
		{"GET /redirect HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{3: 1}},
		{"GET /missing HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{4: 1}},
		{"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{5: 1}},
		{"GET /panic HTTP/1.1\r\nHost: a\r\n\r\nGET /missing HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{2: 1, 4: 1, 5: 1}},
		{"GET /\r\n\r\n", [6]uint64{4: 1}},                                                                             // 400
		{"GET / HTTP/1.1\r\nHost: a\r\n", [6]uint64{4: 1}},                                                             // 400, cut off
		{"GET / HTTP/2.0\r\nHost: a\r\n\r\n", [6]uint64{5: 1}},                                                         // 505
		{"GET /" + strings.Repeat("x", 9000) + " HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{4: 1}},                        // 414
		{"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 20000) + "\r\n\r\n", [6]uint64{4: 1}},                // 431
		{"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n", [6]uint64{4: 1}},                       // 413
		{"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nshort", [6]uint64{4: 1}},                         // 400
		{"POST / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\nContent-Length: 4\r\n\r\nbody", [6]uint64{4: 1}},              // 417
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", [6]uint64{2: 1, 4: 1}}, // 400
		// Aborted and hijacked requests have no answer.
		{"GET /abort HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{}},
		{"GET /hijack HTTP/1.1\r\nHost: a\r\n\r\n", [6]uint64{}},
		{"", [6]uint64{}},
	} {
		t.Run(fmt.Sprintf("%.20q", test.request), func(t *testing.T) {
			s := servertest.NewServer(t, &filo.Server{Handler: lifeStateful, Logger: slog.New(slog.DiscardHandler)})
			for round := range uint64(2) {
				s.Raw(t, test.request)
				filotest.Await(t, "the connection to go", func() bool {
					stats := s.Config.Stats()
					return stats.ConnsAccepted == round+1 && stats.ConnsOpen == 0
				})
				want := test.want
				for class := range want {
					want[class] *= round + 1
				}
				if got := s.Config.Stats().Requests; got != want {
					t.Errorf("got %v, want %v", got, want)
				}
			}
		})
	}
}

// The answers of an open connection are counted as soon as they are sent.
func TestStatsRequestsOfOpenConnections(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{Handler: lifeStateful})
	for i := range uint64(10) {
		c := filotest.NewClient(t, s.Dial(t))
		c.Get("/")
		c.Want(200, "quick", false)
		c.Get("/missing")
		c.Answer()
		if got := s.Config.Stats().Requests; got[2] != i+1 || got[4] != i+1 {
			t.Errorf("after %d: %v", i+1, got)
		}
	}
}

// Stats may be called at any time, and no counter ever decreases.
func TestStatsMonotonic(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{Handler: lifeStateful, MaxIdleWorkerDuration: time.Millisecond})
	stop := make(chan struct{})
	var watcher, clients sync.WaitGroup
	watcher.Go(func() {
		for previous := s.Config.Stats(); ; {
			now := s.Config.Stats()
			grows := now.ConnsAccepted >= previous.ConnsAccepted && now.WorkersSpawned >= previous.WorkersSpawned && now.WorkersRetired >= previous.WorkersRetired
			for class := range now.Requests {
				grows = grows && now.Requests[class] >= previous.Requests[class]
			}
			if !grows || now.ConnsOpen != now.ConnsIdle+now.ConnsActive || now.ConnsOpen < 0 || now.ConnsIdle < 0 || now.ConnsActive < 0 || now.WorkersRunning < 0 {
				t.Errorf("%+v, then %+v", previous, now)
				return
			}
			previous = now
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range 4 {
		clients.Go(func() {
			for range 50 {
				s.Raw(t, strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 5))
			}
		})
	}
	clients.Wait()
	close(stop)
	watcher.Wait()
	filotest.Await(t, "the connections to go", func() bool { return s.Config.Stats().ConnsOpen == 0 })
	if got := s.Config.Stats().Requests; !slices.Equal(got[:], []uint64{0, 0, 1000, 0, 0, 0}) {
		t.Errorf("at the end: %v", got)
	}
}
