package loop

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
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
)

// modelSeed is the environment variable whose seed makes a run repeat the plan of a failed run.
const modelSeed = "FILO_TEST_SEED"

const (
	modelClients = 16
	modelConns   = 5       // connections of each client, one after the other
	modelMost    = 1 << 15 // requests of a run
	modelLarge   = 300 << 10
	modelPiece   = 9 << 10 // of a streamed answer
)

// model is a server with clients that act at random. Each request has a unique number, which its answer repeats.
type model struct {
	t     *testing.T
	s     *filotest.Server
	seed  uint64
	small bool // Concurrency is small, so a request may be refused
	cuts  bool // the test ends the server with Close, so answers may be cut off

	classes map[string]*class.Class
	next    atomic.Uint32
	calls   [modelMost]atomic.Int32 // calls of handlers, by request
	most    [modelMost]int32        // upper bounds of calls; each is only used by its request's client until all clients have ended
	least   [modelMost]int32        // lower bounds of calls
	ending  atomic.Bool             // Shutdown or Close was called
}

// modelRequest is a request, with the expected answer.
type modelRequest struct {
	number     uint32
	mode, work string
	text       string // the request as it is sent
	want       string // the body of a 200
}

// String returns the method and the target.
func (r *modelRequest) String() string { return r.text[:strings.Index(r.text, " HTTP")] }

// modelConn is a client's end of a connection, with the requests and answers on it.
type modelConn struct {
	net.Conn
	reader  *bufio.Reader
	history []string
}

// newModel starts a server.
func newModel(t *testing.T, concurrency int) *model {
	filotest.NeedLoops(t)
	m := &model{t: t, seed: uint64(time.Now().UnixNano()), small: concurrency < 100, classes: make(map[string]*class.Class)}
	if text := os.Getenv(modelSeed); text != "" {
		m.seed, _ = strconv.ParseUint(text, 10, 64)
	}
	for _, work := range modelWorks {
		m.classes[work] = &class.Class{Name: work}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d", modelSeed, m.seed)
		}
	})
	s := &filo.Server{Leaders: 2, Concurrency: concurrency, Handler: m.handle}
	listener, err := s.Listen("127.0.0.1:0") // a socket for each loop
	if err != nil {
		t.Fatal(err)
	}
	m.s = filotest.Serve(t, s, listener)
	return m
}

// modelWorks lists the behaviours of handlers. Usual ones occur more often.
var modelWorks = []string{
	"quick", "quick", "quick", "quick", "sleep", "spin", "body", "reader", "stream", "large", "panic", "Goexit", "hijack",
}

// handle behaves as the path says. The path consists of the mode (how the handler is classed), the work, its amount, and the request's number.
func (m *model) handle(c *filo.Ctx) error {
	part := strings.Split(c.Path(), "/")
	mode, work := part[1], part[2]
	amount, _ := strconv.Atoi(part[3])
	number, _ := strconv.Atoi(part[4])
	handler := func(c *filo.Ctx) error { return m.work(c, work, amount, number) }
	switch mode {
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

func (m *model) work(c *filo.Ctx, work string, amount, number int) error {
	m.calls[number].Add(1)
	text := fmt.Sprintf("%08d", number)
	switch work {
	case "sleep":
		time.Sleep(time.Duration(amount) * time.Microsecond)
	case "spin":
		for begin := time.Now(); time.Since(begin) < time.Duration(amount)*time.Microsecond; {
		}
	case "body":
		body, err := c.Body()
		if err != nil {
			return err
		}
		if string(body) != strings.Repeat(text, amount) {
			return c.Text(200, "another body")
		}
	case "reader":
		r, piece := c.BodyReader(), make([]byte, 1000)
		var body strings.Builder
		if _, err := io.CopyBuffer(struct{ io.Writer }{&body}, struct{ io.Reader }{r}, piece); err != nil {
			return err
		}
		if body.String() != strings.Repeat(text, amount) {
			return c.Text(200, "another body")
		}
	case "stream":
		w := c.Stream()
		for range amount {
			if _, err := io.WriteString(w, strings.Repeat(text, modelPiece/8)); err != nil {
				return err
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return nil
	case "large":
		return c.Text(200, strings.Repeat(text, modelLarge/8))
	case "panic":
		panic(text)
	case "Goexit":
		runtime.Goexit()
	case "hijack":
		conn, received, err := c.Hijack()
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(filotest.Bound))
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n%s%s", text, received)
		io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn})
		return nil
	}
	return c.Text(200, text)
}

// request returns a random request.
func (m *model) request(random *rand.Rand, last bool) *modelRequest {
	r := &modelRequest{number: m.next.Add(1), work: modelWorks[random.IntN(len(modelWorks))]}
	if r.work == "hijack" && !last {
		r.work = "quick" // a hijacking handler would receive the requests after it
	}
	r.mode = []string{"plain", "learned", "inline", "offload"}[random.IntN(4)]
	amount, number := random.IntN(3000), fmt.Sprintf("%08d", r.number)
	r.want = number
	method, rest := "GET", "\r\n"
	switch r.work {
	case "body", "reader":
		amount = []int{0, 1, 100, 1000, 5000}[random.IntN(5)]
		method = "POST"
		body := strings.Repeat(number, amount)
		if random.IntN(2) == 0 {
			rest = fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
			break
		}
		rest = "Transfer-Encoding: chunked\r\n\r\n"
		for len(body) > 0 {
			n := min(len(body), 1+random.IntN(9000))
			rest += fmt.Sprintf("%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		rest += "0\r\n\r\n"
	case "stream":
		amount = random.IntN(4)
		r.want = strings.Repeat(number, amount*(modelPiece/8))
	case "large":
		r.want = strings.Repeat(number, modelLarge/8)
	}
	r.text = fmt.Sprintf("%s /%s/%s/%d/%d HTTP/1.1\r\nHost: a\r\n%s", method, r.mode, r.work, amount, r.number, rest)
	// This is the upper bound until the answer gives a better one.
	m.most[r.number] = 1
	return r
}

// run starts the clients, and returns the group that waits for them.
func (m *model) run() *sync.WaitGroup {
	clients := new(sync.WaitGroup)
	for i := range modelClients {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(m.seed, uint64(i)))
			for n := 0; n < modelConns && !m.t.Failed() || m.ending.Load(); n++ {
				conn, err := net.Dial("tcp", m.s.Addr)
				if err != nil {
					if !m.ending.Load() {
						m.t.Errorf("connecting: %v", err)
					}
					return
				}
				conn.SetDeadline(time.Now().Add(filotest.Bound))
				m.connection(random, &modelConn{Conn: conn, reader: bufio.NewReader(conn)})
				conn.Close()
			}
		})
	}
	return clients
}

// connection uses one connection of a client.
func (m *model) connection(random *rand.Rand, conn *modelConn) {
	for rounds := 1 + random.IntN(3); rounds > 0; rounds-- {
		count := 1
		if random.IntN(2) == 0 {
			count += random.IntN(20)
		}
		var batch []*modelRequest
		var text strings.Builder
		for i := range count {
			r := m.request(random, i == count-1)
			batch = append(batch, r)
			text.WriteString(r.text)
		}
		end := ""
		if rounds == 1 {
			end = []string{"close", "reset", "half-close", "half-close", "answers", "answers"}[random.IntN(6)]
		}
		if batch[count-1].work == "hijack" && end == "half-close" {
			end = "answers"
		}
		sent := m.send(random, conn, text.String(), end == "half-close")
		wanted := batch
		if end == "close" || end == "reset" {
			// The client disconnects at a random moment: before, between or within the answers.
			wanted = batch[:random.IntN(count+1)]
			if len(wanted) < count && random.IntN(2) == 0 {
				time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
			}
		}
		goesOn := m.answers(random, conn, batch, wanted)
		if end == "reset" {
			conn.Conn.(*net.TCPConn).SetLinger(0)
		}
		if end == "reset" || end == "close" || !goesOn {
			conn.Close()
		}
		<-sent
		if !goesOn {
			return
		}
		switch end {
		case "":
			continue
		case "half-close":
			if b, err := conn.reader.ReadByte(); err != io.EOF && !m.ending.Load() {
				m.t.Errorf("behind the last answer after a half-close: %q, %v", b, err)
			}
		}
		return
	}
}

// send sends the text, at once or in pieces, on another goroutine, so that the client can read answers at the same time. It closes sent at
// the end. It ignores errors, because reading the answers reports them.
func (m *model) send(random *rand.Rand, conn *modelConn, text string, halfClose bool) (sent chan struct{}) {
	type piece struct {
		text  string
		pause time.Duration
	}
	var pieces []piece
	for cuts := max(0, random.IntN(9)-4); cuts > 0; cuts-- {
		n := random.IntN(len(text) + 1)
		pieces = append(pieces, piece{text[:n], time.Duration(random.IntN(800)) * time.Microsecond})
		text = text[n:]
	}
	pieces = append(pieces, piece{text: text})
	sent = make(chan struct{})
	go func() {
		defer close(sent)
		for _, piece := range pieces {
			if _, err := io.WriteString(conn, piece.text); err != nil {
				return
			}
			if piece.pause > 0 {
				time.Sleep(piece.pause)
			}
		}
		if halfClose {
			conn.Conn.(*net.TCPConn).CloseWrite()
		}
	}()
	return sent
}

// answers reads the answers to the wanted requests. It reports whether the connection can be used again.
func (m *model) answers(random *rand.Rand, conn *modelConn, batch, wanted []*modelRequest) (goesOn bool) {
	for i, r := range wanted {
		behind := batch[i+1:]
		if r.work == "large" && random.IntN(2) == 0 {
			time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
		}
		begun, closes, err := m.answer(conn, r)
		if err != nil {
			if !m.mayEnd(begun, err, len(behind) > 0) {
				m.t.Errorf("%s: the answer to this one of %d in a batch, begun %v: %v\nbefore: %q", r, len(batch)-i, begun, err, conn.history)
			}
			return false
		}
		if !closes {
			continue
		}
		for _, each := range behind {
			m.most[each.number] = 0
		}
		if rest, err := io.ReadAll(conn.reader); len(rest) > 0 || err != nil && !(len(behind) > 0 && filotest.IsReset(err)) {
			m.t.Errorf("behind the answer to request %d, which closed: %.40q, %v", r.number, rest, err)
		}
		return false
	}
	if last := batch[len(batch)-1]; last.work == "hijack" && len(wanted) == len(batch) && m.most[last.number] == 1 && m.least[last.number] == 1 {
		m.echo(conn)
		return false
	}
	return true
}

// mayEnd reports whether the connection may end with err instead of an answer, or within an answer.
func (m *model) mayEnd(begun bool, err error, behind bool) bool {
	if !m.ending.Load() {
		return false
	}
	// If the client sends bytes on a connection that the server has just closed, a reset may destroy the previous answer.
	return m.cuts || !begun && (err == io.EOF || filotest.IsReset(err)) || behind && filotest.IsReset(err)
}

// answer reads the answer to a request. begun says that a part of the answer has arrived.
func (m *model) answer(conn *modelConn, r *modelRequest) (begun, closes bool, err error) {
	if _, err := conn.reader.Peek(1); err != nil {
		return false, false, err
	}
	response, err := http.ReadResponse(conn.reader, nil)
	if err != nil {
		return true, false, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return true, false, err
	}
	conn.history = append(conn.history, fmt.Sprint(r, " ", response.StatusCode))
	fails := r.work == "panic" || r.work == "Goexit"
	switch status := response.StatusCode; {
	case status == 200 && !fails:
		if string(body) != r.want {
			m.t.Errorf("%s was answered %d bytes: %.20q, want %d: %.20q", r, len(body), body, len(r.want), r.want)
		}
		m.least[r.number] = 1
	case status == 500 && fails:
		m.least[r.number] = 1
	case status == 503 && m.small:
	default:
		return true, false, fmt.Errorf("got %d %.80q", status, body)
	}
	if response.Close && response.StatusCode != 503 && r.work != "Goexit" && !m.ending.Load() {
		return true, false, fmt.Errorf("the answer %d closes", response.StatusCode)
	}
	return true, response.Close, nil
}

// echo sends lines on a hijacked connection, and checks their echo.
func (m *model) echo(conn *modelConn) {
	ending := m.ending.Load() // if true, Close may have found the connection before the handler took it over
	for _, text := range []string{"one\n", "two\n"} {
		io.WriteString(conn, text)
		if line, err := conn.reader.ReadString('\n'); line != text || err != nil {
			if ending && (err == io.EOF || filotest.IsReset(err)) {
				return
			}
			m.t.Errorf("the echo of %q is %q, %v", text, line, err)
		}
	}
	conn.Conn.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(conn.reader); len(rest) > 0 || err != nil && !(ending && filotest.IsReset(err)) {
		m.t.Errorf("behind the echo: %q, %v", rest, err)
	}
}

// checkCalls checks how often each request's handler was called. No handler may still be running.
func (m *model) checkCalls() {
	for number := range m.next.Load() {
		n, most, least := m.calls[number+1].Load(), m.most[number+1], m.least[number+1]
		if n < least || n > most {
			m.t.Errorf("the handler of request %d was called %d times, want %d to %d", number+1, n, least, most)
		}
	}
}

// checkRest checks that the server has released all resources of the clients, and that both loops have a leader.
func (m *model) checkRest() {
	t, s := m.t, m.s
	filotest.Await(t, "the server to be as at first", func() bool {
		stats := s.Stats()
		return stats.ConnsOpen == 0 && stats.WorkersRunning == 0 && stats.WorkersLeading == 2
	})
	for range 4 {
		var clients []*filotest.Client
		for range 8 { // so that both loops get some connections
			c := s.Dial(t)
			c.Get("/inline/quick/0/0")
			clients = append(clients, c)
		}
		for _, c := range clients {
			if m.small {
				c.Served("GET /inline/quick/0/0 HTTP/1.1\r\nHost: a\r\n\r\n", "00000000")
			} else {
				c.Want(200, "00000000", false)
			}
			c.Get("/offload/quick/0/0")
			if m.small {
				c.Answer() // it may be a refusal, since the requests are made at the same time
			} else {
				c.Want(200, "00000000", false)
			}
			c.Close()
		}
	}
	filotest.Await(t, "the connections to go", func() bool { return s.Stats().ConnsOpen == 0 && s.Stats().WorkersRunning == 0 })
}

// checkEnd checks that the server has ended without leaving anything behind.
func (m *model) checkEnd() {
	m.s.WantServed(m.t, filo.ErrServerClosed)
	m.s.WantNoGoroutine(m.t)
	if stats := m.s.Stats(); stats.ConnsOpen > 0 || stats.WorkersRunning+stats.WorkersReady+stats.WorkersLeading > 0 {
		m.t.Errorf("at the end: %+v", stats)
	}
}

// Whatever clients and handlers do, each request is answered once, on its own connection and in order. After the clients have disconnected,
// the server is in its initial state again.
func TestLoopModel(t *testing.T) {
	for _, concurrency := range []int{1, 2, 5, 1000} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			m := newModel(t, concurrency)
			m.run().Wait()
			m.checkRest()
			m.checkCalls()
			m.ending.Store(true)
			if err := m.s.ShutdownInTime(); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			m.checkEnd()
		})
	}
}

// If the server is shut down while clients act, each request gets a complete answer, or its connection ends.
func TestLoopModelShutdown(t *testing.T) {
	for _, concurrency := range []int{2, 1000} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			m := newModel(t, concurrency)
			clients := m.run()
			filotest.Await(t, "requests", func() bool { return m.next.Load() > 200 })
			m.ending.Store(true)
			if err := m.s.ShutdownInTime(); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			clients.Wait()
			m.checkEnd()
			m.checkCalls()
		})
	}
}

// If the server is closed while clients act, it ends every connection, and releases all resources.
func TestLoopModelClose(t *testing.T) {
	m := newModel(t, 1000)
	m.cuts = true
	clients := m.run()
	filotest.Await(t, "requests", func() bool { return m.next.Load() > 200 })
	m.ending.Store(true)
	if err := m.s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	clients.Wait()
	m.checkEnd()
	m.checkCalls()
}
