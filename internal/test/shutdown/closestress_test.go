package shutdown

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// stressTime is the environment variable with the duration of TestCloseStress, such as "1m".
const stressTime = "FILO_STRESS"

const (
	stressClients = 24
	stressLarge   = 300 << 10
	stressBody    = 100_000
)

// closeStress is a server whose connections other goroutines close while they are parked, timed out and hijacked, all at the same time. The
// path of each request names the work of its handler, and a number that the answer repeats. Half of the connections are not closed this way:
// they may not lose a byte, or get one from another connection. So they reveal a goroutine that reads, writes or closes a descriptor which
// the kernel has assigned to another connection.
type closeStress struct {
	t      *testing.T
	s      *filotest.Server
	secure bool
	ending atomic.Bool
	next   atomic.Uint64
	done   [len(stressWorks)]atomic.Uint64 // by work

	mu    sync.Mutex
	conns map[string]net.Conn // as ConnState has received them, by the client's address
	gone  []net.Conn          // closed connections, whose descriptors may now belong to other connections
}

var stressWorks = [...]string{"quick", "large", "upload", "refuse", "timeout", "park", "stream", "hijack"}

func (m *closeStress) changed(conn net.Conn, state filo.ConnState) {
	if state != filo.StateNew {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns[conn.RemoteAddr().String()] = conn
}

func (m *closeStress) handle(c *filo.Ctx) error {
	run := m.work
	switch rand.IntN(3) {
	case 0:
		run = filo.Inline(run)
	case 1:
		run = filo.Offload(run)
	}
	return run(c)
}

func (m *closeStress) work(c *filo.Ctx) error {
	parts := strings.Split(c.Path(), "/")
	work, number := parts[1], parts[2]
	if rand.IntN(3) == 0 || work == "timeout" {
		c.SetTimeout(time.Duration(rand.IntN(400))*time.Microsecond, nil)
	}
	if rand.IntN(4) == 0 {
		time.Sleep(time.Duration(rand.IntN(400)) * time.Microsecond)
	}
	if rand.IntN(4) == 0 {
		c.Context().Done()
	}
	switch work {
	case "large":
		return c.Text(200, strings.Repeat(number, stressLarge/len(number)))
	case "upload":
		body, err := c.Body()
		if err != nil {
			return err
		}
		if !bytes.Equal(body, stressPattern(number)) {
			m.t.Errorf("an upload of %d bytes isn't that of its client", len(body))
		}
	case "refuse":
		return filo.Error(403, number)
	case "park":
		_, err := c.Park("echo", func(p *filo.ParkedConn, why filo.Wake) error { return m.parked(p, why) })
		return err
	case "stream":
		p, err := c.ParkStream(func(p *filo.ParkedConn, _ filo.Wake) error { return stressSecond(p.Read(make([]byte, 100))) })
		if err == nil {
			go m.stream(p, number)
		}
		return err
	case "hijack":
		return m.hijacked(c)
	}
	return c.Text(200, number)
}

func stressSecond(_ int, err error) error { return err }

// stressPattern is the body of a request.
func stressPattern(number string) []byte {
	return bytes.Repeat([]byte(number), stressBody/len(number))
}

// parked is the function of a parked connection. It echoes the input until it receives "end".
func (m *closeStress) parked(p *filo.ParkedConn, why filo.Wake) error {
	if why == filo.WakeShutdown {
		return nil
	}
	var line [100]byte
	n, err := p.Read(line[:])
	switch {
	case err != nil:
		return err
	case bytes.HasSuffix(line[:n], []byte("end\n")):
		return io.EOF
	case rand.IntN(2) == 0:
		return p.Queue(filo.NewPreparedMessage(line[:n]))
	}
	return stressSecond(p.Write(line[:n]))
}

// stream sends a body on another goroutine than that of the connection's function.
func (m *closeStress) stream(p *filo.ParkedConn, number string) {
	for i := range 20 {
		if i%2 == 0 {
			p.Queue(filo.NewPreparedMessage([]byte(number)))
		} else {
			io.WriteString(p, number)
		}
	}
	p.End()
}

func (m *closeStress) hijacked(c *filo.Ctx) error {
	take := c.Hijack
	if rand.IntN(2) == 0 {
		take = func() (net.Conn, []byte, error) { return c.Upgrade("echo") }
	}
	conn, received, err := take()
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(filotest.Bound))
	if c.Status() != 101 {
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	}
	reader := bufio.NewReader(io.MultiReader(bytes.NewReader(received), conn))
	for {
		line, err := reader.ReadString('\n')
		if err != nil || line == "end\n" {
			return nil
		}
		io.WriteString(conn, line)
	}
}

// allDone reports whether requests of every kind have been made.
func (m *closeStress) allDone() bool {
	for i := range m.done {
		if m.done[i].Load() == 0 {
			return false
		}
	}
	return true
}

// client opens connections and uses them until the test ends.
func (m *closeStress) client() {
	for !m.ending.Load() && !m.t.Failed() {
		conn, err := net.Dial("tcp", m.s.Addr)
		if err != nil {
			if !m.ending.Load() {
				m.t.Errorf("connecting: %v", err)
			}
			return
		}
		conn.SetDeadline(time.Now().Add(filotest.Bound))
		victim, address, killed := rand.IntN(2) == 0, conn.LocalAddr().String(), make(chan struct{})
		if victim {
			go func() {
				defer close(killed)
				m.kill(address)
			}()
		}
		if m.secure {
			conn = tls.Client(conn, filotest.ClientTLS())
		}
		reader, work, goesOn := bufio.NewReader(conn), "", true
		for n := rand.IntN(6); n >= 0 && goesOn && err == nil; n-- {
			i := rand.IntN(len(stressWorks))
			work = stressWorks[i]
			if goesOn, err = m.request(conn, reader, work); err == nil {
				m.done[i].Add(1)
			}
		}
		if err != nil && !victim && !m.ending.Load() {
			m.t.Errorf("%s on a connection that nobody closes: %v", work, err)
		}
		conn.Close()
		if victim {
			<-killed
		}
	}
}

// kill closes the connection of a client after a moment, through ConnState's net.Conn. It also closes an earlier connection a second time.
func (m *closeStress) kill(address string) {
	var conn net.Conn
	for conn == nil && !m.ending.Load() {
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		m.mu.Lock()
		conn = m.conns[address]
		m.mu.Unlock()
	}
	if conn == nil {
		return
	}
	var closers sync.WaitGroup
	for range 2 {
		closers.Go(func() {
			conn.LocalAddr()
			conn.Close()
			conn.SetDeadline(time.Now())
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		})
	}
	closers.Wait()
	m.mu.Lock()
	delete(m.conns, address)
	if m.gone = append(m.gone, conn); len(m.gone) > 100 {
		m.gone = m.gone[1:]
	}
	old := m.gone[rand.IntN(len(m.gone))]
	m.mu.Unlock()
	old.Close()
}

// request makes a request and checks its answer. It reports whether the connection can be used again.
func (m *closeStress) request(conn net.Conn, reader *bufio.Reader, work string) (goesOn bool, err error) {
	number := fmt.Sprintf("%08d", m.next.Add(1))
	head, body := "GET /"+work+"/"+number+" HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n", ""
	if work == "upload" || work == "refuse" {
		body = string(stressPattern(number))
		head = fmt.Sprintf("POST%sContent-Length: %d\r\n", strings.TrimPrefix(head, "GET"), len(body))
	}
	if _, err := io.WriteString(conn, head+"\r\n"+body); err != nil && work != "refuse" {
		return false, err // the answer to a refused upload arrives early, so read it even if the write fails
	}
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return false, err
	}
	if response.StatusCode == 101 && (work == "park" || work == "hijack") {
		return false, stressEcho(conn, reader, number)
	}
	got, err := io.ReadAll(response.Body)
	switch want := map[string]string{
		"large":  strings.Repeat(number, stressLarge/len(number)),
		"stream": strings.Repeat(number, 20),
		"refuse": "Forbidden: " + number + "\n",
	}[work]; {
	case err != nil:
		return false, err
	case response.StatusCode == 503 && string(got) == filotest.TimedOutBody:
		if !response.Close {
			return false, errors.New("a time-out leaves the connection open")
		}
	case work == "refuse" && response.StatusCode == 403 && string(got) == want:
	case response.StatusCode == 200 && (string(got) == want || want == "" && string(got) == number):
	default:
		return false, fmt.Errorf("got %d, %d bytes: %.80q", response.StatusCode, len(got), got)
	}
	return !response.Close, nil
}

// stressEcho uses a connection that the handler has taken over.
func stressEcho(conn net.Conn, reader *bufio.Reader, number string) error {
	for range rand.IntN(4) {
		text := number + "\n"
		if _, err := io.WriteString(conn, text); err != nil {
			return err
		}
		line, err := reader.ReadString('\n')
		if err != nil {
			return err
		}
		if line != text {
			return fmt.Errorf("the echo of %q is %q", text, line)
		}
	}
	if _, err := io.WriteString(conn, "end\n"); err != nil {
		return err
	}
	if rest, err := io.ReadAll(reader); len(rest) > 0 || err != nil {
		return fmt.Errorf("behind the echo: %q, %w", rest, err)
	}
	return nil
}

// While connections are served, parked, timed out or hijacked, or linger, other goroutines close them through ConnState's net.Conn, and Close
// or Shutdown ends the rest. Other connections lose no bytes, the server releases all resources, and the race detector finds nothing.
func TestCloseStress(t *testing.T) {
	total := 2 * time.Second
	if text := os.Getenv(stressTime); text != "" {
		var err error
		if total, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	const rounds = 4
	var done [len(stressWorks)]uint64
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			m := &closeStress{t: t, secure: round%2 == 1, conns: make(map[string]net.Conn)}
			config := &filo.Server{Leaders: 2, Handler: m.handle, ConnState: m.changed, ReadHeaderTimeout: filotest.Bound}
			if m.secure {
				m.s = filotest.ListenTLS(t, config)
			} else {
				m.s = filotest.Serve(t, config)
			}
			var clients sync.WaitGroup
			for range stressClients {
				clients.Go(m.client)
			}
			<-time.After(total / rounds)
			filotest.Await(t, "each work to be done", func() bool { return t.Failed() || m.allDone() })
			m.ending.Store(true)
			if round < rounds/2 {
				m.s.Close()
			} else if err := m.s.ShutdownInTime(); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			clients.Wait()
			filotest.Await(t, "the connections to go", func() bool { return m.s.Stats().ConnsOpen == 0 })
			for i := range done {
				done[i] += m.done[i].Load()
			}
		})
	}
	for i, work := range stressWorks {
		t.Logf("%d times %s", done[i], work)
	}
}
