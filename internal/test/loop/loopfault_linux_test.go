package loop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// faultModes are the wrappers that fix a handler's class.
var faultModes = map[string]func(filo.Handler) filo.Handler{"inline": filo.Inline, "offload": filo.Offload}

// faultGate serves a gate: requests for /hold block until the gate opens, and others are answered at once.
func faultGate(t *testing.T, config *filo.Server) (*filotest.Server, *filotest.Gate) {
	filotest.NeedLoops(t)
	gate := filotest.NewGate()
	hold, quick := filo.Offload(gate.Handle), filo.Inline(gate.Handle)
	config.Handler = func(c *filo.Ctx) error {
		if c.Path() == "/hold" || c.Path() == "/offload" {
			return hold(c)
		}
		return quick(c)
	}
	s := filotest.Serve(t, config)
	t.Cleanup(gate.Open)
	return s, gate
}

// faultRest waits until the server is in its initial state again, and checks that all loops serve new connections.
func faultRest(t *testing.T, s *filotest.Server, body string) {
	t.Helper()
	filotest.Await(t, "the server to be as at first", func() bool {
		stats := s.Stats()
		return stats.ConnsOpen == 0 && stats.WorkersRunning == 0 && stats.WorkersLeading == s.Leaders
	})
	var clients []*filotest.Client
	for range 8 * s.Leaders {
		clients = append(clients, s.Dial(t))
	}
	for _, c := range clients {
		c.Get("/")
	}
	for _, c := range clients {
		c.Want(200, body, false)
		c.Close()
	}
}

const faultGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// The server never parses unread bytes of a body as a request, even if the head arrived in pieces.
func TestRestOfABodyBehindAHeadInPieces(t *testing.T) {
	filotest.NeedLoops(t)
	body := strings.Repeat("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", 1000) // so long that the server calls the handler before the whole body has arrived
	for name, mode := range faultModes {
		t.Run(name, func(t *testing.T) {
			var smuggled atomic.Int32
			s := filotest.Serve(t, &filo.Server{Handler: mode(func(c *filo.Ctx) error {
				if c.Path() == "/smuggled" {
					smuggled.Add(1)
				}
				return c.Text(200, c.Path())
			})})
			for _, framing := range []struct{ field, body string }{
				{fmt.Sprintf("Content-Length: %d", len(body)), body},
				{"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)},
			} {
				for _, cut := range []int{1, 1000, len(body) - 1} {
					c := s.Dial(t)
					c.Send("POST /first HTTP/1.1\r\nHo")
					filotest.Await(t, "the beginning of the head to be read", func() bool { return s.Stats().ConnsActive == 1 })
					c.Send("st: a\r\n" + framing.field + "\r\n\r\n")
					if framing.field[0] == 'T' { // the server waits for this many bytes before it calls the handler
						c.Send(framing.body[:17_000])
						c.Want(200, "/first", false)
						c.Send(framing.body[17_000:])
					} else {
						c.Want(200, "/first", false)
						c.Send(framing.body[:cut])
						filotest.Await(t, "the connection to wait", func() bool { return s.Stats().WorkersRunning == 0 })
						c.Send(framing.body[cut:])
					}
					c.Get("/second")
					c.Want(200, "/second", false)
					c.Close()
					filotest.Await(t, "the connection to go", func() bool { return s.Stats().ConnsOpen == 0 })
				}
			}
			if n := smuggled.Load(); n > 0 {
				t.Errorf("%d requests were made of a body", n)
			}
		})
	}
}

// If no place is free and the server hasn't measured the handler as quick, the ErrorHandler refuses the request, the handler isn't called,
// and the connection stays open.
func TestPlaceTakenByTheHandler(t *testing.T) {
	filotest.NeedLoops(t)
	gate := filotest.NewGate()
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Concurrency: 1, Handler: gate.Handle, ErrorHandler: func(c *filo.Ctx, err error) {
		var e *filo.HTTPError
		if errors.As(err, &e) {
			c.Text(e.Status, "refused")
		}
	}})
	t.Cleanup(gate.Open)
	holder := s.Dial(t)
	gate.HoldPlace(t, s, holder)
	refused := s.Stats().RequestsRefused
	c := s.Dial(t)
	c.Send(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 3) + "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
	for range 3 {
		response, body := c.Answer()
		if response.StatusCode != 503 || body != "refused" || response.Header.Get("Retry-After") != "1" || response.Close {
			t.Errorf("got %d %q, %v, close %v", response.StatusCode, body, response.Header, response.Close)
		}
	}
	if head, err := http.ReadResponse(c.Reader, &http.Request{Method: "HEAD"}); err != nil || head.StatusCode != 503 || head.ContentLength != 7 {
		t.Errorf("HEAD: got %+v, %v", head, err)
	}
	if n := s.Stats().RequestsRefused - refused; n != 4 {
		t.Errorf("%d requests were refused", n)
	}
	gate.Open()
	holder.Want(200, "held", false)
	filotest.Await(t, "the place to be free", func() bool {
		c.Get("/")
		response, _ := c.Answer()
		return response.StatusCode == 200
	})
	c.Close()
	holder.Close()
	filotest.Await(t, "the connections to go", func() bool { return s.Stats().ConnsOpen == 0 })
}

// If a quick handler must wait and no worker is free to take over its loop, its request is refused like others.
func TestNoPlaceToWaitIn(t *testing.T) {
	filotest.NeedLoops(t)
	gate, file := filotest.NewGate(), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	hold := filo.Offload(gate.Handle)
	quick := filo.Inline(func(c *filo.Ctx) error {
		if c.Path() == "/file" {
			// If WrapBody was called, a leader doesn't send the file itself.
			c.Response.WrapBody(func(*filo.Ctx, io.Writer, int64) io.WriteCloser { return nil })
			return c.File(file)
		}
		_, err := c.Body()
		return err
	})
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Concurrency: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/hold" {
			return hold(c)
		}
		return quick(c)
	}})
	t.Cleanup(gate.Open)
	holder := s.Dial(t)
	gate.HoldPlace(t, s, holder)
	for _, request := range []string{
		"GET /file HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\nthe beginning",
	} {
		for {
			before := s.Stats()
			c := s.Dial(t)
			c.Send(request)
			response, body := c.Answer()
			c.Close()
			after := s.Stats()
			if response.StatusCode != 503 && after.Retakes > before.Retakes {
				continue // the leader has lost its loop, and occupies a place beyond the limit
			}
			if response.StatusCode != 503 || response.Header.Get("Retry-After") != "1" || body != "Service Unavailable: too many requests at once\n" {
				t.Errorf("%q: got %d %.80q, %v", request, response.StatusCode, body, response.Header)
			}
			if n := after.RequestsRefused - before.RequestsRefused; n != 1 {
				t.Errorf("%d requests were refused", n)
			}
			break
		}
	}
}

// If an ErrorHandler waits for the rest of a refused request's body, the loop gets another leader, provided that a place is free by then.
func TestRefusedBodyIsRead(t *testing.T) {
	filotest.NeedLoops(t)
	gate, refused := filotest.NewGate(), make(chan struct{})
	var s *filotest.Server
	s = filotest.Serve(t, &filo.Server{Leaders: 1, Concurrency: 1, Handler: gate.Handle, ErrorHandler: func(c *filo.Ctx, err error) {
		if c.Path() == "/hold" {
			filo.DefaultErrorHandler(c, err)
			return
		}
		close(refused)
		filotest.Await(t, "the place to be free", func() bool {
			// The server counts the answer before its worker's place is free. The worker of this handler also counts if it has lost its loop
			// while it waits here.
			stats := s.Stats()
			return stats.Requests[2] == 1 && stats.WorkersRunning <= min(int(stats.Retakes), 1)
		})
		body, err := c.Body()
		c.Text(503, fmt.Sprint(len(body), err))
	}})
	t.Cleanup(gate.Open)
	holder := s.Dial(t)
	gate.HoldPlace(t, s, holder)
	c := s.Dial(t)
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")
	filotest.Recv(t, refused, "the request to be refused")
	gate.Open()
	holder.Want(200, "held", false)
	time.AfterFunc(20*time.Millisecond, func() { c.Send("lo\r\n0\r\n\r\n") })
	c.Want(503, "5 <nil>", false)
}

// While offloaded handlers occupy every place, further requests for them get a complete 503 with Retry-After, and requests for quick handlers
// are answered. Afterwards, the server is in its initial state again.
func TestEveryPlaceTaken(t *testing.T) {
	s, gate := faultGate(t, &filo.Server{Leaders: 2, Concurrency: 1})
	holder := s.Dial(t)
	gate.HoldPlace(t, s, holder)
	const overload = "Service Unavailable: too many requests at once\n"
	// refused sends a request for which no place is free, and checks the 503. It returns false if the leader has lost its loop: then the
	// leader occupies a place beyond the limit, and may serve the request.
	refused := func(c *filotest.Client, request string, closes bool) bool {
		retakes := s.Stats().Retakes
		c.Send(request)
		response, body := c.Answer()
		if response.StatusCode == 200 && s.Stats().Retakes > retakes {
			return false
		}
		if response.StatusCode != 503 || body != overload || response.Header.Get("Retry-After") == "" || response.Close != closes {
			t.Errorf("%.40q: got %d %q, Retry-After %q, close %v", request, response.StatusCode, body, response.Header.Get("Retry-After"), response.Close)
		}
		return true
	}
	for rounds := 0; rounds < 16; { // so that both loops get some connections
		c := s.Dial(t)
		c.Get("/")
		c.Want(200, "quick", false)
		if !refused(c, "GET /offload HTTP/1.1\r\nHost: a\r\n\r\n", false) {
			c.Close()
			continue
		}
		// The server skips the rest of the refused request, and keeps the connection open.
		whole := refused(c, "POST /offload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", false)
		c.Send("lo\r\n0\r\n\r\n")
		c.Get("/")
		c.Want(200, "quick", false)
		// A client that waits for a 100 learns that it needn't send its body.
		whole = whole && refused(c, "POST /offload HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n", true)
		c.Close()
		if whole {
			rounds++
		}
		// A request that is never completed doesn't need a place.
		half := s.Dial(t)
		half.Send("GET /offload HTTP/1.1\r\n")
		half.Reset()
	}
	gate.Open()
	holder.Want(200, "held", false)
	holder.Close()
	faultRest(t, s, "quick")
	filotest.Await(t, "the place to be free", func() bool {
		c := s.Dial(t)
		defer c.Close()
		c.Get("/offload")
		response, _ := c.Answer()
		return response.StatusCode == 200
	})
}

// If an inline handler must wait for its body, but no place is free for a worker that waits, the answer is a 503, because it isn't the
// client's fault.
func TestBodyWithoutAWorker(t *testing.T) {
	filotest.NeedLoops(t)
	gate := filotest.NewGate()
	hold := filo.Offload(gate.Handle)
	read := filo.Inline(func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(len(body)))
	})
	s := filotest.Serve(t, &filo.Server{Leaders: 2, Concurrency: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/hold" {
			return hold(c)
		}
		return read(c)
	}})
	t.Cleanup(gate.Open)
	gate.HoldPlace(t, s, s.Dial(t))
	for range 8 {
		c := s.Dial(t)
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n")
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			c.Reader.Peek(1)
		}()
		filotest.Await(t, "the answer", func() bool {
			select {
			case <-answered:
				return true
			default:
				return s.Stats().Retakes > 0
			}
		})
		io.WriteString(c, strings.Repeat("x", 20_000)) // the connection may end before all bytes are sent
		<-answered
		response, body := c.Answer()
		// A leader whose thread gets no processor for a long time loses its loop, and may then wait for the body.
		if response.StatusCode != 503 && !(response.StatusCode == 200 && s.Stats().Retakes > 0) {
			t.Errorf("got %d %q, want 503", response.StatusCode, body)
		}
	}
}

// A large answer of an inline handler, and the answers before it, arrive complete although no place is free for a worker that waits for the client.
func TestLargeAnswerWithoutAWorker(t *testing.T) {
	filotest.NeedLoops(t)
	large := strings.Repeat("0123456789abcdef", 300<<10/16)
	gate := filotest.NewGate()
	hold := filo.Offload(gate.Handle)
	answer := filo.Inline(func(c *filo.Ctx) error {
		if c.Path() == "/large" {
			return c.Text(200, large)
		}
		return c.Text(200, "small")
	})
	s := filotest.Serve(t, &filo.Server{Leaders: 2, Concurrency: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/hold" {
			return hold(c)
		}
		return answer(c)
	}})
	t.Cleanup(gate.Open)
	gate.HoldPlace(t, s, s.Dial(t))
	for range 8 {
		filotest.Await(t, "both answers", func() bool {
			c := s.Dial(t)
			c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /large HTTP/1.1\r\nHost: a\r\n\r\n")
			first, small := c.Answer()
			second, body := c.Answer()
			c.Close()
			// A leader that has lost its loop occupies a place beyond Concurrency for a moment, and then even quick requests may be refused.
			if s.Stats().Retakes > 0 && (first.StatusCode == 503 || second.StatusCode == 503) {
				return false
			}
			if small != "small" || body != large {
				t.Errorf("the answer before: %.80q; the large one: %d bytes", small, len(body))
			}
			return true
		})
	}
}

// heldSize is the size of a body that clients don't read.
const heldSize = 12 << 20

// heldServer starts a server, over TLS if secure is true, whose only place is occupied. So no worker can wait while clients don't read the
// answers of the quick handler.
func heldServer(t *testing.T, secure bool) (s *filotest.Server, dial func() *filotest.Client) {
	filotest.NeedLoops(t)
	gate, body := filotest.NewGate(), bytes.Repeat([]byte("0123456789abcdef"), heldSize/16)
	hold := filo.Offload(gate.Handle)
	quick := filo.Inline(func(c *filo.Ctx) error {
		switch c.Path() {
		case "/shared":
			return c.BytesNoCopy(200, "text/plain", body)
		case "/own":
			return c.Bytes(200, "text/plain", body)
		}
		return c.Text(200, "quick")
	})
	// There is no WriteTimeout, because on a busy machine the last client may read much later than the first one.
	config := &filo.Server{Leaders: 1, Concurrency: 1, WriteTimeout: -1, MaxBufferedAnswers: 64 << 20, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/hold" {
			return hold(c)
		}
		return quick(c)
	}}
	if secure {
		s = filotest.ListenTLS(t, config)
		dial = func() *filotest.Client { return s.DialTLS(t) }
	} else {
		s = filotest.Serve(t, config)
		dial = func() *filotest.Client { return s.Dial(t) }
	}
	t.Cleanup(gate.Open)
	gate.HoldPlace(t, s, dial())
	return s, dial
}

// heldAnswer reads an answer that the client hasn't read so far.
func heldAnswer(t *testing.T, c *filotest.Client) (status int) {
	t.Helper()
	c.SetDeadline(time.Now().Add(filotest.Bound)) // again, because reading the other answers has taken time
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatalf("reading an answer: %v", err)
	}
	want, piece, size := bytes.Repeat([]byte("0123456789abcdef"), 4<<10), make([]byte, 64<<10), 0
	for n := 0; err == nil; size += n {
		if n, err = io.ReadFull(response.Body, piece); response.StatusCode == 200 && !bytes.Equal(piece[:n], want[:n]) {
			t.Fatalf("the body isn't that of the handler from byte %d on", size)
		}
	}
	if response.StatusCode == 200 && size != heldSize {
		t.Errorf("a body of %d bytes isn't that of the handler: %v", size, err)
	}
	return response.StatusCode
}

// If clients don't read large bodies, and no worker can wait for them, the connections hold the handlers' own slices instead of copies. When
// the clients read, the bodies arrive complete.
func TestDeafClientsCostNoCopies(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			s, dial := heldServer(t, secure)
			var clients []*filotest.Client
			for range 6 {
				clients = append(clients, dial())
			}
			before := filotest.HeapInUse()
			for _, c := range clients {
				c.Send("GET /shared HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
			}
			filotest.Await(t, "the answers", func() bool {
				answered := s.Stats().Requests
				return answered[2]+answered[5] >= uint64(len(clients))
			})
			var grown int64
			if !filotest.Try(func() bool { grown = int64(filotest.HeapInUse()) - int64(before); return grown <= 2*heldSize }) {
				t.Errorf("%d clients cost %d KB", len(clients), grown>>10)
			}
			// A leader that has lost its loop occupies a place beyond Concurrency for a moment, and then the next request is refused.
			refused := func(status int) bool { return status == 503 && s.Stats().Retakes > 0 }
			for _, c := range clients {
				if status := heldAnswer(t, c); status != 200 && !refused(status) {
					t.Errorf("got %d", status)
				}
				if response, body := c.Answer(); (response.StatusCode != 200 || body != "quick") && !refused(response.StatusCode) {
					t.Errorf("behind it: %d %q", response.StatusCode, body)
				}
				c.Close()
			}
		})
	}
}

// MaxBufferedAnswers limits waiting bodies that were copied for one client each. Beyond the limit, a client gets a complete 503. When clients
// read or disconnect, the memory is free for others.
func TestDeafClientsAreLimited(t *testing.T) {
	s, dial := heldServer(t, false)
	for range 2 {
		var clients []*filotest.Client
		for range 10 {
			c := dial()
			c.Get("/own")
			c.Reader.Peek(1)
			clients = append(clients, c)
		}
		statuses := make(map[int]int)
		for i, c := range clients {
			if i == 0 {
				c.Reset() // this client disconnects without reading its answer
				continue
			}
			statuses[heldAnswer(t, c)]++
			c.Close()
		}
		// If a leader loses its loop while it copies a body, it may get a place and wait.
		if statuses[200] < 4 || statuses[503] < 2 || statuses[200]+statuses[503] != 9 {
			t.Errorf("got %v, want about 4 of 200 and 5 of 503", statuses)
		}
		filotest.Await(t, "the connections to go", func() bool { return s.Stats().ConnsOpen == 1 })
	}
	if got := s.Stats(); got.Refusals.UnsentAnswers < 4 || got.Refusals.UnsentAnswers > got.RequestsRefused {
		t.Errorf("%d refused, %+v", got.RequestsRefused, got.Refusals)
	}
}

// If a new connection gets the descriptor of an earlier connection for which events are still queued, it never receives answers of the
// earlier connection, and never ends because of these events.
func TestDescriptorReuse(t *testing.T) {
	filotest.NeedLoops(t)
	answer := func(c *filo.Ctx) error {
		if strings.HasPrefix(c.Path(), "/close") {
			c.Response.Header.Set("Connection", "close")
		}
		return c.Text(200, c.Path())
	}
	inline, offload := filo.Inline(answer), filo.Offload(answer)
	s := filotest.Serve(t, &filo.Server{Leaders: 2, Handler: func(c *filo.Ctx) error {
		if strings.HasSuffix(c.Path(), "0") {
			return offload(c)
		}
		return inline(c)
	}})
	var clients sync.WaitGroup
	for i := range 12 {
		clients.Go(func() {
			for j := range 60 {
				conn, err := net.Dial("tcp", s.Addr)
				if err != nil {
					t.Error(err)
					return
				}
				conn.SetDeadline(time.Now().Add(filotest.Bound))
				path := fmt.Sprintf("/%d/%d", i, j)
				request := "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"
				reader := bufio.NewReader(conn)
				switch j % 5 {
				case 0: // the server closes the connection while more bytes arrive
					path = "/close" + path
					io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
				case 1: // the client closes the connection without reading
					io.WriteString(conn, strings.Repeat(request, 3))
					conn.Close()
					continue
				case 2:
					io.WriteString(conn, request)
					conn.(*net.TCPConn).SetLinger(0)
					conn.Close()
					continue
				default:
					io.WriteString(conn, request)
				}
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Errorf("%s: %v", path, err)
					conn.Close()
					return
				}
				if body, err := io.ReadAll(response.Body); err != nil || string(body) != path {
					t.Errorf("%s was answered %q, %v", path, body, err)
				}
				if j%5 == 0 {
					if rest, err := io.ReadAll(reader); len(rest) > 0 || err != nil {
						t.Errorf("%s: behind the answer %q, %v", path, rest, err)
					}
				}
				conn.Close()
			}
		})
	}
	clients.Wait()
	filotest.Await(t, "the server to be as at first", func() bool {
		stats := s.Stats()
		return stats.ConnsOpen == 0 && stats.WorkersRunning == 0 && stats.WorkersLeading == 2
	})
}

// If a request and the end of the client's side arrive together, the request is answered, and then the connection ends, whatever the
// handler's class is.
func TestEndWithTheRequestOfEachHandler(t *testing.T) {
	filotest.NeedLoops(t)
	work := func(c *filo.Ctx) error {
		switch c.Path() {
		case "/body":
			body, err := c.Body()
			if err != nil {
				return err
			}
			return c.Text(200, fmt.Sprint(len(body)))
		case "/reader":
			n, err := io.Copy(io.Discard, c.BodyReader())
			if err != nil {
				return err
			}
			return c.Text(200, fmt.Sprint(n))
		case "/sleep":
			time.Sleep(2 * time.Millisecond)
		case "/context":
			c.Context().Done()
		}
		return c.Text(200, "0")
	}
	for name, mode := range faultModes {
		t.Run(name, func(t *testing.T) {
			s := filotest.Serve(t, &filo.Server{Leaders: 2, Handler: mode(work)})
			for _, test := range []struct {
				path string
				size int
			}{{"/quick", 0}, {"/sleep", 0}, {"/context", 0}, {"/body", 0}, {"/body", 10}, {"/body", 30_000}, {"/reader", 10}, {"/reader", 30_000}} {
				for range 8 {
					c := s.Dial(t)
					c.Send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", test.path, test.size, strings.Repeat("x", test.size)))
					c.Conn.(*net.TCPConn).CloseWrite()
					response, body := c.Answer()
					if response.StatusCode != 200 || body != fmt.Sprint(test.size) {
						t.Errorf("%s of %d: got %d %q", test.path, test.size, response.StatusCode, body)
					}
					c.WantEOF()
				}
				// The client ends its side in the middle of the body.
				if test.size > 1 {
					c := s.Dial(t)
					c.Send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\nx", test.path, test.size))
					c.Conn.(*net.TCPConn).CloseWrite()
					if response, body := c.Answer(); response.StatusCode != 400 {
						t.Errorf("half a body for %s: got %d %q", test.path, response.StatusCode, body)
					}
					c.WantEOF()
				}
			}
			filotest.Await(t, "the connections to go", func() bool { return s.Stats().ConnsOpen == 0 && s.Stats().WorkersRunning == 0 })
		})
	}
}

// Events that arrive while a connection's handler runs aren't lost: a request gets its answer, and an end or a reset ends the connection.
func TestEventsForABusyConnection(t *testing.T) {
	for name, mode := range faultModes { // an inline handler loses its loop while it blocks
		t.Run(name, func(t *testing.T) {
			filotest.NeedLoops(t)
			gate := filotest.NewGate()
			s := filotest.Serve(t, &filo.Server{Leaders: 2, Handler: mode(gate.Handle)})
			defer gate.Open()
			var pipelined, halves, resets []*filotest.Client
			for range 4 {
				for _, kind := range []*[]*filotest.Client{&pipelined, &halves, &resets} {
					c := s.Dial(t)
					gate.Hold(t, c)
					*kind = append(*kind, c)
				}
			}
			for _, c := range pipelined {
				c.Get("/")
				c.Send("GET / HTTP/1.1\r\nHo") // an incomplete request
			}
			for _, c := range halves {
				c.Get("/")
				c.Conn.(*net.TCPConn).CloseWrite()
			}
			for _, c := range resets {
				c.Get("/")
				c.Reset()
			}
			gate.Open()
			for _, c := range halves {
				c.Want(200, "held", false)
				c.Want(200, "quick", false)
				c.WantEOF()
			}
			for _, c := range pipelined {
				c.Want(200, "held", false)
				c.Want(200, "quick", false)
				c.Send("st: a\r\n\r\n")
				c.Want(200, "quick", false)
			}
			filotest.Await(t, "the others to go", func() bool {
				stats := s.Stats()
				return stats.ConnsOpen == len(pipelined) && stats.WorkersRunning == 0 && stats.WorkersLeading == 2
			})
			for _, c := range pipelined {
				c.Close()
			}
			faultRest(t, s, "quick")
		})
	}
}

// If a client resets its connection in any state of a request, each loop still has a leader afterwards, and every worker is free again. The
// test uses inline and offloaded handlers.
func TestResetsOfEachClass(t *testing.T) {
	filotest.NeedLoops(t)
	const post = "POST /body HTTP/1.1\r\nHost: a\r\n"
	for name, mode := range faultModes {
		t.Run(name, func(t *testing.T) {
			s := filotest.Serve(t, &filo.Server{Leaders: 2, Handler: mode(func(c *filo.Ctx) error {
				switch c.Path() {
				case "/body":
					if _, err := c.Body(); err != nil {
						return err
					}
				case "/huge":
					return c.BytesNoCopy(200, "text/plain", filotest.Huge())
				case "/sleep":
					time.Sleep(2 * time.Millisecond)
				}
				return c.Text(200, "quick")
			})})
			for _, test := range []struct {
				send, read string
			}{
				{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", ""},
				{"GET /sleep HTTP/1.1\r\nHost: a\r\n\r\n", ""},
				{"GET /sleep HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHo", ""},
				{strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200), "HTTP/1.1 200"},
				{post + "Content-Length: 10\r\n\r\nhalf", ""},
				{post + "Content-Length: 100000\r\n\r\nhalf", ""},
				{post + "Transfer-Encoding: chunked\r\n\r\n5\r\nab", ""},
				{post + "Content-Length: 100000\r\nExpect: 100-continue\r\n\r\n", "HTTP/1.1 100"},
				{"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200"},
				{"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /huge HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200"},
			} {
				for range 4 {
					c := s.Dial(t)
					c.Send(test.send)
					begin := make([]byte, len(test.read))
					if _, err := io.ReadFull(c, begin); err != nil || string(begin) != test.read {
						t.Fatalf("%.30q: got %q, %v", test.send, begin, err)
					}
					c.Reset()
				}
			}
			faultRest(t, s, "quick")
		})
	}
}

// Close and Serve return even if handlers don't. When the handlers return later, all resources are released.
func TestCloseWithAHandlerThatNeverReturns(t *testing.T) {
	for name, mode := range faultModes {
		t.Run(name, func(t *testing.T) {
			filotest.NeedLoops(t)
			gate := filotest.NewGate()
			s := filotest.Serve(t, &filo.Server{Leaders: 2, Handler: mode(gate.Handle)})
			defer gate.Open()
			for range 3 {
				gate.Hold(t, s.Dial(t))
				c := s.Dial(t)
				c.Get("/")
				c.Want(200, "quick", false)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			s.WantServed(t, filo.ErrServerClosed)
			gate.Open()
			s.WantNoGoroutine(t)
		})
	}
}

// If any of the user's functions panics or ends its goroutine in a leader, the loop still has a leader afterwards.
func TestPanicsOfALeader(t *testing.T) {
	fail := func(how string) {
		if how == "panic" {
			panic("on purpose")
		}
		runtime.Goexit()
	}
	for _, where := range []string{"handler", "ErrorHandler", "ConnState", "Logger"} {
		for _, how := range []string{"panic", "Goexit"} {
			if where == "Logger" && how == "panic" {
				continue // the server calls the logger while it handles a panic
			}
			t.Run(where+" "+how, func(t *testing.T) {
				filotest.NeedLoops(t)
				var armed atomic.Bool // one failure at a time
				failHere := func(here string) {
					if where == here && armed.CompareAndSwap(true, false) {
						fail(how)
					}
				}
				s := filotest.Serve(t, &filo.Server{
					Leaders: 2,
					Handler: filo.Inline(func(c *filo.Ctx) error {
						if c.Path() == "/" {
							return c.Text(200, "fine")
						}
						failHere("handler")
						return filo.Error(500, "failed")
					}),
					ErrorHandler: func(c *filo.Ctx, err error) {
						failHere("ErrorHandler")
						filo.DefaultErrorHandler(c, err)
					},
					ConnState: func(net.Conn, filo.ConnState) { failHere("ConnState") },
					Logger:    slog.New(faultLog{failHere}),
				})
				other := s.Dial(t)
				other.Get("/")
				other.Want(200, "fine", false)
				// After the answer, the server calls ConnState, because this connection becomes idle. This call must not be the one that fails.
				filotest.Await(t, "the other connection to rest", func() bool { return s.Stats().ConnsIdle == 1 })
				for range 20 {
					c := s.Dial(t)
					armed.Store(true)
					c.Get("/fail")
					c.TryAnswer() // there may be no answer
					c.Close()
					filotest.Await(t, "the connection to go", func() bool {
						stats := s.Stats()
						return stats.ConnsOpen == 1 && stats.WorkersRunning == 0 && stats.WorkersLeading == 2
					})
				}
				armed.Store(false)
				other.Get("/")
				other.Want(200, "fine", false)
				other.Close()
				faultRest(t, s, "fine")
			})
		}
	}
}

// A worker that occupies a reserved place releases it, even if user code panics outside of the handler.
func TestKeptPlaceAfterAPanic(t *testing.T) {
	filotest.NeedLoops(t)
	var armed atomic.Bool
	gate := filotest.NewGate()
	defer gate.Open()
	hold := filo.Offload(gate.Handle)
	quick := filo.Inline(func(c *filo.Ctx) error {
		if c.Path() == "/fail" {
			armed.Store(true)
			return filo.Error(500, "failed")
		}
		return c.Text(200, "quick")
	})
	log := faultLog{func(string) {
		if armed.CompareAndSwap(true, false) {
			panic("on purpose")
		}
	}}
	s := filotest.Serve(t, &filo.Server{Concurrency: 1, Logger: slog.New(log), Handler: func(c *filo.Ctx) error {
		time.Sleep(time.Millisecond) // so that the server's own class isn't quick, and calls need a place
		if c.Path() == "/hold" {
			return hold(c)
		}
		return quick(c)
	}})
	first := s.Dial(t)
	filotest.Await(t, "it to be known that the handler is slow", func() bool {
		first.Get("/")
		first.Served(faultGet, "quick")
		return filotest.ClassOf(s.Server, "").Kind == "slow"
	})
	gate.HoldPlace(t, s, first)
	for range 40 {
		c := s.Dial(t)
		c.Get("/fail")
		c.TryAnswer() // there is no answer
		c.Close()
	}
	filotest.Await(t, "a kept place to be free", func() bool {
		c := s.Dial(t)
		defer c.Close()
		c.Get("/")
		response, _, err := c.TryAnswer()
		return err == nil && response.StatusCode == 200
	})
	gate.Open()
	first.Want(200, "held", false)
	first.Get("/")
	first.Served(faultGet, "quick")
	first.Close()
	filotest.Await(t, "nobody to be counted", func() bool {
		stats := s.Stats()
		return stats.ConnsOpen == 0 && stats.WorkersRunning == 0
	})
}

// If a leader has lost its loop before it finds out that the handler is quick, it also gets a reserved place.
func TestKeptPlaceOfALateLeader(t *testing.T) {
	filotest.NeedLoops(t)
	gate := filotest.NewGate()
	hold, quick := filo.Offload(gate.Handle), filo.Inline(gate.Handle)
	var s *filotest.Server
	s = filotest.Serve(t, &filo.Server{Leaders: 1, Concurrency: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/hold" {
			return hold(c)
		}
		retakes, wait := s.Stats().Retakes, 20*time.Millisecond
		if retakes == 0 {
			wait = filotest.Bound / 4 // the monitor of a busy machine may look late
		}
		for end := time.Now().Add(wait); s.Stats().Retakes == retakes && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		return quick(c)
	}})
	t.Cleanup(gate.Open)
	gate.HoldPlace(t, s, s.Dial(t))
	c := s.Dial(t)
	for range 4 { // after three calls, the server's own class isn't quick any more, so the leader hands its seat off before the call
		c.Get("/")
		c.Want(200, "quick", false)
	}
	if s.Stats().Retakes == 0 {
		t.Error("no leader has lost its loop")
	}
}

// faultLog is a log handler that calls fail.
type faultLog struct{ fail func(here string) }

func (l faultLog) Enabled(context.Context, slog.Level) bool { return true }
func (l faultLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "serving" { // the goroutine of Serve logs this, perhaps after the first answer
		l.fail("Logger")
	}
	return nil
}
func (l faultLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l faultLog) WithGroup(string) slog.Handler      { return l }

// Shutdown and Close end whatever the loops are doing: while a seat is handed off or retaken, or gets a new leader.
func TestEndsDuringHandoffs(t *testing.T) {
	filotest.NeedLoops(t)
	for round := range 40 {
		work := faultModes[[]string{"inline", "offload"}[round/2%2]](func(c *filo.Ctx) error {
			if c.Path() == "/slow" {
				time.Sleep(1500 * time.Microsecond) // an inline handler's loop is retaken
			}
			return c.Text(200, "fine")
		})
		s := filotest.Serve(t, &filo.Server{Leaders: 2, Handler: work})
		var clients sync.WaitGroup
		var answers atomic.Int32
		for i := range 6 {
			conn, err := net.Dial("tcp", s.Addr)
			if err != nil {
				t.Fatal(err)
			}
			clients.Go(func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(filotest.Bound))
				reader := bufio.NewReader(conn)
				for n := 0; ; n++ {
					path := []string{"/", "/slow"}[(n+i)%2]
					if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
						return
					}
					if _, err := reader.Peek(1); err != nil {
						return // the connection may end, but not in the middle of an answer
					}
					response, err := http.ReadResponse(reader, nil)
					if err == nil {
						_, err = io.ReadAll(response.Body)
					}
					if err != nil {
						t.Errorf("half an answer: %v", err)
						return
					}
					answers.Add(1)
				}
			})
		}
		filotest.Await(t, "answers", func() bool { return answers.Load() > int32(10+round) })
		if round%2 == 0 {
			if err := s.ShutdownInTime(); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		} else {
			s.Close()
		}
		clients.Wait()
		s.WantServed(t, filo.ErrServerClosed)
		s.WantNoGoroutine(t)
		if stats := s.Stats(); stats.WorkersLeading+stats.WorkersRunning+stats.WorkersReady+stats.ConnsOpen > 0 {
			t.Fatalf("at the end of round %d: %+v", round, stats)
		}
	}
}
